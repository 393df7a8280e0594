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
RATE = float(os.environ.get("SP_CHAOS_RATE", "200"))
FAULTS = os.environ.get("SP_CHAOS_FAULTS", "1") != "0"
FIRST, _dash, LAST = os.environ.get("SP_CHAOS_SEED", "1-20").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
RECOVERY_S = 5.0    # from healing to work that goes on
SETTLE_S = 8.0      # from the last client's end to counts that agree: claim_timeout, TTL of leases

CONFIG = {"pools": {"default": {
    "max_idle": MAX_IDLE, "idle_timeout": "10m", "acquire_min_remaining_ttl": "5s",
    "claim_timeout": f"{CLAIM_TIMEOUT_S}s", "max_lease": "1m", "warmup_concurrency": 4,
    "create_rate": 300.0, "limits": {"memory": "64MiB", "pids": 32, "tmp": "16MiB"}}}}


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
        clients = Clients(cluster, directory, seed, rate=RATE, exec_share=0.3)
        chaos = Chaos(cluster, clients, writer)
        try:
            observer.start()
            chaos.run(plan(seed, SECONDS) if FAULTS else [], SECONDS)
            cluster.heal()
            healed = history.now()
            writer.write(event="healed")
            recovered = self.recovered(clients, healed)
        finally:
            clients.close()
            observer.close()
        problems = chaos.surprises + [clients.log()] * bool(clients.log())
        if recovered is None:
            problems.append(f"no acquire and claim within {RECOVERY_S} s of healing")
        records = history.read(clients.paths + [f"{directory}/events"])
        settled, finals = self.settle(observer, records)
        for record in finals:
            writer.write(**record)
        writer.close()
        checker = self.checker(records + finals)
        problems += [f"{rule}: {sentence}" for rule, sentence in checker.check()]
        self.tell(seed, chaos.begun, checker, healed, recovered, settled)
        if problems:
            keep = f"/tmp/sandpool-history-{seed}"
            if os.environ.get("SP_KEEP"):
                shutil.copytree(directory, keep, dirs_exist_ok=True)
                for name, daemon in cluster.daemons.items():
                    shutil.copy(daemon.log_path, f"{keep}/log-{name}")
            self.drop()
            self.fail(f"seed {seed}: {len(problems)} violations\n" + "\n".join(problems[:40]))

    @staticmethod
    def checker(records):
        return history.Checker(records, min_remaining_ms=5000, claim_timeout_s=CLAIM_TIMEOUT_S)

    @staticmethod
    def recovered(clients, healed):
        """Seconds until a claim succeeded that began after healing."""
        reader, begun = history.Reader(clients.paths, new=True), set()

        def claimed():
            for record in reader.more():
                key = (record["client"], record["n"])
                if record.get("op") == "claim":
                    begun.add(key)
                elif key in begun and record.get("status") == "OK":
                    return record["t"] - healed
            return None
        try:
            return wait_until(claimed, RECOVERY_S, "a claim", interval=0.1)
        except AssertionError:
            return None

    def settle(self, observer, records):
        """Finals of the moment at which all agree, or of the deadline."""
        checker = self.checker(records)
        begin = time.monotonic()
        while True:
            checker.finals, checker.violations = observer.final(MAX_IDLE), []
            checker.settled()
            took = time.monotonic() - begin
            if not checker.violations or took > SETTLE_S * t.SLOW_FACTOR:
                return took, checker.finals
            time.sleep(0.2)

    @staticmethod
    def tell(seed, faults, checker, healed, recovered, settled):
        """What was asked and given per second, from the first attempt until all was healed."""
        ops = [op for op in checker.ops if op.begin < healed]
        first = min(op.call["due"] for op in ops if "due" in op.call)
        late = sorted(op.begin - op.call["due"] for op in ops if "due" in op.call)
        asked = [op for op in ops if op.op in ("acquire", "wait")]
        numbers = {
            "attempts": len(late),
            "acquires sent": sum(op.op == "acquire" and op.status != "UNREACHABLE" for op in asked),
            "granted": len({op.lease for op in asked if op.ok}),
            "claimed": sum(op.ok and op.op == "claim" for op in ops),
            "calls": len(ops)}
        print(f"seed {seed}: {healed - first:.1f} s, {faults} faults; per second " +
              ", ".join(f"{count / (healed - first):.0f} {what}" for what, count in
                        numbers.items()) +
              f"; late p50 {late[len(late) // 2] * 1e3:.1f} ms, p99 "
              f"{late[len(late) * 99 // 100] * 1e3:.0f} ms; {checker.dispensed_twice} named twice, "
              f"recovered in {recovered if recovered is not None else -1:.2f} s, settled in "
              f"{settled:.2f} s", flush=True)


def of_seed(seed):
    @limit(SECONDS + 120)
    def test(self):
        self.one(seed)
    return test


for number in SEEDS:
    setattr(ChaosTest, f"test_seed_{number:04}", of_seed(number))


if __name__ == "__main__":
    main()
