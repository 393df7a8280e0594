"""deploy/redis/users.acl in a real server: every user can do its functions, and nothing else.

A function runs with its caller's rights, so a user needs the data commands that the functions use,
on keys and channels of sandpool alone. Which functions a user may call is a list of names; that this
list means something, and that everything outside of it is refused, is what these tests show.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import redis_client  # noqa: E402
from redis_client import Redis, RedisError, Server, library_text  # noqa: E402

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "redis"
KEY = "sandpool:{p}:meta"
SECRET, LEASE = "c" * 64, "d" * 64
BOX = "0123456789abcdefghj{}"
SUPERVISOR = {"register", "heartbeat", "publish", "update", "resync", "unregister", "reap"}
CLIENT = {"acquire", "wait", "cancel", "renew", "release"}
OPERATOR = {"resize", "set_state", "drain_host"}
READ = {"stats", "info"}
ALLOWED = {
    "sandpool-supervisor": SUPERVISOR | CLIENT | OPERATOR | READ,
    "sandpool-client": CLIENT | READ,
    "sandpool-operator": OPERATOR | READ,
    "sandpool-viewer": READ,
}


class AclServer(Server):
    """A server that knows users.acl only, with passwords made by deploy/redis/set-passwords."""

    def __enter__(self):
        self.secrets = tempfile.mkdtemp(prefix="sandpool-redis-")
        acl = f"{self.secrets}/users.acl"
        with open(DEPLOY / "users.acl", "rb") as template, open(acl, "wb") as out:
            subprocess.run([DEPLOY / "set-passwords", self.secrets], stdin=template, stdout=out,
                           check=True)
        self.options += ["--aclfile", acl]
        return super().__enter__()

    def __exit__(self, *_):
        super().__exit__()
        subprocess.run(["rm", "-rf", self.secrets], check=True)

    def password(self, user):
        with open(f"{self.secrets}/{user}.password", encoding="ascii") as file:
            return file.read().strip()

    def connect(self, timeout=5.0, user="admin"):
        redis = Redis(path=self.path, timeout=timeout)
        try:
            redis.call("AUTH", user, self.password(user))
        except BaseException:
            redis.close()
            raise
        return redis


class Acl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = AclServer()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        with cls.server.connect() as admin:
            text = str(admin.call("FUNCTION", "LIST", "LIBRARYNAME", "sandpool_v1"))
        cls.names = sorted(set(re.findall(r"'name', 'sandpool_v1_(\w+)'", text)))

    def setUp(self):
        self.admin = self.connect("admin")
        self.admin.call("FLUSHALL")
        self.seq = 0

    def connect(self, user):
        redis = self.server.connect(user=user)
        self.addCleanup(redis.close)
        return redis

    def host(self, redis, name, *args):
        """A supervisor's call; the status word is checked."""
        reply = redis.fcall(name, KEY, "h1", "inc1", self.seq, *args)
        self.seq += 1
        self.assertEqual(reply[0], "OK", reply)
        return reply

    def stand_up(self, redis, sandboxes=3):
        """A host with idle sandboxes: what all the others need."""
        self.host(redis, "register", SECRET, "boot", "unix:///run/x.sock", 1, "0.1.0", 8, 0, 0,
                  60000, "active", 0, 1, "digest")
        self.host(redis, "heartbeat", 0, sandboxes, 0, 0, 0, 8, 0, "active", 0)
        expires = redis.time_ms() + 600_000
        items = [word for n in range(sandboxes) for word in (BOX.format(n), expires, "digest")]
        reply = self.host(redis, "publish", *items)
        self.assertEqual(reply[2::4], ["idle"] * sandboxes)

    def denied(self, redis, *words):
        with self.assertRaises(RedisError) as caught:
            redis.call(*words)
        self.assertRegex(str(caught.exception), "^NOPERM|^ERR The user executing the script can't")

    # ---- what they can ----

    def test_a_supervisor_can_do_all_of_its_work(self):
        redis = self.connect("sandpool-supervisor")
        self.stand_up(redis)
        got = redis.fcall("acquire", KEY, LEASE, "fail_fast", -1, 0, "", "", "")
        self.assertEqual(got[0], "OK", got)
        beat = self.host(redis, "heartbeat", 2, 0, 0, 0, 0, 8, 0, "active", 0)
        self.assertIn("grant", beat)
        self.host(redis, "update", got[1], "leased", LEASE, got[4], 1, "digest")
        self.assertEqual(redis.fcall("renew", KEY, LEASE, 900_000)[0], "OK")
        self.assertEqual(redis.fcall("release", KEY, LEASE), ["OK"])
        for part in ("begin", "end"):
            self.host(redis, "resync", part)
        self.assertEqual(redis.fcall("reap", KEY, 64)[0], "OK")
        self.assertEqual(redis.fcall("resize", KEY, 4, -1, 0)[0], "OK")
        self.assertEqual(redis.fcall("set_state", KEY, "draining", 0)[0], "OK")
        self.assertEqual(redis.fcall("drain_host", KEY, "h1", 1), ["OK"])
        self.assertEqual(redis.fcall("stats", KEY)[0], "OK")
        self.host(redis, "unregister")

    def test_a_supervisor_hears_of_what_is_asked_of_it_and_of_nothing_else(self):
        redis, listener = self.connect("sandpool-supervisor"), self.connect("sandpool-supervisor")
        self.stand_up(redis)
        listener.call("SUBSCRIBE", "sandpool:{p}:events:h1")
        redis.fcall("acquire", KEY, LEASE, "fail_fast", -1, 0, "", "", "")
        self.assertEqual(listener.receive()[:2], ["message", "sandpool:{p}:events:h1"])
        self.denied(self.connect("sandpool-supervisor"), "SUBSCRIBE", "other")
        self.denied(self.connect("sandpool-supervisor"), "PSUBSCRIBE", "*")

    def test_a_supervisor_loads_the_library_and_can_connect(self):
        redis = self.connect("sandpool-supervisor")
        self.admin.call("FUNCTION", "FLUSH")
        with self.assertRaisesRegex(RedisError, "Function not found"):
            redis.fcall("info", KEY)
        redis.load_library()
        self.assertEqual(redis.fcall("info", KEY)[0], "OK")
        for words in (["PING"], ["ROLE"], ["SELECT", 0], ["CLIENT", "SETNAME", "x"],
                      ["INFO", "memory"]):
            redis.call(*words)

    def test_a_client_acquires_waits_renews_releases_and_calls_off(self):
        self.stand_up(self.connect("sandpool-supervisor"), sandboxes=1)
        redis = self.connect("sandpool-client")
        now = redis.time_ms()
        self.assertEqual(redis.fcall("acquire", KEY, LEASE, "fail_fast", -1, 0, "", "", "")[0], "OK")
        other = "e" * 64
        self.assertEqual(redis.fcall("acquire", KEY, other, "wait", -1, 0, "", "", "")[0], "WAIT")
        self.assertEqual(redis.fcall("wait", KEY, other, now + 60_000)[0], "WAIT")
        self.assertIsNone(redis.call("BLPOP", f"sandpool:{{p}}:grant:{other}", 0.01))
        self.assertEqual(redis.fcall("cancel", KEY, other), ["OK"])
        self.assertEqual(redis.fcall("renew", KEY, LEASE, 900_000)[0], "OK")
        rejected = redis.fcall("acquire", KEY, LEASE, "fail_fast", -1, 0, "", BOX.format(0), "h1")
        self.assertEqual(rejected, ["EMPTY"])
        self.assertEqual(redis.fcall("release", KEY, LEASE), ["NOT_FOUND"])
        self.assertEqual(redis.call("FCALL_RO", "sandpool_v1_stats", 1, KEY)[0], "OK")

    def test_an_operator_changes_intent_and_finds_pools(self):
        self.stand_up(self.connect("sandpool-supervisor"))
        redis = self.connect("sandpool-operator")
        self.assertEqual(redis.fcall("resize", KEY, 1, 10, 0)[0], "OK")
        self.assertEqual(redis.fcall("drain_host", KEY, "h1", 1), ["OK"])
        self.assertEqual(redis.fcall("drain_host", KEY, "h1", 0), ["OK"])
        self.assertEqual(redis.fcall("set_state", KEY, "destroying", 0)[0], "OK")
        self.assertIn(KEY, redis.call("SCAN", 0, "MATCH", "sandpool:{*}:meta", "COUNT", 1000)[1])

    def test_a_viewer_reads(self):
        self.stand_up(self.connect("sandpool-supervisor"))
        redis = self.connect("sandpool-viewer")
        self.assertEqual(redis.call("FCALL_RO", "sandpool_v1_stats", 1, KEY)[0], "OK")
        self.assertEqual(redis.call("FCALL_RO", "sandpool_v1_info", 1, KEY)[0], "OK")

    # ---- what they cannot ----

    def test_no_user_calls_a_function_that_is_not_its_own(self):
        self.assertEqual(set(self.names), SUPERVISOR | CLIENT | OPERATOR | READ)
        for user, allowed in ALLOWED.items():
            redis = self.connect(user)
            for name in self.names:
                words = "FCALL_RO" if name in READ else "FCALL", f"sandpool_v1_{name}", 1, KEY
                with self.subTest(user=user, name=name):
                    if name not in allowed:
                        self.denied(redis, *words)
                        continue
                    # Without arguments the function itself refuses: it was reached.
                    try:
                        reply = redis.call(*words)
                        self.assertIn(reply[0], ("OK", "NOT_FOUND"))
                    except RedisError as err:
                        self.assertRegex(str(err), "^ERR sandpool: ")

    def test_no_function_of_somebody_else_is_callable(self):
        self.admin.call("FUNCTION", "LOAD", "REPLACE",
                        "#!lua name=other\nredis.register_function('other', "
                        "function(keys) return redis.call('GET', keys[1]) end)")
        self.addCleanup(self.admin.call, "FUNCTION", "DELETE", "other")
        for user in ALLOWED:
            self.denied(self.connect(user), "FCALL", "other", 1, KEY)
            self.denied(self.connect(user), "EVAL", "return 1", 0)

    def test_no_key_and_no_channel_outside(self):
        self.admin.call("SET", "foreign", "x")
        for user in ALLOWED:
            redis = self.connect(user)
            with self.subTest(user):
                self.denied(redis, "HGET", "foreign", "x")
                self.denied(redis, "FCALL_RO", "sandpool_v1_stats", 1, "other:{p}:meta")
                if user != "sandpool-viewer":
                    self.denied(redis, "DEL", "foreign")
                    self.denied(redis, "PUBLISH", "other", "x")
                    self.denied(redis, "PUBLISH", "sandpool:{p}:else", "x")
        self.assertEqual(self.admin.call("GET", "foreign"), "x")

    def test_a_viewer_writes_nothing(self):
        redis = self.connect("sandpool-viewer")
        self.denied(redis, "HSET", KEY, "state", "destroyed")
        self.denied(redis, "DEL", KEY)
        self.denied(redis, "FCALL", "sandpool_v1_stats", 1, KEY)

    def test_no_command_that_an_administrator_needs(self):
        for user in ALLOWED:
            redis = self.connect(user)
            for words in (["KEYS", "*"], ["FLUSHALL"], ["FLUSHDB"], ["CONFIG", "GET", "*"],
                          ["CONFIG", "SET", "maxmemory", "1"], ["ACL", "LIST"], ["MONITOR"],
                          ["SHUTDOWN"], ["CLIENT", "LIST"],
                          ["CLIENT", "KILL", "ID", 1], ["FUNCTION", "FLUSH"],
                          ["FUNCTION", "DELETE", "sandpool_v1"], ["REPLICAOF", "NO", "ONE"],
                          ["SLOWLOG", "GET"], ["SCRIPT", "FLUSH"], ["SET", KEY, "x"], ["GET", KEY]):
                with self.subTest(user=user, words=words):
                    self.denied(redis, *words)
            if user != "sandpool-supervisor":
                self.denied(redis, "FUNCTION", "LOAD", "REPLACE", library_text())

    def test_only_who_may_list_keys_can(self):
        for user in ALLOWED:
            redis = self.connect(user)
            if user in ("sandpool-operator", "sandpool-viewer"):
                redis.call("SCAN", 0)
            else:
                self.denied(redis, "SCAN", 0)

    def test_nobody_gets_in_without_a_password(self):
        with Redis(path=self.server.path) as redis:
            with self.assertRaisesRegex(RedisError, "NOAUTH"):
                redis.call("PING")
            with self.assertRaisesRegex(RedisError, "WRONGPASS"):
                redis.call("AUTH", "default", "")
            for user in ALLOWED:
                with self.assertRaisesRegex(RedisError, "WRONGPASS"):
                    redis.call("AUTH", user, "guess")

    # ---- what the list is worth ----

    def test_the_rights_in_a_function_are_the_callers(self):
        """Without a data command the functions that use it fail: none is granted for nothing, and
        a name on the list gives no more rights than the rest of the line."""
        self.admin.call("ACL", "SETUSER", "probe", "on", "nopass", "~sandpool:{*}:*", "-@all",
                        "+fcall|sandpool_v1_acquire")
        self.addCleanup(self.admin.call, "ACL", "DELUSER", "probe")
        self.stand_up(self.connect("sandpool-supervisor"))
        with Redis(path=self.server.path) as redis:
            redis.call("AUTH", "probe", "x")
            self.denied(redis, "FCALL", "sandpool_v1_acquire", 1, KEY, LEASE, "fail_fast", -1, 0,
                        "", "", "")

    def test_data_commands_are_those_of_the_library(self):
        used = set(re.findall(r"(?:call|pcall)\((?:p, )?'([A-Z]+)'", library_text()))
        used |= {"BLPOP"}  # of the client, on its wake-up list
        always = {"ping", "role", "select", "info", "scan", "function|load", "client|setname",
                  "subscribe", "unsubscribe"}
        for line in (DEPLOY / "users.acl").read_text().splitlines():
            if not line.startswith("user sandpool-"):
                continue
            user = line.split()[1]
            granted = {word[1:] for word in line.split() if word.startswith("+")}
            data = {word.upper() for word in granted - always if not word.startswith("fcall")}
            with self.subTest(user):
                self.assertLessEqual(data, used)
                if user == "sandpool-supervisor":
                    self.assertEqual(data, used)


if __name__ == "__main__":
    unittest.main()
