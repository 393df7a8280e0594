"""sandpool with a terminal on both sides: raw mode and its undoing, resizes, job control, top."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402


class Terminal:
    """A program on a pty of ours."""

    def __init__(self, daemon, *args, rows=24, columns=80):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""

        def own_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [str(t.BIN / "sandpool"), *args],
            env={"PATH": "/usr/bin:/bin", "TERM": "dumb", "SANDPOOL_SOCKET": daemon.socket_path},
            stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            preexec_fn=own_terminal)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data):
        os.write(self.master, data)

    def read(self, seconds=0.05):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.seen += data

    def expect(self, pattern, timeout=10):
        """Wait until the pattern was seen; forget everything up to its end."""
        end = time.monotonic() + timeout * t.SLOW_FACTOR
        while not (match := re.search(pattern, self.seen, re.S)):
            if time.monotonic() > end:
                raise AssertionError(f"not seen: {pattern!r}; seen: {self.seen!r}")
            self.read()
        self.seen = self.seen[match.end():]
        return match

    def wait(self, timeout=10):
        end = time.monotonic() + timeout * t.SLOW_FACTOR
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"still runs; seen: {self.seen!r}")
            self.read()
        self.read()
        return self.process.returncode

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def restored(self):
        return termios.tcgetattr(self.slave) == self.before


class TerminalCase(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2}}}

    def setUp(self):
        self.daemon.wait_idle(2)

    def terminal(self, *args, **kwargs):
        terminal = Terminal(self.daemon, *args, **kwargs)
        self.addCleanup(terminal.close)
        return terminal


class Pty(TerminalCase):
    def test_the_command_has_a_terminal_of_our_size(self):
        term = self.terminal("run", "-t", "--", "sh", "-c", "tty; stty size; exit 5", rows=33,
                             columns=99)
        term.expect(rb"/dev/pts/\d+\r\n33 99\r\n")
        self.assertEqual(term.wait(), 5)
        self.assertTrue(term.restored())

    def test_typing_reaches_it_and_is_echoed_by_it_alone(self):
        term = self.terminal("run", "-t", "--", "sh", "-c", "echo ready; read x; echo \"got $x\"")
        term.expect(rb"ready\r\n")
        term.type(b"word\r")
        term.expect(rb"^word\r\ngot word\r\n")
        self.assertEqual(term.wait(), 0)

    def test_resizes_follow(self):
        term = self.terminal("run", "-t", "--", "sh", "-c",
                             "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done")
        term.expect(rb"ready\r\n")
        term.resize(41, 123)
        term.expect(rb"41 123\r\n")
        term.type(b"\x03")
        self.assertEqual(term.wait(), 130)

    def test_control_c_is_the_commands(self):
        term = self.terminal("run", "-t", "--", "sh", "-c",
                             "trap 'echo caught' INT; echo ready; sleep 30; exit 6")
        term.expect(rb"ready\r\n")
        wait_until(term.raw, what="raw mode")
        term.type(b"\x03")
        term.expect(rb"caught\r\n")
        self.assertEqual(term.wait(), 6)
        self.assertTrue(term.restored())

    def test_end_of_file_is_typed(self):
        term = self.terminal("run", "-t", "cat")
        wait_until(term.raw, what="raw mode")
        term.type(b"line\r\x04")
        term.expect(rb"line\r\nline\r\n")
        self.assertEqual(term.wait(), 0)

    def test_a_program_may_close_its_terminal_before_it_ends(self):
        term = self.terminal("run", "-t", "--", "sh", "-c",
                             "exec <&- >&- 2>&-; sleep 0.2; exit 7")
        self.assertEqual(term.wait(), 7)

    def test_a_program_may_open_its_terminal_again(self):
        term = self.terminal("run", "-t", "--", "sh", "-c",
                             "exec <&- >&- 2>&-; sleep 0.2; exec >/dev/tty; echo back; exit 7")
        term.expect(rb"back\r\n")
        self.assertEqual(term.wait(), 7)

    def test_a_flood_is_not_lost(self):
        term = self.terminal("run", "-t", "--", "sh", "-c", "seq 20000; echo the end")
        term.expect(rb"20000\r\nthe end\r\n", timeout=30)
        self.assertEqual(term.wait(), 0)

    def test_stdout_and_stderr_are_one_terminal(self):
        term = self.terminal("run", "-t", "--", "sh", "-c", "test -t 1 && test -t 2 && echo both")
        term.expect(rb"both\r\n")

    def test_without_a_terminal_of_ours_it_still_has_one(self):
        done = self.daemon.cli("run", "-t", "--", "sh", "-c", "stty size")
        self.assertEqual((done.returncode, done.stdout), (0, b"24 80\r\n"))


class Restored(TerminalCase):
    def start(self):
        term = self.terminal("run", "-t", "--", "sh", "-c", "echo ready; exec sleep 60")
        term.expect(rb"ready\r\n")
        wait_until(term.raw, what="raw mode")
        return term

    def test_after_a_signal(self):
        term = self.start()
        term.process.send_signal(signal.SIGTERM)
        self.assertEqual(term.wait(), 143)
        self.assertTrue(term.restored())

    def test_after_the_third_signal(self):
        term = self.terminal("run", "-t", "--", "sh", "-c",
                             "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        term.expect(rb"ready\r\n")
        wait_until(term.raw, what="raw mode")
        for _ in range(3):
            term.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        self.assertEqual(term.wait(), 143)
        self.assertTrue(term.restored())

    def test_after_a_timeout(self):
        term = self.terminal("run", "-t", "--timeout", "500ms", "--", "sleep", "60")
        term.expect(rb"time limit")
        self.assertEqual(term.wait(), 124)
        self.assertTrue(term.restored())

    def test_after_a_fault_of_our_own(self):
        term = self.start()
        term.process.send_signal(signal.SIGSEGV)
        self.assertEqual(term.wait(), -signal.SIGSEGV)
        self.assertTrue(term.restored())

    def test_after_the_sandbox_was_released(self):
        box = self.daemon.acquire()
        term = self.terminal("exec", "-t", box.id, "--", "sh", "-c", "echo ready; exec sleep 60")
        term.expect(rb"ready\r\n")
        self.daemon.cli("release", box.id, check=True)
        self.assertEqual(term.wait(), 137)
        self.assertTrue(term.restored())

    def test_after_a_refusal_it_was_never_changed(self):
        term = self.terminal("run", "-t", "-p", "nope", "sh")
        self.assertEqual(term.wait(), 125)
        self.assertTrue(term.restored())

    def test_while_it_is_stopped_and_raw_again_afterwards(self):
        term = self.start()
        term.process.send_signal(signal.SIGTSTP)
        wait_until(term.restored, what="terminal given back")
        wait_until(lambda: t.read_text(f"/proc/{term.process.pid}/stat").split()[2] == "T",
                   what="stopped")
        term.process.send_signal(signal.SIGCONT)
        wait_until(term.raw, what="raw mode again")
        term.type(b"\x03")
        self.assertEqual(term.wait(), 130)
        self.assertTrue(term.restored())


class Plain(TerminalCase):
    def test_a_terminal_is_not_read_unless_asked_for(self):
        term = self.terminal("run", "cat")
        self.assertEqual(term.wait(), 0)

    def test_interactive_reads_it_line_by_line(self):
        term = self.terminal("run", "-i", "cat")
        time.sleep(0.3)
        self.assertFalse(term.raw())
        term.type(b"line\n\x04")
        term.expect(rb"line\r\nline\r\n")
        self.assertEqual(term.wait(), 0)

    def test_control_c_goes_through_us(self):
        term = self.terminal("run", "--", "sh", "-c", "echo ready; exec sleep 60")
        term.expect(rb"ready\r\n")
        term.type(b"\x03")
        self.assertEqual(term.wait(), 130)


class Top(TerminalCase):
    def test_q_quits_and_the_screen_is_given_back(self):
        term = self.terminal("top", "-d", "100")
        term.expect(rb"\x1b\[\?1049h.*POOL.*default")
        term.expect(rb"default")  # once more: it refreshes
        term.type(b"q")
        self.assertEqual(term.wait(), 0)
        term.expect(rb"\x1b\[\?1049l")
        self.assertTrue(term.restored())

    def test_control_c_too(self):
        term = self.terminal("top")
        term.expect(rb"default")
        term.type(b"\x03")
        self.assertEqual(term.wait(), 130)
        self.assertTrue(term.restored())

    def test_without_a_terminal_it_appends(self):
        done = self.daemon.cli("top", "--json", "-d", "100", "-c", "3")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(done.stdout.splitlines()), 3)

    def test_the_interval_has_bounds(self):
        for text, code in (("99", 125), ("100", 0), ("60001", 125), ("1s", 125)):
            with self.subTest(text):
                done = self.daemon.cli("top", "-d", text, "-c", "1")
                self.assertEqual(done.returncode, code, done)


if __name__ == "__main__":
    main()
