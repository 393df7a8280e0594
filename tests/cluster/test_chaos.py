"""Three hosts, sixty idle, clients on every host, and a random fault every half second.

Four client programs (client.c), one on each host and one beside them, begin 210 attempts a second
between them by the clock, whatever becomes of the attempts before, over Redis and over HTTP; hosts,
clients and Redis are killed, stopped and cut off meanwhile. After each seed everything is healed;
then, within two ticks and the lives of leases, work goes on, the pool is full, and every count agrees.
What clients and observers saw on the way is held against the rules of history.py: no sandbox ever had
two holders, nothing leaked, nothing ended early or late, nobody was overtaken.

    SP_CHAOS_SEED=7      that seed alone; 21-40: those (1-20 unless it is set)
    SP_CHAOS_SECONDS=5   length of a seed (60 for a long run)
    SP_CHAOS_RATE=210    attempts per second of all clients
    SP_CHAOS_FAULTS=0    none, to see what the machine can carry
    SP_KEEP=1            a failed seed's history and logs stay in /tmp/sandpool-history-SEED

What is sent is held to the rate; what is granted depends on how fast the machine makes and unmakes
sandboxes, because a pool of sixty is empty after a third of a second: an attempt that finds none is
answered EMPTY or waits. Each seed tells both.
"""

import http.client
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
# A client that is stopped or killed misses some: of these, two hundred a second are made.
RATE = float(os.environ.get("SP_CHAOS_RATE", "210"))
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
        if cls.cluster is None:
            return
        try:
            for daemon in cls.cluster.daemons.values():
                daemon.stop()  # nothing is left of what lived through all that
        finally:
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
        records = history.read(clients.paths + [f"{directory}/events"])
        settled, finals = self.settle(observer, chaos, records)
        problems = chaos.surprises + [clients.log()] * bool(clients.log())
        if recovered is None:
            problems.append(f"no acquire and claim within {RECOVERY_S} s of healing")
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

    def settle(self, observer, chaos, records):
        """Finals of the moment at which all agree, or of the deadline."""
        checker = self.checker(records)
        begin = time.monotonic()
        while True:
            chaos.look()
            took = time.monotonic() - begin
            late = took > SETTLE_S * t.SLOW_FACTOR
            try:
                checker.finals, checker.violations = observer.final(MAX_IDLE), []
            except (OSError, http.client.HTTPException):
                if late:  # a daemon that was started a moment ago is there by now
                    raise
            else:
                checker.settled()
                if late or not checker.violations:
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
        try:
            self.one(seed)
        except BaseException:
            self.drop()
            raise
    return test


for number in SEEDS:
    setattr(ChaosTest, f"test_seed_{number:04}", of_seed(number))


if __name__ == "__main__":
    main()
