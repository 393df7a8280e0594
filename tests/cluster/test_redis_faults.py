"""One fault of Redis, or of the way to it, per test.

What each must show is in fault_case.py: daemons answer, typed and in time; held sandboxes and their
running programs notice nothing; ends come on time; five seconds after the cause ends all is as
before. Here stands what is particular to a fault.
"""

import contextlib
import os
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
import redis_proxy  # noqa: E402
import sandpool_test as t  # noqa: E402
from fault_case import BROKEN, MAX_IDLE, RECOVERY_S, ClusterCase  # noqa: E402
from redis_client import RedisError  # noqa: E402
from sandpool_test import limit, main, wait_until  # noqa: E402

USER = "supervisor"
PASSWORD = "the-right-password-of-this-test"
WRONG = "another-password-of-this-test"
POOL_KEYS = ("meta", "hosts", "hosts:idle", "idle:a", "own:a", "sb", "todo:a", "lease", "lease:ends",
             "waiters", "waiters:alive", "waiters:wish", "answers")


def key(name):
    return f"sandpool:{{default}}:{name}"


class Load:
    """Threads that acquire and release over Redis and count what they are answered."""

    def __init__(self, cluster, threads=2):
        self.cluster = cluster
        self.stopping = threading.Event()
        self.done = 0
        self.refused = []
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]

    def run(self):
        client = c.Client(self.cluster, timeout=2.0)
        while not self.stopping.is_set():
            try:
                box = client.acquire()
                box.release()
                self.done += 1
            except BROKEN as error:
                self.refused.append(error)
            time.sleep(0.02)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(20)

    def goes_on(self):
        """Somebody is served although the load does not stop. That all is as before can be said
        only after it: a pool that is taken from is never full for long."""
        done = self.done
        wait_until(lambda: self.done > done, RECOVERY_S, "the load is served again")


class ServerFaults(ClusterCase):
    """Redis ends, stops, forgets."""

    def test_killed_and_started_empty_b132_b140(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            cluster.redis.kill()
            watch.outage()
            watch.remote_fails()
            cluster.redis.start()
            watch.recovered()

    def test_killed_and_started_with_its_file(self):
        with self.cluster(append=True) as cluster, self.watch(cluster) as watch:
            secret = "a" * 64
            box = watch.client.acquire(secret)
            cluster.redis.restart(down_s=1.0)
            watch.recovered()
            # The lease is known as before: the same id, the same sandbox.
            self.assertEqual(watch.client.ask(c.lease_of(secret))["id"], box.id)
            self.assertEqual(box.release().status, 204)

    def test_leases_survive_a_directory_that_was_lost_b140(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            secret = "b" * 64
            box = watch.client.acquire(secret)
            cluster.redis.restart()
            watch.recovered()
            # RESYNC told Redis of the lease: a retry is answered with what the client holds.
            self.assertEqual(watch.client.ask(c.lease_of(secret))["id"], box.id)
            self.assertEqual(box.shell("echo mine").json["stdout"], "mine\n")

    def test_stopped_for_a_while_b135(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            cluster.redis.pause()
            watch.outage()
            cluster.redis.resume()
            watch.recovered()

    def test_debug_sleep_b135(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            with contextlib.closing(cluster.redis.connect(timeout=10)) as sleeper:
                sleeper.send("DEBUG", "SLEEP", "4")
                watch.outage()
            watch.recovered(within=9)

    def test_away_for_longer_than_the_host_deadline_b142_p189(self):
        """→D: creations go on without a heartbeat, up to the last share and no further."""
        with self.cluster() as cluster, self.watch(cluster) as watch:
            cluster.redis.kill()
            end = time.monotonic() + 8
            while time.monotonic() < end:
                watch.outage()
                # With Redis away every host keeps to its last share.
                for name, pool in cluster.pools().items():
                    self.assertLessEqual(pool["idle"] + pool["creating"], MAX_IDLE, name)
                self.assertLessEqual(cluster.idle(), MAX_IDLE)
                time.sleep(0.5)
            cluster.redis.start()
            watch.recovered()

    @limit(240)
    def test_restarted_over_and_over_under_load_b131(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            with Load(cluster) as load:
                for number in range(20):
                    time.sleep(0.05 * (number % 5))
                    cluster.redis.restart(down_s=0.02 * (number % 4))
                load.goes_on()
            watch.recovered()

    def test_flushed_b140(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            for _ in range(3):
                cluster.redis.call("FLUSHALL")
                watch.recovered()

    def test_a_renewal_survives_a_directory_that_was_lost_b095(self):
        """→D: sandboxes die with their daemon; what forgets and comes back here is the directory."""
        with self.cluster() as cluster, self.watch(cluster) as watch:
            box = watch.client.acquire(ttl_ms=20000)
            answer = box.renew("4m")
            self.assertEqual(answer.status, 200, answer)
            begin = time.monotonic()
            cluster.redis.restart()
            watch.recovered()
            left_ms = 240_000 - (time.monotonic() - begin) * 1000
            again = watch.client.ask(c.lease_of(box.secret))
            self.assertEqual(again["id"], box.id)
            self.assertAlmostEqual(again["remaining_ms"], left_ms, delta=2000)
            held = cluster.daemons[box.owner].request(
                "GET", f"/v1/sandboxes/{box.id}", None, {"X-Sandpool-Token": box.secret}).json
            self.assertAlmostEqual(held["remaining_ms"], left_ms, delta=2000)
            box.release()

    def test_what_cannot_be_renewed_is_not_lost_b096(self):
        """Taken, and then all that its host asks of Redis fails: nobody claims it, and it is killed."""
        with self.cluster(proxy=True) as cluster, self.watch(cluster) as watch:
            lease = c.lease_of("f" * 64)
            taken = watch.client.ask(lease)
            daemon = cluster.daemons[taken["host"]]

            def there():
                return taken["id"] in {box["id"] for box in daemon.sandboxes()}
            cluster.proxy.on("*", redis_proxy.ERROR, times=10 ** 6, text="ERR broken")
            self.assertEqual(watch.client.fcall("renew", lease, 60000)[0], "OK")
            time.sleep(1)
            self.assertTrue(there())
            cluster.proxy.clear()
            wait_until(lambda: not there(), 6, "it is killed unclaimed")
            watch.recovered()
            with self.assertRaises(c.Refused) as caught:
                watch.client.ask(lease)
            self.assertEqual(caught.exception.status, "LEASE_ENDED")
            self.assertIsNone(cluster.redis.call("HGET", key("sb"), taken["id"]))

    def test_a_resize_survives_a_flush(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            self.assertEqual(cluster.fcall("resize", 3, -1, 0)[0], "OK")
            cluster.wait_idle(3)
            cluster.redis.call("FLUSHALL")
            wait_until(lambda: cluster.redis.call("HGET", key("meta"), "max_idle")
                       == "3", 5, "the operator's intent is back")
            cluster.wait_idle(3)
            cluster.fcall("resize", MAX_IDLE, -1, 0)
            watch.recovered()


class KeyFaults(ClusterCase):
    """Somebody with the right to write does."""

    @limit(240)
    def test_each_key_deleted(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            for name in POOL_KEYS:
                with self.subTest(key=name):
                    cluster.redis.call("DEL", key(name))
                    watch.recovered()

    @limit(240)
    def test_each_key_of_a_wrong_type(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            for name in POOL_KEYS:
                with self.subTest(key=name):
                    cluster.redis.call("SET", key(name), "of another type")
                    watch.recovered()

    @limit(240)
    def test_each_record_undecodable(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            for name in ("hosts", "sb", "lease", "answers", "waiters:wish", "meta"):
                for value in ("", "no record", "\xff\xff\xff", "\x93\x01\x02\x03", "9" * 2000):
                    with self.subTest(key=name, value=value[:12]):
                        for field in cluster.redis.call("HKEYS", key(name)):
                            cluster.redis.call("HSET", key(name), field, value)
                        watch.recovered()

    def test_foreign_ids_in_the_idle_list_b117(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            far = cluster.redis.time_ms() + 3600_000
            other = wait_until(lambda: next((box["id"] for box in cluster.daemons["b"].sandboxes()
                                             if box["state"] == "idle"), None), 5, "b has one")
            cluster.redis.call("ZADD", key("idle:a"), far, "0" * 20, far, other)
            for _ in range(MAX_IDLE):
                box = watch.client.acquire()
                self.assertNotEqual(box.id, "0" * 20)
                box.release()
            watch.recovered()
            self.assertIsNone(cluster.redis.call("ZSCORE", key("idle:a"), "0" * 20))

    @limit(180)
    def test_evicting_lease_keys_never_dispenses_twice_b141(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            held = [watch.client.acquire() for _ in range(3)]
            for _ in range(5):
                cluster.redis.call("DEL", key("lease"))
                cluster.redis.call("DEL", key("sb"))
                with contextlib.suppress(c.Refused):
                    box = watch.client.acquire()
                    self.assertNotIn(box.id, [other.id for other in held])
                    box.release()
            for box in held:
                self.assertEqual(box.shell("echo mine").json["stdout"], "mine\n")
                box.release()
            watch.recovered()

    def test_eviction_policy_is_warned_of_b141(self):
        with self.cluster(redis_config=["maxmemory-policy allkeys-lru"]) as cluster:
            self.assertIn("allkeys-lru", cluster.daemons["a"].log())


class FunctionFaults(ClusterCase):
    """The library vanishes, connections vanish."""

    def test_functions_flushed_in_a_loop_under_load_b137(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            with Load(cluster) as load:
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    cluster.redis.call("FUNCTION", "FLUSH")
                    time.sleep(0.05)
                watch.outage()
                load.goes_on()
            watch.recovered()
            # Clients without the right to load meet this one error and none else.
            others = [error for error in load.refused if "unction not found" not in str(error) and
                      not (isinstance(error, c.Refused) and error.status in ("EMPTY", "WAIT"))]
            self.assertEqual(others, [])

    def test_connections_killed_in_a_loop_under_load_b130(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            with Load(cluster) as load:
                end = time.monotonic() + 4
                while time.monotonic() < end:
                    cluster.redis.kill_clients()
                    cluster.redis.call("CLIENT", "KILL", "TYPE", "pubsub")
                    time.sleep(0.05)
                watch.outage()
                load.goes_on()
            watch.recovered()


class StateFaults(ClusterCase):
    """Redis is there and refuses (b138)."""

    def test_made_a_replica_and_a_master_again_b138(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            # Of nobody: it stays read-only with what it has.
            cluster.redis.call("REPLICAOF", "127.0.0.1", "1")
            time.sleep(2)
            watch.outage()
            watch.remote_fails()
            before = self.greetings(cluster)
            time.sleep(2)
            # No tight loop: backoff grows to 2 s.
            self.assertLess(self.greetings(cluster) - before, 2 * 2 * 10)
            cluster.redis.call("REPLICAOF", "NO", "ONE")
            watch.recovered()

    @staticmethod
    def greetings(cluster):
        for line in cluster.redis.call("INFO", "stats").splitlines():
            if line.startswith("total_connections_received:"):
                return int(line.split(":")[1])
        raise AssertionError("INFO has no total_connections_received")

    def test_out_of_memory_b138(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            box = watch.client.acquire(ttl_ms=60000)
            cluster.redis.call("CONFIG", "SET", "maxmemory", "1")
            watch.outage()
            watch.remote_fails()
            # What frees memory or keeps hosts alive is let through.
            self.assertEqual(watch.client.fcall("release", c.lease_of(box.secret))[0], "OK")
            cluster.redis.call("CONFIG", "SET", "maxmemory", "0")
            watch.recovered()
            wait_until(lambda: box.claim().status in (404, 410), 5, "the release arrived")

    def test_a_save_that_fails_b138(self):
        """MISCONF as it really comes: a directory lies where the file is to be."""
        with self.cluster(redis_config=["save 1 1", "stop-writes-on-bgsave-error yes"]) as cluster, \
                self.watch(cluster) as watch:
            path = f"{cluster.redis.directory}/dump.rdb"
            wait_until(lambda: self.lies_in_the_way(path), 5, "there is a directory")
            wait_until(lambda: self.saved(cluster, "err"), 10, "a save fails", interval=0.1)
            watch.outage()
            watch.remote_fails()
            with self.assertRaisesRegex(RedisError, "MISCONF"):
                watch.client.fcall("reap", 1)
            before = self.calls(cluster)
            time.sleep(2)
            # Each host asks five times a second, and its pool once.
            self.assertLess(self.calls(cluster) - before, 2 * 2 * 10)
            shutil.rmtree(path)
            wait_until(lambda: self.saved(cluster, "ok"), 10, "a save succeeds", interval=0.1)
            watch.recovered()

    @staticmethod
    def lies_in_the_way(path):
        with contextlib.suppress(OSError):  # Redis may save between the two
            if os.path.isfile(path):
                os.unlink(path)
            os.makedirs(f"{path}/in the way", exist_ok=True)
            return True
        return False

    @staticmethod
    def saved(cluster, status):
        with contextlib.suppress(RedisError):  # one is under way
            cluster.redis.call("BGSAVE")
        facts = cluster.redis.call("INFO", "persistence")
        return f"rdb_last_bgsave_status:{status}" in facts

    @staticmethod
    def calls(cluster):
        for line in cluster.redis.call("INFO", "stats").splitlines():
            if line.startswith("total_error_replies:"):
                return int(line.split(":")[1])
        raise AssertionError("INFO has no total_error_replies")

    @limit(240)
    def test_each_refusal_of_redis_b138(self):
        with self.cluster(proxy=True) as cluster, self.watch(cluster) as watch:
            self.each_refusal(cluster, watch)

    def each_refusal(self, cluster, watch):
        for text in ("LOADING Redis is loading the dataset in memory",
                     "MASTERDOWN Link with MASTER is down",
                     "MISCONF Redis is configured to save RDB snapshots",
                     "READONLY You can't write against a read only replica.",
                     "BUSY Redis is busy running a script.",
                     "TRYAGAIN Multiple keys request during rehashing of slot",
                     "CLUSTERDOWN The cluster is down", "NOPERM no permissions", "ERR unknown"):
            with self.subTest(error=text):
                watch.expire()
                cluster.proxy.on("*", redis_proxy.ERROR, times=10 ** 6, text=text)
                watch.outage()
                cluster.proxy.clear()
                watch.recovered()
                watch.expired_on_time()

    def test_password_demanded_and_not_any_more_b133(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            cluster.redis.call("CONFIG", "SET", "requirepass", PASSWORD)
            cluster.redis.password = PASSWORD
            cluster.redis.kill_clients()
            watch.outage()
            for daemon in cluster.daemons.values():
                wait_until(lambda: "NOAUTH" in daemon.log(), 5, "the log says why")
            cluster.redis.call("CONFIG", "SET", "requirepass", "")
            cluster.redis.password = None
            watch.recovered()

    def test_wrong_password_corrected_live_b133_b146(self):
        with self.authenticated() as (cluster, path), self.watch(cluster) as watch:
            # Corrected in Redis …
            cluster.redis.call("ACL", "SETUSER", USER, "resetpass", ">" + WRONG)
            cluster.redis.kill_clients()
            watch.outage()
            for daemon in cluster.daemons.values():
                wait_until(lambda: "WRONGPASS" in daemon.log(), 5, "the log says why")
            cluster.redis.call("ACL", "SETUSER", USER, "resetpass", ">" + PASSWORD)
            watch.recovered()
            # … and in the file, which is read at each connect.
            cluster.redis.call("ACL", "SETUSER", USER, "resetpass", ">" + WRONG)
            cluster.redis.kill_clients()
            watch.outage()
            with open(path, "w", encoding="ascii") as file:
                file.write(WRONG + "\n")
            watch.recovered()
            for daemon in cluster.daemons.values():
                for pid in daemon.processes():
                    for name in ("cmdline", "environ"):
                        self.assertNotIn(PASSWORD, t.read_text(f"/proc/{pid}/{name}"))
                said = daemon.log() + daemon.request("GET", "/metrics").body.decode()
                said += daemon.request("GET", "/v1/config").body.decode()
                for secret in (PASSWORD, WRONG):
                    self.assertNotIn(secret, said)

    @contextlib.contextmanager
    def authenticated(self):
        """Daemons with an ACL user of their own that may call the functions and load them."""
        path = f"/tmp/sandpool-password-{os.getpid()}"
        with open(path, "w", encoding="ascii") as file:
            file.write(PASSWORD + "\n")
        shutil.chown(path, t.USER)
        os.chmod(path, 0o400)
        self.addCleanup(os.unlink, path)
        config = {"redis": {"user": USER, "password_file": path}}
        with self.cluster(config=config, redis_config=[
                f"user {USER} on >{PASSWORD} ~* &* +@all"]) as cluster:
            yield cluster, path

    def test_a_user_without_the_right_to_load_b133(self):
        """It waits until somebody has loaded the functions."""
        with self.authenticated() as (cluster, _path), self.watch(cluster) as watch:
            cluster.redis.call("ACL", "SETUSER", USER, "-function|load", "-function|delete")
            cluster.redis.call("FUNCTION", "FLUSH")
            watch.outage()
            with cluster.redis.connect() as redis:
                redis.load_library()
            watch.recovered()


if __name__ == "__main__":
    main()
