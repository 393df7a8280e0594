"""kill -9 of the daemon, of the launcher and of random sandboxes under load, many times over.

After each: every client got an answer (a result, a typed error or a closed connection, never
silence), nothing is left behind, and the pool fills again.
"""

import contextlib
import http.client
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Case, Daemon, limit, main, wait_until  # noqa: E402

KILLS = int(os.environ.get("SP_KILLS", "100"))
CLIENTS = 3
ANSWER_S = 20


class Load:
    """Clients that run programs until told to stop and note every request that got no answer."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.stopping = threading.Event()
        self.done = 0
        self.typed = 0
        self.closed = 0
        self.silent = []
        self.wrong = []
        self.threads = [threading.Thread(target=self.client, args=(number,))
                        for number in range(CLIENTS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(ANSWER_S * 2 * t.SLOW_FACTOR)

    def client(self, number):
        count = 0
        while not self.stopping.is_set():
            count += 1
            word = f"{number}-{count}"
            try:
                if count % 3:
                    outcome = self.daemon.run("/bin/echo", word, timeout_s=ANSWER_S, wait="10s")
                else:
                    with self.daemon.acquire(timeout=ANSWER_S, policy="wait", wait="10s") as box:
                        outcome = box.run("/bin/sh", "-c", f"sleep 0.02; echo {word}",
                                          timeout_s=ANSWER_S)
                if outcome.reason == "exited":
                    self.done += 1
                    if outcome.text != word:
                        self.wrong.append((word, outcome))
                else:
                    self.typed += 1
            except t.ApiError as error:
                if error.code is None:
                    self.wrong.append((word, error))
                self.typed += 1
                time.sleep(0.01)
            except TimeoutError as error:
                self.silent.append((word, error))
            except (OSError, http.client.HTTPException, t.StreamClosed):
                self.closed += 1
                time.sleep(0.02)
            except Exception as error:  # pylint: disable=broad-except
                self.wrong.append((word, repr(error)))


class Kill(Case):
    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        self.random = random.Random(20)

    def daemon(self):
        daemon = Daemon({"pools": {"default": {"max_idle": 4, "max_total": 16}}})
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.kill)
        return daemon

    def verdict(self, load):
        self.assertEqual(load.silent, [])
        self.assertEqual(load.wrong, [])
        self.assertGreater(load.done, 0)

    @limit(900)
    def test_daemon_b071_b074(self):
        daemon = self.daemon()
        daemon.start()
        with Load(daemon) as load:
            for _ in range(KILLS):
                time.sleep(self.random.uniform(0.02, 0.3))
                daemon.process.kill()
                daemon.process.wait()
                # The socket of a dead daemon is a leftover that the next start removes.
                wait_until(lambda: not daemon.inits(), 5, "sandboxes died with the daemon")
                daemon.start()
        self.verdict(load)
        daemon.wait_settled()
        daemon.stop()
        print(f"{load.done} done, {load.typed} typed errors, {load.closed} closed", flush=True)

    @limit(900)
    def test_launcher_b071(self):
        daemon = self.daemon()
        daemon.start()
        with Load(daemon) as load:
            for _ in range(max(KILLS // 4, 5)):
                time.sleep(self.random.uniform(0.02, 0.3))
                launcher = daemon.launcher_pid
                os.kill(launcher, signal.SIGKILL)
                # Either the daemon ends, loudly, and its service manager starts it again, or it
                # starts a new launcher.
                def reacted():
                    if daemon.process.poll() is not None:
                        return True
                    with contextlib.suppress(AssertionError):
                        return daemon.launcher_pid != launcher
                    return False
                wait_until(reacted, 15, "the loss of the launcher is noticed")
                if daemon.process.poll() is not None:
                    self.assertNotEqual(daemon.process.returncode, 0)
                    wait_until(lambda: not daemon.inits(), 5, "sandboxes died with the launcher")
                    daemon.start()
                else:
                    daemon.ready()
        self.verdict(load)
        daemon.wait_settled()
        daemon.stop()
        print(f"{load.done} done, {load.typed} typed errors, {load.closed} closed", flush=True)

    @limit(600)
    def test_random_sandboxes_b089(self):
        daemon = self.daemon()
        daemon.start()
        killed = 0
        with Load(daemon) as load:
            end = time.monotonic() + 60
            while killed < KILLS and time.monotonic() < end:
                time.sleep(self.random.uniform(0.005, 0.05))
                inits = daemon.inits()
                if inits:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.random.choice(inits), signal.SIGKILL)
                        killed += 1
        self.verdict(load)
        self.assertIsNone(daemon.process.poll(), daemon.log()[-2000:])
        daemon.wait_settled()
        self.assertGreater(daemon.metric_sum("sandpool_ends_total", reason="died"), 0)
        # Whatever is listed as idle is alive.
        for _ in range(4):
            self.assertEqual(daemon.run("/bin/echo", "x").text, "x")
        daemon.stop()
        print(f"{killed} killed, {load.done} done, {load.typed} typed errors", flush=True)


def alive(pid):
    state = t.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


class Outside(Case):
    """Things done to a sandbox behind the daemon's back."""

    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)

    def test_idle_one_that_died_is_never_handed_out_b089(self):
        with Daemon({"pools": {"default": {"max_idle": 3}}}) as daemon:
            for _ in range(20):
                killed = daemon.inits()
                for pid in killed:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                # Dying takes the kernel a while; from then on it is the daemon's business.
                wait_until(lambda: not any(alive(pid) for pid in killed), 5, "they are dead",
                           interval=0.001)
                with daemon.acquire(policy="wait", wait="10s") as box:
                    self.assertEqual(box.run("/bin/echo", "x").reason, "exited")

    def test_frozen_sandbox_is_released_b064(self):
        with Daemon() as daemon:
            box = daemon.acquire()
            box.run("/bin/true")
            with box.stream() as stream:
                stream.begin(argv=["/bin/sleep", "1000"])
                frozen = self.freeze(daemon)
                if not frozen:
                    self.skipTest("no cgroup of this host can be frozen")
                start = time.monotonic()
                box.release()
                wait_until(lambda: not any(os.path.exists(path) for path in frozen), 5,
                           "the frozen sandbox is gone")
                self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)

    @staticmethod
    def freeze(daemon):
        """Freeze every leaf v2 cgroup that holds the sleeping exec; their paths."""
        frozen = []
        for top in t.cgroups_of(daemon.instance):
            for directory, _names, files in os.walk(top):
                procs = t.read_text(f"{directory}/cgroup.procs").split()
                if "cgroup.freeze" in files and any(
                        "1000" in t.read_text(f"/proc/{pid}/cmdline") for pid in procs):
                    with open(f"{directory}/cgroup.freeze", "w", encoding="ascii") as file:
                        file.write("1")
                    frozen.append(directory)
        return frozen

    def test_one_cgroup_removed_by_hand_b065(self):
        with Daemon({"pools": {"default": {"max_idle": 2}}}) as daemon:
            victim = daemon.inits()[0]
            os.kill(victim, signal.SIGKILL)
            for top in t.cgroups_of(daemon.instance):
                for directory, _names, _files in os.walk(top, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(directory)  # only empty ones go
            wait_until(lambda: victim not in daemon.inits(), what="its end is noticed")
            daemon.wait_settled()
            self.assertEqual(daemon.run("/bin/echo", "x").text, "x")

    def test_stopped_daemon_does_not_make_leases_immortal(self):
        with Daemon() as daemon:
            box = daemon.acquire(ttl="1s")
            box.run("/bin/true")
            before = set(daemon.inits())
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                # init's own deadline: the end plus 5 s.
                wait_until(lambda: len(before & set(daemon.inits())) < len(before), 12,
                           "init ended itself")
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
            daemon.wait_settled()

    def test_root_that_vanished_backs_off_and_recovers_b110(self):
        import shutil
        import tempfile
        root = tempfile.mkdtemp(prefix="sandpool-vanish-", dir="/srv")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        os.chmod(root, 0o755)
        for name in ("bin", "tmp", "home", "run", "workspace", "data", "mnt", "proc", "dev", "etc"):
            os.mkdir(f"{root}/{name}")
        shutil.copy(t.PROGRAMS / "escape" / "ids", f"{root}/bin/ids")
        with Daemon({"pools": {"default": {"max_idle": 1}, "image": {"root": root, "max_idle": 1}}},
                    ) as daemon:
            self.assertEqual(daemon.run("/bin/ids", pool="image").reason, "exited")
            # The other pool is untouched by whatever happens to this one.
            os.rename(f"{root}/bin", f"{root}/nib")
            self.assertEqual(daemon.run("/bin/echo", "x").text, "x")
            os.rename(f"{root}/nib", f"{root}/bin")
            daemon.wait_settled("image")
            self.assertEqual(daemon.run("/bin/ids", pool="image").reason, "exited")


if __name__ == "__main__":
    main()
