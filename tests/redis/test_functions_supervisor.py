"""What supervisors may expect of the function library, and what it keeps from them."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import redis_case as c  # noqa: E402
from redis_case import FunctionCase, Supervisor, items_of, lease_id, sandbox_id  # noqa: E402
from sandpool_test import main  # noqa: E402


class Register(FunctionCase):
    def test_reply_has_the_documented_order(self):
        a = Supervisor(self, "a", max_idle=5, max_total=9)
        self.assertEqual(a.register(), ["OK", self.now, 0, c.DEADLINE_MS, 5, 9, c.MIN_TTL_MS,
                                        "active", 0, 1, c.SPEC])

    def test_seq_is_zero(self):
        a = Supervisor(self, "a")
        with self.refused("ERR sandpool: register: seq: must be 0"):
            a.raw("register", 1, a.secret, a.boot, a.endpoint, 1, "v", 1, 0, 0, 0, "active", 0, 1, "d")

    def test_repeat_changes_nothing(self):
        a = self.host()
        a.publish(1)
        self.assertStatus(a.register(), "OK", self.now, 8)
        self.assertStatus(a.heartbeat(1), "OK")
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))

    def test_live_host_is_taken_b109(self):  # P-040
        a = self.host()
        self.advance(2000)
        for other in (Supervisor(self, "a", incarnation="other", secret="other"),
                      Supervisor(self, "a", incarnation="other", boot="boot-2")):
            self.assertEqual(other.register(), ["HOST_ID_TAKEN", c.DEADLINE_MS - 2000])
        self.assertStatus(a.heartbeat(), "OK")

    def test_restart_takes_over_at_once(self):
        a = self.host()
        again = Supervisor(self, "a", incarnation="inc-2")
        self.assertStatus(again.register(), "OK")
        self.assertEqual(a.heartbeat(), ["FENCED"])
        self.assertStatus(again.heartbeat(), "OK")

    def test_dead_host_may_be_replaced(self):  # P-041
        self.host()
        other = Supervisor(self, "a", incarnation="other", secret="other", boot="boot-2")
        self.advance(c.DEADLINE_MS - 1)
        self.assertEqual(other.register(), ["HOST_ID_TAKEN", 1])
        self.advance(1)
        self.assertStatus(other.register(), "OK")

    def test_late_register_of_an_old_incarnation_is_fenced(self):
        old = [Supervisor(self, "a", incarnation=f"inc-{n}") for n in range(5)]
        for supervisor in old:
            self.assertStatus(supervisor.register(), "OK")
        for supervisor in old[:4]:
            self.assertEqual(supervisor.register(), ["FENCED"])
        self.assertStatus(old[4].register(), "OK")

    def test_new_incarnation_takes_over_no_entry(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x")
        again = Supervisor(self, "a", incarnation="inc-2")
        again.register()
        again.heartbeat()
        self.assertEqual(self.acquire("y"), ["EMPTY"])
        self.assertEqual(again.resync((1, "leased", self.now + 9000, "x", 1)), ["OK"])
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertEqual(self.stats()["entries"], 1)

    def test_without_a_resync_the_old_entries_go_after_30_s(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        again = Supervisor(self, "a", incarnation="inc-2")
        again.register()
        for _ in range(30):
            self.assertEqual(self.stats()["entries"], 1)
            again.heartbeat()
            self.advance(1000)
        again.heartbeat()
        self.assertEqual(self.stats()["entries"], 0)
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "lease_lost"])

    def test_256_hosts_and_one_more(self):
        first = self.host("h0")
        record = self.redis.call("HGET", self.key("hosts"), "h0")
        self.redis.call("HSET", self.key("hosts"),
                        *(word for n in range(1, 255) for word in (f"h{n}", record)))
        self.assertStatus(Supervisor(self, "h255").register(), "OK")
        self.assertEqual(Supervisor(self, "h256").register(), ["HOSTS_FULL"])
        self.assertStatus(first.heartbeat(), "OK")
        self.assertStatus(Supervisor(self, "h7", incarnation="new", boot="boot-1").register(), "OK")

    def test_spec_moves_forward_only(self):
        a = self.host("a")
        a.publish(1)
        for spec in ((0, "old"), (1, "other")):
            b = Supervisor(self, "b", spec=spec)
            self.assertEqual(b.register(), ["SPEC_MISMATCH", 1, c.SPEC])
            self.assertEqual(b.share(), 0)
            self.assertEqual(b.publish(2, digest=spec[1]), [("refused", "", "spec_changed")])
            self.assertEqual(self.host_stats()["b"]["state"], "spec_mismatch")
            b.incarnation += "x"
        b = self.host("b", spec=(2, "spec-2"), incarnation="newer")
        self.assertEqual(self.acquire("x"), ["EMPTY"])
        self.assertEqual(a.share(1), 0)
        self.assertEqual(self.host_stats()["a"]["state"], "spec_mismatch")
        self.assertEqual(a.heartbeat()[9:11], [2, "spec-2"])

    def test_highest_revision_wins_p133(self):
        a = self.host("a", max_idle=5)
        self.host("b", max_idle=6)
        self.assertEqual(a.heartbeat()[4], 6)  # nobody has resized: who came last
        self.assertEqual(self.call("resize", 7, -1, 0), ["OK", 1])
        self.host("c", max_idle=9)
        self.assertEqual(a.heartbeat()[4:9], [7, 0, c.MIN_TTL_MS, "active", 1])
        self.host("d", max_idle=3, revision=2, state="draining")
        self.assertEqual(a.heartbeat()[4:9], [3, 0, c.MIN_TTL_MS, "draining", 2])

    def test_intent_comes_back_after_a_loss_b140(self):
        a = self.host("a", max_idle=5)
        self.call("resize", 7, -1, 0)
        self.redis.call("FLUSHALL")
        self.set_clock(self.now)
        self.assertEqual(a.heartbeat(), ["RESYNC"])
        a.max_idle, a.revision = 7, 1
        self.assertEqual(a.register()[4:9], [7, 0, c.MIN_TTL_MS, "active", 1])
        a.revision, a.max_idle = 4, 2
        self.assertEqual(a.heartbeat()[4:9], [2, 0, c.MIN_TTL_MS, "active", 4])


class Once(FunctionCase):
    def test_repeat_gets_the_stored_answer_b139(self):
        a = self.host()
        a.publish(1)
        self.acquire("x", ttl=5000)
        first = a.heartbeat(1)
        self.assertEqual([item[0] for item in items_of(first)], ["grant"])
        self.advance(1000)
        self.assertEqual(a.again("heartbeat", *a.beat_args(1)), first)
        words = (sandbox_id(2), self.now + c.IDLE_MS, c.SPEC)
        reply = a.call("publish", *words)
        a2 = self.acquire("y")
        self.assertStatus(a2, "OK", sandbox_id(2))
        self.assertEqual(a.again("publish", *words), reply)
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(2))
        self.assertEqual(self.stats()["idle"], 0)

    def test_other_function_with_the_same_seq(self):
        a = self.host()
        self.assertEqual(a.again("publish"), ["RESYNC"])

    def test_gap_and_old_seq(self):
        a = self.host()
        a.publish(1)
        for seq in (a.seq + 2, a.seq - 1, 0):
            self.assertEqual(a.raw("update", seq, sandbox_id(1), "gone", "", 0, 0, ""), ["RESYNC"])
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertStatus(a.heartbeat(), "OK")

    def test_fenced_has_no_effect(self):
        a = self.host()
        a.publish(1)
        other = Supervisor(self, "a", incarnation="never-seen")
        before = self.redis.call("HGET", self.key("sb"), sandbox_id(1))
        for function, args in (("heartbeat", other.beat_args()), ("unregister", ()),
                               ("publish", (sandbox_id(2), self.now + 9999, c.SPEC)),
                               ("update", (sandbox_id(1), "gone", "", 0, 0, "")),
                               ("resync", ("begin",))):
            self.assertEqual(other.raw(function, a.seq + 1, *args), ["FENCED"])
        self.assertEqual(self.redis.call("HGET", self.key("sb"), sandbox_id(1)), before)
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertStatus(a.heartbeat(), "OK")

    def test_unknown_host(self):
        self.host("a")
        b = Supervisor(self, "b")
        for function, args in (("heartbeat", b.beat_args()), ("publish", ()), ("update", ()),
                               ("resync", ("begin",))):
            self.assertEqual(b.raw(function, 1, *args), ["RESYNC"])
        self.assertEqual(b.raw("unregister", 1), ["OK"])

    def test_resync_begin_may_jump(self):
        a = self.host()
        a.seq += 10
        self.assertEqual(a.resync(), ["OK"])
        a.seq += 1
        self.assertEqual(a.call("resync", "more"), ["RESYNC"])


class Heartbeat(FunctionCase):
    def test_reply_has_the_documented_order(self):
        a = self.host(max_idle=3)
        a.publish(1)
        self.acquire("x", ttl=7000)
        self.acquire("y", "wait")
        self.advance(40)
        self.assertEqual(a.heartbeat(1, 0, 1), [
            "OK", self.now, 4, c.DEADLINE_MS, 3, 0, c.MIN_TTL_MS, "active", 0, 1, c.SPEC, 1, 1,
            1, "grant", sandbox_id(1), lease_id("x"), 7000, 40, -1])

    def test_grant_is_told_until_the_owner_names_it(self):
        a = self.host()
        a.publish(1)
        self.acquire("x", ttl=7000)
        for _ in range(3):
            self.assertEqual(a.items()[0][:4], ("grant", sandbox_id(1), lease_id("x"), 7000))
        a.update(1, "idle")  # told before it knew
        self.assertEqual(len(a.items()), 1)
        a.update(1, "leased", "x", ends=self.now + 7000)
        self.assertEqual(a.items(), [])

    def test_first_one_wins(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        a.update(1, "leased", "y", claimed=1)
        self.assertEqual(a.items(), [])
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "lease_lost"])
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(1))

    def test_256_items_and_the_rest_later(self):
        a = self.host(max_idle=300)
        for at in range(0, 300, 60):
            a.publish(*range(at, at + 60))
        for n in range(300):
            self.acquire(n)
        seen = set()
        for _ in range(2):
            items = a.items()
            self.assertIn(len(items), (255, 256))
            seen |= {item[1] for item in items}
            self.advance(1)
        self.assertEqual(len(seen), 300)

    def test_unknown_and_foreign_ids_in_todo_are_dropped(self):
        a, b = self.host("a"), self.host("b")
        a.heartbeat()
        a.heartbeat()
        b.heartbeat()
        b.publish(2)
        self.acquire("x", exclude=["a"])
        self.redis.call("ZADD", self.key("todo:a"), 1, sandbox_id(2), 1, "rubbish")
        self.assertEqual(a.items(), [])
        self.assertNotIn("todo:a", self.keys())
        self.assertEqual(len(b.items()), 1)

    def test_drain_asked_is_told_until_repeated(self):
        a = self.host()
        self.call("drain_host", "a", 1)
        reply = a.heartbeat()
        self.assertEqual((reply[2], reply[-1]), (0, 1))
        a.draining = 1
        self.assertEqual(a.heartbeat()[-1], -1)
        a.draining = 0  # its own operator said so, later
        self.assertEqual(a.share(), 8)
        a.draining = 1
        a.heartbeat()
        self.call("drain_host", "a", 0)
        reply = a.heartbeat()
        self.assertEqual((reply[2], reply[-1]), (8, 0))

    def test_one_that_leaves_gets_nothing_whatever_is_asked(self):
        a, b = self.host("a"), self.host("b")
        a.publish(1, 2)
        self.acquire("x", prefer="a")
        a.update(1, "leased", "x", claimed=1)
        a.draining = 2
        self.assertEqual(a.share(1, 0, 1), 0)
        self.assertEqual(self.host_stats()["a"]["state"], "draining")
        self.assertEqual(self.acquire("y"), ["EMPTY"])
        self.assertEqual(a.publish(3), [("refused", "", "drained")])
        for asked in (0, 1):  # told until its next life repeats it
            self.call("drain_host", "a", asked)
            for _ in range(2):
                reply = a.heartbeat(1, 0, 1)
                self.assertEqual((reply[2], reply[-1]), (0, asked))
                self.assertEqual(self.host_stats()["a"]["state"], "draining")
            self.assertEqual(self.acquire("y"), ["EMPTY"])
        # What is leased there lives on, however long that takes.
        for _ in range(8):
            self.advance(1000)
            self.assertEqual(a.items(0, 0, 1), [])
            b.heartbeat()
        self.assertStatus(self.acquire("x", prefer="a"), "OK", sandbox_id(1))
        again = self.host("a", incarnation="inc-2")
        self.assertEqual(again.heartbeat()[-1], 1)

    def test_serves_drains_leaves_and_nothing_more(self):
        a = self.host()
        for draining in (0, 1, 2):
            a.draining = draining
            self.assertStatus(a.heartbeat(), "OK")
        a.draining = 3
        with self.refused("heartbeat: draining: must be a whole number from 0 to 2"):
            a.heartbeat()

    def test_hosts_and_tickets_are_counted(self):
        a = self.host("a")
        self.host("b")
        self.advance(3000)
        self.acquire("x", "wait")
        self.assertEqual(a.heartbeat()[11:13], [2, 1])
        self.advance(2000)
        self.assertEqual(a.heartbeat()[11:13], [1, 1])
        self.advance(3000)
        self.assertEqual(a.heartbeat()[11:13], [1, 0])


class Shares(FunctionCase):
    def beat(self, *hosts, times=3, holding=None):
        for _ in range(times):
            for host in hosts:
                host.told = host.share((holding or {}).get(host.name, 0))
        return [host.told for host in hosts]

    def test_by_capacity_largest_remainder(self):
        hosts = [self.host(name, capacity=weight, max_idle=10)
                 for name, weight in (("a", 1), ("b", 2), ("c", 3))]
        self.assertEqual(self.beat(*hosts), [2, 3, 5])
        self.call("resize", 3, -1, 0)
        self.assertEqual(self.beat(*hosts), [1, 1, 1])
        self.call("resize", 2, -1, 0)
        self.assertEqual(self.beat(*hosts), [0, 1, 1])

    def test_ties_go_by_name(self):
        hosts = [self.host(name, max_idle=4) for name in "cab"]
        self.assertEqual(self.beat(*hosts), [1, 2, 1])

    def test_capacity_zero_is_one(self):
        hosts = [self.host(name, max_idle=4, capacity=0) for name in "ab"]
        self.assertEqual(self.beat(*hosts), [2, 2])

    def test_new_host_gets_what_is_free(self):
        a = self.host("a", max_idle=8)
        self.assertEqual(a.share(6, 2), 8)
        b = self.host("b")
        self.assertEqual(b.share(), 0)
        self.assertEqual(a.share(8), 4)   # told; still holds 8
        self.assertEqual(b.share(), 0)
        self.assertEqual(a.share(6), 4)   # gave up two
        self.assertEqual(b.share(), 2)
        self.assertEqual(a.share(4), 4)
        self.assertEqual(b.share(2), 4)

    def test_holding_less_before_being_told_gives_nothing_away(self):
        a = self.host("a", max_idle=8)
        self.assertEqual(a.share(0), 8)
        b = self.host("b")
        self.assertEqual(b.share(), 0)
        # The answer may be lost: until its next call it may still create up to 8.
        self.assertEqual(a.share(0), 4)
        self.assertEqual(b.share(), 0)
        self.assertEqual(a.share(0), 4)
        self.assertEqual(b.share(), 4)

    def test_share_of_a_dead_host_goes_to_the_others(self):  # P-041
        a, b = self.host("a"), self.host("b")
        self.assertEqual(self.beat(a, b), [4, 4])
        self.advance(c.DEADLINE_MS - 1)
        self.assertEqual(a.share(4), 4)
        self.advance(1)
        self.assertEqual(a.share(4), 8)
        self.assertEqual(b.share(4), 0)

    def test_sum_stays_within_what_is_owed_p180(self):
        hosts = [self.host(name, max_idle=7, capacity=n + 1) for n, name in enumerate("abcde")]
        before = self.stats()["shares"]
        for at in range(60):
            hosts[at * 7 % 5].share(at % 3)
            if at % 10 == 5:
                self.acquire(at, "wait", exclude="abcde")
            stats = self.stats()
            # Demand that went away takes a tick to be given back; nothing is given out above it.
            self.assertLessEqual(stats["shares"], max(before, 7 + stats["tickets"]))
            before = stats["shares"]
            self.advance(200)

    def test_max_total_limits_shares(self):
        a, b = self.host("a", max_idle=8, max_total=10), self.host("b", max_idle=8, max_total=10)
        for _ in range(3):
            a.heartbeat(0, 0, 3)
            b.heartbeat(0, 0, 3)
        self.assertEqual([a.share(0, 0, 3), b.share(0, 0, 3)], [2, 2])
        for _ in range(2):
            a.heartbeat(2, 0, 0)
            b.heartbeat(2, 0, 0)
        self.assertEqual([a.share(2), b.share(2)], [4, 4])

    def test_own_waiters_go_to_their_host(self):
        a, b = self.host("a", max_idle=2), self.host("b", max_idle=2)
        self.beat(a, b)
        self.assertEqual(a.share(1, 0, 0, 3), 4)
        self.assertEqual(b.share(1), 1)

    def test_not_active_means_none(self):
        a = self.host()
        for state in ("draining", "destroying", "destroyed"):
            self.call("set_state", state, 0)
            self.assertEqual(a.share(), 0)

    def test_resize_to_zero_and_back_b120(self):
        a = self.host()
        self.call("resize", 0, -1, 0)
        self.assertEqual(a.share(3), 0)
        self.call("resize", 5, -1, 0)
        self.assertEqual(a.share(0), 5)

    def test_after_a_loss_everybody_keeps_what_it_has_for_2_s(self):
        hosts = [self.host(name, max_idle=9) for name in "abc"]
        self.beat(*hosts)
        self.redis.call("FLUSHALL")
        self.set_clock(self.now)
        for host in hosts:
            host.register()
            host.resync()
            self.assertEqual(host.share(3), 3)
        self.redis.call("DEL", self.key("hosts"), self.key("meta"))
        hosts[0].register()
        self.assertEqual(hosts[0].share(2), 2)
        self.advance(2000)
        self.assertEqual(hosts[0].share(2), 9)

    def test_after_an_absence_of_all_everybody_keeps_its_share_for_2_s(self):
        hosts = [self.host(name, max_idle=9) for name in "abc"]
        self.beat(*hosts)
        self.advance(60_000)
        for host in hosts:
            self.assertEqual(host.share(1), 3)
            self.advance(500)
        self.advance(500)
        self.assertEqual(hosts[0].share(1), 3)

    def test_records_of_hosts_that_were_lost_cost_nobody_anything(self):
        """Who comes back first is not given the parts of the others, who only have to register."""
        for lost in ("a", "bc", "abc"):
            for how in ("DEL", "SET", "HSET"):
                with self.subTest(lost=lost, how=how):
                    self.setUp()
                    hosts = [self.host(name, max_idle=9) for name in "abc"]
                    self.beat(*hosts, holding=dict.fromkeys("abc", 3))
                    self.advance(3000)  # the directory is no longer new
                    self.assertEqual(self.beat(*hosts, holding=dict.fromkeys("abc", 3)), [3, 3, 3])
                    self.lose(how, lost)
                    # Its clients that wait have it weigh anew, whoever is missing.
                    for host in hosts[::-1] + hosts:
                        reply = host.heartbeat(3, 0, 0, 1)
                        if reply[0] == "RESYNC":
                            self.assertStatus(host.register(), "OK")
                            self.assertEqual(host.resync(), ["OK"])
                            reply = host.heartbeat(3, 0, 0, 1)
                        self.assertStatus(reply, "OK", self.now, 3)
                    self.advance(2000)
                    self.assertEqual(self.beat(*hosts, holding=dict.fromkeys("abc", 3)), [3, 3, 3])

    def lose(self, how, names):
        if how == "SET":
            self.redis.call("SET", self.key("hosts"), "of another type")
        for name in names:
            if how == "DEL":
                self.redis.call("HDEL", self.key("hosts"), name)
            elif how == "HSET":
                self.redis.call("HSET", self.key("hosts"), name, "no record")

    def test_a_pool_that_all_have_left_is_filled_at_once(self):
        hosts = [self.host(name) for name in "abc"]
        for host in hosts:
            self.assertEqual(host.call("unregister"), ["OK"])
        self.assertEqual(self.host("a", incarnation="inc-2").share(), 8)

    def test_a_host_that_left_leaves_its_part_to_the_others(self):
        a, b = self.host("a"), self.host("b")
        self.assertEqual(self.beat(a, b, holding={"a": 4, "b": 4}), [4, 4])
        b.call("unregister")
        self.assertEqual(a.share(4), 8)

    def test_hosts_that_were_forgotten_are_not_waited_for(self):
        a, b = self.host("a"), self.host("b")
        self.beat(a, b)
        for _ in range(2):
            self.advance(HOUR // 2 + 1000)
            a.heartbeat(4)
            self.advance(2000)
            a.heartbeat(4)
        self.assertEqual(self.call("reap", 100)[0], "OK")
        self.assertNotIn("b", self.host_stats())
        other = self.host("c")
        self.assertEqual([a.share(8), a.share(4), other.share()], [4, 4, 4])

    def test_a_pool_that_is_new_is_filled_at_once(self):
        a = Supervisor(self, "a")
        a.register()
        self.assertEqual(a.share(0), 8)

    def test_wrong_clock_of_a_server_makes_nobody_live_for_long(self):
        a, b = self.host("a"), self.host("b")
        self.beat(a, b)
        self.advance(-HOUR)
        self.assertEqual(a.share(4), 8)  # b's deadline is an hour away: that was another clock
        self.assertEqual(self.host_stats()["b"]["state"], "dead")


HOUR = c.HOUR_MS


class Publish(FunctionCase):
    def test_verdicts(self):  # P-023
        a = self.host(max_idle=2)
        self.assertEqual(a.publish(1, 2, 3), [("idle", "", 0), ("idle", "", 0),
                                              ("refused", "", "excess")])
        self.assertEqual(a.publish(1), [("idle", "", 0)])
        self.assertEqual(self.stats()["entries"], 2)

    def test_forged_and_expired_entries_cost_no_share_b117(self):
        a = self.host(max_idle=2)
        a.publish(1, expires=self.now + 2000)
        self.redis.call("ZADD", self.key("idle:a"), self.now + 9000, "forged", self.now + 9000,
                        sandbox_id(99))
        self.advance(2000)
        self.assertEqual(a.publish(2, 3, 4), [("idle", "", 0), ("idle", "", 0),
                                              ("refused", "", "excess")])

    def test_waiters_come_before_the_share(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait")
        self.assertEqual(a.publish(1, 2), [("granted", lease_id("x"), 0),
                                           ("refused", "", "excess")])

    def test_refusals(self):
        a = self.host()
        self.assertEqual(a.publish(1, digest="other"), [("refused", "", "spec_changed")])
        self.assertEqual(a.publish(1, expires=self.now + c.MIN_TTL_MS),
                         [("refused", "", "near_expiry")])
        self.assertEqual(a.publish(1, expires=self.now + c.MIN_TTL_MS + 1), [("idle", "", 0)])
        self.call("drain_host", "a", 1)
        self.assertEqual(a.publish(2), [("refused", "", "drained")])
        self.call("drain_host", "a", 0)
        self.call("set_state", "draining", 0)
        self.assertEqual(a.publish(2), [("refused", "", "drained")])
        self.call("set_state", "active", 0)
        self.advance(c.DEADLINE_MS)
        self.assertEqual(a.publish(2), [("refused", "", "excess")])

    def test_granted_one_is_granted_again(self):
        a = self.host()
        a.publish(1)
        self.acquire("x", ttl=4000)
        self.assertEqual(a.publish(1), [("granted", lease_id("x"), 4000)])

    def test_released_one_is_refused(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.call("release", lease_id("x"))
        self.assertEqual(a.publish(1), [("refused", "", "released")])

    def test_64_at_once_and_one_more(self):
        a = self.host(max_idle=100)
        self.assertEqual(len(a.publish(*range(64))), 64)
        with self.refused("ERR sandpool: publish: id: at most 64 at once, 65 given"):
            a.publish(*range(65))

    def test_20000_entries_and_one_more(self):
        a = self.host(max_idle=100)
        record = self.redis.call("ZSCORE", self.key("own:a"), "x")
        self.assertIsNone(record)
        a.publish(0)
        listing = self.redis.call("ZSCORE", self.key("own:a"), sandbox_id(0))
        words = [word for n in range(1, 19_999) for word in (listing, sandbox_id(n))]
        self.redis.call("ZADD", self.key("own:a"), *words)
        self.assertEqual(a.publish(30_000, 30_001), [("idle", "", 0), ("refused", "", "limit")])
        self.assertEqual(a.update(30_002, "idle"), ["OK", sandbox_id(30_002)])
        self.assertEqual(a.update(30_000, "idle"), ["OK"])


class Update(FunctionCase):
    def test_states(self):
        a = self.host()
        a.publish(1)
        a.update(1, "leased", "x", claimed=1)
        self.assertEqual(self.acquire("y"), ["EMPTY"])
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        a.update(1, "killing", "x")
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "died"])
        self.assertEqual(self.stats()["entries"], 1)
        a.update(1, "gone", "x")
        self.assertEqual(self.stats()["entries"], 0)
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "died"])

    def test_reason_of_an_end(self):
        a = self.host()
        for n, (digest, ends, reason) in enumerate((
                ("unclaimed", self.now + 1, "unclaimed"), ("expired", self.now + 1, "expired"),
                (c.SPEC, self.now, "expired"), ("", self.now + 1, "died"),
                ("<script>", None, None))):
            lease = f"lease {n}"
            a.update(n, "leased", lease, ends=ends if ends else self.now)
            if reason is None:
                with self.refused("ERR sandpool: update: digest 1: must be a digest"):
                    a.update(n, "gone", digest=digest)
                continue
            a.update(n, "gone", digest=digest)
            self.assertEqual(self.acquire(lease), ["LEASE_ENDED", reason])

    def test_leased_needs_a_lease(self):
        a = self.host()
        with self.refused("ERR sandpool: update: lease 1: a leased sandbox has a lease"):
            a.update(1, "leased")

    def test_wrong_hint_is_answered_by_idle(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x", reject=[sandbox_id(1)])
        self.assertIn(("hint", sandbox_id(1), "", 0, "discarded"), a.items())
        a.update(1, "idle")
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(1))

    def test_command_for_another_lease_is_dropped(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.call("release", lease_id("x"))
        a.update(1, "leased", "y", claimed=1)
        self.assertEqual(a.items(), [])

    def test_idle_does_not_take_back_a_command(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.call("release", lease_id("x"))
        a.update(1, "idle")
        self.assertEqual(len(a.items()), 1)
        self.assertEqual(self.acquire("y"), ["EMPTY"])

    def test_expired_idle_is_not_listed(self):
        a = self.host()
        a.update(1, "idle", ends=self.now)
        self.assertEqual(self.stats()["idle"] + self.stats()["idle_short"], 0)
        a.update(1, "idle", ends=self.now + 1)
        self.assertEqual(self.stats()["idle_short"], 1)

    def test_local_lease_of_a_ticket_serves_it(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait")
        a.update(1, "leased", "x")
        self.assertEqual(self.stats()["tickets"], 0)
        self.assertStatus(self.wait("x"), "OK", sandbox_id(1))

    def test_sandbox_of_another_host_moves(self):
        a, b = self.host("a"), self.host("b")
        a.heartbeat()
        a.publish(1)
        b.update(1, "leased", "x", claimed=1)
        self.assertEqual(self.acquire("x")[2], "b")
        self.assertEqual(self.acquire("y"), ["EMPTY"])

    def test_64_at_once_and_one_more(self):
        a = self.host()
        one = lambda n: (sandbox_id(n), "idle", "", self.now + 9999, 0, c.SPEC)  # noqa: E731
        self.assertEqual(a.call("update", *sum(map(one, range(64)), ())), ["OK"])
        with self.refused("update: id: at most 64 at once, 65 given"):
            a.call("update", *sum(map(one, range(65)), ()))
        a.seq -= 1
        with self.refused("update: state 3: missing"):
            a.call("update", *sum(map(one, range(2)), ()), sandbox_id(3))

    def test_what_is_known_writes_nothing(self):
        a = self.host()
        a.publish(1)
        a.update(2, "leased", "x", ends=self.now + 99, claimed=1)
        self.redis.call("CONFIG", "RESETSTAT")
        a.update(1, "idle")
        a.update(2, "leased", "x", ends=self.now + 99, claimed=1)
        stats = self.redis.call("INFO", "commandstats")
        writes = sum(int(line.split("calls=")[1].split(",")[0]) for line in stats.splitlines()
                     if line.startswith(("cmdstat_hset", "cmdstat_hdel")))
        self.assertEqual(writes, 4)  # the host's seq and answer, twice


class Resync(FunctionCase):
    def test_what_is_not_named_is_dropped(self):
        a = self.host()
        a.publish(1, 2, 3)
        self.acquire("x")
        self.acquire("y")
        reply = a.resync((3, "idle", self.now + 9000, "", 0),
                         (2, "leased", self.now + 5000, "y", 1))
        self.assertEqual(reply, ["OK"])
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "lease_lost"])
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(2))
        self.assertStatus(self.acquire("z"), "OK", sandbox_id(3))
        self.assertEqual(self.stats()["entries"], 2)

    def test_old_entries_are_not_dispensed_in_between(self):
        a = self.host()
        a.publish(1, 2)
        a.resync((1, "idle", self.now + 9000, "", 0), parts=("begin",))
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertEqual(self.acquire("y"), ["EMPTY"])
        self.assertStatus(a.heartbeat(), "OK")
        self.assertEqual(self.stats()["entries"], 2)
        self.assertEqual(a.call("resync", "end"), ["OK"])
        self.assertEqual(self.stats()["entries"], 1)

    def test_grant_survives_a_list_that_says_idle(self):
        a = self.host()
        a.publish(1)
        self.acquire("x")
        a.resync((1, "idle", self.now + 9000, "", 0))
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertEqual(len(a.items()), 1)

    def test_rebuilds_an_empty_directory_b140(self):  # P-206
        a = self.host()
        a.publish(1)
        self.acquire("x")
        self.redis.call("FLUSHALL")
        self.set_clock(self.now)
        self.assertEqual(a.heartbeat(), ["RESYNC"])
        a.register()
        a.resync((1, "leased", self.now + 9000, "x", 1), (2, "idle", self.now + 9000, "", 0))
        self.assertStatus(self.acquire("x"), "OK", sandbox_id(1))
        self.assertStatus(self.acquire("y"), "OK", sandbox_id(2))

    def test_256_at_once_and_one_more(self):
        a = self.host()
        entries = [(n, "idle", self.now + 9000, "", 0) for n in range(257)]
        self.assertEqual(a.resync(*entries[:256]), ["OK"])
        with self.refused("resync: id: at most 256 at once, 257 given"):
            a.resync(*entries)

    def test_large_leftover_is_dropped_in_steps(self):
        a = self.host(max_idle=600)
        for at in range(0, 600, 60):
            a.publish(*range(at, at + 60))
        self.assertEqual(a.resync(), ["OK"])
        left = [self.stats()["entries"]]
        for _ in range(2):
            a.heartbeat()
            left.append(self.stats()["entries"])
        self.assertEqual(left, [344, 88, 0])

    def test_serves_the_queue(self):
        a = self.host(max_idle=0)
        self.acquire("x", "wait")
        a.resync((1, "idle", self.now + 9000, "", 0))
        self.assertStatus(self.wait("x"), "OK", sandbox_id(1))


class Unregister(FunctionCase):
    def test_leaves_tombstones_only(self):
        a = self.host()
        a.publish(1, 2)
        self.acquire("x")
        self.assertEqual(a.call("unregister"), ["OK"])
        self.assertEqual(a.again("unregister"), ["OK"])
        self.assertEqual(a.heartbeat(), ["RESYNC"])
        self.assertEqual(self.acquire("x"), ["LEASE_ENDED", "shutdown"])
        self.assertEqual(self.keys(), {"meta", "lease", "lease:ends"})

    def test_large_host_is_dropped_in_steps(self):
        a = self.host(max_idle=600)
        for at in range(0, 600, 60):
            a.publish(*range(at, at + 60))
        self.assertEqual(a.call("unregister"), ["OK"])
        self.assertEqual(self.acquire("x"), ["EMPTY"])
        self.assertEqual(self.host_stats()["a"]["state"], "dead")
        self.assertEqual(a.heartbeat(), ["RESYNC"])
        for _ in range(3):
            self.call("reap", 200)
        self.assertEqual(self.keys(), {"meta"})

    def test_last_host_of_a_destroyed_pool_leaves_the_tombstone_b118_b119(self):
        a, b = self.host("a"), self.host("b")
        a.publish(1)
        self.acquire("x")
        self.call("set_state", "destroyed", 0)
        a.call("unregister")
        self.assertIn("lease", self.keys())
        b.call("unregister")
        self.assertEqual(self.keys(), {"meta"})
        again = Supervisor(self, "a", incarnation="inc-2")
        self.assertEqual(again.register()[7], "destroyed")
        self.assertEqual(again.share(), 0)


c.also(Register, c.CLUSTER)
c.also(Once, c.CLUSTER, c.VALKEY)
c.also(Heartbeat, c.CLUSTER)
c.also(Publish, c.CLUSTER)
c.also(Resync, c.CLUSTER)
c.also(Unregister, c.CLUSTER)

if __name__ == "__main__":
    main()
