"""Sockets and connections: who may connect, how many, how slowly, and what a leaving client undoes."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import (Case, Daemon, SandpoolCase, StartFailed, main, needs_programs,  # noqa: E402
                           needs_root, wait_until)

GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
MAX = 16
OPERATORS = 16
LIMIT = MAX + OPERATORS
OVERFLOW = 32


def connect(path, timeout=10):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout * t.SLOW_FACTOR)
    sock.connect(path)
    return sock


def ask(sock, request=GET):
    """The status of one request on a kept connection; None if it was closed."""
    try:
        sock.sendall(request)
        answer = sock.recv(65536)
    except (BrokenPipeError, ConnectionResetError):
        return None
    return int(answer.split()[1]) if answer else None


def post(target, body):
    return (f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode()


class Counts(SandpoolCase):
    """Peers of the Unix socket are operators: the limit, and the places kept for them."""

    config = {"max_connections": MAX}

    def setUp(self):
        # Connections of earlier tests are noticed by the loop, not by close().
        wait_until(lambda: self.fds() == self.quiet, 5, "earlier connections are gone")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.wait_settled()
        time.sleep(0.2)
        cls.quiet = t.fd_count(cls.daemon.pid)

    def fds(self):
        return t.fd_count(self.daemon.pid)

    def test_the_limit_and_one_more(self):
        socks = [connect(self.daemon.socket_path) for _ in range(LIMIT)]
        for sock in socks:
            self.assertEqual(ask(sock), 200)
        extra = connect(self.daemon.socket_path)
        self.assertEqual(ask(extra), 503)
        self.assertEqual(extra.recv(1), b"")
        for sock in socks:
            self.assertEqual(ask(sock), 200, "those within the limit are not disturbed")
        socks.pop().close()
        wait_until(lambda: self.fds() < self.quiet + LIMIT, 5, "one is gone")
        again = connect(self.daemon.socket_path)
        self.assertEqual(ask(again), 200)
        for sock in socks + [again, extra]:
            sock.close()

    def test_far_beyond_the_limit_connections_are_closed(self):
        socks = [connect(self.daemon.socket_path) for _ in range(LIMIT + OVERFLOW + 20)]
        time.sleep(0.3)
        self.assertLessEqual(self.fds(), self.quiet + LIMIT + OVERFLOW)
        self.assertEqual(ask(socks[0]), 200)
        self.assertIsNone(ask(socks[-1]))
        for sock in socks:
            sock.close()
        wait_until(lambda: self.fds() == self.quiet, 5, "all are gone")
        self.assertEqual(self.daemon.request("GET", "/healthz").status, 200)

    def test_streams_count(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            streams = [box.stream() for _ in range(LIMIT - 1)]
            last = connect(self.daemon.socket_path)
            self.assertEqual(ask(last), 200)
            extra = connect(self.daemon.socket_path)
            self.assertEqual(ask(extra), 503)
            for stream in streams:
                stream.close()
            wait_until(lambda: self.fds() < self.quiet + LIMIT, 5, "the streams are gone")
            last.close()
            extra.close()

    def test_nothing_is_left_of_many_short_connections(self):
        for number in range(500):
            sock = connect(self.daemon.socket_path)
            if number % 2:
                self.assertIn(ask(sock), (200, 503))
            sock.close()
        wait_until(lambda: self.fds() == self.quiet, 5, "all are gone")


class Manners(SandpoolCase):
    # All that "full" may have is held: whoever waits for it waits.
    config = {"pools": {"default": {"max_idle": 1}, "none": {"max_idle": 0},
                        "full": {"max_idle": 0, "max_total": 1}}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.acquire("full", policy="create", wait="20s")

    def test_pipelined_requests_are_answered_in_order(self):
        sock = connect(self.daemon.socket_path)
        sock.sendall(b"".join(GET.replace(b"Host: a", b"Host: a\r\nX-Request-Id: id%d" % number)
                              for number in range(50)))
        answer = b""
        while answer.count(b"ok\n") < 50:
            answer += sock.recv(65536)
        at = [answer.index(b"X-Request-Id: id%d\r\n" % number) for number in range(50)]
        self.assertEqual(at, sorted(at))
        sock.close()

    def test_requests_behind_a_waiting_one_are_answered_after_it(self):
        sock = connect(self.daemon.socket_path)
        sock.sendall(post("/v1/pools/full/acquire", '{"wait": "300ms"}') + GET)
        answer = b""
        while b"ok\n" not in answer:
            part = sock.recv(65536)
            self.assertTrue(part, answer)
            answer += part
        self.assertLess(answer.index(b"HTTP/1.1 503 "), answer.index(b"HTTP/1.1 200 "), answer)
        sock.close()

    def test_a_request_in_pieces(self):
        sock = connect(self.daemon.socket_path)
        for byte in post("/v1/pools/none/acquire", "{}"):
            sock.sendall(bytes([byte]))
        self.assertEqual(int(sock.recv(65536).split()[1]), 503)
        sock.close()

    def test_leaving_calls_off_an_acquire(self):
        for leave in ("close", "half"):
            with self.subTest(leave):
                sock = connect(self.daemon.socket_path)
                sock.sendall(post("/v1/pools/full/acquire", '{"wait": "60s"}'))
                wait_until(lambda: self.daemon.pool("full")["waiters"] == 1, 5, "it waits")
                if leave == "close":
                    sock.close()
                else:
                    sock.shutdown(socket.SHUT_WR)
                wait_until(lambda: self.daemon.pool("full")["waiters"] == 0, 5, "it is called off")
                if leave == "half":
                    self.assertEqual(sock.recv(100), b"")
                    sock.close()

    def test_leaving_with_requests_behind_the_waiting_one(self):
        sock = connect(self.daemon.socket_path)
        sock.sendall(post("/v1/pools/full/acquire", '{"wait": "60s"}') * 10)
        wait_until(lambda: self.daemon.pool("full")["waiters"] == 1, 5, "the first waits")
        sock.close()
        wait_until(lambda: self.daemon.pool("full")["waiters"] == 0, 5, "it is called off")
        time.sleep(0.2)
        self.assertEqual(self.daemon.pool("full")["waiters"], 0)

    def test_leaving_a_plain_exec_kills_it(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            sock = connect(self.daemon.socket_path)
            sock.sendall(post(f"/v1/sandboxes/{box.id}/exec", '{"argv": ["/bin/sleep", "60"]}'))
            wait_until(lambda: box.inspect()["running_execs"] == 1, 5, "it runs")
            sock.close()
            wait_until(lambda: box.inspect()["running_execs"] == 0, 5, "it is killed")

    def test_leaving_at_every_point_of_a_request(self):
        request = post("/v1/pools/full/acquire", '{"wait": "1ms"}')
        for length in range(len(request) + 1):
            sock = connect(self.daemon.socket_path)
            sock.sendall(request[:length])
            sock.close()
        wait_until(lambda: self.daemon.pool("full")["waiters"] == 0, 5, "nobody waits")
        self.assertEqual(self.daemon.request("GET", "/healthz").status, 200)

    @t.limit(120)
    def test_slow_requests_end_after_thirty_seconds(self):
        """One byte every second is progress to libmicrohttpd, not to us."""
        path = self.daemon.socket_path
        head = post("/v1/pools/none/acquire", "x" * 1000)
        slow = {"nothing": connect(path, 60), "headers": connect(path, 60),
                "body": connect(path, 60)}
        start = time.monotonic()
        slow["body"].sendall(head[:-900])
        closed = {}
        while len(closed) < len(slow) and time.monotonic() - start < 60:
            for name, sock in slow.items():
                if name in closed:
                    continue
                try:
                    if name != "nothing":
                        sock.sendall(b"G" if name == "headers" else b"x")
                    sock.settimeout(0.01)
                    if sock.recv(100) == b"":
                        closed[name] = time.monotonic() - start
                except TimeoutError:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    closed[name] = time.monotonic() - start
            time.sleep(1)
        self.assertEqual(set(closed), set(slow))
        for name, seconds in closed.items():
            self.assertTrue(29 <= seconds <= 36, (name, seconds))

    def test_shutdown_tells_those_who_wait(self):
        with Daemon({"pools": {"default": {"max_idle": 0, "max_total": 1}}}) as daemon:
            daemon.acquire(policy="create", wait="20s")
            sock = connect(daemon.socket_path)
            sock.sendall(post("/v1/pools/default/acquire", '{"wait": "60s"}'))
            wait_until(lambda: daemon.pool()["waiters"] == 1, 5, "it waits")
            daemon.process.terminate()
            self.assertEqual(int(sock.recv(65536).split()[1]), 503)
            sock.close()


class Sockets(Case):
    """The Unix socket itself (B-218, B-222)."""

    def setUp(self):
        reason = needs_root() or needs_programs()
        if reason:
            self.skipTest(reason)

    def daemon(self, **config):
        return Daemon({"pools": {"default": {"max_idle": 0}}, **config})

    def test_mode_and_owner(self):
        import grp
        import pwd
        with self.daemon() as daemon:
            info = os.stat(daemon.socket_path)
            self.assertEqual(stat.S_IMODE(info.st_mode), 0o600)
            self.assertEqual(info.st_uid, pwd.getpwnam(t.USER).pw_uid)
        group = grp.getgrgid(next(entry.gr_gid for entry in grp.getgrall() if entry.gr_gid > 10))
        with self.daemon(admin_group=group.gr_name) as daemon:
            info = os.stat(daemon.socket_path)
            self.assertEqual(stat.S_IMODE(info.st_mode), 0o660)
            self.assertEqual((info.st_uid, info.st_gid), (0, group.gr_gid))
            as_member = self.curl(daemon, "/v1/config", group=group.gr_gid)
            self.assertEqual(as_member, "200")
            self.assertNotEqual(self.curl(daemon, "/v1/config", group=65534), "200")

    def curl(self, daemon, target, group):
        """The status for an unprivileged uid in this group; '' if it cannot connect."""
        code = ("import http.client, socket, sys\n"
                "c = http.client.HTTPConnection('a')\n"
                "c.sock = socket.socket(socket.AF_UNIX)\n"
                f"c.sock.connect({daemon.socket_path!r})\n"
                f"c.request('GET', {target!r})\n"
                "print(c.getresponse().status)\n")
        result = subprocess.run([t.PYTHON, "-c", code], user=65533, group=65533,
                                extra_groups=[group], capture_output=True, text=True, check=False)
        return result.stdout.strip()

    def test_stale_socket_is_replaced(self):
        daemon = self.daemon()
        left = socket.socket(socket.AF_UNIX)
        left.bind(daemon.socket_path)
        left.close()
        with daemon:
            self.assertEqual(daemon.request("GET", "/healthz").status, 200)

    def test_after_sigkill_the_next_start_works(self):
        daemon = self.daemon()
        with daemon:
            daemon.kill()
            daemon.start()
            self.assertEqual(daemon.request("GET", "/healthz").status, 200)

    def refuses(self, daemon, *words):
        with self.assertRaises(StartFailed) as caught:
            with daemon:
                pass
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_symbolic_link_is_refused(self):
        daemon = self.daemon()
        target = f"{daemon.directory}/target"
        os.symlink(target, daemon.socket_path)
        self.refuses(daemon, daemon.socket_path)
        self.assertFalse(os.path.exists(target))

    def test_file_is_refused_and_kept(self):
        daemon = self.daemon()
        kept = []
        remove = daemon.remove
        with open(daemon.socket_path, "w", encoding="utf-8") as file:
            file.write("precious")
        daemon.remove = lambda: kept.append(t.read_text(daemon.socket_path)) or remove()
        self.refuses(daemon, daemon.socket_path)
        self.assertEqual(kept, ["precious"])

    def test_socket_of_a_living_program_is_refused(self):
        daemon = self.daemon()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(daemon.socket_path)
            other.listen(1)
            self.refuses(daemon, daemon.socket_path)

    def test_missing_directory_is_made(self):
        daemon = self.daemon()
        shutil.rmtree(f"{daemon.directory}/run")
        with daemon:
            self.assertEqual(stat.S_IMODE(os.stat(f"{daemon.directory}/run").st_mode), 0o755)
            # root's directory: the daemon cannot remove its socket, the test does
            daemon.stop(check=False)
            os.unlink(daemon.socket_path)

    def test_bad_addresses(self):
        for address, word in (("tcp://0.0.0.0:1", "insecure"), ("tcp://[::]:1", "insecure"),
                              ("tls://127.0.0.1:1", "tls_"), ("tcp://nowhere.invalid:1", "nowhere"),
                              ("tcp://127.0.0.1", "tcp://127.0.0.1"),
                              ("unix:///" + "x" * 108, "xxx")):
            with self.subTest(address):
                daemon = self.daemon()
                daemon.write_config({"listen": [f"unix://{daemon.socket_path}", address]})
                self.refuses(daemon, word)

    def test_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(1)
            port = other.getsockname()[1]
            daemon = self.daemon()
            daemon.write_config({"listen": [f"unix://{daemon.socket_path}",
                                            f"tcp://127.0.0.1:{port}"]})
            self.refuses(daemon, str(port))


if __name__ == "__main__":
    main()
