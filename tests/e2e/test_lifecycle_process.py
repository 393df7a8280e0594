"""Start, stop and restart of the daemon itself."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Case, Daemon, main, wait_until  # noqa: E402


class Process(Case):
    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)

    def daemon(self, *args, **options):
        daemon = Daemon(*args, **options)
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.kill)
        return daemon

    def failing_start(self, daemon):
        """Exit code, log and duration of a start that must not succeed (B-207)."""
        daemon.wait_ready = False
        start = time.monotonic()
        daemon.start()
        try:
            daemon.process.wait(10 * t.SLOW_FACTOR)
        except subprocess.TimeoutExpired:
            self.fail(f"started all the same\n{daemon.log()}")
        self.assertNotEqual(daemon.process.returncode, 0)
        self.assertLess(time.monotonic() - start, 5 * t.SLOW_FACTOR)
        return daemon.log()

    def test_stops_clean_when_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            daemon = self.daemon()
            daemon.start()
            daemon.stop(number=number)

    def test_sandpoold_keeps_no_privilege(self):
        with Daemon() as daemon:
            status = t.read_text(f"/proc/{daemon.pid}/status")
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            self.assertNotIn("0", fields["Uid"].split())
            for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
                self.assertEqual(int(fields[name], 16), 0, name)
            self.assertEqual(fields["NoNewPrivs"], "1")

    def test_running_execs_get_their_grace_b085(self):
        daemon = self.daemon({"shutdown_timeout": "10s"})
        daemon.start()
        box = daemon.acquire()
        with box.stream() as stream:
            stream.begin(shell="echo on; sleep 1; echo done")
            stream.read_stdout(b"on")
            daemon.process.send_signal(signal.SIGTERM)
            outcome = stream.finish()
        self.assertEqual(outcome.stdout, b"on\ndone\n", outcome)
        daemon.process.wait(10)
        daemon.check_leaks()

    def test_grace_is_bounded_and_a_second_signal_ends_it_b085(self):
        daemon = self.daemon({"shutdown_timeout": "1s"})
        daemon.start()
        box = daemon.acquire()
        with box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "60"])
            start = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            daemon.process.wait(10)
            self.assertLess(time.monotonic() - start, 5 * t.SLOW_FACTOR)
        daemon.check_leaks()

        daemon = self.daemon({"shutdown_timeout": "60s"})
        daemon.start()
        box = daemon.acquire()
        with box.stream() as stream:
            stream.begin(argv=["/bin/sleep", "60"])
            daemon.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            self.assertIsNone(daemon.process.poll())
            daemon.process.send_signal(signal.SIGTERM)
            daemon.process.wait(5)
        daemon.check_leaks()

    def test_new_acquires_are_refused_while_stopping(self):
        daemon = self.daemon({"shutdown_timeout": "20s"})
        daemon.start()
        box = daemon.acquire()
        with box.stream() as stream:
            stream.begin(shell="sleep 2")
            daemon.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with contextlib.suppress(OSError):  # or it does not listen any more
                response = daemon.request("POST", "/v1/pools/default/acquire", {}, timeout=3)
                self.assertGreaterEqual(response.status, 400)
            stream.finish()
        daemon.process.wait(10)
        daemon.check_leaks()

    def test_start_failures_are_loud_b207(self):
        daemon = self.daemon()
        with open(daemon.config_path, "w", encoding="ascii") as file:
            file.write('{"pools": {"default": {"max_idel": 1}}}')
        log = self.failing_start(daemon)
        self.assertIn("max_idel", log)
        self.assertIn("max_idle", log)  # did you mean

        daemon = self.daemon()
        os.unlink(daemon.config_path)
        self.assertIn(daemon.config_path, self.failing_start(daemon))

        daemon = self.daemon({"listen": ["unix:///nonexistent/directory/socket"]})
        self.assertIn("/nonexistent/directory", self.failing_start(daemon))

    def test_configuration_that_others_can_write_is_refused(self):
        daemon = self.daemon()
        os.chmod(daemon.config_path, 0o666)
        self.assertIn(daemon.config_path, self.failing_start(daemon))
        daemon = self.daemon()
        shutil.chown(daemon.config_path, "daemon")
        self.assertIn(daemon.config_path, self.failing_start(daemon))

    def test_socket_in_use_is_an_error_and_the_first_lives_on_b207(self):
        with Daemon() as first:
            second = self.daemon({"listen": [f"unix://{first.socket_path}"]})
            self.assertIn(first.socket_path, self.failing_start(second))
            self.assertEqual(first.run("/bin/echo", "alive").text, "alive")

    def test_second_daemon_on_one_state_directory_is_refused_b075(self):
        with Daemon() as first:
            second = self.daemon({"state_dir": first.config["state_dir"]})
            self.failing_start(second)
            third = self.daemon({"instance": first.instance})
            self.failing_start(third)
            third.instance = second.instance  # its leftovers would be the first one's
            self.assertEqual(first.run("/bin/echo", "alive").text, "alive")

    def test_two_daemons_live_side_by_side_b075(self):
        with Daemon() as first, Daemon() as second:
            self.assertEqual(first.run("/bin/echo", "1").text, "1")
            second.process.kill()
            second.process.wait()
            # All but the socket, which the next start replaces.
            wait_until(lambda: not second.processes(), 5, "the rest of it died too")
            second.start()
            self.assertEqual(second.run("/bin/echo", "2").text, "2")
            self.assertEqual(first.run("/bin/echo", "1").text, "1")

    def test_kill_9_and_start_again_b076_b218(self):  # P-206
        daemon = self.daemon({"pools": {"default": {"max_idle": 4}}})
        daemon.start()
        held = [daemon.acquire(policy="wait", wait="10s") for _ in range(3)]
        old = {item["id"] for item in daemon.sandboxes()}
        with held[0].stream() as stream:
            stream.begin(argv=["/bin/sleep", "1000"])
            daemon.process.kill()
            daemon.process.wait()
            wait_until(lambda: not daemon.inits(), 5, "all sandboxes died with the daemon")
        start = time.monotonic()
        daemon.start()
        self.assertLess(time.monotonic() - start, 4 * t.SLOW_FACTOR)
        self.assertFalse(old & {item["id"] for item in daemon.sandboxes()})
        with self.assertRaises(t.ApiError):
            held[1].run("/bin/true")
        self.assertEqual(daemon.run("/bin/echo", "again").text, "again")
        daemon.stop()

    def test_socket_is_for_its_owner_only_b222(self):
        with Daemon() as daemon:
            mode = os.stat(daemon.socket_path).st_mode & 0o777
            self.assertEqual(mode & 0o002, 0, oct(mode))
            probe = ("import socket; s = socket.socket(socket.AF_UNIX); "
                     f"s.connect({daemon.socket_path!r})")
            result = subprocess.run([t.PYTHON, "-c", probe], user=65534, group=65534,
                                    extra_groups=[], capture_output=True, check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(b"PermissionError", result.stderr)

    def test_programs_of_two_builds_name_both(self):
        version = subprocess.run([t.BIN / "sandpoold", "--version"], capture_output=True, check=True)
        ours = re.search(rb"build ([0-9a-f]{16})", version.stdout).group(1).decode()
        theirs = f"{int(ours, 16) ^ 1:016x}"
        # As after an upgrade that replaced one program and not the other.
        for name, words in (("sandpool-launcher", ("sandpoold is of build " + ours, theirs)),
                            ("sandpool-compile", (f"sandpool-compile is of build {theirs}", ours))):
            with self.subTest(program=name):
                daemon = self.daemon()
                shutil.copytree(t.BIN, f"{daemon.directory}/bin")
                program = pathlib.Path(f"{daemon.directory}/bin/{name}")
                program.write_bytes(program.read_bytes().replace(
                    int(ours, 16).to_bytes(8, "little"), int(theirs, 16).to_bytes(8, "little")))
                daemon.prefix = ["/bin/sh", "-c", "shift; exec \"$0\" \"$@\"",
                                 f"{daemon.directory}/bin/sandpoold"]
                log = self.failing_start(daemon)
                for word in words:
                    self.assertIn(word, log)

    def test_two_hundred_cycles_with_interrupts_leave_no_cgroup_b063(self):
        for _ in range(4):
            daemon = self.daemon({"pools": {"default": {"max_idle": 4}}})
            daemon.start()
            stop = threading.Event()

            def churn():
                while not stop.is_set():
                    try:
                        daemon.run("/bin/true")
                    except (OSError, t.ApiError, t.StreamClosed):
                        return

            threads = [threading.Thread(target=churn) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(0.7)
            daemon.process.send_signal(signal.SIGINT)
            daemon.process.wait(15)
            stop.set()
            for thread in threads:
                thread.join(10)
            daemon.check_leaks()


if __name__ == "__main__":
    main()
