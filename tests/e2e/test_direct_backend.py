"""backend "direct": no isolation, for trusted code; it still has a user, limits and an end."""

import os
import pwd
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import PYTHON, SandpoolCase, main, wait_until  # noqa: E402


class Direct(SandpoolCase):
    config = {"allow_direct": True, "pools": {"default": {
        "backend": "direct", "direct_user": "nobody", "max_idle": 2}}}

    def test_runs_as_the_configured_user_on_the_host(self):
        user = pwd.getpwnam("nobody")
        outcome = self.daemon.run("/usr/bin/id", "-u")
        self.assertEqual(outcome.text, str(user.pw_uid))
        self.assertEqual(self.daemon.run("/usr/bin/id", "-G").text, str(user.pw_gid))
        # No namespaces: it sees the host.
        self.assertEqual(self.daemon.run("/bin/readlink", "/proc/self/ns/net").text,
                         os.readlink("/proc/self/ns/net"))

    def test_start_is_warned_about(self):
        self.assertRegex(self.daemon.log(), r"(?i)direct")

    def test_exit_codes_and_streams(self):
        outcome = self.daemon.run(shell="echo out; echo err >&2; exit 7")
        self.assertExited(outcome, 7)
        self.assertEqual((outcome.stdout, outcome.stderr), (b"out\n", b"err\n"))

    def test_environment_is_not_the_daemons(self):
        names = {line.split("=")[0] for line in self.daemon.run("/usr/bin/env").text.splitlines()}
        self.assertNotIn("SANDPOOL_TEST_INSTANCE", names)

    def test_timeout_kills_what_it_started(self):
        mark = "27182"
        start = time.monotonic()
        outcome = self.daemon.python(f"""
import os, subprocess, time
subprocess.Popen(["setsid", "sleep", "{mark}"], stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "{mark}"])
    os._exit(0)
time.sleep(60)
""", timeout="1s")
        self.assertEqual(outcome.reason, "timeout")
        self.assertLess(time.monotonic() - start, 4 * t.SLOW_FACTOR)

        def survivors():
            return [pid for pid in t.pids()
                    if t.read_text(f"/proc/{pid}/cmdline").split("\0")[:2] == ["sleep", mark]]
        wait_until(lambda: not survivors(), 3, "descendants are dead")

    def test_descriptors_are_three(self):
        outcome = self.daemon.run(PYTHON, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))")
        self.assertLessEqual(len(eval(outcome.text)), 4)  # one is the listing itself


if __name__ == "__main__":
    main()
