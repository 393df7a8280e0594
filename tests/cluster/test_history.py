"""The history checker turns red: one forged history for each thing that must never happen.

Each starts from a history in which everything is as it should be and changes one fact.
"""

import copy
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import history  # noqa: E402
from sandpool_test import Case, main  # noqa: E402


class Forged:
    """A history under construction; time moves on by 0.1 s with every record."""

    def __init__(self):
        self.records = []
        self.clock = 100.0
        self.serial = 0

    def at(self, **fields):
        self.clock += 0.1
        fields.setdefault("t", round(self.clock, 3))
        self.records.append(fields)
        return fields

    def op(self, op, lease, status="OK", *, client=None, took=0.01, call=None, **answer):
        """A call and its return; status None = no return."""
        self.serial += 1
        key = {"client": client or f"c-{lease}", "n": self.serial}
        begin = self.at(phase="call", op=op, lease=lease, bound_s=5.0, **key, **(call or {}))
        if status is not None:
            self.records.append({"phase": "return", "t": round(begin["t"] + took, 3),
                                 "status": status, **key, **answer})
        return begin

    def acquire(self, lease, sandbox, **more):
        more.setdefault("remaining_ms", 60000)
        return self.op("acquire", lease, sandbox=sandbox, host="a", **more)

    def claim(self, lease, sandbox, remaining_ms=60000, **more):
        return self.op("claim", lease, sandbox=sandbox, host="a", remaining_ms=remaining_ms, **more)

    def exec(self, lease, sandbox, status="OK", **more):
        return self.op("exec", lease, status, sandbox=sandbox, host="a", **more)

    def host(self, boxes, kind="sample", host="a", **pool):
        listed = [dict(zip(("id", "state", "lease", "claimed"), (*box, "", False)[:4]))
                  for box in boxes]
        counts = {state: sum(box["state"] == state for box in listed) for state in history.ORDER}
        counts.update(pool)
        return self.at(**{kind: "host"}, host=host, pool=counts, sandboxes=listed,
                       inits=len(listed))

    def store(self, shares, kind="sample", **more):
        fields = {"now_ms": 1000, "max_idle": 2, "idle": {"a": 2}, "records": 3, "tickets": 0,
                  "unexpected_keys": [],
                  "hosts": {name: {"share": share, "share_until_ms": 2000}
                            for name, share in shares.items()}}
        return self.at(**{kind: "store"}, **dict(fields, **more))

    def event(self, name, **more):
        return self.at(event=name, **more)


def good():
    """Two clients, one waiter, one host: nothing wrong."""
    made = Forged()
    made.store({"a": 2, "b": 0})
    made.host([("s1", "idle"), ("s2", "idle")])
    made.acquire("l1", "s1")
    made.claim("l1", "s1")
    made.exec("l1", "s1", found="")
    made.host([("s1", "leased", "l1", True), ("s2", "idle")])
    made.acquire("l2", "s2")
    made.claim("l2", "s2")
    made.exec("l2", "s2", found="")
    made.op("wait", "l3", "WAIT")
    made.op("wait", "l4", "WAIT")
    made.op("wait", "l3", "OK", sandbox="s3", host="a", remaining_ms=60000)
    made.op("wait", "l4", "OK", sandbox="s4", host="a", remaining_ms=60000)
    made.op("release", "l1", sandbox="s1", host="a", at_owner=True)
    made.exec("l1", "s1", "NOT_FOUND")
    made.clock += 5
    made.host([("s2", "leased", "l2", True), ("s5", "idle"), ("s6", "idle")], "final")
    made.store({"a": 2}, "final")
    return made


class Checker(Case):
    def verdict(self, made, **options):
        records = sorted(copy.deepcopy(made.records), key=lambda record: record["t"])
        options.setdefault("demand", 0)
        return history.Checker(records, **options).check()

    def red(self, made, rule, **options):
        found = self.verdict(made, **options)
        self.assertIn(rule, [name for name, _sentence in found], found)
        self.assertEqual({name for name, _sentence in found}, {rule}, found)

    def test_good_history_is_green(self):
        self.assertEqual(self.verdict(good()), [])

    def test_two_leases_claim_one_sandbox(self):
        made = good()
        made.claim("l9", "s2")
        self.red(made, "one-holder")

    def test_renewal_by_another_lease_is_holding(self):
        made = good()
        made.op("renew", "l9", sandbox="s2", host="a", remaining_ms=1000)
        self.red(made, "one-holder")

    def test_directory_may_name_one_sandbox_twice(self):
        made = good()
        made.acquire("l9", "s2")
        made.op("claim", "l9", "NOT_FOUND", sandbox="s2", host="a")
        self.assertEqual(self.verdict(made), [])

    def test_traces_of_another_lease(self):
        made = good()
        made.exec("l2", "s2", found="l0")
        self.red(made, "traces")

    def test_same_lease_other_sandbox(self):
        made = good()
        made.acquire("l2", "s7")
        self.red(made, "same-answer")

    def test_same_lease_other_sandbox_after_it_was_rejected(self):
        made = good()
        made.acquire("l2", "s7", call={"reject": ["s2"]})
        self.assertEqual(self.verdict(made), [])

    def test_same_lease_other_sandbox_after_the_store_was_lost(self):
        made = good()
        made.event("store-lost")
        made.acquire("l2", "s7")
        self.assertEqual(self.verdict(made), [])

    def test_too_little_life_left(self):
        made = good()
        made.acquire("l9", "s9", remaining_ms=999, call={"min_ttl_ms": 1000})
        self.red(made, "remaining")

    def test_exactly_the_minimum_is_too_little(self):
        made = good()
        made.acquire("l9", "s9", remaining_ms=1000, call={"min_ttl_ms": 1000})
        self.red(made, "remaining")
        made = good()
        made.acquire("l9", "s9", remaining_ms=1001, call={"min_ttl_ms": 1000})
        self.assertEqual(self.verdict(made), [])

    def test_pool_minimum_counts_where_none_is_asked(self):
        made = good()
        made.acquire("l9", "s9", remaining_ms=500, call={"min_ttl_ms": -1})
        self.red(made, "remaining", min_remaining_ms=600)

    def test_exec_after_the_release(self):
        made = good()
        made.exec("l1", "s1")
        self.red(made, "ended-is-ended")

    def test_exec_after_the_end(self):
        made = good()
        made.acquire("l8", "s8")
        made.claim("l8", "s8", remaining_ms=200)
        made.clock += 1
        made.exec("l8", "s8")
        self.red(made, "not-after-the-end")

    def test_renewal_moves_the_end(self):
        made = good()
        made.acquire("l8", "s8")
        made.claim("l8", "s8", remaining_ms=200)
        made.op("renew", "l8", sandbox="s8", host="a", remaining_ms=5000)
        made.clock += 1
        made.exec("l8", "s8")
        self.assertEqual(self.verdict(made), [])

    def test_renewal_of_unknown_outcome_is_no_proof(self):
        made = good()
        made.acquire("l8", "s8")
        made.claim("l8", "s8", remaining_ms=200)
        made.op("renew", "l8", None, call={"sandbox": "s8"})
        made.clock += 1
        made.exec("l8", "s8")
        self.assertEqual(self.verdict(made), [])

    def test_ended_too_early(self):
        made = good()
        made.exec("l2", "s2", "NOT_FOUND")
        self.red(made, "not-before-the-end")

    def test_ended_early_with_its_daemon(self):
        made = good()
        made.event("kill-daemon", host="a")
        made.exec("l2", "s2", "NOT_FOUND")
        self.assertEqual(self.verdict(made), [])

    def test_another_daemons_end_is_no_excuse(self):
        made = good()
        made.event("kill-daemon", host="b")
        made.exec("l2", "s2", "NOT_FOUND")
        self.red(made, "not-before-the-end")

    def overtaken(self):
        made = good()
        made.op("wait", "w1", "WAIT")
        made.op("wait", "w2", "WAIT")
        made.op("wait", "w2", "OK", sandbox="s11", host="a", remaining_ms=60000)
        made.op("wait", "w1", "WAIT")
        return made

    def test_waiter_overtaken(self):
        self.red(self.overtaken(), "waiters-in-order")

    def test_waiter_overtaken_after_the_store_was_lost(self):
        made = self.overtaken()
        made.records.append({"event": "store-lost", "t": made.clock - 0.25})
        self.assertEqual(self.verdict(made), [])

    def test_poll_that_nobody_heard_keeps_no_place(self):
        made = good()
        made.op("wait", "w1", "WAIT")
        made.op("wait", "w2", "WAIT")
        for _ in range(2):
            made.clock += history.LIVENESS_S / 2 + 0.3
            made.op("wait", "w1", "UNREACHABLE")
        made.op("wait", "w2", "OK", sandbox="s11", host="a", remaining_ms=60000)
        made.op("wait", "w1", "WAIT")
        self.assertEqual(self.verdict(made), [])

    def test_waiter_that_fell_silent_may_be_overtaken(self):
        made = good()
        made.op("wait", "w1", "WAIT")
        made.op("wait", "w2", "WAIT")
        made.clock += history.LIVENESS_S + 1
        made.op("wait", "w2", "OK", sandbox="s11", host="a", remaining_ms=60000)
        made.op("wait", "w1", "WAIT")
        self.assertEqual(self.verdict(made), [])

    def test_untyped_error(self):
        made = good()
        made.op("acquire", "l9", "ERR user_script:12: attempt to index a nil value")
        self.red(made, "typed")

    def test_call_that_hangs(self):
        made = good()
        made.op("acquire", "l9", "EMPTY", took=5.0 + history.HANG_SLACK_S + 0.1)
        self.red(made, "no-hang")

    def test_call_without_an_answer(self):
        made = good()
        made.op("claim", "l9", "TIMED_OUT", took=5.0, call={"via": "a"})
        self.red(made, "no-hang")

    def test_call_to_a_host_that_was_cut_off(self):
        made = good()
        made.event("cut-host", host="a")
        made.op("claim", "l9", "TIMED_OUT", took=5.0, call={"via": "a"})
        self.assertEqual(self.verdict(made), [])

    def test_dead_redis_is_no_excuse_for_a_daemon(self):
        made = good()
        made.event("kill-redis")
        made.op("acquire", "l9", "TIMED_OUT", took=5.0, call={"via": "a"})
        self.red(made, "no-hang")

    def slow(self, fault, host, **call):
        made = good()
        made.event(fault, **({"host": host} if host else {}))
        made.op("claim", "l9", "TIMED_OUT", took=5.0, call=call)
        return made

    def test_faults_where_the_client_is_excuse_its_slow_calls(self):
        for fault in history.SLOW_CLIENT:
            for via in ("redis", "a"):
                self.assertEqual(self.verdict(self.slow(fault, "b", via=via, at="b")), [])
                self.red(self.slow(fault, "b", via=via, at="c"), "no-hang")

    def test_dead_redis_excuses_its_own_slow_answers(self):
        self.assertEqual(self.verdict(self.slow("kill-redis", None, via="redis", at="b")), [])

    def test_sandbox_went_back_to_idle(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s2", "idle")])
        made.host([("s2", "leased", "l2")])
        made.host([("s2", "idle")])
        self.red(made, "views")

    def test_lease_of_a_sandbox_changed(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s2", "leased", "l2")])
        made.host([("s2", "leased", "l5")])
        self.red(made, "views")

    def test_sandbox_came_back(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s9", "idle")])
        made.host([])
        made.host([("s9", "idle")])
        self.red(made, "views")

    def test_one_id_on_two_hosts(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s9", "leased", "l9", True)])
        made.host([("s9", "leased", "l9", True)], host="b")
        self.red(made, "views")

    def test_one_lease_used_two_sandboxes(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s2", "leased", "l2"), ("s9", "leased", "l2")])
        made.claim("l2", "s9")
        self.red(made, "views")

    def test_more_shares_than_the_pool(self):
        made = good()
        made.store({"a": 2, "b": 1})
        self.red(made, "shares")

    def test_waiters_count_as_demand(self):
        made = good()
        made.store({"a": 2, "b": 1})
        self.assertEqual(self.verdict(made, demand=1), [])

    def queued(self, seconds):
        """One draws a ticket and gives it back; so much later a share for it is still out."""
        made = good()
        made.op("acquire", "w1", "WAIT", call={"policy": "wait"})
        made.op("cancel", "w1")
        made.clock += seconds
        made.store({"a": 2, "b": 1})
        return made

    def test_tickets_of_the_history_are_demand(self):
        self.assertEqual(self.verdict(self.queued(0)), [])
        self.assertEqual(self.verdict(self.queued(history.SHARE_S - 0.3)), [])

    def test_tickets_of_long_ago_are_no_demand(self):
        self.red(self.queued(history.SHARE_S + 0.1), "shares")

    def test_ticket_of_a_client_that_ended_is_demand_until_it_is_stale(self):
        made = good()
        made.op("acquire", "w1", None, call={"policy": "wait"})
        made.clock += history.LIVENESS_S + history.SHARE_S - 0.3
        made.store({"a": 2, "b": 1})
        self.assertEqual(self.verdict(made), [])
        made.clock += 0.5
        made.store({"a": 2, "b": 1})
        self.red(made, "shares")

    def test_expired_share_counts_no_more(self):
        made = good()
        store = made.store({"a": 2, "b": 1})
        store["hosts"]["b"]["share_until_ms"] = store["now_ms"]
        self.assertEqual(self.verdict(made), [])

    def test_host_beyond_its_share(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s7", "idle"), ("s8", "idle"), ("s9", "creating")])
        self.red(made, "shares")

    def shrunk(self, fault):
        """A share goes from 2 to 0; three seconds and a bit later two are still there."""
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.store({"a": 2})
        if fault:
            made.event(fault, host="a")
        made.store({"a": 0})
        made.clock += 1
        made.store({"a": 0})
        made.clock += 2.5
        made.host([("s8", "idle"), ("s9", "creating")])
        return made

    def test_host_that_kept_a_share_that_shrank(self):
        self.red(self.shrunk(None), "shares")

    def test_host_that_could_not_hear_of_it(self):
        self.assertEqual(self.verdict(self.shrunk("cut-host")), [])

    def told(self, **more):
        """It says that it was given 3, Redis was never seen to give more than 2."""
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        if more:
            made.op("acquire", "w1", "WAIT", call=more)
        made.host([("s7", "idle"), ("s8", "idle"), ("s9", "creating")])["share"] = 3
        return made

    def test_share_that_came_and_went_with_a_ticket(self):
        self.assertEqual(self.verdict(self.told(policy="wait")), [])

    def test_share_that_nobody_waited_for(self):
        self.red(self.told(), "shares")
        self.red(self.told(policy="fail_fast"), "shares")

    def test_host_at_its_share(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s8", "idle"), ("s9", "creating")])
        self.assertEqual(self.verdict(made), [])

    def unclaimed(self, seconds):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.host([("s9", "leased", "l9", False)])
        made.clock += seconds
        made.host([("s9", "leased", "l9", False)])
        return made

    def test_unclaimed_lives_on(self):
        options = {"claim_timeout_s": 2.0, "tick_s": 1.0, "kill_s": 1.0}
        self.red(self.unclaimed(4.5), "unclaimed", **options)
        self.assertEqual(self.verdict(self.unclaimed(3.5), **options), [])

    def final(self, change):
        made = good()
        for record in made.records:
            if "final" in record:
                change(record)
        return made

    def test_wrong_number_of_idle_at_the_end(self):
        def change(record):
            if record["final"] == "store":
                record["max_idle"] = 3
        self.red(self.final(change), "settled")

    def test_counts_and_list_differ(self):
        def change(record):
            if record["final"] == "host":
                record["pool"]["killing"] = 1
        self.red(self.final(change), "settled")

    def test_redis_and_host_differ(self):
        def change(record):
            if record["final"] == "store":
                record["idle"] = {"a": 1}
        self.red(self.final(change), "settled")

    def test_process_that_nobody_lists(self):
        def change(record):
            if record["final"] == "host":
                record["inits"] = 4
        self.red(self.final(change), "leak")

    def test_leased_to_nobody(self):
        def change(record):
            if record["final"] == "host":
                record["sandboxes"][0].update(id="s77", lease="l77")
        self.red(self.final(change), "leak")

    def test_released_but_leased(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.op("release", "l2", sandbox="s2", host="a", at_owner=True)
        made.clock += 10
        made.host([("s2", "leased", "l2", True), ("s5", "idle"), ("s6", "idle")], "final")
        made.store({"a": 2}, "final")
        self.red(made, "leak")

    def test_expired_but_leased(self):
        made = good()
        made.records = [record for record in made.records if "final" not in record]
        made.op("renew", "l2", sandbox="s2", host="a", remaining_ms=1000)
        made.clock += 10
        made.host([("s2", "leased", "l2", True), ("s5", "idle"), ("s6", "idle")], "final")
        made.store({"a": 2}, "final")
        self.red(made, "leak")

    def test_dead_record(self):
        def change(record):
            if record["final"] == "store":
                record["records"] = 4
        self.red(self.final(change), "dead-keys")

    def test_dead_ticket(self):
        def change(record):
            if record["final"] == "store":
                record["tickets"] = 1
        self.red(self.final(change), "dead-keys")

    def test_dead_key(self):
        def change(record):
            if record["final"] == "store":
                record["unexpected_keys"] = ["sandpool:{default}:idle:z"]
        self.red(self.final(change), "dead-keys")

    def test_line_cut_off_by_a_kill(self):
        path = f"/tmp/sandpool-history-{os.getpid()}"
        self.addCleanup(os.unlink, path)
        writer = history.Writer(path)
        writer.write(event="one")
        os.write(writer.fd, b'{"event": "tw')
        writer.close()
        self.assertEqual([record["event"] for record in history.read([path])], ["one"])

    def test_only_what_is_new_is_read_again(self):
        path = f"/tmp/sandpool-history-{os.getpid()}"
        self.addCleanup(os.unlink, path)
        writer = history.Writer(path)
        writer.write(event="one")
        everything, new = history.Reader([path]), history.Reader([path], new=True)
        os.write(writer.fd, b'{"event": ')
        self.assertEqual([len(reader.more()) for reader in (everything, new)], [1, 0])
        os.write(writer.fd, b'"two"}\n')
        writer.close()
        self.assertEqual([reader.more() for reader in (everything, new)], [[{"event": "two"}]] * 2)


class Reading(Case):
    def test_line_that_is_being_written_is_read_when_it_is_whole(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b'{"t": 1}\n{"t": 2, ')
            file.flush()
            reader, new = history.Reader([file.name]), history.Reader([file.name], new=True)
            self.assertEqual((reader.more(), new.more()), ([{"t": 1}], []))
            file.write(b'"n": 1}\n')
            file.flush()
            whole = [{"t": 2, "n": 1}]
            self.assertEqual((reader.more(), new.more()), (whole, whole))
            self.assertEqual((reader.more(), new.more()), ([], []))


if __name__ == "__main__":
    main()
