"""Wall clocks jump and differ; lives do not (b126, b127).

Only wall clocks are moved (wallclock.c): CLOCK_BOOTTIME, by which supervisors end things, stays
true. A clock that is wrong may hide an entry for a while; it may never end a lease, keep one alive
past its end, or hand out what has too little life left.
"""

import contextlib
import datetime
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import cluster as c  # noqa: E402
from fault_case import MAX_IDLE, ClusterCase  # noqa: E402
from sandpool_test import limit, main, wait_until  # noqa: E402

MINUTES = 60.0


class Clocks(ClusterCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not c.WALLCLOCK.exists():
            raise unittest.SkipTest(f"not built: {c.WALLCLOCK}")

    @contextlib.contextmanager
    def clocks(self, **options):
        with self.cluster(clocks=True, **options) as cluster:
            yield cluster

    def test_the_clocks_of_this_test_do_move(self):
        with self.clocks() as cluster:
            before = cluster.redis.time_ms()
            cluster.redis.clock.set(5 * MINUTES)
            self.assertGreater(cluster.redis.time_ms() - before, 4 * MINUTES * 1000)
            daemon = cluster.daemons["a"]
            daemon.clock.set(5 * MINUTES)
            answer = daemon.request("POST", "/v1/pools/default/acquire", {"policy": "fail_fast"})
            self.assertEqual(answer.status, 200, answer)
            created = answer.json["expires_at"][:19]
            now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 3 * MINUTES))
            self.assertGreater(created, now)

    @limit(180)
    def test_redis_clock_jumps_b126(self):
        with self.clocks() as cluster, self.watch(cluster) as watch:
            for offset in (5 * MINUTES, -5 * MINUTES, 60 * MINUTES, 0):
                with self.subTest(offset=offset):
                    watch.expire()
                    box = watch.client.acquire(ttl_ms=60000)
                    cluster.redis.clock.set(offset)
                    watch.recovered(within=9)
                    self.assertEqual(box.shell("echo mine").json["stdout"], "mine\n")
                    box.release()
                    watch.expired_on_time()

    @limit(180)
    def test_a_hosts_clock_jumps_b126(self):
        with self.clocks() as cluster, self.watch(cluster) as watch:
            for offset in (5 * MINUTES, -60 * MINUTES, 0):
                with self.subTest(offset=offset):
                    watch.expire()
                    cluster.daemons["a"].clock.set(offset)
                    watch.recovered()
                    watch.expired_on_time()

    def test_hosts_five_minutes_apart_see_the_same_remaining_b127(self):
        with self.clocks() as cluster:
            cluster.daemons["b"].clock.set(5 * MINUTES)
            cluster.wait_idle(MAX_IDLE)
            client = c.Client(cluster)
            for name in ("a", "b"):
                box = client.acquire(prefer=name, ttl_ms=30000)
                self.assertEqual(box.owner, name)

                def same():
                    listed = client.ask(c.lease_of(box.secret), prefer=name, ttl_ms=30000)
                    at_owner = box.claim().json["remaining_ms"]
                    self.assertAlmostEqual(at_owner, 30000, delta=4000)
                    return abs(listed["remaining_ms"] - at_owner) < 1000
                wait_until(same, 3, "the claim has reached Redis, and both say the same")
                box.release()

    def test_nothing_near_its_end_is_handed_out_by_a_clock_that_is_behind(self):
        """idle_timeout 12 s, minimum 5 s: by Redis's clock all look young for ever."""
        with self.clocks(config={"pools": {"default": {
                "idle_timeout": "12s", "expiry_jitter_percent": 0,
                "refresh_margin": 0}}}) as cluster:
            cluster.wait_idle(MAX_IDLE)
            cluster.redis.clock.set(-60 * MINUTES)
            client = c.Client(cluster)
            end = time.monotonic() + 14
            while time.monotonic() < end:
                with contextlib.suppress(c.Refused):
                    box = client.acquire(ttl_ms=0)
                    # The owner is who knows; what it accepted had more than the minimum.
                    created = datetime.datetime.fromisoformat(
                        box.claim().json["created_at"].replace("Z", "+00:00")).timestamp()
                    self.assertLess(time.time() - created, 12 - 5 + 0.5)
                    box.release()
                time.sleep(0.2)

    def test_expiry_is_on_time_while_redis_is_an_hour_behind(self):
        with self.clocks() as cluster:
            cluster.wait_idle(MAX_IDLE)
            cluster.redis.clock.set(-60 * MINUTES)
            box = None
            end = time.monotonic() + 9
            while box is None and time.monotonic() < end:
                with contextlib.suppress(c.Refused):
                    box = c.Client(cluster).acquire(ttl_ms=2000)
            due = time.monotonic() + box.remaining_ms / 1000
            daemon = cluster.daemons[box.owner]
            wait_until(lambda: box.id not in [other["id"] for other in daemon.sandboxes()], 4,
                       "it is ended")
            self.assertLess(abs(time.monotonic() - due), 1.5)


if __name__ == "__main__":
    main()
