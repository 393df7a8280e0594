"""Redis in cluster mode: all keys of a pool lie in one slot (b144), on whichever node that is."""

import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
import sandpool_test as t  # noqa: E402
from fault_case import CONFIG, MAX_IDLE, ClusterCase  # noqa: E402
from sandpool_test import limit, main, wait_until  # noqa: E402

MODE = ["cluster-enabled yes", "cluster-node-timeout 2000"]
SLOTS = 16384
OTHER = {"pools": {"other": dict(CONFIG["pools"]["default"], max_idle=2)}}


def good(server):
    return "cluster_state:ok" in server.call("CLUSTER", "INFO")


class ClusterMode(ClusterCase):
    @contextlib.contextmanager
    def one_node(self, config=None):
        with c.Cluster(2, config=t.merge(CONFIG, config or {}), redis_config=MODE) as cluster:
            cluster.redis.start()
            cluster.redis.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
            wait_until(lambda: good(cluster.redis), 10, "the cluster is whole")
            cluster.start()
            cluster.wait_idle(MAX_IDLE, even=True)
            yield cluster

    @contextlib.contextmanager
    def wrong_node(self):
        """The daemons are told of a node that has every slot but the pool's."""
        with c.Cluster(2, config=CONFIG, redis_config=MODE) as cluster:
            told = cluster.redis.start()
            right = cluster.own(c.RedisServer(cluster.network.host("right"),
                                              f"{cluster.directory}/right", config=MODE)).start()
            slot = told.call("CLUSTER", "KEYSLOT", cluster.meta())
            for first, last in ((0, slot - 1), (slot + 1, SLOTS - 1)):
                told.call("CLUSTER", "ADDSLOTSRANGE", first, last)
            right.call("CLUSTER", "ADDSLOTS", slot)
            told.call("CLUSTER", "MEET", right.host.address, right.port)
            wait_until(lambda: good(told) and good(right), 20, "the cluster is whole")
            cluster.own(told)
            cluster.redis, cluster.redis_host = right, right.host
            cluster.start()
            cluster.wait_idle(MAX_IDLE, even=True)
            yield cluster

    def everything(self, cluster, watch):
        """Each function once, as clients, hosts and operators call it."""
        box = watch.client.acquire()
        self.assertEqual(box.shell("echo there").json["stdout"], "there\n")
        lease = c.lease_of(box.secret)
        self.assertEqual(watch.client.fcall("renew", lease, 90000)[0], "OK")
        wait_until(lambda: watch.client.ask(lease)["remaining_ms"] > 80000, 3, "it was renewed")
        self.assertEqual(watch.client.fcall("release", lease), ["OK"])
        wait_until(lambda: box.claim().status in (404, 410), 5, "the release arrived")
        self.assertEqual(cluster.fcall("drain_host", "a", 1), ["OK"])
        wait_until(lambda: cluster.daemons["a"].pool()["idle"] == 0, 5, "a is drained")
        self.assertEqual(cluster.fcall("drain_host", "a", 0), ["OK"])
        self.assertEqual(cluster.fcall("resize", 0, -1, 0)[0], "OK")
        cluster.wait_idle(0)
        with self.assertRaises(c.Refused) as caught:
            watch.client.ask(c.lease_of("d" * 64), policy="wait")
        self.assertEqual(caught.exception.status, "WAIT")
        self.served(cluster, watch.client, "d" * 64)
        self.assertEqual(cluster.fcall("reap", 100)[0], "OK")
        self.assertEqual(cluster.fcall("resize", MAX_IDLE, -1, 0)[0], "OK")
        watch.recovered()

    @staticmethod
    def served(cluster, client, secret):
        deadline = cluster.redis.time_ms() + 10000

        def asked():
            with contextlib.suppress(c.Refused):
                return c.grant(client.fcall("wait", c.lease_of(secret), deadline))
            return None
        wait_until(asked, 8, "the waiter is served", interval=0.1)
        client.fcall("cancel", c.lease_of(secret))

    @limit(180)
    def test_one_node_does_it_all_b144(self):
        with self.one_node() as cluster, self.watch(cluster) as watch:
            self.everything(cluster, watch)
            cluster.redis.call("FUNCTION", "FLUSH")
            watch.recovered()
            cluster.redis.call("FLUSHALL")
            watch.recovered()
            cluster.redis.restart()
            watch.recovered()

    @limit(180)
    def test_two_pools_have_a_slot_each_b144(self):
        with self.one_node(OTHER) as cluster:
            cluster.wait_idle(2, pool="other")
            c.Client(cluster).acquire().release()
            slots = {"default": set(), "other": set()}
            for key in cluster.redis.call("KEYS", "*"):
                pool = key[key.index("{") + 1:key.index("}")]
                slots[pool].add(cluster.redis.call("CLUSTER", "KEYSLOT", key))
            self.assertEqual({pool: len(found) for pool, found in slots.items()},
                             {"default": 1, "other": 1})
            self.assertNotEqual(slots["default"], slots["other"])
            self.assertEqual(cluster.fcall("set_state", "destroyed", 0, pool="other")[0], "OK")
            wait_until(lambda: cluster.idle("other") == 0, 5, "the other is gone")
            self.assertEqual(cluster.idle(), MAX_IDLE)

    @limit(180)
    def test_the_node_that_has_the_slot_is_found_b144(self):
        with self.wrong_node() as cluster, self.watch(cluster) as watch:
            self.everything(cluster, watch)
            cluster.redis.kill_clients()
            watch.recovered()


if __name__ == "__main__":
    main()
