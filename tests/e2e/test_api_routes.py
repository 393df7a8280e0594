"""Every route with its documented answers, who may use it, and what numbers and names it takes."""

import http.client
import json
import os
import pathlib
import re
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Case, Daemon, SandpoolCase, main, needs_programs, needs_root  # noqa: E402

UNKNOWN = "0123456789abcdefghjk"
KEY = "sesame-open-0123456789abcdef"
API = t.ROOT / "supervisor" / "api"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Routes(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2}, "empty": {"max_idle": 0}}}

    def ask(self, method, target, body=None, **headers):
        return self.daemon.request(method, target, body,
                                   {name.replace("_", "-"): value for name, value in headers.items()})

    def test_health(self):
        self.daemon.wait_settled()
        for path, text in (("/healthz", b"ok\n"), ("/readyz", b"ready\n")):
            response = self.ask("GET", path)
            self.assertEqual((response.status, response.body), (200, text))
            self.assertTrue(response.headers["Content-Type"].startswith("text/plain"))
            response = self.ask("HEAD", path)
            self.assertEqual((response.status, response.body), (200, b""))

    def test_metrics(self):
        response = self.ask("GET", "/metrics")
        self.assertEqual(response.status, 200)
        self.assertTrue(response.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        self.assertIn(b"sandpool_sandboxes{", response.body)

    def test_version(self):
        answer = self.daemon.call("GET", "/v1/version")
        self.assertEqual(sorted(answer), ["build", "protocol", "version"])
        self.assertEqual(answer["protocol"], 1)

    def test_config_hides_secrets(self):
        self.assertIn("pools", self.daemon.call("GET", "/v1/config"))

    def test_pools(self):
        pools = self.daemon.call("GET", "/v1/pools")["pools"]
        self.assertEqual([pool["name"] for pool in pools], ["default", "empty"])
        documented = set(re.findall(r"^        (\w+):", schema("Pool"), re.M))
        for pool in pools:
            self.assertEqual(set(pool), documented)
            self.assertEqual(self.daemon.pool(pool["name"])["limits"], pool["limits"])
        self.assertEqual(self.ask("GET", "/v1/pools/none").code, "POOL_NOT_FOUND")
        self.assertEqual(self.ask("GET", "/v1/pools/NONE").code, "POOL_NOT_FOUND")

    def test_acquire_inspect_renew_release(self):
        box = self.daemon.acquire(policy="wait", wait="20s", ttl="2m")
        self.assertRegex(box.id, "^[0-9abcdefghjkmnpqrstvwxyz]{20}$")
        self.assertRegex(box.token, "^[0-9a-f]{64}$")
        self.assertRegex(box.answer["lease"], "^[0-9a-f]{64}$")
        self.assertEqual(box.answer["endpoint"], f"unix://{self.daemon.socket_path}")
        self.assertRegex(box.answer["expires_at"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        seen = box.inspect()
        self.assertEqual((seen["id"], seen["state"], seen["pool"]), (box.id, "leased", "default"))
        self.assertNotIn("token", seen)
        documented = set(re.findall(r"^        (\w+):", schema("Sandbox"), re.M))
        self.assertEqual(set(seen) | {"token", "end_reason", "host"}, documented)
        self.assertGreater(box.renew("5m")["remaining_ms"], 290_000)
        self.assertIsNone(box.release())
        gone = self.ask("GET", f"/v1/sandboxes/{box.id}", X_Sandpool_Token=box.token)
        self.assertIn((gone.status, gone.json.get("state")), ((200, "killing"), (404, None),
                                                              (410, None)))

    def test_list_and_its_filters(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            ids = [item["id"] for item in self.daemon.sandboxes()]
            self.assertIn(box.id, ids)
            leased = self.daemon.call("GET", "/v1/pools/default/sandboxes?state=leased")["sandboxes"]
            self.assertEqual({item["state"] for item in leased}, {"leased"})
            self.assertIn(box.id, [item["id"] for item in leased])
            self.assertEqual(self.daemon.call("GET", "/v1/pools/empty/sandboxes")["sandboxes"], [])
            self.assertEqual(self.ask("GET", "/v1/pools/none/sandboxes").code, "POOL_NOT_FOUND")
            for query in ("pool", "pool=", "pool=A", "state=x", "state=%6ceased", "x=y", "pool=a%00"):
                with self.subTest(query):
                    self.assertEqual(self.ask("GET", f"/v1/pools/-/sandboxes?{query}").code,
                                     "INVALID_ARGUMENT")

    def test_unknown_ids_all_look_alike(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            answers = set()
            for sandbox in (UNKNOWN, "x", "A" * 20, "0" * 21, box.id[:-1], ".."):
                for method, path, body in (("GET", "", None), ("DELETE", "", None),
                                           ("POST", "/renew", {"ttl": 1}),
                                           ("POST", "/exec", {"argv": ["true"]})):
                    response = self.ask(method, f"/v1/sandboxes/{sandbox}{path}", body)
                    answers.add((response.status, response.body))
            self.assertEqual(len(answers), 1, answers)
            status, text = answers.pop()
            self.assertEqual((status, json.loads(text)["code"]), (404, "NOT_FOUND"))

    def test_sizes_of_a_pool(self):
        self.assertEqual(self.ask("POST", "/v1/pools/empty/resize", {"max_idle": 1}).json["max_idle"],
                         1)
        self.daemon.wait_idle(1, "empty")
        answer = self.daemon.call("POST", "/v1/pools/empty/resize", {"max_idle": 0, "max_total": 9})
        self.assertEqual((answer["max_idle"], answer["max_total"]), (0, 9))
        self.daemon.call("POST", "/v1/pools/empty/resize", {"max_total": 0})
        for body in ({}, {"max_idle": -1}, {"max_idle": 20001}, {"max_idle": "1"}, {"max_idle": 1.5},
                     {"max_idle": 2 ** 63}, {"maxidle": 1}, {"max_total": 2 ** 32}):
            with self.subTest(body):
                self.assertEqual(self.ask("POST", "/v1/pools/empty/resize", body).code,
                                 "INVALID_ARGUMENT")
        self.assertEqual(self.ask("POST", "/v1/pools/none/resize", {"max_idle": 1}).code,
                         "POOL_NOT_FOUND")

    def test_drain_and_resume(self):
        self.assertIn(self.daemon.call("POST", "/v1/pools/empty/drain")["state"],
                      ("draining", "stopped"))
        self.assertEqual(self.ask("POST", "/v1/pools/empty/acquire").code, "POOL_NOT_RUNNING")
        self.assertEqual(self.daemon.call("POST", "/v1/pools/empty/resume")["state"], "running")
        self.assertEqual(self.ask("POST", "/v1/pools/empty/acquire").code, "POOL_EMPTY")
        self.assertEqual(self.ask("POST", "/v1/pools/empty/drain", {"now": True}).code,
                         "INVALID_ARGUMENT")

    def test_reload(self):
        response = self.ask("POST", "/v1/reload")
        self.assertEqual((response.status, response.body), (204, b""))
        self.assertEqual(self.ask("POST", "/v1/reload", {"x": 1}).code, "INVALID_ARGUMENT")

    def test_unavailable_says_when_to_try_again(self):
        response = self.ask("POST", "/v1/pools/empty/acquire")
        self.assertEqual((response.status, response.code), (503, "POOL_EMPTY"))
        self.assertEqual(response.headers["Retry-After"], "1")

    def test_paths_and_methods_that_are_not_served(self):
        for method, target in (("GET", "/"), ("GET", "/v1"), ("GET", "/v1/pools/"),
                               ("POST", "/v1/pools//acquire"), ("GET", "/healthz/")):
            response = self.ask(method, target)
            self.assertEqual((response.status, response.code), (404, "NOT_FOUND"), target)
        for method, target, allow in (("PUT", "/healthz", "GET, HEAD"),
                                      ("GET", "/v1/reload", "POST"),
                                      ("PATCH", f"/v1/sandboxes/{UNKNOWN}", "GET, HEAD, DELETE"),
                                      ("OPTIONS", "/v1/pools", "GET, HEAD"),
                                      ("BREW", "/v1/pools", "GET, HEAD")):
            response = self.ask(method, target)
            self.assertEqual((response.status, response.code), (405, "METHOD_NOT_ALLOWED"), target)
            self.assertEqual(response.headers["Allow"], allow)

    def test_request_ids(self):
        for given in ("x", "a" * 128, "!~"):
            self.assertEqual(self.ask("GET", "/healthz", X_Request_Id=given).headers["X-Request-Id"],
                             given)
        for given in ("a" * 129, "a b", ""):
            made = self.ask("GET", "/healthz", X_Request_Id=given).headers["X-Request-Id"]
            self.assertRegex(made, "^[0-9a-z]{8}-[0-9]+$")
        self.assertEqual(self.ask("GET", "/none", X_Request_Id="e").headers["X-Request-Id"], "e")

    def test_durations(self):
        # value → accepted as the ttl of an acquire; a pool without idle ones then says so
        values = ((0, False), (-1, False), (2 ** 31, True), (2 ** 63, False), (1e308, False),
                  ("abc", False), (0.5, True), ("10s", True), ("10", False), ("", False),
                  (None, False), (True, False), ([], False))
        for value, accepted in values:
            with self.subTest(value):
                response = self.ask("POST", "/v1/pools/empty/acquire", {"ttl": value})
                self.assertEqual(response.code, "POOL_EMPTY" if accepted else "INVALID_ARGUMENT")
        self.assertEqual(self.ask("POST", "/v1/pools/empty/acquire").code, "POOL_EMPTY")
        for raw in (b'{"ttl": 1e999}', b'{"ttl": NaN}', b'{"ttl": 0x10}', b'{"ttl": 1, "ttl": 2}',
                    b"[]", b"{", b'{"ttl": "\\u0000"}', b'{"ttl": "\xff"}'):
            with self.subTest(raw):
                response = self.daemon.request("POST", "/v1/pools/empty/acquire", raw=raw)
                self.assertEqual(response.code, "INVALID_ARGUMENT")

    def test_renewals(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            for value in (0, -1, 2 ** 31, 2 ** 63, 1e308, "abc", None):
                with self.subTest(value), self.refused("INVALID_ARGUMENT", 400):
                    box.renew(value)
            for body in (None, {}):
                response = self.ask("POST", f"/v1/sandboxes/{box.id}/renew", body)
                self.assertEqual(response.code, "INVALID_ARGUMENT")
            box.renew(0.5)

    def test_messages_name_the_member(self):
        for body, word in (({"wiat": 1}, "'wiat'"), ({"policy": "now"}, "'policy'"),
                           ({"binds": [{"source": "/a", "mode": "x"}]}, "'binds[0].mode'"),
                           ({"lease": "zz"}, "'lease'"), ({"wait": {}}, "'wait'")):
            response = self.ask("POST", "/v1/pools/empty/acquire", body)
            self.assertEqual(response.code, "INVALID_ARGUMENT")
            self.assertIn(word, response.json["message"])

    def test_a_lease_of_ones_own_gives_the_same_sandbox(self):
        lease = "ab" * 32
        first = self.daemon.acquire(policy="wait", wait="20s", lease=lease)
        with first:
            self.assertIsNone(first.token)
            again = self.daemon.acquire(policy="wait", wait="20s", lease=lease)
            self.assertEqual(again.id, first.id)


class PlainExec(SandpoolCase):
    def post(self, target, body):
        return self.daemon.request("POST", target, body)

    def run_plain(self, **start):
        start.setdefault("policy", "wait")
        start.setdefault("wait", "20s")
        response = self.post("/v1/pools/default/run", start)
        self.assertEqual(response.status, 200, response)
        return response.json

    def test_text(self):
        answer = self.run_plain(shell="printf 'h\\303\\244\\n'; printf oops >&2; exit 3")
        self.assertEqual((answer["stdout"], answer["stderr"], answer["encoding"]),
                         ("hä\n", "oops", "utf-8"))
        self.assertEqual((answer["result"]["reason"], answer["result"]["exit_code"]), ("exited", 3))
        documented = set(re.findall(r"^        (\w+):", schema("Result"), re.M))
        self.assertEqual(set(answer["result"]) | {"stage", "message"}, documented)

    def test_bytes(self):
        import base64
        answer = self.run_plain(shell="head -c 100000 /dev/urandom | tee /dev/stderr")
        self.assertEqual(answer["encoding"], "base64")
        data = base64.b64decode(answer["stdout"])
        self.assertEqual(len(data), 100000)
        self.assertEqual(data, base64.b64decode(answer["stderr"]))

    def test_control_bytes_are_not_escaped_six_times_b156(self):
        response = self.post("/v1/pools/default/run",
                             {"shell": "head -c 3000000 /dev/zero | tr '\\0' '\\001'",
                              "policy": "wait", "wait": "20s"})
        self.assertEqual(response.json["encoding"], "base64")
        self.assertLess(len(response.body), 4_100_000)

    def test_stdin_text_of_several_windows(self):
        text = "".join(f"line {number}\n" for number in range(60_000))
        self.assertGreater(len(text), 2 * t.STDIN_WINDOW)
        answer = self.run_plain(argv=["/bin/cat"], stdin_text=text)
        self.assertEqual(answer["stdout"], text)
        self.assertEqual(self.run_plain(argv=["/bin/cat"], stdin_text="")["stdout"], "")
        self.assertEqual(self.run_plain(argv=["/bin/cat"])["stdout"], "")

    def test_stdin_that_nobody_reads_b162(self):
        answer = self.run_plain(argv=["/bin/true"], stdin_text="x" * 900_000)
        self.assertEqual(answer["result"]["exit_code"], 0)

    def test_programs_that_cannot_start_b166(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box:
            for argv, code in ((["/no/such"], 127), (["/tmp"], 126), (["/etc/passwd"], 126)):
                answer = self.post(f"/v1/sandboxes/{box.id}/exec", {"argv": argv}).json
                self.assertEqual(answer["result"]["reason"], "start_failed", answer)
                self.assertEqual(answer["result"]["exit_code"], code, answer)
                self.assertTrue(answer["result"]["message"])
            self.assertEqual(self.post(f"/v1/sandboxes/{box.id}/exec",
                                       {"argv": ["/bin/echo", "ok"]}).json["stdout"], "ok\n")

    def test_output_limit(self):
        answer = self.run_plain(argv=["/usr/bin/head", "-c", "5000", "/dev/zero"], output_limit=100)
        self.assertTrue(answer["result"]["stdout_truncated"])
        response = self.post("/v1/pools/default/run",
                             {"argv": ["true"], "output_limit": (16 << 20) + 1})
        self.assertEqual(response.code, "INVALID_ARGUMENT")
        self.assertIn("output_limit", response.json["message"])

    def test_members_of_the_stream_are_unknown_here(self):
        for body in ({"argv": ["true"], "stdin": True}, {}, {"argv": []}, {"shell": 1}):
            self.assertEqual(self.post("/v1/pools/default/run", body).code, "INVALID_ARGUMENT")


class Credentials(Case):
    """The same routes over TCP, with and without keys and tokens."""

    @classmethod
    def setUpClass(cls):
        reason = needs_root() or needs_programs()
        if reason:
            cls.skipTest(cls, reason)
        cls.tcp = free_port()
        cls.daemon = Daemon({"pools": {"default": {"max_idle": 2}}})
        directory = cls.daemon.directory
        listen = [f"unix://{directory}/run/sandpool.sock", f"tcp://127.0.0.1:{cls.tcp}"]
        with open(f"{directory}/keys", "w", encoding="utf-8") as file:
            file.write(f"another-key-0123456789\n{KEY}\n")
        os.chmod(f"{directory}/keys", 0o600)
        cls.daemon.write_config({"listen": listen, "api_keys_file": f"{directory}/keys"})
        cls.daemon.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def ask(self, method, target, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=20)
        try:
            connection.request(method, target, json.dumps(body) if body is not None else None,
                               headers)
            response = connection.getresponse()
            return t.Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def test_health_is_open(self):
        for path in ("/healthz", "/readyz"):
            self.assertEqual(self.ask("GET", path).status, 200)

    def test_everything_else_wants_a_key(self):
        for method, target in (("GET", "/metrics"), ("GET", "/v1/version"), ("GET", "/v1/pools"),
                               ("POST", "/v1/pools/default/acquire"),
                               ("POST", "/v1/pools/default/run"), ("GET", "/v1/pools/-/sandboxes"),
                               ("POST", "/v1/reload"), ("GET", "/v1/config"),
                               ("POST", "/v1/pools/default/drain"),
                               ("GET", f"/v1/sandboxes/{UNKNOWN}"),
                               ("DELETE", f"/v1/sandboxes/{UNKNOWN}")):
            response = self.ask(method, target)
            self.assertEqual((response.status, response.code), (401, "UNAUTHORIZED"), target)
            self.assertEqual(response.headers["WWW-Authenticate"], "Bearer")

    def test_wrong_keys(self):
        for headers in ({"X_API_Key": KEY[:-1]}, {"X_API_Key": KEY + "x"}, {"X_API_Key": ""},
                        {"Authorization": f"Basic {KEY}"}, {"Authorization": "Bearer "},
                        {"Authorization": KEY}, {"X_API_Key": KEY[:-1] + "x"}):
            with self.subTest(headers):
                self.assertEqual(self.ask("GET", "/v1/pools", **headers).status, 401)

    def test_right_keys(self):
        for headers in ({"X_API_Key": KEY}, {"Authorization": f"Bearer {KEY}"},
                        {"Authorization": f"bearer {KEY}"},
                        {"X_API_Key": "another-key-0123456789"}):
            with self.subTest(headers):
                self.assertEqual(self.ask("GET", "/v1/pools", **headers).status, 200)
        self.assertEqual(self.ask("GET", "/metrics", X_API_Key=KEY).status, 200)

    def test_a_key_makes_no_operator(self):
        for method, target in (("GET", "/v1/pools/-/sandboxes"), ("POST", "/v1/reload"),
                               ("GET", "/v1/config"), ("POST", "/v1/pools/default/drain"),
                               ("POST", "/v1/pools/default/resize")):
            response = self.ask(method, target, X_API_Key=KEY)
            self.assertEqual((response.status, response.code), (403, "FORBIDDEN"), target)

    def test_the_token_alone_rules_the_sandbox(self):
        answer = self.ask("POST", "/v1/pools/default/acquire", {"policy": "wait", "wait": "20s"},
                          X_API_Key=KEY)
        self.assertEqual(answer.status, 200, answer)
        box = answer.json
        path = f"/v1/sandboxes/{box['id']}"
        foreign = self.ask("GET", path, X_Sandpool_Token="0" * 64)
        unknown = self.ask("GET", f"/v1/sandboxes/{UNKNOWN}", X_Sandpool_Token="0" * 64)
        keyed = self.ask("GET", path, X_API_Key=KEY)
        self.assertEqual((foreign.status, foreign.body), (unknown.status, unknown.body))
        self.assertEqual((keyed.status, keyed.body), (unknown.status, unknown.body))
        self.assertEqual(self.ask("GET", path, X_Sandpool_Token=box["token"]).status, 200)
        run = self.ask("POST", f"{path}/exec", {"argv": ["/bin/echo", "hi"]},
                       X_Sandpool_Token=box["token"])
        self.assertEqual(run.json["stdout"], "hi\n")
        self.assertEqual(self.ask("DELETE", path, X_Sandpool_Token=box["token"]).status, 204)

    def test_the_daemon_lists_no_key(self):
        self.assertNotIn(KEY, json.dumps(self.daemon.call("GET", "/v1/config")))
        self.assertNotIn(KEY, self.daemon.log())


def schema(name):
    """The text of one schema of openapi.yaml."""
    text = (API / "openapi.yaml").read_text(encoding="utf-8")
    match = re.search(rf"^    {name}:\n(.*?)(?=^    \w|\Z)", text, re.M | re.S)
    properties = match.group(1)
    return properties[properties.index("properties:"):]


if __name__ == "__main__":
    main()
