"""Single commands on the way to Redis are broken, one after the other (redis_proxy.py).

As test_redis_links.py; here it is not a cable that breaks but a word.
"""

import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
import redis_proxy  # noqa: E402
from fault_case import MAX_IDLE, ClusterCase  # noqa: E402
from sandpool_test import limit, main, wait_until  # noqa: E402

# Everything that a daemon asks of Redis.
COMMANDS = ("sandpool_v1_register", "sandpool_v1_heartbeat", "sandpool_v1_publish",
            "sandpool_v1_update", "sandpool_v1_resync", "sandpool_v1_acquire", "sandpool_v1_info",
            "sandpool_v1_reap", "role", "ping", "client", "function", "subscribe", "config")


class Commands(ClusterCase):
    """Each command in turn is broken at each place where it can break (b139, b150)."""

    def each(self, action, times=3, seconds=0.0):
        with self.cluster(proxy=True) as cluster, self.watch(cluster) as watch:
            for name in COMMANDS:
                with self.subTest(command=name):
                    cluster.proxy.on(name, action, times=times, seconds=seconds)
                    # Makes each of them be asked: a new connection, a take, a release; a directory
                    # that was lost.
                    if name in ("sandpool_v1_register", "sandpool_v1_resync"):
                        cluster.redis.call("FLUSHDB")
                    cluster.proxy.drop_all()
                    watch.local("a", cluster.daemons["a"])
                    watch.local("b", cluster.daemons["b"])
                    watch.recovered(within=8)
                    cluster.proxy.clear()
                    cluster.wait_idle(MAX_IDLE)
            for name in ("sandpool_v1_register", "sandpool_v1_heartbeat", "sandpool_v1_publish",
                         "sandpool_v1_update", "sandpool_v1_resync"):
                self.assertGreater(cluster.proxy.broken[name], 0, f"{name} was never broken")

    @limit(300)
    def test_never_sent(self):
        self.each(redis_proxy.REFUSE)

    @limit(300)
    def test_done_and_answer_lost_b139(self):
        self.each(redis_proxy.LOSE_REPLY)

    @limit(300)
    def test_no_answer_and_no_end(self):
        self.each(redis_proxy.HANG, times=1)

    @limit(300)
    def test_answer_just_too_late_b107(self):
        """Of a registration and a heartbeat, too: whose outcome nobody knows costs no share."""
        self.each(redis_proxy.DELAY, times=1, seconds=1.3)

    @limit(300)
    def test_refused(self):
        self.each(redis_proxy.ERROR)

    def test_events_never_arrive_b149(self):
        """The channel is a hint, the tick is the truth."""
        with self.cluster(proxy=True) as cluster, self.watch(cluster) as watch:
            cluster.proxy.on("subscribe", redis_proxy.SWALLOW, times=10 ** 6)
            cluster.proxy.drop_all()
            watch.recovered()
            self.assertEqual(cluster.fcall("resize", 2, -1, 0)[0], "OK")
            cluster.wait_idle(2, timeout=3)
            box = watch.client.acquire()
            watch.client.fcall("release", c.lease_of(box.secret))
            wait_until(lambda: box.claim().status in (404, 410), 3, "the release is carried out")
            cluster.fcall("resize", MAX_IDLE, -1, 0)
            cluster.proxy.clear()
            cluster.proxy.drop_all()
            watch.recovered()

    def test_hot_path_scans_nothing_b145(self):
        with self.cluster(proxy=True) as cluster, self.watch(cluster) as watch:
            with contextlib.closing(cluster.redis.connect()) as monitor:
                monitor.send("MONITOR")
                for _ in range(5):
                    watch.client.acquire().release()
                time.sleep(2)
                cluster.redis.call("PING")
                lines = self.monitored(monitor)
            self.assertGreater(len(lines), 20)
            for word in ("KEYS", "SCAN", "SMEMBERS"):
                self.assertFalse([line for line in lines if f'"{word.lower()}"' in line.lower()],
                                 word)

    @staticmethod
    def monitored(connection):
        lines = []
        while not lines or '"PING"' not in lines[-1]:
            lines.append(str(connection.receive()))
        return lines


if __name__ == "__main__":
    main()
