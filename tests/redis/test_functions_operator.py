"""What operators may expect of the function library: stats, resize, states, drain, reap, info."""

import hashlib
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import redis_case as c  # noqa: E402
import redis_client  # noqa: E402
from redis_case import FunctionCase, lease_id, sandbox_id  # noqa: E402
from redis_client import RedisError  # noqa: E402
from sandpool_test import main  # noqa: E402

READS = ("info", "stats")
# Of the library as it is: its build, and the digest of its code without comments.
BUILD, CODE = 2, "b692eabc0f71c6a8"
NOT_WHEN_FULL = ("acquire", "wait")


class Operator(FunctionCase):
    def test_info(self):
        name, library, word, build = self.call("info")
        self.assertEqual((name, library, word), ("OK", "sandpool_v1", "build"))
        self.assertEqual(build, BUILD)

    def test_the_build_rises_with_the_code(self):
        """Daemons replace an older build only: one that changed under the same number never arrives."""
        text = re.sub(r"--\[\[.*?\]\]", "", redis_client.library_text(), flags=re.S)
        lines = [line.split(" -- ")[0].strip() for line in text.splitlines()]
        code = "\n".join(line for line in lines if line and not line.startswith("--"))
        self.assertEqual(hashlib.sha256(code.encode()).hexdigest()[:16], CODE,
                         "raise BUILD in 84_operator.lua, then write both down here")

    def test_unknown_pool(self):
        self.assertEqual(self.call("stats"), ["NOT_FOUND"])
        self.assertEqual(self.call("resize", 1, 1, 0), ["NOT_FOUND"])
        self.assertEqual(self.call("set_state", "active", 0), ["NOT_FOUND"])
        self.assertEqual(self.call("drain_host", "a", 1), ["NOT_FOUND"])
        self.assertEqual(self.call("reap", 10), ["OK", 0])
        self.assertEqual(self.keys(), set())

    def test_stats(self):
        a = self.host("a", max_idle=5, max_total=20, capacity=3)
        a.publish(1, 2, 3)
        a.publish(4, expires=self.now + 2000)
        self.acquire("x", min_ttl=30_000)
        a.heartbeat(3, 1, 1, 2)
        self.acquire("y", "wait", exclude=["a"])
        self.advance(1500)
        reply = self.call("stats")
        self.assertEqual(reply[:3], ["OK", self.now, 19])
        self.assertEqual(self.stats(), {
            "max_idle": 5, "max_total": 20, "min_ttl_ms": c.MIN_TTL_MS, "claim_timeout_ms": 60_000,
            "state": "active", "revision": 0, "spec_revision": 1, "spec_digest": c.SPEC, "hosts": 1,
            "hosts_live": 1, "idle": 2, "idle_short": 1, "creating": 1, "leased": 1, "tickets": 1,
            "waiting": 2, "shares": 7, "entries": 4, "leases": 1})
        self.assertEqual(self.host_stats(), {"a": {
            "state": "live", "idle": 2, "creating": 1, "leased": 1, "waiters": 2, "share": 7,
            "capacity": 3, "seen_ms": 1500, "version": "v1", "endpoint": "tcp://a.example:7070"}})
        self.call("drain_host", "a", 1)
        self.assertEqual(self.host_stats()["a"]["state"], "draining")
        self.advance(4000)
        self.assertEqual(self.host_stats()["a"]["state"], "dead")

    def test_hosts_are_told_in_the_order_of_their_names(self):
        for name in ("m", "z", "a", "k"):
            self.host(name)
        self.assertEqual(list(self.host_stats()), ["a", "k", "m", "z"])

    def test_resize(self):
        a = self.host(max_idle=5, max_total=9)
        self.assertEqual(self.call("resize", 0, -1, 0), ["OK", 1])
        self.assertEqual(a.heartbeat()[4:6], [0, 9])
        self.assertEqual(self.call("resize", -1, 0, 1), ["OK", 2])
        self.assertEqual(a.heartbeat()[4:6], [0, 0])
        self.assertEqual(self.call("resize", 3, 3, 1), ["STALE", 2])
        self.assertEqual(a.heartbeat()[4:6], [0, 0])

    def test_changes_nudge_all_hosts(self):
        self.host("a")
        self.host("b")
        with self.server.connect() as listener:
            listener.call("SUBSCRIBE", self.key("events:a"), self.key("events:b"))
            listener.receive()
            self.call("resize", 3, -1, 0)
            self.assertEqual([listener.receive()[1] for _ in range(2)],
                             [self.key("events:a"), self.key("events:b")])

    def test_states(self):
        for state, then in (("active", ()), ("draining", ()),
                            ("destroying", ("active", "draining")),
                            ("destroyed", ("active", "draining", "destroying", "destroyed"))):
            with self.subTest(state=state):
                self.setUp()
                self.host()
                self.assertEqual(self.call("set_state", state, 0), ["OK", 1])
                self.assertEqual(self.stats()["state"], state)
                for other in then:
                    self.assertEqual(self.call("set_state", other, 0), ["DESTROYED"])
                if then:
                    self.assertEqual(self.call("resize", 1, 1, 0), ["DESTROYED"])
        self.assertEqual(self.stats()["revision"], 1)

    def test_pools_do_not_touch_each_other_b145(self):
        a = self.host()
        a.publish(1)
        before = {key: self.redis.call("DUMP", key) for key in self.redis.call("KEYS", "*")}
        for other in ("sandpool:{other}:meta", "staging:{default}:meta"):
            self.redis.call("HSET", other + ":clock", "s", self.now // 1000, "us", 0)
            call = lambda name, *args: self.redis.fcall(name, other, *args)  # noqa: E731,B023
            self.assertStatus(call("register", "a", "i", 0, lease_id("s"), "b", "e", 1, "v", 4, 0, 0,
                                   0, "active", 0, 1, "d"), "OK")
            self.assertStatus(call("set_state", "destroyed", 0), "OK")
            call("unregister", "a", "i", 1)
            call("reap", 1000)
            self.redis.call("DEL", other, other + ":clock")
        self.assertEqual({key: self.redis.call("DUMP", key) for key in self.redis.call("KEYS", "*")},
                         before)

    def test_functions_and_their_flags(self):
        library = self.redis.call("FUNCTION", "LIST", "LIBRARYNAME", "sandpool_v1")[0]
        functions = {entry[1][len("sandpool_v1_"):]: set(entry[5])
                     for entry in library[library.index("functions") + 1]}
        for name, flags in functions.items():
            expected = ({"no-writes"} if name in READS else
                        set() if name in NOT_WHEN_FULL else {"allow-oom"})
            self.assertEqual(flags, expected, name)
        self.assertEqual(len(functions), 17)

    def test_a_full_server_still_ends_things_b138(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.redis.call("CONFIG", "SET", "maxmemory", 1)
        try:
            for name in ("y", "x"):
                with self.refused("OOM"):
                    self.acquire(name)
            self.assertStatus(self.call("renew", lease_id("x"), 5000), "OK")
            self.assertStatus(a.heartbeat(), "OK")
            self.assertEqual(self.call("release", lease_id("x")), ["OK"])
            self.assertEqual(self.call("cancel", lease_id("z")), ["OK"])
            self.assertEqual(a.update(1, "gone"), ["OK"])
            self.assertStatus(a.register(), "OK")
            self.assertEqual(a.resync(), ["OK"])
            self.assertStatus(self.call("reap", 10), "OK")
            self.assertEqual(a.call("unregister"), ["OK"])
        finally:
            self.redis.call("CONFIG", "SET", "maxmemory", 0)

    def test_reading_works_read_only(self):
        self.host()
        for name in READS:
            self.assertStatus(self.redis.call("FCALL_RO", f"sandpool_v1_{name}", 1, c.META), "OK")
        with self.refused("Can not execute a script with write flag"):
            self.redis.call("FCALL_RO", "sandpool_v1_reap", 1, c.META, 1)

    def test_a_user_with_the_pools_keys_only(self):
        self.redis.call("ACL", "SETUSER", "app", "on", ">pw", "~sandpool:{default}:*",
                        "&sandpool:{default}:*", "+fcall", "+@read", "+@write", "+time", "+publish")
        try:
            a = self.host()
            a.publish(1)
            with self.server.connect() as redis:
                redis.call("AUTH", "app", "pw")
                self.assertStatus(redis.fcall("acquire", c.META, lease_id("x"), "fail_fast", -1, 0,
                                              "", "", ""), "OK")
                with self.refused("NOPERM"):
                    redis.fcall("stats", "sandpool:{other}:meta")
        finally:
            self.redis.call("ACL", "DELUSER", "app")


class Reap(FunctionCase):
    def reap_all(self):
        for _ in range(60):
            if self.call("reap", 1000)[1] == 0:
                break
        for _ in range(60):  # the walk over what no index names
            self.call("reap", 1000)

    def test_everything_goes_b148(self):
        a = self.host(max_idle=200)
        for at in range(0, 200, 50):
            a.publish(*range(at, at + 50))
        for n in range(200):
            self.acquire(n)
        for n in range(200, 230):
            self.acquire(n, "wait")
        for n in range(200):
            self.call("release", lease_id(n))
            a.update(n, "gone")
        self.advance(c.TOMBSTONE_MS)
        a.heartbeat()
        self.reap_all()
        self.assertEqual(self.keys(), {"meta", "hosts", "answers"})
        a.call("unregister")
        self.assertEqual(self.keys(), {"meta"})

    def test_limit_is_kept(self):
        for n in range(30):
            self.call("cancel", lease_id(n))
        self.host()
        self.advance(c.TOMBSTONE_MS)
        self.assertEqual(self.call("reap", 10), ["OK", 10])
        self.assertEqual(self.call("reap", 1000), ["OK", 20])
        for limit in (0, 1001):
            with self.refused("ERR sandpool: reap: limit: must be a whole number from 1 to 1000"):
                self.call("reap", limit)

    def test_host_unseen_for_an_hour_is_forgotten(self):
        a, b = self.host("a"), self.host("b")
        a.heartbeat()
        a.publish(1, 2)
        self.acquire("x")
        self.advance(c.HOUR_MS)
        b.heartbeat()
        self.call("reap", 100)
        self.assertIn("a", self.host_stats())
        self.advance(1)
        self.call("reap", 100)
        self.assertEqual(list(self.host_stats()), ["b"])
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "host_lost"])
        self.assertEqual(self.keys() - {"meta", "hosts", "answers"}, {"lease", "lease:ends"})
        self.assertEqual(a.heartbeat(), ["RESYNC"])

    def test_leases_in_use_are_kept(self):
        a = self.host()
        a.update(1, "leased", "x", ends=self.now + c.HOUR_MS, claimed=1)
        self.advance(c.HOUR_MS + c.TOMBSTONE_MS - 1)
        a.heartbeat()
        self.reap_all()
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))

    def test_leftovers_of_damage(self):
        a = self.host()
        a.publish(1, 2, 3)
        self.acquire("x")
        self.acquire("y", "wait")
        self.call("release", lease_id("x"))
        self.redis.call("DEL", self.key("lease:ends"), self.key("own:a"), self.key("waiters"),
                        self.key("waiters:alive"))
        self.redis.call("HSET", self.key("answers"), "ghost", "x")
        a.resync()
        self.reap_all()
        # Nobody names them any more: the owner is asked, and says that they are gone.
        for item in a.items():
            a.call("update", item[1], "gone", "", 0, 0, "")
        self.advance(c.TOMBSTONE_MS)
        a.heartbeat()
        self.reap_all()
        self.assertEqual(self.keys(), {"meta", "hosts", "answers"})
        self.assertEqual(self.redis.call("HKEYS", self.key("answers")), ["a"])

    def test_records_of_a_host_that_is_lost(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x")
        self.redis.call("DEL", self.key("hosts"))
        self.reap_all()
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "host_lost"])
        self.assertEqual(self.keys(), {"meta", "lease", "lease:ends"})


class RealClock(FunctionCase):
    real_clock = True

    def test_time_is_the_servers(self):
        self.now = self.redis.time_ms()
        a = self.host()
        a.publish(1)
        reply = self.acquire("x")
        self.assertStatus(reply, "OK", sandbox_id(1))
        self.assertLess(abs(reply[6] - self.redis.time_ms()), 5000)

    def test_loading_again_keeps_the_state(self):
        self.now = self.redis.time_ms()
        a = self.host()
        a.publish(1)
        self.redis.call("FUNCTION", "FLUSH")
        with self.assertRaisesRegex(RedisError, "Function not found"):
            self.acquire("x")
        self.redis.load_library()
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))

    def test_library_is_ascii_and_fits_an_upload(self):
        text = redis_client.library_text()
        self.assertTrue(text.isascii())
        self.assertLess(len(text), 128 << 10)


c.also(Operator, c.CLUSTER, c.VALKEY)
c.also(Reap, c.CLUSTER)

if __name__ == "__main__":
    main()
