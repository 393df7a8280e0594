#!/usr/bin/env python3
"""Two real daemons on one Redis: what is warm on one serves the clients of the other, an operator
reaches both, and neither needs Redis for what it holds."""

import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
import unittest

import sandpool_test as t
from redis_client import Server, has_program
from sandpool_test import Case, Daemon, limit, main, wait_until

META = "sandpool:{default}:meta"
KEY = "0123456789abcdef0123456789abcdef"
EMPTY = {"max_idle": 0}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Client:
    """Somebody without rights of an operator: a key, a secret, Redis."""

    def __init__(self, redis):
        self.redis = redis
        self.secret = secrets.token_hex(32)
        self.lease = hashlib.sha256(self.secret.encode()).hexdigest()
        self.id = self.host = self.address = None

    def acquire(self, ttl_ms=60000, policy="fail_fast", reject=""):
        answer = self.redis.fcall("acquire", META, self.lease, policy, -1, ttl_ms, "", reject, "")
        if answer[0] == "OK":
            self.take(answer[1], answer[2], answer[3])
        return answer[0]

    def take(self, sandbox, host, endpoint):
        self.id, self.host = sandbox, host
        name, port = endpoint.split("://", 1)[1].rsplit(":", 1)
        self.address = (name, int(port))

    def http(self, method, target, body=None, token=True, address=None):
        connection = http.client.HTTPConnection(*(address or self.address), timeout=20)
        headers = {"Authorization": f"Bearer {KEY}"}
        if token:
            headers["X-Sandpool-Token"] = self.secret
        data = json.dumps(body) if body is not None else None
        if data:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if text else {}

    def sandbox(self, method, path="", body=None):
        return self.http(method, f"/v1/sandboxes/{self.id}{path}", body)

    def claim(self, **body):
        return self.sandbox("POST", "/claim", body or None)

    def obtain(self, ttl_ms=60000):
        """Acquire and claim, as every client does: what is no good is rejected."""
        reject = []
        for _ in range(8):
            status = self.acquire(ttl_ms, reject=",".join(reject))
            if status == "OK" and self.claim()[0] == 200:
                return True
            if status == "OK":
                reject.append(self.id)
            elif status == "EMPTY":  # what was shared out anew is being made
                time.sleep(0.2)
            elif status != "LEASE_ENDED":  # it ended before the claim
                return False
            self.secret = secrets.token_hex(32)
            self.lease = hashlib.sha256(self.secret.encode()).hexdigest()
        return False

    def echo(self):
        status, found = self.sandbox("POST", "/exec", {"argv": ["/bin/echo", self.lease]})
        return status == 200 and found["stdout"].strip() == self.lease


class TwoDaemons(Case):
    @classmethod
    def setUpClass(cls):
        reason = (t.needs_root() or t.needs_programs() or
                  (None if has_program("redis-server") else "redis-server is not installed"))
        if reason:
            if os.environ.get("SP_TESTS_MUST_RUN") == "1":
                raise AssertionError(reason)
            raise unittest.SkipTest(reason)

    def setUp(self):
        self.enterContext = self.enterContext if hasattr(self, "enterContext") else self.enter
        self.directory = tempfile.mkdtemp(prefix="sandpool-two-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.directory)
        with open(f"{self.directory}/keys", "w", encoding="utf-8") as keys:
            keys.write(KEY + "\n")
        os.chmod(f"{self.directory}/keys", 0o600)
        # Without its library: the first daemon loads it.
        self.server = self.enterContext(Server("--unixsocketperm", "777", library=False))
        os.chmod(self.server.directory, 0o755)
        self.redis = self.enterContext(self.server.connect())
        self.ports = {}

    def enter(self, context):
        """unittest has this from Python 3.11 on."""
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def daemon(self, name, pool=None, **more):
        self.ports[name] = free_port()
        address = f"tcp://127.0.0.1:{self.ports[name]}"
        config = t.merge({
            "store": f"unix://{self.server.path}", "host": name, "advertise": address,
            "api_keys_file": f"{self.directory}/keys",
            "redis": {"command_timeout": "500ms"},
            "pools": {"default": t.merge({"max_idle": 4, "claim_timeout": "20s"}, pool or {})},
        }, more)
        daemon = Daemon(config, wait_ready=False)
        daemon.write_config({"listen": daemon.config["listen"] + [address]})
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.kill)
        self.begin(daemon)
        return daemon

    def begin(self, daemon):
        """Started, and answering; it may not be ready."""
        daemon.start()

        def answers():
            try:
                return daemon.request("GET", "/healthz", timeout=2).status == 200
            except OSError:
                return daemon.process.poll() is not None
        wait_until(answers, 20, "an answer")

    def both(self, pool=None):
        a = self.daemon("a", pool)
        a.ready()
        b = self.daemon("b", pool)
        b.ready()
        return a, b

    def stats(self):
        answer = self.redis.fcall("stats", META)
        count = answer[2]
        return dict(zip(answer[3:3 + 2 * count:2], answer[4:4 + 2 * count:2]))

    def wait_stat(self, name, value, timeout=10):
        wait_until(lambda: self.stats().get(name) == value, timeout, f"{name} is {value}")

    def stop(self, *daemons):
        for daemon in daemons:
            daemon.stop()

    # -- hand-out --

    def test_a_plain_client_acquires_and_claims(self):
        a = self.daemon("a")
        a.ready()
        self.wait_stat("idle", 4)
        client = Client(self.redis)
        self.assertEqual(client.acquire(ttl_ms=30000), "OK")
        self.assertEqual(client.host, "a")
        status, found = client.claim()
        self.assertEqual(status, 200, found)
        self.assertTrue(found["claimed"])
        self.assertEqual((found["host"], found["lease"]), ("a", client.lease))
        self.assertLessEqual(found["remaining_ms"], 30000)
        self.assertTrue(client.echo())
        # Again is the same; somebody else's secret opens nothing.
        self.assertEqual(client.claim()[0], 200)
        thief = Client(self.redis)
        thief.take(client.id, "a", f"tcp://127.0.0.1:{self.ports['a']}")
        self.assertEqual(thief.claim()[0], 404)
        self.assertEqual(thief.sandbox("DELETE")[0], 404)
        self.assertEqual(client.sandbox("DELETE")[0], 204)
        wait_until(lambda: client.acquire() == "LEASE_ENDED", 5, "the lease has ended")
        self.stop(a)

    def test_nobody_is_given_what_is_not_warm_yet(self):
        gate = tempfile.mkdtemp(prefix="sandpool-gate-", dir="/srv")
        self.addCleanup(shutil.rmtree, gate)
        os.chmod(gate, 0o755)
        pool = {"max_idle": 2, "layers": [gate], "warmup": {"command": [
            "/bin/sh", "-c", f"while [ ! -e {gate}/open ]; do sleep 0.02; done; "
                             "echo warm >/workspace/made"]}}
        a, b = self.daemon("a", pool), self.daemon("b", pool)
        wait_until(lambda: a.pool()["creating"] == b.pool()["creating"] == 1,
                   what="one at each that is being warmed up")
        self.wait_stat("creating", 2)
        self.assertEqual(self.stats().get("idle", 0), 0)
        self.assertEqual(Client(self.redis).acquire(), "EMPTY")
        with self.assertRaises(t.ApiError) as caught:
            b.acquire(policy="fail_fast")
        self.assertEqual(caught.exception.code, "POOL_EMPTY")
        with open(f"{gate}/open", "w", encoding="ascii"):
            pass
        self.wait_stat("idle", 2)
        client = Client(self.redis)
        self.assertTrue(client.obtain())
        status, found = client.sandbox("POST", "/exec", {"argv": ["/bin/cat", "/workspace/made"]})
        self.assertEqual((status, found["stdout"]), (200, "warm\n"))
        self.stop(a, b)

    def test_the_first_use_is_the_claim(self):
        a = self.daemon("a")
        a.ready()
        self.wait_stat("idle", 4)
        client = Client(self.redis)
        self.assertEqual(client.acquire(), "OK")
        self.assertTrue(client.echo(), "no claim before it")
        status, found = client.sandbox("GET")
        self.assertTrue(status == 200 and found["claimed"])
        # The ttl of the acquire counts, though the use may have come before the grant.
        wait_until(lambda: 30000 < client.sandbox("GET")[1]["remaining_ms"] <= 60000, 5,
                   "ttl of the acquire")
        other = Client(self.redis)
        self.assertEqual(other.acquire(), "OK")
        status, found = other.claim(ttl="7s")
        self.assertTrue(status == 200 and found["remaining_ms"] <= 7000, found)
        time.sleep(1.2)
        self.assertLessEqual(other.sandbox("GET")[1]["remaining_ms"], 6000)
        self.assertEqual(Client(self.redis).http("POST", f"/v1/sandboxes/{other.id}/claim", token=False,
                                                 address=other.address)[0], 401)
        self.stop(a)

    def test_b_answers_with_what_a_has(self):  # P-162
        a = self.daemon("a", {"max_idle": 2})
        a.ready()
        self.wait_stat("idle", 2)
        b = self.daemon("b", {"max_idle": 2})
        b.ready()
        boxes = []
        for _ in range(2):
            answer = b.call("POST", "/v1/pools/default/acquire", {"policy": "fail_fast"})
            self.assertTrue(answer["token"] and answer["endpoint"])
            client = Client(self.redis)
            client.secret, client.lease = answer["token"], answer["lease"]
            endpoint = answer["endpoint"]
            if answer["host"] == "b":
                endpoint = f"tcp://127.0.0.1:{self.ports['b']}"
            client.take(answer["id"], answer["host"], endpoint)
            self.assertEqual(client.claim()[0], 200)
            self.assertTrue(client.echo())
            boxes.append(answer["host"])
        self.assertIn("a", boxes)
        self.assertGreaterEqual(
            b.metric_sum("sandpool_acquire_total", pool="default", result="elsewhere"), 1)
        self.stop(b, a)

    def test_one_that_waits_at_b_is_served_by_whoever_is_first(self):
        a, b = self.both({"max_idle": 0})
        answer = b.call("POST", "/v1/pools/default/acquire", {"policy": "wait", "wait": "15s"})
        self.assertIn(answer["host"], ("a", "b"))
        # Whoever made it had a share for the ticket, and has it until its next heartbeat.
        wait_until(lambda: self.empty_at(b, {"a": a, "b": b}), 5, "nothing is made without demand")
        # A creation for one caller stays here and is no demand of the others.
        answer = b.call("POST", "/v1/pools/default/acquire", {"policy": "create", "wait": "15s"})
        self.assertEqual(answer["host"], "b")
        self.wait_stat("idle", 0)
        self.stop(a, b)

    @staticmethod
    def empty_at(daemon, daemons):
        """Is a client refused? What it is given instead goes back to whoever made it."""
        try:
            answer = daemon.call("POST", "/v1/pools/default/acquire", {"policy": "fail_fast"})
        except t.ApiError as refused:
            return refused.code == "POOL_EMPTY"
        daemons[answer["host"]].call("DELETE", f"/v1/sandboxes/{answer['id']}")
        return False

    # -- operators --

    def test_a_resize_on_one_acts_on_both(self):  # P-166
        a, b = self.both()
        self.wait_stat("idle", 4)
        a.call("POST", "/v1/pools/default/resize", {"max_idle": 2})
        wait_until(lambda: b.pool()["max_idle"] == 2, 5, "b has heard of it")
        self.wait_stat("idle", 2)
        wait_until(lambda: a.pool()["idle"] + b.pool()["idle"] == 2, 5, "two idle in all")
        b.call("POST", "/v1/pools/default/drain")
        wait_until(lambda: a.pool()["state"] in ("draining", "stopped"), 5, "a drains")
        self.wait_stat("idle", 0)
        a.call("POST", "/v1/pools/default/resume")
        self.wait_stat("idle", 2)
        self.stop(a, b)

    def test_a_host_is_drained_and_comes_back(self):
        a, b = self.both()
        self.wait_stat("idle", 4)
        hosts = {host["host"]: host for host in a.call("GET", "/v1/hosts")["hosts"]}
        self.assertEqual(sorted(hosts), ["a", "b"])
        self.assertEqual(hosts["b"]["endpoint"], f"tcp://127.0.0.1:{self.ports['b']}")
        self.assertEqual(sum(host["idle"] for host in hosts.values()), 4)
        wait_until(lambda: a.metric_sum("sandpool_hosts", pool="default") == 2, 5, "a knows of b")
        a.call("POST", "/v1/hosts/b/drain")
        wait_until(lambda: b.pool()["idle"] == 0 and a.pool()["idle"] == 4, 10, "a has all of it")
        with self.refused("NOT_FOUND"):
            a.call("POST", "/v1/hosts/zz/drain")
        # It lasts over a restart of that host.
        b.stop()
        self.begin(b)
        wait_until(lambda: b.pool()["hosts"] == 2, 10, "b is back")
        time.sleep(2)
        self.assertEqual(b.pool()["share"], 0)
        a.call("POST", "/v1/hosts/b/resume")
        wait_until(lambda: b.pool()["idle"] > 0, 10, "b serves again")
        self.stop(a, b)

    def test_another_spec_makes_nothing_until_its_revision_rises(self):
        a = self.daemon("a")
        a.ready()
        b = self.daemon("b", {"hostname": "other"})
        wait_until(lambda: b.pool()["spec_mismatch"], 10, "b says so")
        self.assertEqual(b.pool()["idle"], 0)
        self.assertEqual(b.metric_sum("sandpool_spec_mismatch", pool="default"), 1)
        self.assertEqual(b.request("GET", "/readyz").status, 503)
        self.assertIn(b"raise spec_revision", b.cli("stats").stdout)
        doctor = b.cli("doctor", "--config", b.config_path)
        self.assertEqual(doctor.returncode, 1)
        self.assertRegex(doctor.stdout, rb"(?m)^fail +pools +'default' makes nothing: .*spec_revision")
        self.assertRegex(doctor.stdout, rb"(?m)^warn +daemon ready .*raise its spec_revision")
        self.wait_stat("idle", 4)
        b.write_config({"pools": {"default": {"spec_revision": 1}}})
        b.call("POST", "/v1/reload")
        wait_until(lambda: a.pool()["spec_mismatch"] and b.pool()["idle"] == 4, 10, "b leads")
        wait_until(lambda: a.pool()["idle"] == 0, 10, "nothing of the old spec is kept")
        self.stop(a, b)

    # -- faults --

    @limit(90)
    def test_an_outage_takes_nothing_away(self):  # B-142
        a, b = self.both({"max_idle": 4, "claim_timeout": "30s"})
        self.wait_stat("idle", 4)
        client = Client(self.redis)
        self.assertTrue(client.obtain())
        short = Client(self.redis)
        self.assertTrue(short.obtain(ttl_ms=4000))
        ends = time.monotonic() + 4
        self.wait_stat("leased", 2)
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait()
        self.redis.close()
        holder = a if client.host == "a" else b
        wait_until(lambda: holder.metrics()["sandpool_store_up"] == 0, 5, "the outage is noticed")
        self.assertEqual(holder.request("GET", "/healthz").status, 200)
        self.assertTrue(client.echo(), "what runs goes on")
        self.assertEqual(client.sandbox("POST", "/renew", {"ttl": "50s"})[0], 200)
        for daemon in (a, b):
            daemon.wait_settled() if daemon.pool()["share"] >= daemon.pool()["max_idle"] else None
            share = daemon.pool()["share"]
            wait_until(lambda: daemon.pool()["idle"] == share, 10, "it refills to its share")
            self.assertEqual(daemon.request("GET", "/readyz").status, 200 if share else 503)
            for _ in range(share):
                started = time.monotonic()
                daemon.call("POST", "/v1/pools/default/acquire", {"policy": "fail_fast"})
                self.assertLess(time.monotonic() - started, 1)
        answers = set()
        for daemon in (a, b):
            for _ in range(6):
                answer = daemon.request("POST", "/v1/pools/default/acquire", {"policy": "fail_fast"})
                answers.add(answer.json.get("code", "OK"))
        self.assertLessEqual(answers, {"OK", "POOL_STATE_STORE_UNAVAILABLE"})
        wait_until(lambda: short.sandbox("GET")[0] == 410, 8, "it expires without Redis")
        self.assertGreaterEqual(time.monotonic(), ends - 0.1, "and not before its time")
        # And back, with a server that remembers nothing.
        self.server._start()
        self.redis = self.server.connect()
        self.addCleanup(self.redis.close)
        client.redis = self.redis
        wait_until(lambda: holder.metrics()["sandpool_store_up"] == 1, 10, "it is back")
        wait_until(lambda: self.redis.call("EXISTS", META) and self.stats()["hosts_live"] == 2, 10,
                   "both are back")
        wait_until(lambda: client.acquire() == "OK" and client.echo(), 10, "the lease is known again")
        self.stop(a, b)

    def test_a_daemon_that_was_killed_takes_its_place_back(self):
        a, b = self.both()
        self.wait_stat("idle", 4)
        os.kill(a.pid, signal.SIGKILL)
        a.process.wait()
        self.begin(a)
        started = time.monotonic()
        wait_until(lambda: a.pool()["hosts"] == 2, 10, "a is known again")
        self.assertLess(time.monotonic() - started, 4, "it need not wait for its own deadline")
        self.wait_stat("idle", 4)
        client = Client(self.redis)
        self.assertTrue(client.obtain() and client.echo())
        self.assertEqual(len({box["id"] for box in a.sandboxes() + b.sandboxes()}),
                         len(a.sandboxes()) + len(b.sandboxes()))
        self.stop(a, b)

    def test_two_daemons_of_one_name(self):  # B-109
        a = self.daemon("a")
        a.ready()
        self.wait_stat("idle", 4)
        twin = self.daemon("a")
        self.assertNotEqual(twin.process.wait(timeout=30), 0)
        self.assertIn("another daemon's", twin.log())
        self.assertEqual(a.pool()["idle"], 4)
        self.stop(a)

    def test_an_operators_intent_outlives_redis_and_the_daemon(self):
        a = self.daemon("a")
        a.ready()
        a.call("POST", "/v1/pools/default/resize", {"max_idle": 1})
        wait_until(lambda: self.stats()["revision"] == 1, 5, "it is written")
        a.stop()
        self.redis.call("FLUSHALL")
        self.begin(a)
        wait_until(lambda: a.pool()["max_idle"] == 1 and a.pool()["idle"] == 1, 10, "still one")
        mode = os.stat(f"{a.config['state_dir']}/host.secret").st_mode
        self.assertEqual(mode & 0o777, 0o600)
        self.stop(a)

    def test_a_stop_leaves_nothing_in_redis(self):
        a, b = self.both()
        self.wait_stat("idle", 4)
        a.stop()
        self.assertEqual(self.stats()["hosts"], 1)
        b.stop()
        self.assertEqual((self.stats()["hosts"], self.stats()["entries"]), (0, 0))


if __name__ == "__main__":
    main()
