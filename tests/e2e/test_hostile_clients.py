"""Clients that mean harm, or might as well: crowds of idle connections, requests that never end, bytes
that are no request, and what all of it costs the daemon.

The bounds are those of "The daemon's memory" in deploy/docs/performance.md.
"""

import contextlib
import http.client
import json
import os
import random
import resource
import select
import signal
import socket
import ssl
import statistics
import struct
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from execd_case import (ExecdCase, KEY, WS_BINARY, WS_CLOSE, WS_PING, WS_PONG,  # noqa: E402
                        WS_TEXT, WebSocket, free_port, receive_all, receive_head)
from sandpool_test import main, wait_until  # noqa: E402
from test_api_tls import make_certificate  # noqa: E402

MIB = 1 << 20
GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
OVERFLOW = 32
OPERATORS = 16
HEADER_BYTES_MAX = 16 * 1024
BODY_MAX = MIB
INPUT_TOTAL = 256 * MIB
INPUT_FREE = 68 * 1024
OUTPUT_TOTAL = 256 * MIB
# Of a connection that has been served and is idle, and of one with a request under way, without
# what that holds.
IDLE_KIB = 40
REQUEST_KIB = 96
# Of a stream that nobody reads, beside its share of OUTPUT_TOTAL.
STREAM_KIB = 1024
# What an upload and a connection in TLS have beside that.
UPLOADS, UPLOAD_KIB = 40, 320
TLS_COUNT, TLS_KIB = 500 if t.SLOW_FACTOR == 1 else 50, 48
# What a sandbox with execd can have: background output, commands, sessions, terminals.
COMMANDS, SESSIONS, TERMINALS = 256, 32, 16
SANDBOX_KIB = 8 * 1024 + 8 * 1024 + SESSIONS * 512 + TERMINALS * 1024


class HostileCase(ExecdCase):
    more = {}

    @classmethod
    def listen_more(cls, _directory):
        return [], cls.more

    def unix(self):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30 * t.SLOW_FACTOR)
        sock.connect(self.daemon.socket_path)
        self.addCleanup(sock.close)
        return sock

    def rss(self):
        return t.rss_kib(self.daemon.pid)

    def fds(self):
        return t.fd_count(self.daemon.pid)

    def links(self):
        """What its descriptors are."""
        found = []
        for number in os.listdir(f"/proc/{self.daemon.pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{self.daemon.pid}/fd/{number}"))
        return sorted(found)

    def unread(self):
        """Bytes that came to the daemon's TCP port and wait in the kernel for being read."""
        port = f":{self.tcp:04X}"
        return sum(int(fields[4].partition(":")[2], 16)
                   for fields in map(str.split, t.read_text("/proc/net/tcp").splitlines()[1:])
                   if fields[1].endswith(port))

    def assert_left_nothing(self, quiet, seconds=20):
        """No more descriptors than when links() was `quiet`."""
        try:
            wait_until(lambda: self.fds() <= len(quiet), seconds, "nothing is left of it")
        except AssertionError as error:
            raise AssertionError(f"{error}: {quiet} → {self.links()}") from None

    def assert_grown_less(self, before_kib, kib, what=""):
        if t.SLOW_FACTOR == 1:  # a sanitizer keeps what was freed
            self.assertLess(self.rss() - before_kib, kib, what)


def ask(sock, request=GET):
    """The status of one short answer; None if the connection ended instead."""
    try:
        sock.sendall(request)
        answer = sock.recv(65536)
    except (BrokenPipeError, ConnectionResetError):
        return None
    return int(answer.split()[1]) if answer else None


def ended(sock):
    """Whether the other side has ended it; reads nothing that would be missed."""
    try:
        return sock.recv(65536, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except (ConnectionResetError, BrokenPipeError):
        return True


def close_all(socks):
    for sock in socks:
        sock.close()


class Crowd(HostileCase):
    """As many idle connections as are allowed, which is ten thousand of them."""

    COUNT = 10_000 if t.SLOW_FACTOR == 1 else 1000
    more = {"max_connections": COUNT}

    @classmethod
    def setUpClass(cls):
        cls.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if cls.limits[1] < cls.COUNT + 1000:
            raise unittest.SkipTest(f"needs {cls.COUNT + 1000} descriptors, may have {cls.limits[1]}")
        # A low soft limit is inherited: the daemon takes what it may have.
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, cls.limits[1]))
        try:
            super().setUpClass()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (cls.limits[1], cls.limits[1]))
        cls.daemon.wait_settled()

    @classmethod
    def tearDownClass(cls):
        resource.setrlimit(resource.RLIMIT_NOFILE, cls.limits)
        super().tearDownClass()

    def crowd(self):
        """Served once and kept; without a try for each that would hide how many there are."""
        socks = [socket.create_connection(("127.0.0.1", self.tcp), 30 * t.SLOW_FACTOR)
                 for _ in range(self.COUNT)]
        for sock in socks:
            sock.sendall(GET)
        for sock in socks:
            self.assertEqual(int(sock.recv(65536).split()[1]), 200)
        return socks

    def median_ms(self, sock):
        times = []
        for _ in range(200):
            start = time.perf_counter()
            self.assertEqual(ask(sock), 200)
            times.append((time.perf_counter() - start) * 1000)
        return statistics.median(times)

    def test_all_are_served_and_one_more_is_not(self):
        quiet, quiet_kib = self.links(), self.rss()
        with self.unix() as operator:
            alone = self.median_ms(operator)
        for _ in range(2):
            socks = self.crowd()
            grown = self.rss() - quiet_kib
            if t.SLOW_FACTOR == 1:
                self.assertLess(grown, self.COUNT * IDLE_KIB)
            extra = self.connect()
            self.assertEqual(ask(extra), 503)
            self.assertEqual(extra.recv(1), b"", "and closed")
            for sock in random.Random(1).sample(socks, 50):
                self.assertEqual(ask(sock), 200, "those within the limit are served as before")
            with self.unix() as operator:
                crowded = self.median_ms(operator)
            self.assertEqual(self.daemon.call("GET", "/v1/pools/default")["state"], "running")
            self.assertEqual(self.daemon.run("echo", "in").text, "in", "operators get in and work")
            self.assertLess(crowded, 3 * alone + 0.2, "idle connections cost nobody time")
            # One leaves, one comes.
            socks.pop().close()
            wait_until(lambda: self.fds() < len(quiet) + self.COUNT, 10, "it is gone")
            again = self.connect()
            self.assertEqual(ask(again), 200)
            socks.append(again)
            close_all(socks)
            self.assert_left_nothing(quiet, 30)
        self.assert_grown_less(quiet_kib, self.COUNT * IDLE_KIB)


class Operators(HostileCase):
    """Who is to end a flood must get in."""

    MAX = 16
    more = {"max_connections": MAX}

    def flood(self):
        socks = []
        for _ in range(self.MAX):
            socks.append(self.connect())
            self.assertEqual(ask(socks[-1]), 200)
        for _ in range(OVERFLOW):
            socks.append(self.connect())
        wait_until(lambda: ended(self.connect()), 10, "nobody else is even told")
        return socks

    def test_their_reserve_and_one_more(self):
        socks = self.flood()
        operators = [self.unix() for _ in range(OPERATORS)]
        for sock in operators:
            self.assertEqual(ask(sock), 200)
        more = self.unix()
        self.assertIn(ask(more), (503, None))
        more.close()
        # The flood is full all the while, and a place that an operator leaves is an operator's.
        self.assertTrue(ended(self.connect()) or ask(self.connect()) in (503, None))
        operators.pop().close()

        def back_in():
            sock = self.unix()
            if ask(sock) == 200:
                return sock
            sock.close()
            return None
        operators.append(wait_until(back_in, 10, "an operator is served again"))
        close_all(operators)
        wait_until(back_in, 10, "and another").close()
        for sock in socks[:self.MAX]:
            self.assertEqual(ask(sock), 200, "whoever was in is served")
        close_all(socks)
        wait_until(lambda: ask(self.connect()) == 200, 10, "the next are served again")


class Half(HostileCase):
    """Requests that stop somewhere."""

    @classmethod
    def listen_more(cls, directory):
        make_certificate(directory)
        cls.tls_port = free_port()
        return [f"tls://127.0.0.1:{cls.tls_port}"], {
            "tls_certificate_file": f"{directory}/cert.pem",
            "tls_key_file": f"{directory}/key.pem"}

    def stalled(self):
        """{what: socket}, each after a part of a request that never goes on."""
        body = b'{"image": {"uri": "x"}}'
        whole = (b"POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\nOPEN-SANDBOX-API-KEY: " + KEY.encode()
                 + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        chunked = (b"POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\nOPEN-SANDBOX-API-KEY: "
                   + KEY.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        parts = {f"length {end}": whole[:end] for end in range(len(whole))}
        tail = b"5;ext=1\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"
        parts.update({f"chunk {end}": chunked + tail[:end] for end in range(len(tail))})
        socks = {}
        for what, part in parts.items():
            socks[what] = self.connect()
            socks[what].sendall(part)
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)
        for end in (0, 1, 5, 9, len(hello)):
            socks[f"hello {end}"] = socket.create_connection(("127.0.0.1", self.tls_port))
            socks[f"hello {end}"].sendall(hello[:end])
        context = ssl.create_default_context(cafile=f"{self.daemon.directory}/cert.pem")
        for end in (0, 10, len(whole) - 1):
            inner = context.wrap_socket(
                socket.create_connection(("127.0.0.1", self.tls_port)),
                server_hostname="localhost")
            inner.sendall(whole[:end])
            inner.setblocking(False)
            socks[f"within TLS {end}"] = inner
        return socks

    def test_they_end_and_disturb_nobody(self):
        self.daemon.wait_settled()
        quiet, quiet_kib = self.links(), self.rss()
        socks = self.stalled()
        start = time.monotonic()
        self.assert_grown_less(quiet_kib, len(socks) * REQUEST_KIB + 4096)
        self.assertEqual(self.daemon.run("echo", "neighbour").text, "neighbour")
        with self.connect() as sock:  # kept, it would be idle for 75 s and count as left
            self.assertEqual(ask(sock), 200)
        poll = select.poll()
        names = {}
        for what, sock in socks.items():
            sock.setblocking(False)
            names[sock.fileno()] = what
            poll.register(sock, select.POLLIN | select.POLLHUP)
        while names and time.monotonic() - start < 60 * t.SLOW_FACTOR:
            for number, _event in poll.poll(1000):
                sock = socks[names[number]]
                try:
                    data = sock.recv(65536)
                except (ssl.SSLWantReadError, BlockingIOError):
                    continue
                except (ConnectionResetError, ssl.SSLError, OSError):
                    data = b""
                if data == b"":
                    what = names.pop(number)
                    poll.unregister(number)
                    self.assertGreater(time.monotonic() - start, 8, what)
                elif not names[number].startswith("within"):
                    self.assertIn(data.split()[1], (b"400", b"413", b"422"), names[number])
        self.assertEqual(names, {}, "these still stall")
        for sock in socks.values():
            sock.close()
        self.assert_left_nothing(quiet, 10)
        self.assertEqual(self.daemon.pool()["leased"], 0)


class Garbage(HostileCase):
    """Bytes that are no request."""

    @classmethod
    def listen_more(cls, directory):
        return Half.listen_more.__func__(cls, directory)

    def setUp(self):
        self.daemon.run("true")
        self.daemon.wait_settled()
        time.sleep(0.2)
        self.quiet, self.quiet_kib = self.links(), self.rss()

    def tearDown(self):
        self.assert_left_nothing(self.quiet)
        self.assert_grown_less(self.quiet_kib, 8 * 1024)
        self.assertEqual(self.daemon.run("echo", "alive").text, "alive")

    def begin(self, data, port=None):
        """These bytes and their end are sent."""
        sock = socket.create_connection(("127.0.0.1", port or self.tcp), 20 * t.SLOW_FACTOR)
        with contextlib.suppress(OSError):  # it may be refused before all of it is sent
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        return sock

    def throw(self, data, port=None):
        """What is answered to these bytes."""
        with self.begin(data, port) as sock:
            return receive_all(sock)

    def assert_refused(self, answer, data):
        self.assertNotRegex(answer[:16], rb"^HTTP/1.1 (1|2)", data[:60])

    def test_bytes_of_other_protocols(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n",
                     b"*1\r\n$4\r\nPING\r\n", b"EHLO x\r\n", b"\0" * 4096, b"\xff" * 70000,
                     b"\r\n" * 20000, b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", b" GET / HTTP/1.1\r\n\r\n",
                     b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n"):
            self.assert_refused(self.throw(data), data)
            self.throw(data, self.tls_port)
        self.throw(GET, self.tls_port)

    def test_random_bytes(self):
        rng = random.Random(20)
        thrown = []
        for _ in range(200):
            data = rng.randbytes(rng.choice((1, 7, 64, 1500, 40_000)))
            if rng.random() < 0.5:
                data = b"POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\n" + data
            thrown.append((self.begin(data), self.begin(data, self.tls_port), data))
        for plain, secure, data in thrown:
            with plain, secure:
                self.assert_refused(receive_all(plain), data)
                receive_all(secure)

    def test_heads_up_to_the_limit_and_one_more(self):
        def head(size):
            start = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Pad: "
            return start + b"x" * (size - len(start) - 4) + b"\r\n\r\n"
        self.assertTrue(self.throw(head(HEADER_BYTES_MAX)).startswith(b"HTTP/1.1 200 "))
        self.assertTrue(self.throw(head(HEADER_BYTES_MAX + 1)).startswith(b"HTTP/1.1 4"))

    def test_heads_without_an_end(self):
        endless = {"name": b"a" * MIB, "value": b"X: " + b"a" * MIB,
                   "lines": b"X: y\r\n" * 200_000, "folded": b"X: y\r\n" + b" z\r\n" * 200_000}
        for what, data in endless.items():
            with self.subTest(what):
                answer = self.throw(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + data)
                self.assert_refused(answer, data)
        self.assert_refused(self.throw(b"G" * MIB), b"G")
        self.assert_refused(self.throw(b"GET /" + b"a" * MIB), b"GET")

    def test_ten_thousand_requests_at_once(self):
        count = 10_000
        sock = self.connect(60)
        sock.setblocking(False)
        data, answers, sent = GET * count, 0, 0
        rest = b""
        end = time.monotonic() + 60 * t.SLOW_FACTOR
        while answers < count:
            self.assertLess(time.monotonic(), end, answers)
            readable, writable, _ = select.select([sock], [sock] if sent < len(data) else [], [], 5)
            if writable:
                sent += sock.send(data[sent:sent + 65536])
            if readable:
                piece = sock.recv(65536)
                self.assertTrue(piece, answers)
                rest += piece
                answers += rest.count(b"ok\n")
                rest = rest[rest.rfind(b"ok\n") + 3:] if b"ok\n" in rest else rest
        sock.close()

    def test_requests_whose_answers_nobody_reads(self):
        socks = []
        for _ in range(20):
            sock = self.connect()
            sock.setblocking(False)
            socks.append(sock)
            with contextlib.suppress(BlockingIOError):
                for _ in range(50):
                    sock.send(GET * 5000)
        time.sleep(0.5)
        self.assert_grown_less(self.quiet_kib, 20 * REQUEST_KIB + 4096)
        with self.connect() as sock:
            self.assertEqual(ask(sock), 200)
        close_all(socks)

    def test_connections_that_come_and_go(self):
        for number in range(3000):
            sock = socket.create_connection(("127.0.0.1", self.tcp))
            if number % 3 == 1:
                sock.send(b"GET / HT")
            if number % 3 == 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()


class Frames(HostileCase):
    """The same in the protocols that follow an Upgrade."""

    def setUp(self):
        self.sandbox = self.box()
        self.quiet_kib = self.rss()

    def terminal(self, **body):
        session = self.sandbox.execd("POST", "/pty", body).json["session_id"]
        client = WebSocket(self.connect(), f"{self.sandbox.root}/pty/{session}/ws",
                           self.sandbox.headers)
        self.assertEqual(client.status, 101)
        self.assertEqual(client.receive_json()["type"], "connected")
        return client

    def test_lengths_that_no_memory_has(self):
        for length in (1 << 63, (1 << 63) - 1, 1 << 62, 1 << 32, 256 * 1024 + 1, (1 << 64) - 1):
            with self.subTest(length):
                client = self.terminal()
                client.sock.sendall(bytes([0x82, 0xff]) + struct.pack(">Q", length) + bytes(4)
                                    + bytes(4096))
                self.assertIn(client.closed()[0], (1002, 1009))
                client.sock.close()
        self.assert_grown_less(self.quiet_kib, 8 * 1024)

    def test_reserved_bits_and_codes(self):
        for first in (0xc2, 0xa2, 0x92, 0xf1, 0x83, 0x8b, 0xc9, 0x09, 0x00):
            with self.subTest(hex(first)):
                client = self.terminal()
                client.sock.sendall(bytes([first, 0x80]) + bytes(4))
                self.assertEqual(client.closed()[0], 1002)
                client.sock.close()

    def test_a_flood_of_control_frames(self):
        client = self.terminal()
        frame = client.frame(WS_PING, b"x" * 125)
        client.sock.settimeout(2)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 64 * MIB:  # nobody reads what is answered
                client.sock.sendall(frame * 100)
                sent += 100 * len(frame)
        self.assertLess(sent, 64 * MIB, "it is not read for ever")
        self.assert_grown_less(self.quiet_kib, 8 * 1024)
        self.assertEqual(self.daemon.run("echo", "neighbour").text, "neighbour")
        client.sock.close()
        other = self.terminal()
        other.sock.sendall(other.frame(WS_PONG) * 100_000)
        other.stdin("echo still-$((40+2))\n")
        other.read_until(b"still-42")
        other.sock.close()

    def test_a_flood_of_fragments(self):
        client = self.terminal()
        client.sock.sendall(client.frame(WS_BINARY, b"\0", fin=False))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sock.sendall(client.frame(0, b"", fin=False) * 100_000)
            client.sock.sendall(client.frame(0, b"echo frag-$((40+2))\n"))
            client.read_until(b"frag-42")
        client.sock.close()
        self.assert_grown_less(self.quiet_kib, 8 * 1024)

    def test_text_that_is_no_json(self):
        client = self.terminal()
        for text in (b"{", b"[" * 100_000, b'{"type":' * 30_000, b"\xff\xfe", b'"' + b"a" * 60_000):
            client.send(WS_TEXT, text)
        self.assertTrue(self.survives(client))
        client.sock.close()

    def survives(self, client):
        """Either it was closed in order, or it serves on."""
        try:
            client.stdin("echo on-$((40+2))\n")
            while True:
                opcode, payload = client.receive()
                if opcode == WS_CLOSE or b"on-42" in payload:
                    return True
        except (EOFError, ConnectionError):
            return True

    def test_frames_of_the_exec_stream(self):
        head = struct.Struct("<BBHI")
        inside = self.sandbox.own()
        for data in (head.pack(t.FRAME_START, 0, 0, 0xffffffff), head.pack(t.FRAME_STDIN, 0, 0, MIB),
                     head.pack(0, 0, 0, 0), head.pack(255, 255, 65535, 1), bytes(100),
                     b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
            with inside.stream() as stream:
                stream.sock.sendall(data)
                self.assertEqual(stream.receive()[0], t.FRAME_ERROR)
                with self.assertRaises((t.StreamClosed, ConnectionResetError)):
                    stream.receive()
        with inside.stream() as stream:
            # Between programs they mean nothing; they must not cost anything either.
            for _ in range(200):
                stream.sock.sendall(head.pack(t.FRAME_STDIN_EOF, 0, 0, 0) * 1000)
            self.assertEqual(stream.run(argv=["/bin/echo", "on"]).text, "on")
        self.assert_grown_less(self.quiet_kib, 8 * 1024)


class Memory(HostileCase):
    """The bounds on what clients make the daemon hold, one byte less and one more."""

    pools = {"default": {"max_idle": 2, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "512MiB", "pids": 256, "tmp": "64MiB"}}}
    SIZE = BODY_MAX - 1000

    def begin(self, size):
        """A POST that everybody with the key may send, with all but the last byte of its body."""
        body = json.dumps({"argv": ["true"], "policy": "wait", "wait": "20s",
                           "stdin_text": ""}).encode()
        body = body[:-2] + b"x" * (size - len(body)) + body[-2:]
        self.assertEqual(len(body), size)
        sock = self.connect(60)
        self.send(sock, "POST", "/v1/pools/default/run",
                  {"X-API-Key": KEY, "Content-Length": size}, body[:-1])
        return sock

    def finish(self, sock):
        """(status, code) after the last byte."""
        sock.sendall(b"}")
        response = http.client.HTTPResponse(sock)
        response.begin()
        answer = json.loads(response.read())
        return response.status, answer.get("code")

    def test_bodies_that_never_end(self):
        before = self.rss()
        fit = INPUT_TOTAL // (self.SIZE - 1 - INPUT_FREE)
        socks = [self.begin(self.SIZE) for _ in range(fit)]
        # Who comes first is who is read first.
        wait_until(lambda: self.unread() == 0, 20, "all that fits has been read")
        over = [self.begin(self.SIZE) for _ in range(3)]
        time.sleep(0.5)
        self.assert_grown_less(before, INPUT_TOTAL // 1024 + (fit + 3) * REQUEST_KIB + 16 * 1024)
        for sock in over:
            self.assertEqual(self.finish(sock), (503, "UNAVAILABLE"))
        # Ordinary requests need none of it, nor do frames of data.
        self.assertEqual(self.finish(self.begin(60_000)), (200, None))
        self.assertEqual(self.daemon.run("cat", stdin=b"y" * 300_000).stdout, b"y" * 300_000)
        self.assertEqual(self.finish(socks.pop()), (200, None), "the last that fitted")
        close_all(socks)
        wait_until(lambda: self.finish(self.begin(self.SIZE)) == (200, None), 20, "room again")

    def test_frames_that_never_end(self):
        payload = json.dumps({"argv": ["true"], "stdin_text": ""}).encode()
        size = BODY_MAX - 1000
        payload = payload[:-2] + b"x" * (size - len(payload)) + payload[-2:]
        before = self.rss()
        fit = INPUT_TOTAL // (size - INPUT_FREE)
        with contextlib.ExitStack() as stack:
            streams = []
            refused = set()

            def told():
                refused.update(number for number, stream in enumerate(streams)
                               if number not in refused and ended_or_error(stream))
                return len(refused)
            for _ in range(fit + 8):
                stream = stack.enter_context(self.daemon.run_stream())
                stream.sock.sendall(struct.pack("<BBHI", t.FRAME_START, 0, 0, size))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    stream.sock.sendall(payload[:-1])
                streams.append(stream)
            wait_until(lambda: told() >= 5, 20, "those that do not fit are told")
            time.sleep(0.5)
            self.assert_grown_less(before, INPUT_TOTAL // 1024 + len(streams) * 2 * REQUEST_KIB
                                   + 16 * 1024)
            self.assertLess(told(), 16, "not those that fitted")

    def test_output_that_nobody_reads(self):
        """Every byte takes six in an event, and no line ends."""
        boxes = [self.box() for _ in range(2)]
        before = self.rss()
        body = json.dumps({"command": "cat /dev/zero"}).encode()
        socks = []
        for number in range(0, 120, 6):  # few at a time: each must start within a second
            some = [self.connect(60) for _ in range(6)]
            for sock in some:
                box = boxes[number // 60]
                self.send(sock, "POST", box.root + "/command",
                          {**box.headers, "Content-Length": len(body)}, body)
            for sock in some:
                status, _headers, rest = receive_head(sock)
                self.assertEqual(status, 200, rest)
            socks += some
        grown = -1
        while self.rss() > grown:  # until they all wait
            grown = self.rss()
            self.assert_grown_less(before, OUTPUT_TOTAL // 1024 + len(socks) * STREAM_KIB + 16 * 1024)
            time.sleep(1)
        self.assertEqual(self.daemon.run("echo", "neighbour").text, "neighbour")
        # Who reads goes on, and gets all of it.
        got = 0
        while got < 16 * MIB:
            piece = socks[0].recv(MIB)
            self.assertTrue(piece, got)
            got += len(piece)
        close_all(socks)


class Rows(HostileCase):
    """The rows of the table that nothing else fills, each filled alone."""

    pools = {"default": {"max_idle": 2, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "512MiB", "pids": 256, "tmp": "64MiB"}}}

    @classmethod
    def listen_more(cls, directory):
        return Half.listen_more.__func__(cls, directory)

    def assert_row(self, before_kib, count, each_kib):
        self.assert_grown_less(before_kib, count * each_kib + 1024)

    def begin_upload(self, box, number):
        sock = self.connect(60)
        self.send(sock, "PUT", f"/v1/sandboxes/{box.id}/files?path=/tmp/{number}",
                  {"X-Sandpool-Token": box.token, "Content-Length": 64 * MIB}, b"x")
        sock.setblocking(False)
        return sock

    @staticmethod
    def push(sock):
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(bytes(65536))

    def test_uploads_that_nobody_takes(self):
        boxes = [self.box().own() for _ in range(2)]
        self.daemon.wait_settled()
        before, others = self.rss(), t.cgroup_processes(self.daemon.instance)

        def helpers():
            return t.cgroup_processes(self.daemon.instance) - others
        socks = [self.begin_upload(boxes[number % 2], number) for number in range(UPLOADS)]
        wait_until(lambda: len(helpers()) >= UPLOADS, 20, "all have their helpers")
        stopped = helpers()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        for _ in range(5):
            for sock in socks:
                self.push(sock)
            time.sleep(0.2)
        self.assert_row(before, UPLOADS, REQUEST_KIB + UPLOAD_KIB)
        close_all(socks)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not helpers(), 20, "they end with their clients")
        self.assert_grown_less(before, 8 * 1024)

    def test_connections_in_tls(self):
        context = ssl.create_default_context(cafile=f"{self.daemon.directory}/cert.pem")

        def connect():
            sock = context.wrap_socket(socket.create_connection(("127.0.0.1", self.tls_port)),
                                       server_hostname="localhost")
            sock.sendall(GET)
            self.assertEqual(int(sock.recv(65536).split()[1]), 200)
            return sock
        close_all([connect() for _ in range(10)])
        self.daemon.wait_settled()
        before = self.rss()
        socks = [connect() for _ in range(TLS_COUNT)]
        self.assert_row(before, TLS_COUNT, IDLE_KIB + TLS_KIB)
        for sock in socks:
            sock.sendall(GET[:-1])
        self.assertEqual(ask(connect()), 200, "what came before this has been read")
        self.assert_row(before, TLS_COUNT, REQUEST_KIB + TLS_KIB)
        close_all(socks)

    def fill(self, box):
        """All that a sandbox can make the daemon keep for it."""
        def run(path, **body):
            answer = box.execd("POST", path, body)
            self.assertEqual(answer.status, 200, answer.body)
            return answer
        for _ in range(10):
            run("/command", command="head -c 2000000 /dev/zero | tr '\\0' x", background=True)
        for _ in range(COMMANDS):
            run("/command", command="true #" + "x" * 20_000)
        for _ in range(SESSIONS):
            session = box.execd("POST", "/session", {}).json["session_id"]
            run(f"/session/{session}/run",
                command="v=$(head -c 510000 /dev/zero | tr '\\0' y)")
        for _ in range(TERMINALS):
            session = box.execd("POST", "/pty", {}).json["session_id"]
            with WebSocket(self.connect(60), f"{box.root}/pty/{session}/ws", box.headers) as client:
                self.assertEqual(client.receive_json()["type"], "connected")
                client.stdin("head -c 2000000 /dev/zero | tr '\\0' z; echo all-$((40+2))\n")
                client.read_until(b"all-42", 60)

    def test_a_sandbox_that_keeps_all_it_can(self):
        box = self.box()
        self.daemon.wait_settled()
        before = self.rss()
        self.fill(box)
        self.assert_row(before, 1, SANDBOX_KIB)
        self.ask("DELETE", f"/v1/sandboxes/{box.uuid}")
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 20, "its end")
        self.assert_grown_less(before, SANDBOX_KIB // 4)


def ended_or_error(stream):
    """Of a stream that sent half a frame: was it told that there is no room?"""
    stream.sock.setblocking(False)
    try:
        data = stream.sock.recv(65536)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    if data:
        assert data[0] == t.FRAME_ERROR, data[:100]
        assert json.loads(data[8:])["code"] == "UNAVAILABLE", data
    return True


if __name__ == "__main__":
    main()
