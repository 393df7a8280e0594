"""Limits that a workload runs into, and what its neighbours and the host notice of it: nothing."""

import errno
import os

import subprocess
import threading
import time

from escape_case import (EscapeCase, PYTHON, limit, main, on_host, payload_path, t,
                         wait_until)

PIDS = 64
MIB = 1 << 20
FILL = """
import os, sys
place, chunk = sys.argv[1], b"x" * (1 << 20)
written = 0
try:
    with open(os.path.join(place, "fill"), "wb", buffering=0) as file:
        for _ in range(400):
            written += file.write(chunk)
    print(written, 0)
except OSError as error:
    print(written, error.errno)
finally:
    try:
        os.unlink(os.path.join(place, "fill"))
    except OSError:
        pass
"""
FILES = """
import os, sys
place = os.path.join(sys.argv[1], "many")
made = 0
try:
    os.mkdir(place)
    for made in range(int(sys.argv[2])):
        os.symlink("x", f"{place}/{made}")
    print(made, 0)
except OSError as error:
    print(made, error.errno)
import shutil
shutil.rmtree(place, ignore_errors=True)
"""
WRITABLE = ("/tmp", "/home/user", "/run/lock", "/dev/shm", "/workspace", "/data", "/mnt", "/var/tmp")


class Limits(EscapeCase):
    config = {"pools": {
        "default": {"max_idle": 2, "limits": {"memory": "128MiB", "pids": PIDS, "tmp": "32MiB"}},
        "roomy": {"max_idle": 0, "max_total": 2,
                  "limits": {"memory": "512MiB", "pids": 1000, "tmp": "256MiB"}},
    }}

    def test_storm_is_capped_and_the_neighbour_does_not_notice_b050_b051(self):
        other = self.acquire()
        with self.box.stream() as stream:
            self.box.put("/tmp/storm", payload_path("storm").read_bytes())
            stream.begin(argv=["/tmp/storm", "400", "30"])
            stream.read_stdout(b"\n")
            made, stopped_by = map(int, b"".join(stream.out).split())
            self.assertEqual(stopped_by, errno.EAGAIN)
            self.assertLess(made, PIDS)
            self.assertGreater(made, PIDS // 2)
            # The neighbour has room for 50 more, with the same uid inside.
            self.assertExited(other.run(PYTHON, "-c", """
import os, signal
children = []
for _ in range(50):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    children.append(pid)
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""))
            # And the supervisor can still end it.
            start = time.monotonic()
            self.box.release()
        self.assertLess(time.monotonic() - start, 2)
        control = on_host(payload_path("storm"), 400)
        self.assertEqual(control.stdout.split(), [b"400", b"0"])

    def test_memory_hog_ends_with_reason_and_peak_b042_b055(self):
        outcome = self.payload("hog", 512)
        self.assertEqual(outcome.reason, "memory", outcome)
        self.assertGreater(outcome.result["peak_memory_bytes"], 64 * MIB)
        self.assertLess(outcome.result["peak_memory_bytes"], 192 * MIB)
        self.assertNotIn(b"touched", outcome.stdout)
        # The sandbox survives it.
        self.assertExited(self.box.run("/bin/true"))
        roomy = self.acquire("roomy", policy="create")
        self.assertExited(self.payload("hog", 256, box=roomy))  # control

    def test_other_ends_are_not_called_memory_b042_b043(self):
        self.assertEqual(self.box.shell("kill -9 $$").reason, "signaled")
        outcome = self.box.shell("trap '' TERM; sleep 30", timeout="1s")
        self.assertEqual(outcome.reason, "timeout")

    def test_init_outlives_a_hog_b044(self):
        outcome = self.box.python("""
import os
try:
    open("/proc/self/oom_score_adj", "w").write("-1000")
    print("lowered")
except OSError:
    pass
x = []
while True:
    x.append(b"x" * (1 << 20))
""")
        self.assertNotIn(b"lowered", outcome.stdout)
        self.assertIn(outcome.reason, ("memory",))
        self.assertExited(self.box.run("/bin/true"))

    def test_every_writable_place_ends_in_enospc_b045_b047(self):
        for place in WRITABLE:
            with self.subTest(place=place):
                written, number = map(int, self.inside(FILL, place).split())
                self.assertEqual(number, errno.ENOSPC)
                self.assertLessEqual(written, 32 * MIB)
                self.assertGreater(written, 16 * MIB)
        # One budget for all of them.
        self.shell("head -c 20M /dev/zero >/tmp/half")
        written, number = map(int, self.inside(FILL, "/home/user").split())
        self.assertEqual(number, errno.ENOSPC)
        self.assertLessEqual(written, 12 * MIB)
        # Control: the same fill in a pool with room goes on far beyond 32 MiB.
        roomy = self.acquire("roomy", policy="create")
        self.assertGreater(int(self.inside(FILL, "/tmp", box=roomy).split()[0]), 128 * MIB)

    def test_no_other_place_is_writable_b047(self):
        found = self.shell("find / -xdev -type d -writable 2>/dev/null; "
                           "find /dev -type d -writable 2>/dev/null").split()
        for path in found:
            self.assertTrue(any(path == top or path.startswith(top + "/")
                                for top in WRITABLE + ("/proc",)), path)

    def test_inodes_end_in_enospc_b046(self):
        for place in ("/tmp", "/dev/shm", "/workspace"):
            with self.subTest(place=place):
                made, number = map(int, self.inside(FILES, place, 2_000_000,
                                                    timeout="60s").split())
                self.assertEqual(number, errno.ENOSPC)
                self.assertGreater(made, 100)

    def test_sparse_and_reserved_files_b049(self):
        text = """
import os
fd = os.open("/tmp/big", os.O_CREAT | os.O_WRONLY)
for name, call in (("fallocate", lambda: os.posix_fallocate(fd, 0, 100 << 30)),
                   ("truncate", lambda: (os.ftruncate(fd, 1 << 40), os.pwrite(fd, b"x" * 4096, 0)))):
    try:
        call()
        print(name, os.fstat(fd).st_blocks * 512)
    except OSError as error:
        print(name, "errno", error.errno)
"""
        for line in self.inside(text).splitlines():
            words = line.split()
            if words[1] == "errno":
                self.assertIn(int(words[2]), (errno.ENOSPC, errno.EFBIG))
            else:
                self.assertLess(int(words[1]), 32 * MIB)

    def test_rlimits_are_the_configured_ones_b030_b057(self):
        text = self.inside("""
import resource
for name in ("NOFILE", "CORE", "MEMLOCK", "RTPRIO", "NICE", "MSGQUEUE"):
    print(name, *resource.getrlimit(getattr(resource, "RLIMIT_" + name)) if hasattr(resource, "RLIMIT_" + name) else ())
""")
        limits = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
        self.assertEqual(limits["NOFILE"], ["1024", "1024"])
        # 0 would still start a piped handler of the host.
        self.assertEqual(limits["CORE"], ["1", "1"])

    def test_one_run_does_not_count_for_the_next_b041(self):
        burn = """
import time
end = time.process_time() + 0.3
while time.process_time() < end: pass
"""
        for _ in range(3):
            outcome = self.box.python(burn)
            self.assertExited(outcome)
            self.assertGreater(outcome.result["cpu_ms"], 250)
            self.assertLess(outcome.result["cpu_ms"], 1500)
        outcome = self.box.run("/bin/true")
        self.assertLess(outcome.result["cpu_ms"], 100)
        self.assertLess(outcome.result["peak_memory_bytes"], 64 * MIB)

    def test_zombies_are_reaped_b052_b066(self):
        self.assertExited(self.box.shell(
            "i=0; while [ $i -lt 1500 ]; do (setsid true &) ; i=$((i+1)); done", timeout="60s"))
        wait_until(lambda: "Z" not in self.shell("cat /proc/[0-9]*/stat | cut -d' ' -f3").split(),
                   5, "no zombie")
        self.assertLess(int(self.shell("ls -d /proc/[0-9]* | wc -l")), 8)

    def test_descriptors_of_the_daemon_do_not_grow_b053_b083(self):
        before = t.fd_count(self.daemon.pid)
        for _ in range(100):
            outcome = self.box.run("/nonexistent/program")
            self.assertEqual(outcome.reason, "start_failed")
            self.assertEqual(outcome.exit_code, 127)
        for _ in range(100):
            self.assertExited(self.box.run("/bin/true"))
        self.assertExited(self.box.shell("i=0; while [ $i -lt 1500 ]; do /bin/true; i=$((i+1)); done"))
        wait_until(lambda: t.fd_count(self.daemon.pid) <= before + 6, 5, "descriptors are closed")


class Timeouts(EscapeCase):
    def test_sleep_ends_at_its_timeout(self):
        start = time.monotonic()
        outcome = self.box.run("/bin/sleep", "60", timeout="3s")
        took = time.monotonic() - start
        self.assertEqual(outcome.reason, "timeout", outcome)
        self.assertIsNone(outcome.exit_code)
        self.assertGreater(took, 2.9)
        self.assertLess(took, 4.5 * t.SLOW_FACTOR)
        self.assertEqual(self.box.shell("exit 7").exit_code, 7)

    def escapees(self):
        return [pid for pid in t.cgroup_processes(self.daemon.instance) | self.daemon.processes()
                if "31337" in t.read_text(f"/proc/{pid}/cmdline")]

    ORPHANS = """
import os, subprocess, time
subprocess.Popen(["setsid", "sleep", "31337"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(0), os.close(1), os.close(2)
        os.execvp("sleep", ["sleep", "31337"])
    os._exit(0)
subprocess.Popen("trap '' TERM HUP INT; while :; do sleep 31337; done", shell=True,
                 start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL)
time.sleep(0.3)
print("out", flush=True)
time.sleep(600)
"""

    def test_timeout_kills_orphans_and_keeps_the_sandbox_b061(self):
        with self.box.stream() as stream:
            # Long enough for the control to look at them first, on a busy machine too.
            stream.begin(argv=[PYTHON, "-c", self.ORPHANS], timeout="6s")
            stream.read_stdout(b"out")
            self.assertGreaterEqual(len(self.escapees()), 3)  # control: they live until then
            outcome = stream.finish()
        self.assertEqual(outcome.reason, "timeout")
        wait_until(lambda: not self.escapees(), 1, "all descendants are dead")
        self.assertExited(self.box.run("/bin/true"))

    def test_cancel_kills_orphans_too_b061_b169(self):
        stream = self.box.stream()
        stream.begin(argv=[PYTHON, "-c", self.ORPHANS])
        stream.read_stdout(b"out")
        stream.close()
        wait_until(lambda: not self.escapees(), 2, "all descendants are dead")
        self.assertExited(self.box.run("/bin/true"))

    def test_release_kills_everything_b062(self):
        self.assertExited(self.box.shell("(setsid sleep 31337 >/dev/null 2>&1 </dev/null &)"))
        self.assertEqual(len(self.escapees()), 1)
        self.box.release()
        wait_until(lambda: not self.escapees(), 2, "released, so dead")

    def test_background_child_does_not_hold_the_exec_b151_b152(self):
        start = time.monotonic()
        outcome = self.box.shell("(while :; do echo tick; sleep 0.1; done) & echo hi")
        self.assertExited(outcome)
        self.assertTrue(outcome.stdout.startswith(b"hi") or b"hi\n" in outcome.stdout)
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)
        time.sleep(0.5)  # its writes after the end of the exec must not kill it
        self.assertIn("sh", self.shell("cat /proc/[0-9]*/comm | sort | uniq -c | grep -w sh"))

    def test_stop_signals_do_not_defeat_the_clock_b059(self):
        for target in ("0", "-1"):
            with self.subTest(target=target):
                box = self.acquire()
                start = time.monotonic()
                outcome = box.shell(f"kill -STOP {target}; sleep 60", timeout="1s")
                self.assertEqual(outcome.reason, "timeout")
                self.assertLess(time.monotonic() - start, 2.5 * t.SLOW_FACTOR)
                self.assertExited(box.run("/bin/true"))

    def test_cpu_burners_end_at_the_timeout_b060(self):
        outcome = self.box.python("""
import threading
def burn():
    while True: pass
for _ in range(4): threading.Thread(target=burn).start()
""", timeout="1s")
        self.assertEqual(outcome.reason, "timeout")

    def test_nobody_can_kill_init_b087_b088(self):
        self.assertEqual(self.box.shell("kill -9 1 2>/dev/null && echo done").text, "")
        outcome = self.box.shell("kill -9 -1; echo alive")
        self.assertIn(outcome.reason, ("exited", "signaled"))
        self.assertExited(self.box.run("/bin/true"))

    @limit(300)
    def test_stopping_everything_in_a_loop_wedges_nothing(self):
        count = int(os.environ.get("SP_STOP_EXECS", "10000"))
        box = self.acquire(ttl="9m")
        box.put("/tmp/stopper", payload_path("stopper").read_bytes())
        failures = []

        def execs(number):
            try:
                with box.stream(60) as stream:
                    for _ in range(number):
                        outcome = stream.run(argv=["/bin/true"], timeout="10s")
                        if outcome.reason != "exited":
                            failures.append(outcome)
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)

        with box.stream(280) as stopper:
            stopper.begin(argv=["/tmp/stopper", "270"])
            stopper.read_stdout(b"stopping")
            threads = [threading.Thread(target=execs, args=(count // 2,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # A child stopped for 1 s before its exec is killed by design; it must be rare and typed.
        real = [item for item in failures
                if not (isinstance(item, t.Outcome) and item.reason == "start_failed")]
        self.assertEqual(real[:5], [])
        self.assertLess(len(failures), count // 100)
        self.assertExited(box.run("/bin/true"))


class Cores(EscapeCase):
    def test_abort_makes_no_core_and_starts_no_handler_b030(self):
        pattern_file = "/proc/sys/kernel/core_pattern"
        handler = f"{self.daemon.directory}/handler"
        record = f"{self.daemon.directory}/record"
        with open(handler, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\ncat >/dev/null\necho \"$@\" >>{record}\n")
        os.chmod(handler, 0o755)
        old = t.read_text(pattern_file).strip()
        abort = "import os; os.abort()"
        try:
            try:
                with open(pattern_file, "w", encoding="ascii") as file:
                    file.write(f"|{handler} %P %e")
            except OSError as error:
                self.skipTest(f"core_pattern cannot be set here: {error}")
            outcome = self.box.python(abort)
            self.assertEqual((outcome.reason, outcome.signal), ("signaled", 6), outcome)
            # Control: outside, the handler is started for the same program.
            subprocess.run(["/bin/sh", "-c", f'ulimit -c unlimited; {PYTHON} -c "{abort}"; true'],
                           cwd=self.daemon.directory, capture_output=True, check=False)
            wait_until(lambda: os.path.exists(record), 5, "the handler ran for the control")
            self.assertEqual(len(t.read_text(record).splitlines()), 1, t.read_text(record))
        finally:
            with open(pattern_file, "w", encoding="ascii") as file:
                file.write(old)
        self.assertEqual(self.shell("find / -xdev -name 'core*' -newer /proc/1/stat -size +0 "
                                    "-type f 2>/dev/null | head -n 3"), "")


class Inherited(t.Case):
    """Nothing of how the daemon was started reaches a workload (B-056, B-057, B-058, B-068, B-069)."""

    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)

    def test_affinity_b056(self):
        with t.Daemon({"pools": {"default": {"max_idle": 1}}},
                      prefix=["/usr/bin/taskset", "0x1"]) as daemon:
            outcome = daemon.python("import os; print(len(os.sched_getaffinity(0)))")
            self.assertEqual(int(outcome.text), os.cpu_count())

    def test_rlimits_signals_and_umask_b057_b069_b174(self):
        starter = """
import os, resource, signal, sys
for name, value in (("NOFILE", 600), ("STACK", 1 << 20)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]))
os.umask(0o777 & ~0o700)
for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGALRM})
os.execv(sys.argv[1], sys.argv[1:])
"""
        with t.Daemon({"pools": {"default": {"max_idle": 1}}},
                      prefix=[PYTHON, "-c", starter]) as daemon:
            outcome = daemon.python("""
import os, resource
fields = dict(line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print("nofile", *resource.getrlimit(resource.RLIMIT_NOFILE))
print("umask", oct(os.umask(0)))
print("blocked", fields["SigBlk"].strip("0") or "none")
print("oom", open("/proc/self/oom_score_adj").read().strip())
print("session", os.getsid(0) == os.getpid())
""")
            self.assertEqual((outcome.reason, outcome.exit_code), ("exited", 0), outcome)
            values = dict(line.split(" ", 1) for line in outcome.text.splitlines())
            self.assertEqual(values["nofile"], "1024 1024", outcome)
            self.assertEqual(values["umask"], "0o22")
            self.assertEqual(values["blocked"], "none")
            self.assertGreaterEqual(int(values["oom"]), 0)
            self.assertEqual(values["session"], "True")
            # SIG_IGN survives an exec. 32 and 33 are the C library's own: it cannot set them.
            ignored = daemon.run("/bin/grep", "SigIgn", "/proc/self/status").text.split()[1]
            self.assertEqual(int(ignored, 16) & ~0x180000000, 0)


if __name__ == "__main__":
    main()
