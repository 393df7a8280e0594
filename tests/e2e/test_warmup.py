"""A pool's warm-up and readiness check: what is idle is warm, what does not get warm fails aloud."""

import concurrent.futures
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import (PYTHON, Case, Daemon, RootlessDaemon, SandpoolCase, limit,  # noqa: E402
                           main, wait_until)

SERVER = """
import os, socket
listener = socket.create_server(("127.0.0.1", 8765))
if os.fork():
    os._exit(0)
os.setsid()
while True:
    peer, _address = listener.accept()
    with peer:
        peer.sendall(b"warm\\n")
"""
ASK = """
import socket
with socket.create_connection(("127.0.0.1", 8765), 5) as peer:
    print(peer.makefile().readline().strip())
"""
# What the kernel says of whoever runs it.
WHO = ("id; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; ulimit -n; pwd; "
       "grep -c : /proc/net/dev; grep -v ^0: /proc/self/cgroup; "
       "touch /etc/x 2>&1; ls /root 2>&1; env | grep -v ^_ | sort")


def sh(text):
    return ["/bin/sh", "-c", text]


def has_exec_cgroups():
    return any(line.split()[2] == "cgroup2" for line in t.read_text("/proc/mounts").splitlines())


def answers(daemon):
    """It serves; it need not be ready."""
    try:
        return daemon.request("GET", "/healthz", timeout=5).status == 200
    except OSError:
        return False


class Warm(SandpoolCase):
    config = {"pools": {"default": {
        "max_idle": 2,
        "warmup": {"command": sh(f"echo run >>/workspace/runs; {{ {WHO}; }} >/workspace/who; "
                                 f"exec {PYTHON} -c '{SERVER}'")},
        "readiness": {"command": sh("echo try >>/workspace/tries; "
                                    "test $(wc -l </workspace/tries) -ge 3"),
                      "interval": "20ms"},
    }}}

    def test_what_it_wrote_and_what_it_started_is_there_p158(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            self.assertEqual(box.shell("cat /workspace/runs").text, "run")
            self.assertEqual(box.python(ASK).text, "warm")
            self.assertEqual(box.python(ASK).text, "warm")

    def test_runs_once_however_often_the_check_is_made_p185(self):
        for _ in range(3):
            outcome = self.daemon.run("/bin/cat", "/workspace/runs", "/workspace/tries")
            self.assertEqual(outcome.text.split(), ["run", "try", "try", "try"])

    def test_has_the_rights_of_what_a_client_runs_b036(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            mine = box.shell(f"{{ {WHO}; }}").text
            self.assertIn("uid=1000", mine)
            self.assertIn("NoNewPrivs:\t1", mine)
            self.assertEqual(box.shell("cat /workspace/who").text, mine)

    def test_is_no_exec_of_anybody(self):
        self.daemon.wait_settled()
        before = self.daemon.metric_sum("sandpool_exec_duration_seconds_count")
        made = self.daemon.metric_sum("sandpool_create_duration_seconds_count", stage="warmup")
        with self.daemon.acquire() as box:
            found = box.inspect()
            self.assertEqual((found["execs_total"], found["running_execs"]), (0, 0))
            self.daemon.wait_settled()
            self.assertEqual(self.daemon.metric_sum("sandpool_exec_duration_seconds_count"), before)
            box.run("/bin/true")
            self.assertEqual(box.inspect()["execs_total"], 1)
        for stage in ("warmup", "readiness", "total"):
            self.assertGreater(self.daemon.metric_sum("sandpool_create_duration_seconds_count",
                                                      stage=stage), made - 1, stage)

    def test_a_program_that_is_killed_leaves_the_server_alone(self):
        if not has_exec_cgroups():
            self.skipTest("no cgroup v2: then a timeout takes the sandbox")
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            outcome = box.shell("sleep 1000 & sleep 1000", timeout="300ms")
            self.assertEqual(outcome.reason, "timeout")
            self.assertEqual(box.python(ASK).text, "warm")

    def test_its_server_goes_with_the_sandbox(self):
        self.daemon.wait_settled()
        box = self.daemon.acquire()
        pid = box.inspect().get("host_pid")
        inits = set(self.daemon.inits())
        box.release()
        wait_until(lambda: inits - set(self.daemon.inits()), what=f"the end of PID 1 {pid or ''}")
        self.daemon.wait_settled()
        servers = [1 for _pid, name, _state in t.descendants_of(self.daemon.process.pid)
                   if name.startswith("python")]
        self.assertEqual(len(servers), len(self.daemon.inits()))


class HookCase(Case):
    """Each test has a daemon of its own, and a directory whose files say what the hooks do."""

    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        self.gate = tempfile.mkdtemp(prefix="sandpool-gate-", dir="/srv")
        self.addCleanup(shutil.rmtree, self.gate)
        os.chmod(self.gate, 0o755)
        self.daemon = None

    def file(self, name):
        return os.path.join(self.gate, name)

    def open(self, name="open"):
        with open(self.file(name), "w", encoding="ascii"):
            pass

    def until_open(self, name="open"):
        return f"while [ ! -e {self.file(name)} ]; do sleep 0.02; done"

    def pool(self, **pool):
        return {"max_idle": 2, "layers": [self.gate], **pool}

    def start(self, daemon_class=Daemon, **pool):
        daemon = daemon_class({"pools": {"default": self.pool(**pool)}}, wait_ready=False)
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.kill)
        daemon.start()
        wait_until(lambda: answers(daemon), what="an answer")
        self.daemon = daemon
        return daemon

    def wait_creating(self, count=2):
        """…, the warm-up under way in all of them."""
        def warming():
            now = self.daemon.pool()
            return (now["creating"] == count and self.daemon.metric_sum(
                "sandpool_create_duration_seconds_count", stage="init") >= count)
        wait_until(warming, what=f"{count} that are being warmed up")

    def failures(self, stage):
        return self.daemon.metric_sum("sandpool_create_failures_total", stage=stage)

    def fails(self, stage, *words):
        """The pool's creations fail there, and say so; an acquire is told too."""
        daemon = self.daemon
        wait_until(lambda: self.failures(stage), what=f"a failure of stage {stage}")
        error = daemon.pool()["last_error"]
        with self.refused("CREATE_FAILED", 503) as caught:
            daemon.acquire(policy="create", wait="20s")
        for word in (stage, *words):
            self.assertIn(word, error)
            self.assertIn(word, caught.exception.response.json["message"])
        self.assertEqual(daemon.pool()["idle"], 0)


class Warming(HookCase):
    """While it goes on it is a creation like any other."""

    def setUp(self):
        super().setUp()
        self.start(warmup={"command": sh(self.until_open()), "timeout": "5m"},
                   readiness={"command": ["true"]})
        self.wait_creating()

    def test_nobody_gets_it_before_it_is_warm(self):
        daemon = self.daemon
        self.assertEqual(daemon.pool()["idle"], 0)
        self.assertEqual(daemon.metric_sum("sandpool_running_execs"), 0)
        self.assertEqual(daemon.request("GET", "/readyz").status, 503)
        with self.refused("POOL_EMPTY", 503):
            daemon.acquire(policy="fail_fast")
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            waiting = executor.submit(daemon.acquire, policy="wait", wait="20s")
            wait_until(lambda: daemon.pool()["waiters"] == 1, what="a waiter")
            self.open()
            box = waiting.result(20)
        self.assertEqual(box.run("/bin/echo", "x").text, "x")
        daemon.wait_settled()
        box.release()
        daemon.wait_settled()
        daemon.stop()

    def test_a_stop_does_not_wait_for_it_and_leaves_nothing_p191(self):
        start = time.monotonic()
        self.daemon.stop()
        self.assertLess(time.monotonic() - start, 10 * t.SLOW_FACTOR)

    def test_the_daemons_death_ends_it(self):
        os.kill(self.daemon.pid, signal.SIGKILL)
        wait_until(lambda: not self.daemon.processes(), what="the end of everything")

    def test_a_daemon_that_stands_still_does_not_keep_it(self):
        daemon = self.daemon
        daemon.write_config({"pools": {"default": {
            "readiness": None, "create_timeout": "2s",
            "warmup": {"command": ["tail", "-f", "/dev/null"], "timeout": "2s"}}}})
        self.assertEqual(daemon.request("POST", "/v1/reload").status, 204)

        def warming():
            names = [name for _pid, name, _state in t.descendants_of(daemon.process.pid)]
            return names.count("tail") == len(daemon.inits()) == 2
        wait_until(warming, what="two that are being warmed up", interval=0.002)
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            # init's own deadline: that of the creation plus 5 s.
            wait_until(lambda: not daemon.inits(), timeout=20, what="the end of every PID 1")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        daemon.stop()

    def test_a_drain_ends_it(self):
        self.daemon.call("POST", "/v1/pools/default/drain", {})
        wait_until(lambda: not self.daemon.inits(), what="no sandbox")
        self.assertEqual(self.daemon.pool()["creating"], 0)
        self.open()
        self.daemon.call("POST", "/v1/pools/default/resume", {})
        self.daemon.wait_settled()
        self.daemon.stop()

    def test_sizes_count_it_p180(self):
        daemon = self.daemon
        daemon.call("POST", "/v1/pools/default/resize", {"max_idle": 0})
        self.open()
        wait_until(lambda: not daemon.inits(), what="no sandbox")
        self.assertEqual(daemon.pool()["idle"], 0)
        os.unlink(self.file("open"))
        daemon.call("POST", "/v1/pools/default/resize", {"max_idle": 3})
        wait_until(lambda: daemon.pool()["creating"] == 3, what="three that are being warmed up")
        time.sleep(1.2)  # a tick
        self.assertEqual((daemon.pool()["creating"], len(daemon.inits())), (3, 3))
        self.open()
        daemon.wait_settled()
        self.assertEqual(daemon.pool()["idle"], 3)
        daemon.stop()

    def test_death_meanwhile_is_a_failure_of_this_stage(self):
        victim = self.daemon.inits()[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: self.failures("warmup") == 1, what="a failure")
        self.assertIn("warmup: the sandbox died", self.daemon.pool()["last_error"])
        self.open()
        self.daemon.wait_settled()
        self.assertIsNone(self.daemon.pool()["last_error"])
        self.daemon.stop()

    def test_a_reload_with_another_command_begins_anew(self):
        daemon = self.daemon
        daemon.write_config({"pools": {"default": {"warmup": {
            "command": sh("echo new >/workspace/made")}}}})
        self.assertEqual(daemon.request("POST", "/v1/reload").status, 204)
        daemon.wait_settled()
        self.assertEqual(daemon.metric_sum("sandpool_ends_total", reason="spec_changed"), 2)
        self.assertEqual(daemon.run("/bin/cat", "/workspace/made").text, "new")
        daemon.wait_settled()
        self.assertEqual(self.failures("warmup"), 0)
        daemon.stop()

    def test_a_reload_with_another_time_does_not_disturb_it(self):
        daemon = self.daemon
        before = set(daemon.inits())
        daemon.write_config({"pools": {"default": {"warmup": {"timeout": "4m"},
                                                   "readiness": {"interval": "1s"}}}})
        self.assertEqual(daemon.request("POST", "/v1/reload").status, 204)
        time.sleep(0.3)
        self.assertEqual(set(daemon.inits()), before)
        self.open()
        daemon.wait_settled()
        self.assertEqual(set(daemon.inits()), before)
        daemon.stop()

    def test_a_reload_without_the_pool_ends_it(self):
        daemon = self.daemon
        daemon.write_config({"pools": {"default": None, "other": {"max_idle": 0}}})
        self.assertEqual(daemon.request("POST", "/v1/reload").status, 204)
        wait_until(lambda: not daemon.inits(), what="no sandbox")
        daemon.stop()


class Slots(HookCase):
    def test_a_slow_one_holds_nobody_back_p182_b114(self):
        lock = self.file("lock")
        self.open("lock")
        # Who gets the lock takes for ever.
        self.start(max_idle=3, warmup={
            "command": sh(f"exec 9<{lock}; ! flock -n 9 || exec sleep 1000"), "timeout": "2s"})
        self.daemon.wait_idle(2)
        self.assertEqual(self.daemon.pool()["creating"], 1)
        # Its slot is free again at its timeout, and made use of (P-183).
        wait_until(lambda: self.failures("warmup") == 2, timeout=30, what="two timeouts")
        self.assertGreaterEqual(self.daemon.pool()["idle"], 2)
        self.daemon.stop()

    def test_who_has_one_made_gets_it_warm(self):
        daemon = self.start(max_idle=0, warmup={
            "command": sh(f"{self.until_open()}; echo warm >/workspace/made")})
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            asked = executor.submit(daemon.acquire, policy="create", wait="20s")
            self.wait_creating(1)
            self.assertFalse(asked.done())
            self.open()
            box = asked.result(20)
        self.assertEqual(box.run("/bin/cat", "/workspace/made").text, "warm")
        box.release()
        daemon.stop()

    def test_a_creation_may_take_the_time_of_its_hooks_too(self):
        self.start(max_idle=1, create_timeout="2s",
                   warmup={"command": ["sleep", "2.5"], "timeout": "1m"})
        self.daemon.wait_settled(timeout=30)
        self.assertEqual(self.daemon.pool()["create_failures_total"], 0)
        self.daemon.stop()


class Failing(HookCase):
    def test_another_status_than_zero(self):
        daemon = self.start(warmup={"command": sh("echo first; echo 'the \"reason\"' >&2; exit 3")})
        self.fails("warmup", "'/bin/sh' exited with status 3")
        wait_until(lambda: daemon.pool()["backoff_active"], what="backoff")
        with self.refused("ACQUIRE_TIMEOUT", 503) as caught:
            daemon.acquire(policy="wait", wait="100ms")
        self.assertIn("creating fails: warmup: '/bin/sh' exited with status 3",
                      caught.exception.response.json["message"])
        with self.refused("POOL_EMPTY", 503):
            daemon.acquire(policy="fail_fast")
        self.assertRegex(daemon.log(), r'stage=warmup output="first\\nthe \\"reason\\"\\n"')
        daemon.stop()

    def test_one_acquire_one_creation_p186(self):
        daemon = self.start(max_idle=0, warmup={"command": ["false"]})
        for number in (1, 2):
            with self.refused("CREATE_FAILED", 503) as caught:
                daemon.acquire(policy="create", wait="20s")
            self.assertIn("warmup: 'false' exited with status 1",
                          caught.exception.response.json["message"])
            self.assertEqual(daemon.metric_sum("sandpool_create_duration_seconds_count",
                                               stage="launcher"), number)
            self.assertEqual(self.failures("warmup"), number)
        daemon.stop()

    def test_the_pool_heals_when_it_succeeds_again(self):
        daemon = self.start(backoff_max="1s", warmup={
            "command": sh(f"test -e {self.file('open')}")})
        wait_until(lambda: daemon.pool()["health"] == "degraded", what="a degraded pool")
        self.open()
        daemon.wait_settled()
        self.assertEqual(daemon.pool()["health"], "healthy")
        daemon.stop()

    def test_too_slow(self):
        self.start(warmup={"command": sh("echo slow; sleep 1000"), "timeout": "300ms"})
        self.fails("warmup", "'/bin/sh' did not end within 300ms")
        self.assertIn('output="slow\\n"', self.daemon.log())
        self.daemon.stop()

    def test_no_such_program_is_a_fault_that_stays(self):
        self.start(warmup={"command": ["no-such-program"]})
        wait_until(lambda: self.failures("warmup"), what="a failure")
        now = self.daemon.pool()
        self.assertIn("did not start: 'no-such-program': No such file", now["last_error"])
        self.assertEqual(now["health"], "degraded")
        self.daemon.stop()

    def test_killed_by_a_signal(self):
        self.start(warmup={"command": sh("kill -SEGV $$")})
        self.fails("warmup", "'/bin/sh' was killed by signal 11")
        self.daemon.stop()

    def test_more_output_than_is_allowed(self):
        limits = {"limits": {"output": "64KiB"}}
        self.start(**limits, warmup={"command": sh("head -c 65537 /dev/zero; sleep 1000")})
        self.fails("warmup", "'/bin/sh' wrote more than limits.output")
        self.daemon.stop()

    def test_as_much_output_as_is_allowed(self):
        limits = {"limits": {"output": "64KiB"}}
        self.start(**limits, warmup={"command": sh("head -c 65536 /dev/zero")})
        self.daemon.wait_settled()
        self.daemon.stop()



class Readiness(HookCase):
    def test_never_ready(self):
        self.start(warmup={"command": sh("echo run >>/workspace/runs")},
                   readiness={"command": sh("echo; echo not yet; exit 9"), "interval": "50ms",
                              "timeout": "400ms"})
        self.fails("readiness", "not ready after 400ms and ", "'/bin/sh' exited with status 9")
        self.assertIn('stage=readiness output="\\nnot yet\\n"', self.daemon.log())
        self.assertEqual(self.failures("warmup"), 0)
        self.daemon.stop()

    def test_no_time_at_all_is_one_attempt_p184(self):
        daemon = self.start(readiness={"command": sh(f"test -e {self.file('open')}"), "timeout": 0,
                                       "interval": "10ms"}, backoff_max="1s")
        self.fails("readiness", "and 1 attempts: '/bin/sh' exited with status 1")
        self.open()
        daemon.wait_settled()
        daemon.stop()

    def test_the_last_attempt_is_at_the_end_of_the_time_p184(self):
        second = "test -e /workspace/first || { touch /workspace/first; exit 1; }"
        daemon = self.start(readiness={"command": sh(second), "interval": "5m", "timeout": "300ms"})
        daemon.wait_settled()
        self.assertEqual(self.failures("readiness"), 0)
        self.assertGreaterEqual(
            daemon.metric_sum("sandpool_create_duration_seconds_sum", stage="readiness"), 0.6)
        daemon.stop()

    def test_one_more_attempt_when_the_time_passed_during_one_p184(self):
        if not has_exec_cgroups():
            self.skipTest("no cgroup v2: a kill may take the sandbox")
        second = "test -e /workspace/first || { touch /workspace/first; exec sleep 1000; }"
        daemon = self.start(readiness={"command": sh(second), "interval": "5m", "timeout": "50ms",
                                       "attempt_timeout": "2s"})
        daemon.wait_settled()
        self.assertEqual(self.failures("readiness"), 0)
        daemon.stop()

    def test_the_last_attempt_decides(self):
        third = "echo x >>/workspace/tries; test $(wc -l </workspace/tries) -ge 3"
        self.start(readiness={"command": sh(third), "interval": "5m", "timeout": "100ms"})
        self.fails("readiness", "not ready after 100ms and 2 attempts")
        self.daemon.stop()

    def test_an_attempt_that_hangs_is_killed_alone(self):
        if not has_exec_cgroups():
            self.skipTest("no cgroup v2: a kill may take the sandbox")
        hang = "test -e /workspace/first || { touch /workspace/first; setsid sleep 1000 & wait; }"
        daemon = self.start(
            warmup={"command": [PYTHON, "-c", SERVER]},
            readiness={"command": sh(hang), "interval": "10ms", "attempt_timeout": "300ms"})
        daemon.wait_settled()
        with daemon.acquire() as box:
            self.assertEqual(box.python(ASK).text, "warm")
            self.assertNotIn("sleep", box.run("/bin/ps", "-eo", "comm").text.split())
        self.assertEqual(daemon.pool()["create_failures_total"], 0)
        daemon.stop()

    def test_hanging_attempts_end_the_creation(self):
        self.start(readiness={"command": ["sleep", "1000"], "interval": "10ms", "timeout": "200ms",
                              "attempt_timeout": "150ms"})
        self.fails("readiness", "'sleep' took longer than attempt_timeout")
        self.daemon.stop()

    def test_death_during_the_check(self):
        daemon = self.start(max_idle=1, readiness={
            "command": sh(f"test -e {self.file('open')}"), "timeout": "5m"})
        self.wait_creating(1)
        os.kill(daemon.inits()[0], signal.SIGKILL)
        wait_until(lambda: self.failures("readiness") == 1, what="a failure")
        self.assertIn("readiness: the sandbox died", daemon.pool()["last_error"])
        self.open()
        daemon.wait_settled()
        daemon.stop()

    def test_a_stop_between_two_attempts(self):
        self.start(readiness={"command": ["false"], "interval": "5m", "timeout": "10m"})
        self.wait_creating()
        time.sleep(0.2)
        self.daemon.stop()


class NoExec(Case):
    def test_clients_may_run_nothing_and_it_is_warm_all_the_same(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        config = {"exec_enabled": False, "pools": {"default": {
            "warmup": {"command": ["true"]}, "readiness": {"command": ["true"]}}}}
        with Daemon(config) as daemon:
            daemon.wait_settled()
            with daemon.acquire() as box, self.refused("EXEC_DISABLED"):
                daemon.call("POST", f"/v1/sandboxes/{box.id}/exec", {"argv": ["true"]},
                            headers=box.headers())
            daemon.wait_settled()


class Others(HookCase):
    """Where a sandbox is less than usual."""

    def warm(self, daemon_class=Daemon, **config):
        pool = {"max_idle": 1, "warmup": {"command": [PYTHON, "-c", SERVER]},
                "readiness": {"command": [PYTHON, "-c", ASK]}}
        config.setdefault("pools", {})
        config["pools"] = t.merge({"default": pool}, config["pools"])
        with daemon_class(config) as daemon:
            daemon.wait_settled()
            with daemon.acquire() as box:
                self.assertEqual(box.python(ASK).text, "warm")
                self.assertEqual(box.inspect()["execs_total"], 1)
            wait_until(lambda: daemon.metric_sum("sandpool_ends_total", reason="released") == 1,
                       what="its end")

    def test_direct_processes(self):
        self.warm(allow_direct=True, pools={"default": {
            "backend": "direct", "direct_user": "nobody"}})

    def test_direct_attempt_that_hangs_beside_what_was_left_running(self):
        """Nobody can tell whose a process is there: the creation fails, and nothing stays."""
        with Daemon({"allow_direct": True, "pools": {"default": {
                "backend": "direct", "direct_user": "nobody", "max_idle": 1,
                "warmup": {"command": sh("(setsid sleep 998 >/dev/null 2>&1 &)")},
                "readiness": {"command": ["sleep", "999"], "attempt_timeout": "200ms"},
        }}}, wait_ready=False) as daemon:
            wait_until(lambda: answers(daemon), what="an answer")
            wait_until(lambda: daemon.metric_sum("sandpool_create_failures_total",
                                                 stage="readiness"), what="a failure")
            self.assertIn("could not be killed alone", daemon.pool()["last_error"])

    def test_rootless_with_one_id(self):
        self.warm(RootlessDaemon)

    def test_rootless_with_ids_of_its_own(self):
        class OwnIds(RootlessDaemon):
            subids = RootlessDaemon.SUBIDS

        self.warm(OwnIds)


class Nothing(Case):
    """Where no hook is configured nothing is started."""

    @limit(60)
    def test_no_exec_before_the_first_client(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        with Daemon({}) as daemon:
            daemon.wait_settled()
            with daemon.acquire() as box:
                # init numbers what it starts from 2 on: the client's is the first.
                self.assertEqual(box.run("/bin/sh", "-c", "echo $$").text, "2")
            text = daemon.request("GET", "/metrics").body.decode()
            self.assertNotIn('stage="warmup"', text)
            self.assertNotIn('stage="readiness"', text)


if __name__ == "__main__":
    main()
