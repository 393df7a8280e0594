"""The function library against damaged keys and hostile arguments: typed answers, never a Lua error."""

import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import redis_case as c  # noqa: E402
from redis_case import FunctionCase, lease_id, sandbox_id  # noqa: E402
from redis_client import RedisError  # noqa: E402
from sandpool_test import main  # noqa: E402

LEASE = lease_id("x")
BOX = sandbox_id(1)
ARGUMENTS = {
    "register": ["a", "inc", 0, lease_id("s"), "boot", "tcp://a:1", 1, "v1", 8, 0, 1000, 60000,
                 "active", 0, 1, "d"],
    "heartbeat": ["a", "inc", 1, 0, 0, 0, 0, 0, 8, 0, "active", 0],
    "publish": ["a", "inc", 1, BOX, c.T0 + 9999, "d"],
    "update": ["a", "inc", 1, BOX, "leased", LEASE, c.T0 + 9999, 1, "d"],
    "resync": ["a", "inc", 1, "begin", BOX, "leased", c.T0 + 9999, "d", LEASE, 1],
    "unregister": ["a", "inc", 1],
    "acquire": [LEASE, "wait", -1, 0, "a", BOX, "b"],
    "wait": [LEASE, c.T0 + 9999],
    "cancel": [LEASE],
    "renew": [LEASE, 1000],
    "release": [LEASE],
    "stats": [],
    "resize": [1, 2, 0],
    "set_state": ["active", 0],
    "drain_host": ["a", 1],
    "reap": [10],
    "info": [],
}
STATUSES = {"OK", "FENCED", "RESYNC", "HOST_ID_TAKEN", "SPEC_MISMATCH", "HOSTS_FULL", "EMPTY", "WAIT",
            "SATURATED", "DESTROYED", "NOT_RUNNING", "LEASE_ENDED", "LEASE_MISMATCH", "TIMEOUT",
            "NOT_FOUND", "STALE"}
KEYS = ("meta", "hosts", "hosts:idle", "idle:a", "own:a", "todo:a", "sb", "lease", "lease:ends",
        "waiters", "waiters:alive", "waiters:wish", "answers")
# msgpack: nothing, rubbish, an array, nested, NaN, infinity, 2^63, nil, a map, a huge length.
GARBAGE = ("", "garbage", "\x93\x01\x02\x03", "\x91" * 40, "\x00" * 40, "\xa1a" * 40,
           "\xcb\x7f\xf8" + "\x00" * 6, ("\xcb\x7f\xf0" + "\x00" * 6) * 30,
           "\xcf" + "\xff" * 8, "\xc0" * 40, "\x81\xa1a\x01", "\xdb\xff\xff\xff\xff",
           "\xcb\x3f\xe0" + "\x00" * 6, ("\xa1a\xcb\x3f\xe0" + "\x00" * 6) * 8)


class Arguments(FunctionCase):
    def refusal(self, name, args, key=c.META):
        with self.assertRaises(RedisError) as caught:
            self.redis.fcall(name, key, *args)
        return str(caught.exception)

    def test_examples_are_taken(self):
        for name, args in ARGUMENTS.items():
            self.assertIn(self.call(name, *args)[0], STATUSES, name)

    def test_missing_and_too_many(self):
        for name, args in ARGUMENTS.items():
            for wrong in (args[:-1], args + ["more"]):
                if wrong == args:
                    continue
                self.assertRegex(self.refusal(name, wrong), f"^ERR sandpool: {name}: ")

    def test_every_argument_is_checked_and_named_b125(self):
        hostile = ("", " ", "-2", "9007199254740992", "1e308", "0.5", "0x10", "nan", "inf", "abc\n",
                   "a" * 300, "\x00", "{x}", "../..", "é", "A" * 64, "'; return 1 --", "1 ", "+1")
        for name, args in ARGUMENTS.items():
            for at in range(len(args)):
                refused = 0
                for value in hostile:
                    try:
                        reply = self.call(name, *args[:at], value, *args[at + 1:])
                        self.assertIn(reply[0], STATUSES, (name, at, value))
                    except RedisError as error:
                        self.assertRegex(str(error), rf"^ERR sandpool: {name}: [a-z_]+( \d)?: ")
                        refused += 1
                self.assertGreaterEqual(refused, 6, (name, at))

    def test_whole_groups_or_nothing(self):
        a = self.host()
        words = [sandbox_id(1), self.now + 9000, c.SPEC, sandbox_id(2), "soon", c.SPEC]
        with self.refused("ERR sandpool: publish: expires 2: must be a whole number"):
            a.call("publish", *words)
        self.assertEqual(self.stats()["entries"], 0)

    def test_key(self):
        for key in ("", "meta", "sandpool:default:meta", "sandpool:{default}", "{default}:meta",
                    "sandpool:{Default}:meta", "sandpool:{a{b}}:meta", "x{y}:{default}:meta",
                    "sandpool:{}:meta", "sandpool:{default}:meta:", "s" * 300 + ":{default}:meta"):
            for name, args in ARGUMENTS.items():
                with self.subTest(key=key, name=name):
                    self.assertRegex(self.refusal(name, args, key), f"^ERR sandpool: {name}: key: ")
        with self.refused("ERR sandpool: stats: key: must be one"):
            self.redis.call("FCALL", "sandpool_v1_stats", 0)
        self.assertStatus(self.redis.call("FCALL", "sandpool_v1_info", 0), "OK", "sandpool_v1")

    def test_lists_at_their_limits(self):
        for at, word in ((5, sandbox_id), (6, lambda n: f"h{n}")):
            args = list(ARGUMENTS["acquire"])
            args[at] = ",".join(word(n) for n in range(32))
            self.assertEqual(self.call("acquire", *args), ["NOT_RUNNING"])
            args[at] += "," + word(32)
            self.assertRegex(self.refusal("acquire", args), "must have at most 32 entries")
            args[at] = word(1) + ","
            self.assertRegex(self.refusal("acquire", args), "entry 2: must be")

    def test_texts_at_their_limits(self):
        for at, most, letter in ((0, 63, "h"), (1, 64, "i"), (4, 64, "b"), (5, 255, "e"),
                                 (7, 255, "v"), (15, 128, "d")):
            args = list(ARGUMENTS["register"])
            args[at] = letter * most
            self.setUp()
            self.assertStatus(self.call("register", *args), "OK")
            args[at] = letter * (most + 1)
            self.assertRegex(self.refusal("register", args), "^ERR sandpool: register: ")

    def test_ttl_at_its_limits_b124(self):
        most = 366 * 86_400_000
        a = self.host()
        a.publish(1, 2)
        for name, ttl in (("x", 0), ("y", most)):
            self.assertStatus(self.acquire(name, ttl=ttl), "OK")
        for ttl in (-1, most + 1):
            with self.refused("ERR sandpool: acquire: ttl_ms: must be a whole number from 0 to"):
                self.acquire("z", ttl=ttl)
        self.assertStatus(self.call("renew", lease_id("x"), most), "OK")
        for ttl in (0, -1, most + 1):
            with self.refused("ERR sandpool: renew: ttl_ms: must be a whole number from 1 to"):
                self.call("renew", lease_id("x"), ttl)


class Damage(FunctionCase):
    def fill(self):
        """Something in every key."""
        a = self.host(max_idle=4)
        a.publish(1, 2, 3)
        self.acquire("x")
        self.acquire("y")
        a.update(2, "leased", "y", claimed=1)
        self.acquire("w", "wait", exclude=["a"])
        self.call("renew", lease_id("y"), 500_000)
        self.assertEqual(self.keys(), set(KEYS))
        return a

    def everything(self, a):
        """Each function once; a supervisor that is told RESYNC tells everything."""
        def tell(function, *args):
            reply = a.call(function, *args)
            self.assertIn(reply[0], ("OK", "RESYNC", "FENCED"))
            if reply[0] == "FENCED":  # the damage looks like another incarnation: it starts anew
                a.incarnation += "x"
                if a.register()[0] == "HOST_ID_TAKEN":
                    self.advance(c.DEADLINE_MS)
                reply = ["RESYNC"]
            if reply[0] == "RESYNC":
                self.assertStatus(a.register(), "OK")
                for part in ("begin", "end"):
                    self.assertIn(a.call("resync", part, sandbox_id(3), "idle", self.now + 9000,
                                         c.SPEC, "", 0, sandbox_id(2), "leased", self.now + 9000,
                                         c.SPEC, lease_id("y"), 1)[0], ("OK", "RESYNC"))
            return reply

        for function, args in (
                ("stats", ()), ("info", ()), ("acquire", (lease_id("x"), "fail_fast", -1, 0, "", "", "")),
                ("acquire", (lease_id("new"), "wait", -1, 0, "a", sandbox_id(3), "")),
                ("wait", (lease_id("w"), self.now + 9999)), ("renew", (lease_id("y"), 9000)),
                ("cancel", (lease_id("w"),)), ("reap", (100,)), ("drain_host", ("a", 0)),
                ("release", (lease_id("x"),)), ("resize", (4, -1, 0))):
            self.assertIn(self.call(function, *args)[0], STATUSES, function)
        tell("heartbeat", *a.beat_args(1))
        tell("publish", sandbox_id(9), self.now + 9000, c.SPEC)
        tell("update", sandbox_id(3), "idle", "", self.now + 9000, 0, c.SPEC,
             sandbox_id(2), "leased", lease_id("y"), self.now + 9000, 1, c.SPEC)  # the rotation
        tell("heartbeat", *a.beat_args(1))

    def heals(self, a):
        for _ in range(3):
            self.everything(a)
        reply = a.heartbeat(1)
        self.assertStatus(reply, "OK")
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(2))

    def test_every_key_of_a_wrong_type(self):
        for key in KEYS:
            for value in (("SET", "rubbish"), ("RPUSH", "rubbish"), ("HSET", "rubbish", "1"),
                          ("ZADD", "1", "rubbish"), ("SADD", "rubbish")):
                with self.subTest(key=key, value=value[0]):
                    self.setUp()
                    a = self.fill()
                    self.redis.call("DEL", self.key(key))
                    self.redis.call(value[0], self.key(key), *value[1:])
                    self.heals(a)

    def test_every_key_deleted(self):
        for key in KEYS:
            with self.subTest(key=key):
                self.setUp()
                a = self.fill()
                self.redis.call("DEL", self.key(key))
                self.heals(a)

    def test_supervisor_is_told_resync(self):
        for key in ("hosts", "sb", "idle:a", "own:a", "todo:a", "meta"):
            with self.subTest(key=key):
                self.setUp()
                a = self.fill()
                self.redis.call("SET", self.key(key), "rubbish")
                replies = [a.heartbeat(1)[0]]
                if replies == ["OK"]:
                    replies.append(a.update(3, "idle")[0])
                self.assertIn("RESYNC", replies)

    def test_every_record_of_garbage(self):
        for key in ("hosts", "sb", "lease", "waiters:wish", "answers"):
            for garbage in GARBAGE:
                with self.subTest(key=key, garbage=garbage):
                    self.setUp()
                    a = self.fill()
                    for field in self.redis.call("HKEYS", self.key(key)):
                        self.redis.call("HSET", self.key(key), field,
                                        garbage.encode("latin-1"))
                    self.heals(a)

    def test_every_field_of_a_record_of_a_wrong_kind(self):
        repack = ("local v = {cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))}"
                  "local n = tonumber(ARGV[2]) if n > #v then return 0 end "
                  "local wrong = {{}, {a = 1}, 0/0, 1/0, 0.5, 'rubbish', -1e300, true, 2^60}"
                  "v[n] = wrong[tonumber(ARGV[3])]"
                  "redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(unpack(v, 1, #v))) return 1")
        for key in ("hosts", "sb", "lease", "waiters:wish"):
            for kind in range(1, 10):
                for at in range(1, 30):
                    self.setUp()
                    a = self.fill()
                    fields = self.redis.call("HKEYS", self.key(key))
                    if not all([self.redis.call("EVAL", repack, 1, self.key(key), field, at, kind)
                                for field in fields]):
                        break
                    with self.subTest(key=key, at=at, kind=kind):
                        self.everything(a)
                        self.everything(a)

    def test_meta_field_by_field(self):
        self.fill()
        fields = self.redis.call("HKEYS", c.META)
        for field in fields:
            for value in ("", "x", "-1", "1e3", "nan", "9" * 30):
                with self.subTest(field=field, value=value):
                    self.setUp()
                    a = self.fill()
                    self.redis.call("HSET", c.META, field, value)
                    self.heals(a)
            with self.subTest(field=field):
                self.setUp()
                a = self.fill()
                self.redis.call("HDEL", c.META, field)
                self.heals(a)

    def test_stats_reads_around_damage_and_writes_nothing(self):
        for key in KEYS:
            self.setUp()
            self.fill()
            self.redis.call("DEL", self.key(key))
            self.redis.call("SET", self.key(key), "rubbish")
            before = self.redis.call("DUMP", self.key(key))
            self.assertIn(self.call("stats")[0], ("OK", "NOT_FOUND"))
            self.assertEqual(self.redis.call("DUMP", self.key(key)), before)

    def test_scores_of_sorted_sets(self):
        for key in ("hosts:idle", "idle:a", "own:a", "todo:a", "lease:ends", "waiters",
                    "waiters:alive"):
            for score in ("inf", "-inf", "0.5", "-1", "1e300"):
                with self.subTest(key=key, score=score):
                    self.setUp()
                    a = self.fill()
                    for member in self.redis.call("ZRANGE", self.key(key), 0, -1):
                        self.redis.call("ZADD", self.key(key), score, member)
                    self.redis.call("ZADD", self.key(key), score, "rubbish", score, "")
                    self.heals(a)

    def test_random_bytes_in_random_places(self):
        seed = int(os.environ.get("SP_SEED", "1"))
        print(f"seed {seed}", flush=True)
        dice = random.Random(seed)
        for _ in range(150):
            self.setUp()
            a = self.fill()
            for _ in range(3):
                key = self.key(dice.choice(KEYS))
                kind = self.redis.call("TYPE", key)
                if kind == "hash":
                    field = dice.choice(self.redis.call("HKEYS", key))
                    value = bytearray(self.redis.call("HGET", key, field)
                                      .encode("utf-8", "surrogateescape"))
                    for _ in range(dice.randint(1, 4)):
                        if value:
                            value[dice.randrange(len(value))] = dice.randrange(256)
                    self.redis.call("HSET", key, field, bytes(value))
                elif kind == "zset":
                    self.redis.call("ZADD", key, dice.choice([0, self.now * 10]), dice.randbytes(9))
            self.everything(a)
            self.everything(a)


c.also(Damage, c.CLUSTER)

if __name__ == "__main__":
    main()
