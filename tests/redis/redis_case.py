"""What the tests of the function library share: a server with a clock that the test moves, and a
supervisor that keeps its seq.

The library's only source of time is `redis.call('TIME')`, in one place; here it reads a key instead,
so that deadlines and tombstones need no waiting. `also` runs a suite on a cluster of one node, and on
Valkey where that is installed, too.
"""

import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import unittest  # noqa: E402

import redis_client  # noqa: E402
from redis_client import RedisError  # noqa: E402

BASE = "sandpool:{default}:"
META = BASE + "meta"
CLOCK = META + ":clock"
SPEC = "spec-1"
MIN_TTL_MS = 1000
IDLE_MS = 60_000
DEADLINE_MS = 5000
TOMBSTONE_MS = 600_000
HOUR_MS = 3_600_000
T0 = 1_800_000_000_000

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def sandbox_id(number):
    text = ""
    for _ in range(20):
        number, digit = divmod(number, 32)
        text = _ALPHABET[digit] + text
    return text


def lease_id(name):
    return hashlib.sha256(str(name).encode()).hexdigest()


def library_with_clock():
    real = "redis.call('TIME')"
    text = redis_client.library_text()
    assert text.count(real) == 1, "the clock is read in one place"
    return text.replace(real, "redis.call('HMGET', keys[1] .. ':clock', 's', 'us')")


class FunctionCase(unittest.TestCase):
    cluster = False
    program = "redis-server"
    real_clock = False

    @classmethod
    def setUpClass(cls):
        if not redis_client.has_program(cls.program):
            raise unittest.SkipTest(f"{cls.program} is not installed")
        cls.server = redis_client.Server(cluster=cls.cluster, program=cls.program, library=False)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.redis = cls.server.connect(timeout=30)
        cls.addClassCleanup(cls.redis.close)
        text = redis_client.library_text() if cls.real_clock else library_with_clock()
        cls.redis.call("FUNCTION", "LOAD", "REPLACE", text)

    def setUp(self):
        self.redis.call("FLUSHALL")
        self.now = T0
        self.set_clock(T0)

    # -- the clock --

    def set_clock(self, now_ms):
        self.now = now_ms
        if not self.real_clock:
            self.redis.call("HSET", CLOCK, "s", now_ms // 1000, "us", now_ms % 1000 * 1000)

    def advance(self, ms):
        self.set_clock(self.now + ms)

    # -- calls --

    def call(self, name, *args):
        return self.redis.fcall(name, META, *args)

    def acquire(self, name, policy="fail_fast", min_ttl=-1, ttl=0, prefer="", reject=(), exclude=()):
        return self.call("acquire", lease_id(name), policy, min_ttl, ttl, prefer,
                         ",".join(reject), ",".join(exclude))

    def wait(self, name, ms=30_000):
        return self.call("wait", lease_id(name), self.now + ms)

    def stats(self):
        reply = self.call("stats")
        pairs = reply[3:3 + 2 * reply[2]]
        return dict(zip(pairs[::2], pairs[1::2]))

    def host_stats(self):
        reply = self.call("stats")
        at = 3 + 2 * reply[2]
        rows = [reply[at + 1 + 11 * n:at + 12 + 11 * n] for n in range(reply[at])]
        self.assertEqual(len(reply), at + 1 + 11 * reply[at])
        return {row[0]: dict(zip(("state", "idle", "creating", "leased", "waiters", "share",
                                  "capacity", "seen_ms", "version", "endpoint"), row[1:]))
                for row in rows}

    def key(self, name):
        return BASE + name

    def keys(self):
        """All but the clock and the wake-up lists, which are the only ones with a TTL."""
        found = set()
        for key in self.redis.call("KEYS", "*"):
            if key == CLOCK:
                continue
            ttl = self.redis.call("PTTL", key)
            if ":grant:" in key:
                self.assertTrue(0 < ttl <= 10_000, (key, ttl))
            else:
                self.assertEqual(ttl, -1, key)
                found.add(key[len(BASE):])
        return found

    def refused(self, pattern):
        return self.assertRaisesRegex(RedisError, pattern)

    # -- supervisors --

    def host(self, name="a", **how):
        """One that has registered, listed nothing and got its share."""
        supervisor = Supervisor(self, name, **how)
        self.assertEqual(supervisor.register()[0], "OK")
        self.assertEqual(supervisor.resync(), ["OK"])
        self.assertEqual(supervisor.heartbeat()[0], "OK")
        return supervisor

    def assertStatus(self, reply, *words):
        self.assertEqual(reply[:len(words)], list(words), reply)


class Supervisor:
    def __init__(self, case, name, max_idle=8, max_total=0, capacity=1, incarnation=None, secret="s",
                 boot="boot-1", spec=(1, SPEC), revision=0, state="active", endpoint=None):
        self.case = case
        self.name = name
        self.max_idle, self.max_total = max_idle, max_total
        self.capacity = capacity
        self.incarnation = incarnation or f"inc-{name}-1"
        self.secret, self.boot = lease_id(secret), boot
        self.spec = spec
        self.revision, self.state = revision, state
        self.endpoint = endpoint or f"tcp://{name}.example:7070"
        self.draining = 0
        self.seq = 0

    def raw(self, function, *args):
        return self.case.call(function, self.name, self.incarnation, *args)

    def again(self, function, *args):
        """With the seq of the call before."""
        return self.raw(function, self.seq, *args)

    def call(self, function, *args):
        self.seq += 1
        return self.raw(function, self.seq, *args)

    def register(self):
        self.seq = 0
        return self.raw("register", 0, self.secret, self.boot, self.endpoint, self.capacity, "v1",
                        self.max_idle, self.max_total, MIN_TTL_MS, 60_000, self.state, self.revision,
                        self.spec[0], self.spec[1])

    def beat_args(self, idle=0, creating=0, leased=0, waiters=0):
        return (idle, creating, leased, waiters, self.draining, self.max_idle, self.max_total,
                self.state, self.revision)

    def heartbeat(self, idle=0, creating=0, leased=0, waiters=0):
        return self.call("heartbeat", *self.beat_args(idle, creating, leased, waiters))

    def share(self, *counts):
        reply = self.heartbeat(*counts)
        self.case.assertStatus(reply, "OK")
        return reply[2]

    def items(self, *counts):
        """What a heartbeat asks for: [(kind, id, lease, number, detail)]."""
        return items_of(self.heartbeat(*counts))

    def publish(self, *numbers, expires=None, digest=SPEC):
        words = []
        for number in numbers:
            words += [sandbox_id(number), expires or self.case.now + IDLE_MS, digest]
        reply = self.call("publish", *words)
        self.case.assertStatus(reply, "OK")
        return [tuple(reply[at + 1:at + 4]) for at in range(1, len(reply), 4)]

    def update(self, number, state, lease="", ends=None, claimed=0, digest=SPEC):
        return self.call("update", sandbox_id(number), state, lease and lease_id(lease),
                         self.case.now + IDLE_MS if ends is None else ends, claimed, digest)

    def resync(self, *entries, parts=("begin", "end")):
        """entries: (number, state, ends, lease name, claimed)."""
        words = []
        for number, state, ends, lease, claimed in entries:
            words += [sandbox_id(number), state, ends, SPEC, lease and lease_id(lease), claimed]
        reply = None
        for part in parts:
            reply = self.call("resync", part, *(words if part == parts[0] else ()))
        return reply


def items_of(reply):
    count = reply[13]
    return [tuple(reply[14 + 5 * n:19 + 5 * n]) for n in range(count)]


CLUSTER = ("OnCluster", {"cluster": True})
VALKEY = ("OnValkey", {"program": "valkey-server"})


def also(case, *servers):
    """The suite on other servers as well."""
    module = sys.modules[case.__module__]
    for suffix, attributes in servers:
        name = case.__name__ + suffix
        setattr(module, name, type(name, (case,), dict(attributes, __module__=case.__module__)))
