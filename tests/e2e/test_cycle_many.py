"""Thousands of acquire, exec, release: nothing grows, nothing is left, every count is right."""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, limit, main, wait_until  # noqa: E402

CYCLES = int(os.environ.get("SP_CYCLES", "10000"))
CLIENTS = 2


class Cycle(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 8, "warmup_concurrency": 4}}}

    def cycles(self, count, failures, ids):
        # A kept connection: one fresh sandbox per START.
        with self.daemon.run_stream(timeout=60) as stream:
            for number in range(count):
                word = f"cycle-{number}"
                outcome = stream.run(argv=["/bin/echo", word], policy="wait", wait="30s")
                if outcome.reason != "exited" or outcome.text != word:
                    failures.append(outcome)
                ids.append(1)

    @limit(600)
    def test_many_cycles(self):
        self.daemon.wait_settled()
        self.cycles(100, [], [])  # warm-up: allocator, connection tables
        self.daemon.wait_settled()
        processes = [self.daemon.pid, self.daemon.launcher_pid]
        before = [(t.fd_count(pid), t.rss_kib(pid)) for pid in processes]
        acquired = self.daemon.metric_sum("sandpool_acquire_total")
        failures, done = [], []
        start = time.monotonic()
        threads = [threading.Thread(target=self.cycles, args=(CYCLES // CLIENTS, failures, done))
                   for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - start
        print(f"{len(done)} cycles, {len(done) / took:.0f}/s", flush=True)
        self.assertEqual(failures[:3], [])
        self.assertEqual(len(done), CYCLES // CLIENTS * CLIENTS)
        self.daemon.wait_settled()
        self.assertEqual(self.daemon.metric_sum("sandpool_acquire_total") - acquired, len(done))
        for pid, (descriptors, rss) in zip(processes, before):
            name = t.read_text(f"/proc/{pid}/comm").strip()
            self.assertLessEqual(t.fd_count(pid), descriptors + 4, name)
            if t.SLOW_FACTOR == 1:  # a sanitizer's quarantine grows
                self.assertLess(t.rss_kib(pid), rss + 4096, name)
            self.assertEqual([child for child in t.children_of(pid) if child[2] == "Z"], [], name)
        # As many cgroups and processes as sandboxes that are there now.
        wait_until(lambda: len(self.daemon.inits()) == 8, 5, "8 processes")
        state = self.daemon.config["state_dir"]
        self.assertLess(sum(len(files) for _top, _dirs, files in os.walk(state)), 10)

    @limit(300)
    def test_held_sandbox_runs_many_b073_b084(self):
        count = max(CYCLES // 5, 100)
        with self.daemon.acquire(policy="wait", wait="20s") as box, box.stream(60) as stream:
            for _ in range(50):
                stream.run(argv=["/bin/true"])
            before = (t.fd_count(self.daemon.pid), t.rss_kib(self.daemon.pid))
            for _ in range(count):
                self.assertExited(stream.run(argv=["/bin/true"], timeout="3600s"))
            self.assertLessEqual(t.fd_count(self.daemon.pid), before[0] + 4)
            if t.SLOW_FACTOR == 1:
                self.assertLess(t.rss_kib(self.daemon.pid), before[1] + 2048)
            self.assertEqual(box.inspect()["execs_total"], count + 50)


if __name__ == "__main__":
    main()
