"""The `redis` section of tests/bench/run: what coordination costs, as ratios within one run.

Acquire over Redis against PING and against a bare script on one key, on the same server over a Unix
socket, in one rotation (redis_load.c); the same with 100 hosts and 10,000 entries against 100
entries; memory per entry; CPU of a daemon with 200 idle and Redis as its store. Hosts are simulated:
calls of the function library, as daemons make them.
"""

import collections
import contextlib
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from redis_client import Redis  # noqa: E402

LOAD = t.PROGRAMS / "bench" / "redis_load"
META = "sandpool:{bench}:meta"
HOUR_MS = 3600 * 1000
SETTLE_S = 2.1
STATS_WIDTH = 11


class Server:
    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="sandpool-bench-", dir="/tmp")
        os.chmod(self.directory, 0o755)
        self.path = f"{self.directory}/redis.sock"
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.path, "--unixsocketperm", "777",
             "--save", "", "--appendonly", "no", "--dir", self.directory],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        t.wait_until(lambda: os.path.exists(self.path), 10, "redis-server listens")
        self.redis = Redis(path=self.path)
        self.redis.load_library()
        return self

    def __exit__(self, *_):
        self.redis.close()
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        os.rmdir(self.directory)

    def info(self, name):
        for line in self.redis.call("INFO", "everything").splitlines():
            if line.startswith(name + ":"):
                return int(line.split(":")[1])
        raise KeyError(name)


class Hosts:
    """`count` simulated daemons that list `entries` sandboxes together."""

    def __init__(self, server, count, entries):
        self.redis = server.redis
        self.count = count
        self.entries = entries
        self.seq = collections.Counter()
        self.serial = 0
        for number in range(count):
            self.fcall("register", number, "0" * 64, "boot", f"tcp://10.0.{number // 256}."
                       f"{number % 256}:7070", 1, "bench", entries, 0, 0, 0, "active", 1, 1, "d1")
        # The pool is new: shares grow once it has settled, and then as others report less.
        time.sleep(SETTLE_S)
        self.beat()
        self.beat()
        for number in range(count):
            self.publish(number, entries // count)

    def fcall(self, name, number, *args):
        seq = self.seq[number]
        self.seq[number] += 1
        reply = self.redis.fcall(name, META, f"host{number:03}",
                                 hashlib.sha256(str(number).encode()).hexdigest()[:32], seq, *args)
        if reply[0] != "OK":
            raise RuntimeError(f"{name} of host {number}: {reply}")
        return reply

    def beat(self, held=0):
        for number in range(self.count):
            self.fcall("heartbeat", number, held, 0, 0, 0, 0, self.entries, 0,
                       "active", 1)

    def relist(self):
        """Each host has a new one for each that was handed out."""
        words = self.redis.fcall("stats", META)
        rows = words[4 + 2 * words[2]:]
        for at in range(0, len(rows), STATS_WIDTH):
            self.publish(int(rows[at][len("host"):]), self.entries // self.count - rows[at + 2])
        self.beat(self.entries // self.count)

    def publish(self, number, count):
        expires = self.redis.time_ms() + HOUR_MS
        while count > 0:
            batch = min(count, 64)
            count -= batch
            words = []
            for _ in range(batch):
                self.serial += 1
                words += [f"{self.serial:020d}", expires + self.serial, "d1"]
            verdicts = self.fcall("publish", number, *words)[2::4]
            if set(verdicts) != {"idle"}:
                raise RuntimeError(f"publish of host {number}: {set(verdicts)}")


def load(server, clients, rounds, ops):
    """{label: [microseconds]}, {label: operations per second}"""
    result = subprocess.run([str(LOAD), server.path, str(clients), str(rounds), str(ops), META],
                            capture_output=True, text=True, check=False, timeout=600)
    if result.returncode:
        raise RuntimeError(f"redis_load: {result.stderr}")
    times, spans = collections.defaultdict(list), collections.Counter()
    for line in result.stdout.splitlines():
        label, nanoseconds = line.split()
        if label.endswith(".span"):
            spans[label[:-5]] += int(nanoseconds)
        else:
            times[label].append(int(nanoseconds) / 1000)
    return times, {label: len(times[label]) / spans[label] * 1e9 for label in times}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def show(times, rates):
    floor = statistics.median(times["ping"])
    print(f"  {'':10}{'p50':>9}{'p99':>9}  µs{'per second':>13}{'p50 / ping':>13}")
    for label in ("ping", "script", "acquire"):
        values = times[label]
        print(f"  {label:10}{statistics.median(values):9.1f}{percentile(values, .99):9.1f}    "
              f"{rates[label]:12,.0f}{statistics.median(values) / floor:13.2f}")


def beaten_load(server, hosts, clients, turns):
    """As load, 3 rounds a turn. The hosts' heartbeats lie between the turns: a host that is silent
    for 5 s is dead and its entries are not handed out, however slow this machine is just now."""
    times, spans = collections.defaultdict(list), collections.Counter()
    for _ in range(turns):
        hosts.beat(hosts.entries // hosts.count)
        some, rates = load(server, clients, 3, 200)
        for label, values in some.items():
            times[label] += values
            spans[label] += len(values) / rates[label]
    return times, {label: len(values) / spans[label] for label, values in times.items()}


def clients(goal, quick):
    turns = 3 if quick else 10
    for count in (1, 8, 64):
        print(f"\n== acquire over Redis, {count} client{'s'[:count > 1]}, 100 hosts, "
              "10,000 entries", flush=True)
        with Server() as server:
            times, rates = beaten_load(server, Hosts(server, 100, 10000), count, turns)
        show(times, rates)
        if count == 1:
            goal("p50, acquire / ping", statistics.median(times["acquire"]) /
                 statistics.median(times["ping"]), 3)
            print(f"  p50, acquire / script: {statistics.median(times['acquire']) / statistics.median(times['script']):.2f}")


def sizes(goal, quick):
    print("\n== acquire over Redis, 1 client, 10,000 entries against 100 (100 hosts each)",
          flush=True)
    with Server() as small, Server() as big:
        few, many = Hosts(small, 100, 100), Hosts(big, 100, 10000)
        values = {"100": [], "10,000": []}
        for _ in range(20 if quick else 80):
            # 50 acquires of 100 entries; then each host lists what it lost.
            values["100"] += load(small, 1, 1, 50)[0]["acquire"]
            values["10,000"] += load(big, 1, 1, 50)[0]["acquire"]
            few.relist()
            many.relist()
    for label, times in values.items():
        print(f"  {label:>8} entries: p50 {statistics.median(times):7.1f}  "
              f"p99 {percentile(times, .99):7.1f} µs")
    goal("p99, 10,000 entries / 100 entries",
         percentile(values["10,000"], .99) / percentile(values["100"], .99), 1.5)


def memory(quick):
    entries = 2000 if quick else 10000
    print(f"\n== memory of Redis for {entries:,} entries of 100 hosts", flush=True)
    with Server() as server:
        before = server.info("used_memory")
        Hosts(server, 100, entries)
        print(f"  {(server.info('used_memory') - before) / entries:.0f} bytes per entry")


def idle(goal, quick, config, cpu_ticks):
    seconds = 10 if quick else 60
    print(f"\n== CPU of everything of a daemon with 200 idle and Redis as its store, {seconds} s",
          flush=True)
    with Server() as server:
        settings = dict(config(200), store=f"unix://{server.path}", host="bench")
        with t.Daemon(settings) as daemon:
            daemon.wait_settled(timeout=60)
            time.sleep(2)
            ticks = os.sysconf("SC_CLK_TCK")

            def redis_ticks():
                fields = t.read_text(f"/proc/{server.process.pid}/stat").rpartition(")")[2].split()
                return int(fields[11]) + int(fields[12])
            before, before_redis = cpu_ticks(daemon), redis_ticks()
            time.sleep(seconds)
            goal("percent of one core", (cpu_ticks(daemon) - before) / ticks / seconds * 100, 1)
            print(f"  redis-server beside it: "
                  f"{(redis_ticks() - before_redis) / ticks / seconds * 100:.2f} %")


def section(goal, quick, config, cpu_ticks):
    clients(goal, quick)
    sizes(goal, quick)
    memory(quick)
    idle(goal, quick, config, cpu_ticks)
