"""What sessions live through, whatever runs in them: shell sessions, contexts of shell and of Python
code, isolated sessions. Each case is told in deploy/docs/opensandbox.md.

After every case the session must still be there, with what the runs before had left in it.
"""

import contextlib
import http.client
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from execd_case import Events, ExecdCase  # noqa: E402
from sandpool_test import main  # noqa: E402

MIB = 1 << 20
LONG_LINE = 64 * MIB
RUNS = 1000 if t.SLOW_FACTOR == 1 else 200
# The daemon looks once a second for clients whose end came with their last bytes. What a look of ours
# leaves under way is over by the next one.
SWEEP_S = 1.2
SPARES = 2  # cgroups for single execs that a sandbox has ready, at most; 0 where there are none


def descriptors_of_all(pids):
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            count += t.fd_count(pid)
    return count


class Survival(ExecdCase):
    """Of one kind of session; not run by itself."""

    residents = 0  # programs that wait for its runs, each in a cgroup

    def setUp(self):
        super().setUp()
        self.sandbox = self.box()
        self.session = self.new_session()
        self.leave_mark()

    def post(self, path, body, timeout=60):
        response = self.sandbox.execd("POST", path, body, timeout=timeout)
        self.assertEqual(response.status, 200, response.body)
        return Events(response.body)

    def outside(self, command):
        return self.post("/command", {"command": command}).texts()

    def programs(self, name):
        """How many of it run in the sandbox."""
        return int(self.outside(f"pgrep -c -x {name}")[0])

    def wait_for_end(self, name):
        t.wait_until(lambda: self.programs(name) == 0, 10, f"the end of every {name}")

    def run_until(self, said, text):
        """A run that goes on, up to this output: its socket, and what came."""
        sock = self.connect(60)
        path, body = self.request(text)
        data = json.dumps(body).encode()
        self.send(sock, "POST", self.sandbox.root + path,
                  {**self.sandbox.headers, "Content-Length": len(data)}, data)
        got = b""
        while said not in got:
            piece = sock.recv(65536)
            self.assertTrue(piece, got)
            got += piece
        return sock, got

    def stop(self, text, said=b"ready"):
        """Interrupt it in the middle, see it end; all that was sent."""
        sock, got = self.run_until(said, text)
        self.interrupt()
        return got + self.rest_of(sock)

    def rest_of(self, sock):
        got = b""
        while b"0\r\n\r\n" not in got:
            piece = sock.recv(65536)
            self.assertTrue(piece, got)
            got += piece
        sock.close()
        return got

    def run_code(self, text, **more):
        path, body = self.request(text, **more)
        return self.post(path, body, timeout=120)

    def survives(self, text, **more):
        events = self.run_code(text, **more)
        self.is_as_it_was(text)
        return events

    def possessions(self, init):
        """What could leak, by name."""
        below = t.descendants_of(init)
        cgroups = [top for directory in t.cgroups_of(self.daemon.instance)
                   for top, _directories, _files in os.walk(directory)]
        return {
            "descriptors of the daemon": t.fd_count(self.daemon.pid),
            **{f"the daemon's {kind}": count for kind, count in t.fd_kinds(self.daemon.pid).items()},
            "descriptors of the launcher": t.fd_count(self.daemon.launcher_pid),
            "descriptors of init": t.fd_count(init),
            "descriptors of what lives in it": descriptors_of_all(pid for pid, _, _ in below),
            "processes": len(below),
            "zombies": sum(state == "Z" for _, _, state in below),
            "cgroups": len(cgroups),
            "files": len(self.outside("find /tmp /dev/shm -type f")),
        }

    def settled_possessions(self, init):
        """When nothing is under way any more, and with both spare cgroups in hand: one whose last
        process is not quite gone when its run has ended is given back, and until the next run one is
        enough."""
        before = {}

        def same():
            spares = t.spare_cgroups(self.daemon.pid)
            last = dict(before)
            before.update(self.possessions(init))
            return spares in (0, SPARES + self.residents) and last == before
        t.wait_until(same, 20, "nothing is under way", SWEEP_S)
        return before

    @t.limit(400)
    def test_a_thousand_runs_leave_nothing(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp,
                                                timeout=30 * t.SLOW_FACTOR)
        self.addCleanup(connection.close)
        path, _ = self.request("")

        def run(text):
            connection.request("POST", self.sandbox.root + path,
                               json.dumps(self.request(text)[1]), self.sandbox.headers)
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            return Events(response.read()).texts()

        run(self.count_from)
        for _ in range(20):  # allocators, tables, the second spare cgroup
            run("1")
        self.daemon.wait_settled()
        init = self.sandbox.init_pid()
        before = self.settled_possessions(init)
        memory = [t.rss_kib(pid) for pid in (self.daemon.pid, init)]
        for number in range(1, RUNS + 1):
            self.assertEqual(run(self.count_on), [str(number)])

        def grown():
            time.sleep(SWEEP_S)
            now = self.possessions(init)
            more = {name: (before.get(name, 0), count) for name, count in now.items()
                    if count > before.get(name, 0)}
            # One kind may take the place of another, as long as all of them are no more.
            return more if any(not name.startswith("the daemon's") for name in more) else {}
        end = time.monotonic() + 10 * t.SLOW_FACTOR  # the kernel takes a moment to remove a cgroup
        left = grown()
        while left and time.monotonic() < end:
            left = grown()
        self.assertEqual(left, {})
        if t.SLOW_FACTOR == 1:  # a sanitizer keeps what was freed
            for pid, kib in zip((self.daemon.pid, init), memory):
                self.assertLess(t.rss_kib(pid) - kib, 2048)


# ---- shells ---------------------------------------------------------------------------------


class ShellSurvival(Survival):
    """Not run by itself."""

    count_from = "n=0"
    count_on = "n=$((n + 1)); echo $n"
    spoil = "kept=lost; cd /; "

    def leave_mark(self):
        self.assertEqual(self.run_code("kept='as it was'; cd /var").code, 0)

    def is_as_it_was(self, after):
        self.assertEqual(self.run_code("echo $kept; pwd").texts(), ["as it was", "/var"], after)

    def test_time_limits(self):
        """A run that is killed for its time leaves the session as it found it, and nothing of its own."""
        fifo = "[ -p /tmp/fifo ] || mkfifo /tmp/fifo; "
        for text in ("sleep 60", "exec sleep 60", "sleep 60 & wait", "setsid sleep 60 & sleep 60",
                     "trap '' TERM INT HUP; sleep 60; sleep 60", "exec >/dev/null; sleep 60",
                     "read line < /tmp/fifo", "kill -STOP $$", "while :; do :; done",
                     "sleep 60 | cat", "cat /tmp/fifo", "exec 0</tmp/fifo"):
            start = time.monotonic()
            self.limited(fifo + self.spoil + text)
            self.assertLess(time.monotonic() - start, 5 * t.SLOW_FACTOR, text)
            self.is_as_it_was(text)
        if self.spoil:
            self.wait_for_end("sleep")

    def test_commands_that_read_stdin(self):
        self.assertEqual(self.survives("cat; echo $?").texts(), ["0"])
        self.assertEqual(self.survives("read x; echo $?").texts(), ["1"])
        self.assertEqual(self.survives("head -c 10 | wc -c").texts(), ["0"])
        self.assertEqual(self.survives("python3 -c 'import sys; print(repr(sys.stdin.read()))'").texts(),
                         ["''"])
        self.assertEqual(self.survives("bash -i </dev/null >/dev/null 2>&1; echo on").texts(), ["on"])
        self.assertEqual(self.survives("while read l; do echo $l; done <<< 'a'; exec <&-; cat").texts()[0],
                         "a")

    def test_redirections_by_exec(self):
        self.assertEqual(self.survives("exec >/tmp/out; echo there").texts(), [])
        self.assertEqual(self.survives("exec >/tmp/err 2>&1; ls /nowhere").texts(), [])
        self.assertEqual(self.survives("cat /tmp/out").texts(), ["there"])
        for text in ("exec >&- 2>&-; echo lost", "exec <&- >&- 2>&-; ls", "exec 2>/dev/null; nothing",
                     "exec >/dev/full; echo x", "exec > >(cat >/dev/null); echo x",
                     "for n in $(seq 3 260); do eval \"exec $n>&-\"; done",
                     "exec 3>/tmp/three; exec 1>&3; echo x", "exec </dev/zero"):
            self.survives(text)

    def test_exits(self):
        for text, code in (("exit 7", 7), ("exit", 0), ("false; exit", 1), ("f() { exit 3; }; f", 3),
                           ("(exit 4)", 4), ("return 5", 2), ("exit 256", 0), ("exit -1", 255),
                           ("exec true", 0), ("exec false", 1), ("set -e; false; echo no", 1),
                           ("trap 'exit 9' EXIT; true", 9), ("exec /not/there", 127),
                           ("exit 6; echo 'open", 2)):
            with self.subTest(text):
                self.assertEqual(self.survives(f"set +e; trap - EXIT; {text}").code, code, text)

    def test_ends_by_force(self):
        for text in ("kill -9 $$", "kill -SEGV $$; sleep 5", "kill -9 0; sleep 5", "kill $$; sleep 5"):
            with self.subTest(text):
                events = self.survives(f"kept='as it was'; {text}")
                self.assertEqual(events.types[-1], "error")

    def test_text_that_is_not_whole(self):
        for text in ("echo 'open", 'echo "open', "echo $(open", "echo ${open", "echo `open",
                     "if true; then", "while :; do", "case x in", "f() {", "((", "[[ x", "|", ")", "}",
                     "&& x", "echo $((1 +", "cat <<", "done", "\\"):
            with self.subTest(text):
                events = self.survives(text)
                if text != "\\":
                    self.assertNotEqual(events.code, 0)

    def test_here_documents(self):
        self.assertEqual(self.survives("cat <<'end'\na $b\n\nend\necho after").texts(),
                         ["a $b", "\n", "after"])
        self.assertEqual(self.survives("cat <<-end\n\tin\n\tend\ncat <<one; cat <<two\n1\none\n2\ntwo"
                                       ).texts(), ["in", "1", "2"])
        self.assertIn("never ended", self.survives("cat <<end\nnever ended").texts())
        self.assertIn("x'", self.survives("cat <<'e'\nx'\n").texts())
        self.assertEqual(self.survives("cat <<e\n$(cat <<f\ninner\nf\n)\ne").texts(), ["inner"])

    def test_output_of_the_background(self):
        self.assertEqual(self.survives(
            "(sleep 0.2; echo late; sleep 0.1; echo alive >/tmp/late) & echo now").texts(), ["now"])
        self.assertEqual(self.survives("sleep 0.6; echo mine; cat /tmp/late").texts(),
                         ["mine", "alive"])
        start = time.monotonic()
        self.assertEqual(self.survives("sleep 60 & sleep 60 & disown -a; echo now").texts(), ["now"])
        self.survives("nohup yes & sleep 0.1")
        self.assertLess(time.monotonic() - start, 20 * t.SLOW_FACTOR)

    @t.limit(300)
    def test_long_lines(self):
        events = self.survives(f"head -c {LONG_LINE} /dev/zero | tr '\\0' x; echo; echo next")
        texts = events.texts()
        self.assertEqual((sum(map(len, texts[:-1])), texts[-1]), (LONG_LINE, "next"))
        self.assertEqual(events.code, 0)

    def test_bytes_that_are_no_text(self):
        self.assertEqual(self.survives(r"printf '\xff\xfe\n\xc3\x28\n\xed\xa0\x80|\xf4\x90\x80\x80|\n'"
                                       ).texts()[:2], ["\ufffd\ufffd", "\ufffd("])
        self.assertEqual(self.survives(r"printf '\0a\0\n\x1b[31mred\x07\n'").texts(),
                         ["\0a\0", "\x1b[31mred\x07"])
        self.survives("head -c 1000000 /dev/urandom")
        self.survives("bytes=$'\\xff\\x80'; export more=$'\\xc3'")

    def test_shells_that_are_no_longer_themselves(self):
        """What a run leaves must not keep the next one from beginning, running and ending."""
        for text in ("PATH=; unset PATH", "IFS=xyz", "set -o posix", "set -n", "set -u", "set -f",
                     "builtin() { :; }; printf() { :; }; echo() { :; }; declare() { :; }",
                     "alias exit=true; shopt -s expand_aliases", "enable -n builtin printf declare",
                     "readonly __sp_text=1 __sp_status=2 2>/dev/null", "trap '' EXIT",
                     "trap 'exit 9' DEBUG",
                     "readonly __sp_text=1", "readonly -f __sp_keep", "set -t", "trap 'exit 8' RETURN ERR",
                     "shopt -s expand_aliases extdebug; alias exec=: unset=: trap=: builtin=: case=:",
                     "eval() { :; }; exec() { :; }; exit() { :; }; trap() { :; }; set() { :; }",
                     "shift() { :; }",
                     "readonly -f declare; builtin() { command builtin \"$@\"; }; return() { :; }",
                     "POSIXLY_CORRECT=1", "__sp_keep() { :; }", "trap 'kill -9 $$' EXIT", "exec 2>&-",
                     "exec() { :; }; unset() { :; }", "ulimit -n 10", "ulimit -f 0", "umask 777",
                     "set -- $(seq 2000)", "shopt -s failglob nullglob extdebug", "LANG=xx LC_ALL=yy",
                     "mkdir -p /tmp/gone; cd /tmp/gone; rmdir /tmp/gone"):
            with self.subTest(text):
                before, self.session = self.session, self.new_session()
                try:
                    self.run_code("v=1")
                    self.run_code(text)
                    events = self.run_code("/usr/bin/printf '%s here\\n' $v; \\command exit 3")
                    self.assertEqual(events.texts()[-1:], ["1 here"])
                    self.assertEqual(events.code, 3)
                finally:
                    self.end_session(self.session)
                    self.session = before
        self.is_as_it_was("all of it")


class ShellSession(ShellSurvival):
    def new_session(self):
        return self.sandbox.execd("POST", "/session").json["session_id"]

    def end_session(self, session):
        self.assertEqual(self.sandbox.execd("DELETE", f"/session/{session}").status, 200)

    def request(self, text, **more):
        return f"/session/{self.session}/run", {"command": text, **more}

    def limited(self, text):
        error = self.run_code(text, timeout=500).error
        self.assertEqual(error["traceback"], ["signal: killed (timeout)"], text)

    def interrupt(self):
        response = self.sandbox.execd("DELETE", f"/command?id={self.session}")
        self.assertEqual(response.status, 200, response.body)

    def test_interrupts(self):
        for text in ("sleep 60", "exec >/dev/null; sleep 60", "read x </tmp/fifo", "kill -STOP $$"):
            got = self.stop(f"[ -p /tmp/fifo ] || mkfifo /tmp/fifo; echo ready; {text}")
            self.assertIn(b'"type":"error"', got)
            self.is_as_it_was(text)
        self.wait_for_end("sleep")


class ShellContext(ShellSurvival):
    def new_session(self):
        response = self.sandbox.execd("POST", "/code/context", {"language": "bash"})
        return response.json["id"]

    def end_session(self, session):
        self.assertEqual(self.sandbox.execd("DELETE", f"/code/contexts/{session}").status, 200)

    def request(self, text):
        return "/code", {"code": text, "context": {"id": self.session}}

    def interrupt(self):
        response = self.sandbox.execd("DELETE", f"/code?id={self.session}")
        self.assertEqual(response.status, 200, response.body)

    spoil = ""  # what an interrupted run has got to is kept, and so is its background

    def limited(self, text):
        """Code has no limit of its own; whoever wants one interrupts."""
        self.assertIn(b'"type":"error"', self.stop(f"echo ready; {text}"), text)


class IsolatedSession(ShellSurvival):
    def new_session(self):
        response = self.sandbox.execd("POST", "/v1/isolated/session",
                                      {"workspace": {"path": "/workspace", "mode": "rw"}})
        self.assertEqual(response.status, 201, response.body)
        return response.json["session_id"]

    def end_session(self, session):
        self.assertEqual(self.sandbox.execd("DELETE", f"/v1/isolated/session/{session}").status, 200)

    def request(self, text, **more):
        return f"/v1/isolated/session/{self.session}/run", {"code": text, **more}

    def limited(self, text):
        error = self.run_code(text, timeout_seconds=1).error
        self.assertEqual(error["evalue"], "context deadline exceeded", text)

    def test_all_are_killed(self):
        """Everything in a session may kill everything else in it."""
        events = self.survives("sleep 60 & kill -9 -1; echo here")
        self.assertIn(events.types[-1], ("error", "execution_complete"))


# ---- Python ---------------------------------------------------------------------------------


class PythonContext(Survival):
    residents = 1
    count_from = "n = 0"
    count_on = "n += 1\nprint(n)"

    def new_session(self):
        response = self.sandbox.execd("POST", "/code/context", {"language": "python"})
        self.assertEqual(response.status, 200, response.body)
        return response.json["id"]

    def request(self, text):
        return "/code", {"code": text, "context": {"id": self.session}}

    def interrupt(self):
        response = self.sandbox.execd("DELETE", f"/code?id={self.session}")
        self.assertEqual(response.status, 200, response.body)

    def leave_mark(self):
        self.assertEqual(self.run_code("kept = 'as it was'").types[-1], "execution_complete")

    def is_as_it_was(self, after):
        events = self.run_code("import sys\nprint(kept)\nprint('too', file=sys.stderr)")
        self.assertEqual((events.texts(), events.texts("stderr")), (["as it was"], ["too"]), after)

    def refused(self, text, name):
        self.assertEqual(self.survives(text).error["ename"], name, text)

    def test_interrupts(self):
        for text in ("time.sleep(60)", "while True: pass", "os.system('sleep 60')",
                     "sys.stdout = None\ntime.sleep(60)", "open('/tmp/fifo').read()",
                     "try:\n  time.sleep(60)\nfinally:\n  print('undone')"):
            got = self.stop("import os, signal, sys, time\n"
                            "os.path.exists('/tmp/fifo') or os.mkfifo('/tmp/fifo')\n"
                            "print('ready')\n" + text)
            self.assertIn(b"KeyboardInterrupt" if "system" not in text else b"execution", got, text)
            self.is_as_it_was(text)
        self.wait_for_end("sleep")

    def test_interrupts_of_what_stands_still(self):
        sock, _ = self.run_until(b"ready", "import os, signal, time\nprint('ready')\ntime.sleep(0.5)\n"
                                           "os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(60)")
        stopped = "grep -l '^State:.T' /proc/[0-9]*/status 2>/dev/null"
        t.wait_until(lambda: self.outside(stopped), 20, "its stop")
        self.interrupt()
        self.assertIn(b"KeyboardInterrupt", self.rest_of(sock))
        self.is_as_it_was("a stop")

    def test_interrupts_that_code_has_made_its_own(self):
        self.survives("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
        self.assertIn(b"KeyboardInterrupt",
                      self.stop("import time\nprint('ready')\ntime.sleep(60)"))
        self.survives("signal.signal(signal.SIGINT, signal.default_int_handler)")
        self.assertIn(b"KeyboardInterrupt",
                      self.stop("import time\nprint('ready')\ntime.sleep(60)"))
        self.is_as_it_was("handlers")

    def test_code_that_reads_stdin(self):
        self.refused("input()", "EOFError")
        self.assertEqual(self.survives("import sys\nsys.stdin.read()").of("result")[0]["results"],
                         {"text": "''"})
        self.assertEqual(self.survives("import os\nos.system('cat')").texts(), [])
        events = self.survives(
            "import subprocess\nsubprocess.run(['cat'], capture_output=True).stdout")
        self.assertEqual(events.of("result")[0]["results"], {"text": "b''"})
        self.survives("import os\nos.close(0)")
        self.refused("input()", "EOFError")

    def test_redirected_outputs(self):
        for text in ("import sys\nsys.stdout = open('/tmp/out', 'w')\nprint('there')",
                     "import os\nos.dup2(os.open('/tmp/out', os.O_WRONLY | os.O_CREAT), 1)\nprint('there')",
                     "import os\nos.close(1)\nos.close(2)",
                     "import sys\nsys.stdout.close()\nsys.stderr.close()",
                     "import sys\nsys.stdout = sys.stderr = None", "import sys\ndel sys.stdout, sys.stderr",
                     "import sys\nsys.stdout.detach()", "import os, sys\nos.close(1)\nprint('lost')",
                     "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('wrapped')",
                     "import sys\nclass S:\n  def write(self, text): raise RuntimeError\nsys.stdout = S()",
                     "import os\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nprint('x')",
                     "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n  1/0"):
            with self.subTest(text):
                self.survives(text)
        self.assertEqual(self.outside("cat /tmp/out"), ["there"])

    def test_what_is_not_flushed_is_sent(self):
        self.assertEqual(self.survives("import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\n"
                                       "print('wrapped')").texts(), ["wrapped"])
        self.assertEqual(self.survives("print('no end', end='')").texts(), ["no end"])

    def test_exits(self):
        for text, value in (("import sys\nsys.exit(7)", "7"), ("exit()", "None"), ("quit(3)", "3"),
                            ("raise SystemExit", "")):
            events = self.survives(text)
            self.assertEqual((events.error["ename"], events.error["evalue"]), ("SystemExit", value))

    def test_text_that_is_not_whole(self):
        for text in ("'open", '"open', "'''open", "(", "f'{", "if True:", "def f():", "  x = 1\n y = 2",
                     "return", "x = = 1", "\\", "}", "print('a'", "\ufeff\ufeff", "a\fb c"):
            with self.subTest(text):
                events = self.survives(text)
                self.assertIn(events.error["ename"],
                              ("SyntaxError", "IndentationError", "TabError"), text)

    def test_output_of_the_background(self):
        self.assertEqual(self.survives(
            "import subprocess, threading, time\n"
            "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\n"
            "subprocess.Popen(['sh', '-c', 'sleep 0.2; echo late'])\nprint('now')").texts(), ["now"])
        time.sleep(0.5)
        self.assertEqual(self.survives("print('mine')").texts(), ["mine"])
        # Whoever still writes while another run is on has no output but that one's.
        self.run_code("child = subprocess.Popen(['sh', '-c', 'sleep 0.5; echo other'])")
        self.assertEqual(self.run_code("child.wait()\nprint('mine')").texts(), ["other", "mine"])

    @t.limit(300)
    def test_long_lines(self):
        events = self.survives(f"import os\nfor _ in range(64): os.write(1, b'x' * {MIB})\n"
                               "print()\nprint('next')")
        texts = events.texts()
        self.assertEqual((sum(map(len, texts[:-1])), texts[-1]), (LONG_LINE, "next"))

    def test_bytes_that_are_no_text(self):
        self.assertEqual(self.survives(r"import os; os.write(1, b'\xff\xfe\n\xc3(\n')").texts(),
                         ["\ufffd\ufffd", "\ufffd("])
        self.assertEqual(self.survives(r"print('\udcff')").texts(), ["\ufffd"])
        self.refused(r"print('\ud800')", "UnicodeEncodeError")
        self.assertEqual(self.survives(r"'\ud800\0'").of("result")[0]["results"],
                         {"text": r"'\ud800\x00'"})
        self.survives("import os, sys\nsys.stdout.buffer.write(os.urandom(1000000)); None")

    def test_errors_that_cannot_be_told(self):
        self.survives("class E(Exception):\n  def __str__(self): raise SystemExit\nraise E")
        self.survives("class R:\n  def __repr__(self): raise KeyboardInterrupt\nR()")
        self.survives("def f(): f()\nf()")
        self.survives("raise BaseException")
        self.survives("raise ExceptionGroup('many', [ValueError(1), TypeError(2)])")

    def test_interpreters_that_are_no_longer_themselves(self):
        for text in ("import sys; sys.setrecursionlimit(60)", "import sys; sys.settrace(lambda *a: None)",
                     "import os; os.mkdir('/tmp/gone'); os.chdir('/tmp/gone'); os.rmdir('/tmp/gone')",
                     "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))",
                     "import sys; sys.modules.clear()", "import gc; gc.disable()",
                     "__name__ = 'other'; __builtins__ = {}", "import os; os.nice(5)",
                     "globals().clear(); kept = 'as it was'", "import signal; signal.pthread_sigmask(0, {2})",
                     "import threading; threading.stack_size(32768)"):
            with self.subTest(text):
                self.session = self.new_session()
                self.leave_mark()
                self.survives(text)
                self.sandbox.execd("DELETE", f"/code/contexts/{self.session}")

    def test_interpreters_that_end(self):
        """The context is gone and says so; the one that has no name begins anew."""
        for text in ("import os; os._exit(3)", "import os; os.closerange(3, 1000)",
                     "import ctypes; ctypes.string_at(0)", "import os; os.kill(os.getpid(), 9)",
                     "import os; os.execv('/bin/true', ['true'])"):
            with self.subTest(text):
                body = {"code": text, "context": {"language": "python"}}
                events = self.post("/code", body)
                self.assertIn(events.error["ename"], ("KernelDied", "KernelError"), text)
                body["code"] = "print('again')"
                self.assertEqual(self.post("/code", body).texts(), ["again"])
        self.run_code("import os; os._exit(3)")
        response = self.sandbox.execd("POST", "/code", self.request("1")[1])
        self.assertEqual((response.status, response.json["code"]), (500, "RUNTIME_ERROR"))


del Survival, ShellSurvival

if __name__ == "__main__":
    main()
