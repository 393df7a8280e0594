"""Every status that openapi.yaml has for an operation is seen here, and none that it has not.

Each answer is held against the description: status, headers, media type, and the body against its
schema, in which a member that is not described is a fault.

What to do when a route is added: `meant()` has to know how it is asked when all is well. With that it
is also asked without a credential, for a sandbox that is none or has died, with too many headers,
over the limit of connections and so on. A status of its own gets a line in the test of its kind
(test_own_files, test_execd, …) or, if no test can bring it about, one in NOT_SEEN that says why.
"""

import contextlib
import hashlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import openapi  # noqa: E402
import sandpool_test as t  # noqa: E402
from execd_case import KEY, ExecdCase  # noqa: E402
from redis_client import Server  # noqa: E402
from sandpool_test import Daemon, main  # noqa: E402

FILE = "tests/e2e/test_api_statuses.py"
MAX_CONNECTIONS = 96
HEADERS_MAX = 64
BODY_MAX = 1 << 20
EXECS_MAX = 64
OWNER = 4321  # of what is bound
UNKNOWN_ID = "0123456789abcdefghjk"
UNKNOWN_UUID = "00000000-0000-4000-8000-000000000000"
EXECD = "/v1/sandboxes/{uuid}/proxy/44772"
ISOLATED = EXECD + "/v1/isolated/session/{key}"
PORT = 8080

# (what operations, which statuses, why no test here has to see it). The first is a regular
# expression for all of an operation's name, which is its operationId, or "METHOD path" without one.
NOT_SEEN = [
    (".*", "500", "a fault of the daemon itself, or no memory; where more is behind it a test says so"),
    (".*[fF]iles?|.*(Director(y|ies)|FileInfo|Download|Upload)|(diff|commit)(Isolated|Overlay)|.*/proxy/.port./.*", "429",
     "24 calls in a sandbox have their turn and the others wait, so the daemon's limit of 32 is met "
     "only while calls whose clients left are still ending"),
    ("commitIsolated", "403", "whoever may write in an overlay may in its base, or else it is "
     "mounted read-only and nothing can be written in either"),
    ("commitOverlay", "422", "no workload can make a device"),
    ("commitOverlay", "501", "a source on a network or FUSE file system"),
    ("commitOverlay", "507", "a full file system of the host"),
    ("diffOverlay", "409", "the overlay is being committed"),
    ("run", "410", "the pool ends, or the sandbox dies, between the grant and the start"),
    ("createSandbox", "404", "the sandbox dies between its grant and its first use"),
]
# Of a host's two answers to a pause a test sees one.
FREEZES = [("(pause|resume)Sandbox", "501", "this host can freeze")]
CANNOT_FREEZE = [("pauseSandbox", "202|409", "this host cannot freeze"),
                 ("resumeSandbox", "202", "this host cannot freeze"),
                 ("exec|.*File(s|Info)?|.*Director(y|ies)", "409", "this host cannot freeze")]

# Runs inside: any method is answered, an upgrade is agreed to.
SERVER = f"""
import socket, threading
def serve(sock):
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        data += sock.recv(65536)
    if b"upgrade: test" in data.lower():
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\n"
                     b"Upgrade: test\\r\\n\\r\\n")
        sock.recv(1)
    else:
        body = b"" if data.startswith(b"HEAD ") else b"inside"
        sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\nConnection: close\\r\\n\\r\\n" + body)
    sock.close()
server = socket.create_server(("127.0.0.1", {PORT}))
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


def upload(path, data=b"x", metadata=None):
    """multipart/form-data as the SDKs send it: (body, headers)."""
    metadata = json.dumps({"path": path}) if metadata is None else metadata
    body = (b'--b\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n\r\n' +
            metadata.encode() +
            b'\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n\r\n' +
            data + b"\r\n--b--\r\n")
    return {"raw": body, "headers": {"Content-Type": "multipart/form-data; boundary=b"}}


class Statuses(ExecdCase):
    timeout_s = 300
    pools = {
        "default": {"max_idle": 3, "max_lease": "10m", "images": ["*"],
                    "limits": {"memory": "512MiB", "pids": 512, "tmp": "8MiB"}},
        "one": {"max_idle": 0, "max_total": 1, "max_lease": "10m"},
        "direct": {"backend": "direct", "direct_user": "nobody", "max_idle": 0},
    }

    # ---- asking ----

    @classmethod
    def setUpClass(cls):
        cls.document = openapi.load()
        openapi.need(openapi.jsonschema, "python3-jsonschema")
        cls.operations = {operation.name: operation
                          for operation in openapi.operations(cls.document)}
        cls.seen = set()
        cls.ran = set()
        super().setUpClass()
        helper = cls("id")
        cls.sandbox = helper.box()
        helper._cleanups.clear()  # it lasts as long as the class

    @classmethod
    def tearDownClass(cls):
        # A daemon that is told to stop waits for what runs.
        cls.daemon.request("DELETE", f"/v1/sandboxes/{cls.sandbox.uuid}")
        super().tearDownClass()

    @classmethod
    def listen_more(cls, directory):
        cls.binds = f"{directory}/binds"
        for name in ("source", "only"):
            os.makedirs(f"{cls.binds}/{name}")
            os.chown(f"{cls.binds}/{name}", OWNER, OWNER)
        return [], {"max_connections": MAX_CONNECTIONS, "allow_direct": True,
                    "pools": {"default": {"allowed_binds": [
                        cls.binds, {"path": f"{cls.binds}/only", "read_only": True}]}}}

    def credentials(self):
        return {"OPEN-SANDBOX-API-KEY": KEY, "X-EXECD-ACCESS-TOKEN": self.sandbox.token,
                "X-Sandpool-Token": self.sandbox.token}

    def connection(self, operation, local):
        """Operators are whoever comes by the Unix socket as root."""
        if local is None:
            local = operation.fields.get("security") == [{"peer": []}]
        if local:
            return t.UnixConnection(self.at.socket_path, 30 * t.SLOW_FACTOR)
        return http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=30 * t.SLOW_FACTOR)

    def target(self, operation, variables, query):
        values = {"uuid": self.sandbox.uuid, "id": self.sandbox.own_id, "pool": "default",
                  "host": "nowhere", "port": "9", "key": "none", "name": "none", "tail": "x", "number": "1",
                  **variables}
        path = re.sub(r"\{(\w+)\}", lambda match: str(values[match.group(1)]), operation.path)
        return path + (f"?{query}" if query else "")

    def send_request(self, connection, method, target, headers, raw):
        """A header whose value is a list is sent as often."""
        connection.putrequest(method, target, skip_accept_encoding=True)
        if raw is not None:
            connection.putheader("Content-Length", str(len(raw)))
        for header, value in headers.items():
            for one in value if isinstance(value, list) else [value]:
                connection.putheader(header, one)
        with contextlib.suppress(BrokenPipeError):  # it may refuse before it has read the body
            connection.endheaders(raw)

    def ask_for(self, name, *expected, body=None, raw=None, headers=None, query="", known=True,
                local=None, **variables):
        """Ask and judge. Whatever is in braces in the path may be given by name."""
        operation = self.operations[name]
        sent = {**(self.credentials() if known else {}), **(headers or {})}
        if body is not None:
            raw = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = self.connection(operation, local)
        try:
            self.send_request(connection, operation.method,
                              self.target(operation, variables, query), sent, raw)
            response = connection.getresponse()
            endless = name == "watchSandboxMetrics" and response.status == 200
            data = response.readline() if endless else response.read()
        finally:
            connection.close()
        found = {header.lower(): value for header, value in response.getheaders()}
        self.seen.add((name, str(response.status)))
        faults = list(openapi.faults_of_answer(operation, response.status, found, data))
        self.assertEqual(faults, [], f"{operation} -> {response.status}")
        if expected:
            self.assertIn(response.status, expected,
                          f"{operation} {data[:300]!r} (how {name} is asked for: {FILE})")
        return t.Response(response.status, found, data)

    def each(self, condition, act):
        """act(name, operation) for those, each a subtest."""
        for name, operation in self.operations.items():
            if condition(operation):
                with self.subTest(name):
                    act(name, operation)

    def kind(self, operation):
        schemes = {scheme for item in operation.fields.get("security", self.document["security"])
                   for scheme in item}
        return "open" if not schemes else "operator" if schemes == {"peer"} else "other"

    # ---- what there is to ask for ----

    at = property(lambda self: self.daemon)

    def acquire(self, pool="default", **body):
        response = self.daemon.call("POST", f"/v1/pools/{pool}/acquire",
                                    {"policy": "create", "wait": "20s", **body})
        self.addCleanup(self.daemon.request, "DELETE", f"/v1/sandboxes/{response['id']}")
        return response

    def made(self, name, member, **options):
        return self.ask_for(name, **{**self.meant(name), **options}).json[member]

    def inside(self, command):
        response = self.ask_for("runCommand", 200, body={"command": command})
        self.assertIn(b"execution_complete", response.body)

    def file(self, path="/tmp/file", mode="644"):
        self.inside(f"mkdir -p $(dirname {path}) && rm -rf {path} && printf 'one\\ntwo\\n' > {path} "
                    f"&& chmod {mode} {path}")
        return path

    def meant_files(self, verb, place=""):
        """Of the three APIs for files, by what follows their prefix in the path."""
        path = self.file(f"{place}/tmp/{secrets.token_hex(4)}/file")
        asked = {
            "get files": {"query": f"path={path}"},
            "get files/download": {"query": f"path={path}"},
            "put files": {"query": f"path={path}", "raw": b"new"},
            "delete files": {"query": f"path={path}"},
            "get files/info": {"query": f"path={path}"},
            "get files/search": {"query": f"path={os.path.dirname(path)}&pattern=*"},
            "post files/replace": {"query": "verbose=true", "body": {path: {"old": "o", "new": "x"}}},
            "post files/mv": {"body": [{"src": path, "dest": path + ".moved"}]},
            "post files/permissions": {"body": {path: {"mode": 600}}},
            "post files/upload": upload(path),
            "get directories/list": {"query": f"path={os.path.dirname(path)}"},
            "post directories": {"body": {path + ".d": {"mode": 755}}},
            "delete directories": {"query": f"path={os.path.dirname(path)}"},
        }
        return asked[verb]

    def meant(self, name):
        """How an operation is asked for so that it succeeds."""
        operation = self.operations[name]
        for prefix in ("/v1/sandboxes/{id}/", ISOLATED + "/", EXECD + "/"):
            rest = operation.path.removeprefix(prefix)
            if rest != operation.path and re.match("(files|directories)", rest):
                asked = self.meant_files(f"{operation.method.lower()} {rest}")
                if prefix.startswith(ISOLATED):
                    asked["key"] = self.isolated_session("rw", "/tmp")
                return asked
        if "/proxy/{port}/" in operation.path:
            self.server_inside()
            return {"port": PORT}
        make = getattr(self, "meant_" + name, None) if name.isidentifier() else None
        return make() if make else {}

    def isolated_session(self, mode="overlay", path="/workspace"):
        """One for each kind."""
        if (mode, path) not in self.sessions:
            answer = self.ask_for("createIsolated", 201,
                                  body={"workspace": {"path": path, "mode": mode}})
            self.sessions[mode, path] = answer.json["session_id"]
        return self.sessions[mode, path]

    sessions = {}

    def server_inside(self):
        if "server" in self.sessions:
            return
        self.sessions["server"] = True
        self.ask_for("runCommand", 200, body={
            "command": f"exec python3 -c '{SERVER}'", "background": True})

        def listens():
            with self.subTest("unjudged"):
                return self.ask("GET", self.sandbox.proxy(PORT) + "/",
                                headers=self.credentials()).status == 200
        t.wait_until(listens, 20, "a server listens inside")

    def meant_acquire(self):
        return {"body": {"policy": "create", "wait": "20s", "ttl": "2s"}}

    def meant_run(self):
        return {"body": {"argv": ["true"], "policy": "create", "wait": "20s"}}

    def meant_exec(self):
        return {"body": {"argv": ["true"]}}

    def overlay(self, source="source", **more):
        """How one is asked for, in a sandbox of its own that lasts as long as the test."""
        bind = {"source": f"{self.binds}/{source}", "target": "/workspace", "mode": "overlay"}
        box = self.acquire(binds=[{**bind, **more}])
        return {"id": box["id"], "headers": {"X-Sandpool-Token": box["token"]}}

    def meant_listOverlays(self):
        return self.overlay()

    meant_diffOverlay = meant_commitOverlay = meant_listOverlays

    def meant_releaseSandbox(self):
        box = self.acquire()
        return {"id": box["id"], "headers": {"X-Sandpool-Token": box["token"]}}

    def meant_getSandbox(self):
        return {"id": self.sandbox.own_id}

    def meant_renewSandbox(self):
        return {"body": {"ttl": "5m"}}

    def meant_resizePool(self):
        return {"body": {"max_idle": 3}}

    def meant_resumePool(self):
        return {"pool": "one", "body": {}}

    def meant_drainPool(self):
        return {"pool": "one", "body": {}}

    def meant_createSandbox(self):
        return {"body": {"image": {"uri": "python:3.11"}, "entrypoint": ["sleep", "1000"],
                         "resourceLimits": {"cpu": "500m", "memory": "128Mi"}, "timeout": 60}}

    def meant_patchMetadata(self):
        return {"body": {"some": "label", "other": None}}

    def meant_renewExpiration(self):
        return {"body": {"expiresAt": time.strftime("%Y-%m-%dT%H:%M:%SZ",
                                                    time.gmtime(time.time() + 300))}}

    def meant_getEndpoint(self):
        return {"port": 44772}

    def meant_postEvent(self):
        return {"body": {"eventType": "sandbox.create", "success": True, "createDurationMs": 3}}

    def meant_runCommand(self):
        return {"body": {"command": "echo out; echo err >&2"}}

    def background(self, command="echo out; sleep 100"):
        answer = self.ask_for("runCommand", 200, body={"command": command, "background": True})
        return json.loads(answer.body.split(b"\n")[0])["text"]

    def meant_interruptCommand(self):
        return {"query": f"id={self.background()}"}

    meant_interruptCode = meant_interruptCommand

    def meant_getCommandStatus(self):
        return {"key": self.background("true")}

    def meant_getCommandLogs(self):
        return {"key": self.background("echo out")}

    def meant_createSession(self):
        return {"body": {"cwd": "/tmp"}}

    def meant_deleteSession(self):
        return {"key": self.made("createSession", "session_id")}

    def meant_runInSession(self):
        if "shell" not in self.sessions:
            self.sessions["shell"] = self.made("createSession", "session_id")
        return {"key": self.sessions["shell"], "body": {"command": "echo out"}}

    def meant_runCode(self):
        return {"body": {"code": "1 + 1", "context": {"language": "python"}}}

    def meant_createContext(self):
        return {"body": {"language": "python"}}

    def meant_deleteContexts(self):
        return {"query": "language=bash"}

    def meant_getContext(self):
        if "context" not in self.sessions:
            self.sessions["context"] = self.made("createContext", "id")
        return {"key": self.sessions["context"]}

    def meant_deleteContext(self):
        return {"key": self.made("createContext", "id")}

    def meant_getPty(self):
        if "pty" not in self.sessions:
            self.sessions["pty"] = self.made("createPty", "session_id")
        return {"key": self.sessions["pty"]}

    def meant_deletePty(self):
        return {"key": self.made("createPty", "session_id")}

    def meant_openPty(self):
        return {**self.meant_getPty(), "query": "takeover=1", "headers": {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}}

    def meant_createIsolated(self):
        return {"body": {"workspace": {"path": "/workspace"}}}

    def meant_getIsolated(self):
        return {"key": self.isolated_session()}

    meant_diffIsolated = meant_commitIsolated = meant_getIsolated

    def meant_deleteIsolated(self):
        return {"key": self.made("createIsolated", "session_id")}

    def meant_runIsolated(self):
        return {"key": self.isolated_session(), "body": {"code": "echo out"}}

    # ---- what all have in common ----

    def test_1_as_meant(self):
        """Each succeeds when it is asked for as meant, or is one of those that are not offered."""
        def act(name, operation):
            good = [int(status) for status in operation.responses if status < "300"]
            asked = self.meant(name)
            if "101" in operation.responses and name != "openPty":
                good.remove(101)
            if not good:
                good = [400, 501, 503]
            if name in ("pauseSandbox", "listHosts", "drainHost", "resumeHost"):
                good.append(501)
            if name == "resumeSandbox":
                good += [409, 501]
            self.ask_for(name, *good, **asked)
            if name == "pauseSandbox":
                self.go_on()
        self.each(lambda operation: operation.name != "reload", act)

    def go_on(self):
        def running():
            self.ask("POST", f"/v1/sandboxes/{self.sandbox.uuid}/resume")
            state = self.ask("GET", f"/v1/sandboxes/{self.sandbox.uuid}").json["status"]["state"]
            return state == "Running"
        t.wait_until(running, 10, "it runs again")

    def test_without_a_credential(self):
        self.each(lambda operation: self.kind(operation) != "open",
                  lambda name, _operation: self.ask_for(name, 401, known=False, local=False))

    def test_operators_only(self):
        """A key is not enough."""
        self.each(lambda operation: self.kind(operation) == "operator",
                  lambda name, _operation: self.ask_for(name, 403, local=False))

    def test_of_what_there_is_not(self):
        def act(name, operation):
            unknown = {"id": UNKNOWN_ID, "uuid": UNKNOWN_UUID, "pool": "nosuch"}
            asked = {**self.meant(name), **unknown}
            if operation.path == "/v1/sandboxes/{id}":
                self.ask_for(name, 404, **{**asked, "id": UNKNOWN_UUID})
            self.ask_for(name, 404, **asked)
        self.each(lambda operation: re.search(r"\{(id|uuid|pool)\}", operation.path), act)

    def test_malformed(self):
        twice = {"X-Request-Id": ["one", "two"]}
        self.each(lambda _operation: True,
                  lambda name, _operation: self.ask_for(name, 400, headers=twice))

    def test_too_large(self):
        """One header too many, and where there may be a body one that is too long."""
        def act(name, operation):
            many = {f"X-Fill-{i}": "x" for i in range(HEADERS_MAX + 1)}
            self.ask_for(name, 413, headers=many)
            content = operation.fields.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                self.ask_for(name, 413, **{**self.meant(name), "body": None,
                                           "raw": b" " * (BODY_MAX + 1)})
        self.each(lambda _operation: True, act)

    def test_too_many_connections(self):
        """What is beyond the limit of TCP is told so, whatever it asks for."""
        held = []
        try:
            for _ in range(MAX_CONNECTIONS):
                held.append(socket.create_connection(("127.0.0.1", self.tcp), timeout=20))
            t.wait_until(lambda: self.ask("GET", "/healthz").status == 503, 10, "it is full")
            self.each(lambda _operation: True,
                      lambda name, _operation: self.ask_for(name, 503, local=False))
        finally:
            for sock in held:
                sock.close()
        t.wait_until(lambda: self.ask("GET", "/healthz").status == 200, 10, "there is room again")

    def kill_init(self, box):
        """Of the sandbox: from the outside, as the kernel would for want of memory."""
        namespace = self.daemon.call("POST", f"/v1/sandboxes/{box['id']}/exec",
                                     {"argv": ["readlink", "/proc/self/ns/pid"]})["stdout"].strip()
        for pid in self.daemon.inits():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                    os.kill(pid, signal.SIGKILL)
                    return
        self.fail(f"no init in {namespace}")

    def test_of_a_sandbox_that_died(self):
        box = self.acquire()
        self.kill_init(box)
        token = {"X-Sandpool-Token": box["token"]}

        def dead():
            return self.ask("GET", f"/v1/sandboxes/{box['id']}", headers=token).status == 410
        t.wait_until(dead, 10, "it is known to be dead")

        def act(name, _operation):
            asked = self.meant(name)
            self.ask_for(name, 410, **{**asked, "id": box["id"],
                                       "headers": {**asked.get("headers", {}), **token}})
        self.each(lambda operation: "/v1/sandboxes/{id}" in operation.path and
                  operation.name != "releaseSandbox", act)
        self.ask_for("releaseSandbox", 204, id=box["id"], headers=token)

    def test_of_a_sandbox_that_is_paused(self):
        asked = {name: self.meant(name) for name in self.operations}
        if self.ask_for("pauseSandbox").status == 501:
            self.skipTest("this host cannot freeze")
        try:
            self.ask_for("pauseSandbox", 409)

            def act(name, operation):
                expected = 409 if "{id}" in operation.path else 503
                self.ask_for(name, expected, **asked[name])
            self.each(lambda operation: re.search(r"\{id\}/(exec|files|directories)|\{uuid\}/proxy/",
                                                  operation.path), act)
        finally:
            self.ask_for("resumeSandbox", 202)
        self.ask_for("resumeSandbox", 409)

    # ---- our own API ----

    @contextlib.contextmanager
    def full_pool(self):
        """The pool that may have one sandbox has one."""
        def empty():
            pool = self.daemon.pool("one")
            return pool["leased"] + pool["killing"] + pool["creating"] == 0
        t.wait_until(empty, 20, "what the pool had is gone")
        held = self.acquire("one")
        yield
        self.daemon.call("DELETE", f"/v1/sandboxes/{held['id']}")

    def test_own_acquire(self):
        bind = {"source": self.binds + "/source", "target": "/mnt"}
        lease = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
        for name in ("acquire", "run"):
            more = {"argv": ["true"]} if name == "run" else {}
            wish = {"policy": "create", "wait": "20s", **more}
            with self.subTest(name):
                self.ask_for(name, 400, body={**wish, "policy": "hope"})
                self.ask_for(name, 403, body={**wish, "binds": [{"source": "/etc"}]})
                self.ask_for(name, 422, body={**wish, "binds": [{**bind, "target": "/usr/nosuch"}]})
                self.ask_for(name, 501, pool="direct", body={**wish, "binds": [bind]})
                with self.full_pool():
                    self.ask_for(name, 429, pool="one", body=wish)
        wish = {"policy": "create", "wait": "20s", "lease": lease}
        held = self.ask_for("acquire", 200, body={**wish, "ttl": "60s"}).json
        self.ask_for("acquire", 409, body={**wish, "ttl": "61s"})
        self.daemon.call("DELETE", f"/v1/sandboxes/{held['id']}")
        self.ask_for("acquire", 410, body={"lease": lease})

    def test_own_exec(self):
        stream = {"Connection": "Upgrade", "Upgrade": "sandpool-exec"}
        self.ask_for("run", 101, headers=stream)
        self.ask_for("exec", 101, headers=stream)
        self.ask_for("exec", 400, body={"argv": []})
        box = self.acquire("direct")
        self.ask_for("exec", 403, id=box["id"], body={"argv": ["true"], "uid": 1},
                     headers={"X-Sandpool-Token": box["token"]})

    def test_own_reload(self):
        self.ask_for("reload", 204)
        with open(self.daemon.config_path, encoding="utf-8") as file:
            good = file.read()
        try:
            with open(self.daemon.config_path, "w", encoding="utf-8") as file:
                file.write("{")
            self.ask_for("reload", 422)
        finally:
            with open(self.daemon.config_path, "w", encoding="utf-8") as file:
                file.write(good)
        for _ in range(50):  # two at once
            first = t.UnixConnection(self.daemon.socket_path, 30)
            first.request("POST", "/v1/reload")
            answer = self.ask_for("reload", 204, 409)
            first.getresponse().read()
            first.close()
            if answer.status == 409:
                return

    def test_own_files(self):
        file, closed = self.file("/tmp/a"), self.file("/tmp/b", "000")
        head = self.ask_for("getFile", 200, query=f"path={file}").headers
        self.ask_for("getFile", 200, query=f"path={file}&offset=1&limit=1")
        self.ask_for("getFile", 206, query=f"path={file}", headers={"Range": "bytes=0-1"})
        self.ask_for("getFile", 416, query=f"path={file}", headers={"Range": "bytes=99-"})
        self.ask_for("getFile", 304, query=f"path={file}",
                     headers={"If-Modified-Since": head["last-modified"]})
        self.ask_for("getFile", 403, query=f"path={closed}")
        self.ask_for("putFile", 507, query="path=/tmp/big", raw=bytes(9 << 20))
        self.ask_for("moveFiles", 409, body=[{"src": file, "dest": closed}])
        # In a directory that is root's alone, and below a file as if it was one.
        for status, place in ((403, "/root"), (422, file)):
            path = place + "/x"
            self.ask_for("getFile", status, query=f"path={path}")
            self.ask_for("putFile", status, query=f"path={path}", raw=b"x")
            self.ask_for("deleteFiles", status, query=f"path={path}")
            self.ask_for("getFileInfo", status, query=f"path={path}")
            self.ask_for("searchFiles", status, query=f"path={path}&pattern=*")
            self.ask_for("replaceInFiles", status, body={path: {"old": "a", "new": "b"}})
            self.ask_for("moveFiles", status, body=[{"src": path, "dest": "/tmp/moved"}])
            self.ask_for("changeFiles", status, body={path: {"mode": 600}})
            self.ask_for("listDirectory", status, query=f"path={path}")
            self.ask_for("makeDirectories", status, body={path: {"mode": 755}})
            self.ask_for("deleteDirectories", status, query=f"path={path}")

    def test_own_files_without_room(self):
        """Neither for data nor for names."""
        with self.another_sandbox():
            self.inside("head -c 5M /dev/zero | tr '\\0' a > /tmp/half")
            self.ask_for("replaceInFiles", 507, body={"/tmp/half": {"old": "a", "new": "bb"}})
            self.inside("cd /data && seq 70000 | xargs touch 2>/dev/null; ! touch /data/more")
            self.ask_for("makeDirectories", 507, body={"/data/d": {"mode": 755}})
            self.ask_for("moveFiles", 507, body=[{"src": "/tmp/half", "dest": "/data/half"}])

    def test_own_overlays(self):
        asked = self.overlay()
        self.ask_for("diffOverlay", 206, **{**asked, "headers": {**asked["headers"],
                                                                 "Range": "bytes=0-1"}})
        self.ask_for("diffOverlay", 416, **{**asked, "headers": {**asked["headers"],
                                                                 "Range": "bytes=999999-"}})
        later = {"If-Modified-Since": "Fri, 31 Dec 2100 00:00:00 GMT"}
        self.ask_for("diffOverlay", 304, **{**asked, "headers": {**asked["headers"], **later}})
        for name in ("diffOverlay", "commitOverlay"):
            self.ask_for(name, 404, number=8, **asked)
        with open(f"{self.binds}/source/new", "w", encoding="ascii"):
            pass  # by somebody else
        self.ask_for("commitOverlay", 409, **asked)
        self.ask_for("commitOverlay", 403, **self.overlay("only"))
        full = self.overlay(size="1MiB")
        self.ask_for("exec", 200, body={"shell": "head -c 900K /dev/urandom > big"}, **full)
        self.ask_for("diffOverlay", 413, **full)

    # ---- the lifecycle API ----

    def test_lifecycle(self):
        create = self.meant("createSandbox")["body"]
        refused = {"createSandbox": [
            (400, {**create, "timeout": 10 ** 9}), (422, {**create, "timeout": "soon"}),
            (501, {**create, "volumes": [{"name": "v", "mountPath": "/v", "host": {"path": "/"}}]}),
            (500, {**create, "entrypoint": ["/no/such/program"]})],
            "patchMetadata": [(400, {"opensandbox.io/x": "y"}), (422, {"x": 1})],
            "renewExpiration": [(400, {"expiresAt": "2001-01-01T00:00:00Z"}), (422, {})]}
        for name, rows in refused.items():
            for status, body in rows:
                with self.subTest(name, status=status):
                    self.ask_for(name, status, body=body)
        with self.subTest("createSandbox", status=429):
            with self.full_pool():
                self.ask_for("createSandbox", 429,
                             body={**create, "extensions": {"poolRef": "one"}})
        lasting = self.ask_for("createSandbox", 202, body={**create, "timeout": None}).json["id"]
        self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{lasting}")
        self.ask_for("renewExpiration", 409, uuid=lasting, **self.meant("renewExpiration"))
        self.ask_for("getSandbox", 200, id=lasting)
        self.ask_for("getSandbox", 401, id=lasting, known=False,
                     headers={"OPEN-SANDBOX-API-KEY": "no key of ours"})
        self.ask_for("releaseSandbox", 204, id=lasting)
        self.ask_for("listSandboxesOfApi", 400, query="metadata=%25")
        self.ask_for("getEndpoint", 400, port="0")
        self.ask_for("getEndpoint", 400, port=PORT, query="expires=1")
        self.ask_for("listSandboxesOfApi", 422, query="page=0")

    def test_lifecycle_proxy(self):
        self.server_inside()
        upgrade = {"Connection": "Upgrade", "Upgrade": "test"}

        def act(name, operation):
            self.ask_for(name, 502, port=9)
            self.ask_for(name, 400, port=0)
            self.ask_for(name, 101, port=PORT, headers=upgrade)
        self.each(lambda operation: "/proxy/{port}/" in operation.path, act)

    # ---- execd ----

    def test_execd_runs(self):
        """500 is what execd says of ids that it does not know, where the contract has it so."""
        self.ask_for("runCommand", 400, body={"command": ""})
        self.ask_for("interruptCommand", 500, query="id=nosuch")
        self.ask_for("interruptCommand", 400)
        self.ask_for("getCommandStatus", 404, key="nosuch")
        self.ask_for("getCommandLogs", 400, key="nosuch")
        self.ask_for("runInSession", 500, key="nosuch", body={"command": "true"})
        self.ask_for("deleteSession", 404, key="nosuch")
        self.ask_for("runCode", 500, body={"code": "1", "context": {"language": "cobol"}})
        self.ask_for("deleteContexts", 400)
        for name in ("getContext", "deleteContext", "getPty", "deletePty", "openPty"):
            self.ask_for(name, 404, key="nosuch")

    def test_execd_terminal(self):
        asked = self.meant("openPty")
        self.ask_for("openPty", 400, key=asked["key"])
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp, timeout=20)
        connection.request("GET", self.target(self.operations["openPty"], asked, "takeover=1"),
                           headers={**self.credentials(), **asked["headers"]})
        self.assertEqual(connection.getresponse().status, 101)
        self.ask_for("openPty", 409, **{**asked, "query": ""})
        connection.close()

    def test_execd_downloads(self):
        for name in ("execdDownload", "isolatedExecdDownload"):
            asked = self.meant(name)

            def again(status, more="", name=name, asked=asked, **headers):
                return self.ask_for(name, status, **{
                    **asked, "query": asked["query"] + more,
                    "headers": {key.replace("_", "-"): value for key, value in headers.items()}})
            head = again(200).headers
            again(200, "&offset=1&limit=1")
            again(206, Range="bytes=0-1")
            again(304, If_Modified_Since=head["last-modified"])
            again(400, "&offset=0")
            again(416, Range="bytes=99-")
            self.ask_for(name, 404, **{**asked, "query": "path=/tmp/nosuch"})

    @contextlib.contextmanager
    def another_sandbox(self):
        """All that is asked for is asked of it."""
        with unittest.mock.patch.multiple(Statuses, sandbox=self.box(), sessions={}):
            yield

    def test_execd_too_many(self):
        """At the limit of each kind in one sandbox."""
        with self.another_sandbox():
            asked = {name: self.meant(name) for name in (
                "exec", "runCommand", "runInSession", "runIsolated")}
            asked["runCode"] = {"body": {"code": "true", "context": {"language": "command"}}}
            for name, limit in (("createSession", 32), ("createPty", 16), ("createContext", 16),
                                ("createIsolated", 32), ("runCommand", EXECS_MAX)):
                body = {"command": "exec sleep 1000", "background": True}
                request = {"body": body} if name == "runCommand" else self.meant(name)
                made = [self.ask_for(name, **request).status for _ in range(limit + 1)]
                self.assertEqual(made[-1], 429, name)
            for name, request in asked.items():
                with self.subTest(name):
                    self.ask_for(name, 429, **request)

    def test_execd_events_of_a_failure(self):
        for name in ("runCommand", "runInSession", "runIsolated"):
            key = "code" if name == "runIsolated" else "command"
            answer = self.ask_for(name, 200, **{**self.meant(name), "body": {key: "exit 3"}})
            self.assertIn(b'"evalue":"3"', answer.body)
        self.ask_for("runCode", 200, body={"code": "1 / 0", "context": {"language": "python"}})

    def test_execd_diff(self):
        self.ask_for("diffIsolated", 409, key=self.isolated_session("rw"))
        full = self.isolated_session("overlay", "/mnt")
        self.ask_for("runIsolated", 200, key=full,
                     body={"code": "head -c 7M /dev/urandom > big; wc -c big"})
        self.ask_for("diffIsolated", 413, key=full)

    def test_execd_commit(self):
        self.ask_for("commitIsolated", 409, key=self.isolated_session("rw"))
        with self.another_sandbox():
            self.inside("head -c 7M /dev/zero > /data/most")
            key = self.isolated_session("overlay", "/data")
            self.ask_for("runIsolated", 200, key=key,
                         body={"code": "head -c 3M /dev/zero > new; ls -l new"})
            self.ask_for("commitIsolated", 507, key=key)

    # ---- a store that hosts share ----

    def test_hosts(self):
        with tempfile.TemporaryDirectory() as _directory, Server("--unixsocketperm", "777") as server:
            os.chmod(server.directory, 0o755)
            with Daemon({"store": f"unix://{server.path}", "host": "node-1"}) as daemon:
                with unittest.mock.patch.object(Statuses, "at", daemon):
                    self.ask_for("listHosts", 200)
                    # A secret that holds another one.
                    daemon.wait_settled()
                    with daemon.acquire() as held:
                        idle = next(one["id"] for one in daemon.sandboxes()
                                    if one["state"] == "idle")
                        self.ask_for("claimSandbox", 409, local=True, id=idle,
                                     headers=held.headers())
                    for name in ("drainHost", "resumeHost"):
                        self.ask_for(name, 204, host="node-1")
                        self.ask_for(name, 404, host="nosuch")

    # ---- all of it ----

    def test_zz_all_of_them_were_seen(self):
        """Runs last; alone, it runs the others first."""
        for name in unittest.defaultTestLoader.getTestCaseNames(Statuses):
            if name not in self.ran and name != self._testMethodName:
                getattr(self, name)()
        described = {(name, status) for name, operation in self.operations.items()
                     for status in operation.responses}
        rows = NOT_SEEN + (CANNOT_FREEZE if ("pauseSandbox", "501") in self.seen else FREEZES)
        used = set()
        for name, status in sorted(described - self.seen):
            reasons = [row for row in rows
                       if re.fullmatch(row[0], name) and re.fullmatch(row[1], status)]
            used.update(reasons)
            if not reasons:
                with self.subTest(name, status=status):
                    self.fail(f"nothing in {FILE} brings about the {status} of {name}: ask for it "
                              "in the test of its kind, or say why not in NOT_SEEN")
        self.assertEqual(set(rows) - used, set(), "given as NOT_SEEN, and all of it was seen")

    def setUp(self):
        self.ran.add(self._testMethodName)


if __name__ == "__main__":
    main()
