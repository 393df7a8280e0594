"""An acquire whose answer is lost, and a client that ends after it.

The lease id makes both harmless: whoever asks again with it gets the same sandbox, and one that
nobody claims costs claim_timeout and a tick.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
import redis_proxy  # noqa: E402
from fault_case import CONFIG, MAX_IDLE, ClusterCase  # noqa: E402
from redis_client import Redis  # noqa: E402
from sandpool_test import main, merge, wait_until  # noqa: E402

CLAIM_TIMEOUT_S = 3.0
TICK_S = 1.0
KILL_S = 1.0


class LostReply(ClusterCase):
    def leased(self, cluster):
        return {box["id"]: box for daemon in cluster.daemons.values()
                for box in daemon.sandboxes() if box["state"] == "leased"}

    def test_the_same_lease_gets_the_same_sandbox_b100(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            front = cluster.own(redis_proxy.RedisProxy(
                cluster.network.host("front"), (cluster.redis_host.address, c.REDIS_PORT)))
            for action in (redis_proxy.LOSE_REPLY, redis_proxy.HANG):
                for _ in range(5):
                    secret = secrets.token_hex(32)
                    front.on("sandpool_v1_acquire", action)
                    broken = front.broken["sandpool_v1_acquire"]
                    with contextlib.closing(Redis(
                            sock=cluster.client_host.connect(front.address, 1.0),
                            timeout=0.5)) as redis, self.assertRaises((OSError, EOFError)):
                        redis.call("FCALL", "sandpool_v1_acquire", 1, cluster.meta(),
                                   c.lease_of(secret), "fail_fast", -1, 60000, "", "", "")
                    wait_until(lambda: front.broken["sandpool_v1_acquire"] > broken, 5, "broken")
                    # Redis knows what it answered, though nobody heard it.
                    client = c.Client(cluster)
                    first = client.ask(c.lease_of(secret))
                    again = client.ask(c.lease_of(secret))
                    self.assertEqual(first["id"], again["id"])
                    box = client.acquire(secret)
                    self.assertEqual(box.id, first["id"])
                    self.assertEqual(box.release().status, 204)
            self.assertEqual(front.broken["sandpool_v1_acquire"], 10)

    def test_five_lost_replies_cost_no_second_sandbox_b139(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            client, lease = c.Client(cluster), c.lease_of("2" * 64)
            ids = {client.ask(lease)["id"] for _ in range(5)}
            self.assertEqual(len(ids), 1)
            time.sleep(TICK_S + 0.5)
            self.assertEqual(set(self.leased(cluster)), ids)

    def test_the_same_lease_with_other_wishes_is_a_mistake(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            client, lease = c.Client(cluster), c.lease_of("3" * 64)
            client.ask(lease, ttl_ms=60000)
            with self.assertRaises(c.Refused) as caught:
                client.ask(lease, ttl_ms=50000)
            self.assertEqual(caught.exception.status, "LEASE_MISMATCH")

    def test_a_client_that_dies_costs_one_sandbox_for_the_claim_timeout_v01(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            # A program of its own, killed between the answer and the claim.
            program = (
                "import sys; sys.path.insert(0, sys.argv[1])\n"
                "from redis_client import Redis\n"
                "redis = Redis(host=sys.argv[2], port=6379)\n"
                "print(redis.call('FCALL', 'sandpool_v1_acquire', 1, sys.argv[3], sys.argv[4],\n"
                "                 'fail_fast', -1, 60000, '', '', '')[1], flush=True)\n"
                "sys.stdin.read()\n")
            client = subprocess.Popen(
                cluster.client_host.prefix + [
                    sys.executable, "-c", program, os.path.dirname(c.__file__),
                    cluster.redis_host.address, cluster.meta(), c.lease_of("4" * 64)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            with client.stdin, client.stdout:
                taken = client.stdout.readline().decode().strip()
                begin = time.monotonic()
                client.send_signal(signal.SIGKILL)
                client.wait()
            wait_until(lambda: taken in self.leased(cluster), 2 * TICK_S + 1, "its host knows")
            self.assertFalse(self.leased(cluster)[taken]["claimed"])
            wait_until(lambda: taken not in [box["id"] for daemon in cluster.daemons.values()
                                             for box in daemon.sandboxes()],
                       CLAIM_TIMEOUT_S + TICK_S + KILL_S, "it is killed")
            self.assertGreater(time.monotonic() - begin, CLAIM_TIMEOUT_S - 0.2)
            cluster.wait_idle(MAX_IDLE)
            with self.assertRaises(c.Refused) as caught:
                c.Client(cluster).ask(c.lease_of("4" * 64))
            self.assertEqual(caught.exception.status, "LEASE_ENDED")

    def test_a_claim_in_time_ends_the_claim_timeout(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            box = c.Client(cluster).acquire()
            time.sleep(CLAIM_TIMEOUT_S + TICK_S + 0.5)
            self.assertEqual(box.shell("echo mine").json["stdout"], "mine\n")
            box.release()

    def test_release_whose_answer_is_lost_ends_once_b139(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            client = c.Client(cluster)
            box = client.acquire()
            lease = c.lease_of(box.secret)
            for _ in range(3):
                self.assertEqual(client.fcall("release", lease)[0], "OK")
            wait_until(lambda: box.claim().status in (404, 410), 3, "it has ended")
            cluster.wait_idle(MAX_IDLE)
            ended = sum(daemon.metric_sum("sandpool_ends_total", pool="default", reason="released")
                        for daemon in cluster.daemons.values())
            self.assertEqual(ended, 1)

    def test_renewal_twice_is_one_renewal_b139(self):
        with self.cluster() as cluster:
            cluster.wait_idle(MAX_IDLE)
            client = c.Client(cluster)
            box = client.acquire(ttl_ms=20000)
            lease = c.lease_of(box.secret)
            for _ in range(3):
                self.assertEqual(client.fcall("renew", lease, 60000)[0], "OK")
            remaining = wait_until(
                lambda: next((left for left in [box.claim().json["remaining_ms"]]
                              if left > 30000), None), 3, "the owner has moved the end")
            self.assertLessEqual(remaining, 60000)
            # Two ticks later Redis confirms what the owner granted.
            def confirmed():
                words = client.fcall("renew", lease, 60000)
                return int(words[2]) - int(words[3]) > 50000
            wait_until(confirmed, 4, "the confirmed end has moved", interval=0.2)
            box.release()


class Crowd(ClusterCase):
    def test_dead_records_do_not_accumulate_b148(self):
        config = merge(CONFIG, {"pools": {"default": {"max_idle": 20}}})
        if not c.WALLCLOCK.exists():
            self.skipTest(f"not built: {c.WALLCLOCK}")
        with c.Cluster(2, config=config, clocks=True) as cluster:
            cluster.start()
            cluster.wait_idle(20, even=True)
            before = self.sizes(cluster)
            client = c.Client(cluster)
            done = 0
            while done < 150:
                with contextlib.suppress(c.Refused):
                    client.acquire().release()
                    done += 1
            cluster.wait_idle(20)
            # Tombstones stay for ten minutes: those of this test and no more.
            self.assertLessEqual(self.sizes(cluster)["lease"], done + before["lease"])
            self.assertGreater(self.sizes(cluster)["lease"], 0)
            cluster.redis.clock.set(11 * 60)
            for _ in range(20):
                cluster.fcall("reap", 1000)
            wait_until(lambda: self.sizes(cluster) == before, 10,
                       f"keys are back to {before}: {self.sizes(cluster)}")

    @staticmethod
    def sizes(cluster):
        call = cluster.redis.call
        sizes = {name: call("HLEN", f"sandpool:{{default}}:{name}")
                 for name in ("hosts", "sb", "lease", "answers", "waiters:wish")}
        sizes.update((name, call("ZCARD", f"sandpool:{{default}}:{name}"))
                     for name in ("lease:ends", "waiters", "waiters:alive", "todo:a", "todo:b"))
        sizes["keys"] = len([key for key in call("KEYS", "*") if call("PTTL", key) == -1])
        return sizes


if __name__ == "__main__":
    main()
