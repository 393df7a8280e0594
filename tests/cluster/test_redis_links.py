"""One fault of the way to Redis per test: cables, a herd that comes back, a master that changes.

As test_redis_faults.py, with the fault between the daemons and Redis instead of in it.
"""

import collections
import contextlib
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
from fault_case import BROKEN, CONFIG, MAX_IDLE, ClusterCase  # noqa: E402
from sandpool_test import limit, main, wait_until  # noqa: E402


class Cables(ClusterCase):
    def test_redis_cut_off_half_open_b136(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            cluster.redis_host.cut()
            watch.outage()
            time.sleep(3)
            # Nothing was closed by anybody, yet the daemons know.
            for daemon in cluster.daemons.values():
                self.assertEqual(daemon.metric_sum("sandpool_store_up"), 0)
            watch.outage()
            cluster.redis_host.join()
            watch.recovered()

    def test_one_host_cut_off(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            cluster.hosts["b"].cut()
            time.sleep(6)
            # Past the host's deadline nothing of it is dispensed, and the other one has its share.
            wait_until(lambda: cluster.daemons["a"].pool()["idle"] == MAX_IDLE, 5, "a has it all")
            for _ in range(3):
                box = watch.client.acquire()
                self.assertEqual(box.owner, "a")
                box.release()
            # It may hold its last share, no more.
            self.assertLessEqual(cluster.daemons["b"].pool()["idle"], MAX_IDLE // 2)
            watch.local("b", cluster.daemons["b"])
            cluster.hosts["b"].join()
            watch.recovered()

    def test_a_slow_link_is_no_outage(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            if cluster.network.impairments is None:
                self.skipTest("neither netem nor /dev/net/tun")
            cluster.redis_host.impair(delay_ms=100, jitter_ms=20)
            end = time.monotonic() + 4
            while time.monotonic() < end:
                for daemon in cluster.daemons.values():
                    self.assertEqual(daemon.metric_sum("sandpool_store_up"), 1)
                watch.client.acquire().release()
            cluster.redis_host.repair()
            watch.recovered()

    def test_a_link_slower_than_the_command_timeout(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            if cluster.network.impairments is None:
                self.skipTest("neither netem nor /dev/net/tun")
            cluster.redis_host.impair(delay_ms=800)
            time.sleep(3)
            watch.outage()
            cluster.redis_host.repair()
            watch.recovered()

    def test_a_link_that_loses_a_fifth(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            if cluster.network.impairments is None:
                self.skipTest("neither netem nor /dev/net/tun")
            cluster.redis_host.impair(loss=0.2, seed=7)
            end = time.monotonic() + 5
            while time.monotonic() < end:
                watch.outage()
                with contextlib.suppress(*BROKEN):
                    c.Client(cluster, timeout=3.0).acquire().release()
            cluster.redis_host.repair()
            watch.recovered()

    def test_a_link_that_flaps(self):
        with self.cluster() as cluster, self.watch(cluster) as watch:
            for number in range(10):
                cluster.redis_host.cut()
                time.sleep(0.15 * (number % 4))
                cluster.redis_host.join()
                time.sleep(0.1 * (number % 3))
            watch.recovered()


class Herd(ClusterCase):
    HOSTS, AWAY_S, GROWING_S = 8, 20, 4

    @limit(180)
    def test_reconnects_are_spread_b143(self):
        """Each daemon has two connections; who answers in the place of Redis hangs up at once."""
        with self.cluster(hosts=self.HOSTS) as cluster:
            cluster.redis.kill()
            times = self.answer_and_hang_up(cluster)
            begin = times[0]
            # The pauses grow from 50 ms; from then on they are drawn from up to two seconds.
            seconds = [0] * (self.AWAY_S - self.GROWING_S)
            for when in times:
                at = int(when - begin) - self.GROWING_S
                if 0 <= at < len(seconds):
                    seconds[at] += 1
            mean = sum(seconds) / len(seconds)
            self.assertGreater(mean, self.HOSTS / 2, seconds)
            self.assertLess(max(seconds), 3 * mean, seconds)
            # Nor do they come in the same moment: the fullest tenth of a second, of all that follow.
            tenths = collections.Counter(int((when - begin) * 10) for when in times
                                         if when - begin >= self.GROWING_S)
            self.assertLess(max(tenths.values()), 3 * self.HOSTS // 2, tenths)
            cluster.redis.start()
            wait_until(lambda: cluster.redis.call("HLEN", "sandpool:{default}:hosts") == self.HOSTS,
                       5, "all are back")
            cluster.wait_idle(MAX_IDLE)

    def answer_and_hang_up(self, cluster):
        times = []
        with contextlib.closing(cluster.redis_host.netns.socket()) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((cluster.redis_host.address, c.REDIS_PORT))
            listener.listen(128)
            end = time.monotonic() + self.AWAY_S
            while time.monotonic() < end:
                listener.settimeout(max(0.01, end - time.monotonic()))
                with contextlib.suppress(OSError):
                    listener.accept()[0].close()
                    times.append(time.monotonic())
        return times


class Failover(ClusterCase):
    @contextlib.contextmanager
    def replicated(self):
        """Daemons that find the master by Sentinel, and a replica of it."""
        with c.Cluster(2, config=CONFIG) as cluster:
            replica = c.RedisServer(
                cluster.network.host("replica"), f"{cluster.directory}/replica",
                config=[f"replicaof {cluster.redis_host.address} {c.REDIS_PORT}"])
            cluster.redis.start()
            cluster.own(replica).start()
            sentinels = c.Sentinels(cluster, cluster.redis)
            wait_until(sentinels.settled, 20, "the sentinels know each other", interval=0.1)
            for daemon in cluster.daemons.values():
                daemon.write_config({"store": sentinels.url})
            cluster.start()
            yield cluster, replica, sentinels

    @staticmethod
    def switch(cluster, replica):
        """From here on the harness asks and clients use the other server."""
        old = cluster.redis
        cluster.own(old)
        cluster.redis, cluster.redis_host = replica, replica.host

    @limit(180)
    def test_master_killed(self):
        with self.replicated() as (cluster, replica, sentinels), self.watch(cluster) as watch:
            held = [watch.client.acquire() for _ in range(3)]
            cluster.redis.kill()
            watch.outage()
            address = (replica.host.address, c.REDIS_PORT)
            wait_until(lambda: sentinels.master() == address, 20, "the replica became the master")
            self.switch(cluster, replica)
            watch.recovered()
            for box in held:
                self.assertEqual(box.shell("echo mine").json["stdout"], "mine\n")
                box.release()

    @limit(180)
    def test_old_master_comes_back_as_a_replica_b138(self):
        with self.replicated() as (cluster, replica, sentinels), self.watch(cluster) as watch:
            old = cluster.redis
            old.pause()
            address = (replica.host.address, c.REDIS_PORT)
            wait_until(lambda: sentinels.master() == address, 20, "the replica became the master")
            old.resume()
            self.switch(cluster, replica)
            # It believes to be the master still, and a daemon may have found it first. Sentinel
            # corrects that after some ten seconds; then there is one directory again.
            wait_until(lambda: "role:slave" in old.call("INFO", "replication"), 25,
                       "the old master follows")
            watch.recovered()


if __name__ == "__main__":
    main()
