"""What clients and observers of a cluster saw, and the rules that it must obey.

A history is JSON lines from several writers; every one carries `t`, CLOCK_BOOTTIME in seconds.

    call     client n t op lease …            before a client asks something
    return   client n t status …              after; missing if the client died or the answer was lost
    event    event t host …                   what the test did: kill-daemon, store-lost, healed, …
    sample   sample="host" t host pool {idle …} sandboxes [{id state lease claimed}] share
             sample="store" t now_ms max_idle hosts {name: {share share_until_ms}}
    final    final="host"                     the same after healing and two ticks, and inits
             final="store" max_idle idle {host: n} records tickets unexpected_keys

`status` is "OK" or the answer's own word ("EMPTY", "NOT_FOUND", …); "UNKNOWN" where the
connection broke after the question was sent, "TIMED_OUT" where nothing came, "UNREACHABLE" where it
was not sent. `via` is "redis" or the host that was asked, `at` the host that the client is on.

check() returns a list of violations: (rule, sentence). Rules allow for what the design gives away: a
directory that was lost (`store-lost`) may forget which sandbox a lease had and who stood first; a
daemon that was killed takes its sandboxes with it. Nothing is ever allowed to have two holders.
"""

import bisect
import collections
import json
import os
import time

# Words that answers may carry; anything else is an untyped error.
TYPED = {
    # What the functions answer.
    "OK", "EMPTY", "WAIT", "TIMEOUT", "SATURATED", "DESTROYED", "NOT_RUNNING", "LEASE_ENDED",
    "LEASE_MISMATCH", "NOT_FOUND", "STALE",
    # What a broken Redis answers in their place, and what a client makes of a broken connection.
    "LOADING", "READONLY", "MISCONF", "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "BUSY", "MASTERDOWN",
    "NO_FUNCTION", "UNKNOWN", "UNREACHABLE", "TIMED_OUT",
    # Codes of the API (pool/base/codes.h) that a well-formed request may meet.
    "CONFLICT", "TOO_MANY", "UNAVAILABLE", "POOL_EMPTY", "POOL_ACQUIRE_FAILED", "POOL_SATURATED",
    "POOL_NOT_RUNNING", "POOL_DESTROYED", "POOL_STATE_STORE_UNAVAILABLE", "CREATE_FAILED",
    "ACQUIRE_TIMEOUT", "SANDBOX_DEAD",
}
HOLDING = {"claim", "exec", "renew"}  # an OK of these at the owner's means: is the holder
LOST = {None, "UNKNOWN", "TIMED_OUT"}  # may have had its effect
GONE = {"NOT_FOUND", "LEASE_ENDED", "SANDBOX_DEAD"}
SLACK_S = 0.05       # what lies between a clock reading and the act it stands for
HANG_SLACK_S = 2.0   # two shared cores
EXCUSE_S = 8.0       # how long ago a fault may have begun that still explains a slow answer
LIVENESS_S = 5.0     # a ticket whose client did not ask for so long may be dropped
SHARE_S = 6.0        # how long a share lives that nobody renews, and a tick
# Faults that explain a slow answer: of Redis, of the host that was asked, of the client's own place.
SLOW_REDIS = {"pause-redis", "cut-redis", "kill-redis", "sleep"}
SLOW_HOST = {"pause-daemon", "pause-launcher", "cut-host", "kill-daemon", "kill-launcher"}
SLOW_CLIENT = {"pause-client", "cut-client", "cut-host"}
# Faults after which a host may not have heard of its new share yet.
DEAF = {"store-lost", "cut-host", "cut-redis", "pause-redis", "kill-redis", "sleep", "pause-daemon"}
ORDER = {"creating": 0, "idle": 1, "leased": 2, "killing": 3}


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Writer:
    """Appends whole lines; survives kill -9 of its process up to the last line."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, **fields):
        fields.setdefault("t", now())
        os.write(self.fd, (json.dumps(fields) + "\n").encode())

    def close(self):
        os.close(self.fd)


def whole_lines(path):
    """How many bytes of the file they are: while a line is written, its beginning may be there."""
    with open(path, "rb") as file:
        return file.read().rfind(b"\n") + 1


class Reader:
    """What is added to these files, each time it is asked. A line that was cut off by kill -9 is
    dropped. `new`: only what is added from now on."""

    def __init__(self, paths, new=False):
        self.files = {path: whole_lines(path) if new else 0 for path in paths}

    def more(self):
        records = []
        for path, position in self.files.items():
            with open(path, "rb") as file:
                file.seek(position)
                for line in file:
                    if line.endswith(b"\n"):
                        records.append(json.loads(line))
                        self.files[path] += len(line)
        return records


def read(paths):
    """All records of these files by time."""
    return sorted(Reader(paths).more(), key=lambda record: record["t"])


class Op:
    """One call and its return."""

    def __init__(self, call):
        self.call = call
        self.answer = None
        self.client, self.op, self.lease = call["client"], call["op"], call.get("lease")
        self.begin, self.end = call["t"], None

    def get(self, name, default=None):
        if self.answer and name in self.answer:
            return self.answer[name]
        return self.call.get(name, default)

    sandbox = property(lambda self: self.get("sandbox"))
    status = property(lambda self: self.answer["status"] if self.answer else None)
    ok = property(lambda self: self.status == "OK")

    def __repr__(self):
        end = f"{self.end:.3f}" if self.end else "never"
        return (f"{self.client} {self.op} lease {str(self.lease)[:8]} sandbox {self.sandbox} "
                f"{self.begin:.3f}–{end} {self.status}")


class Checker:
    """`demand`: how many wait beside those that the history shows; each of them lets the cluster
    hold one more."""

    def __init__(self, records, *, min_remaining_ms=0, claim_timeout_s=None, tick_s=1.0,
                 kill_s=2.0, demand=0):
        self.records = records
        self.min_remaining_ms = min_remaining_ms
        self.claim_timeout_s = claim_timeout_s
        self.tick_s = tick_s
        self.kill_s = kill_s
        self.demand = demand
        self.violations = []
        self.ops = []
        self.events = [record for record in records if "event" in record]
        self.samples = [record for record in records if "sample" in record]
        self.finals = [record for record in records if "final" in record]
        self.dispensed_twice = 0
        open_ops = {}
        for record in records:
            key = (record.get("client"), record.get("n"))
            if record.get("phase") == "call":
                open_ops[key] = Op(record)
                self.ops.append(open_ops[key])
            elif record.get("phase") == "return" and key in open_ops:
                op = open_ops.pop(key)
                op.answer, op.end = record, record["t"]
        self.by_lease = collections.defaultdict(list)
        self.by_sandbox = collections.defaultdict(list)
        for op in self.ops:
            if op.lease:
                self.by_lease[op.lease].append(op)
            if op.sandbox:
                self.by_sandbox[op.sandbox].append(op)

    def bad(self, rule, sentence):
        self.violations.append((rule, sentence))

    def happened(self, names, begin, end, host=None):
        """Did the test do one of these within [begin, end]?"""
        return any(event["event"] in names and begin <= event["t"] <= end and
                   (host is None or event.get("host") in (None, host))
                   for event in self.events)

    def check(self):
        for rule in (self.one_holder, self.traces, self.same_answer, self.remaining,
                     self.ended_is_ended, self.not_after_the_end, self.not_before_the_end,
                     self.waiters_in_order, self.typed_and_in_time, self.views_move_forward,
                     self.shares, self.unclaimed_ends, self.settled):
            rule()
        return self.violations

    # -- clients --

    def one_holder(self):
        """A holder is whose claim, exec or renewal the owner answered with success."""
        for sandbox, ops in self.by_sandbox.items():
            holders = {op.lease for op in ops if op.op in HOLDING and op.ok}
            if len(holders) > 1:
                self.bad("one-holder", f"sandbox {sandbox} was held by {sorted(holders)}")
            answered = {op.lease for op in ops if op.op in ("acquire", "wait") and op.ok}
            self.dispensed_twice += len(answered) > 1

    def traces(self):
        """Each exec leaves its lease in a file and reads who was there before."""
        for op in self.ops:
            found = op.get("found")
            if op.op == "exec" and op.ok and found and found != op.lease:
                self.bad("traces", f"{op} found the traces of lease {found}")

    def same_answer(self):
        """One lease, one sandbox, unless the client said that it is no good."""
        for lease, ops in self.by_lease.items():
            before = None
            for op in ops:
                if op.op not in ("acquire", "wait") or not op.ok:
                    continue
                if (before and op.sandbox != before.sandbox and op.begin >= before.end and
                        before.sandbox not in op.call.get("reject", ()) and
                        not self.happened({"store-lost"}, before.begin - 1, op.end)):
                    self.bad("same-answer", f"lease {lease}: {before} then {op}")
                before = op

    def remaining(self):
        for op in self.ops:
            if op.op not in ("acquire", "wait") or not op.ok or op.get("again"):
                continue
            least = op.call.get("min_ttl_ms", self.min_remaining_ms)
            least = self.min_remaining_ms if least < 0 else least
            if not op.call.get("ttl_ms") and op.get("remaining_ms") <= least:
                self.bad("remaining", f"{op}: {op.get('remaining_ms')} ms left, {least} asked")

    def ended_is_ended(self):
        """After a release that the owner confirmed nobody gets in again."""
        for sandbox, ops in self.by_sandbox.items():
            released = [op for op in ops if op.op == "release" and op.ok and op.get("at_owner")]
            if not released:
                continue
            first = min(op.end for op in released)
            for op in ops:
                if op.op in HOLDING and op.ok and op.begin > first:
                    self.bad("ended-is-ended", f"{op} after the release at {first:.3f}")

    def _ends(self, ops):
        """(time, earliest end, latest end) after each op that says how long it may live."""
        ends = []
        for op in ops:
            if op.op == "renew" and not op.ok:
                if op.status in LOST:
                    ends.append((op.begin, None, None))  # it may or may not have moved it
            elif op.op == "claim" and op.status in LOST:
                ends.append((op.begin, None, None))
            elif op.op in ("claim", "renew") and op.ok and op.get("remaining_ms") is not None:
                left = op.get("remaining_ms") / 1000
                ends.append((op.end, op.begin + left, op.end + left))
            elif op.op == "renew-store":
                ends.append((op.begin, None, None))
        return ends

    def not_after_the_end(self):
        """TTL holds, with Redis or without."""
        for ops in self.by_lease.values():
            for op in ops:
                if op.op not in HOLDING or not op.ok:
                    continue
                known = [end for end in self._ends(ops) if end[0] <= op.begin]
                if known and all(end[2] is not None for end in known):
                    last = known[-1][2]
                    if op.begin > last + SLACK_S:
                        self.bad("not-after-the-end", f"{op}, but its end was {last:.3f}")

    def not_before_the_end(self):
        """No fault of Redis or of the network ends what somebody holds."""
        killers = {"kill-daemon", "kill-launcher", "fenced"}
        for ops in self.by_lease.values():
            for op in ops:
                if op.op not in HOLDING or op.status not in GONE:
                    continue
                before = [other for other in ops
                          if other.ok and other.op in ("claim", "renew") and
                          other.sandbox == op.sandbox and other.end <= op.begin]
                if not before:
                    continue
                if any(other.op in ("release", "release-store") and other.begin <= op.end and
                       other.sandbox == op.sandbox for other in ops):
                    continue
                earliest = max(other.begin + other.get("remaining_ms", 0) / 1000
                               for other in before)
                if (op.end < earliest - SLACK_S and
                        not self.happened(killers, before[-1].begin, op.end, op.get("host"))):
                    self.bad("not-before-the-end",
                             f"{op} ({op.get('message')}), but it had until {earliest:.3f}")

    def waiters_in_order(self):
        """Whoever stood before another one is not still told WAIT after the other was served."""
        tickets = []
        for lease, ops in self.by_lease.items():
            # What Redis did not hear keeps no ticket alive.
            polls = [op for op in ops if op.op in ("acquire", "wait") and op.end is not None and
                     op.status not in LOST and op.status != "UNREACHABLE"]
            queued = [op for op in polls if op.status == "WAIT"]
            if not queued or any(op.call.get("reject") or op.call.get("exclude") for op in polls):
                continue
            first = queued[0]
            gaps = [later.begin - earlier.end for earlier, later in zip(polls, polls[1:])]
            served = next((op.end for op in polls if op.ok), None)
            ended = next((op.begin for op in ops if op.op == "cancel" or
                          op.status in ("TIMEOUT", "LEASE_ENDED")), None)
            tickets.append({"lease": lease, "in": first.end, "asked": first.begin,
                            "still": queued[-1].begin, "served": served, "ended": ended,
                            "alive": not gaps or max(gaps) < LIVENESS_S})
        tickets.sort(key=lambda ticket: ticket["in"])
        for number, first in enumerate(tickets):
            if not first["alive"]:
                continue
            for second in tickets[number + 1:]:
                if (second["asked"] > first["in"] and second["served"] is not None and
                        second["served"] < first["still"] and
                        not (first["ended"] and first["ended"] < second["served"]) and
                        not self.happened({"store-lost"}, first["asked"], second["served"])):
                    self.bad("waiters-in-order",
                             f"lease {second['lease'][:8]} was served at {second['served']:.3f}, "
                             f"lease {first['lease'][:8]} stood before it and waited at "
                             f"{first['still']:.3f}")

    def typed_and_in_time(self):
        for op in self.ops:
            if op.answer is None:
                continue
            if op.status not in TYPED:
                self.bad("typed", f"{op}: {op.answer}")
            bound = op.call.get("bound_s")
            late = op.end - op.begin - (bound or 0) - HANG_SLACK_S
            if bound and (late > 0 or op.status == "TIMED_OUT") and not self._excused(op):
                self.bad("no-hang", f"{op} took {op.end - op.begin:.2f} s, not {bound} s")

    def _excused(self, op):
        """Was anything wrong with whom it asked, or where it is? A daemon has no excuse in Redis."""
        begin, via = op.begin - EXCUSE_S, op.call.get("via")
        return (self.happened(SLOW_CLIENT, begin, op.end, op.call.get("at", "")) or
                (self.happened(SLOW_REDIS, begin, op.end) if via == "redis" else
                 self.happened(SLOW_HOST, begin, op.end, via)))

    # -- what daemons and Redis say --

    def views_move_forward(self):
        """Per sandbox: states never go back, a lease never changes, gone is gone, one host."""
        last, missing = {}, {}
        for record in self.records:
            kind = record.get("sample") or record.get("final")
            if kind != "host":
                continue
            listed = set()
            for box in record["sandboxes"]:
                name, state, lease = box["id"], box["state"], box.get("lease") or ""
                if name in listed:
                    self.bad("views", f"{name} is listed twice by {record['host']}")
                listed.add(name)
                if name in missing:
                    self.bad("views", f"{name} is back as {state} at {record['t']:.3f}")
                if name in last:
                    host, old_state, old_lease = last[name]
                    if host != record["host"]:
                        self.bad("views", f"{name} is on {host} and on {record['host']}")
                    if ORDER[state] < ORDER[old_state]:
                        self.bad("views", f"{name} went from {old_state} back to {state}")
                    if old_lease and lease and lease != old_lease:
                        self.bad("views", f"{name} went from lease {old_lease} to {lease}")
                last[name] = (record["host"], state, lease or last.get(name, ("", "", ""))[2])
            for name, (host, _state, _lease) in list(last.items()):
                if host == record["host"] and name not in listed:
                    missing[name] = record["t"]
                    del last[name]
        holders = collections.defaultdict(set)
        for record in self.records:
            if (record.get("sample") or record.get("final")) == "host":
                for box in record["sandboxes"]:
                    if box.get("lease"):
                        holders[box["lease"]].add(box["id"])
        for lease, boxes in holders.items():
            claimed = {op.sandbox for op in self.by_lease.get(lease, ())
                       if op.op in HOLDING and op.ok}
            if len(claimed) > 1:
                self.bad("views", f"lease {lease} used {sorted(claimed)} of {sorted(boxes)}")

    def _tickets(self):
        """[(time, number)]: how many tickets may be in line from then on."""
        steps = []
        for ops in self.by_lease.values():
            polls = [op for op in ops if op.op in ("acquire", "wait", "cancel")]
            drawn = next((op for op in polls if op.call.get("policy") == "wait"), None)
            if drawn is None:
                continue
            ended = next((op.end for op in polls if op.begin >= drawn.begin and
                          (op.ok or op.status in ("TIMEOUT", "LEASE_ENDED", "EMPTY"))), None)
            if ended is None:
                ended = max(op.end or op.begin for op in polls) + LIVENESS_S
            steps += [(drawn.begin, 1), (ended, -1)]
        count, tickets = 0, [(float("-inf"), 0)]
        for when, step in sorted(steps):
            count += step
            tickets.append((when, count))
        return tickets

    def _waited(self, tickets, when):
        """How many at most; a share that was given for a ticket outlives it."""
        first = bisect.bisect_right(tickets, (when - SHARE_S, float("inf"))) - 1
        last = bisect.bisect_right(tickets, (when, float("inf")))
        return self.demand + max(count for _when, count in tickets[first:last])

    def shares(self):
        """Σ unexpired shares ≤ max_idle + tickets; idle + creating of a host ≤ a share it had."""
        tickets = self._tickets()
        given = collections.defaultdict(list)
        for record in self.samples:
            if record["sample"] != "store":
                continue
            total = 0
            for name, host in record["hosts"].items():
                given[name].append((record["t"], host["share"]))
                if host["share_until_ms"] > record["now_ms"]:
                    total += host["share"]
            waited = self._waited(tickets, record["t"])
            if total > record["max_idle"] + waited:
                self.bad("shares", f"at {record['t']:.3f} shares of {total} are out, max_idle "
                         f"is {record['max_idle']} and at most {waited} waited")
        for record in self.samples:
            if record["sample"] != "host" or not given[record["host"]]:
                continue
            shares = given[record["host"]]
            # The last three ticks, what held before them, and the next sample: a share may have
            # been given a moment ago. Who cannot hear keeps to the last share it heard of.
            since = record["t"] - 3 * self.tick_s
            if self.happened(DEAF, record["t"] - EXCUSE_S, record["t"], record["host"]):
                since -= EXCUSE_S
            start = max(bisect.bisect_left(shares, (since,)) - 1, 0)
            end = bisect.bisect_right(shares, (record["t"], float("inf"))) + 1
            limit = max(share for _when, share in shares[start:end])
            # Tickets come and go between two looks at Redis, and shares with them: then the host
            # knows what it was given.
            said = record.get("share", 0)
            if limit < said <= limit + self._waited(tickets, record["t"]):
                limit = said
            holds = record["pool"]["idle"] + record["pool"]["creating"]
            if holds > limit:
                self.bad("shares", f"at {record['t']:.3f} '{record['host']}' holds {holds} idle "
                         f"and creating, its share was at most {limit}, it says "
                         f"{record.get('share')}")

    def unclaimed_ends(self):
        """A sandbox that was handed out and never used costs claim_timeout and a tick."""
        if self.claim_timeout_s is None:
            return
        bound = self.claim_timeout_s + self.tick_s + self.kill_s
        since = {}
        for record in self.records:
            if (record.get("sample") or record.get("final")) != "host":
                continue
            for box in record["sandboxes"]:
                name = box["id"]
                if box["state"] == "leased" and not box.get("claimed"):
                    since.setdefault(name, record["t"])
                    if (record["t"] - since[name] > bound and not self.happened(
                            {"pause-daemon", "pause-launcher"}, since[name], record["t"],
                            record["host"])):
                        self.bad("unclaimed", f"{name} is leased, not claimed, since "
                                 f"{record['t'] - since[name]:.1f} s")
                else:
                    since.pop(name, None)

    def settled(self):
        """After healing and two ticks: counts agree everywhere, nothing leaks."""
        hosts = {final["host"]: final for final in self.finals if final["final"] == "host"}
        stores = [final for final in self.finals if final["final"] == "store"]
        if not hosts or not stores:
            return
        store = stores[-1]
        idle = sum(final["pool"]["idle"] for final in hosts.values())
        if idle != store["max_idle"]:
            self.bad("settled", f"{idle} idle on the hosts, max_idle is {store['max_idle']}")
        for name, final in hosts.items():
            states = collections.Counter(box["state"] for box in final["sandboxes"])
            for state in ORDER:
                if states[state] != final["pool"][state]:
                    self.bad("settled", f"'{name}' lists {states[state]} {state} and counts "
                             f"{final['pool'][state]}")
            if final["inits"] != len(final["sandboxes"]):
                self.bad("leak", f"'{name}' has {final['inits']} sandboxes alive and lists "
                         f"{len(final['sandboxes'])}")
            listed = store["idle"].get(name, 0)
            if listed != final["pool"]["idle"]:
                self.bad("settled", f"Redis lists {listed} idle of '{name}', it has "
                         f"{final['pool']['idle']}")
            for box in final["sandboxes"]:
                self._accounted(name, box, final["t"])
        live = sum(len(final["sandboxes"]) for final in hosts.values())
        if store["records"] != live:
            self.bad("dead-keys", f"Redis has {store['records']} records for {live} sandboxes")
        if store["tickets"]:
            self.bad("dead-keys", f"Redis has {store['tickets']} waiters, nobody waits")
        for key in store["unexpected_keys"]:
            self.bad("dead-keys", f"Redis has a key '{key}' that nothing needs")

    def _accounted(self, host, box, when):
        """A leased one must be somebody's: claimed and not ended, or within claim_timeout."""
        if box["state"] != "leased" or not box.get("claimed"):
            return
        ops = self.by_sandbox.get(box["id"], [])
        released = [op for op in ops if op.op == "release" and op.ok and op.get("at_owner")]
        if released and when > released[0].end + self.tick_s + self.kill_s:
            self.bad("leak", f"{box['id']} on '{host}' was released at {released[0].end:.3f} and "
                     f"is leased at {when:.3f}")
        ends = self._ends(ops)
        if ends and all(end[2] is not None for end in ends):
            last = ends[-1][2]
            if when > last + self.tick_s + self.kill_s:
                self.bad("leak", f"{box['id']} on '{host}' had its end at {last:.3f} and is "
                         f"leased at {when:.3f}")
        if not any(op.op in HOLDING and (op.ok or op.status in LOST) for op in ops):
            self.bad("leak", f"{box['id']} on '{host}' is leased to nobody who asked for it")
