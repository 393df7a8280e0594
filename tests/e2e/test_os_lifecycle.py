"""The OpenSandbox lifecycle API on the wire: codes, bodies, limits, ends."""

import datetime
import http.client
import json
import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Daemon, free_port, main, needs_programs, needs_root, wait_until  # noqa: E402

KEY = "lifecycle-0123456789abcdef"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def wish(**more):
    """What a create says; None leaves a member out."""
    body = {"image": {"uri": "python:3.11"}, "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": {"cpu": "500m", "memory": "128Mi"}, "timeout": 60}
    body.update(more)
    return {key: value for key, value in body.items() if value is not None}


class Box(dict):
    """The answer to a create."""


def from_now(seconds):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.isoformat()


class OsCase(unittest.TestCase):
    pools = {
        "default": {"max_idle": 3, "max_lease": "2m", "images": ["python:*"],
                    "limits": {"memory": "256MiB", "cpu": 1}},
        "brief": {"max_idle": 1, "max_lease": "3s", "images": ["*"]},
        "empty": {"max_idle": 0, "images": ["python:3.9*"]},
    }

    @classmethod
    def setUpClass(cls):
        reason = needs_root() or needs_programs()
        if reason:
            cls.skipTest(cls, reason)
        cls.tcp = free_port()
        cls.daemon = Daemon({"pools": cls.pools})
        directory = cls.daemon.directory
        with open(f"{directory}/keys", "w", encoding="utf-8") as file:
            file.write(KEY + "\n")
        os.chmod(f"{directory}/keys", 0o600)
        cls.daemon.write_config({
            "listen": [f"unix://{directory}/run/sandpool.sock", f"tcp://127.0.0.1:{cls.tcp}"],
            "api_keys_file": f"{directory}/keys"})
        cls.daemon.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def ask(self, method, target, body=None, key=KEY, headers=None, raw=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=30)
        headers = dict(headers or {})
        if key is not None:
            headers["OPEN-SANDBOX-API-KEY"] = key
        try:
            connection.request(method, target, raw if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return t.Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def leased(self):
        answer = self.daemon.call("GET", "/v1/pools/-/sandboxes?state=leased")
        return {item["id"]: item for item in answer["sandboxes"]}

    def create(self, **more):
        """Its "own" is what our API says of it."""
        before = self.leased()
        response = self.ask("POST", "/v1/sandboxes", wish(**more))
        self.assertEqual(response.status, 202, response.body)
        box = Box(response.json)
        box.own, = [item for key, item in self.leased().items() if key not in before]
        self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{box['id']}")
        return box

    def get(self, box):
        return self.ask("GET", f"/v1/sandboxes/{box['id']}")

    def endpoint(self, box, port=44772):
        """(path, headers) of a port's endpoint."""
        answer = self.ask("GET", f"/v1/sandboxes/{box['id']}/endpoints/{port}").json
        host, slash, path = answer["endpoint"].partition("/")
        self.assertEqual(host, f"127.0.0.1:{self.tcp}")
        return slash + path, answer["headers"]

    def execd(self, box, method, path, body=None, headers=None):
        root, token = self.endpoint(box)
        return self.ask(method, root + path, body, headers=token if headers is None else headers)

    def assert_error(self, response, status, code):
        self.assertEqual((response.status, response.json.get("code")), (status, code), response.body)
        self.assertTrue(response.json["message"])


class Create(OsCase):
    def test_the_answer(self):
        box = self.create(metadata={"team": "a"}, platform={"os": "linux"},
                          extensions={"opensandbox.extensions.x": "1", "y": "2"})
        self.assertTrue(UUID.fullmatch(box["id"]))
        self.assertEqual(box["status"]["state"], "Running")
        self.assertEqual(box["metadata"], {"team": "a"})
        self.assertEqual(box["extensions"], {"opensandbox.extensions.x": "1"})
        self.assertEqual(box["platform"], {"os": "linux"})
        self.assertEqual(box["entrypoint"], ["tail", "-f", "/dev/null"])
        self.assertNotIn("image", box)
        for key in ("createdAt", "expiresAt"):
            self.assertTrue(TIME.fullmatch(box[key]), box[key])
        known = self.get(box).json
        self.assertEqual(known.pop("image"), {"uri": "python:3.11"})
        self.assertEqual(known, box)

    def test_what_was_not_given_is_left_out(self):
        box = self.create(timeout=None)
        self.assertEqual(set(box), {"id", "status", "createdAt", "entrypoint"})

    def test_both_spellings_of_the_root(self):
        response = self.ask("POST", "/sandboxes", wish())
        self.assertEqual(response.status, 202, response.body)
        path = f"/sandboxes/{response.json['id']}"
        self.assertEqual(self.ask("GET", path).body, self.ask("GET", "/v1" + path).body)
        self.assertEqual(self.ask("DELETE", path).status, 204)

    def test_a_pool_by_name_needs_no_image(self):
        response = self.ask("POST", "/v1/sandboxes", {"extensions": {"poolRef": "default"}})
        self.assertEqual(response.status, 202, response.body)
        self.assertEqual(response.json["entrypoint"], [])
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{response.json['id']}").status, 204)
        self.assert_error(self.ask("POST", "/v1/sandboxes", {"extensions": {"poolRef": "none"}}),
                          400, "SANDBOX::INVALID_PARAMETER")

    def test_the_most_specific_pool_serves_an_image(self):
        for image, pool in (("python:3.11", "default"), ("docker.io/library/python", "default"),
                            ("node:20", "brief"), ("python:3.9-slim", "empty")):
            with self.subTest(image):
                box = self.create(image={"uri": image}, resourceLimits={}, timeout=None)
                self.assertEqual(box.own["pool"], pool)

    def test_limits_up_to_those_of_the_pool(self):
        for limits in ({}, {"cpu": "1", "memory": "256Mi"}, {"memory": "268435456"}, {"cpu": "1000m"}):
            with self.subTest(limits):
                self.create(resourceLimits=limits)
        for limits, word in (({"cpu": "1001m"}, "cpu"), ({"memory": "268435457"}, "memory"),
                             ({"cpu": "2"}, "default"), ({"gpu": "1"}, "gpu"), ({"disk": "1"}, "disk")):
            with self.subTest(limits):
                response = self.ask("POST", "/v1/sandboxes", wish(resourceLimits=limits))
                self.assert_error(response, 400, "SANDBOX::INVALID_PARAMETER")
                self.assertIn(word, response.json["message"])

    def test_timeouts_up_to_that_of_the_pool(self):
        self.create(timeout=120)
        self.assert_error(self.ask("POST", "/v1/sandboxes", wish(timeout=121)), 400,
                          "SANDBOX::INVALID_PARAMETER")
        self.assertEqual(self.ask("POST", "/v1/sandboxes", wish(timeout=59)).status, 422)

    def test_what_breaks_the_schema_is_told_as_fastapi_does(self):
        for body, place in ((wish(image=None), ["body", "image"]), (wish(entrypoint=None),
                            ["body", "entrypoint"]), (wish(image={}), ["body", "image", "uri"])):
            response = self.ask("POST", "/v1/sandboxes", body)
            self.assertEqual(response.status, 422)
            self.assertEqual(response.json["detail"][0]["loc"], place)
            self.assertTrue(response.json["message"])
        self.assertEqual(self.ask("POST", "/v1/sandboxes", raw="{").status, 422)

    def test_what_is_not_supported_says_so(self):
        volume = {"name": "v", "mountPath": "/v", "host": {"path": "/tmp"}}
        for more in ({"volumes": [volume]}, {"credentialProxy": {"enabled": True}},
                     {"networkPolicy": {"egress": [{"action": "allow", "target": "a.org"}]}},
                     {"image": None, "snapshotId": "s"}):
            with self.subTest(more):
                self.assert_error(self.ask("POST", "/v1/sandboxes", wish(**more)), 501,
                                  "SANDBOX::API_NOT_SUPPORTED")
        self.create(networkPolicy={"defaultAction": "deny"})
        self.assertEqual(self.ask("POST", "/v1/sandboxes",
                                  wish(networkPolicy={"defaultAction": "allow"})).status, 400)

    def test_a_body_beyond_what_is_kept(self):
        response = self.ask("POST", "/v1/sandboxes", wish(env={"A": "x" * (128 << 10)}))
        self.assertEqual(response.status, 413)

    def test_the_entrypoint_runs_with_the_environment(self):
        box = self.create(env={"COLOUR": "blue", "GONE": None},
                          entrypoint=["sh", "-c", "echo $COLOUR > /tmp/it; sleep 60"])

        def said():
            answer = self.daemon.call("POST", f"/v1/sandboxes/{box.own['id']}/exec",
                                      {"argv": ["cat", "/tmp/it"]})
            return answer["stdout"] == "blue\n"
        wait_until(said, 10, "the entrypoint wrote its variable")

    def test_an_entrypoint_that_ends_does_not_end_the_sandbox(self):
        box = self.create(entrypoint=["true"])
        time.sleep(0.2)
        self.assertEqual(self.get(box).status, 200)
        self.assertEqual(self.execd(box, "GET", "/ping").status, 200)

    def test_an_entrypoint_that_cannot_start_fails_the_create(self):
        before = self.daemon.pool()["leased"]
        response = self.ask("POST", "/v1/sandboxes", wish(entrypoint=["/no/such/program"]))
        self.assert_error(response, 500, "DOCKER::SANDBOX_START_FAILED")
        self.assertEqual(self.ask("GET", "/v1/sandboxes").json["pagination"]["totalItems"], 0)
        wait_until(lambda: self.daemon.pool()["leased"] == before, 10, "its sandbox has ended")

    def test_a_client_that_leaves_leaves_nothing(self):
        def answers():
            return len(re.findall("sandbox created", self.daemon.log()))

        def listed():
            return self.ask("GET", "/v1/sandboxes?pageSize=200").json["items"]

        before = answers()
        # Out of an empty pool while one is made, out of a warm one at every step of the way.
        for image, delay in [("python:3.9", 0)] * 5 + [("python:3", n * 3e-4) for n in range(20)]:
            body = json.dumps(wish(image={"uri": image}, resourceLimits={})).encode()
            connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=30)
            connection.request("POST", "/v1/sandboxes", body, {"OPEN-SANDBOX-API-KEY": KEY})
            time.sleep(delay)
            connection.close()
        # Who was answered before he left has one: nobody else has.
        wait_until(lambda: self.daemon.pool("empty")["leased"] == 0, 10, "none is held")
        wait_until(lambda: len(listed()) <= answers() - before, 10, "one for each answer")
        for item in listed():
            self.ask("DELETE", f"/v1/sandboxes/{item['id']}")
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 10, "none is held")


class Credentials(OsCase):
    def test_keys(self):
        self.assert_error(self.ask("GET", "/v1/sandboxes", key=None), 401, "MISSING_API_KEY")
        self.assert_error(self.ask("GET", "/v1/sandboxes", key="x"), 401, "INVALID_API_KEY")
        self.assert_error(self.ask("GET", f"/v1/sandboxes/{UNKNOWN}", key="x"), 401,
                          "INVALID_API_KEY")
        self.assertEqual(self.ask("GET", "/health", key=None).json, {"status": "healthy"})
        self.assertEqual(self.ask("GET", "/v1/sandboxes", key=None,
                                  headers={"Authorization": f"Bearer {KEY}"}).status, 200)

    def test_the_key_opens_no_sandbox(self):
        box = self.create()
        path, token = self.endpoint(box)
        refusal = {"error": "Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"}
        for headers in ({}, {"X-EXECD-ACCESS-TOKEN": "0" * 64}, {"X-EXECD-ACCESS-TOKEN": KEY},
                        {"X-EXECD-ACCESS-TOKEN": ""}, {"Authorization": f"Bearer {KEY}"}):
            for below in ("/ping", "/", "/nothing"):
                response = self.ask("GET", path + below, headers=headers)
                self.assertEqual((response.status, response.json), (401, refusal))
        token = token["X-EXECD-ACCESS-TOKEN"]
        for name in ("X-EXECD-ACCESS-TOKEN", "X-Sandpool-Token"):
            response = self.ask("GET", path + "/ping", key=None, headers={name: token})
            self.assertEqual((response.status, response.body), (200, b""))
            self.assertEqual(response.headers["Content-Length"], "0")

    def test_a_token_opens_its_own_sandbox_only(self):
        one, two = self.create(), self.create()
        _, token = self.endpoint(one)
        path, _ = self.endpoint(two)
        self.assertEqual(self.ask("GET", path + "/ping", headers=token).status, 401)
        self.assertEqual(self.ask("GET", path.replace("44772", "8080"), headers=token).status, 401)

    def test_an_unknown_sandbox_looks_like_a_wrong_token(self):
        path = f"/v1/sandboxes/{UNKNOWN}/proxy/44772/ping"
        self.assertEqual(self.ask("GET", path, key=None).status, 401)
        self.assertEqual(self.ask("GET", path).status, 404)

    def test_our_secret_is_no_way_around(self):
        box = self.create()
        _, token = self.endpoint(box)
        secret = token["X-EXECD-ACCESS-TOKEN"]
        # It is the lease's own: our API takes it as well.
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{box.own['id']}", key=None,
                                  headers={"X-Sandpool-Token": secret}).status, 200)
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{box['id']}", key=None,
                                  headers={"X-Sandpool-Token": secret}).status, 401)


class Answers(OsCase):
    def test_unknown_sandboxes(self):
        for uuid in (UNKNOWN, "x", "missing-1", UNKNOWN[:-1], UNKNOWN.replace("4", "1", 1)):
            for method, path, body in (("GET", "", None), ("DELETE", "", None),
                                       ("POST", "/pause", None), ("POST", "/resume", None),
                                       ("PATCH", "/metadata", {}), ("GET", "/endpoints/80", None),
                                       ("POST", "/renew-expiration", {"expiresAt": from_now(60)})):
                with self.subTest(f"{method} {uuid}{path}"):
                    self.assert_error(self.ask(method, f"/v1/sandboxes/{uuid}{path}", body), 404,
                                      "DOCKER::SANDBOX_NOT_FOUND")

    def test_wrong_methods(self):
        response = self.ask("PUT", "/v1/sandboxes")
        self.assert_error(response, 405, "GENERAL::UNKNOWN_ERROR")
        self.assertEqual(response.headers["Allow"], "POST, GET, HEAD")

    def test_unknown_paths_of_execd(self):
        box = self.create()
        for method, path in (("GET", "/nothing"), ("POST", "/ping"), ("GET", ""), ("GET", "/ping/x")):
            response = self.execd(box, method, path)
            self.assertEqual((response.status, response.body), (404, b"404 page not found"))
            self.assertTrue(response.headers["Content-Type"].startswith("text/plain"))

    def test_request_ids(self):
        given = self.ask("GET", f"/v1/sandboxes/{UNKNOWN}", headers={"X-Request-ID": "abc"})
        self.assertEqual(given.headers["X-Request-Id"], "abc")
        made = self.ask("GET", "/v1/sandboxes").headers["X-Request-Id"]
        self.assertTrue(re.fullmatch("[0-9a-f]{32}", made), made)

    def test_what_there_is_not(self):
        box = self.create()
        path = f"/v1/sandboxes/{box['id']}"
        for method, target, code in (
                ("POST", path + "/snapshots", "SANDBOX::API_NOT_SUPPORTED"),
                ("GET", "/v1/snapshots", "SANDBOX::API_NOT_SUPPORTED"),
                ("GET", "/v1/snapshots/x", "SANDBOX::API_NOT_SUPPORTED"),
                ("DELETE", "/snapshots/x", "SANDBOX::API_NOT_SUPPORTED"),
                ("GET", path + "/diagnostics/logs", "DIAGNOSTICS_NOT_IMPLEMENTED"),
                ("GET", "/pools", "KUBERNETES::POOL_NOT_SUPPORTED"),
                ("POST", "/pools", "KUBERNETES::POOL_NOT_SUPPORTED"),
                ("DELETE", "/pools/x", "KUBERNETES::POOL_NOT_SUPPORTED")):
            with self.subTest(target):
                self.assert_error(self.ask(method, target), 501, code)
        self.assertEqual(self.ask("POST", "/v1/metrics/events", {}).status, 204)

    def test_endpoints(self):
        box = self.create()
        path = f"/v1/sandboxes/{box['id']}/endpoints"
        for port in ("0", "65536", "x", "-1"):
            self.assert_error(self.ask("GET", f"{path}/{port}"), 400, "DOCKER::INVALID_PORT")
        self.assertEqual(self.ask("GET", f"{path}/80?expires=1").status, 400)
        self.assertEqual(self.ask("GET", f"{path}/80?expires=1&use_server_proxy=true").status, 400)
        for port in ("1", "18080", "44772", "65535"):
            answer = self.ask("GET", f"{path}/{port}?use_server_proxy=false").json
            self.assertTrue(answer["endpoint"].endswith(f"/v1/sandboxes/{box['id']}/proxy/{port}"))
        answer = self.ask("GET", path[3:] + "/80", headers={"Host": "sandbox.example.com"}).json
        self.assertEqual(answer["endpoint"],
                         f"sandbox.example.com/sandboxes/{box['id']}/proxy/80")


class Listing(OsCase):
    def page(self, query):
        return self.ask("GET", f"/v1/sandboxes?{query}").json

    def test_pages_and_filters(self):
        ids = [self.create(metadata={"n": str(n), "odd": str(n % 2)})["id"] for n in range(3)]
        newest_first = ids[::-1]
        everything = self.page("")
        self.assertEqual([item["id"] for item in everything["items"]], newest_first)
        self.assertEqual(everything["pagination"], {"page": 1, "pageSize": 20, "totalItems": 3,
                                                    "totalPages": 1, "hasNextPage": False})
        first = self.page("page=1&pageSize=2")
        self.assertEqual([item["id"] for item in first["items"]], newest_first[:2])
        self.assertEqual(first["pagination"], {"page": 1, "pageSize": 2, "totalItems": 3,
                                               "totalPages": 2, "hasNextPage": True})
        self.assertEqual([item["id"] for item in self.page("page=2&pageSize=2")["items"]],
                         newest_first[2:])
        self.assertEqual(self.page("page=9")["items"], [])
        for query, wanted in (("metadata=odd%3D0", [ids[2], ids[0]]), ("metadata=odd=1", [ids[1]]),
                              ("metadata=odd%3D0%26n%3D2", [ids[2]]),
                              ("metadata=odd%253D0%2526n%253D2", [ids[2]]),
                              ("metadata=odd%3D0%26n%3D1", []), ("metadata=no%3D1", []),
                              ("state=running", newest_first), ("state=RUNNING&state=Paused",
                              newest_first), ("state=Paused", []), ("state=Nonsense", [])):
            with self.subTest(query):
                self.assertEqual([item["id"] for item in self.page(query)["items"]], wanted)

    def test_bad_queries(self):
        for query in ("metadata=x", "metadata=%3Dx", "metadata=a%3Db%26c"):
            self.assert_error(self.ask("GET", f"/v1/sandboxes?{query}"), 400,
                              "INVALID_METADATA_FORMAT")
        for query in ("page=0", "page=x", "pageSize=0", "pageSize=201", "page=%zz", "page=1.5"):
            response = self.ask("GET", f"/v1/sandboxes?{query}")
            self.assert_error(response, 422, "SANDBOX::INVALID_PARAMETER")
            self.assertEqual(response.json["detail"][0]["loc"], ["query", query.split("=")[0]])
        self.assertEqual(self.ask("GET", "/v1/sandboxes?pageSize=200").status, 200)

    def test_only_those_of_this_api(self):
        with self.daemon.acquire(policy="wait", wait="20s"):
            self.assertEqual(self.page("")["items"], [])

    def test_metadata_is_patched(self):
        box = self.create(metadata={"a": "1", "b": "2"})
        path = f"/v1/sandboxes/{box['id']}/metadata"
        answer = self.ask("PATCH", path, {"a": None, "b": "3", "c": "4", "z": None})
        self.assertEqual((answer.status, answer.json["metadata"]), (200, {"b": "3", "c": "4"}))
        for patch in ({"opensandbox.io/x": "1"}, {"a b": "1"}, {"a": "-"}):
            self.assert_error(self.ask("PATCH", path, patch), 400, "SANDBOX::INVALID_METADATA_LABEL")
        self.assertEqual(self.ask("PATCH", path, {"a": 1}).status, 422)
        self.assertEqual(self.ask("PATCH", path, [1]).status, 422)
        self.assertEqual(self.ask("PATCH", path, raw="{").status, 400)
        full = {f"k{n}": "" for n in range(62)}
        self.assertEqual(self.ask("PATCH", path, full).status, 200)
        self.assertEqual(self.ask("PATCH", path, {"one-more": ""}).status, 400)


class Ends(OsCase):
    def assert_gone(self, box, seconds):
        wait_until(lambda: self.get(box).status == 404, seconds, "the sandbox has ended")

    def test_deleted(self):
        box = self.create()
        path, token = self.endpoint(box)
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{box['id']}").status, 204)
        self.assertEqual(self.get(box).status, 404)
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{box['id']}").status, 404)
        self.assertEqual(self.ask("GET", path + "/ping", headers=token).status, 404)
        wait_until(lambda: box.own["id"] not in [item["id"] for item in self.daemon.sandboxes()], 10,
                   "it is gone from its pool")

    def renew(self, box, at):
        return self.ask("POST", f"/v1/sandboxes/{box['id']}/renew-expiration", {"expiresAt": at})

    def test_renewed(self):
        box = self.create()
        answer = self.renew(box, from_now(100))
        self.assertEqual(answer.status, 200)
        self.assertTrue(TIME.fullmatch(answer.json["expiresAt"]))
        self.assertEqual(self.get(box).json["expiresAt"][:18], answer.json["expiresAt"][:18])
        self.assert_error(self.renew(box, from_now(-1)), 400, "DOCKER::INVALID_EXPIRATION")
        self.assert_error(self.renew(box, from_now(125)), 400, "SANDBOX::INVALID_PARAMETER")
        self.assert_error(self.renew(box, "tomorrow"), 422, "SANDBOX::INVALID_PARAMETER")
        for body in ({}, {"expiresAt": 5}, {"expiresAt": None}):
            response = self.ask("POST", f"/v1/sandboxes/{box['id']}/renew-expiration", body)
            self.assert_error(response, 422, "SANDBOX::INVALID_PARAMETER")
            self.assertEqual(response.json["detail"][0]["loc"], ["body", "expiresAt"])

    def test_an_end_that_is_moved_back(self):
        box = self.create()
        self.assertEqual(self.renew(box, from_now(1)).status, 200)
        self.assert_gone(box, 5)

    def test_without_an_end_it_outlives_max_lease(self):
        box = self.create(image={"uri": "node:20"}, resourceLimits={}, timeout=None)
        self.assert_error(self.renew(box, from_now(2)), 409, "DOCKER::INVALID_EXPIRATION")
        time.sleep(5)
        self.assertEqual(self.execd(box, "GET", "/ping").status, 200)

    def test_died(self):
        box = self.create()
        inits = self.daemon.inits()
        for pid in inits:
            os.kill(pid, 9)
        self.assert_gone(box, 10)
        # The idle ones too take their time to die: nobody is to be given one of them.
        wait_until(lambda: not set(inits) & set(self.daemon.inits()), 10, "all are dead")
        self.daemon.wait_settled()

    def test_released_through_our_own_api(self):
        box = self.create()
        self.daemon.call("DELETE", f"/v1/sandboxes/{box.own['id']}")
        self.assert_gone(box, 5)

    def test_life_is_extended_by_use(self):
        box = self.create(image=None, entrypoint=None, resourceLimits=None, timeout=60,
                          extensions={"poolRef": "long", "access.renew.extend.seconds": "300"})
        self.assertEqual(self.execd(box, "GET", "/ping").status, 200)
        end = datetime.datetime.fromisoformat(self.get(box).json["expiresAt"].replace("Z", "+00:00"))
        left = (end - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        self.assertTrue(290 < left <= 300, left)

    pools = dict(OsCase.pools, long={"max_idle": 1, "max_lease": "10m"})


class Pause(OsCase):
    def change(self, box, what):
        return self.ask("POST", f"/v1/sandboxes/{box['id']}/{what}")

    def test_nothing_moves_while_it_is_paused(self):
        box = self.create(entrypoint=["sh", "-c", "while :; do echo x >> /tmp/n; sleep 0.01; done"])
        answer = self.change(box, "pause")
        self.assertEqual((answer.status, answer.body), (202, b""))
        self.assertEqual(answer.headers["Content-Length"], "0")
        self.assertEqual(self.get(box).json["status"]["state"], "Paused")
        refused = self.execd(box, "GET", "/ping")
        self.assert_error(refused, 503, "SERVICE_UNAVAILABLE")
        self.assert_error(self.change(box, "pause"), 409, "DOCKER::SANDBOX_NOT_RUNNING")
        own = self.daemon.request("POST", f"/v1/sandboxes/{box.own['id']}/exec", {"argv": ["true"]})
        self.assertEqual((own.status, own.code), (409, "CONFLICT"))
        self.assertEqual(self.change(box, "resume").status, 202)
        self.assert_error(self.change(box, "resume"), 409, "DOCKER::SANDBOX_NOT_PAUSED")
        self.assertEqual(self.execd(box, "GET", "/ping").status, 200)
        self.assertEqual(self.get(box).json["status"]["state"], "Running")

    def run_paused(self, box, seconds, argv, timeout):
        """How a command ended whose sandbox stood still for so long after its start."""
        target = f"/v1/sandboxes/{box.own['id']}/exec"
        with t.ExecStream(self.daemon.socket_path, target, None, 30) as stream:
            stream.start(argv=argv, timeout=timeout)
            stream.started()
            self.assertEqual(self.change(box, "pause").status, 202)
            time.sleep(seconds)
            self.assertEqual(self.get(box).json["status"]["state"], "Paused")
            self.assertEqual(self.change(box, "resume").status, 202)
            return stream.finish().reason

    def test_the_limit_of_a_command_waits_too(self):
        box = self.create()
        # Beyond the limit and what a kill is waited for, with more to do than a second after it.
        steps = "for i in $(seq 20); do sleep 0.1; done"
        self.assertEqual(self.run_paused(box, 9, ["sh", "-c", steps], "4s"), "exited")
        # What is left of a limit is still one.
        self.assertEqual(self.run_paused(box, 0, ["sleep", "60"], "1s"), "timeout")
        self.assertEqual(self.execd(box, "GET", "/ping").status, 200)

    def test_a_paused_sandbox_ends_all_the_same(self):
        box = self.create()
        self.assertEqual(self.change(box, "pause").status, 202)
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{box['id']}").status, 204)
        wait_until(lambda: self.daemon.pool()["leased"] == 0 and not self.daemon.pool()["killing"],
                   10, "it is gone")

    def test_an_end_that_comes_while_it_is_paused(self):
        box = self.create()
        self.assertEqual(self.change(box, "pause").status, 202)
        self.ask("POST", f"/v1/sandboxes/{box['id']}/renew-expiration", {"expiresAt": from_now(1)})
        wait_until(lambda: self.get(box).status == 404, 5, "it has ended")


if __name__ == "__main__":
    main()
