"""What every fault of Redis must leave alone, and how long it may be felt after it has ended.

    with self.cluster() as cluster, self.watch(cluster) as watch:
        cluster.redis.kill()
        watch.outage()
        cluster.redis.start()
        watch.recovered()

Beside the fault, a held sandbox streams from a running exec and another one comes to its end: the
first must not pause or end, the second must be dead on time. outage() asks the daemons all that they
must still do without Redis, within bounds; recovered() wants a remote acquire and a full pool again
within five seconds.
"""

import contextlib
import threading
import time
import unittest

import cluster as c
import sandpool_test as t
from redis_client import RedisError
from sandpool_test import Case, wait_until

MAX_IDLE = 6
RECOVERY_S = 5.0
ANSWER_S = 2.0       # a daemon's answer while Redis is away: one command timeout and some
STREAM_GAP_S = 2.0   # the longest silence of a program that prints every 50 ms
EXPIRY_TTL_S = 2.0
EXPIRY_LATE_S = 1.5  # a tick and the kill
CONFIG = {"log_level": "debug", "pools": {"default": {
    "max_idle": MAX_IDLE, "acquire_min_remaining_ttl": "5s", "claim_timeout": "3s",
    "max_lease": "5m", "limits": {"memory": "64MiB", "pids": 32, "tmp": "16MiB"}}}}
# What an answer without Redis may say; never silence, never INTERNAL.
TYPED = {"POOL_EMPTY", "POOL_STATE_STORE_UNAVAILABLE", "ACQUIRE_TIMEOUT"}
# What Redis or the connection to it may say to a client while it is broken.
BROKEN = (OSError, EOFError, RedisError, c.Refused)


class Stream:
    """An exec that prints for as long as it lives, read by a thread."""

    def __init__(self, daemon, box):
        self.daemon = daemon
        self.box = box
        self.times = [time.monotonic()]
        self.problem = None
        self.stopping = False
        self.stream = t.ExecStream(daemon.socket_path, f"/v1/sandboxes/{box.id}/exec",
                                   {"X-Sandpool-Token": box.secret}, timeout=10)
        self.stream.begin(shell="while :; do echo .; sleep 0.05; done")
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            while not self.stopping:
                kind, payload = self.stream.receive()
                if kind == t.FRAME_RESULT:
                    self.problem = f"ended: {payload[:200]!r}"
                    return
                self.times.append(time.monotonic())
        except (OSError, t.StreamClosed) as error:
            if not self.stopping:
                self.problem = f"broke: {error!r}"

    def gap(self):
        times = self.times + [time.monotonic()]
        return max(later - earlier for earlier, later in zip(times, times[1:]))

    def close(self):
        self.stopping = True
        with contextlib.suppress(OSError):
            self.stream.close()
        self.thread.join(5)


class Watch:
    def __init__(self, case, cluster):
        self.case = case
        self.cluster = cluster
        self.client = c.Client(cluster)

    def __enter__(self):
        self.cluster.wait_idle(MAX_IDLE, even=True)
        self.held = self.client.acquire(prefer="a")
        self.daemon = self.cluster.daemons[self.held.owner]
        self.stream = Stream(self.daemon, self.held)
        self.expire()
        return self

    def expire(self):
        """One more that comes to its end while the fault lasts."""
        self.ending = self.client.acquire(ttl_ms=int(EXPIRY_TTL_S * 1000))
        self.end = time.monotonic() + self.ending.remaining_ms / 1000
        self.case.assertLessEqual(self.ending.remaining_ms, EXPIRY_TTL_S * 1000)

    def expired_on_time(self):
        case, daemon = self.case, self.cluster.daemons[self.ending.owner]
        case.assertIn(self.ending.id, {box["id"] for box in daemon.sandboxes()},
                      "it was ended early") if time.monotonic() < self.end - 0.3 else None
        wait_until(lambda: self.ending.id not in {box["id"] for box in daemon.sandboxes()},
                   max(0.0, self.end - time.monotonic()) + EXPIRY_LATE_S, "the expired one is gone")
        case.assertGreaterEqual(time.monotonic(), self.end - 0.3, "it was ended early")

    def undisturbed(self):
        case = self.case
        case.assertIsNone(self.stream.problem)
        case.assertLess(self.stream.gap(), STREAM_GAP_S * t.SLOW_FACTOR)
        answer = self.held_shell("echo still here")
        case.assertEqual(answer.status, 200, answer)
        case.assertEqual(answer.json["stdout"], "still here\n")

    def held_shell(self, text):
        """Past cables and Redis, as its holder."""
        return self.daemon.request("POST", f"/v1/sandboxes/{self.held.id}/exec", {"shell": text},
                                   {"X-Sandpool-Token": self.held.secret}, timeout=10)

    def outage(self):
        """All that goes on without Redis, on each host, within bounds."""
        for name, daemon in self.cluster.daemons.items():
            for _ in range(MAX_IDLE + 2):
                self.local(name, daemon)
        self.undisturbed()
        begin = time.monotonic()
        answer = self.daemon.request("POST", f"/v1/sandboxes/{self.held.id}/renew", {"ttl": "2m"},
                                     {"X-Sandpool-Token": self.held.secret})
        self.case.assertEqual(answer.status, 200, answer)
        self.case.assertLess(time.monotonic() - begin, ANSWER_S * t.SLOW_FACTOR)

    def local(self, name, daemon):
        begin = time.monotonic()
        answer = daemon.request("POST", "/v1/pools/default/acquire", {"policy": "fail_fast"})
        took = time.monotonic() - begin
        self.case.assertLess(took, ANSWER_S * t.SLOW_FACTOR, f"'{name}' {answer}")
        if answer.status != 200:
            self.case.assertIn(answer.code, TYPED, answer)
            return None
        token = {"X-Sandpool-Token": answer.json["token"]}
        gone = daemon.request("DELETE", f"/v1/sandboxes/{answer.json['id']}", headers=token)
        # One that lives on another host is not this daemon's to release.
        self.case.assertIn(gone.status, (204, 404), gone)
        return answer

    def remote_fails(self):
        """A client of Redis itself is refused, not kept waiting."""
        begin = time.monotonic()
        with self.case.assertRaises(BROKEN):
            c.Client(self.cluster, timeout=1.0).acquire()
        self.case.assertLess(time.monotonic() - begin, 10)

    def recovered(self, within=RECOVERY_S):
        """Measured from the call: a remote acquire works, the pool is full and listed."""
        begin = time.monotonic()

        def acquired():
            with contextlib.suppress(*BROKEN):
                box = c.Client(self.cluster, timeout=1.0).acquire()
                self.case.assertIn(box.release().status, (204, 200))
                return True
            return False
        wait_until(acquired, within, "a remote acquire works again", interval=0.1)
        took = time.monotonic() - begin
        self.cluster.wait_idle(MAX_IDLE, timeout=within)
        try:
            wait_until(self.listed, within, "Redis lists what the hosts hold")
        except AssertionError as error:
            logs = "".join(f"\n-- {name}\n{daemon.log()[-1500:]}"
                           for name, daemon in self.cluster.daemons.items())
            raise AssertionError(f"{error}\n{self.cluster.stats()}{logs}") from None
        print(f"  acquired after {took:.2f} s, all as before after {time.monotonic() - begin:.2f} s",
              flush=True)

    def listed(self):
        with contextlib.suppress(RedisError):  # a key of a wrong type is still there
            return self.lists_agree()
        return False

    def lists_agree(self):
        for name, daemon in self.cluster.daemons.items():
            there = set(self.cluster.redis.call(
                "ZRANGE", f"sandpool:{{default}}:idle:{name}", 0, -1))
            if there != {box["id"] for box in daemon.sandboxes() if box["state"] == "idle"}:
                return False
        return True

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.undisturbed()
                self.expired_on_time()
                for name, daemon in self.cluster.daemons.items():
                    self.case.assertTrue(daemon.running(), f"'{name}' ended\n{daemon.log()[-3000:]}")
        finally:
            self.stream.close()
        if kind is None:
            self.held.release()


class ClusterCase(Case):
    """Each test has a cluster of its own."""

    @classmethod
    def setUpClass(cls):
        reason = c.needs_cluster()
        if reason:
            raise unittest.SkipTest(reason)

    @contextlib.contextmanager
    def cluster(self, hosts=2, config=None, **options):
        with c.Cluster(hosts, config=t.merge(CONFIG, config or {}), **options) as made:
            made.start()
            # The first host to come has all of it until the others are there.
            made.wait_idle(made.max_idle(), even=True)
            yield made

    def watch(self, cluster):
        return Watch(self, cluster)
