"""Acquire, renew, release and expiry as clients see them."""

import concurrent.futures
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402



class Acquire(SandpoolCase):
    config = {"pools": {
        "default": {"max_idle": 3, "max_total": 6},
        "none": {"max_idle": 0, "max_total": 2},
    }}

    def setUp(self):
        self.daemon.wait_settled()

    def test_answer_names_the_sandbox_its_token_and_its_end(self):
        with self.daemon.acquire(ttl="90s") as box:
            answer = box.answer
            self.assertRegex(answer["id"], r"^[0-9a-z]{16,}$")
            self.assertEqual(answer["pool"], "default")
            self.assertEqual(answer["state"], "leased")
            self.assertRegex(answer["expires_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            # Until somebody uses it the claim timeout (1 min) counts, then the lease.
            self.assertLessEqual(answer["remaining_ms"], 60_000)
            box.run("/bin/true")
            remaining = box.inspect()["remaining_ms"]
            self.assertLessEqual(remaining, 90_000)
            self.assertGreater(remaining, 85_000)
            self.assertTrue(answer["token"])
            self.assertTrue(answer["lease"])
            self.assertNotEqual(answer["lease"], answer["token"])

    def test_every_acquire_gets_another_sandbox(self):
        seen = set()
        for _ in range(12):
            with self.daemon.acquire(policy="wait", wait="10s") as box:
                self.assertNotIn(box.id, seen)
                seen.add(box.id)

    def test_many_clients_never_share_a_sandbox_b099(self):
        def client(_number):
            got = []
            for _ in range(15):
                with self.daemon.acquire(policy="wait", wait="30s") as box:
                    got.append(box.id)
            return got

        with concurrent.futures.ThreadPoolExecutor(8) as executor:
            ids = [item for got in executor.map(client, range(8)) for item in got]
        self.assertEqual(len(ids), 120)
        self.assertEqual(len(set(ids)), 120)

    def test_same_lease_id_gets_the_same_sandbox_b100(self):
        lease = "f" * 63 + "0"
        with self.daemon.acquire(lease=lease) as first:
            again = self.daemon.acquire(lease=lease)
            self.assertEqual(again.id, first.id)
            self.assertIsNone(first.token)
        with self.refused("LEASE_ENDED", 410):
            self.daemon.acquire(lease=lease)

    def test_empty_pool_fails_fast(self):
        with self.refused("POOL_EMPTY", 503):
            self.daemon.acquire("none", policy="fail_fast")

    def test_create_policy_makes_one(self):
        with self.daemon.acquire("none", policy="create") as box:
            self.assertEqual(box.shell("echo hi").text, "hi")

    def test_ceiling_is_exact(self):
        with self.daemon.acquire("none", policy="create"), \
                self.daemon.acquire("none", policy="create"):
            with self.refused("POOL_SATURATED", 429):
                self.daemon.acquire("none", policy="create")

    def test_waiter_is_served_when_one_is_released(self):
        held = [self.daemon.acquire(policy="wait", wait="10s") for _ in range(6)]
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as executor:
                waiting = executor.submit(self.daemon.acquire, policy="wait", wait="20s")
                wait_until(lambda: self.daemon.pool()["waiters"] == 1, 5, "one waiter")
                held.pop().release()
                box = waiting.result(20)
                held.append(box)
        finally:
            for box in held:
                box.release()

    def test_wait_ends_at_its_deadline_b122(self):
        held = [self.daemon.acquire(policy="wait", wait="10s") for _ in range(6)]
        try:
            start = time.monotonic()
            with self.refused("ACQUIRE_TIMEOUT", 503):
                self.daemon.acquire(policy="wait", wait="300ms")
            took = time.monotonic() - start
            self.assertGreater(took, 0.28)
            self.assertLess(took, 2 * t.SLOW_FACTOR)
        finally:
            for box in held:
                box.release()

    def test_client_that_left_the_queue_swallows_nothing_b122(self):
        held = [self.daemon.acquire(policy="wait", wait="10s") for _ in range(6)]
        try:
            connection = t.UnixConnection(self.daemon.socket_path, 5)
            connection.request("POST", "/v1/pools/default/acquire",
                               b'{"policy":"wait","wait":"20s"}')
            wait_until(lambda: self.daemon.pool()["waiters"] == 1, 5, "one waiter")
            connection.close()
            wait_until(lambda: self.daemon.pool()["waiters"] == 0, 5, "the waiter is forgotten")
        finally:
            for box in held:
                box.release()
        self.daemon.wait_settled()
        self.assertEqual(self.daemon.pool()["leased"], 0)

    def test_unknown_pool_member_and_policy_are_named(self):
        with self.refused("POOL_NOT_FOUND", 404):
            self.daemon.acquire("nosuch")
        for body, word in (({"polciy": "wait"}, "polciy"), ({"policy": "nosuch"}, "policy"),
                           ({"ttl": "soon"}, "soon"), ({"ttl": -1}, "ttl"), ({"ttl": 1e308}, "ttl"),
                           ({"lease": "short"}, "lease"), ({"ttl": True}, "ttl")):
            with self.subTest(body=body):
                with self.refused("INVALID_ARGUMENT", 400) as caught:
                    self.daemon.acquire(**body)
                self.assertIn(word, caught.exception.response.json["message"])

    def test_pool_names_are_never_paths_b197(self):
        for name in ("..", "%2e%2e", "a%2fb", "x" * 200, "%00"):
            with self.subTest(name=name):
                response = self.daemon.request("POST", f"/v1/pools/{name}/acquire", {})
                self.assertIn(response.status, (400, 404))
                self.assertIn("code", response.json)


class Made(SandpoolCase):
    config = {"pools": {name: {"max_idle": max_idle, "hostname": "made",
                               "limits": {"pids": 77, "memory": "96MiB", "tmp": "8MiB"}}
                        for name, max_idle in (("default", 1), ("none", 0))}}
    LOOK = ("hostname; id; pwd; df -k /tmp | tail -1; ulimit -a; env | sort; "
            "grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status")

    def test_warm_and_direct_ones_are_alike(self):  # P-014, P-150
        self.daemon.wait_settled()
        with self.daemon.acquire(policy="fail_fast") as warm, \
                self.daemon.acquire("none", policy="create") as direct:
            lines = warm.shell(self.LOOK).text.splitlines()
            self.assertEqual(lines[0], "made")
            self.assertIn(" 8192 ", lines[3])
            self.assertEqual(direct.shell(self.LOOK).text.splitlines(), lines)


class Leases(SandpoolCase):
    config = {"pools": {
        "default": {"max_idle": 2, "max_lease": "30s", "claim_timeout": "1s"},
    }}

    def acquire(self, **body):
        box = self.daemon.acquire(policy="wait", wait="10s", **body)
        self.addCleanup(box.__exit__, None, None, None)
        return box

    def gone(self, box, timeout=5):
        def check():
            response = self.daemon.request("GET", f"/v1/sandboxes/{box.id}", headers=box.headers())
            return response.status in (404, 410) or response.json.get("state") == "killing"
        wait_until(check, timeout, f"sandbox {box.id} is gone")

    def test_expires_without_the_client_b101(self):
        box = self.acquire(ttl="1s")
        box.run("/bin/true")
        start = time.monotonic()
        self.gone(box)
        self.assertLess(time.monotonic() - start, 3 * t.SLOW_FACTOR)
        self.assertEqual(self.daemon.metric_sum("sandpool_ends_total", reason="expired"), 1)

    def test_running_exec_ends_with_the_lease(self):
        box = self.acquire(ttl="1s")
        outcome = box.run("/bin/sleep", "30")
        self.assertEqual(outcome.reason, "expired")

    def test_renewal_moves_the_end_b094(self):
        box = self.acquire(ttl="1s")
        box.run("/bin/true")
        answer = box.renew("20s")
        self.assertGreater(answer["remaining_ms"], 18_000)
        time.sleep(1.5)
        self.assertExited(box.run("/bin/true"))

    def test_renewal_never_goes_beyond_the_longest_lease(self):
        box = self.acquire(ttl="5s")
        self.assertGreater(box.renew("30s")["remaining_ms"], 29_000)
        for ttl in ("30001ms", "10h"):
            with self.refused("INVALID_ARGUMENT", 400) as caught:
                box.renew(ttl)
            self.assertIn("max_lease", caught.exception.response.json["message"])

    def test_unclaimed_is_taken_back(self):
        box = self.acquire()
        self.gone(box)
        self.assertGreaterEqual(self.daemon.metric_sum("sandpool_ends_total", reason="unclaimed"), 1)

    def test_claimed_is_kept(self):
        box = self.acquire()
        box.run("/bin/true")
        time.sleep(1.6)
        self.assertExited(box.run("/bin/true"))

    def test_release_is_idempotent_and_final_b102(self):
        box = self.acquire()
        box.release()
        for _ in range(2):
            response = self.daemon.request("DELETE", f"/v1/sandboxes/{box.id}",
                                           headers=box.headers())
            self.assertIn(response.status, (204, 404, 410))
        with self.assertRaises(t.ApiError) as caught:
            box.run("/bin/true")
        self.assertIn(caught.exception.code, ("NOT_FOUND", "LEASE_ENDED", "SANDBOX_DEAD"))

    def test_unknown_ids_are_typed_b197_b210(self):
        for name in ("nosuch", "0" * 32, "..", "%2e%2e%2fetc", "x" * 4096):
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/renew")):
                with self.subTest(id=name[:40], method=method):
                    response = self.daemon.request(
                        method, f"/v1/sandboxes/{name}{path}",
                        {"ttl": "1s"} if path else None)
                    self.assertIn(response.status, (400, 404, 413))


class IdleLife(SandpoolCase):
    """An idle sandbox is never handed out with less life than promised, and never just forgotten."""

    config = {"pools": {"default": {"max_idle": 2, "idle_timeout": "4s",
                                    "acquire_min_remaining_ttl": "2s"}}}

    def test_nothing_is_handed_out_below_the_minimum_b091_b092(self):
        end = time.monotonic() + 8
        while time.monotonic() < end:
            with self.daemon.acquire(policy="wait", wait="10s") as box:
                self.assertExited(box.run("/bin/true"))
            time.sleep(0.3)
        self.daemon.wait_idle(2)
        remaining = [box["remaining_ms"] for box in self.daemon.sandboxes()
                     if box["state"] == "idle"]
        self.assertTrue(all(value <= 4000 for value in remaining), remaining)
        ends = self.daemon.metric_sum("sandpool_ends_total")
        self.assertGreater(ends, 2)
        inits = len(self.daemon.inits())
        self.assertLessEqual(inits, 5)


class Operator(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2, "max_total": 8}}}

    def call(self, verb, **body):
        return self.daemon.call("POST", f"/v1/pools/default/{verb}", body)

    def setUp(self):
        self.call("resume")
        self.call("resize", max_idle=2, max_total=8)
        self.daemon.wait_settled()

    def test_resize_up_and_down_b120(self):
        self.call("resize", max_idle=5)
        self.daemon.wait_idle(5)
        with self.daemon.acquire() as box:
            self.call("resize", max_idle=0)
            self.daemon.wait_idle(0)
            time.sleep(1.2)
            self.assertEqual(self.daemon.pool()["idle"], 0)
            self.assertExited(box.run("/bin/true"))

    def test_drain_refuses_and_resume_refills(self):
        with self.daemon.acquire() as box:
            self.call("drain")
            with self.refused("POOL_NOT_RUNNING", 503):
                self.daemon.acquire(policy="wait", wait="1s")
            self.daemon.wait_idle(0)
            self.assertExited(box.run("/bin/true"))
        self.call("resume")
        self.daemon.wait_idle(2)

    def test_readiness_and_health(self):
        self.assertEqual(self.daemon.request("GET", "/healthz").status, 200)
        self.assertEqual(self.daemon.request("GET", "/readyz").status, 200)

    def test_list_is_what_the_host_runs_b209(self):
        with self.daemon.acquire():
            self.daemon.wait_settled()
            listed = [box for box in self.daemon.sandboxes() if box["state"] != "killing"]
            self.assertEqual(len(listed), 3)
            self.assertEqual(len(self.daemon.inits()), 3)

    def test_metrics_count_what_happened(self):
        names = ("sandpool_acquire_total", "sandpool_acquire_duration_seconds_count")
        before = [self.daemon.metric_sum(name) for name in names]
        for _ in range(3):
            self.daemon.acquire(policy="wait", wait="10s").release()
            self.daemon.run("/bin/true")
        self.assertEqual([self.daemon.metric_sum(name) for name in names],
                         [count + 6 for count in before])
        self.daemon.wait_settled()
        self.assertEqual(self.daemon.metric_sum("sandpool_sandboxes", state="idle"), 2)
        self.assertEqual(self.daemon.metric_sum("sandpool_store_up"), 1)

    def test_labels_hold_no_ids_b212(self):
        boxes = [self.daemon.acquire(policy="wait", wait="10s") for _ in range(3)]
        series = set(self.daemon.metrics())
        for box in boxes:
            box.run("/bin/echo", "labelmarker")
            box.release()
        text = self.daemon.request("GET", "/metrics").body.decode()
        for box in boxes:
            self.assertNotIn(box.id, text)
        self.assertNotIn("labelmarker", text)
        self.assertLess(len(self.daemon.metrics()) - len(series), 200)


if __name__ == "__main__":
    main()
