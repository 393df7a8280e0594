#!/usr/bin/python3
"""Descriptors: a daemon that has few of them refuses and recovers, and sandboxes share none."""

import contextlib
import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

from sandpool_test import (ApiError, Case, Daemon, SandpoolCase, main, needs_programs,  # noqa: E402
                           needs_root)

REFUSALS = {"UNAVAILABLE", "ACQUIRE_TIMEOUT", "POOL_EMPTY", "CREATE_FAILED", "TOO_MANY"}


class FewDescriptors(Case):
    def setUp(self):
        reason = needs_root() or needs_programs()
        if reason:
            self.skip(reason)

    def fill(self, daemon, held):
        """Hold sandboxes that run something until three in a row were refused."""
        refused = 0
        while refused < 3:
            try:
                sandbox = daemon.acquire(policy="wait", wait="1s")
                stream = sandbox.stream()
                held.append((sandbox, stream))
                stream.begin(shell="sleep 60")
                refused = 0
            except ApiError as error:
                self.assertIn(error.code, REFUSALS)
                refused += 1

    def check(self, limit):
        prefix = ("/usr/bin/prlimit", f"--nofile={limit}:{limit}")
        with Daemon({"pools": {"default": {"max_idle": 3}}}, prefix=prefix) as daemon:
            held = []
            self.fill(daemon, held)
            self.assertGreater(len(held), 2)
            sockets = []
            for _ in range(limit):
                client = socket.socket(socket.AF_UNIX)
                client.settimeout(2)
                client.connect(daemon.socket_path)
                sockets.append(client)
            for client in sockets:
                client.close()
            self.assertIsNone(daemon.process.poll(), daemon.log())
            for sandbox, stream in held:
                stream.close()
            for sandbox, _stream in held:
                with contextlib.suppress(ApiError):  # its stream may be on its way out
                    sandbox.release()
            daemon.wait_settled(timeout=20)
            self.assertEqual(daemon.run("echo", "again").text, "again")

    def test_few(self):
        self.check(64)

    def test_some(self):
        self.check(128)


class Shared(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2}}}

    def test_stdin_of_one_is_not_that_of_another(self):
        leave = ("import fcntl, os; fcntl.fcntl(0, fcntl.F_SETSIG, 37);"
                 "fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND);"
                 "fcntl.flock(0, fcntl.LOCK_EX); print(fcntl.fcntl(0, fcntl.F_GETSIG))")
        look = "import fcntl; print(fcntl.fcntl(0, fcntl.F_GETSIG), fcntl.fcntl(0, fcntl.F_GETFL))"
        waits = {"policy": "wait", "wait": "20s"}
        with self.daemon.acquire(**waits) as one, self.daemon.acquire(**waits) as other:
            before = other.python(look).text
            self.assertEqual(one.python(leave).text, "37")
            self.assertEqual(other.python(look).text, before)
            self.assertEqual(before.split()[0], "0")


if __name__ == "__main__":
    main()
