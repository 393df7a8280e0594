"""A small world around the function library: supervisors that follow redis/README.md, clients that
come, wait, claim and vanish, and everything that can happen in between.

The supervisors' tables are the truth; the library is the thing under test, on a real server with a
clock that the world moves. `World` draws everything from one seed. `Broken` is raised with what was
wrong and, as its last lines, what was called.
"""

import collections
import os
import random

import redis_case as c
from redis_case import BASE, CLOCK, META, lease_id, sandbox_id
from redis_client import RedisError

TICK_MS = 1000
MAX_LEASE_MS = 120_000
CLAIM_TIMEOUT_MS = 8000
LOG_LINES = int(os.environ.get("SP_LOG", "40"))
KINDS = ("calm", "messages", "crashes", "store")
STATUSES = {"OK", "FENCED", "RESYNC", "HOST_ID_TAKEN", "EMPTY", "WAIT", "SATURATED", "DESTROYED",
            "NOT_RUNNING", "LEASE_ENDED", "LEASE_MISMATCH", "TIMEOUT", "NOT_FOUND", "STALE"}
SUPERVISOR = {"register", "heartbeat", "publish", "update", "resync", "unregister"}


class Broken(AssertionError):
    pass


class Box:
    """A sandbox as its supervisor has it."""

    def __init__(self, box_id, host, expires):
        self.id, self.host, self.expires = box_id, host, expires
        self.state = "creating"
        self.lease = ""
        self.ends = 0
        self.claimed = False
        self.bound_at = 0
        self.why = ""


class Host:
    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.capacity = world.dice.randint(1, 3)
        self.serial = 0
        self.table = {}
        self.start()

    # -- life --

    def start(self, keep=False):
        self.serial += 1
        self.incarnation = f"{self.name}-{self.serial}"
        self.alive = True
        self.seq = 0
        self.pending = None
        self.registered = self.listed = False
        self.share = 0
        self.rotation = 0
        self.gone = {}
        self.dirty = []
        self.ready = []
        if not keep:
            for box in self.table.values():
                self.world.ended[box.id] = box
            self.table = {}
        self.table = {box.id: box for box in self.table.values() if box.state in ("idle", "leased")}

    def crash(self):
        """It may only have been stopped, and go on when another has taken its place."""
        self.alive = False
        self.world.zombies.append((self.name, self.incarnation, self.seq + 1))

    def say(self, box):
        if box.id not in self.dirty:
            self.dirty.append(box.id)

    def kill(self, box, why):
        if box.state not in ("killing", "gone"):
            box.state, box.why = "killing", why
            self.say(box)

    def bind(self, box, lease, claimed=False):
        other = self.world.bound.setdefault(box.id, lease)
        self.world.check(other == lease, f"{box.id} bound to {other} and {lease}")
        box.state, box.lease, box.claimed = "leased", lease, claimed
        box.bound_at, box.ends = self.world.now, box.expires
        self.say(box)

    # -- what clients do here --

    def claim(self, box_id, lease):
        box = self.table.get(box_id)
        if not self.alive or box is None:
            return 404
        if box.state == "killing":
            return 410
        if box.state == "idle":
            self.bind(box, lease)
        if box.lease != lease:
            return 409
        box.claimed = True
        self.say(box)
        return 200

    def take_local(self, lease):
        idle = [box for box in self.table.values()
                if box.state == "idle" and box.expires > self.world.now + c.MIN_TTL_MS]
        if self.alive and idle:
            self.bind(idle[-1], lease)
            return idle[-1]
        return None

    # -- a tick --

    def tick(self):
        if not self.alive:
            return
        self.pass_time()
        for _ in range(3):  # RESYNC is answered at once
            if self.converse():
                return

    def pass_time(self):
        now = self.world.now
        for box in list(self.table.values()):
            if box.state == "killing":
                self.table.pop(box.id)
                self.world.ended[box.id] = box
                self.gone[box.id] = box.why
                box.state = "gone"
            elif box.state == "idle" and now >= box.expires:
                self.kill(box, "expired")
            elif box.state == "leased" and now >= box.ends:
                self.kill(box, "expired")
            elif box.state == "leased" and not box.claimed and \
                    now >= box.bound_at + CLAIM_TIMEOUT_MS:
                self.kill(box, "unclaimed")

    def converse(self):
        """False: begin again (RESYNC)."""
        if self.pending and not self.exchange(*self.pending):
            return self.pending is not None
        if not self.registered and not self.register():
            return True
        if not self.listed and not self.tell_all():
            return self.pending is not None
        counts = collections.Counter(box.state for box in self.table.values())
        steps = [lambda: self.call("heartbeat", counts["idle"], counts["creating"], counts["leased"], 0,
                                   0, *self.world.offer()),
                 self.update, self.publish, self.update, self.rotate]
        for step in steps:
            if not step():
                return self.pending is not None or not self.alive
        return True

    def register(self):
        world = self.world
        self.seq = 0
        self.listed = False
        if not self.exchange("register", (self.name, self.incarnation, 0, lease_id(self.name), "boot",
                                          f"tcp://{self.name}:1", self.capacity, "v", *world.offer()[:2],
                                          c.MIN_TTL_MS, CLAIM_TIMEOUT_MS, *world.offer()[2:], 1, c.SPEC)):
            return False
        return self.registered

    def tell_all(self):
        """A listing that was cut off begins anew."""
        boxes = [box for box in self.table.values() if box.state != "creating"]
        self.dirty = []
        self.gone = {}
        parts = [boxes[at:at + 3] for at in range(0, len(boxes), 3)] or [[]]
        for at, part in enumerate(parts):
            words = []
            for box in part:
                words += [box.id, box.state, box.ends if box.state == "leased" else box.expires,
                          c.SPEC, box.lease, int(box.claimed)]
            if not self.call("resync", "begin" if at == 0 else "more", *words):
                return False
        self.listed = self.call("resync", "end")
        return self.listed

    def publish(self):
        dice = self.world.dice
        held = [box for box in self.table.values() if box.state in ("idle", "creating")]
        for box in held[self.share:]:
            self.kill(box, "excess")
        for _ in range(self.share - len(held)):
            box = self.world.make_box(self)
            self.table[box.id] = box
        new = [box for box in self.table.values()
               if box.state == "creating" and (self.world.quiet or dice.random() < 0.7)][:4]
        if not new:
            return True
        self.ready = new
        for box in new:  # until it is answered nobody but us may have it
            box.state = "publishing"
        words = []
        for box in new:
            words += [box.id, box.expires, c.SPEC]
        return self.call("publish", *words)

    def describe(self, box):
        ends = box.ends if box.state == "leased" else box.expires
        reason = box.why if box.state == "killing" else c.SPEC
        return [box.id, box.state, box.lease, ends, int(box.claimed), reason]

    def update(self):
        words = []
        for box_id in self.dirty[:20]:
            box = self.table.get(box_id)
            if box is not None and box.state in ("idle", "leased", "killing"):
                words += self.describe(box)
        for box_id, why in list(self.gone.items())[:20]:
            words += [box_id, "gone", "", 0, 0, why]
        self.told = self.dirty[:20], list(self.gone)[:20]
        self.dirty = self.dirty[20:]
        for box_id in self.told[1]:
            self.gone.pop(box_id)
        return self.call("update", *words) if words else True

    def rotate(self):
        """All of them where the daemon sends 256: the worlds are small."""
        words = []
        for box in self.table.values():
            if box.state in ("idle", "leased"):
                words += self.describe(box)
        return self.call("update", *words[:6 * 64]) if words else True

    def call(self, name, *args):
        self.seq += 1
        return self.exchange(name, (self.name, self.incarnation, self.seq, *args))

    def exchange(self, name, args):
        """False: the tick ends here, or (not pending) everything is to be told again."""
        reply = self.world.fcall(name, *args)
        if reply is None:
            self.pending = (name, args)
            return False
        self.pending = None
        if reply[0] in ("FENCED", "HOST_ID_TAKEN"):
            self.world.fenced += 1
            self.start(keep=self.world.dice.random() < 0.5)
            return False
        if reply[0] == "RESYNC":
            self.registered = self.listed = False
            self.forget_publishing()
            return False
        self.world.check(reply[0] == "OK", f"{name} of {self.name}: {reply}")
        getattr(self, "on_" + name, lambda reply: None)(reply)
        return True

    def forget_publishing(self):
        for box in self.table.values():
            if box.state == "publishing":
                box.state = "creating"

    def on_register(self, reply):
        self.registered = True

    def on_publish(self, reply):
        for at in range(1, len(reply), 4):
            box_id, verdict, lease, _ = reply[at:at + 4]
            box = self.table.get(box_id)
            if box is None or box.state != "publishing":
                continue
            if verdict == "idle":
                box.state = "idle"
            elif verdict == "granted":
                self.world.check(lease in self.world.asked, f"granted to {lease}, who never asked")
                self.bind(box, lease)
            else:
                self.kill(box, "excess")

    def on_heartbeat(self, reply):
        self.share = reply[2]
        self.world.seen(reply)
        for kind, box_id, lease, number, detail in c.items_of(reply):
            box = self.table.get(box_id)
            if box is None:
                self.gone[box_id] = "died"
                continue
            getattr(self, "do_" + kind)(box, lease, number, detail)
            self.say(box)

    def do_grant(self, box, lease, number, detail):
        self.world.check(lease in self.world.asked, f"grant for {lease}, who never asked")
        if box.state == "idle":
            self.bind(box, lease)

    def do_command(self, box, lease, number, reason):
        self.world.check(lease in self.world.given_up,
                         f"command to end {box.id} of {lease}, who never gave it up")
        if box.state == "idle" or box.lease == lease:
            self.kill(box, reason)

    def do_hint(self, box, lease, number, reason):
        if box.state != "idle":
            return
        short = box.expires <= self.world.now + c.MIN_TTL_MS
        if reason in ("expired", "near_expiry"):
            if short:
                self.kill(box, reason)
        elif self.world.dice.random() < 0.5:
            self.kill(box, reason)

    def do_renew(self, box, lease, number, detail):
        if box.state == "leased" and box.lease == lease:
            box.ends = max(box.ends, self.world.now + min(number, MAX_LEASE_MS))


class Client:
    def __init__(self, world):
        self.world = world
        world.clients_made += 1
        self.lease = lease_id(("client", world.seed, world.clients_made))
        world.names[self.lease] = f"client {world.clients_made}"
        self.policy = world.dice.choice(["fail_fast", "wait", "create", "retry_next"])
        self.ttl = world.dice.choice([0, 0, 20_000])
        self.prefer = world.dice.choice([""] + [host.name for host in world.hosts])
        self.deadline = world.now + 20_000
        self.reject = []
        self.state = "new"
        self.box = None

    def step(self):
        getattr(self, "step_" + self.state)()

    def ask(self):
        self.world.asked.add(self.lease)
        for box_id in self.reject:
            self.world.given_up.add(self.lease)
        return self.world.fcall("acquire", self.lease, self.policy, -1, self.ttl, self.prefer,
                                ",".join(self.reject), "")

    def step_new(self):
        dice = self.world.dice
        if dice.random() < 0.2 and not self.reject:
            host = dice.choice(self.world.hosts)
            box = host.take_local(self.lease)
            if box:
                self.claim(box.id, host.name)
                return
        self.answer(self.ask())

    def answer(self, reply):
        if reply is None:
            return
        if reply[0] == "OK":
            self.claim(reply[1], reply[2])
        elif reply[0] == "WAIT":
            self.state = "waiting"
        elif reply[0] == "NOT_FOUND":
            self.state = "new"
        else:
            self.state = "done"

    def claim(self, box_id, host_name):
        world = self.world
        host = world.by_name[host_name]
        status = 0 if world.dice.random() < world.unreachable else host.claim(box_id, self.lease)
        if status == 200:
            other = world.holders.setdefault(box_id, self.lease)
            world.check(other == self.lease, f"{box_id} held by {other} and {self.lease}")
            self.state, self.box, self.host = "holding", box_id, host
        elif len(self.reject) == 8:
            self.give_up("cancel")
        else:
            self.reject.append(box_id)
            self.state = "new"

    def step_waiting(self):
        dice = self.world.dice
        if dice.random() < 0.05:
            self.give_up("cancel")
        elif dice.random() < 0.05:
            self.state = "done"  # it vanished: nobody says goodbye
        else:
            self.answer(self.world.fcall("wait", self.lease, self.deadline))

    def step_holding(self):
        dice = self.world.dice
        roll = dice.random()
        if roll < 0.2:
            self.give_up("release")
        elif roll < 0.3:
            box = self.host.table.get(self.box)
            if box and self.host.alive and box.lease == self.lease:
                self.world.given_up.add(self.lease)
                self.host.kill(box, "released")
            self.state = "done"
        elif roll < 0.4:
            self.world.fcall("renew", self.lease, dice.choice([1000, 50_000, 500_000]))
        elif roll < 0.45:
            self.state = "done"

    def give_up(self, how):
        self.state = "giving_up"
        self.how = how
        self.step_giving_up()

    def step_giving_up(self):
        self.world.given_up.add(self.lease)
        if self.world.fcall(self.how, self.lease) is not None:
            self.state = "done"

    def step_done(self):
        pass


class World:
    def __init__(self, redis, seed, kind):
        self.redis, self.seed, self.kind = redis, seed, kind
        self.dice = random.Random(f"{kind} {seed}")
        self.now = c.T0
        self.log = collections.deque(maxlen=LOG_LINES)
        self.bound, self.holders, self.given = {}, {}, {}
        self.names = {}
        self.ended = {}
        self.boxes = {}
        self.asked, self.given_up, self.queued = set(), set(), set()
        self.delayed = []
        self.zombies = []
        self.order = []
        self.snapshot = None
        self.current = {}
        self.last_beat = {}
        self.fenced = self.clients_made = self.made = self.calls = 0
        self.max_idle, self.revision = self.dice.randint(1, 5), 0
        self.quiet = False
        self.intact = kind != "store"
        self.strict = seed // len(KINDS) % 3 == 0
        self.unreachable = 0.0 if kind == "calm" else 0.1
        redis.call("FLUSHALL")
        self.set_clock()
        self.by_name = {}
        self.hosts = [Host(self, name) for name in "abc"[:self.dice.randint(1, 3)]]
        self.by_name = {host.name: host for host in self.hosts}
        self.clients = []

    def check(self, good, what):
        if not good:
            lines = "\n".join("    " + line for line in self.log)
            for lease, name in self.names.items():
                what, lines = what.replace(lease, name), lines.replace(lease, name)
            raise Broken(f"seed {self.seed} ({self.kind}): {what}\n{lines}")

    def set_clock(self):
        self.redis.call("HSET", CLOCK, "s", self.now // 1000, "us", self.now % 1000 * 1000)

    def make_box(self, host):
        self.made += 1
        life = self.dice.choice([4000, 15_000, 60_000])
        box = Box(sandbox_id(self.seed * 1_000_000 + self.made), host, self.now + life)
        self.boxes[box.id] = box
        return box

    def offer(self):
        return self.max_idle, 0, "active", self.revision

    def seen(self, reply):
        if reply[8] > self.revision:
            self.max_idle, self.revision = reply[4], reply[8]

    # -- the network --

    def fcall(self, name, *args):
        """The reply; None: nobody knows whether it was done."""
        if not self.quiet and self.kind in ("messages", "store", "crashes"):
            roll = self.dice.random()
            if roll < 0.04:
                return None
            if roll < 0.08:
                self.execute(name, args)
                return None
            if roll < 0.12:
                self.delayed.append((name, args))
        return self.execute(name, args)

    def execute(self, name, args, late=False):
        self.calls += 1
        before = self.before(name, args, late)
        try:
            reply = self.redis.fcall(name, META, *args)
        except RedisError as error:
            self.log.append(f"{self.now - c.T0} {name} {args}")
            self.check(False, f"{name}: {error}")
        self.log.append(f"{self.now - c.T0}{' late' if late else ''} {name} "
                        f"{' '.join(map(str, args))} -> {' '.join(map(str, reply))}")
        self.check(reply[0] in STATUSES, f"{name}: unknown status {reply[0]}")
        self.observe(name, args, reply, late)
        self.after(name, args, reply, late, before)
        return reply

    # -- what must hold for every single call --

    def totals(self):
        reply = self.redis.fcall("stats", META)
        if reply[0] != "OK":
            return None
        pairs = reply[3:3 + 2 * reply[2]]
        return dict(zip(pairs[::2], pairs[1::2]))

    def tickets(self):
        queue = self.redis.call("ZRANGE", BASE + "waiters", 0, -1)
        live = {}
        for lease in queue:
            score = self.redis.call("ZSCORE", BASE + "waiters:alive", lease)
            live[lease] = score is not None and int(score) > self.now
        return queue, live

    def listed(self):
        found = [sorted((field, self.redis.call("HGET", BASE + "sb", field))
                        for field in self.redis.call("HKEYS", BASE + "sb"))]
        for host in self.hosts:
            found.append(self.redis.call("ZRANGE", BASE + "idle:" + host.name, 0, -1, "WITHSCORES"))
        return found

    def before(self, name, args, late):
        state = {}
        if self.strict and name == "heartbeat":
            state["totals"] = self.totals()
        if self.strict and self.intact and name in SUPERVISOR | {"acquire", "wait"}:
            state["tickets"] = self.tickets()
            self.order = [lease for lease in self.order if lease in state["tickets"][0]]
            state["order"] = list(self.order)
        if self.intact and name in SUPERVISOR and (late or args[1] != self.current.get(args[0])):
            state["listed"] = self.listed()
        return state

    def after(self, name, args, reply, late, before):
        totals = before.get("totals")
        if totals and reply[0] == "OK":
            now = self.totals()
            owed = now["max_idle"] + now["tickets"] + now["waiting"]
            self.check(now["shares"] <= max(owed, totals["shares"]),
                       f"shares grew from {totals['shares']} to {now['shares']}, owed {owed}")
        if "tickets" in before:
            queue, live = before["tickets"]
            self.check(before["order"] == [lease for lease in queue if lease in before["order"]],
                       "the queue is not in the order in which they came")
            still = set(self.redis.call("ZRANGE", BASE + "waiters", 0, -1))
            left_behind = None
            for lease in queue:
                if lease in still:
                    if live[lease]:
                        left_behind = left_behind or lease
                elif live[lease] and left_behind and self.served(lease) and \
                        not (name == "wait" and args[0] == lease):
                    self.check(False, f"{lease} was served before {left_behind}")
        if "listed" in before and name != "register" and reply[0] != "OK":
            self.check(self.listed() == before["listed"], f"{name} of another time changed something")

    def served(self, lease):
        return self.redis.fcall("renew", META, lease, 1)[0] == "OK"

    def observe(self, name, args, reply, late):
        if name in SUPERVISOR:
            self.observe_supervisor(name, args, reply)
        elif name in ("acquire", "wait"):
            if reply[0] == "OK":
                self.observe_grant(name, args[0], reply)
            elif reply[0] == "WAIT":
                if name == "acquire" and args[0] not in self.order:
                    self.order.append(args[0])
                self.queued.add(args[0])  # a grant may now be older than the answer

    def observe_supervisor(self, name, args, reply):
        host, incarnation = args[:2]
        if name == "register":
            if reply[0] == "OK":
                self.current[host] = incarnation
                self.last_beat[host] = self.now
        elif self.intact and incarnation != self.current.get(host):
            self.check(reply[0] in ("FENCED", "RESYNC"), f"{name} of old {incarnation}: {reply[0]}")
        if name == "heartbeat" and reply[0] == "OK":
            self.last_beat[host] = self.now

    def observe_grant(self, name, lease, reply):
        box_id, host = reply[1], reply[2]
        box = self.boxes.get(box_id)
        self.check(box is not None, f"{box_id} never existed")
        self.check(host == box.host.name, f"{box_id} is of {box.host.name}, not {host}")
        if lease in self.given.setdefault(box_id, []) or self.bound.get(box_id) == lease:
            return  # told again, or the supervisor's word
        self.given[box_id].append(lease)
        if self.intact:
            self.check(len(self.given[box_id]) == 1, f"{box_id} was given twice")
        if name == "acquire" and lease not in self.queued:
            self.check(box.expires > self.now + c.MIN_TTL_MS,
                       f"{box_id} was given with {box.expires - self.now} ms left")
            self.check(self.last_beat.get(host, 0) > self.now - c.DEADLINE_MS,
                       f"{box_id} was given out of {host}, which is dead")

    # -- what happens --

    def step(self):
        dice = self.dice
        self.now += dice.choice([1, 50, 200, 400])
        self.set_clock()
        for host in self.hosts:
            if host.alive and (self.quiet or dice.random() < 0.4):
                host.tick()
        if len(self.clients) < 8 and dice.random() < 0.6:
            self.clients.append(Client(self))
        for client in self.clients:
            if dice.random() < 0.7:
                client.step()
        self.clients = [client for client in self.clients if client.state != "done"]
        if dice.random() < 0.05:
            self.execute("reap", (dice.randint(1, 20),))
        if dice.random() < 0.03:
            self.execute("resize", (dice.randint(0, 6), -1, 0))
        while self.delayed and dice.random() < 0.3:
            name, args = self.delayed.pop(dice.randrange(len(self.delayed)))
            self.execute(name, args, late=True)
        if self.kind in ("crashes", "store"):
            self.crash_somebody()
        if self.kind == "store":
            self.hurt_the_store()

    def crash_somebody(self):
        dice = self.dice
        if self.zombies and dice.random() < 0.2:
            name, incarnation, seq = dice.choice(self.zombies)
            if self.current.get(name) != incarnation:
                self.execute("update", (name, incarnation, seq, self.made_up(), "gone", "", 0, 0, ""))
        for host in self.hosts:
            if host.alive and dice.random() < 0.02:
                host.crash()
            elif not host.alive and dice.random() < 0.2:
                host.start(keep=dice.random() < 0.5)
        if dice.random() < 0.01:
            self.now += dice.choice([6000, 20_000])
            self.set_clock()

    def made_up(self):
        """Some sandbox that there is, if there is one."""
        boxes = [box_id for host in self.hosts for box_id in host.table]
        return self.dice.choice(boxes) if boxes else sandbox_id(7)

    def hurt_the_store(self):
        dice = self.dice
        if dice.random() < 0.05:
            self.snapshot = self.dump()
        if self.snapshot and dice.random() < 0.04:
            self.log.append("-- failover: writes are lost")
            self.redis.call("FLUSHALL")
            self.redis.pipeline(("RESTORE", key, 0, value) for key, value in self.snapshot)
            self.set_clock()
        if dice.random() < 0.01:
            self.log.append("-- FLUSHALL")
            self.redis.call("FLUSHALL")
            self.set_clock()
        if dice.random() < 0.04:
            keys = [key for key in self.redis.call("KEYS", "*") if key != CLOCK]
            if keys:
                key = dice.choice(sorted(keys))
                self.log.append(f"-- damage of {key}")
                self.redis.call("DEL", key)
                if dice.random() < 0.5:
                    self.redis.call(*dice.choice([("SET", key, "x"), ("HSET", key, "a", "b"),
                                                  ("ZADD", key, 1, "a")]))

    def dump(self):
        keys = [key for key in self.redis.call("KEYS", "*") if key != CLOCK and ":grant:" not in key]
        values = self.redis.pipeline(("DUMP", key) for key in keys)
        return [(key, value) for key, value in zip(keys, values) if value is not None]

    # -- the end --

    def settle(self):
        """Faults end; what the directory says must be what the supervisors have after two ticks."""
        self.quiet = True
        self.delayed = []
        for host in self.hosts:
            if not host.alive:
                host.start()
        for _ in range(2):
            self.tick_all()
        self.compare()
        for client in self.clients:
            if client.state == "holding":
                self.check_holder(client)
        for _ in range(8):
            self.execute("reap", (1000,))
            self.tick_all()
        known = set(self.redis.call("HKEYS", BASE + "sb"))
        real = {box.id for host in self.hosts for box in host.table.values()
                if box.state != "creating"}
        self.check(known <= real, f"the directory has {sorted(known - real)} that nobody has")
        stats = self.totals()
        held = sum(1 for host in self.hosts for box in host.table.values()
                   if box.state in ("idle", "creating", "publishing"))
        self.check(held == self.max_idle, f"{held} idle or creating, {self.max_idle} wanted: {stats}")
        for host in self.hosts:
            self.check(self.redis.call("ZCARD", BASE + "todo:" + host.name) == 0,
                       f"{host.name} was asked for something that it did")

    def tick_all(self):
        self.now += TICK_MS
        self.set_clock()
        for host in self.hosts:
            host.tick()

    def compare(self):
        for host in self.hosts:
            self.check(host.registered and not host.pending, f"{host.name} is not through")
            entries = self.redis.call("ZRANGE", BASE + "idle:" + host.name, 0, -1, "WITHSCORES")
            there = dict(zip(entries[::2], map(int, entries[1::2])))
            own = {box.id: box.expires for box in host.table.values() if box.state == "idle"}
            short = {box_id for box_id, expires in {**there, **own}.items()
                     if expires <= self.now + c.MIN_TTL_MS}
            self.check({k: v for k, v in there.items() if k not in short} ==
                       {k: v for k, v in own.items() if k not in short},
                       f"{host.name} has {sorted(own)}, the directory {sorted(there)}")
            for box in host.table.values():
                if box.state == "leased":
                    self.check_lease(box)
    def check_lease(self, box):
        reply = self.redis.fcall("renew", META, box.lease, 1)
        if box.lease in self.given_up:
            return
        mine = [other.id for host in self.hosts for other in host.table.values()
                if other.lease == box.lease and other.state == "leased"]
        self.check(reply[0] == "OK" or len(mine) > 1,
                   f"{box.id} is leased to {box.lease}; the directory: {reply}")

    def check_holder(self, client):
        box = client.host.table.get(client.box)
        if box and box.state == "leased" and client.lease not in self.given_up:
            reply = self.execute("acquire", (client.lease, client.policy, -1, client.ttl,
                                             client.prefer, "", ""))
            self.check(reply[0] in ("OK", "LEASE_MISMATCH") and
                       (reply[0] != "OK" or reply[1] == client.box),
                       f"{client.lease} holds {client.box}; the directory: {reply}")

    def clear(self):
        """Everything is released and reaped: nothing is left but the meta."""
        for client in self.clients:
            self.given_up.add(client.lease)
            self.execute("release", (client.lease,))
        for host in self.hosts:
            for box in host.table.values():
                host.kill(box, "shutdown")
        self.max_idle, self.revision = 0, self.revision + 1
        for _ in range(4):
            self.tick_all()
        for host in self.hosts:
            self.check(not host.table, f"{host.name} still has {host.table}")
            self.check(host.call("unregister"), f"{host.name} could not leave")
        for _ in range(2):  # what damage left without an index is indexed in the first round
            self.now += c.TOMBSTONE_MS + MAX_LEASE_MS
            self.set_clock()
            for _ in range(6):
                self.execute("reap", (1000,))
        left = {key for key in self.redis.call("KEYS", "*") if key != CLOCK and ":grant:" not in key}
        self.check(left <= {META}, f"left over: {sorted(left)}")


def run(redis, seed, steps=60):
    """One history. Returns what it did, for the curious."""
    world = World(redis, seed, KINDS[seed % len(KINDS)])
    for _ in range(steps):
        world.step()
    world.settle()
    world.clear()
    return {"calls": world.calls, "made": world.made, "held": len(world.holders),
            "fenced": world.fenced, "clients": world.clients_made}
