"""The framed exec stream: exact bytes, credit, order, protocol errors, and clients that leave."""

import hashlib
import json
import os
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import ApiError, SandpoolCase, StreamClosed, main, wait_until  # noqa: E402

UNKNOWN = "0123456789abcdefghjk"


class Stream(SandpoolCase):
    # All that "full" may have is held: whoever waits for it waits.
    config = {"pools": {"default": {"max_idle": 3}, "none": {"max_idle": 0},
                        "full": {"max_idle": 0, "max_total": 1}}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.acquire("full", policy="create", wait="20s")

    def setUp(self):
        self.box = self.daemon.acquire(policy="wait", wait="20s")
        self.addCleanup(self.box.__exit__, None, None, None)

    def protocol_error(self, stream):
        """ERROR with PROTOCOL, then the end."""
        kind = None
        while kind != t.FRAME_ERROR:
            kind, payload = stream.receive()
        self.assertEqual(json.loads(payload)["code"], "PROTOCOL")
        with self.assertRaises((StreamClosed, ConnectionResetError)):
            stream.receive()
        return json.loads(payload)["message"]

    def running(self):
        return self.box.inspect()["running_execs"]

    # -- the happy path --

    def test_frames_of_one_exec_in_order(self):
        with self.box.stream() as stream:
            stream.start(shell="printf out; printf err >&2; exit 7")
            kinds, out, err = [], b"", b""
            while not kinds or kinds[-1] != t.FRAME_RESULT:
                kind, payload = stream.receive()
                kinds.append(kind)
                out += payload if kind == t.FRAME_STDOUT else b""
                err += payload if kind == t.FRAME_STDERR else b""
                if kind == t.FRAME_STARTED:
                    self.assertEqual(json.loads(payload),
                                     {"sandbox": self.box.id, "pool": "default"})
            self.assertEqual(kinds[0], t.FRAME_STARTED)
            self.assertEqual((out, err), (b"out", b"err"))
            result = json.loads(payload)
            self.assertEqual((result["reason"], result["exit_code"], result["signal"]),
                             ("exited", 7, 0))
            self.assertEqual((result["stdout_bytes"], result["stderr_bytes"]), (3, 3))

    def test_binary_output_is_exact_b155(self):
        with self.box.stream() as stream:
            outcome = stream.run(shell="head -c 8000000 /dev/urandom | tee /tmp/copy")
            digest = stream.run(argv=["/usr/bin/sha256sum", "/tmp/copy"]).text.split()[0]
        self.assertEqual(len(outcome.stdout), 8_000_000)
        self.assertEqual(hashlib.sha256(outcome.stdout).hexdigest(), digest)

    def test_every_byte_through_cat(self):
        data = bytes(range(256)) * 8192
        self.assertGreater(len(data), 4 * t.STDIN_WINDOW)
        outcome = self.box.run("/bin/cat", stdin=data)
        self.assertEqual(outcome.stdout, data)

    def test_last_bytes_are_not_lost_b153(self):
        with self.box.stream() as stream:
            for _ in range(100):
                outcome = stream.run(argv=["/usr/bin/head", "-c", "100000", "/dev/zero"])
                self.assertEqual((len(outcome.stdout), outcome.exit_code), (100_000, 0))

    def test_many_execs_in_turn_on_one_connection(self):
        with self.box.stream() as stream:
            for number in range(50):
                self.assertEqual(stream.run(argv=["/bin/echo", str(number)]).text, str(number))
        self.assertEqual(self.running(), 0)

    def test_run_takes_a_fresh_sandbox_each_time(self):
        with self.daemon.run_stream("none") as stream:
            seen = set()
            for _ in range(3):
                started = stream.begin(shell="test ! -e /tmp/mark && touch /tmp/mark",
                                       policy="create", wait="20s")
                seen.add(started["sandbox"])
                self.assertExited(stream.finish())
            self.assertEqual(len(seen), 3)
            # an acquire that fails is an ERROR, and the connection lives on
            stream.start(argv=["/bin/true"])
            kind, payload = stream.receive()
            self.assertEqual((kind, json.loads(payload)["code"]), (t.FRAME_ERROR, "POOL_EMPTY"))
            self.assertExited(stream.run(argv=["/bin/true"], policy="create", wait="20s"))

    def test_execs_side_by_side_b171(self):
        results = {}

        def one(number):
            results[number] = self.box.run(shell=f"sleep 0.3; echo {number}; exit {number}")
        threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLess(time.monotonic() - start, 20 * 0.3)
        for number in range(20):
            self.assertEqual((results[number].text, results[number].exit_code),
                             (str(number), number))

    def test_output_comes_as_it_is_written_b160(self):
        with self.box.stream() as stream:
            stream.begin(shell="for i in 1 2 3; do printf \"$i\\r\"; sleep 0.3; done")
            for number in (b"1\r", b"2\r", b"3\r"):
                start = time.monotonic()
                stream.read_stdout(number)
                self.assertLess(time.monotonic() - start, 0.6 * t.SLOW_FACTOR)
            stream.finish()

    def test_frames_in_one_packet_with_the_upgrade(self):
        """START may follow the request before the 101 was read."""
        start = json.dumps({"argv": ["/bin/echo", "early"]}).encode()
        request = (f"POST /v1/sandboxes/{self.box.id}/exec HTTP/1.1\r\nHost: a\r\n"
                   f"X-Sandpool-Token: {self.box.token}\r\nConnection: keep-alive, Upgrade\r\n"
                   "Upgrade: Sandpool-Exec\r\nContent-Length: 0\r\n\r\n").encode()
        for cut in (0, 1, 9, len(start)):
            with self.subTest(cut), socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(10 * t.SLOW_FACTOR)
                sock.connect(self.daemon.socket_path)
                frame = struct.pack("<BBHI", t.FRAME_START, 0, 0, len(start)) + start
                sock.sendall(request + frame[:cut])
                time.sleep(0.05)
                sock.sendall(frame[cut:])
                answer = b""
                while b'"reason"' not in answer:
                    part = sock.recv(65536)
                    self.assertTrue(part, answer)
                    answer += part
                self.assertTrue(answer.startswith(b"HTTP/1.1 101 "))
                self.assertIn(b"early\n", answer)

    def test_frames_byte_by_byte(self):
        with self.box.stream() as stream:
            payload = json.dumps({"argv": ["/bin/cat"], "stdin": True}).encode()
            data = struct.pack("<BBHI", t.FRAME_START, 0, 0, len(payload)) + payload
            data += struct.pack("<BBHI", t.FRAME_STDIN, 0, 0, 3) + b"abc"
            data += struct.pack("<BBHI", t.FRAME_STDIN_EOF, 0, 0, 0)
            for at in range(len(data)):
                stream.sock.sendall(data[at:at + 1])
            stream.out, stream.err, stream.result = [], [], None
            stream.started()
            self.assertEqual(stream.finish().stdout, b"abc")

    # -- stdin --

    def test_credit_is_returned_as_it_is_consumed(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/cat"], stdin=True)
            stream.send(t.FRAME_STDIN, b"x" * 1000)
            returned = 0
            while returned < 1000:
                kind, payload = stream.receive()
                if kind == t.FRAME_STDIN_CREDIT:
                    returned += struct.unpack("<I", payload)[0]
            self.assertEqual(returned, 1000)
            stream.stdin_eof()
            stream.finish()

    def test_whole_window_is_taken_and_one_more_byte_is_an_error(self):
        for extra in (0, 1):
            with self.subTest(extra=extra), self.box.stream() as stream:
                stream.begin(argv=["/bin/sleep", "30"], stdin=True)
                for _ in range(t.STDIN_WINDOW // t.DATA_MAX):
                    stream.send(t.FRAME_STDIN, b"x" * t.DATA_MAX)
                # The pipe may take some of it, which gives credit: use that up as well.
                time.sleep(0.2)
                stream.sock.settimeout(0.3)
                credit = 0
                try:
                    while True:
                        kind, payload = stream.receive()
                        self.assertEqual(kind, t.FRAME_STDIN_CREDIT)
                        credit += struct.unpack("<I", payload)[0]
                except TimeoutError:
                    pass
                stream.sock.settimeout(10 * t.SLOW_FACTOR)
                for at in range(0, credit, t.DATA_MAX):
                    stream.send(t.FRAME_STDIN, b"x" * min(t.DATA_MAX, credit - at))
                if extra:
                    stream.send(t.FRAME_STDIN, b"x")
                    self.assertIn("STDIN", self.protocol_error(stream))
                else:
                    stream.signal(9)
                    self.assertEqual(stream.finish().signal, 9)
        wait_until(lambda: self.running() == 0, what="no exec runs")

    def test_stdin_that_nobody_reads_b162(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "0.5"], stdin=True)
            before = t.rss_kib(self.daemon.pid)
            stop = time.monotonic() + 10 * t.SLOW_FACTOR
            while stream.result is None and time.monotonic() < stop:
                while stream.credit > 0:
                    part = b"x" * min(stream.credit, t.DATA_MAX)
                    stream.send(t.FRAME_STDIN, part)
                    stream.credit -= len(part)
                stream._note(*stream.receive())
            self.assertEqual(stream.result["exit_code"], 0)
            self.assertLess(t.rss_kib(self.daemon.pid), before + 8192 * t.SLOW_FACTOR)
            self.assertEqual(stream.run(argv=["/bin/echo", "next"]).text, "next")

    def test_without_stdin_it_is_empty_b161(self):
        self.assertExited(self.box.run("/bin/cat"))
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "5"])
            stream.send(t.FRAME_STDIN, b"x")
            self.protocol_error(stream)

    def test_stdin_after_its_end_is_an_error(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "5"], stdin=True)
            stream.stdin_eof()
            stream.send(t.FRAME_STDIN, b"x")
            self.protocol_error(stream)

    # -- control --

    def test_signals(self):
        with self.box.stream() as stream:
            for number in (15, 9, 2, 10):
                stream.begin(argv=["/bin/sleep", "30"])
                stream.signal(number)
                outcome = stream.finish()
                self.assertEqual((outcome.reason, outcome.signal), ("signaled", number), outcome)
        for number in (0, 65, 1 << 31):
            with self.subTest(number), self.box.stream() as stream:
                stream.begin(argv=["/bin/sleep", "30"])
                stream.signal(number)
                self.protocol_error(stream)

    def test_signal_reaches_an_exec_whose_output_nobody_reads(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/usr/bin/yes"])
            time.sleep(0.5)
            stream.signal(15)
            outcome = stream.finish()
            self.assertEqual(outcome.signal, 15, outcome.result)

    def test_terminal(self):
        with self.box.stream() as stream:
            stream.begin(shell="stty size; read line; stty size; echo got $line",
                         tty={"rows": 30, "columns": 100}, stdin=True)
            stream.read_stdout(b"30 100")
            stream.resize(40, 120)
            time.sleep(0.1)
            stream.send(t.FRAME_STDIN, b"word\n")
            outcome = stream.finish()
            self.assertIn(b"40 120", outcome.stdout)
            self.assertIn(b"got word", outcome.stdout)

    def test_frames_that_cross_the_result_are_ignored(self):
        with self.box.stream() as stream:
            stream.run(argv=["/bin/true"])
            stream.send(t.FRAME_STDIN, b"late")
            stream.stdin_eof()
            stream.resize(1, 1)
            stream.signal(9)
            self.assertEqual(stream.run(argv=["/bin/echo", "next"]).text, "next")

    # -- what is refused --

    def test_bad_starts_leave_the_stream_usable(self):
        bad = (b"", b"{}", b"[]", b"{", b"\xff", b'{"argv":[]}', b'{"argv":["a"],"x":1}',
               b'{"argv":["a"],"stdin_text":"x"}', b'{"argv":["a"],"policy":"wait"}',
               b'{"argv":["a\\u0000b"]}', b'{"argv":["a"],"cwd":"relative"}')
        with self.box.stream() as stream:
            for payload in bad:
                stream.send(t.FRAME_START, payload)
                kind, answer = stream.receive()
                self.assertEqual((kind, json.loads(answer)["code"]),
                                 (t.FRAME_ERROR, "INVALID_ARGUMENT"), payload)
            self.assertEqual(stream.run(argv=["/bin/echo", "ok"]).text, "ok")

    def test_garbage_ends_the_stream_and_its_exec(self):
        head = struct.Struct("<BBHI")
        cases = {
            "unknown type": head.pack(99, 0, 0, 0),
            "type of the server": head.pack(t.FRAME_STDOUT, 0, 0, 1) + b"x",
            "reserved byte": head.pack(t.FRAME_STDIN, 1, 0, 0),
            "reserved word": head.pack(t.FRAME_STDIN, 0, 1, 0),
            "long data": head.pack(t.FRAME_STDIN, 0, 0, t.DATA_MAX + 1),
            "long start": head.pack(t.FRAME_START, 0, 0, (1 << 20) + 1),
            "end with a payload": head.pack(t.FRAME_STDIN_EOF, 0, 0, 1) + b"x",
            "short signal": head.pack(t.FRAME_SIGNAL, 0, 0, 3) + b"abc",
            "long signal": head.pack(t.FRAME_SIGNAL, 0, 0, 5) + b"abcde",
            "second start": head.pack(t.FRAME_START, 0, 0, 2) + b"{}",
            "HTTP": b"GET / HTTP/1.1\r\n\r\n",
        }
        for name, data in cases.items():
            with self.subTest(name), self.box.stream() as stream:
                stream.begin(argv=["/bin/sleep", "60"], stdin=True)
                stream.sock.sendall(data)
                self.protocol_error(stream)
        wait_until(lambda: self.running() == 0, what="no exec runs")

    def test_no_upgrade_for_what_cannot_work(self):
        for target, headers, status, code in (
                (f"/v1/sandboxes/{UNKNOWN}/exec", None, 404, "NOT_FOUND"),
                ("/v1/sandboxes/nonsense/exec", None, 404, "NOT_FOUND"),
                ("/v1/pools/nowhere/run", None, 404, "POOL_NOT_FOUND")):
            with self.assertRaises(ApiError) as caught:
                t.ExecStream(self.daemon.socket_path, target, headers)
            self.assertEqual((caught.exception.status, caught.exception.code), (status, code))

    def test_upgrade_needs_both_headers_and_no_body(self):
        for headers, raw in (({"Upgrade": "sandpool-exec"}, b"{}"),
                             ({"Connection": "Upgrade"}, b"{}"),
                             ({"Connection": "Upgrade", "Upgrade": "websocket"}, b"{}"),
                             ({"Connection": "Upgrade", "Upgrade": "sandpool-exec"}, b"{}")):
            response = self.daemon.request("POST", f"/v1/sandboxes/{self.box.id}/exec", raw=raw,
                                           headers={**self.box.headers(), **headers})
            self.assertEqual((response.status, response.code), (400, "INVALID_ARGUMENT"), headers)

    # -- clients that leave --

    def test_leaving_kills_the_exec_b169(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "60"])
            self.assertEqual(self.running(), 1)
        wait_until(lambda: self.running() == 0, 5, "the exec ends")
        self.assertEqual(self.box.run("/bin/echo", "ok").text, "ok")

    def test_half_closing_counts_as_leaving(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "60"])
            stream.sock.shutdown(socket.SHUT_WR)
            wait_until(lambda: self.running() == 0, 5, "the exec ends")

    def test_leaving_a_run_releases_its_sandbox(self):
        with self.daemon.run_stream() as stream:
            sandbox = stream.begin(argv=["/bin/sleep", "60"], policy="create",
                                   wait="20s")["sandbox"]
        wait_until(lambda: sandbox not in [item["id"] for item in self.daemon.sandboxes()], 10,
                   "the sandbox is gone")

    def test_a_stream_that_was_told_to_releases_its_sandbox(self):
        with self.box.stream() as stream:
            self.assertExited(stream.run(argv=["/bin/true"], release=True))
            self.assertExited(stream.run(argv=["/bin/true"]))  # once said it stays
            self.assertEqual(self.box.inspect()["state"], "leased")
        wait_until(lambda: self.box.id not in
                   [box["id"] for box in self.daemon.sandboxes() if box["state"] == "leased"], 5,
                   "the release")
        with self.refused("LEASE_ENDED"):
            self.box.run("/bin/true")

    def test_a_start_that_was_refused_releases_nothing(self):
        with self.box.stream() as stream:
            stream.start(argv=[], release=True)
            with self.assertRaises(ApiError):
                stream.started()
        self.assertExited(self.box.run("/bin/true"))

    def test_leaving_while_it_waits_for_a_sandbox(self):
        for _ in range(20):
            with self.daemon.run_stream("full") as stream:
                stream.start(argv=["/bin/sleep", "60"], policy="wait", wait="60s")
                wait_until(lambda: self.daemon.pool("full")["waiters"] == 1, 5, "it waits")
            wait_until(lambda: self.daemon.pool("full")["waiters"] == 0, 5, "nobody waits")

    def test_leaving_while_a_sandbox_is_made_for_it(self):
        for number in range(40):
            with self.daemon.run_stream("none") as stream:
                stream.start(argv=["/bin/sleep", "60"], policy="create", wait="60s")
                time.sleep(0.002 * number)
        wait_until(lambda: self.daemon.pool("none")["leased"] == 0, 10, "nothing stays leased")
        wait_until(lambda: self.daemon.pool("none")["waiters"] == 0, 5, "nobody waits")

    def test_slow_reader_holds_little_and_loses_nothing_b158(self):
        with self.box.stream() as stream:
            stream.begin(argv=["/usr/bin/head", "-c", "50000000", "/dev/zero"])
            time.sleep(0.5)
            before = t.rss_kib(self.daemon.pid)
            self.assertEqual(self.box.run("/bin/echo", "other").text, "other")
            self.assertLess(t.rss_kib(self.daemon.pid), before + 4096 * t.SLOW_FACTOR)
            self.assertEqual(len(stream.finish().stdout), 50_000_000)

    def test_release_ends_the_stream_of_the_sandbox(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box, box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "60"])
            box.release()
            self.assertIn(stream.finish().reason, ("killed", "died"))
            stream.start(argv=["/bin/true"])
            kind, payload = stream.receive()
            self.assertEqual(kind, t.FRAME_ERROR)
            self.assertIn(json.loads(payload)["code"], ("NOT_FOUND", "LEASE_ENDED", "SANDBOX_DEAD"))


class Leaving(SandpoolCase):
    """A daemon of its own: what goes wrong here must not take the others along."""

    @t.limit(180)
    def test_leaving_at_any_moment_b170(self):
        box = self.daemon.acquire(policy="wait", wait="20s")
        self.daemon.wait_settled()
        fds = t.held_count(self.daemon.pid)
        for number in range(200):
            with box.stream() as stream:
                stream.start(argv=["/bin/sh", "-c", "echo x; cat"], stdin=True)
                if number % 3:
                    stream.send(t.FRAME_STDIN, b"x" * 1000)
                time.sleep(random.uniform(0, 0.005))
                if number % 2:
                    stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                           struct.pack("ii", 1, 0))
        wait_until(lambda: box.inspect()["running_execs"] == 0, 10, "no exec runs")
        wait_until(lambda: t.held_count(self.daemon.pid) <= fds, 5, "no descriptor stays")
        self.assertEqual(box.run("/bin/echo", "ok").text, "ok")


if __name__ == "__main__":
    main()
