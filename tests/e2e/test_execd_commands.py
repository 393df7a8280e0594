"""execd on the wire: the event stream, commands, shell sessions, code and metrics.

Numbers like B-151 are those of the pitfalls that a test is about.
"""

import http.client
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from execd_case import Events, ExecdCase  # noqa: E402
from sandpool_test import main  # noqa: E402

MIB = 1 << 20
UNKNOWN = "0" * 32
LINE_MAX = 512 * 1024
LOG_MAX = MIB


class CommandCase(ExecdCase):
    def setUp(self):
        super().setUp()
        self.a = self.box()

    def stream(self, path, body, box=None, timeout=60):
        response = (box or self.a).execd("POST", path, body, timeout=timeout)
        self.assertEqual(response.status, 200, response.body)
        return Events(response.body)

    def command(self, command, box=None, **more):
        return self.stream("/command", {"command": command, **more}, box)

    def refuses(self, status, code, method, path, body=None, **options):
        response = self.a.execd(method, path, body, **options)
        self.assertEqual((response.status, response.json["code"]), (status, code), response.body)
        self.assertTrue(response.json["message"])
        return response

    def open_stream(self, path, body):
        """The socket, after the first event; and what has come so far."""
        sock = self.connect()
        data = json.dumps(body).encode()
        self.send(sock, "POST", self.a.root + path,
                  {**self.a.headers, "Content-Length": len(data)}, data)
        got = b""
        while b"\r\n\r\n" not in got or b"}\n\n" not in got:
            piece = sock.recv(4096)
            self.assertTrue(piece, got)
            got += piece
        return sock, got

    def assert_grown_less(self, before_kib, kib):
        if t.SLOW_FACTOR == 1:  # a sanitizer keeps what was freed
            self.assertLess(t.rss_kib(self.daemon.pid) - before_kib, kib)

    def init_id(self, got):
        start = got.index(b'{"type":"init"')
        return json.loads(got[start:got.index(b"\n\n", start)])["text"]

    def status(self, command):
        response = self.a.execd("GET", f"/command/status/{command}")
        self.assertEqual(response.status, 200, response.body)
        return response.json

    def wait_ended(self, command, timeout=10):
        return t.wait_until(lambda: not (s := self.status(command))["running"] and s, timeout,
                            "the end of the command")


class Stream(CommandCase):
    def test_headers_and_bytes(self):
        sock = self.connect()
        body = b'{"command":"echo hi"}'
        self.send(sock, "POST", self.a.root + "/command",
                  {**self.a.headers, "Content-Length": len(body), "Connection": "close"}, body)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        head, _, rest = answer.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        self.assertEqual(lines[0], "http/1.1 200 ok")
        for line in ("content-type: text/event-stream", "cache-control: no-cache",
                     "x-accel-buffering: no", "transfer-encoding: chunked"):
            self.assertIn(line, lines)
        self.assertNotIn(b"data:", rest)
        self.assertRegex(rest, rb'\{"type":"init","text":"[0-9a-f]{32}","timestamp":\d{13}\}\n\n'
                         rb'(\r\n[0-9a-f]+\r\n)?\{"type":"ping","text":"pong","timestamp":\d{13}\}\n\n')
        self.assertRegex(rest, rb'\{"type":"stdout","text":"hi","timestamp":\d{13}\}\n\n')

    def test_order_and_one_end(self):
        events = self.command("echo a; echo b >&2; sleep 0.01; exit 0")
        self.assertEqual(events.types[:2], ["init", "ping"])
        self.assertEqual(sorted(events.types[2:4]), ["stderr", "stdout"])
        self.assertEqual(events.types[4:], ["execution_complete"])
        self.assertGreaterEqual(events.list[-1]["execution_time"], 10)

    def test_failure_is_an_error_and_no_completion(self):
        events = self.command("exit 7")
        self.assertEqual(events.types[-1], "error")
        self.assertEqual(events.of("execution_complete"), [])
        self.assertEqual(events.error, {"ename": "CommandExecError", "evalue": "7",
                                        "traceback": ["exit status 7"]})

    def test_killed_shell_is_no_success(self):  # B-164
        events = self.command("kill -9 $$")
        self.assertEqual(events.error["evalue"], "-1")
        self.assertEqual(events.error["traceback"], ["signal: killed"])

    def test_lines(self):  # B-160
        events = self.command(r"printf 'a\r\nb\n\nc\rd\r\n\r\nend'")
        self.assertEqual(events.texts(), ["a", "b", "\n", "c", "d", "\n", "end"])

    def test_crlf_in_two_writes_is_one_end(self):
        events = self.command(r"printf 'a\r'; sleep 0.1; printf '\nb\n'")
        self.assertEqual(events.texts(), ["a", "b"])

    def test_carriage_returns_arrive_while_they_are_written(self):  # B-160
        sock, got = self.open_stream("/command", {
            "command": "for i in 1 2 3 4 5; do printf '%s%%\\r' $i; sleep 0.2; done; sleep 5"})
        start = time.monotonic()
        while b'"3%"' not in got:
            got += sock.recv(4096)
        self.assertLess(time.monotonic() - start, 1.5 * t.SLOW_FACTOR)

    def test_what_is_no_utf8_is_repaired(self):
        events = self.command(r"printf '\xff\xe2\x82\xac\xc3\n\xf0\x9f\x98\x80<&>\x01\x7f\n'")
        self.assertEqual(events.texts(), ["\ufffd€\ufffd", "😀<&>\x01\x7f"])

    def test_characters_in_pieces(self):  # B-154
        events = self.command(r"for b in f0 9f 98 80; do printf \\x$b; sleep 0.02; done")
        self.assertEqual(events.texts(), ["😀"])

    def test_nothing_is_lost_at_the_end(self):  # B-153
        for _ in range(20):
            events = self.command("head -c 300000 /dev/zero | tr '\\0' x; printf end")
            self.assertEqual("".join(events.texts()), "x" * 300000 + "end")
            self.assertEqual(events.types[-1], "execution_complete")

    def test_long_line(self):  # B-159
        events = self.command(f"head -c {64 * MIB} /dev/zero | tr '\\0' x; echo; echo next")
        texts = events.texts()
        self.assertEqual(texts[-1], "next")
        self.assertEqual(sum(map(len, texts[:-1])), 64 * MIB)
        self.assertEqual(max(map(len, texts)), LINE_MAX)
        self.assertEqual(events.code, 0)

    def test_line_limit(self):
        for length, pieces in ((LINE_MAX, 1), (LINE_MAX + 1, 2)):
            events = self.command(f"head -c {length} /dev/zero | tr '\\0' x; echo")
            self.assertEqual(len(events.texts()), pieces)

    def test_pings(self):
        events = self.command("sleep 4")
        self.assertEqual(len(events.of("ping")), 2)
        self.assertTrue(all(event["text"] == "pong" for event in events.of("ping")))

    def test_the_end_of_the_command_is_the_end_of_the_stream(self):  # B-151
        start = time.monotonic()
        events = self.command("sleep 60 & echo hi")
        self.assertLess(time.monotonic() - start, 0.9 * t.SLOW_FACTOR)
        self.assertEqual(events.texts(), ["hi"])

    def test_the_connection_is_kept(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=20)
        self.addCleanup(connection.close)
        sockets = set()
        for _ in range(3):
            connection.request("POST", self.a.root + "/command", '{"command":"echo again"}',
                               self.a.headers)
            sockets.add(connection.sock.getsockname())
            self.assertEqual(Events(connection.getresponse().read()).texts(), ["again"])
        self.assertEqual(len(sockets), 1)

    def test_a_client_that_does_not_read(self):  # B-157, B-158
        before = t.rss_kib(self.daemon.pid)
        sock, _ = self.open_stream("/command", {"command": "yes 'some text that goes on'"})
        time.sleep(1)
        start = time.monotonic()
        self.assertEqual(self.command("echo quick").texts(), ["quick"])
        self.assertLess(time.monotonic() - start, 1 * t.SLOW_FACTOR)
        self.assert_grown_less(before, 8 * 1024)
        sock.close()

    def test_a_flood_of_blank_lines_is_bounded(self):
        before = t.rss_kib(self.daemon.pid)
        sock, _ = self.open_stream("/command", {"command": "yes ''"})
        time.sleep(1)
        self.assert_grown_less(before, 8 * 1024)
        sock.close()

    def test_the_end_of_the_sandbox_ends_the_stream(self):
        box = self.box()
        sock = self.connect()
        body = b'{"command":"sleep 60"}'
        self.send(sock, "POST", box.root + "/command",
                  {**box.headers, "Content-Length": len(body)}, body)
        got = sock.recv(4096)
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{box.uuid}").status, 204)
        while b"0\r\n\r\n" not in got:
            piece = sock.recv(4096)
            self.assertTrue(piece, got)
            got += piece
        self.assertIn(b'"type":"error"', got)


class Commands(CommandCase):
    def test_bodies_that_are_refused(self):
        for raw in (b"", b"{", b"[]", b"7", b"{}", b'{"command":""}', b'{"command":7}',
                    b'{"command":"x","background":"yes"}', b'{"command":"x","timeout":0}',
                    b'{"command":"x","timeout":"1s"}', b'{"command":"x","gid":1000}',
                    b'{"command":"x","uid":-1}', b'{"command":"x","uid":4294967296}',
                    b'{"command":"x","envs":{"A":1}}', b'{"command":"x","envs":{"A=B":"1"}}',
                    b'{"command":"x","envs":{"":"1"}}', b'{"command":"a\\u0000b"}',
                    b'{"command":"x","envs":[]}'):
            with self.subTest(raw):
                self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/command", raw=raw)

    def test_what_is_ignored_in_a_body(self):
        response = self.a.execd("POST", "/command", raw=b'{"command":"echo ok","cwd":null,"uid":null,'
                                b'"envs":null,"timeout":null,"unknown":[1]} trailing')
        self.assertEqual(Events(response.body).texts(), ["ok"])

    def test_directories(self):
        self.command("mkdir -p /tmp/there; touch /tmp/file")
        for cwd, where in (("/tmp/there", "/tmp/there"), ("/tmp/../tmp/there/.", "/tmp/there"),
                           ("~", "/home/user"), ("$HOME", "/home/user"),
                           ("${BASE}/there", "/tmp/there")):
            events = self.command("pwd", cwd=cwd, envs={"BASE": "/tmp"})
            self.assertEqual(events.texts(), [where], cwd)
        for cwd in ("/nowhere", "/tmp/file", "$UNDEFINED/x", "${BASE", "/root/x"):
            with self.subTest(cwd):
                self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/command",
                             {"command": "pwd", "cwd": cwd})
                self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/command",
                             {"command": "pwd", "cwd": cwd, "background": True})

    def test_ids(self):
        events = self.command("id -u; id -g", uid=1001, gid=1002)
        self.assertEqual(events.texts(), ["1001", "1002"])
        self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/command", {"command": "id", "uid": 0})

    def test_stdin_is_empty(self):  # B-161
        self.assertEqual(self.command("cat; read x; echo $?").texts(), ["1"])

    def test_bash_is_the_shell(self):
        self.assertEqual(self.command("a=(x y); echo ${a[1]} $BASH_VERSION | cut -c1").texts(),
                         ["y"])

    def test_quoting(self):  # B-167
        values = {"Q": "'\"`$(x)\\", "NL": "a\nb", "EMPTY": "", "U": "é😀", "DASH": "-n"}
        events = self.command("printf '%s|' \"$Q\" \"$NL\" \"$EMPTY\" \"$U\" \"$DASH\"", envs=values)
        self.assertEqual("\n".join(events.texts()), "|".join(values.values()) + "|")

    def test_texts_longer_than_an_argument(self):
        for length in (96 * 1024, 96 * 1024 + 1, 300_000, 900_000):
            text = "echo begin; : '" + "x" * (length - 35) + "'; echo $# end"
            self.assertEqual(self.command(text).texts(), ["begin", "0 end"], length)
        self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/command",
                     {"command": ":" * (10 * 96 * 1024 + 1)})

    def test_timeout(self):  # B-163
        start = time.monotonic()
        events = self.command("setsid sleep 20 & sleep 20", timeout=500)
        took = time.monotonic() - start
        self.assertTrue(0.5 <= took < 2 * t.SLOW_FACTOR, took)
        self.assertEqual(events.error["traceback"], ["signal: killed (timeout)"])
        self.assertEqual(self.command("pgrep -c sleep").texts(), ["0"])

    def test_parallel_commands(self):  # B-171
        results = {}

        def run(number):
            events = self.command(f"for i in $(seq 50); do echo {number}; done; exit {number}")
            results[number] = set(events.texts()), events.code

        threads = [threading.Thread(target=run, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {i: ({str(i)}, i) for i in range(20)})

    def test_a_client_that_leaves_changes_nothing(self):  # B-169
        sock, got = self.open_stream("/command", {
            "command": "yes | head -c 3000000; sleep 0.3; touch /tmp/went-on; exit 5"})
        sock.close()
        status = self.wait_ended(self.init_id(got))
        self.assertEqual((status["exit_code"], status["error"]), (5, "exit status 5"))
        self.assertEqual(self.command("ls /tmp/went-on").texts(), ["/tmp/went-on"])

    def test_clients_that_leave_at_any_time(self):  # B-169
        for i in range(50):
            sock = self.connect()
            body = b'{"command":"yes | head -c 500000"}'
            self.send(sock, "POST", self.a.root + "/command",
                      {**self.a.headers, "Content-Length": len(body)}, body)
            time.sleep(i * 0.0005)
            sock.close()
        self.assertEqual(self.command("echo usable").texts(), ["usable"])

    def test_status(self):
        events = self.command("exit 3")
        status = self.status(events.id)
        self.assertEqual(list(status), ["id", "content", "running", "exit_code", "error",
                                        "started_at", "finished_at"])
        self.assertEqual(status["content"], "exit 3")
        self.assertEqual(status["exit_code"], 3)
        self.assertRegex(status["started_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$")
        self.refuses(404, "INVALID_REQUEST_BODY", "GET", f"/command/status/{UNKNOWN}")
        self.refuses(404, "INVALID_REQUEST_BODY", "GET", "/command/status/" + "x" * 200)

    def test_another_sandbox_does_not_see_it(self):
        events = self.command("true")
        other = self.box()
        self.assertEqual(other.execd("GET", f"/command/status/{events.id}").status, 404)

    def test_many_are_remembered_and_the_oldest_forgotten(self):
        ids = []
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=20)
        self.addCleanup(connection.close)
        for _ in range(258):
            connection.request("POST", self.a.root + "/command", '{"command":"true"}',
                               self.a.headers)
            ids.append(Events(connection.getresponse().read()).id)
        known = [self.a.execd("GET", f"/command/status/{i}").status == 200 for i in ids]
        self.assertEqual(known, [False] * 2 + [True] * 256)

    # -- interrupts --

    def test_interrupt(self):
        sock, got = self.open_stream("/command", {"command": "sleep 60 & sleep 60; echo no"})
        response = self.a.execd("DELETE", f"/command?id={self.init_id(got)}")
        self.assertEqual((response.status, response.body), (200, b""))
        while b"0\r\n\r\n" not in got:
            got += sock.recv(4096)
        self.assertIn(b"signal: terminated", got)
        self.assertEqual(self.command("pgrep -c sleep").texts(), ["0"])

    def test_interrupt_of_who_does_not_listen(self):
        sock, got = self.open_stream("/command", {
            "command": "trap '' TERM; echo ready; while :; do sleep 1; done"})
        while b"ready" not in got:
            got += sock.recv(4096)
        start = time.monotonic()
        self.assertEqual(self.a.execd("DELETE", f"/command?id={self.init_id(got)}").status, 200)
        while b"0\r\n\r\n" not in got:
            got += sock.recv(4096)
        self.assertTrue(2.5 < time.monotonic() - start < 6 * t.SLOW_FACTOR)
        self.assertIn(b"signal: killed", got)

    def test_interrupt_as_soon_as_the_id_is_known(self):  # B-170
        for _ in range(50):
            sock, got = self.open_stream("/command", {"command": "sleep 60"})
            self.assertEqual(self.a.execd("DELETE", f"/command?id={self.init_id(got)}").status, 200)
            while b"0\r\n\r\n" not in got:
                got += sock.recv(4096)
            sock.close()

    def test_interrupt_of_nothing(self):
        self.refuses(400, "MISSING_QUERY", "DELETE", "/command")
        self.refuses(500, "RUNTIME_ERROR", "DELETE", f"/command?id={UNKNOWN}")
        ended = self.command("true").id
        self.refuses(500, "RUNTIME_ERROR", "DELETE", f"/command?id={ended}")

    # -- background --

    def log(self, command, cursor=None):
        query = "" if cursor is None else f"?cursor={cursor}"
        response = self.a.execd("GET", f"/command/{command}/logs{query}")
        self.assertEqual(response.status, 200, response.body)
        return response.body, int(response.headers["EXECD-COMMANDS-TAIL-CURSOR"])

    def test_background(self):
        start = time.monotonic()
        events = self.command("echo out; echo err >&2; sleep 0.5; echo late", background=True)
        self.assertLess(time.monotonic() - start, 0.4 * t.SLOW_FACTOR)
        self.assertEqual(events.types, ["init", "ping", "execution_complete"])
        self.assertTrue(self.status(events.id)["running"])
        status = self.wait_ended(events.id)
        self.assertEqual(status["exit_code"], 0)
        self.assertNotIn("error", status)
        self.assertEqual(self.log(events.id), (b"out\nerr\nlate\n", 13))
        self.assertEqual(self.log(events.id, 4), (b"err\nlate\n", 13))
        self.assertEqual(self.log(events.id, 13), (b"", 13))
        self.assertEqual(self.log(events.id, 1000), (b"", 13))
        for garbage in ("x", "-1", "", "99999999999999999999999", "1x"):
            self.assertEqual(self.log(events.id, garbage), (b"out\nerr\nlate\n", 13))

    def test_background_has_no_stdin(self):
        events = self.command("cat; echo done", background=True)
        self.wait_ended(events.id)
        self.assertEqual(self.log(events.id)[0], b"done\n")

    def test_logs_are_of_background_commands(self):
        self.refuses(400, "INVALID_REQUEST_BODY", "GET", f"/command/{UNKNOWN}/logs")
        self.refuses(400, "INVALID_REQUEST_BODY", "GET", f"/command/{self.command('true').id}/logs")

    def test_the_end_of_a_long_log_is_kept(self):
        for size, lost in ((LOG_MAX, 0), (LOG_MAX + 1, 1), (5 * MIB, 4 * MIB)):
            events = self.command(f"head -c {size} /dev/zero | tr '\\0' x", background=True)
            self.wait_ended(events.id)
            text, cursor = self.log(events.id)
            self.assertEqual((len(text), cursor), (size - lost, size))

    def test_logs_of_many_are_bounded(self):
        before = t.rss_kib(self.daemon.pid)
        ids = [self.command(f"head -c {MIB} /dev/zero", background=True).id for _ in range(30)]
        for command in ids:
            self.wait_ended(command)
        self.assertEqual(len(self.log(ids[-1])[0]), MIB)
        self.assertEqual(self.log(ids[0]), (b"", MIB))
        self.assert_grown_less(before, 14 * 1024)

    def test_an_endless_background_command_is_not_ended_for_its_output(self):
        events = self.command("yes | head -c 100000000; echo over; sleep 60", background=True)
        t.wait_until(lambda: self.log(events.id)[1] >= 100_000_005, 30, "all of the output")
        self.assertTrue(self.status(events.id)["running"])
        self.assertEqual(self.a.execd("DELETE", f"/command?id={events.id}").status, 200)
        self.assertEqual(self.wait_ended(events.id)["exit_code"], -1)

    def test_a_removed_tmp_breaks_nothing(self):
        self.command("rm -rf /tmp/* /tmp/.[!.]*")
        events = self.command("echo fine", background=True)
        self.wait_ended(events.id)
        self.assertEqual(self.log(events.id)[0], b"fine\n")


class Sessions(CommandCase):
    def setUp(self):
        super().setUp()
        self.session = self.new_session()

    def new_session(self, body=None):
        response = self.a.execd("POST", "/session", body)
        self.assertEqual(response.status, 200, response.body)
        self.assertEqual(list(response.json), ["session_id"])
        return response.json["session_id"]

    def run_in(self, command, session=None, **more):
        return self.stream(f"/session/{session or self.session}/run", {"command": command, **more})

    def test_ids(self):
        self.assertRegex(self.session, "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-")
        self.assertEqual(self.run_in("true").id, self.session)

    def test_errors(self):
        self.refuses(500, "RUNTIME_ERROR", "POST", f"/session/{UNKNOWN}/run", {"command": "x"})
        self.refuses(404, "CONTEXT_NOT_FOUND", "DELETE", f"/session/{UNKNOWN}")
        run = f"/session/{self.session}/run"
        for raw in (b"", b"{}", b'{"command":""}', b'{"command":"x","timeout":-1}'):
            self.refuses(400, "INVALID_REQUEST_BODY", "POST", run, raw=raw)
        self.refuses(400, "INVALID_REQUEST_BODY", "POST", run,
                     {"command": "pwd", "cwd": "/nowhere"})
        self.assertEqual(self.run_in("echo still", timeout=0).texts(), ["still"])

    def test_directories(self):
        session = self.new_session({"cwd": "/tmp/made/for/it"})
        self.assertEqual(self.run_in("pwd", session).texts(), ["/tmp/made/for/it"])
        self.run_in("cd ..", session)
        self.assertEqual(self.run_in("pwd", session).texts(), ["/tmp/made/for"])
        self.assertEqual(self.run_in("pwd", session, cwd="/var").texts(), ["/var"])
        self.assertEqual(self.run_in("pwd", session).texts(), ["/var"])
        self.command("mkdir -p \"/tmp/it's odd\"")
        self.assertEqual(self.run_in("pwd", session, cwd="/tmp/it's odd").texts(), ["/tmp/it's odd"])
        self.assertEqual(self.run_in("pwd", session).texts(), ["/tmp/it's odd"])

    def test_state(self):
        self.run_in("plain='a  b'; export shown=\"it's\n\\\"two\\\"\"; list=(1 'two words' 3)\n"
                    "declare -A map=([k]=v); f() { echo \"f: $1 ${list[1]}\"; }\n"
                    "shopt -s expand_aliases extglob; alias hi='echo hello'\n"
                    "set -o pipefail; umask 077; set -- p1 'p 2'; cd /var; unset HOME")
        events = self.run_in("printf '%s\\n' \"$plain\" \"${list[1]}\" \"${map[k]}\" \"$2\" $PWD; hi; f x\n"
                             "sh -c 'printf \"%s\\n\" \"$shown\"'; umask; false | true; echo $?\n"
                             "echo ${HOME-none}; [[ aab == +(a)b ]] && echo glob")
        self.assertEqual(events.texts(), ["a  b", "two words", "v", "p 2", "/var", "hello",
                                          "f: x two words", "it's", '"two"', "0077", "1", "none",
                                          "glob"])

    def test_state_is_clean(self):
        """Nothing of how it is done shows in what the next run sees."""
        self.run_in("x=1")
        self.assertEqual(self.run_in("compgen -v __sp; compgen -A function; echo $#").texts(),
                         ["__sp_text", "__sp_keep", "0"])
        self.assertEqual(self.run_in("sh -c 'ls /proc/self/fd | xargs echo'").texts(), ["0 1 2 3"])

    def test_exit_keeps_the_session(self):
        events = self.run_in("kept=yes; echo before; exit 7; echo after")
        self.assertEqual((events.texts(), events.code), (["before"], 7))
        self.assertEqual(self.run_in("echo $kept").texts(), ["yes"])

    def test_errexit(self):
        events = self.run_in("set -e; v=1; false; echo no")
        self.assertEqual((events.texts(), events.code), ([], 1))
        events = self.run_in("echo $v; false; echo no")
        self.assertEqual((events.texts(), events.code), (["1"], 1))

    def test_trace(self):
        self.run_in("set -x; v=1")
        events = self.run_in("echo $v\ncat <<x\nmany\nlines\nx")
        self.assertEqual(events.texts(), ["++ echo 1", "1", "++ cat", "many", "lines"])
        self.assertEqual(self.run_in("{ set +x; } 2>/dev/null; echo $v").texts()[-1], "1")
        self.assertEqual(self.run_in("echo $v").texts(), ["1"])

    def test_redirected_output(self):
        self.assertEqual(self.run_in("exec >/tmp/out 2>&1; echo into the file; w=1").texts(), [])
        self.assertEqual(self.run_in("echo back $w; cat /tmp/out").texts(),
                         ["back 1", "into the file"])
        self.assertEqual(self.run_in("exec >&- 2>&-; w=2").code, 0)
        self.assertEqual(self.run_in("echo $w").texts(), ["2"])

    def test_unbalanced_text(self):
        for text in ("echo 'open", 'echo "open', "echo $(open", "if true; then", "((", "echo `x"):
            events = self.run_in(text)
            self.assertNotEqual(events.code, 0, text)
            self.assertTrue(events.texts(), text)
            self.assertEqual(self.run_in("echo fine").texts(), ["fine"], text)
        self.assertEqual(self.run_in("cat <<end\nnever ended").texts()[-1], "never ended")
        self.assertEqual(self.run_in("echo fine").texts(), ["fine"])

    def test_here_documents(self):
        self.assertEqual(self.run_in("cat <<'end'\na $b\n\nend\necho after").texts(),
                         ["a $b", "\n", "after"])

    def test_stdin_is_not_the_protocol(self):  # D-5
        self.assertEqual(self.run_in("cat; read x; echo $?; head -c 1 | wc -c").texts(), ["1", "0"])

    def test_both_outputs_in_their_order(self):
        self.assertEqual(self.run_in("echo 1; echo 2 >&2; echo 3; ls /nowhere").texts()[:3],
                         ["1", "2", "3"])
        self.assertEqual(self.run_in("echo x >&2").texts("stderr"), [])

    def test_output_without_a_last_newline(self):
        self.assertEqual(self.run_in("printf 'no newline'").texts(), ["no newline"])

    def test_timeout(self):
        start = time.monotonic()
        events = self.run_in("export lost=1; sleep 20", timeout=300)
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)
        self.assertEqual(events.error["traceback"], ["signal: killed (timeout)"])
        self.assertEqual(self.run_in("echo alive ${lost-gone}").texts(), ["alive gone"])

    def test_timeout_with_children(self):  # D-7
        start = time.monotonic()
        self.run_in("(trap '' TERM INT; sleep 6) & setsid sleep 6 & sleep 6", timeout=300)
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)
        self.assertEqual(self.command("pgrep -c sleep").texts(), ["0"])

    def test_background_output_does_not_reach_the_next_run(self):  # D-5
        self.run_in("(sleep 0.2; echo from before; sleep 0.3; echo alive >/tmp/background) &")
        self.assertEqual(self.run_in("sleep 0.4; echo mine").texts(), ["mine"])
        self.assertEqual(self.run_in("sleep 0.4; cat /tmp/background").texts(), ["alive"])

    def test_long_lines_and_bytes(self):
        events = self.run_in(f"head -c {64 * MIB} /dev/zero | tr '\\0' x; echo; printf '\\xff\\xfe\\n'")
        self.assertEqual(sum(map(len, events.texts()[:-1])), 64 * MIB)
        self.assertEqual(events.texts()[-1], "\ufffd\ufffd")

    def test_variables_that_are_no_text(self):
        self.run_in("v=$'\\xff\\x01\\n'; w=$'q\\'uote'; export big=$(head -c 100000 /dev/zero | tr '\\0' y)")
        self.assertEqual(self.run_in("printf %s \"$v\" | od -An -tx1; echo \"$w\"; echo ${#big}").texts(),
                         [" ff 01 0a", "q'uote", "100000"])

    def test_a_state_beyond_its_limit_is_not_kept(self):
        self.run_in("before=1")
        self.run_in("before=2; big=$(head -c 600000 /dev/zero | tr '\\0' y)")
        self.assertEqual(self.run_in("echo $before ${#big}").texts(), ["1 0"])

    def test_killed_shell(self):
        self.run_in("v=1")
        self.assertEqual(self.run_in("v=2; kill -9 $$").error["traceback"], ["signal: killed"])
        self.assertEqual(self.run_in("echo $v").texts(), ["1"])
        self.assertEqual(self.run_in("exec sleep 0").code, 0)
        self.assertEqual(self.run_in("echo $v").texts(), ["1"])

    def test_traps(self):
        self.assertEqual(self.run_in("trap 'echo bye' EXIT; v=1; echo hi").texts(), ["hi", "bye"])
        self.assertEqual(self.run_in("echo $v").texts(), ["1"])
        self.run_in("trap 'echo usr1' USR1")
        self.assertEqual(self.run_in("kill -USR1 $$; echo after").texts(), ["usr1", "after"])

    def test_an_interrupt_keeps_state_and_session(self):
        sock, got = self.open_stream(f"/session/{self.session}/run",
                                     {"command": "v=kept; echo ready; sleep 60; echo no"})
        while b"ready" not in got:
            got += sock.recv(4096)
        self.assertEqual(self.a.execd("DELETE", f"/command?id={self.session}").status, 200)
        while b"0\r\n\r\n" not in got:
            got += sock.recv(4096)
        self.assertIn(b'"type":"error"', got)
        self.assertNotIn(b"declare", got)
        self.assertEqual(self.run_in("echo $v").texts(), ["kept"])
        self.refuses(500, "RUNTIME_ERROR", "DELETE", f"/command?id={self.session}")

    def interrupted(self, command, said=b"ready"):
        """Run this, interrupt it as soon as it has said that; all that came."""
        sock, got = self.open_stream(f"/session/{self.session}/run", {"command": command})
        while said not in got:
            got += sock.recv(4096)
        response = self.a.execd("DELETE", f"/command?id={self.session}")
        self.assertIn(response.status, (200, 500), response.body)  # 500: it has just ended
        while b"0\r\n\r\n" not in got:
            got += sock.recv(4096)
        sock.close()
        return got

    def test_interrupts_between_the_programs_of_a_loop_keep_the_state(self):
        for i in range(50):
            loop = ("while :; do /bin/true; done", "sleep 60; echo no")[i % 2]
            self.assertIn(b'"type":"error"', self.interrupted(f"v={i}; echo ready; {loop}"))
            self.assertEqual(self.run_in("echo $v").texts(), [f"{i}"])

    def test_an_interrupt_that_is_not_heard_at_first_keeps_the_state(self):
        deaf = ("import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True);"
                "time.sleep(0.5); signal.signal(15, signal.SIG_DFL); time.sleep(60)")
        got = self.interrupted(f"v=kept; python3 -c \"{deaf}\"; echo no")
        self.assertIn(b"exit status 143", got)
        self.assertEqual(self.run_in("echo $v").texts(), ["kept"])

    def test_an_interrupt_while_the_state_is_written_does_not_cut_it_off(self):
        self.run_in("big=$(head -c 300000 /dev/zero | tr '\\0' y); trap 'echo usr1' USR1")
        for i in range(30):
            self.interrupted(f"v={i}; echo ready")
            self.assertEqual(self.run_in("echo $v ${#big}").texts(), [f"{i} 300000"])
        self.assertEqual(self.run_in("kill -USR1 $$; type -t __sp_traps").texts(), ["usr1"])

    def test_runs_wait_for_each_other(self):
        results = []

        def run(number):
            results.extend(self.run_in(f"n=$((n + 1)); echo $n; sleep 0.05").texts())

        threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results, key=int), [str(i) for i in range(1, 9)])

    def test_how_many_may_wait(self):
        path = f"/session/{self.session}/run"
        sock, _ = self.open_stream(path, {"command": "sleep 60"})
        body = b'{"command":"true"}'
        for _ in range(16):
            self.send(self.connect(), "POST", self.a.root + path,
                      {**self.a.headers, "Content-Length": len(body)}, body)
        time.sleep(0.3)
        response = self.refuses(500, "RUNTIME_ERROR", "POST", path, {"command": "true"})
        self.assertEqual(response.json["message"], "session is busy")
        sock.close()

    def test_a_client_that_leaves_ends_its_run(self):
        sock, got = self.open_stream(f"/session/{self.session}/run", {"command": "sleep 61"})
        sock.close()
        start = time.monotonic()
        self.assertEqual(self.run_in("echo next").texts(), ["next"])
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)
        t.wait_until(lambda: self.command("pgrep -c sleep").texts() == ["0"], 5, "its end")

    def test_delete_ends_what_runs(self):
        sock, got = self.open_stream(f"/session/{self.session}/run", {"command": "sleep 61"})
        self.assertEqual(self.a.execd("DELETE", f"/session/{self.session}").status, 200)
        while b"0\r\n\r\n" not in got:
            got += sock.recv(4096)
        self.assertIn(b"the session was deleted", got)
        t.wait_until(lambda: self.command("pgrep -c sleep").texts() == ["0"], 5, "its end")

    def test_how_many_there_may_be(self):
        for _ in range(31):
            self.new_session()
        response = self.a.execd("POST", "/session")
        self.assertEqual(response.status, 429)
        self.assertEqual(self.a.execd("DELETE", f"/session/{self.session}").status, 200)
        self.new_session()

    @t.limit(400)
    def test_a_thousand_runs_leave_nothing(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=20)
        self.addCleanup(connection.close)

        def run(command):
            connection.request("POST", f"{self.a.root}/session/{self.session}/run",
                               json.dumps({"command": command}), self.a.headers)
            return Events(connection.getresponse().read()).texts()

        run("n=0")
        self.daemon.wait_settled()
        fds, rss = t.held_count(self.daemon.pid), t.rss_kib(self.daemon.pid)
        for i in range(1, 1001):
            self.assertEqual(run("n=$((n + 1)); echo $n"), [str(i)])
        t.wait_until(lambda: t.held_count(self.daemon.pid) <= fds, 5, "no more descriptors than before")
        self.assert_grown_less(rss, 2048)
        self.assertEqual(self.command("ls /proc | grep -c '^[0-9]'").texts()[0] < "9", True)


class PosixShell(CommandCase):
    """A root without bash."""

    pools = t.merge(ExecdCase.pools, {"default": {"max_idle": 1}})

    def setUp(self):
        super().setUp()
        self.a.execd("POST", "/command", {"command": "true"})

    def hide_bash(self):
        # PATH is the exec's: a place where only some programs are.
        self.assertEqual(self.command(
            "mkdir -p /tmp/bin; for p in sh cat sleep ls sed; do ln -s $(command -v $p) /tmp/bin/$p; done"
        ).code, 0)

    def test_commands_run_in_sh(self):
        self.hide_bash()
        events = self.command("echo $0 ${BASH_VERSION-none}", envs={"PATH": "/tmp/bin"})
        self.assertEqual(events.texts(), ["sh none"])
        text = "echo begin; : '" + "x" * 300_000 + "'; echo end"
        self.assertEqual(self.command(text, envs={"PATH": "/tmp/bin"}).texts(), ["begin", "end"])

    def test_sessions_run_in_sh(self):
        self.hide_bash()
        self.assertEqual(self.command("echo $0", envs={"PATH": "/tmp/bin"}).texts(), ["sh"])
        session = self.a.execd("POST", "/session").json["session_id"]

        def run(command):
            return self.stream(f"/session/{session}/run", {"command": command})

        run("export shown='it''s'; plain=\"a  b\"; cd /var; umask 077")
        self.assertEqual(run("echo $shown \"$plain\" $PWD; umask; echo $0").texts(),
                         ["its a  b /var", "0077", "sh"])
        self.assertEqual(run("plain=2; exit 4").code, 4)
        self.assertEqual(run("echo $plain; cat\necho 'open").texts()[0], "2")
        self.assertEqual(run("exec >/tmp/o; echo x").texts(), [])
        self.assertEqual(run("echo back $plain").texts(), ["back 2"])


class Code(CommandCase):
    def code(self, code, **context):
        return self.stream("/code", {"code": code, "context": context or {"language": "python"}})

    def new_context(self, language="python", **more):
        response = self.a.execd("POST", "/code/context", {"language": language, **more})
        self.assertEqual(response.status, 200, response.body)
        return response.json["id"]

    def contexts(self, query=""):
        response = self.a.execd("GET", "/code/contexts" + query)
        self.assertEqual(response.status, 200, response.body)
        return response.json

    def test_a_054_result_and_state(self):
        events = self.code("x = 2\nx + 2")
        self.assertEqual(events.types[0], "init")
        self.assertEqual(events.types[-1], "execution_complete")
        self.assertEqual([e["results"] for e in events.of("result")], [{"text": "4"}])
        self.assertEqual([e["execution_count"] for e in events.of("execution_count")], [1])
        self.assertEqual(self.code("print(x)\nprint('y', end='')").texts(), ["2", "y"])
        self.assertRegex(events.id, "^[0-9a-f]{32}$")

    def test_a_054_error(self):
        events = self.code("def f():\n    return undefined_name\nprint('before')\nf()")
        self.assertEqual(events.texts(), ["before"])
        self.assertEqual(events.error["ename"], "NameError")
        self.assertIn("undefined_name", events.error["evalue"])
        self.assertEqual(events.error["traceback"][0], "Traceback (most recent call last):")
        self.assertIn("return undefined_name", "\n".join(events.error["traceback"]))
        self.assertEqual(events.code, None)
        self.assertEqual(self.code("1 +").error["ename"], "SyntaxError")
        self.assertEqual(self.code("1/0").error["evalue"], "division by zero")

    def test_outputs(self):
        events = self.code("import sys, os\nprint('out')\nprint('err', file=sys.stderr)\n"
                           "os.system('echo child')\nos.write(2, b'raw\\xff\\n')\n'last'")
        self.assertEqual(events.texts(), ["out", "child"])
        self.assertEqual(events.texts("stderr"), ["err", "raw\ufffd"])
        self.assertEqual(events.of("result")[0]["results"], {"text": "'last'"})
        self.assertLess(events.types.index("stdout"), events.types.index("result"))

    def test_large_output(self):
        events = self.code("print('x' * 3_000_000)\nprint('end')")
        self.assertEqual("".join(events.texts()), "x" * 3_000_000 + "end")

    def test_results(self):
        self.assertEqual(self.code("None").of("result"), [])
        self.assertEqual(self.code("7;").of("result"), [])
        events = self.code("class H:\n  def _repr_html_(self): return '<b>'\n  def __repr__(self): return 'H'\nH()")
        self.assertEqual(events.of("result")[0]["results"], {"text": "H", "text/html": "<b>"})
        events = self.code("display(1, 'two')\n3")
        self.assertEqual([e["results"]["text"] for e in events.of("result")], ["1", "'two'", "3"])
        self.assertEqual(len(self.code("'y' * 5_000_000").of("result")[0]["results"]["text"]), 512 * 1024)
        self.assertEqual(self.code("import asyncio\nawait asyncio.sleep(0, 'waited')"
                                   ).of("result")[0]["results"], {"text": "'waited'"})

    def test_stdin_is_empty(self):
        self.assertEqual(self.code("input()").error["ename"], "EOFError")
        self.assertEqual(self.code("import os\nos.read(0, 1)").of("result")[0]["results"],
                         {"text": "b''"})
        self.assertEqual(self.code("import os\nsorted(os.listdir('/proc/self/fd'))[:3]\n"
                                   "os.system('ls /proc/self/fd | xargs echo')").texts(), ["0 1 2 3"])

    def test_a_052_contexts(self):
        one, two = self.new_context(), self.new_context()
        shell = self.new_context("bash")
        self.assertEqual(self.contexts(), [{"id": one, "language": "python"},
                                           {"id": two, "language": "python"},
                                           {"id": shell, "language": "bash"}])
        self.assertEqual([c["id"] for c in self.contexts("?language=python")], [one, two])
        self.assertEqual(self.contexts("?language=java"), [])
        self.assertEqual(self.a.execd("GET", f"/code/contexts/{one}").json,
                         {"id": one, "language": "python"})
        self.assertEqual(self.a.execd("DELETE", f"/code/contexts/{one}").status, 200)
        self.refuses(404, "CONTEXT_NOT_FOUND", "GET", f"/code/contexts/{one}")
        self.refuses(404, "CONTEXT_NOT_FOUND", "DELETE", f"/code/contexts/{one}")
        self.refuses(400, "MISSING_QUERY", "DELETE", "/code/contexts")
        self.assertEqual(self.a.execd("DELETE", "/code/contexts?language=python").status, 200)
        self.assertEqual(self.contexts(), [{"id": shell, "language": "bash"}])
        self.assertEqual(self.a.execd("DELETE", "/code/contexts?language=bash").status, 200)
        self.assertEqual(self.contexts(), [])
        t.wait_until(lambda: self.command("pgrep -c python").texts() == ["0"], 5, "their ends")

    def test_a_053_there_is_no_java(self):
        for path, body in (("/code/context", {"language": "java"}),
                           ("/code", {"code": "1", "context": {"language": "java"}})):
            response = self.refuses(500, "RUNTIME_ERROR", "POST", path, body)
            self.assertIn("there are python and bash", response.json["message"])

    def test_a_055_contexts_share_nothing(self):
        one, two = self.new_context(), self.new_context(cwd="/var")
        self.code("shared = 1", id=one)
        self.assertEqual(self.code("shared", id=two).error["ename"], "NameError")
        self.assertEqual(self.code("shared", id=one).of("result")[0]["results"], {"text": "1"})
        self.assertEqual(self.code("import os; os.getcwd()", id=two).of("result")[0]["results"],
                         {"text": "'/var'"})

    def test_contexts_that_cannot_be(self):
        self.refuses(500, "RUNTIME_ERROR", "POST", "/code/context", {"language": "cobol"})
        self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/code/context",
                     {"language": "python", "cwd": "/nowhere"})
        self.refuses(500, "RUNTIME_ERROR", "POST", "/code",
                     {"code": "x", "context": {"language": "java"}})
        self.refuses(500, "RUNTIME_ERROR", "POST", "/code", {"code": "x", "context": {"id": UNKNOWN}})
        for raw in (b"", b"{}", b'{"code":""}', b'{"code":"x","context":7}'):
            self.refuses(400, "INVALID_REQUEST_BODY", "POST", "/code", raw=raw)
        for _ in range(16):
            last = self.new_context()
        self.assertEqual(self.a.execd("POST", "/code/context", {"language": "python"}).status, 429)
        self.assertEqual(self.code("1", id=last).of("result")[0]["results"], {"text": "1"})

    def test_a_056_languages_side_by_side(self):
        results = {}

        def run(name, code, **context):
            start = time.monotonic()
            results[name] = self.code(code, **context).texts(), time.monotonic() - start

        threads = [threading.Thread(target=run, args=a, kwargs=k) for a, k in (
            (("python", "import time; time.sleep(1); print('py')"), {"language": "python"}),
            (("bash", "sleep 1; echo sh"), {"language": "bash"}),
            (("command", "sleep 1; echo cmd"), {"language": ""}))]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)
        self.assertEqual({name: text for name, (text, _) in results.items()},
                         {"python": ["py"], "bash": ["sh"], "command": ["cmd"]})

    def test_a_056_interrupt(self):
        context = self.new_context()
        for code in ("import time\nkept = 1\ntime.sleep(60)", "while True: pass",
                     "import subprocess; subprocess.run(['sleep', '60'])"):
            sock, got = self.open_stream("/code", {"code": code, "context": {"id": context}})
            self.assertEqual(self.init_id(got), context)
            start = time.monotonic()
            self.assertEqual(self.a.execd("DELETE", f"/code?id={context}").status, 200)
            while b"0\r\n\r\n" not in got:
                got += sock.recv(4096)
            self.assertLess(time.monotonic() - start, 3 * t.SLOW_FACTOR)
            self.assertIn(b"KeyboardInterrupt", got)
            sock.close()
        self.refuses(500, "RUNTIME_ERROR", "DELETE", f"/code?id={context}")
        self.refuses(500, "RUNTIME_ERROR", "DELETE", f"/code?id={UNKNOWN}")
        self.refuses(400, "MISSING_QUERY", "DELETE", "/code")
        self.assertEqual(self.code("1 + 1", id=context).of("result")[0]["results"], {"text": "2"})

    def test_interrupts_at_any_time_hit_only_their_run(self):
        context = self.new_context()
        for i in range(30):
            sock, got = self.open_stream("/code", {"code": "import time; time.sleep(30)",
                                                   "context": {"id": context}})
            time.sleep(i * 0.0003)
            self.assertEqual(self.a.execd("DELETE", f"/code?id={context}").status, 200)
            while b"0\r\n\r\n" not in got:
                got += sock.recv(4096)
            sock.close()
            self.assertEqual(self.code(f"{i}", id=context).of("result")[0]["results"],
                             {"text": str(i)})

    def test_busy(self):
        context = self.new_context()
        sock, _ = self.open_stream("/code", {"code": "import time; time.sleep(60)",
                                             "context": {"id": context}})
        response = self.refuses(500, "RUNTIME_ERROR", "POST", "/code",
                                {"code": "1", "context": {"id": context}})
        self.assertEqual(response.json["message"], "session is busy")
        sock.close()  # the client leaves: that interrupts it
        def free():
            response = self.a.execd("POST", "/code", {"code": "5", "context": {"id": context}})
            return response.status == 200 and Events(response.body)
        self.assertEqual(t.wait_until(free, 5, "the end of its run").of("result")[0]["results"],
                         {"text": "5"})

    def test_an_interpreter_that_ends(self):
        context = self.new_context()
        events = self.code("import os; os._exit(3)", id=context)
        self.assertEqual(events.error["ename"], "KernelDied")
        self.assertIn("exit status 3", events.error["evalue"])
        self.refuses(404, "CONTEXT_NOT_FOUND", "GET", f"/code/contexts/{context}")
        self.assertEqual(self.code("import os, signal; os.kill(os.getpid(), 9)").error["ename"],
                         "KernelDied")
        self.assertEqual(self.code("'again'").of("result")[0]["results"], {"text": "'again'"})
        events = self.code("import sys; sys.exit(4)")
        self.assertEqual((events.error["ename"], events.error["evalue"]), ("SystemExit", "4"))

    def test_a_fork_that_comes_back(self):
        events = self.code("import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')\n"
                           "pid and os.waitpid(pid, 0) and None")
        self.assertEqual(sorted(events.texts()), ["child", "parent"])
        self.assertEqual(self.code("'one'").of("result")[0]["results"], {"text": "'one'"})

    def test_output_between_runs_is_nobodys(self):
        self.code("import threading, time\n"
                  "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()")
        time.sleep(0.5)
        self.assertEqual(self.code("print('mine')").texts(), ["mine"])

    def test_forged_frames_end_the_context_and_nothing_else(self):
        for frame in ("b'z\\0\\0\\0\\0'", "b'o\\xff\\xff\\xff\\x7f'"):
            events = self.code(f"import os\nfor n in range(3, 20):\n try: os.write(n, {frame})\n"
                               " except OSError: pass\nimport time; time.sleep(5)")
            self.assertEqual(events.error["ename"], "KernelError", frame)
        events = self.code("import os\nfor n in range(3, 20):\n try: os.write(n, b'r\\x0b\\0\\0\\0\"k\\0v\\0t\\0v\\0e\\0')\n"
                           " except OSError: pass")
        self.assertEqual(events.types[-1], "execution_complete")
        self.assertEqual(self.command("echo fine").texts(), ["fine"])

    def test_results_wait_for_their_client(self):
        """A client that does not read holds one queue here, whatever the code shows it: by our own
        words and by frames that it wrote itself."""
        show = "text = 'x' * 400000\nwhile True: display(text)"
        forge = ("import os, struct\nframe = {}\nwhile True:\n for n in range(3, 20):\n"
                 "  try: os.write(n, frame)\n  except OSError: pass")
        results = forge.format(
            "b'r' + struct.pack('<I', 400005) + b'text\\0' + b'x' * 399999 + b'\\0'")
        counts = forge.format("(b'c' + struct.pack('<I', 1) + b'7') * 60000")
        for code in (show, results, counts):
            with self.subTest(code):
                context = self.new_context()
                before = t.rss_kib(self.daemon.pid)
                sock, _ = self.open_stream("/code", {"code": code, "context": {"id": context}})
                time.sleep(4)
                self.assert_grown_less(before, 24 * 1024)
                self.assertTrue(self.command("echo fine").texts(), "the others go on")
                sock.close()  # which interrupts it, and it goes on to be read
                self.a.execd("DELETE", f"/code/contexts/{context}")

    def test_code_without_a_language_is_a_command(self):
        for body in ({"code": "echo $0"}, {"code": "echo $0", "context": {"language": "command"}}):
            events = self.stream("/code", body)
            self.assertEqual(events.texts(), ["bash"])
            self.assertEqual(self.status(events.id)["content"], "echo $0")

    def test_shell_code_keeps_its_state(self):
        self.code("x=5; cd /var", language="bash")
        self.assertEqual(self.code("echo $x $PWD", language="bash").texts(), ["5 /var"])
        self.assertEqual(self.code("exit 9", language="bash").code, 9)
        context = self.new_context("bash", cwd="/tmp")
        self.assertEqual(self.code("echo ${x-none} $PWD", id=context).texts(), ["none /tmp"])
        self.refuses(500, "RUNTIME_ERROR", "POST", f"/session/{context}/run", {"command": "x"})
        sock, _ = self.open_stream("/code", {"code": "sleep 60", "context": {"id": context}})
        response = self.refuses(500, "RUNTIME_ERROR", "POST", "/code",
                                {"code": "true", "context": {"id": context}})
        self.assertEqual(response.json["message"], "session is busy")

    def test_large_code(self):
        events = self.code("s = '" + "z" * 900_000 + "'\nlen(s)")
        self.assertEqual(events.of("result")[0]["results"], {"text": "900000"})

    def test_a_client_that_does_not_read(self):
        before = t.rss_kib(self.daemon.pid)
        sock, _ = self.open_stream("/code", {"code": "while True: print('some text that goes on')",
                                             "context": {"language": "python"}})
        time.sleep(1)
        self.assert_grown_less(before, 8 * 1024)
        self.assertEqual(self.command("echo quick").texts(), ["quick"])
        sock.close()
        t.wait_until(lambda: self.a.execd("POST", "/code", {
            "code": "1", "context": {"language": "python"}}).status == 200, 5, "its interrupt")


class Metrics(CommandCase):
    def check(self, usage):
        self.assertEqual(list(usage), ["cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib",
                                       "timestamp"])
        self.assertGreater(usage["cpu_count"], 0)
        self.assertTrue(0 <= usage["cpu_used_pct"] <= 100)
        self.assertEqual(usage["mem_total_mib"], 256)
        self.assertTrue(0 < usage["mem_used_mib"] <= 256)
        self.assertLess(abs(usage["timestamp"] - time.time() * 1000), 60_000)

    def test_metrics(self):
        start = time.monotonic()
        response = self.a.execd("GET", "/metrics")
        self.assertLess(time.monotonic() - start, 0.5 * t.SLOW_FACTOR)
        self.check(response.json)

    def test_share_of_the_processor(self):
        self.a.execd("GET", "/metrics")
        self.command("timeout 1 sh -c 'while :; do :; done'")
        self.assertGreater(self.a.execd("GET", "/metrics").json["cpu_used_pct"], 5)

    def test_watch(self):
        sock = self.connect()
        self.send(sock, "GET", self.a.root + "/metrics/watch", self.a.headers)
        got = b""
        start = time.monotonic()
        while got.count(b'"timestamp"') < 2:
            got += sock.recv(4096)
        self.assertTrue(1.5 < time.monotonic() - start < 4 * t.SLOW_FACTOR)
        self.assertIn(b"text/event-stream", got)
        lines = [line for line in got.split(b"\n") if line.startswith(b"{")]
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.check(json.loads(line))
        self.assertNotIn(b"}\n\n", got)

    def test_head_of_a_stream(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=20)
        self.addCleanup(connection.close)
        for path in ("/metrics/watch", "/metrics", "/metrics/watch"):
            connection.request("HEAD", self.a.root + path, headers=self.a.headers)
            response = connection.getresponse()
            self.assertEqual((response.status, response.read()), (200, b""))
            # Whatever came behind the head would be the beginning of the next answer.
            connection.sock.setblocking(False)
            time.sleep(0.05)
            with self.assertRaises(BlockingIOError):
                connection.sock.recv(100)
            connection.sock.setblocking(True)

    def test_watch_ends_with_the_sandbox(self):
        box = self.box()
        sock = self.connect()
        self.send(sock, "GET", box.root + "/metrics/watch", box.headers)
        got = sock.recv(4096)
        self.ask("DELETE", f"/v1/sandboxes/{box.uuid}")
        while b"0\r\n\r\n" not in got:
            piece = sock.recv(4096)
            self.assertTrue(piece, got)
            got += piece


class Stop(CommandCase):
    def test_a_waiting_interpreter_does_not_delay_the_end_of_the_daemon(self):
        response = self.a.execd("POST", "/code/context", {"language": "python"})
        self.assertEqual(response.status, 200)
        sock = self.connect()
        self.send(sock, "GET", self.a.root + "/metrics/watch", self.a.headers)
        sock.recv(1000)
        start = time.monotonic()
        self.daemon.stop()
        self.assertLess(time.monotonic() - start, 5 * t.SLOW_FACTOR)
        self.daemon.start()


if __name__ == "__main__":
    main()
