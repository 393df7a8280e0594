"""sandpool run and exec: streams, exit statuses, signals, files. The command line as users type it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402


class CliCase(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 3}}}

    def setUp(self):
        self.daemon.wait_idle(3)

    def environment(self, **more):
        return {"PATH": "/usr/bin:/bin", "SANDPOOL_SOCKET": self.daemon.socket_path, **more}

    def popen(self, *args, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([str(t.BIN / "sandpool"), *args], env=self.environment(), **kwargs)

    def run_cli(self, *args, input=b"", **kwargs):
        return self.daemon.cli("run", *args, input=input, **kwargs)

    def assertNothingLeased(self):
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 5, "every sandbox is released")


class Streams(CliCase):
    def test_output_and_status_are_the_commands(self):
        done = self.run_cli("--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, b"out\n", b"err\n"))

    def test_the_sandbox_is_gone_afterwards(self):
        self.run_cli("true", check=True)
        self.assertNothingLeased()

    def test_every_byte_passes_in_and_out(self):
        data = bytes(range(256)) * 17
        done = self.run_cli("cat", input=data)
        self.assertEqual((done.returncode, done.stdout), (0, data))

    def test_every_byte_passes_on_stderr(self):
        data = bytes(range(256)) * 17
        done = self.run_cli("--", "sh", "-c", "cat >&2", input=data)
        self.assertEqual((done.stdout, done.stderr), (b"", data))

    def test_much_more_than_every_window_passes_both_ways(self):
        data = os.urandom(24 << 20)
        done = self.run_cli("cat", input=data, timeout=60)
        self.assertEqual(hashlib.sha256(done.stdout).digest(), hashlib.sha256(data).digest())

    def test_stdin_of_dev_null_is_the_end_at_once_b161(self):
        process = self.popen("run", "cat")
        self.assertEqual(process.communicate(timeout=10), (b"", b""))
        self.assertEqual(process.returncode, 0)

    def test_closed_stdin_is_no_stdin(self):
        process = subprocess.run(
            ["/bin/sh", "-c", f'exec "{t.BIN}/sandpool" run cat <&-'],
            env=self.environment(), capture_output=True, timeout=10, check=False)
        self.assertEqual((process.returncode, process.stdout, process.stderr), (0, b"", b""))

    def test_closed_stdout_does_not_hand_the_socket_to_the_command(self):
        process = subprocess.run(
            ["/bin/sh", "-c", f'exec "{t.BIN}/sandpool" run echo x >&-'],
            env=self.environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=10,
            check=False)
        self.assertEqual(process.returncode, 125)
        self.assertIn(b"write to standard output", process.stderr)

    def test_an_open_stdin_that_nobody_writes_does_not_hold_the_end_up(self):
        process = self.popen("run", "true", stdin=subprocess.PIPE)
        self.assertEqual(process.wait(10), 0)
        process.stdin.close()

    def test_much_stdin_for_a_command_that_does_not_read_b162(self):
        with open("/dev/zero", "rb") as zero:
            process = self.popen("run", "sleep", "0.3", stdin=zero)
            self.assertEqual(process.wait(10), 0)

    def test_no_stdin_leaves_the_list_of_a_loop_alone(self):
        script = (f'while read -r word; do "{t.BIN}/sandpool" run -n echo "$word"; done')
        done = subprocess.run(["/bin/sh", "-c", script], env=self.environment(),
                              input=b"a\nb\nc\n", capture_output=True, timeout=20, check=False)
        self.assertEqual(done.stdout, b"a\nb\nc\n")

    def test_sigkill_of_the_client_releases_the_sandbox(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
            script.write("echo up; sleep 1000")
            script.flush()
            for words in (["/bin/sh", "-c", "echo up; sleep 1000"],
                          ["--file", script.name, "/bin/sh"]):
                with self.subTest(words=words):
                    process = self.popen("run", *([] if words[0] == "--file" else ["--"]), *words)
                    self.assertEqual(process.stdout.readline(), b"up\n")
                    process.kill()
                    process.communicate()
                    self.assertNothingLeased()

    def test_a_reader_that_leaves_ends_everything(self):
        process = self.popen("run", "yes")
        process.stdout.read(1000)
        process.stdout.close()
        self.assertEqual(process.wait(10), 128 + signal.SIGPIPE)
        self.assertNothingLeased()

    def test_a_reader_that_pauses_holds_the_command_back_b158(self):
        process = self.popen("run", "--", "sh", "-c", "yes | head -c 20000000; echo done >&2")
        time.sleep(0.5)
        os.set_blocking(process.stderr.fileno(), False)
        self.assertIsNone(process.stderr.read(), "the command must not have finished")
        ticks = t.read_text(f"/proc/{process.pid}/stat").split()
        self.assertLess(int(ticks[13]) + int(ticks[14]), 20, "it waits, it does not spin")
        # Far from the 20 MB that are written; a sanitizer's own part is some MiB.
        self.assertLess(t.rss_kib(process.pid), 14 << 10, "it does not hoard")
        os.set_blocking(process.stderr.fileno(), True)
        self.assertEqual(len(process.stdout.read()), 20000000)
        self.assertEqual(process.stderr.read(), b"done\n")
        self.assertEqual(process.wait(10), 0)

    def test_stdout_keeps_its_flags(self):
        reading, writing = os.pipe()
        process = self.popen("run", "--", "head", "-c", "300000", "/dev/zero", stdout=writing)
        got = 0
        while got < 300000:
            got += len(os.read(reading, 65536))
            self.assertTrue(os.get_blocking(writing))
        self.assertEqual(process.wait(10), 0)
        os.close(reading)
        os.close(writing)

    def test_a_full_disk_is_our_error(self):
        with open("/dev/full", "wb") as full:
            process = self.popen("run", "echo", "x", stdout=full)
            _out, err = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 125)
        self.assertIn(b"No space left", err)
        self.assertNothingLeased()


class Words(CliCase):
    def test_words_and_variables_arrive_byte_exact_b167(self):
        odd = ["", " ", "a\"b'c", "new\nline", "-dash", "--", "grüß 🙂", "$HOME `x` \\", "v" * 100_000]
        show = "import sys, json, os; json.dump([sys.argv[1:], os.environ['ODD']], sys.stdout)"
        done = self.run_cli("-e", "ODD=" + odd[3] + odd[6], "--", t.PYTHON, "-c", show, *odd)
        self.assertEqual(json.loads(done.stdout), [odd, odd[3] + odd[6]])

    def test_options_of_the_command_are_not_ours(self):
        done = self.run_cli("echo", "--timeout", "-t", "--json")
        self.assertEqual(done.stdout, b"--timeout -t --json\n")

    def test_a_word_that_is_not_utf8_is_refused_by_name(self):
        done = self.daemon.cli("run", "echo", os.fsdecode(b"\xff"))
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"word 2 of the command is not UTF-8", done.stderr)

    def test_cwd_env_and_user(self):
        done = self.run_cli("-C", "/tmp", "-e", "A=1", "-e", "B=x=y", "--", "sh", "-c",
                            "pwd; echo $A $B")
        self.assertEqual(done.stdout, b"/tmp\n1 x=y\n", done.stderr)


class Ends(CliCase):
    def assertEnds(self, code, *args, says=None):
        done = self.run_cli(*args)
        self.assertEqual(done.returncode, code, done)
        if says is None:
            self.assertEqual(done.stderr, b"")
        else:
            self.assertIn(says, done.stderr)

    def test_zero_and_255(self):
        self.assertEnds(0, "true")
        self.assertEnds(255, "--", "sh", "-c", "exit 255")

    def test_a_signal_is_128_more_b164(self):
        self.assertEnds(137, "--", "sh", "-c", "kill -9 $$")
        self.assertEnds(143, "--", "sh", "-c", "kill -15 $$")

    def test_a_timeout_is_124_and_says_so(self):
        started = time.monotonic()
        self.assertEnds(124, "--timeout", "300ms", "sleep", "30", says=b"time limit")
        self.assertLess(time.monotonic() - started, 5)

    def test_quiet_says_nothing(self):
        self.assertEnds(124, "-q", "--timeout", "200ms", "sleep", "30")

    def test_not_found_is_127_and_not_executable_is_126(self):
        self.assertEnds(127, "no-such-program", says=b"'no-such-program': No such file")
        self.assertEnds(126, "/etc/passwd", says=b"'/etc/passwd': Permission denied")

    def test_no_such_pool_is_125(self):
        self.assertEnds(125, "--pool", "nope", "true", says=b"POOL_NOT_FOUND")

    def test_a_bad_duration_is_125_b205(self):
        for text in ("3", "3x", "", "-1s"):
            with self.subTest(text):
                done = self.run_cli("--timeout", text, "true")
                self.assertEqual(done.returncode, 125, done)
                self.assertIn(b"INVALID_ARGUMENT", done.stderr)

    def test_no_daemon_is_125_and_says_where_it_looked(self):
        done = self.daemon.cli("--socket", "/nonexistent/socket", "run", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"'/nonexistent/socket': No such file", done.stderr)

    def test_a_daemon_that_dies_under_a_command_is_125(self):
        with t.Daemon(self.config) as other:
            other.wait_settled()
            process = subprocess.Popen(
                [str(t.BIN / "sandpool"), "--socket", other.socket_path, "run", "--", "sh", "-c",
                 "echo up; sleep 60"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"up\n")
            other.process.kill()
            _out, err = process.communicate(timeout=10)
            other.stop(check=False)
        self.assertEqual(process.returncode, 125)
        self.assertIn(b"closed the connection", err)


class Json(CliCase):
    def test_result_and_output_are_one_object(self):
        done = self.run_cli("--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
        answer = json.loads(done.stdout)
        self.assertEqual(done.returncode, 3)
        self.assertEqual((answer["stdout"], answer["stderr"], answer["encoding"]),
                         ("out\n", "err\n", "utf-8"))
        self.assertEqual((answer["result"]["reason"], answer["result"]["exit_code"]), ("exited", 3))

    def test_bytes_that_are_no_text_come_as_base64(self):
        done = self.run_cli("--json", "--", "printf", "\\377\\000")
        answer = json.loads(done.stdout)
        self.assertEqual((answer["stdout"], answer["encoding"]), ("/wA=", "base64"))

    def test_a_timeout_is_in_the_result_and_stderr_stays_empty(self):
        done = self.run_cli("--json", "--timeout", "200ms", "--", "sleep", "9")
        self.assertEqual(done.returncode, 124)
        self.assertEqual(json.loads(done.stdout)["result"]["reason"], "timeout")
        self.assertEqual(done.stderr, b"")

    def test_errors_are_json_on_stderr_b210(self):
        cases = [(["run", "--json", "-p", "nope", "true"], "POOL_NOT_FOUND"),
                 (["--json", "inspect", "0" * 20], "NOT_FOUND"),
                 (["inspect", "--json", "../x"], "INVALID_ARGUMENT"),
                 (["run", "--json", "--timout", "1s", "true"], "INVALID_ARGUMENT"),
                 (["--json", "frobnicate"], "INVALID_ARGUMENT"),
                 (["--json", "--redis", "redis://:pw@host", "ls"], "UNSUPPORTED"),
                 (["--json", "--socket", "/nonexistent", "ls"], "UNAVAILABLE")]
        for args, code in cases:
            with self.subTest(args):
                done = self.daemon.cli(*args)
                self.assertEqual((done.returncode, done.stdout), (125, b""))
                answer = json.loads(done.stderr)
                self.assertEqual(answer["code"], code, answer)
                self.assertNotIn("pw", answer["message"])


class Signals(CliCase):
    def start(self, script):
        process = self.popen("run", "--", "sh", "-c", script)
        self.assertEqual(process.stdout.readline(), b"up\n")
        return process

    def test_termination_goes_to_the_command_b062(self):
        process = self.start("trap 'echo got it; exit 5' TERM; echo up; while :; do sleep 0.05; done")
        process.send_signal(signal.SIGTERM)
        out, _err = process.communicate(timeout=10)
        self.assertEqual((process.returncode, out), (5, b"got it\n"))

    def test_interrupt_ends_an_ordinary_command_with_130(self):
        process = self.start("echo up; exec sleep 60")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), 130)

    def test_user_signals_pass(self):
        process = self.start("trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done")
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(process.stdout.readline(), b"usr1\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), 130)

    def test_a_command_that_ignores_signals_is_left_at_the_third(self):
        process = self.start("trap '' INT TERM; echo up; while :; do sleep 0.05; done")
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        self.assertEqual(process.wait(10), 143)
        self.assertNothingLeased()

    def test_killed_outright_the_command_dies_too_b101(self):
        process = self.start("echo up; exec sleep 60")
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        self.assertNothingLeased()


class Files(CliCase):
    def write(self, name, text):
        directory = tempfile.TemporaryDirectory(prefix="sandpool-test-")
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, name)
        with open(path, "wb") as file:
            file.write(text)
        return path

    def test_the_path_comes_behind_the_first_word(self):
        path = self.write("script.py", b"import sys; print(sys.argv, sys.stdin.read())")
        done = self.run_cli("--file", path, t.PYTHON, "a", "-b", input=b"typed")
        self.assertEqual(done.stdout, b"['/workspace/script.py', 'a', '-b'] typed\n", done.stderr)
        self.assertNothingLeased()

    def test_the_path_takes_the_place_of_braces(self):
        path = self.write("odd name.txt", b"content")
        done = self.run_cli("-f", path, "--", "sh", "-c", "cat \"$0\"; echo $1", "{}", "{}")
        self.assertEqual(done.stdout, b"content/workspace/odd name.txt\n", done.stderr)

    def test_without_a_command_the_file_is_run(self):
        path = self.write("hello", b"#!/bin/sh\necho hello from $0\n")
        self.assertEqual(self.run_cli("--file", path).stdout, b"hello from /workspace/hello\n")

    def test_every_byte_of_a_large_file_arrives(self):
        data = os.urandom(3 << 20)
        path = self.write("data", data)
        done = self.run_cli("--file", path, "sha256sum")
        self.assertEqual(done.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_a_name_with_quotes_is_only_a_name(self):
        path = self.write("$(touch x);'\".py", b"print(1)")
        self.assertEqual(self.run_cli("--file", path, t.PYTHON).stdout, b"1\n")

    def test_status_and_timeout_are_the_commands(self):
        path = self.write("s", b"sleep 30")
        self.assertEqual(self.run_cli("--timeout", "300ms", "-f", path, "sh").returncode, 124)
        path = self.write("s", b"exit 9")
        self.assertEqual(self.run_cli("-f", path, "sh").returncode, 9)
        self.assertNothingLeased()

    def test_a_file_that_is_none_takes_no_sandbox(self):
        for path, says in (("/nonexistent", b"No such file"), ("/tmp", b"Is a directory")):
            with self.subTest(path):
                before = self.daemon.pool()["ends"].get("released", 0)
                done = self.run_cli("--file", path, "sh")
                self.assertEqual(done.returncode, 125)
                self.assertIn(says, done.stderr)
                self.assertEqual(self.daemon.pool()["ends"].get("released", 0), before)

    def test_a_file_that_does_not_fit_is_our_error_and_the_sandbox_is_released(self):
        path = self.write("large", b"")
        os.truncate(path, 80 << 20)  # limits.tmp is 64 MiB
        done = self.run_cli("--file", path, "true", timeout=60)
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(b"No space left", done.stderr)
        self.assertNothingLeased()

    def test_a_signal_releases_the_sandbox(self):
        path = self.write("s", b"echo up; exec sleep 60")
        process = self.popen("run", "--file", path, "sh")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(10), 143)
        self.assertNothingLeased()


class Binds(t.HostDirectory, CliCase):
    @classmethod
    def fill_top(cls):
        cls.shared = f"{cls.top}/shared"
        os.mkdir(cls.shared)
        os.chown(cls.shared, 4321, 4321)
        return [cls.top]

    def test_rw_unless_said_and_the_target_is_the_second_part(self):
        done = self.run_cli("--bind", f"{self.shared}:/data", "--", "sh", "-c", "echo x > /data/f")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(t.read_text(f"{self.shared}/f"), "x\n")

    def test_ro_is_read_only_and_keeps_the_path(self):
        done = self.run_cli("--bind", f"{self.shared}:/data:ro", "--", "sh", "-c",
                            "echo x > /data/g")
        self.assertNotEqual(done.returncode, 0)
        self.assertFalse(os.path.exists(f"{self.shared}/g"))

    def test_two_binds_are_two(self):
        done = self.run_cli("-b", f"{self.shared}:/data", "-b", f"{self.shared}:/mnt:ro", "--",
                            "sh", "-c", "echo y > /data/h; cat /mnt/h")
        self.assertEqual(done.stdout, b"y\n", done.stderr)

    def test_outside_of_the_allowed_roots_is_refused(self):
        done = self.run_cli("--bind", "/etc:/data", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"BIND_REFUSED", done.stderr)


class Exec(CliCase):
    def test_a_held_sandbox_keeps_its_files(self):
        with self.daemon.acquire() as box:
            cli = self.daemon.cli
            cli("exec", box.id, "--", "sh", "-c", "echo kept > /workspace/f", check=True)
            self.assertEqual(cli("exec", box.id, "cat", "/workspace/f").stdout, b"kept\n")
            self.assertEqual(cli("exec", box.id, "--", "cat", input=b"\0\xff").stdout, b"\0\xff")

    def test_status_timeout_and_json(self):
        with self.daemon.acquire() as box:
            cli = self.daemon.cli
            self.assertEqual(cli("exec", box.id, "--", "sh", "-c", "exit 4").returncode, 4)
            done = cli("exec", "--timeout", "200ms", box.id, "--", "sleep", "9")
            self.assertEqual(done.returncode, 124)
            answer = json.loads(cli("exec", "--json", box.id, "echo", "x").stdout)
            self.assertEqual(answer["stdout"], "x\n")

    def test_an_unknown_id_is_an_error_b210(self):
        done = self.daemon.cli("exec", "0" * 20, "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"NOT_FOUND", done.stderr)

    def test_a_released_sandbox_ends_the_command_with_137(self):
        box = self.daemon.acquire()
        process = self.popen("exec", box.id, "--", "sh", "-c", "echo up; sleep 60")
        self.assertEqual(process.stdout.readline(), b"up\n")
        self.daemon.cli("release", box.id, check=True)
        _out, err = process.communicate(timeout=10)
        self.assertEqual(process.returncode, 137, err)
        self.assertIn(b"released", err)

    def test_a_missing_command_is_said(self):
        for args in (["exec", "x"], ["exec", "x", "--"]):
            self.assertEqual(self.daemon.cli(*args).returncode, 125)

    def test_two_execs_at_once(self):
        with self.daemon.acquire() as box:
            results = []

            def one(text):
                results.append(self.daemon.cli("exec", box.id, "--", "sh", "-c",
                                               f"sleep 0.2; echo {text}").stdout)

            threads = [threading.Thread(target=one, args=(text,)) for text in "ab"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(results), [b"a\n", b"b\n"])


if __name__ == "__main__":
    main()
