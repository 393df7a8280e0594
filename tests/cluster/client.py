"""A client of the cluster as a program of its own, so that it can be stopped and killed.

usage: client.py JSON     (under nsenter, in the namespace of the clients)

Several threads acquire over Redis or over a host's HTTP, claim at the owner's endpoint, exec, renew,
release, or stop half-way as clients do. What they ask and what they are answered goes into a history
(tests/lib/history.py): the question before it is sent, the answer when it has come.
"""

import hashlib
import http.client
import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import history  # noqa: E402
from redis_client import Redis, RedisError  # noqa: E402

REDIS_TIMEOUT_S = 1.2
HTTP_TIMEOUT_S = 2.0
BUDGET = 8          # candidates that an acquire tries
TTL_MS = 4000
VANISHING_TTL_MS = 60000  # claim_timeout is what must end it

# What a thread does with a sandbox, and how often.
MANNERS = (
    ("polite", 30),     # claim, exec, release
    ("renewing", 8),    # … and renews at the owner before
    ("by-store", 8),    # renews and releases through Redis
    ("waiting", 14),    # queues for it
    ("lost-reply", 8),  # throws the first answer away and asks again
    ("twice", 6),       # asks twice with the same lease
    ("vanishing", 6),   # never claims
    ("leaving", 6),     # claims, never releases
    ("over-http", 10),  # acquires at a host
    ("thief", 4),       # tries what it is handed with somebody else's secret
)


class Answer(Exception):
    """Ends an attempt; the history has it already."""


class Worker(threading.Thread):
    def __init__(self, options, writer, number):
        super().__init__(daemon=True)
        self.options = options
        self.writer = writer
        self.name = f"{options['name']}.{number}"
        self.random = random.Random(f"{options['seed']}/{self.name}")
        self.serial = 0
        self.redis = None

    # -- the history --

    def ask(self, op, lease, question, via, bound_s, **call):
        """Note the call, put the question, note the answer: (status, fields)."""
        self.serial += 1
        key = {"client": self.name, "n": self.serial}
        self.writer.write(phase="call", op=op, lease=lease, via=via, bound_s=bound_s, **key, **call)
        try:
            status, fields = question()
        except TimeoutError:
            status, fields = "TIMED_OUT", {}
        except ConnectionRefusedError:
            status, fields = "UNREACHABLE", {}
        except (OSError, EOFError, http.client.HTTPException) as error:
            status, fields = "UNKNOWN", {"message": repr(error)[:120]}
        if status in ("TIMED_OUT", "UNREACHABLE", "UNKNOWN") and via == "redis":
            self.hang_up()
        self.writer.write(phase="return", status=status, **key, **fields)
        return status, fields

    # -- Redis --

    def hang_up(self):
        if self.redis is not None:
            self.redis.close()
            self.redis = None

    def connection(self):
        if self.redis is None:
            self.redis = Redis(host=self.options["redis"][0], port=self.options["redis"][1],
                               timeout=REDIS_TIMEOUT_S)
        return self.redis

    def fcall(self, name, *args):
        """(status, rest of the reply); what Redis refuses is a status too."""
        try:
            reply = self.connection().call("FCALL", f"sandpool_v1_{name}", 1, self.options["meta"],
                                           *args)
        except RedisError as error:
            text = str(error)
            if "unction not found" in text:
                return "NO_FUNCTION", []
            word = text.split(" ", 1)[0]
            return (word if word in history.TYPED else text[:200]), []
        words = [word.decode() if isinstance(word, bytes) else word for word in reply]
        return words[0], words[1:]

    @staticmethod
    def granted(status, words):
        if status != "OK":
            return status, {"words": words}
        return status, {"sandbox": words[0], "host": words[1], "endpoint": words[2],
                        "remaining_ms": int(words[4])}

    def acquire(self, lease, policy="fail_fast", reject=(), ttl_ms=TTL_MS, **call):
        def question():
            return self.granted(*self.fcall("acquire", lease, policy, -1, ttl_ms, "",
                                            ",".join(reject), ""))
        return self.ask("acquire", lease, question, "redis", REDIS_TIMEOUT_S, policy=policy,
                        ttl_ms=ttl_ms, reject=list(reject), **call)

    def wait(self, lease, deadline_ms):
        def question():
            return self.granted(*self.fcall("wait", lease, deadline_ms))
        return self.ask("wait", lease, question, "redis", REDIS_TIMEOUT_S, ttl_ms=TTL_MS)

    # -- the owner --

    def http(self, address, method, target, body=None, token=None):
        connection = http.client.HTTPConnection(*address, timeout=HTTP_TIMEOUT_S)
        try:
            connection.connect()
        except OSError:
            return "UNREACHABLE", {}
        try:
            headers = {"Authorization": f"Bearer {self.options['key']}"}
            if token:
                headers["X-Sandpool-Token"] = token
            data = None
            if body is not None:
                data = json.dumps(body)
                headers["Content-Type"] = "application/json"
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            text = response.read()
            found = json.loads(text) if text else {}
            if response.status < 300:
                return "OK", found
            return found.get("code", f"HTTP {response.status}"), {"message": found.get("message")}
        finally:
            connection.close()

    def owner(self, op, box, method, path="", body=None, lease=None, token=None):
        def question():
            status, found = self.http(box["address"], method, f"/v1/sandboxes/{box['id']}{path}",
                                      body, token or box["secret"])
            fields = {"message": found.get("message")}
            if status == "OK":
                if "remaining_ms" in found:
                    fields["remaining_ms"] = found["remaining_ms"]
                if "stdout" in found:
                    fields["found"] = found["stdout"].strip()
                    fields["reason"] = found["result"]["reason"]
                fields["at_owner"] = True
            return status, fields
        return self.ask(op, lease or box["lease"], question, box["host"], HTTP_TIMEOUT_S,
                        sandbox=box["id"], host=box["host"])

    def claim(self, box):
        return self.owner("claim", box, "POST", "/claim", {"ttl": f"{TTL_MS}ms"})[0]

    def exec(self, box):
        return self.owner("exec", box, "POST", "/exec", {
            "shell": f"cat /tmp/owner 2>/dev/null; echo {box['lease']} >/tmp/owner",
            "timeout": "3s"})

    # -- one attempt --

    def secret(self):
        return f"{self.random.getrandbits(256):064x}"

    def held(self, fields, lease, secret):
        where = fields["endpoint"].split("://", 1)[-1].rpartition(":")
        return {"id": fields["sandbox"], "host": fields["host"], "lease": lease, "secret": secret,
                "address": (where[0], int(where[2]))}

    def claim_or_begin_again(self, status, fields, lease, secret):
        """The client's part of an acquire: claim; if that fails, cancel and begin again with
        another secret and the id in `reject`."""
        reject = []
        for _ in range(BUDGET):
            if status == "OK":
                box = self.held(fields, lease, secret)
                if self.claim(box) == "OK":
                    return box
                self.cancel(lease)
                reject.append(box["id"])
            elif status != "LEASE_ENDED":
                break
            secret = self.secret()
            lease = hashlib.sha256(secret.encode()).hexdigest()
            status, fields = self.acquire(lease, reject=reject)
        raise Answer(status)

    def cancel(self, lease):
        self.ask("cancel", lease, lambda: (self.fcall("cancel", lease)[0], {}), "redis",
                 REDIS_TIMEOUT_S)

    def queue(self, lease):
        """Stand in line for up to 2 s, asking every half second."""
        status, fields = self.acquire(lease, policy="wait")
        if status != "WAIT":
            return status, fields
        try:
            seconds, micros = self.connection().call("TIME")
        except (OSError, EOFError, RedisError):
            self.hang_up()
            raise Answer("time") from None
        deadline = int(seconds) * 1000 + int(micros) // 1000 + 2000
        end = time.monotonic() + 4
        while status in ("WAIT", "UNKNOWN", "UNREACHABLE", "TIMED_OUT") and time.monotonic() < end:
            time.sleep(self.random.uniform(0.05, 0.3))
            status, fields = self.wait(lease, deadline)
        if status in ("WAIT", "NOT_FOUND"):
            self.cancel(lease)
        return status, fields

    def lose_reply(self, lease):
        """The question leaves, the connection goes before the answer is read."""
        def question():
            self.connection().send("FCALL", "sandpool_v1_acquire", 1, self.options["meta"], lease,
                                   "fail_fast", -1, TTL_MS, "", "", "")
            time.sleep(self.random.uniform(0, 0.003))
            raise EOFError("thrown away")
        self.ask("acquire", lease, question, "redis", REDIS_TIMEOUT_S, policy="fail_fast",
                 ttl_ms=TTL_MS, reject=[])

    def attempt(self):
        manner = self.random.choices([name for name, _ in MANNERS],
                                     [weight for _, weight in MANNERS])[0]
        secret = self.secret()
        lease = hashlib.sha256(secret.encode()).hexdigest()
        if manner == "over-http":
            box = self.over_http(lease, secret)
        else:
            if manner == "waiting":
                status, fields = self.queue(lease)
            else:
                if manner == "lost-reply":
                    self.lose_reply(lease)
                status, fields = self.acquire(
                    lease, ttl_ms=VANISHING_TTL_MS if manner == "vanishing" else TTL_MS)
            if manner == "twice" and status == "OK":
                status, fields = self.acquire(lease, again=True)
            if manner == "vanishing" or status != "OK":
                return
            if manner == "thief":
                self.steal(self.held(fields, lease, secret))
            box = self.claim_or_begin_again(status, fields, lease, secret)
            lease = box["lease"]
        if self.random.random() < self.options["exec_share"]:
            self.exec(box)
        if manner == "renewing":
            self.owner("renew", box, "POST", "/renew", {"ttl": "3s"})
        if manner == "by-store":
            self.ask("renew-store", lease, lambda: (self.fcall("renew", lease, 3000)[0], {}),
                     "redis", REDIS_TIMEOUT_S, sandbox=box["id"])
            self.ask("release-store", lease, lambda: (self.fcall("release", lease)[0], {}),
                     "redis", REDIS_TIMEOUT_S, sandbox=box["id"])
        elif manner == "leaving":
            time.sleep(self.random.uniform(0, 0.1))
            self.exec(box)
        else:
            self.owner("release", box, "DELETE")
            if self.random.random() < 0.1:
                self.owner("exec", box, "POST", "/exec", {"argv": ["/bin/true"]})

    def over_http(self, lease, secret):
        host = self.random.choice(sorted(self.options["hosts"]))
        address = tuple(self.options["hosts"][host])
        box = {"address": address, "host": host, "lease": lease, "secret": secret, "id": None}

        def question():
            status, found = self.http(address, "POST", "/v1/pools/default/acquire",
                                      {"policy": "fail_fast", "lease": lease, "ttl": "4s"})
            if status != "OK":
                return status, {"message": found.get("message")}
            owner = found.get("endpoint") or ""
            if "://" in owner:
                where = owner.split("://", 1)[1].rpartition(":")
                box["address"] = (where[0], int(where[2]))
                box["host"] = next((name for name, place in self.options["hosts"].items()
                                    if place[0] == where[0]), host)
            box["id"] = found["id"]
            return status, {"sandbox": found["id"], "host": box["host"],
                            "remaining_ms": found["remaining_ms"]}
        status, _ = self.ask("acquire", lease, question, host, HTTP_TIMEOUT_S, ttl_ms=TTL_MS,
                             policy="fail_fast")
        if status != "OK":
            raise Answer(status)
        verdict = self.claim(box)
        if verdict != "OK":
            raise Answer(verdict)
        return box

    def steal(self, box):
        """Another secret after the holder's claim must never get in."""
        if self.claim(box) == "OK":
            other = self.secret()
            self.owner("claim", box, "POST", "/claim", {}, token=other,
                       lease=hashlib.sha256(other.encode()).hexdigest())

    def run(self):
        pause = self.options["threads"] / self.options["rate"]
        while True:
            begin = time.monotonic()
            try:
                self.attempt()
            except Answer:
                pass
            time.sleep(max(0.0, pause * self.random.uniform(0.5, 1.5) -
                           (time.monotonic() - begin)))


def main():
    options = json.loads(sys.argv[1])
    socket.setdefaulttimeout(HTTP_TIMEOUT_S)
    writer = history.Writer(options["history"])
    workers = [Worker(options, writer, number) for number in range(options["threads"])]
    for worker in workers:
        worker.start()
    sys.stdin.read()  # until whoever started us closes it, or ends
    os._exit(0)


if __name__ == "__main__":
    main()
