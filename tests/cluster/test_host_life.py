"""How a host comes and goes: a name that is another's, a start without Redis, an end that takes its
time, a record that was lost. And what an acquire at one host gives when the lease has ended meanwhile.
"""

import contextlib
import hashlib
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
import sandpool_test as t  # noqa: E402
from fault_case import CONFIG, MAX_IDLE, ClusterCase  # noqa: E402
from sandpool_test import limit, main, wait_until  # noqa: E402

DEADLINE_S = c.HOST_DEADLINE_MS / 1000
ACQUIRE = "/v1/pools/default/acquire"


def key(name):
    return f"sandpool:{{default}}:{name}"


class Going(ClusterCase):
    def test_one_that_waits_for_a_program_is_draining_and_not_dead(self):
        with self.cluster() as cluster:
            daemon = cluster.daemons["b"]
            box = c.Client(cluster).acquire(prefer="b")
            self.assertEqual(box.owner, "b")
            with t.ExecStream(daemon.socket_path, f"/v1/sandboxes/{box.id}/exec",
                              {"X-Sandpool-Token": box.secret}) as program:
                program.begin(shell=f"sleep {DEADLINE_S + 4}; echo all of it")
                daemon.process.send_signal(signal.SIGTERM)
                wait_until(lambda: cluster.stats()["hosts"]["b"]["state"] == "draining", 2,
                           "b says that it goes")
                wait_until(lambda: cluster.daemons["a"].pool()["idle"] == MAX_IDLE, 5,
                           "a has all of it")
                end = time.monotonic() + DEADLINE_S + 1
                while time.monotonic() < end:
                    row = cluster.stats()["hosts"]["b"]
                    self.assertEqual((row["state"], row["leased"], row["share"]),
                                     ("draining", 1, 0))
                    self.assertLess(row["age_ms"], 3000 * t.SLOW_FACTOR)
                    time.sleep(0.2)
                # The lease is what it was, and nothing is asked about it.
                self.assertEqual(c.Client(cluster).ask(c.lease_of(box.secret))["id"], box.id)
                self.assertEqual(cluster.redis.call("ZCARD", key("todo:b")), 0)
                self.assertEqual(program.finish().stdout, b"all of it\n")
            self.assertEqual(daemon.process.wait(10), 0)
            self.assertNotIn("b", cluster.stats()["hosts"])
            daemon.start()
            cluster.wait_idle(MAX_IDLE, even=True)


class Coming(ClusterCase):
    @limit(180)
    def test_a_name_that_is_anothers_ends_the_second_one_b109(self):
        with self.cluster() as cluster:
            twin = c.HostDaemon(cluster.network.host("twin"), cluster.redis.url,
                                t.merge(CONFIG, {"host": "a"}))
            twin.wait_ready = False
            self.addCleanup(twin.remove)
            self.addCleanup(twin.kill)
            twin.start()
            wait_until(lambda: "is another daemon's" in twin.log(), 8, "the second 'a' is refused")
            # It waits for as long as an 'a' that died just then would have counted as alive.
            self.assertEqual(twin.process.wait(DEADLINE_S + 3 * t.SLOW_FACTOR), 1, twin.log())
            self.assertIn("another daemon has this host's place", twin.log())
            wait_until(lambda: not twin.processes() and not t.cgroups_of(twin.instance), 5,
                       "nothing of it lives on")
            self.assertTrue(cluster.daemons["a"].running())
            cluster.wait_idle(MAX_IDLE, even=True)
            # With its own secret, on the same boot, it is a restart: that wins at once.
            daemon = cluster.daemons["a"]
            daemon.crash()
            begin = time.monotonic()
            daemon.start()
            self.assertLess(time.monotonic() - begin, 4 * t.SLOW_FACTOR)
            self.assertNotIn("is another daemon's", daemon.log())
            cluster.wait_idle(MAX_IDLE, even=True)

    @limit(240)
    def test_started_while_redis_is_away(self):
        """It has no share and holds none, so that the sum of all shares holds; it says so, serves who
        wants one made, and is ready soon after Redis is."""
        for fault, end in (("kill", "start"), ("pause", "resume"), ("cut", "join")):
            with self.subTest(fault=fault), self.cluster() as cluster:
                target = cluster.redis_host if fault == "cut" else cluster.redis
                daemon = cluster.daemons["b"]
                daemon.stop()
                getattr(target, fault)()
                daemon.wait_ready = False
                daemon.start()
                wait_until(lambda: self.alive(daemon), 5, "b answers")
                time.sleep(3)
                ready = daemon.request("GET", "/readyz")
                self.assertEqual(ready.status, 503)
                self.assertIn(b"the store is away", ready.body)
                self.assertEqual((daemon.pool()["idle"], daemon.pool()["share"]), (0, 0))
                begin = time.monotonic()
                answer = daemon.request("POST", ACQUIRE, {"policy": "create", "wait": "10s"})
                self.assertEqual(answer.status, 200, answer)
                self.assertLess(time.monotonic() - begin, 2 * t.SLOW_FACTOR)
                answer = daemon.request("POST", ACQUIRE, {"policy": "fail_fast"})
                self.assertEqual(answer.code, "POOL_STATE_STORE_UNAVAILABLE", answer)
                getattr(target, end)()
                wait_until(daemon.answers, 5, "b is ready again")
                cluster.wait_idle(MAX_IDLE, even=True)

    @staticmethod
    def alive(daemon):
        with contextlib.suppress(OSError):
            return daemon.request("GET", "/healthz", timeout=2).status == 200
        return False


class Lost(ClusterCase):
    @limit(180)
    def test_records_of_hosts_that_are_lost_cost_no_sandbox(self):
        with self.cluster(hosts=3) as cluster:
            before = self.idle(cluster)
            for name, damage in (
                    ("all deleted", lambda: cluster.redis.call("DEL", key("hosts"))),
                    ("one deleted", lambda: cluster.redis.call("HDEL", key("hosts"), "b")),
                    ("another type", lambda: cluster.redis.call("SET", key("hosts"), "rubbish")),
                    ("no records", lambda: [cluster.redis.call("HSET", key("hosts"), host, "rubbish")
                                            for host in "abc"])):
                with self.subTest(lost=name):
                    damage()
                    # Back within a tick; then the time in which nobody is given more; then some.
                    end = time.monotonic() + 5
                    while time.monotonic() < end:
                        self.assertEqual(self.idle(cluster), before)
                        time.sleep(0.1)
                    self.assertEqual(cluster.stats()["hosts_live"], 3)
                    self.assertEqual(cluster.stats()["idle"], MAX_IDLE)
                    self.assertEqual(cluster.stats()["shares"], MAX_IDLE)

    @staticmethod
    def idle(cluster):
        """All that is there, and in which state."""
        return {(name, box["id"], box["state"]) for name, daemon in cluster.daemons.items()
                for box in daemon.sandboxes()}


class Leases(ClusterCase):
    """An acquire at a host that waits for what any host has, and whose lease ends before it is
    answered: here because somebody cancels it, else because its host gave the sandbox away itself."""

    @contextlib.contextmanager
    def nobody_serves(self):
        with self.cluster() as cluster:
            for name in "ab":
                self.assertEqual(cluster.fcall("drain_host", name, 1)[0], "OK")
            cluster.wait_idle(0)
            yield cluster
            cluster.fcall("drain_host", "b", 0)
            cluster.wait_idle(MAX_IDLE)

    def ask(self, daemon, **body):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(daemon.request(
            "POST", ACQUIRE, {"policy": "wait", "wait": "15s", **body}, timeout=20)))
        thread.start()
        self.addCleanup(thread.join)
        return thread, answers

    @staticmethod
    def ticket(cluster, old=()):
        def found():
            return [lease for lease in cluster.redis.call("ZRANGE", key("waiters"), 0, -1)
                    if lease not in old]
        return wait_until(found, 5, "another ticket is drawn")[0]

    def test_a_lease_that_the_daemon_drew_is_drawn_anew(self):
        with self.nobody_serves() as cluster:
            thread, answers = self.ask(cluster.daemons["b"])
            old = []
            for _ in range(3):
                old.append(self.ticket(cluster, old))
                self.assertEqual(cluster.fcall("cancel", old[-1]), ["OK"])
            lease = self.ticket(cluster, old)
            cluster.fcall("drain_host", "a", 0)
            thread.join(10)
            answer = answers[0]
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual((answer.json["host"], answer.json["lease"]), ("a", lease))
            secret = answer.json["token"]
            self.assertEqual(hashlib.sha256(secret.encode()).hexdigest(), lease)
            box = c.RemoteSandbox(cluster.client_host, answer.json["endpoint"], answer.json["id"],
                                  secret)
            self.assertEqual(box.claim().status, 200)
            self.assertEqual(box.release().status, 204)

    def test_eight_are_drawn_and_not_one_more(self):
        with self.nobody_serves() as cluster:
            thread, answers = self.ask(cluster.daemons["b"])
            old = []
            for _ in range(8):
                old.append(self.ticket(cluster, old))
                self.assertEqual(cluster.fcall("cancel", old[-1]), ["OK"])
            thread.join(10)
            self.assertEqual((answers[0].status, answers[0].code), (410, "LEASE_ENDED"))
            self.assertEqual(cluster.redis.call("ZCARD", key("waiters")), 0)

    def test_a_lease_that_the_client_drew_is_his_to_replace(self):
        with self.nobody_serves() as cluster:
            lease = c.lease_of("7" * 64)
            thread, answers = self.ask(cluster.daemons["b"], lease=lease)
            self.assertEqual(self.ticket(cluster), lease)
            self.assertEqual(cluster.fcall("cancel", lease), ["OK"])
            thread.join(10)
            self.assertEqual((answers[0].status, answers[0].code), (410, "LEASE_ENDED"))


if __name__ == "__main__":
    main()
