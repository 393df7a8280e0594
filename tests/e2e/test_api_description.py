"""openapi.yaml against what is served: the route tables, and the answers of a running daemon."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import npm  # noqa: E402
import openapi  # noqa: E402
import sandpool_test as t  # noqa: E402
from execd_case import KEY, ExecdCase, receive_head  # noqa: E402
from sandpool_test import Case, main  # noqa: E402

API = t.ROOT / "supervisor" / "api"
EXECD = "/v1/sandboxes/{uuid}/proxy/44772"
METHODS = openapi.METHODS
UNKNOWN_ID = "0123456789abcdefghjk"
UNKNOWN_UUID = "00000000-0000-4000-8000-000000000000"


def table(name, file):
    """[(method, pattern, access)] of one table of the C source."""
    text = (API / file).read_text(encoding="utf-8")
    rows = re.search(rf"{name}\[\] = \{{\n(.*?)\n\}};", text, re.S).group(1)
    return re.findall(r'\{"([A-Z*]+)",\s*"(/[^"]*)",\s*SP_ROUTE_(\w+)', rows)


def shape(path):
    return re.sub(r"\{\w+\}", "{}", path)


def served():
    """{(method, shape of the path): access}. The lifecycle API is described below /v1, where it is
    served as well, unless what is there is ours; a sandbox has one path for both forms of ids."""
    found = {}

    def add(method, path, access):
        for name in METHODS if method == "*" else (method.lower(),):
            found.setdefault((name, shape(path)), access)
    own = table("sp_routes", "route_table.c")
    shapes = {shape(pattern) for _method, pattern, _access in own}
    for method, pattern, access in own:
        add(method, pattern, access)
    for method, pattern, access in table("sp_os_routes", "route_table.c"):
        ours = shape("/v1" + pattern) in shapes and "{uuid}" not in pattern
        add(method, pattern if ours else "/v1" + pattern, access)
    for method, pattern, access in table("sp_execd_routes", "execd_route_table.c"):
        add(method, EXECD + pattern, access)
    return found


class Description(Case):
    """It says what is served, no more and no less."""

    @classmethod
    def setUpClass(cls):
        cls.document = openapi.load()
        cls.paths = cls.document["paths"]

    def operations(self):
        for path, item in self.paths.items():
            for method in METHODS:
                if method in item:
                    yield method, path, item[method]

    def test_paths_and_methods(self):
        described = {}
        for method, path, _operation in self.operations():
            # Of two paths of one shape the one with a word is not a variable's.
            self.assertNotIn((method, shape(path)), described)
            described[method, shape(path)] = path
        self.assertEqual(sorted(described), sorted(served()))

    def test_credentials(self):
        access = served()
        default = self.document["security"]
        for method, path, operation in self.operations():
            schemes = {name for item in operation.get("security", default) for name in item}
            with self.subTest(f"{method} {path}"):
                kind = access[method, shape(path)]
                if path == "/v1/sandboxes/{id}":
                    self.assertLessEqual({"token", "osKey"}, schemes)
                elif kind == "OPEN":
                    self.assertEqual(schemes, set())
                elif kind == "OPERATOR":
                    self.assertEqual(schemes, {"peer"})
                elif kind == "INSIDE":
                    self.assertEqual(schemes, {"peer", "execdToken", "token"})
                elif kind == "TOKEN":
                    self.assertIn("token", schemes)
                else:
                    self.assertIn("bearer", schemes)
                    self.assertNotIn("token", schemes)

    def test_faults(self):
        self.assertEqual(list(openapi.faults(self.document)), [])

    def test_the_linter_finds_nothing(self):
        done = subprocess.run(
            [*npm.install().program("redocly"), "lint", "--config",
             t.ROOT / "tests" / "lib" / "redocly.yaml", openapi.PATH],
            env={**os.environ, **npm.ENVIRONMENT, "REDOCLY_TELEMETRY": "off",
                 "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60 * t.SLOW_FACTOR, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_nothing_is_described_that_nobody_uses(self):
        used = set(openapi.references(self.document))
        for kind, items in self.document["components"].items():
            if kind == "securitySchemes":
                continue
            for name in items:
                if (kind, name) in (("schemas", "StreamStart"), ("schemas", "PtyFrame")):
                    continue  # what travels on a stream after 101
                self.assertIn(f"#/components/{kind}/{name}", used)

    def test_codes(self):
        header = (API.parents[1] / "pool/base/codes.h").read_text(encoding="utf-8")
        known = re.findall(r'X\(\w+, "(\w+)", \d+', header)
        self.assertEqual(self.document["components"]["schemas"]["Code"]["enum"], known)

    def test_every_own_route_is_in_the_readme(self):
        readme = (API / "README.md").read_text(encoding="utf-8")
        for _method, pattern, _access in table("sp_routes", "route_table.c"):
            pattern = pattern.replace("/-/", "/{pool}/")
            tail = "/" + pattern.rsplit("/", 1)[1]
            below = pattern.rpartition("}")[2]
            self.assertTrue(pattern in readme or f"`{tail}`" in readme or f"…{below}" in readme,
                            pattern)


class Answers(ExecdCase):
    """Plain requests to every route: each status that comes is described, and what every route of
    its kind must answer does come."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = openapi.load()
        cls.access = served()
        helper = cls("id")
        cls.shared = helper.box()
        helper._cleanups.clear()  # it lasts as long as the class

    def operations(self, without=()):
        for path, item in self.document["paths"].items():
            for method in METHODS:
                if method in item and not path.startswith(without):
                    yield method, path, item[method]

    def fill(self, path, uuid, own):
        if path.startswith(EXECD):
            path = path.replace("{port}", "9")
        if path == "/v1/sandboxes/{id}" and own == UNKNOWN_ID:
            own = uuid
        values = {"uuid": uuid, "id": own, "pool": "default", "host": "nowhere", "port": "9",
                  "key": "none", "name": "none", "tail": "x",
                  "number": "1"}
        query = "?path=/x" if re.search("/(files|directories)", path) else ""
        return re.sub(r"\{(\w+)\}", lambda match: values[match.group(1)], path) + query

    def status(self, method, target, headers, body=None):
        """Of the head alone: some bodies never end."""
        sock = self.connect()
        headers = dict(headers)
        if body is not None:
            headers["Content-Length"] = str(len(body))
        try:
            self.send(sock, method.upper(), target, headers, body or b"")
            return receive_head(sock)[0]
        finally:
            sock.close()

    def described(self, status, method, path, operation):
        self.assertIn(str(status), operation["responses"], f"{method} {path}")

    def test_without_a_credential(self):
        for method, path, operation in self.operations():
            with self.subTest(f"{method} {path}"):
                status = self.status(method, self.fill(path, self.shared.uuid,
                                                       self.shared.own_id), {})
                self.described(status, method, path, operation)
                if self.access[method, shape(path)] != "OPEN":
                    self.assertEqual(status, 401)

    def test_of_a_sandbox_that_is_none(self):
        """Who holds a key hears 404; whoever comes with a token alone, 401."""
        for method, path, operation in self.operations():
            if "{uuid}" not in path and "{id}" not in path:
                continue
            with self.subTest(f"{method} {path}"):
                headers = {"OPEN-SANDBOX-API-KEY": KEY}
                status = self.status(method, self.fill(path, UNKNOWN_UUID, UNKNOWN_ID), headers)
                self.described(status, method, path, operation)
                if not path.endswith(("/files", "/claim", "/renew", "/exec")):
                    self.assertIn(status, (404, 400, 501), "a body may be looked at first")

    def test_with_a_body_that_is_no_json(self):
        for method, path, operation in self.operations():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" not in content:
                continue
            with self.subTest(f"{method} {path}"):
                status = self.status(method, self.fill(path, self.shared.uuid,
                                                       self.shared.own_id),
                                     {"OPEN-SANDBOX-API-KEY": KEY, **self.shared.headers,
                                      "Content-Type": "application/json"}, b"{")
                self.described(status, method, path, operation)
                # What an SDK tells is not looked at.
                taken = (204,) if path.endswith("/metrics/events") else ()
                self.assertIn(status, (400, 403, 404, 422, *taken))

    def test_as_they_are_meant_but_without_a_body(self):
        """DELETE of the sandbox itself is left out: the others need it."""
        for method, path, operation in self.operations():
            if method == "delete" and path == "/v1/sandboxes/{id}":
                continue
            with self.subTest(f"{method} {path}"):
                status = self.status(method, self.fill(path, self.shared.uuid,
                                                       self.shared.own_id),
                                     {"OPEN-SANDBOX-API-KEY": KEY, **self.shared.headers,
                                      "X-Sandpool-Token": self.shared.token})
                self.described(status, method, path, operation)
                if path.endswith("/pause"):
                    self.resume()

    def resume(self):
        def running():
            self.ask("POST", f"/v1/sandboxes/{self.shared.uuid}/resume")
            state = self.ask("GET", f"/v1/sandboxes/{self.shared.uuid}").json["status"]["state"]
            return state == "Running"
        t.wait_until(running, 10, "it runs again")


if __name__ == "__main__":
    main()
