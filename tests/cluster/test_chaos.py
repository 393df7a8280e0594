"""Three hosts, sixty idle, clients over Redis and HTTP, and a random fault every half second.

After each seed everything is healed; then, within seconds, work goes on, the pool is full, and every
count agrees. What clients and observers saw on the way is held against the rules of history.py: no
sandbox ever had two holders, nothing leaked, nothing ended early or late, nobody was overtaken.

    SP_SEED=7            that seed alone; 21-40: those
    SP_SEEDS=20          so many, from 1
    SP_CHAOS_SECONDS=5   length of a seed (60 for a long run)
    SP_CHAOS_RATE=100    attempts per second of all clients

The rate is what two cores that others use too can carry together with three daemons, the creation
and death of every sandbox that is taken, Redis, and clients in Python: about a third of the 200 a
second that the same mix reaches without faults on cores of its own.
"""

import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
import history  # noqa: E402
import sandpool_test as t  # noqa: E402
from chaos import Chaos, Clients, Observer, plan  # noqa: E402
from sandpool_test import Case, limit, main, wait_until  # noqa: E402

MAX_IDLE = 60
CLAIM_TIMEOUT_S = 1
SECONDS = float(os.environ.get("SP_CHAOS_SECONDS", "5"))
RATE = float(os.environ.get("SP_CHAOS_RATE", "100"))
FIRST, _dash, LAST = os.environ.get(
    "SP_SEED", f"1-{os.environ.get('SP_SEEDS', '20')}").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
RECOVERY_S = 5.0    # from healing to work that goes on
SETTLE_S = 8.0      # from the last client's end to counts that agree: claim_timeout, TTL of leases
PROGRAMS, THREADS = 2, 10

CONFIG = {"pools": {"default": {
    "max_idle": MAX_IDLE, "idle_timeout": "10m", "acquire_min_remaining_ttl": "5s",
    "claim_timeout": f"{CLAIM_TIMEOUT_S}s", "max_lease": "1m", "warmup_concurrency": 4,
    "create_rate": 150.0, "limits": {"memory": "64MiB", "pids": 32, "tmp": "16MiB"}}}}


class ChaosTest(Case):
    cluster = None

    @classmethod
    def setUpClass(cls):
        reason = c.needs_cluster()
        if reason:
            raise c.t.unittest.SkipTest(reason)

    @classmethod
    def tearDownClass(cls):
        cls.drop()

    @classmethod
    def drop(cls):
        if cls.cluster is not None:
            cls.cluster.close()
            cls.cluster = None

    def ready(self):
        """A seed that failed leaves its cluster to nobody."""
        if self.cluster is None:
            type(self).cluster = c.Cluster(3, config=CONFIG).start()
        self.cluster.wait_idle(MAX_IDLE, timeout=30)
        return self.cluster

    def one(self, seed):
        cluster = self.ready()
        directory = tempfile.mkdtemp(prefix="sandpool-chaos-", dir="/tmp")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        writer = history.Writer(f"{directory}/events")
        observer = Observer(cluster, writer)
        clients = Clients(cluster, directory, seed, programs=PROGRAMS, threads=THREADS, rate=RATE,
                          exec_share=0.3)
        chaos = Chaos(cluster, clients, writer)
        try:
            observer.start()
            chaos.run(plan(seed, SECONDS))
            cluster.heal()
            healed = history.now()
            writer.write(event="healed")
            recovered = self.recovered(clients, healed)
        finally:
            clients.close()
            observer.close()
        problems = list(chaos.surprises)
        if recovered is None:
            problems.append(f"no acquire and claim within {RECOVERY_S} s of healing")
        paths = clients.paths + [f"{directory}/events"]
        settled, finals = self.settle(observer, paths)
        for record in finals:
            writer.write(**record)
        writer.close()
        checker = self.checker(paths)
        problems += [f"{rule}: {sentence}" for rule, sentence in checker.check()]
        self.tell(seed, checker, recovered, settled)
        if problems:
            keep = f"/tmp/sandpool-history-{seed}"
            if os.environ.get("SP_KEEP"):
                shutil.copytree(directory, keep, dirs_exist_ok=True)
                for name, daemon in cluster.daemons.items():
                    shutil.copy(daemon.log_path, f"{keep}/log-{name}")
            self.drop()
            self.fail(f"seed {seed}: {len(problems)} violations\n" + "\n".join(problems[:40]))

    @staticmethod
    def checker(paths):
        return history.Checker(history.read(paths), min_remaining_ms=5000,
                               claim_timeout_s=CLAIM_TIMEOUT_S, demand=PROGRAMS * THREADS)

    def recovered(self, clients, healed):
        """Seconds until a claim succeeded that began after healing."""
        def claimed():
            for op in history.Checker(history.read(clients.paths)).ops:
                if op.op == "claim" and op.ok and op.begin > healed:
                    return op.end - healed
            return None
        try:
            return wait_until(claimed, RECOVERY_S, "a claim", interval=0.2)
        except AssertionError:
            return None

    def settle(self, observer, paths):
        """Finals of the moment at which all agree, or of the deadline."""
        begin = time.monotonic()
        while True:
            finals = observer.final(MAX_IDLE)
            checker = self.checker(paths)
            checker.finals = finals
            checker.settled()
            took = time.monotonic() - begin
            if not checker.violations or took > SETTLE_S * t.SLOW_FACTOR:
                return took, finals
            time.sleep(0.2)

    @staticmethod
    def tell(seed, checker, recovered, settled):
        done = sum(op.ok for op in checker.ops)
        claims = sum(op.ok and op.op == "claim" for op in checker.ops)
        faults = sum(event["event"] != "store-lost" for event in checker.events)
        print(f"seed {seed}: {len(checker.ops)} calls, {done} ok, {claims} claims, "
              f"{faults} faults, {checker.dispensed_twice} named twice, recovered in "
              f"{recovered if recovered is not None else -1:.2f} s, settled in {settled:.2f} s",
              flush=True)


def of_seed(seed):
    @limit(SECONDS + 120)
    def test(self):
        self.one(seed)
    return test


for number in SEEDS:
    setattr(ChaosTest, f"test_seed_{number:04}", of_seed(number))


if __name__ == "__main__":
    main()
