"""What clients may expect of the function library: acquire, wait, cancel, renew, release."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import redis_case as c  # noqa: E402
from redis_case import FunctionCase, lease_id, sandbox_id  # noqa: E402
from sandpool_test import main  # noqa: E402

QUEUEING = ("wait", "create", "retry_next_then_create")


class Acquire(FunctionCase):
    def test_unknown_pool_is_not_running(self):
        self.assertEqual(self.acquire("x"), ["NOT_RUNNING"])
        self.assertEqual(self.keys(), set())

    def test_reply_has_the_documented_order(self):
        a = self.host()
        a.publish(1)
        self.advance(10)
        self.assertEqual(self.acquire("x"), ["OK", sandbox_id(1), "a", "tcp://a.example:7070",
                                             c.T0 + c.IDLE_MS, c.IDLE_MS - 10, self.now])

    def test_ttl_sets_the_expected_end(self):
        a = self.host()
        a.publish(1)
        self.assertEqual(self.acquire("x", ttl=5000)[4:], [self.now + 5000, 5000, self.now])

    def test_empty_p060(self):
        self.host()
        for policy in ("fail_fast", "retry_next"):
            self.assertEqual(self.acquire(policy, policy), ["EMPTY"])
        self.assertEqual(self.stats()["leases"], 0)

    def test_oldest_of_a_host_first_p021(self):
        a = self.host()
        for number, left in ((1, 30_000), (2, 20_000), (3, 25_000)):
            a.publish(number, expires=self.now + left)
        self.assertEqual([self.acquire(n)[1] for n in "xyz"],
                         [sandbox_id(2), sandbox_id(3), sandbox_id(1)])

    def test_no_sandbox_twice_p022_b099(self):
        a = self.host(max_idle=64)
        a.publish(*range(50))
        given = [self.acquire(n)[1] for n in range(50)]
        self.assertEqual(sorted(given), sorted(sandbox_id(n) for n in range(50)))
        self.assertEqual(self.acquire("more"), ["EMPTY"])

    def test_repeat_gives_the_same_b100_b139(self):
        a = self.host()
        a.publish(1, 2)
        first = self.acquire("x", ttl=9000)
        self.advance(100)
        again = self.acquire("x", ttl=9000)
        self.assertEqual(again[:5], first[:5])
        self.assertEqual(again[5:], [8900, self.now])
        self.assertEqual(self.stats()["idle"], 1)

    def test_other_parameters_are_a_mismatch(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x", ttl=9000)
        for how in ({"ttl": 9001}, {"ttl": 9000, "min_ttl": 0}, {"ttl": 9000, "policy": "wait"}):
            self.assertEqual(self.acquire("x", **how), ["LEASE_MISMATCH"])
        self.assertEqual(self.stats()["idle"], 1)

    def test_ended_lease_is_remembered_for_ten_minutes(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.call("release", lease_id("x"))
        self.advance(c.TOMBSTONE_MS - 1)
        self.call("reap", 100)
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "released"])
        self.advance(1)
        self.call("reap", 100)
        a.heartbeat()
        self.assertEqual(self.acquire("x"), ["EMPTY"])

    def test_remaining_equal_to_the_minimum_is_refused_b091(self):
        a = self.host()
        a.publish(1, expires=self.now + c.MIN_TTL_MS + 1)
        self.advance(1)
        self.assertEqual(self.acquire("x"), ["EMPTY"])
        a.publish(2, expires=self.now + c.MIN_TTL_MS + 1)
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(2))

    def test_short_and_expired_become_hints_b092(self):
        a = self.host()
        a.publish(1, expires=self.now + 2000)
        a.publish(2, expires=self.now + 4000)
        self.advance(3000)
        a.heartbeat()
        self.assertEqual(self.acquire("x"), ["EMPTY"])
        self.assertEqual(a.items(), [("hint", sandbox_id(1), "", 0, "expired"),
                                     ("hint", sandbox_id(2), "", 0, "near_expiry")])
        self.assertEqual(self.stats()["idle_short"], 0)

    def test_a_wish_for_more_leaves_the_short_ones_to_others(self):
        a = self.host()
        a.publish(1, expires=self.now + 20_000)
        a.publish(2, expires=self.now + 40_000)
        self.assertStatus(self.acquire("x", min_ttl=30_000), "OK", sandbox_id(2))
        self.assertEqual(self.acquire("y", min_ttl=30_000), ["EMPTY"])
        self.assertStatus(self.acquire("z"), "OK", sandbox_id(1))

    def test_minimum_zero_is_off_p033(self):
        a = self.host()
        a.publish(1, expires=self.now + c.MIN_TTL_MS + 1)
        self.advance(c.MIN_TTL_MS)
        self.assertStatus(self.acquire("x", min_ttl=0), "OK", sandbox_id(1))

    def test_preferred_host_first(self):
        a, b = self.host("a", max_idle=4), self.host("b", max_idle=4)
        self.balance(a, b)
        a.publish(1, 2)
        b.publish(11, 12)
        self.assertEqual([self.acquire(n, prefer="b")[2] for n in range(3)], ["b", "b", "a"])

    def balance(self, *hosts):
        for _ in range(3):
            for host in hosts:
                host.heartbeat()

    def test_hosts_take_turns(self):
        hosts = [self.host(name, max_idle=12) for name in "abc"]
        self.balance(*hosts)
        for at, host in enumerate(hosts):
            host.publish(*range(10 * at, 10 * at + 4))
            self.advance(1)
        served = []
        for n in range(12):
            served.append(self.acquire(n)[2])
            self.advance(1)
        self.assertEqual("".join(served), "abc" * 4)

    def test_excluded_hosts_are_passed_over(self):
        a, b = self.host("a"), self.host("b")
        self.balance(a, b)
        a.publish(1)
        b.publish(2)
        self.assertStatus(self.acquire("x", prefer="a", exclude=["a"]), "OK", sandbox_id(2))
        self.assertEqual(self.acquire("y", exclude=["a"]), ["EMPTY"])
        self.assertEqual(self.stats()["idle"], 1)

    def test_dead_host_dispenses_nothing(self):
        a = self.host()
        a.publish(1)
        self.advance(c.DEADLINE_MS - 1)
        self.assertStatus(self.acquire("x"), "OK")
        a.publish(2)
        self.advance(1)
        self.assertEqual(self.acquire("y"), ["EMPTY"])
        a.heartbeat(1)
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(2))

    def test_draining_host_dispenses_nothing(self):
        a = self.host()
        a.publish(1)
        self.assertEqual(self.call("drain_host", "a", 1), ["OK"])
        self.assertEqual(self.acquire("x"), ["EMPTY"])
        self.assertEqual(self.call("drain_host", "a", 0), ["OK"])
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))

    def test_old_spec_is_not_dispensed_b116(self):
        a = self.host()
        a.publish(1)
        a.spec = (2, "spec-2")
        a.register()
        a.heartbeat(1)
        self.assertEqual(self.acquire("x"), ["EMPTY"])
        self.assertEqual(a.items(1), [("hint", sandbox_id(1), "", 0, "spec_changed")])

    def test_forged_entries_are_removed_b117(self):
        a = self.host()
        a.publish(1)
        self.redis.call("ZADD", self.key("idle:a"), 1, "no-such-sandbox", 2, sandbox_id(77))
        self.redis.call("ZADD", self.key("hosts:idle"), 0, "ghost", 0, "No {Host}:")
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertEqual(self.acquire("y"), ["EMPTY"])
        self.assertNotIn("hosts:idle", self.keys())
        self.assertNotIn("idle:a", self.keys())

    def test_states_of_the_pool(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("held")
        for state, status in (("draining", "NOT_RUNNING"), ("destroying", "DESTROYED"),
                              ("destroyed", "DESTROYED")):
            self.assertStatus(self.call("set_state", state, 0), "OK")
            self.assertEqual(self.acquire("x"), [status])
            self.assertStatus(self.acquire("held"), "OK", sandbox_id(1))

    def test_reject_gives_another_and_tells_the_owner(self):
        a = self.host()
        a.publish(1, 2)
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertStatus(self.acquire("x", reject=[sandbox_id(1)]), "OK", sandbox_id(2))
        self.assertIn(("command", sandbox_id(1), lease_id("x"), 0, "discarded"), a.items())
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(2))

    def test_a_rejected_one_does_not_come_back_by_its_owners_late_word(self):
        a = self.host(max_idle=1)
        a.publish(1)
        self.acquire("x", "wait")
        self.assertEqual(self.acquire("x", "wait", reject=[sandbox_id(1)]), ["WAIT", 1])
        a.update(1, "leased", "x")
        self.assertEqual(self.wait("x"), ["WAIT", 1])
        self.assertEqual([item[0] for item in a.items()], ["command"])
        self.assertEqual(a.publish(2), [("granted", lease_id("x"), 0)])

    def test_rejected_idle_entries_become_hints(self):
        a = self.host()
        a.publish(1, 2)
        self.assertStatus(self.acquire("x", reject=[sandbox_id(1), sandbox_id(9)]), "OK",
                          sandbox_id(2))
        self.assertIn(("hint", sandbox_id(1), "", 0, "discarded"), a.items())

    def test_nobody_can_reject_anothers_b102(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x")
        self.assertStatus(self.acquire("y", reject=[sandbox_id(1)]), "OK", sandbox_id(2))
        self.assertEqual([item[0] for item in a.items()], ["grant", "grant"])
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))

    def test_grant_nudges_the_owner(self):
        a = self.host()
        a.publish(1)
        with self.server.connect() as listener:
            listener.call("SUBSCRIBE", self.key("events:a"))
            self.acquire("x")
            self.assertEqual(listener.receive(), ["message", self.key("events:a"), "todo"])

    def test_work_does_not_depend_on_the_pool_p047(self):
        counts = []
        for hosts, entries in ((1, 100), (50, 2000)):
            self.setUp()
            first = [c.Supervisor(self, f"h{n}", max_idle=entries) for n in range(hosts)]
            for host in first:
                host.register()
            for _ in range(3):
                for host in first:
                    host.heartbeat()
            number = 0
            for host in first:
                for _ in range(0, entries // hosts, 20):
                    host.publish(*range(number, number + 20))
                    number += 20
            self.assertEqual(self.stats()["idle"], entries)
            self.acquire("warm")
            self.redis.call("CONFIG", "RESETSTAT")
            for n in range(20):
                self.assertStatus(self.acquire(n), "OK")
            counts.append(sum(int(line.split("calls=")[1].split(",")[0])
                              for line in self.redis.call("INFO", "commandstats").splitlines()
                              if line.startswith("cmdstat_") and "config" not in line) / 20)
        self.assertEqual(counts[0], counts[1])
        self.assertLessEqual(counts[0], 14)


class Wait(FunctionCase):
    def test_tickets_are_served_in_order(self):
        a = self.host(max_idle=0)
        for at, name in enumerate("xyz"):
            self.assertEqual(self.acquire(name, "wait"), ["WAIT", at + 1])
        self.assertEqual(self.acquire("y", "wait"), ["WAIT", 2])
        self.assertEqual(a.share(), 3)
        self.assertEqual(a.publish(1, 2), [("granted", lease_id("x"), 0),
                                           ("granted", lease_id("y"), 0)])
        self.assertStatus(self.wait("y"), "OK", sandbox_id(2))
        self.assertEqual(self.wait("z"), ["WAIT", 1])
        self.assertStatus(self.acquire("x", "wait"), "OK", sandbox_id(1))

    def test_all_waiting_policies_draw_tickets_at_max_idle_0(self):
        a = self.host(max_idle=0)
        for policy in QUEUEING:
            self.assertStatus(self.acquire(policy, policy), "WAIT")
        self.assertEqual(self.stats()["tickets"], 3)
        self.assertEqual(a.share(), 3)

    def test_same_clock_keeps_the_order(self):
        self.host(max_idle=0)
        names = [str(n) for n in range(20)]
        for at, name in enumerate(names):
            self.assertEqual(self.acquire(name, "wait"), ["WAIT", at + 1])
        self.advance(-60_000)
        self.assertEqual(self.acquire("late", "wait"), ["WAIT", 21])

    def test_grant_wakes(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait", ttl=7000)
        a.heartbeat()
        self.assertEqual(a.publish(1), [("granted", lease_id("x"), 7000)])
        self.assertEqual(self.redis.call("BLPOP", self.key("grant:" + lease_id("x")), 1)[1], "1")
        self.acquire("y", "wait")
        a.publish(2)
        self.assertTrue(0 < self.redis.call("PTTL", self.key("grant:" + lease_id("y"))) <= 10_000)

    def test_stale_tickets_are_passed_over_b122(self):
        a = self.host(max_idle=0)
        self.acquire("gone", "wait")
        self.advance(3000)
        a.heartbeat()
        self.acquire("here", "wait")
        self.advance(2000)
        self.assertEqual(a.publish(1), [("granted", lease_id("here"), 0)])
        self.assertEqual(self.wait("gone"), ["NOT_FOUND"])

    def test_each_wait_keeps_it_alive(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait")
        for _ in range(4):
            self.advance(4999)
            self.assertEqual(self.wait("x"), ["WAIT", 1])
        a.heartbeat()
        self.assertEqual(a.publish(1)[0][0], "granted")

    def test_sixteen_stale_ones_are_dropped_per_call(self):
        a = self.host(max_idle=2)
        for n in range(17):
            self.acquire(n, "wait")
        self.advance(4000)
        a.heartbeat()
        self.acquire("live", "wait")
        self.advance(1500)
        self.assertEqual(a.publish(1), [("idle", "", 0)])
        self.assertEqual(self.redis.call("ZCARD", self.key("waiters")), 2)
        self.assertStatus(self.wait("live"), "OK", sandbox_id(1))

    def test_timeout(self):
        self.host(max_idle=0)
        self.acquire("x", "wait")
        self.assertEqual(self.call("wait", lease_id("x"), self.now + 1), ["WAIT", 1])
        self.assertEqual(self.call("wait", lease_id("x"), self.now), ["TIMEOUT"])
        self.assertEqual(self.wait("x"), ["NOT_FOUND"])
        self.assertEqual(self.keys() & {"waiters", "waiters:alive", "waiters:wish"}, set())

    def test_a_grant_beats_the_deadline(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait")
        a.heartbeat()
        a.publish(1)
        self.assertStatus(self.call("wait", lease_id("x"), self.now), "OK", sandbox_id(1))

    def test_newcomers_do_not_overtake(self):
        a = self.host(max_idle=2)
        self.acquire("first", "wait")
        self.redis.call("ZADD", self.key("waiters:alive"), self.now - 1, lease_id("first"))
        a.publish(1)  # passed over: it looks gone, but it is dropped
        self.assertStatus(self.acquire("second"), "OK", sandbox_id(1))
        self.acquire("third", "wait")
        a.update(2, "idle")
        self.assertEqual(self.acquire("fourth"), ["EMPTY"])
        self.assertStatus(self.wait("third"), "OK", sandbox_id(2))

    def test_newcomers_do_not_overtake_who_could_be_served(self):
        a = self.host(max_idle=4)
        a.publish(1)
        self.call("drain_host", "a", 1)
        self.acquire("first", "wait")
        self.call("drain_host", "a", 0)
        self.assertEqual(self.acquire("second"), ["EMPTY"])
        self.assertStatus(self.wait("first"), "OK", sandbox_id(1))

    def test_a_ticket_keeps_its_place_when_an_entry_does_not_fit(self):
        a, b = self.host("a", max_idle=4), self.host("b", max_idle=4)
        self.acquire("long", "wait", min_ttl=50_000)
        self.acquire("elsewhere", "wait", exclude=["a"])
        self.acquire("any", "wait")
        for host in (a, b, a, b):
            host.heartbeat()
        self.assertEqual(a.publish(1, expires=self.now + 40_000),
                         [("granted", lease_id("any"), 0)])
        self.assertEqual(self.wait("long"), ["WAIT", 1])
        self.assertEqual(b.publish(2, expires=self.now + 40_000),
                         [("granted", lease_id("elsewhere"), 0)])
        self.assertEqual(a.publish(3), [("granted", lease_id("long"), 0)])

    def test_ticket_with_other_parameters_is_a_mismatch(self):
        self.host(max_idle=0)
        self.acquire("x", "wait", ttl=1000)
        self.assertEqual(self.acquire("x", "wait", ttl=2000), ["LEASE_MISMATCH"])

    def test_heartbeat_undrain_and_update_serve_the_queue(self):
        a = self.host(max_idle=4)
        a.publish(1)
        self.call("drain_host", "a", 1)
        self.acquire("x", "wait")
        self.call("drain_host", "a", 0)
        self.assertIn(("grant", sandbox_id(1), lease_id("x"), 0, 0), a.items(1))
        self.acquire("y", "wait")
        a.update(2, "idle")
        self.assertStatus(self.wait("y"), "OK", sandbox_id(2))

    def test_saturated_by_max_total_and_by_the_queue(self):
        a = self.host(max_idle=1, max_total=3)
        a.heartbeat(0, 0, 3)
        self.assertEqual(self.acquire("x", "create"), ["SATURATED", "max_total"])
        self.assertEqual(self.acquire("x", "retry_next_then_create"), ["SATURATED", "max_total"])
        self.assertEqual(self.acquire("x", "wait"), ["WAIT", 1])
        a.heartbeat(0, 0, 2)
        self.assertEqual(self.acquire("y", "create"), ["WAIT", 2])

    def test_4096_tickets_and_one_more(self):
        a = self.host(max_idle=0)
        wish = None
        self.acquire("first", "wait")
        wish = self.redis.call("HGET", self.key("waiters:wish"), lease_id("first"))
        more = [lease_id(("queue", n)) for n in range(4094)]
        self.redis.pipeline(
            command for n, lease in enumerate(more) for command in (
                ("ZADD", self.key("waiters"), self.now * 1000 + n, lease),
                ("ZADD", self.key("waiters:alive"), self.now + 5000, lease),
                ("HSET", self.key("waiters:wish"), lease, wish)))
        self.assertEqual(self.acquire("4096", "wait"), ["WAIT", 4096])
        self.assertEqual(self.acquire("4097", "wait"), ["SATURATED", "waiters"])
        self.assertEqual(self.acquire("4096", "wait"), ["WAIT", 4096])
        a.heartbeat()
        self.assertEqual(self.acquire("4097"), ["EMPTY"])
        self.advance(5001)
        self.assertEqual(self.acquire("4097", "wait"), ["WAIT", 4081])

    def test_destroyed_pool_sends_waiters_away(self):
        self.host(max_idle=0)
        self.acquire("x", "wait")
        self.call("set_state", "destroying", 0)
        self.assertEqual(self.wait("x"), ["DESTROYED"])
        self.acquire("y", "wait")
        self.assertEqual(self.stats()["tickets"], 0)

    def test_waiters_are_demand_p160(self):
        a = self.host(max_idle=2)
        self.assertEqual(a.share(), 2)
        self.acquire("x", "wait")
        self.assertEqual(a.share(), 3)
        self.assertStatus(a.heartbeat(), "OK")
        self.call("cancel", lease_id("x"))
        self.assertEqual(a.share(), 2)

    def test_enqueue_nudges_the_hosts(self):
        self.host("a", max_idle=0)
        self.host("b", max_idle=0)
        with self.server.connect() as listener:
            listener.call("SUBSCRIBE", self.key("events:a"))
            self.acquire("x", "create")
            self.assertEqual(listener.receive()[2], "todo")


class Ends(FunctionCase):
    def test_cancel_withdraws_a_ticket_and_uses_the_lease_up(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait")
        self.assertEqual(self.call("cancel", lease_id("x")), ["OK"])
        self.assertEqual(self.call("cancel", lease_id("x")), ["OK"])
        self.assertEqual(self.acquire("x", "wait"), ["LEASE_ENDED", "cancelled"])
        self.assertEqual(a.share(), 0)

    def test_cancel_ends_an_unclaimed_grant_only(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x")
        self.acquire("y")
        a.update(2, "leased", "y", claimed=1)
        self.assertEqual([self.call("cancel", lease_id(n)) for n in "xy"], [["OK"], ["OK"]])
        self.assertEqual(a.items(), [("command", sandbox_id(1), lease_id("x"), 0, "discarded")])
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(2))
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "cancelled"])

    def test_cancel_leaves_a_local_lease_alone(self):
        a = self.host()
        a.update(1, "leased", "x")
        self.assertEqual(self.call("cancel", lease_id("x")), ["OK"])
        self.assertEqual(a.items(), [])

    def test_renew_asks_the_owner_and_never_goes_back(self):
        a = self.host()
        a.publish(1)
        self.acquire("x", ttl=10_000)
        a.update(1, "leased", "x", ends=self.now + 10_000, claimed=1)
        self.assertEqual(self.call("renew", lease_id("x"), 30_000),
                         ["OK", self.now + 30_000, self.now + 10_000, self.now])
        self.assertEqual(self.call("renew", lease_id("x"), 5_000),
                         ["OK", self.now + 30_000, self.now + 10_000, self.now])
        self.advance(1000)
        self.assertEqual(a.items(), [("renew", sandbox_id(1), lease_id("x"), 29_000, "")])
        a.update(1, "leased", "x", ends=self.now + 28_500, claimed=1)
        self.assertEqual(a.items(), [])
        self.assertEqual(self.call("renew", lease_id("x"), 1)[1:3], [self.now + 28_500] * 2)

    def test_a_renewal_that_is_not_granted_is_told_three_times(self):
        a = self.host()
        a.update(1, "leased", "x", ends=self.now + 10_000, claimed=1)
        self.call("renew", lease_id("x"), 90_000)
        told = []
        for _ in range(5):
            told += a.items()
            a.update(1, "leased", "x", ends=self.now + 20_000, claimed=1)
        self.assertEqual(len(told), 3)

    def test_renew_of_nothing(self):
        a = self.host()
        self.assertEqual(self.call("renew", lease_id("x"), 1000), ["NOT_FOUND"])
        a.publish(1)
        self.acquire("x")
        self.call("release", lease_id("x"))
        self.assertEqual(self.call("renew", lease_id("x"), 1000), ["LEASE_ENDED", "released"])

    def test_release_is_a_command_and_idempotent_b102(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.assertEqual(self.call("release", lease_id("x")), ["OK"])
        self.assertEqual(self.call("release", lease_id("x")), ["OK"])
        self.assertEqual(a.items(), [("command", sandbox_id(1), lease_id("x"), 0, "released")])
        a.update(1, "killing", "x")
        self.assertEqual(a.items(), [])
        a.update(1, "gone")
        self.assertEqual(self.stats()["entries"], 0)
        self.assertEqual(self.call("release", lease_id("y")), ["NOT_FOUND"])

    def test_release_of_a_ticket_withdraws_it(self):
        self.host(max_idle=0)
        self.acquire("x", "wait")
        self.assertEqual(self.call("release", lease_id("x")), ["OK"])
        self.assertEqual(self.call("release", lease_id("x")), ["NOT_FOUND"])
        self.assertEqual(self.stats()["tickets"], 0)

    def test_release_does_not_touch_who_won_the_sandbox(self):
        a = self.host()
        a.publish(1)
        self.acquire("loser")
        a.update(1, "leased", "winner", claimed=1)
        self.assertEqual(self.acquire("loser"), ["LEASE_ENDED", "lease_lost"])
        self.assertEqual(self.call("release", lease_id("loser")), ["OK"])
        self.assertEqual(a.items(), [])
        self.assertStatus(self.call("renew", lease_id("winner"), 1000), "OK")

    def test_released_stays_released_whatever_the_owner_missed(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.call("release", lease_id("x"))
        self.redis.call("DEL", self.key("sb"), self.key("todo:a"))
        a.update(1, "leased", "x", claimed=1)
        self.assertEqual(a.items(), [("command", sandbox_id(1), lease_id("x"), 0, "released")])

    def test_a_lease_moves_to_the_sandbox_that_is_in_use(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x")
        a.update(2, "leased", "x", claimed=0)
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        a.update(2, "leased", "x", claimed=1)
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(2))


c.also(Acquire, c.CLUSTER, c.VALKEY)
c.also(Wait, c.CLUSTER)
c.also(Ends, c.CLUSTER)

if __name__ == "__main__":
    main()
