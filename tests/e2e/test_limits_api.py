"""Every limit of the interface at N and at N+1, with the error that names it."""

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402

KIB = 1024
PAYLOAD_MAX = 1 << 20
EXECS_MAX = 64
ARGS_MAX = 4096
STRINGS_MAX = 1 << 20
BINDS_MAX = 32


class Limits(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2, "limits": {"output": "1MiB", "pids": 256}}}}

    def setUp(self):
        self.box = self.daemon.acquire(policy="wait", wait="20s")
        self.addCleanup(self.box.__exit__, None, None, None)

    def assertGrownLess(self, before, kib):
        if t.SLOW_FACTOR == 1:  # a sanitizer's quarantine keeps what is freed
            self.assertLess(t.rss_kib(self.daemon.pid), before + kib)

    def test_output_cap_is_exact_b176(self):
        cap = 100_000
        for size, truncated in ((cap - 1, False), (cap, False), (cap + 1, True)):
            with self.subTest(size=size):
                outcome = self.box.run("/usr/bin/head", "-c", str(size), "/dev/zero",
                                       output_limit=cap)
                self.assertEqual(len(outcome.stdout), min(size, cap))
                self.assertEqual(outcome.result["stdout_truncated"], truncated, outcome.result)
                self.assertEqual(outcome.reason, "output" if truncated else "exited")

    def test_output_limit_cannot_be_raised_above_the_pools(self):
        self.assertExited(self.box.run("/bin/true", output_limit=1 << 20))
        with self.refused("INVALID_ARGUMENT") as caught:
            self.box.run("/bin/true", output_limit=(1 << 20) + 1)
        self.assertIn("output_limit", caught.exception.response.json["message"])

    def test_flood_is_bounded_in_memory_b157(self):
        before = t.rss_kib(self.daemon.pid)
        outcome = self.box.run("/usr/bin/yes", timeout="20s")
        self.assertEqual(outcome.reason, "output")
        self.assertGrownLess(before, 8 * KIB)

    def test_slow_reader_stalls_only_itself_b158(self):
        with self.box.stream() as slow:
            slow.begin(argv=["/usr/bin/yes"])
            time.sleep(0.5)
            before = sum(os.times()[:2]), t.read_text(f"/proc/{self.daemon.pid}/stat").split()[13:15]
            time.sleep(1)
            after = t.read_text(f"/proc/{self.daemon.pid}/stat").split()[13:15]
            busy = sum(map(int, after)) - sum(map(int, before[1]))
            self.assertLess(busy, 20, "ticks of 10 ms in one second")
            start = time.monotonic()
            self.assertEqual(self.box.run("/bin/echo", "other").text, "other")
            self.assertLess(time.monotonic() - start, 1 * t.SLOW_FACTOR)

    def test_frame_of_the_largest_size_and_one_more(self):
        # A START of exactly PAYLOAD_MAX bytes is legal as a frame; what it asks for is another matter.
        start = {"argv": ["/bin/true"], "env": {"X": ""}}
        start["env"]["X"] = "x" * (PAYLOAD_MAX - len(json.dumps(start)))
        payload = json.dumps(start).encode()
        self.assertEqual(len(payload), PAYLOAD_MAX)
        with self.box.stream() as stream:
            stream.send(t.FRAME_START, payload)
            kind, answer = stream.receive()
            while kind not in (t.FRAME_RESULT, t.FRAME_ERROR):
                kind, answer = stream.receive()
            self.assertNotEqual(json.loads(answer).get("code"), "PROTOCOL")
        with self.box.stream() as stream:
            stream.sock.sendall(struct.pack("<BBHI", t.FRAME_START, 0, 0, PAYLOAD_MAX + 1))
            self.protocol_error(stream)

    def protocol_error(self, stream):
        """ERROR PROTOCOL and the end of the connection."""
        kind, answer = stream.receive()
        while kind not in (t.FRAME_ERROR, t.FRAME_RESULT):
            kind, answer = stream.receive()
        if kind == t.FRAME_ERROR:
            self.assertEqual(json.loads(answer)["code"], "PROTOCOL")
        with self.assertRaises((t.StreamClosed, ConnectionError)):
            while True:
                stream.receive()

    def test_broken_frames_end_the_connection_and_nothing_else(self):
        for raw in (struct.pack("<BBHI", 99, 0, 0, 0), struct.pack("<BBHI", t.FRAME_START, 1, 0, 2),
                    struct.pack("<BBHI", t.FRAME_STDOUT, 0, 0, 0),
                    struct.pack("<BBHI", t.FRAME_STDIN, 0, 0, t.DATA_MAX + 1),
                    struct.pack("<BBHI", t.FRAME_RESIZE, 0, 0, 5)):
            with self.subTest(raw=raw), self.box.stream() as stream:
                stream.sock.sendall(raw)
                self.protocol_error(stream)
        self.assertExited(self.box.run("/bin/true"))

    def test_frames_may_arrive_one_byte_at_a_time(self):
        payload = json.dumps({"argv": ["/bin/echo", "slow"]}).encode()
        with self.box.stream() as stream:
            stream.out, stream.err, stream.result = [], [], None
            for byte in struct.pack("<BBHI", t.FRAME_START, 0, 0, len(payload)) + payload:
                stream.sock.sendall(bytes([byte]))
            stream.started()
            self.assertEqual(stream.finish().text, "slow")

    def test_stdin_window_and_one_byte_more(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "5"], stdin=True)
            sent = 0
            while sent < t.STDIN_WINDOW:
                stream.send(t.FRAME_STDIN, b"x" * t.DATA_MAX)
                sent += t.DATA_MAX
            # Within the window: still alive. The pipe itself may have taken some already, so
            # exceed the credit that was ever granted.
            time.sleep(0.3)
            stream.sock.settimeout(0.2)
            granted = t.STDIN_WINDOW
            try:
                while True:
                    kind, payload = stream.receive()
                    if kind == t.FRAME_STDIN_CREDIT:
                        granted += struct.unpack("<I", payload)[0]
            except TimeoutError:
                pass
            stream.sock.settimeout(10)
            stream.buffer = b""
            with self.assertRaises((t.StreamClosed, ConnectionError, AssertionError)):
                while sent <= granted + t.DATA_MAX:
                    stream.send(t.FRAME_STDIN, b"x" * t.DATA_MAX)
                    sent += t.DATA_MAX
                while True:
                    kind, payload = stream.receive()
                    if kind == t.FRAME_ERROR:
                        raise AssertionError(payload)

    def test_large_stdin_is_byte_exact_and_bounded_b162(self):
        data = os.urandom(1 << 20) * 16
        before = t.rss_kib(self.daemon.pid)
        outcome = self.box.run("/usr/bin/sha256sum", stdin=data)
        import hashlib
        self.assertEqual(outcome.text.split()[0], hashlib.sha256(data).hexdigest())
        self.assertGrownLess(before, 4 * KIB)
        # A program that does not read, and one that is gone.
        outcome = self.box.run("/bin/true", stdin=b"x" * 100)
        self.assertExited(outcome)

    def test_execs_at_once(self):
        streams = []
        try:
            for _ in range(EXECS_MAX):
                stream = self.box.stream()
                stream.begin(argv=["/bin/sleep", "60"])
                streams.append(stream)
            with self.assertRaises(t.ApiError) as caught:
                self.box.run("/bin/true")
            self.assertEqual(caught.exception.code, "TOO_MANY")
            streams.pop().close()
            wait_until(lambda: self.box.inspect()["running_execs"] == EXECS_MAX - 1, 5,
                       "one has ended")
            self.assertExited(self.box.run("/bin/true"))
        finally:
            for stream in streams:
                stream.close()

    def test_argument_count(self):
        # argv[0] counts.
        self.assertExited(self.box.run("/bin/true", *["a"] * (ARGS_MAX - 1)))
        with self.assertRaises(t.ApiError) as caught:
            self.box.run("/bin/true", *["a"] * ARGS_MAX)
        self.assertIn(caught.exception.code, ("INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE", "TOO_MANY"))

    def test_long_arguments_are_byte_exact_b167(self):
        value = "".join(chr(0x20 + i % 0x5e) for i in range(100_000)) + "\n\"'\\é€😀"
        outcome = self.box.python("import sys; sys.stdout.write(sys.argv[1])", value)
        self.assertEqual(outcome.stdout.decode(), value)
        outcome = self.box.python("import os, sys; sys.stdout.write(os.environ['V'])",
                                  env={"V": value})
        self.assertEqual(outcome.stdout.decode(), value)

    def test_request_body_of_one_mebibyte_and_more(self):
        body = b'{"argv":["/bin/true"]' + b" " * ((1 << 20) - 23) + b"}"
        response = self.daemon.request("POST", f"/v1/sandboxes/{self.box.id}/exec", raw=body,
                                       headers=self.box.headers())
        self.assertEqual(response.status, 200, response)
        response = self.daemon.request("POST", f"/v1/sandboxes/{self.box.id}/exec",
                                       raw=body + b" " * 64, headers=self.box.headers())
        self.assertEqual((response.status, response.code), (413, "PAYLOAD_TOO_LARGE"))

    def test_bind_count(self):
        binds = [{"source": "/nonexistent", "target": f"/mnt/{i}"} for i in range(BINDS_MAX + 1)]
        for count, codes in ((BINDS_MAX, {"BIND_REFUSED"}),
                             (BINDS_MAX + 1, {"INVALID_ARGUMENT", "TOO_MANY"})):
            with self.subTest(count=count), self.assertRaises(t.ApiError) as caught:
                self.daemon.acquire(binds=binds[:count])
            self.assertIn(caught.exception.code, codes)

    def test_odd_starts_are_typed_errors(self):
        for start in ({}, {"argv": []}, {"argv": ["/bin/true"], "shell": "x"}, {"argv": "true"},
                      {"argv": ["/bin/true"], "uid": -1}, {"argv": ["/bin/true"], "uid": 1 << 32},
                      {"argv": ["/bin/true"], "uid": "0"}, {"argv": ["/bin/true"], "timeout": -1},
                      {"argv": ["/bin/true"], "timeout": "8d1"}, {"argv": ["a\0b"]},
                      {"argv": ["/bin/true"], "env": {"A=B": "1"}},
                      {"argv": ["/bin/true"], "env": {"": "1"}},
                      {"argv": ["/bin/true"], "cwd": "relative"},
                      {"argv": ["/bin/true"], "nosuch": 1}):
            with self.subTest(start=start):
                with self.assertRaises(t.ApiError) as caught:
                    self.box.run(**start)
                self.assertEqual(caught.exception.code, "INVALID_ARGUMENT", start)
        self.assertExited(self.box.run("/bin/true"))

    def test_what_cannot_start_is_the_users_error_b166(self):
        self.box.put("/tmp/plain", b"echo hi\n", 0o644)
        self.box.put("/tmp/garbage", b"\0\1\2\3", 0o755)
        for argv, code in ((["/nonexistent"], 127), (["nosuchprogram"], 127), (["/tmp/plain"], 126),
                           (["/tmp"], 126), (["/tmp/garbage"], 126)):
            with self.subTest(argv=argv):
                outcome = self.box.run(*argv)
                self.assertEqual((outcome.reason, outcome.exit_code), ("start_failed", code), outcome)
                self.assertTrue(outcome.result["message"])
        outcome = self.box.run("/bin/true", cwd="/nonexistent")
        self.assertEqual((outcome.reason, outcome.result["stage"]), ("start_failed", "cwd"))
        self.assertExited(self.box.run("/bin/true"))

    def test_last_bytes_are_never_lost_b153(self):
        text = "import os; os.write(1, b'x' * 300000); os.write(2, b'y' * 3000); os._exit(0)"
        for _ in range(30):
            outcome = self.box.python(text)
            self.assertEqual((len(outcome.stdout), len(outcome.stderr)), (300000, 3000))

    def test_parallel_execs_do_not_mix_b171(self):
        wrong = []

        def one(number):
            outcome = self.box.shell(f"for i in 1 2 3 4 5; do echo {number}; done; exit {number}")
            if outcome.exit_code != number or outcome.text.split() != [str(number)] * 5:
                wrong.append(outcome)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_environment_of_one_exec_ends_with_it_b168(self):
        self.box.run("/bin/true", env={"LEAK": "1"})
        self.assertNotIn("LEAK", self.box.run("/usr/bin/env").text)

    def test_disconnects_at_random_moments_leave_nothing_b169_b170(self):
        for number in range(60):
            stream = self.box.stream()
            stream.start(argv=["/bin/sleep", "4242"])
            time.sleep(number % 6 / 1000)
            stream.close()
        wait_until(lambda: self.box.inspect()["running_execs"] == 0, 5, "all cancelled")
        self.assertNotIn("4242", self.box.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' "
                                                "| grep -o '424[2]' || true").text)


class Answers(SandpoolCase):
    """What is held for clients that do not read is bounded for all of them together."""
    config = {"pools": {"default": {"max_idle": 2, "limits": {"output": "64MiB"}}}}
    TOTAL_KIB = 256 * KIB
    ONE = 16 << 20

    def run_count(self):
        return self.daemon.metric_sum("sandpool_exec_duration_seconds_count")

    def test_answers_that_nobody_reads_b156(self):
        body = {"argv": ["/bin/sh", "-c", f"head -c {self.ONE} /dev/zero | tr '\\0' a"],
                "policy": "wait", "wait": "60s"}
        text = json.dumps(body).encode()
        request = (f"POST /v1/pools/default/run HTTP/1.1\r\nHost: x\r\n"
                   f"Content-Length: {len(text)}\r\n\r\n").encode() + text
        before = t.rss_kib(self.daemon.pid)
        runs = self.run_count()
        with contextlib.ExitStack() as clients:
            for _ in range(40):  # 640 MiB
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(self.daemon.socket_path)
                client.sendall(request)
            wait_until(lambda: self.run_count() == runs + 40, 60, "all have run")
            if t.SLOW_FACTOR == 1:
                self.assertLess(t.rss_kib(self.daemon.pid), before + self.TOTAL_KIB + 64 * KIB)
            answer = self.daemon.call("POST", "/v1/pools/default/run", body)
            self.assertTrue(answer["result"]["stdout_truncated"])
        # With the clients goes what was held for them.
        wait_until(lambda: len(self.daemon.call("POST", "/v1/pools/default/run",
                                                body)["stdout"]) == self.ONE, what="room again")


class Connections(SandpoolCase):
    config = {"max_connections": 16}

    def test_connection_limit_is_refused_not_hung(self):
        held = []
        try:
            for _ in range(40):
                connection = t.UnixConnection(self.daemon.socket_path, 3)
                connection.connect()
                held.append(connection)
        except OSError:
            pass
        finally:
            for connection in held:
                connection.close()
        self.daemon.ready()


if __name__ == "__main__":
    main()
