"""What test_chaos.py does to a cluster: seeded faults, and the observers beside them.

A plan is drawn from the seed before anything starts, so the same seed does the same things at the
same moments; what the machine makes of it may differ. Every fault ends by itself; heal() ends all.
"""

import contextlib
import http.client
import json
import random
import signal
import subprocess
import threading
import time

import cluster as c
import history
import sandpool_test as t
from redis_client import RedisError

CLIENT = str(t.PROGRAMS / "cluster" / "client")
THREADS = 128   # of each client program: what goes on while Redis is away must not hold back the rest
WAITERS = 5     # of each client program, that queue at once
# Fault, weight, longest duration in seconds.
FAULTS = (
    ("kill-daemon", 3, 1.0), ("kill-launcher", 1, 0.5), ("pause-daemon", 3, 2.0),
    ("cut-host", 3, 2.5), ("slow-host", 2, 2.0), ("kill-redis", 3, 1.0), ("pause-redis", 3, 1.5),
    ("cut-redis", 3, 2.0), ("sleep", 1, 1.5), ("flush", 2, 0), ("function-flush", 2, 1.0),
    ("kill-connections", 2, 0.6), ("delete-key", 3, 0), ("corrupt-key", 2, 0),
    ("pause-client", 2, 1.5), ("kill-client", 2, 0.2), ("cut-client", 2, 1.5),
)
KEYS = ("meta", "hosts", "hosts:idle", "sb", "lease", "lease:ends", "waiters", "waiters:alive",
        "waiters:wish", "answers", "idle:a", "idle:b", "idle:c", "todo:a", "own:b")
LASTING = KEYS[:10]


def plan(seed, seconds):
    """[(when, fault, duration, pick)]; `pick` chooses host, client or key."""
    chance = random.Random(seed)
    when, steps = 0.4, []
    while when < seconds:
        fault, _weight, longest = chance.choices(FAULTS, [weight for _, weight, _ in FAULTS])[0]
        steps.append((when, fault, chance.uniform(0.2, 1.0) * longest, chance.random()))
        when += chance.uniform(0.2, 0.9)
    return steps


class Clients:
    """Recording client programs (client.c): one on each host and one on a host of its own. Each may
    be stopped, killed and replaced. `rate`: attempts a second of all together."""

    def __init__(self, cluster, directory, seed, *, rate, exec_share):
        self.cluster = cluster
        self.directory = directory
        self.places = [*cluster.hosts.values(), cluster.client_host]
        self.options = {
            "threads": THREADS, "waiters": WAITERS, "rate": rate / len(self.places),
            "exec_share": exec_share, "meta": cluster.meta(), "key": c.KEY,
            "redis": [cluster.redis_host.address, c.REDIS_PORT],
            "hosts": {name: [host.address, c.HTTP_PORT] for name, host in cluster.hosts.items()}}
        self.seed = seed
        self.paths = []
        self.running = [self.start(number) for number in range(len(self.places))]

    def start(self, number):
        place, serial = self.places[number], len(self.paths)
        path = f"{self.directory}/client-{serial}"
        with open(path, "wb"):
            pass  # read before the program gets to its first line
        self.paths.append(path)
        options = dict(self.options, name=f"{place.name}{serial}", at=place.name, history=path,
                       seed=f"{self.seed}/{number}/{serial}")
        with open(f"{self.directory}/client.log", "ab") as log:
            return subprocess.Popen(place.prefix + [CLIENT, json.dumps(options)],
                                    stdin=subprocess.PIPE, stdout=log, stderr=log)

    def replace(self, number):
        self.running[number].kill()
        self.running[number].wait()
        self.running[number].stdin.close()
        self.running[number] = self.start(number)

    def log(self):
        return t.read_text(f"{self.directory}/client.log")

    def close(self):
        for process in self.running:
            process.kill()
            process.wait()
            process.stdin.close()
        self.running = []


class Observer(threading.Thread):
    """Notes what daemons and Redis say, several times a second, past every cable."""

    def __init__(self, cluster, writer, period_s=0.2):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.writer = writer
        self.period_s = period_s
        self.stopping = threading.Event()

    def host(self, name, daemon, timeout=1.0):
        boxes = daemon.request("GET", "/v1/pools/default/sandboxes", timeout=timeout)
        listed = [{key: box.get(key) for key in ("id", "state", "lease", "claimed")}
                  for box in boxes.json["sandboxes"]]
        counts = {state: sum(box["state"] == state for box in listed) for state in history.ORDER}
        share = daemon.request("GET", "/v1/pools/default", timeout=timeout).json["share"]
        return {"host": name, "pool": counts, "sandboxes": listed, "share": share}

    def store(self):
        facts = self.cluster.stats()
        return {"now_ms": facts["time_ms"], "max_idle": facts["max_idle"],
                "hosts": {name: {"share": host["share"], "share_until_ms":
                                 facts["time_ms"] - host["age_ms"] + c.HOST_DEADLINE_MS}
                          for name, host in facts["hosts"].items()}}

    def run(self):
        while not self.stopping.wait(self.period_s):
            for name, daemon in self.cluster.daemons.items():
                if daemon.running() and not daemon.paused:
                    with contextlib.suppress(OSError, ValueError, KeyError,
                                             http.client.HTTPException):
                        when = history.now()
                        self.writer.write(t=when, sample="host", **self.host(name, daemon))
            if not self.cluster.redis.paused:
                with contextlib.suppress(OSError, EOFError, RedisError, c.Refused, KeyError):
                    self.writer.write(sample="store", **self.store())

    def final(self, max_idle):
        """[records] as `settled` wants them."""
        records = []
        for name, daemon in self.cluster.daemons.items():
            record = self.host(name, daemon, timeout=5)
            inits = len(daemon.inits())
            pool = daemon.pool()
            record["pool"] = {state: pool[state] for state in history.ORDER}
            records.append(dict(record, final="host", inits=inits, t=history.now()))
        call, prefix = self.cluster.redis.call, "sandpool:{default}:"
        known = {f"{kind}:{name}" for kind in ("idle", "todo", "own")
                 for name in self.cluster.daemons} | set(LASTING)
        unexpected = []
        for key in call("KEYS", "*"):
            # What Redis itself will drop is no dead key.
            if key.removeprefix(prefix) not in known and call("PTTL", key) == -1:
                unexpected.append(key)
        records.append({
            "final": "store", "t": history.now(), "max_idle": max_idle,
            "idle": {name: call("ZCARD", f"{prefix}idle:{name}") for name in self.cluster.daemons},
            "records": call("HLEN", f"{prefix}sb"), "tickets": call("ZCARD", f"{prefix}waiters"),
            "unexpected_keys": unexpected})
        return records

    def close(self):
        self.stopping.set()
        self.join(10)


class Chaos:
    """Carries out a plan."""

    def __init__(self, cluster, clients, writer):
        self.cluster = cluster
        self.clients = clients
        self.writer = writer
        self.ends = []  # (when, function)
        self.busy = set()
        self.begun = 0
        self.surprises = []
        for daemon in cluster.daemons.values():
            daemon.wait_ready = False  # it may have to wait for Redis, which waits for us

    def event(self, name, host=None):
        self.writer.write(event=name, **({"host": host} if host else {}))

    def run(self, steps, seconds):
        """All of it, and not less than so long."""
        begin = time.monotonic()
        todo = list(steps)
        while todo or self.ends:
            self.ends.sort(key=lambda end: end[0])
            next_step = begin + todo[0][0] if todo else float("inf")
            next_end = self.ends[0][0] if self.ends else float("inf")
            time.sleep(max(0.0, min(next_step, next_end) - time.monotonic()))
            if next_end <= next_step:
                self.ends.pop(0)[1]()
            else:
                _when, fault, duration, pick = todo.pop(0)
                self.begin(fault, duration, pick)
            self.look()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))

    def look(self):
        """A daemon that ended and was not killed."""
        for name, daemon in self.cluster.daemons.items():
            if not daemon.running() and ("host", name) not in self.busy:
                self.surprises.append(f"sandpoold of '{name}' ended with "
                                      f"{daemon.process.returncode}:\n{daemon.log()[-1500:]}")
                self.event("kill-daemon", name)
                daemon.start()

    def later(self, duration, target, function):
        """One fault at a time for each target; the others go on."""
        self.busy.add(target)

        def end():
            self.busy.discard(target)
            function()
        self.ends.append((time.monotonic() + duration, end))

    def often(self, duration, every, target, function):
        """Again and again, and nothing else with that target until the last time."""
        for number in range(int(duration / every)):
            self.ends.append((time.monotonic() + number * every, function))
        self.later(duration, target, function)

    def begin(self, fault, duration, pick):
        target = {"host": sorted(self.cluster.daemons)[int(pick * len(self.cluster.daemons))],
                  "client": int(pick * len(self.clients.running)),
                  "redis": "redis"}
        kind = ("host" if fault.endswith(("-daemon", "-launcher", "-host")) else
                "client" if fault.endswith("-client") else "redis")
        if fault == "cut-client":
            target["client"] = "cable"
        key = (kind, target[kind])
        if key in self.busy:
            return
        self.begun += 1
        method = getattr(self, fault.replace("-", "_"))
        method(key, target[kind], duration, pick)

    # -- hosts --

    def kill_daemon(self, key, name, duration, _pick):
        daemon = self.cluster.daemons[name]
        self.event("kill-daemon", name)
        daemon.crash()
        self.event("kill-daemon", name)
        self.later(duration, key, daemon.start)

    def kill_launcher(self, key, name, duration, _pick):
        daemon = self.cluster.daemons[name]
        self.event("kill-launcher", name)
        daemon.crash_launcher()
        self.event("kill-launcher", name)
        self.later(duration, key, daemon.start)

    def pause_daemon(self, key, name, duration, _pick):
        daemon = self.cluster.daemons[name]
        self.event("pause-daemon", name)
        daemon.pause()
        self.later(duration, key, daemon.resume)

    def cut_host(self, key, name, duration, _pick):
        host = self.cluster.hosts[name]
        self.event("cut-host", name)
        host.cut()
        self.later(duration, key, host.join)

    def slow_host(self, key, name, duration, pick):
        host = self.cluster.hosts[name]
        if self.cluster.network.impairments is None:
            self.begun -= 1
            return
        self.event("cut-host", name)
        host.impair(delay_ms=20 + 80 * pick, jitter_ms=20, loss=0.05)
        self.later(duration, key, host.repair)

    # -- Redis --

    def redis_call(self, *words):
        with contextlib.suppress(OSError, EOFError, RedisError):
            self.cluster.redis.call(*words)

    def lost(self):
        """Before and after, because the loss lies between."""
        self.event("store-lost")

    def kill_redis(self, key, _name, duration, _pick):
        self.event("kill-redis")
        self.lost()
        self.cluster.redis.kill()

        def again():
            self.cluster.redis.start()
            self.lost()
        self.later(duration, key, again)

    def pause_redis(self, key, _name, duration, _pick):
        self.event("pause-redis")
        self.cluster.redis.pause()
        self.later(duration, key, self.cluster.redis.resume)

    def cut_redis(self, key, _name, duration, _pick):
        self.event("cut-redis")
        self.cluster.redis_host.cut()
        self.later(duration, key, self.cluster.redis_host.join)

    def sleep(self, key, _name, duration, _pick):
        """Redis is there and does nothing; asked over a connection that does not wait for it."""
        self.event("sleep")
        with contextlib.suppress(OSError, EOFError):
            connection = self.cluster.redis.connect()
            connection.send("DEBUG", "SLEEP", f"{duration:.2f}")
            self.later(duration, key, connection.close)

    def flush(self, _key, _name, _duration, _pick):
        self.lost()
        self.redis_call("FLUSHALL")
        self.lost()

    def function_flush(self, key, _name, duration, _pick):
        self.often(duration, 0.1, key, lambda: self.redis_call("FUNCTION", "FLUSH"))

    def kill_connections(self, key, _name, duration, _pick):
        self.often(duration, 0.05, key, lambda: self.redis_call(
            "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))

    def delete_key(self, _key, _name, _duration, pick):
        self.lost()
        self.redis_call("DEL", f"sandpool:{{default}}:{KEYS[int(pick * len(KEYS))]}")
        self.lost()

    def corrupt_key(self, _key, _name, _duration, pick):
        name = f"sandpool:{{default}}:{KEYS[int(pick * len(KEYS))]}"
        self.lost()
        if int(pick * 1000) % 2:
            self.redis_call("SET", name, "of another type")
        else:
            with contextlib.suppress(OSError, EOFError, RedisError):
                for field in self.cluster.redis.call("HKEYS", name)[:3]:
                    self.redis_call("HSET", name, field, "no record")
        self.lost()

    # -- clients --

    def pause_client(self, key, number, duration, _pick):
        process, place = self.clients.running[number], self.clients.places[number].name
        self.event("pause-client", place)
        process.send_signal(signal.SIGSTOP)

        def go_on():
            self.event("pause-client", place)
            process.send_signal(signal.SIGCONT)
        self.later(duration, key, go_on)

    def kill_client(self, key, number, duration, _pick):
        self.clients.running[number].kill()
        self.later(duration, key, lambda: self.clients.replace(number))

    def cut_client(self, key, _name, duration, _pick):
        self.event("cut-client", self.cluster.client_host.name)
        self.cluster.client_host.cut()
        self.later(duration, key, self.cluster.client_host.join)
