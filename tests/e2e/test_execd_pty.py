"""Terminals of execd: sessions, frames, replay, takeover, pipes, and the WebSocket rules on the wire.
Names end in the commit of the reference's bug that they are about."""

import hashlib
import os
import struct
import sys
import threading
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from execd_case import WS_BINARY, WS_CLOSE, WS_PING, WS_PONG, WS_TEXT  # noqa: E402
from execd_case import ExecdCase, WebSocket  # noqa: E402
from sandpool_test import main, wait_until  # noqa: E402

RING = 1 << 20
SESSIONS_MAX = 16
MESSAGE_MAX = 256 * 1024
UNKNOWN = "00000000-0000-4000-8000-000000000000"


class PtyCase(ExecdCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        helper = cls("id")
        cls.shared = helper.box()
        helper._cleanups.clear()  # it lasts as long as the class

    def session(self, box=None, **body):
        box = box or self.shared
        response = box.execd("POST", "/pty", body)
        self.assertEqual(response.status, 201, response.body)
        self.assertEqual(list(response.json), ["session_id"])
        session = response.json["session_id"]
        self.addCleanup(box.execd, "DELETE", f"/pty/{session}")
        return session

    def attach(self, session, query="", handshake=None, box=None):
        box = box or self.shared
        client = WebSocket(self.connect(), f"{box.root}/pty/{session}/ws{query}", box.headers,
                           handshake)
        return client

    def open(self, session, query="", box=None, mode="pty"):
        """Attached, with `connected` read; what was replayed is (offset, data) in client.replay."""
        client = self.attach(session, query, box=box)
        self.assertEqual(client.status, 101, client.headers)
        client.replay = None
        opcode, payload = client.receive()
        if opcode == WS_BINARY:
            self.assertEqual(payload[0], 3)
            client.replay = (struct.unpack(">q", payload[1:9])[0], payload[9:])
            opcode, payload = client.receive()
        self.assertEqual(opcode, WS_TEXT)
        self.assertEqual(payload.decode(),
                         f'{{"type":"connected","session_id":"{session}","mode":"{mode}"}}')
        return client

    def status(self, session):
        response = self.shared.execd("GET", f"/pty/{session}")
        self.assertEqual(response.status, 200, response.body)
        return response.json


class Sessions(PtyCase):
    def test_a_session_before_its_first_client(self):
        session = self.session()
        self.assertEqual(str(uuid.UUID(session)), session)
        self.assertEqual(self.status(session),
                         {"session_id": session, "running": False, "output_offset": 0})

    def test_bodies_of_a_creation(self):
        for raw in (b"", b"{}", b'{"cwd":null,"command":null,"unknown":1}', b"{} trailing"):
            with self.subTest(raw):
                response = self.shared.execd("POST", "/pty", raw=raw)
                self.assertEqual(response.status, 201, response.body)
                self.shared.execd("DELETE", f"/pty/{response.json['session_id']}")
        for raw in (b"{", b"[]", b'{"cwd":1}', b'{"command":[]}'):
            with self.subTest(raw):
                response = self.shared.execd("POST", "/pty", raw=raw)
                self.assertEqual((response.status, response.code), (400, "INVALID_REQUEST_BODY"))

    def test_unknown_sessions(self):
        for session in (UNKNOWN, "x", "x" * 64, "x" * 65):
            for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/ws")):
                response = self.shared.execd(method, f"/pty/{session}{path}")
                self.assertEqual((response.status, response.code), (404, "CONTEXT_NOT_FOUND"))
        self.assertEqual(self.attach(UNKNOWN).status, 404)

    def test_sessions_of_another_sandbox_are_unknown(self):
        session, other = self.session(), self.box()
        self.assertEqual(other.execd("GET", f"/pty/{session}").status, 404)
        self.assertEqual(self.status(session)["running"], False)

    def test_delete_ends_the_shell_and_its_client(self):
        session = self.session()
        client = self.open(session)
        # Written so that the terminal's echo of it, once or twice, is not the answer.
        client.stdin("sleep 1000 & echo pi''d=$!=\n")
        client.read_until(b"pid=")
        pid = int(client.read_until(b"=")[:-1])
        self.assertEqual(self.shared.execd("DELETE", f"/pty/{session}").status, 200)
        code, _reason = client.closed()
        self.assertEqual(code, 1011)
        self.assertEqual(self.shared.execd("GET", f"/pty/{session}").status, 404)
        wait_until(lambda: self.shared.own().shell(f"test -e /proc/{pid}").exit_code == 1, 5,
                   "its children are gone")

    def test_as_many_sessions_as_allowed_and_one_more(self):
        box = self.box()
        for _ in range(SESSIONS_MAX):
            session = self.session(box)
        self.assertEqual(box.execd("POST", "/pty").status, 429)
        box.execd("DELETE", f"/pty/{session}")
        self.session(box)

    def test_a_directory_is_made(self):
        session = self.session(cwd="/tmp/made/for me")
        with self.open(session) as client:
            client.stdin("pwd; echo en''d\n")
            self.assertIn(b"/tmp/made/for me\r\n", client.read_until(b"end\r\n"))
        response = self.shared.execd("POST", "/pty", {"cwd": "/proc/none"})
        self.assertEqual((response.status, response.code), (500, "RUNTIME_ERROR"))

    def test_a_command_instead_of_a_shell(self):
        session = self.session(command="printf '%s' \"$0 $TERM\"; tty; exit 7")
        client = self.open(session)
        self.assertEqual(client.receive_json(), {"type": "exit", "exit_code": 7})
        self.assertIn(b"/dev/pts/", client.output)
        self.assertEqual(client.closed(), (1000, "process exited"))

    def test_release_of_the_sandbox_ends_it(self):
        box = self.box()
        client = self.open(self.session(box), box=box)
        self.ask("DELETE", f"/v1/sandboxes/{box.uuid}")
        code, _reason = client.closed()
        self.assertIn(code, (1000, 1011))


class Terminal(PtyCase):
    def setUp(self):
        self.id = self.session()

    def test_a_terminal_of_80_columns(self):
        with self.open(self.id) as client:
            client.stdin("stty size; tty; echo en''d\n")
            text = client.read_until(b"end\r\n")
            self.assertIn(b"24 80\r\n", text)
            self.assertIn(b"/dev/pts/", text)
            client.json(type="resize", cols=132, rows=50)
            client.stdin("stty size; echo en''d\n")
            self.assertIn(b"50 132\r\n", client.read_until(b"end\r\n"))

    def test_exit_tells_the_code_and_closes(self):
        client = self.open(self.id)
        client.stdin("exit 3\n")
        self.assertEqual(client.receive_json(), {"type": "exit", "exit_code": 3})
        self.assertEqual(client.closed(), (1000, "process exited"))
        self.assertFalse(self.status(self.id)["running"])

    def test_the_next_client_after_the_end_gets_another_shell(self):
        client = self.open(self.id)
        client.stdin("echo fir''st; exit\n")
        client.closed()
        with self.open(self.id) as client:
            self.assertIn(b"first\r\n", client.replay[1])
            client.stdin("echo sec''ond\n")
            client.read_until(b"second\r\n")

    def test_all_last_output_comes_before_the_exit_c1d19b7c(self):
        session = self.session(command="head -c 300000 /dev/zero | tr '\\0' x; exit 5")
        client = self.open(session)
        self.assertEqual(client.receive_json(), {"type": "exit", "exit_code": 5})
        self.assertEqual(client.output.count(b"x"), 300_000)

    def test_stdin_in_json(self):
        with self.open(self.id) as client:
            client.json(type="stdin", data="echo a''ä\n")
            client.read_until("aä\r\n".encode())

    def test_ping_and_pong(self):
        with self.open(self.id) as client:
            client.json(type="ping")
            self.assertEqual(client.receive_json(), {"type": "pong"})
            client.send(WS_PING, b"x" * 125)
            while True:
                opcode, payload = client.receive()
                if opcode != WS_BINARY:
                    break
            self.assertEqual((opcode, payload), (WS_PONG, b"x" * 125))

    def test_signals(self):
        session = self.session(command="trap 'echo go''t INT' INT; trap 'echo go''t TERM' TERM; "
                                       "echo rea''dy; while :; do sleep 0.05; done")
        with self.open(session) as client:
            client.read_until(b"ready\r\n")
            client.json(type="signal", signal="SIGINT")
            client.read_until(b"got INT\r\n")
            client.json(type="signal", signal="SIGTERM")
            client.read_until(b"got TERM\r\n")
            client.json(type="signal", signal="SIGKILL")
            self.assertEqual(client.receive_json()["type"], "exit")

    def test_frames_that_are_none(self):
        with self.open(self.id) as client:
            for text in (b"{", b"[]", b"1", b"{}", b'{"type":"x"}', b'{"type":1}', b"",
                         b'{"type":"resize"}', b'{"type":"resize","cols":0,"rows":1}',
                         b'{"type":"resize","cols":65536,"rows":1}',
                         b'{"type":"signal","signal":"SIGSTOP"}', b'{"type":"stdin","data":1}'):
                client.send(WS_TEXT, text)
                answer = client.receive_json()
                self.assertEqual((answer["type"], answer["code"]), ("error", "INVALID_FRAME"), text)
            client.send(WS_BINARY, b"")
            client.send(WS_BINARY, b"\x01no stdin")
            client.stdin("echo al''ive\n")
            client.read_until(b"alive\r\n")

    def test_control_c_reaches_the_program_in_front_27726236(self):
        with self.open(self.id) as client:
            client.stdin("sleep 100; echo af''ter\n")
            time.sleep(0.3)
            client.stdin(b"\x03")
            client.stdin("echo al''ive\n")
            client.read_until(b"alive\r\n")

    def test_much_stdin_is_exact(self):
        data = b"".join(b"%07d\n" % number for number in range(200_000))
        session = self.session(command=f"head -c {len(data)} | md5sum")
        client = self.open(session, "?pty=0", mode="pipe")
        for at in range(0, len(data), MESSAGE_MAX - 1):
            client.stdin(data[at:at + MESSAGE_MAX - 1])
        self.assertEqual(client.receive_json(), {"type": "exit", "exit_code": 0})
        self.assertEqual(client.output.split()[0].decode(), hashlib.md5(data).hexdigest())

    def test_stdin_that_nobody_reads(self):
        """It stops the client, and the shell's end is told all the same."""
        session = self.session(command="sleep 1.5; exit 9")
        client = self.open(session, "?pty=0", mode="pipe")
        client.sock.settimeout(0.5)
        sent = 0
        with self.assertRaises(TimeoutError):
            while True:
                client.stdin(bytes(100_000))
                sent += 100_000
        self.assertLess(sent, 64_000_000)
        client.sock.settimeout(10 * t.SLOW_FACTOR)
        answer = client.receive_json()
        if answer["type"] == "error":
            self.assertEqual(answer["code"], "STDIN_WRITE_FAILED")
            answer = client.receive_json()
        self.assertEqual(answer, {"type": "exit", "exit_code": 9})

    def test_a_shell_that_closed_its_stdin(self):
        session = self.session(command="exec <&-; echo clo''sed; sleep 100")
        client = self.open(session, "?pty=0", mode="pipe")
        client.read_until(b"closed\n")
        answers = []
        for _ in range(3):  # the first finds out, the second is told, the third is not told again
            client.stdin("x")
            client.json(type="ping")
            while not answers or answers[-1]["type"] != "pong":
                answers.append(client.receive_json())
            answers.append({"type": "next"})
        self.assertEqual([answer["code"] for answer in answers if answer["type"] == "error"],
                         ["STDIN_WRITE_FAILED"])

    def test_no_default_time_limit_b163(self):
        """The pool's default_timeout is for programs, not for sessions."""
        session = self.session()
        with self.open(session) as client:
            self.assertTrue(self.status(session)["running"])
            client.stdin("echo o''k\n")
            client.read_until(b"ok\r\n")


class Pipes(PtyCase):
    def test_two_streams(self):
        session = self.session(command="echo out; echo err >&2; test -t 0 || echo no tty; cat")
        client = self.open(session, "?pty=0", mode="pipe")
        seen = {1: b"", 2: b""}
        while seen[1] != b"out\nno tty\n" or seen[2] != b"err\n":
            opcode, payload = client.receive()
            self.assertEqual(opcode, WS_BINARY)
            seen[payload[0]] += payload[1:]
        client.stdin(b"\x00\xff\n")
        self.assertEqual(client.receive(), (WS_BINARY, b"\x01\x00\xff\n"))
        client.json(type="resize", cols=10, rows=10)  # no terminal: nothing happens
        client.json(type="signal", signal="SIGTERM")
        self.assertEqual(client.receive_json(), {"type": "exit", "exit_code": -1})

    def test_the_mode_is_the_shells(self):
        session = self.session()
        with self.open(session, "?pty=0", mode="pipe") as client:
            client.stdin("echo $((6 * 7))\n")
            client.read_until(b"42\n")
        wait_until(lambda: self.attach_when_free(session), 5, "the session is free")

    def attach_when_free(self, session):
        client = self.attach(session)
        if client.status == 409:
            return False
        with client:
            client.output = b""
            self.assertEqual(client.receive_json()["mode"], "pipe")
        return True


class Replay(PtyCase):
    def test_a_shell_goes_on_without_its_client(self):
        session = self.session()
        with self.open(session) as client:
            client.stdin("while ! test -e /tmp/alone; do sleep 0.1; done; echo la''ter; "
                         "touch /tmp/over; exec sleep 100\n")
            client.read_until(b"100\r\n")
        self.shared.own().shell("touch /tmp/alone")
        wait_until(lambda: self.shared.own().shell("test -e /tmp/over").exit_code == 0, 5,
                   "it goes on")

        def replayed():
            with self.open(session, "?takeover=1") as client:
                self.assertEqual(client.replay[0], 0)
                return client.replay[1] if client.replay[1].endswith(b"later\r\n") else None
        output = wait_until(replayed, 5, "what it said meanwhile")
        self.assertEqual(len(output), self.status(session)["output_offset"])

    def test_since(self):
        session = self.session(command="printf 0123456789; sleep 100")
        with self.open(session, "?pty=0", mode="pipe") as client:
            client.read_until(b"0123456789")
        for since, expected in (("0", (0, b"0123456789")), ("4", (4, b"456789")), ("10", None),
                                ("99", None), ("-5", (0, b"0123456789")),
                                ("x", (0, b"0123456789")),
                                ("99999999999999999999", None)):
            with self.subTest(since):
                self.free(session)
                with self.open(session, f"?since={since}", mode="pipe") as client:
                    self.assertEqual(client.replay, expected)

    def free(self, session):
        """Nobody has it: a client that closed is noticed a moment later."""
        def refused():
            client = self.attach(session, handshake={"Sec-WebSocket-Key": "x"})
            return client.status == 400
        wait_until(refused, 5, "the session is free")

    def test_the_ring_keeps_the_last_mebibyte(self):
        size = RING + 12345
        session = self.session(command=f"head -c {size} /dev/zero | tr '\\0' x; sleep 100")
        with self.open(session, "?pty=0", mode="pipe") as client:
            got = 0
            while got < size:
                _opcode, payload = client.receive()
                got += len(payload) - 1
        self.free(session)
        with self.open(session, mode="pipe") as client:
            self.assertEqual((client.replay[0], len(client.replay[1])), (size - RING, RING))
            self.assertEqual(self.status(session)["output_offset"], size)

    def test_nothing_is_lost_between_replay_and_attach_84e9b8dd(self):
        """Clients come and go while the shell counts; the numbers that each sees have no gap."""
        session = self.session(command="i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i + 1)); done; "
                                       "sleep 100")
        offset, data = 0, b""
        with self.open(session, "?pty=0", mode="pipe") as client:
            opcode, payload = client.receive()
            data += payload[1:]
        while not data.endswith(b"19999\n"):
            client = self.attach(session, f"?since={len(data)}&takeover=1")
            with client:
                for _ in range(20):
                    opcode, payload = client.receive()
                    if opcode == WS_BINARY and payload[0] == 3:
                        offset = struct.unpack(">q", payload[1:9])[0]
                        self.assertEqual(offset, len(data))
                        data += payload[9:]
                    elif opcode == WS_BINARY:
                        data += payload[1:]
                    if data.endswith(b"19999\n"):
                        break
        self.assertEqual(data, b"".join(b"%d\n" % number for number in range(20000)))


class Takeover(PtyCase):
    def test_one_client_at_a_time(self):
        session = self.session()
        with self.open(session):
            second = self.attach(session)
            self.assertEqual(second.status, 409)
            self.assertIn(b'"code":"ALREADY_CONNECTED"', second.body)

    def test_takeover_closes_the_holder(self):
        session = self.session()
        first = self.open(session)
        first.stdin("X=ke''pt\n")
        second = self.open(session, "?takeover=1")
        self.assertEqual(first.closed(), (4001, "TAKEN_OVER"))
        second.stdin("echo $X$X\n")
        second.read_until(b"keptkept\r\n")
        third = self.open(session, "?takeover=1")
        self.assertEqual(second.closed(), (4001, "TAKEN_OVER"))
        third.stdin("echo al''ive\n")
        third.read_until(b"alive\r\n")

    def test_takeover_of_nobody(self):
        with self.open(self.session(), "?takeover=1") as client:
            client.stdin("echo al''ive\n")
            client.read_until(b"alive\r\n")

    def test_a_plain_get_evicts_nobody_b98bf143(self):
        session = self.session()
        with self.open(session) as holder:
            response = self.shared.execd("GET", f"/pty/{session}/ws?takeover=1")
            self.assertEqual(response.status, 409)
            holder.stdin("echo al''ive\n")
            holder.read_until(b"alive\r\n")

    def test_a_failed_handshake_evicts_nobody_b98bf143(self):
        session = self.session()
        with self.open(session) as holder:
            for handshake in ({"Sec-WebSocket-Key": "short"}, {"Sec-WebSocket-Key": None},
                              {"Sec-WebSocket-Version": "8"}, {"Upgrade": "other"}):
                client = self.attach(session, "?takeover=1", handshake)
                self.assertEqual(client.status, 400, handshake)
            holder.stdin("echo al''ive\n")
            holder.read_until(b"alive\r\n")

    def test_a_stalled_holder_does_not_delay_it_2df7369f(self):
        session = self.session(command="yes; sleep 100")
        stalled = self.open(session, "?pty=0", mode="pipe")

        def stands_still():
            before = self.status(session)["output_offset"]
            time.sleep(0.3)
            return before if before == self.status(session)["output_offset"] else None
        before = wait_until(stands_still, 20, "the shell waits for the client")
        start = time.monotonic()
        second = self.open(session, "?takeover=1", mode="pipe")
        self.assertLess(time.monotonic() - start, 1 * t.SLOW_FACTOR)
        self.assertEqual(len(second.replay[1]), RING)
        second.read_until(b"y\ny\n")
        wait_until(lambda: self.status(session)["output_offset"] > before, 5, "it goes on")
        stalled.sock.close()

    def test_takeover_in_the_middle_of_a_replay_ba58a5d0(self):
        """One that is still being sent a large replay can be taken over from."""
        session = self.session(command=f"head -c {RING} /dev/zero; sleep 100")
        with self.open(session, "?pty=0", mode="pipe") as client:
            got = 0
            while got < RING:
                got += len(client.receive()[1]) - 1
        slow = self.attach(session, "?takeover=1")
        self.assertEqual(slow.status, 101)
        with self.open(session, "?takeover=1", mode="pipe") as client:
            self.assertEqual(len(client.replay[1]), RING)

    def test_of_many_that_take_over_one_has_it_bd50e294(self):
        session = self.session()
        self.open(session)
        clients, lock = [], threading.Lock()

        def take():
            client = self.attach(session, "?takeover=1")
            with lock:
                clients.append(client)
        threads = [threading.Thread(target=take) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(0.3)
        holders = 0
        for client in clients:
            if client.status != 101:
                self.assertEqual(client.status, 409)
                continue
            client.sock.settimeout(1)
            try:
                self.assertEqual(client.closed(), (4001, "TAKEN_OVER"))
            except TimeoutError:
                holders += 1
            except AssertionError:
                raise
        self.assertEqual(holders, 1)


class Wire(PtyCase):
    def client(self):
        client = self.open(self.session())
        self.addCleanup(client.sock.close)
        return client

    def test_the_handshake(self):
        session = self.session()
        for handshake in ({"Upgrade": None}, {"Upgrade": "h2c"}, {"Connection": "close"},
                          {"Sec-WebSocket-Version": None}, {"Sec-WebSocket-Version": "12"},
                          {"Sec-WebSocket-Key": None}, {"Sec-WebSocket-Key": "AAAA"}):
            with self.subTest(handshake):
                client = self.attach(session, handshake=handshake)
                self.assertEqual(client.status, 400)
                self.assertTrue(client.body)
        self.assertFalse(self.status(session)["running"], "no shell without a client")
        self.assertEqual(self.attach(session, handshake={"Upgrade": "WebSocket",
                                                         "Connection": "keep-alive, Upgrade"}).status,
                         101)

    def test_a_frame_with_the_handshake_in_one_packet(self):
        session = self.session()
        sock = self.connect()
        plain = WebSocket.__new__(WebSocket)
        request = (f"GET {self.shared.root}/pty/{session}/ws HTTP/1.1\r\nHost: a\r\n"
                   f"X-EXECD-ACCESS-TOKEN: {self.shared.token}\r\nConnection: Upgrade\r\n"
                   "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode()
        sock.sendall(request + plain.frame(WS_PING, b"early"))
        data = b""
        while b"early" not in data:
            part = sock.recv(65536)
            self.assertTrue(part, data)
            data += part
        self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", data)
        self.assertIn(b"\x8a\x05early", data)

    def test_every_byte_alone(self):
        client = self.client()
        frames = client.frame(WS_BINARY, b"\0echo o", fin=False) + client.frame(WS_PING, b"p")
        frames += client.frame(0, b"n''e\n")
        for byte in frames:
            client.sock.sendall(bytes([byte]))
        seen, pong = b"", False
        while b"one\r\n" not in seen or not pong:
            opcode, payload = client.receive()
            pong |= opcode == WS_PONG and payload == b"p"
            seen += payload[1:] if opcode == WS_BINARY else b""

    def test_close_is_answered(self):
        client = self.client()
        client.send(WS_CLOSE, struct.pack(">H", 3456) + b"going")
        self.assertEqual(client.closed(), (3456, ""))
        client = self.client()
        client.send(WS_CLOSE)
        self.assertEqual(client.closed(), (None, ""))

    def test_what_the_protocol_forbids_is_closed_with_a_code(self):
        plain = WebSocket.__new__(WebSocket)
        cases = [(plain.frame(WS_BINARY, b"\0x", mask=False), 1002),
                 (plain.frame(3, b"x"), 1002),
                 (b"\xc2" + plain.frame(WS_BINARY, b"x")[1:], 1002),
                 (plain.frame(WS_PING, b"x", fin=False), 1002),
                 (plain.frame(0, b"x"), 1002),
                 (plain.frame(WS_TEXT, b"\xff"), 1007),
                 (plain.frame(WS_CLOSE, b"\x03\xed"), 1002),
                 (plain.frame(WS_BINARY, b"\0" * (MESSAGE_MAX + 1))[:14], 1009)]
        for data, code in cases:
            with self.subTest(data[:4].hex()):
                client = self.client()
                client.sock.sendall(data)
                self.assertEqual(client.closed()[0], code)

    def test_the_longest_message_is_taken(self):
        client = self.open(self.session(command="wc -c; sleep 100"), "?pty=0", mode="pipe")
        client.stdin(b"x" * (MESSAGE_MAX - 1))
        client.json(type="ping")
        self.assertEqual(client.receive_json(), {"type": "pong"})
        client.sock.close()

    def test_a_client_that_vanishes_leaves_the_session(self):
        session = self.session()
        self.open(session).sock.close()

        def attach():
            client = self.attach(session)
            return client if client.status == 101 else None
        client = wait_until(attach, 5, "the session is free")
        client.sock.close()

    def test_a_client_that_does_not_read_stops_the_shell_b172(self):
        session = self.session(command="yes; sleep 100")
        client = self.open(session, "?pty=0", mode="pipe")

        def stands_still():
            before = self.status(session)["output_offset"]
            time.sleep(0.3)
            return before and before == self.status(session)["output_offset"]
        wait_until(stands_still, 20, "the shell waits")
        self.assertLess(self.status(session)["output_offset"], 32_000_000)
        client.sock.close()
        before = self.status(session)["output_offset"]
        wait_until(lambda: self.status(session)["output_offset"] > before, 5,
                   "without a client it goes on")


if __name__ == "__main__":
    main()
