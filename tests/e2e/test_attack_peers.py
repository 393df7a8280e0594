#!/usr/bin/python3
"""Peers that stop in the middle: clients that leave, and an init that does not answer any more."""

import os
import pathlib
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from sandpool_test import Case, Daemon, fd_count, main, needs_programs  # noqa: E402
from sandpool_test import needs_root, read_text, wait_until  # noqa: E402

KEY = "0123456789abcdef0123456789abcdef01234567"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peers(Case):
    def setUp(self):
        reason = needs_root() or needs_programs()
        if reason:
            self.skip(reason)

    def test_clients_that_leave_at_every_byte_of_a_request(self):
        """On TCP the end may arrive together with the bytes before it; it must be seen all the same,
        not only at the deadline of a request."""
        port = free_port()
        daemon = Daemon({"pools": {"default": {"max_idle": 2}}}, wait_ready=False)
        keys = f"{daemon.directory}/keys"
        with open(keys, "w", encoding="ascii") as file:
            file.write(KEY + "\n")
        os.chmod(keys, 0o600)
        daemon.write_config({"listen": [*daemon.config["listen"], f"tcp://127.0.0.1:{port}"],
                             "api_keys_file": keys})
        daemon.wait_ready = True
        with daemon:
            daemon.wait_settled()
            before = fd_count(daemon.pid)
            body = '{"argv": ["true"]}'
            request = (f"POST /v1/pools/default/run HTTP/1.1\r\nHost: x\r\n"
                       f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
                       f"{body}").encode()
            for end in range(1, len(request)):
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(request[:end])
                    if end % 2:
                        client.shutdown(socket.SHUT_WR)
            wait_until(lambda: fd_count(daemon.pid) <= before + 4, 8, "all connections are closed")
            self.assertEqual(daemon.pool()["leased"], 0)

    def test_an_init_that_does_not_answer_costs_its_sandbox_and_no_client(self):
        with Daemon({"pools": {"default": {"max_idle": 1}}}) as daemon:
            with daemon.acquire() as sandbox:
                mine = [pid for pid in daemon.inits()
                        if sandbox.id in read_text(f"/proc/{pid}/cgroup")]
                self.assertEqual(len(mine), 1)
                os.kill(mine[0], signal.SIGSTOP)
                outcome = sandbox.run("echo", "never", timeout_s=25)
                self.assertEqual(outcome.reason, "died", outcome)
            self.assertIn("does not answer", daemon.log())
            daemon.wait_settled()
            self.assertEqual(daemon.run("echo", "again").text, "again")


if __name__ == "__main__":
    main()
