"""sandpoold and launcher as an ordinary user: with subordinate ids, and with nothing but his own.

What must hold for root's sandboxes must hold here too, so the escape suites run again; what is less
is shown: limits as degraded, and everything by doctor.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "escape"))

import sandpool_test as t  # noqa: E402
import test_files  # noqa: E402
import test_limits  # noqa: E402
import test_network  # noqa: E402
import test_syscalls  # noqa: E402
from sandpool_test import RootlessDaemon, SandpoolCase, main, wait_until  # noqa: E402

LIMITS = ["memory", "pids", "cpu"]


class OneId(RootlessDaemon):
    """No /etc/subuid: every sandbox maps the user's own id."""


class OwnIds(RootlessDaemon):
    subids = RootlessDaemon.SUBIDS


def host_uid(pid):
    """None: it has ended."""
    found = re.search(r"(?m)^Uid:\t(\d+)", t.read_text(f"/proc/{pid}/status"))
    return int(found[1]) if found else None


class Rootless(SandpoolCase):
    """Both ways of it; not run by itself."""

    config = {"pools": {"default": {"max_idle": 2}}}

    def doctor(self):
        done = subprocess.run(
            [*self.daemon.prefix[:-2], self.daemon.prefix[-2].replace("/bin/sandpoold", "/bin/sandpool"),
             "sh", "sandpoold", "doctor", "--json", "--config", self.daemon.config_path],
            env={"PATH": "/usr/bin:/bin", "SANDPOOL_SOCKET": self.daemon.socket_path},
            capture_output=True, timeout=60, check=False)
        return {check["name"]: check for check in json.loads(done.stdout)["checks"]}

    def test_nobody_of_it_is_root(self):
        self.daemon.wait_idle(2)
        for pid in self.daemon.processes():
            self.assertNotEqual(host_uid(pid), 0, t.read_text(f"/proc/{pid}/cmdline"))

    def test_runs_and_answers(self):
        outcome = self.run_argv("/bin/sh", "-c", "cat; id -u; exit 3", stdin=b"in\n")
        self.assertExited(outcome, 3)
        self.assertEqual(outcome.stdout, b"in\n1000\n")

    def test_a_held_sandbox_keeps_its_files_until_it_is_released(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            self.assertExited(box.shell("echo kept >/workspace/file"))
            self.assertEqual(box.shell("cat /workspace/file").text, "kept")
            with box.stream() as stream:
                outcome = stream.run(argv=["/bin/sh", "-c", "tty; stty size"],
                                     tty={"rows": 31, "columns": 97})
            self.assertEqual(outcome.stdout.split(), [b"/dev/pts/0", b"31", b"97"])
            running = [pid for pid in self.daemon.inits()]
            self.assertExited(box.shell("(setsid sleep 1000 </dev/null >/dev/null 2>&1 &)"))
            # The shell may be over before its child has become the program.
            sleeper = wait_until(
                lambda: next((pid for pid, name, _state
                              in t.descendants_of(self.daemon.process.pid) if name == "sleep"),
                             None), what="the sleep inside")
            box.release()
            wait_until(lambda: not os.path.exists(f"/proc/{sleeper}"), what="the end of sleep")
            wait_until(lambda: set(running) - set(self.daemon.inits()), what="the end of PID 1")

    def test_a_timeout_kills_what_was_started(self):
        outcome = self.run_argv("/bin/sh", "-c", "sleep 1000 & sleep 1000", timeout="200ms")
        self.assertEqual(outcome.reason, "timeout")
        wait_until(lambda: not [1 for _pid, name, _state in
                                t.descendants_of(self.daemon.process.pid) if name == "sleep"],
                   what="no sleep is left")

    def test_a_timeout_of_a_held_one_keeps_the_sandbox(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            for _ in range(5):
                outcome = box.shell("sleep 1000 & sleep 1000", timeout="100ms")
                self.assertEqual(outcome.reason, "timeout")
                self.assertNotIn("sleep", box.shell("cat /proc/[0-9]*/comm").text)

    def test_limits_without_cgroups_are_shown_as_degraded(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            self.assertEqual(box.inspect()["limits_degraded"], LIMITS)
        self.assertGreater(self.daemon.metric_sum("sandpool_limits_degraded", pool="default"), 0)

    def test_doctor_lists_what_is_less(self):
        checks = self.doctor()
        self.assertEqual(checks["privilege"]["verdict"], "warn")
        self.assertIn(str(self.daemon.uid), checks["privilege"]["detail"])
        self.assertIn(", ".join(LIMITS), checks["limits in force"]["detail"])
        for name in LIMITS:
            self.assertEqual(checks[f"{name} limit"]["verdict"], "warn", checks)
            self.assertIn("Delegate=yes", checks[f"{name} limit"]["fix"])
        self.check_ids(checks["sandbox ids"])

    def test_a_writable_bind_keeps_its_owner(self):
        top = tempfile.mkdtemp(prefix="sandpool-rootless-", dir="/srv")
        self.addCleanup(shutil.rmtree, top)
        config = {"pools": {"default": {"max_idle": 1, "allowed_binds": [top]}}}
        with self.daemon_class(config) as daemon:
            os.chown(top, daemon.uid, daemon.uid)
            with daemon.acquire(policy="wait", wait="20s", binds=[
                    {"source": top, "target": "/workspace", "mode": "rw"}]) as box:
                self.assertEqual(box.shell("echo x >/workspace/new; stat -c %u /workspace").text, "1000")
            self.assertEqual(os.stat(f"{top}/new").st_uid, daemon.uid)

    def test_two_instances_of_a_user_live_side_by_side(self):
        with self.daemon_class({"pools": {"default": {"max_idle": 1}}}, uid=self.daemon.uid) as other:
            other.processes = lambda: set(t.cgroup_processes(other.instance))  # one lives on
            self.assertExited(other.run("/bin/true"))
            self.assertExited(self.run_argv("/bin/true"))


class WithOneId(Rootless):
    daemon_class = OneId

    def check_ids(self, check):
        self.assertEqual(check["verdict"], "warn")
        self.assertIn("separated by namespaces only", check["detail"])
        self.assertIn("usermod --add-subuids", check["fix"])

    def test_any_workload_is_the_user_on_the_host(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            with box.stream() as stream:
                stream.begin(argv=["/bin/sleep", "1000"])
                sleeper = [pid for pid, name, _state in
                           t.descendants_of(self.daemon.process.pid) if name == "sleep"]
                self.assertEqual([host_uid(pid) for pid in sleeper], [self.daemon.uid])
        self.assertIn("no subordinate ids", self.daemon.log())

    def test_a_signal_to_init_is_permitted_and_does_nothing(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            for name in ("KILL", "STOP", "TERM", "ABRT"):
                box.shell(f"kill -{name} 1; kill -{name} -1")
                self.assertExited(box.run("/bin/true"))

    def test_of_init_only_the_numbers_of_its_descriptors_are_seen(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            outcome = box.shell("ls /proc/1/fd >/dev/null && echo listed;"
                                "for f in mem environ maps fd/0 fd/3 task/1/mem; do"
                                "  cat /proc/1/$f 2>/dev/null && echo read $f; done;"
                                "for f in cwd root exe fd/3; do readlink /proc/1/$f && echo seen $f; done;"
                                "true")
            self.assertEqual(outcome.text, "listed")


class WithOwnIds(Rootless):
    daemon_class = OwnIds

    def check_ids(self, check):
        self.assertEqual(check["verdict"], "pass")
        self.assertIn(f"{OwnIds.subids // 2} sandboxes", check["detail"])

    def test_every_sandbox_has_ids_of_its_own(self):
        seen = set()
        for _ in range(2):
            box = self.daemon.acquire(policy="wait", wait="20s")
            self.addCleanup(box.__exit__, None, None, None)
            stream = box.stream()
            self.addCleanup(stream.close)
            stream.begin(argv=["/bin/sleep", "1000"])
        sandboxes = 0
        for pid, name, _state in t.descendants_of(self.daemon.process.pid):
            if name == "sleep" or t.is_init(pid):
                seen.add(host_uid(pid))
                sandboxes += 1
        self.assertGreaterEqual(sandboxes, 4)
        self.assertEqual(len(seen), sandboxes, "each PID 1 and each workload has one of its own")
        self.assertTrue(all(0 <= uid - self.daemon.first < OwnIds.subids for uid in seen), seen)

    def test_another_id_inside_does_not_exist(self):
        outcome = self.run_argv("/bin/true", uid=1001)
        self.assertEqual((outcome.reason, outcome.result["stage"]),
                         ("start_failed", "credentials"))

    def test_uid_base_0_takes_the_one_id(self):
        with self.daemon_class({"uid_base": 0}) as daemon:
            self.assertExited(daemon.run("/bin/true"))
            self.assertEqual({host_uid(pid) for pid in daemon.inits()} - {None}, {daemon.uid})


class Fewer(t.Case):
    """Fewer ids than sandboxes, and none that the tool would give."""

    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)

    def test_one_more_sandbox_than_there_are_ids_is_refused(self):
        class Four(RootlessDaemon):
            subids = 5  # two sandboxes; the fifth id is nobody's

        with Four({"pools": {"default": {"max_idle": 2}}}) as daemon:
            daemon.wait_idle(2)
            with daemon.acquire():
                wait_until(lambda: "take one of 2 uid slots" in (daemon.pool()["last_error"] or ""),
                           what="a creation that fails")
                self.assertEqual(daemon.pool()["idle"], 1)
            wait_until(lambda: daemon.pool()["idle"] == 2, what="the ids of the released one")

    def test_refused_by_newuidmap_falls_back_to_the_one_id(self):
        class Refused(RootlessDaemon):
            subids = RootlessDaemon.SUBIDS

            def start(self):
                # As under a unit with NoNewPrivileges=yes: newuidmap gets no privilege.
                self.prefix = [word.replace("exec setpriv", "exec setpriv --no-new-privs")
                               for word in self.prefix]
                return super().start()

        with Refused() as daemon:
            self.assertEqual(daemon.run("/bin/true").exit_code, 0)
            self.assertIn("refused=/usr/bin/newuidmap", daemon.log())
            self.assertEqual({host_uid(pid) for pid in daemon.inits()} - {None}, {daemon.uid})


class Limits(t.Case):
    def test_a_limit_that_cannot_be_enforced_is_refused_unless_allowed(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        with OneId({"degraded": False}, wait_ready=False) as daemon:
            wait_until(lambda: os.path.exists(daemon.socket_path) and
                       daemon.pool()["create_failures_total"], what="a creation that fails")
            self.assertIn("cgroup", daemon.pool()["last_error"])
            self.assertEqual(daemon.pool()["idle"], 0)


class Delegated(t.Case):
    """Cgroups that root has given to the user: then limits hold as for root."""

    def given(self, daemon):
        found = False
        for controller in LIMITS:
            for line in t.read_text("/proc/mounts").splitlines():
                _device, point, kind, options, *_rest = line.split()
                if kind != "cgroup" or controller not in options.split(","):
                    continue
                found = True
                base = f"{point}/sandpool/{daemon.instance}"
                os.makedirs(base, exist_ok=True)
                for name in ("", "/cgroup.procs", "/tasks"):
                    os.chown(base + name, daemon.uid, daemon.uid)
        return found

    @staticmethod
    def take_back():
        for base in glob.glob("/sys/fs/cgroup/*/sandpool"):
            with contextlib.suppress(OSError):  # another instance has it
                os.rmdir(base)

    def test_limits_hold_in_cgroups_of_the_user(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        daemon = OwnIds({"degraded": False, "pools": {"default": {
            "max_idle": 1, "limits": {"memory": "96MiB", "tmp": "32MiB", "pids": 32}}}})
        self.addCleanup(daemon.remove)
        self.addCleanup(self.take_back)
        self.addCleanup(daemon.kill)  # and its cgroups, which their owner may not remove
        if not self.given(daemon):
            self.skipTest("no cgroup v1 here that could be given to a user")
        daemon.start()
        with daemon.acquire(policy="wait", wait="20s") as box:
            self.assertEqual(box.inspect()["limits_degraded"], [])
            outcome = box.python("x = bytearray(200 << 20); print(len(x))")
            self.assertEqual(outcome.reason, "memory", outcome)
            outcome = box.shell("for i in $(seq 64); do sleep 5 & done; wait", timeout="4s")
            self.assertIn(b"fork", outcome.stderr)


def again(case, daemon_class, *left_out):
    """An escape suite with another daemon; left_out must say why at the call."""
    members = {name: None for name in left_out}
    members["daemon_class"] = daemon_class
    name = f"{daemon_class.__name__}{case.__name__}"
    globals()[name] = type(name, (case,), {**members, "__module__": __name__})


for _class in (OneId, OwnIds):
    # Without cgroups there is no tree to hide; which the control needs.
    again(test_files.Supervisor, _class, "test_cgroup_tree_is_out_of_reach_b023")
    again(test_files.HostFiles, _class)
    again(test_files.Neighbours, _class)
    again(test_network.Network, _class)
    again(test_syscalls.Syscalls, _class,
          # With one id the numbers of its descriptors can be listed: see WithOneId.
          *(["test_new_processes_of_init_cannot_be_attacked_b028"] if _class is OneId else []))
    # Where init hunts, and cannot tell whose a process is, the sandbox goes.
    again(test_limits.Timeouts, _class, "test_stopping_everything_in_a_loop_wedges_nothing",
          # With one id the signal is permitted, and does nothing: see WithOneId.
          *(["test_nobody_can_kill_init_b087_b088"] if _class is OneId else []))
del Rootless


if __name__ == "__main__":
    main()
