"""For tests of what is inside an OpenSandbox sandbox: a daemon with a TCP port, sandboxes with their
tokens, raw sockets, and a WebSocket client that can also misbehave."""

import base64
import hashlib
import http.client
import json
import os
import re
import socket
import struct
import time

import sandpool_test as t
from sandpool_test import SandpoolCase, Sandbox

KEY = "execd-0123456789abcdef"
EXECD_PORT = 44772

WS_TEXT, WS_BINARY, WS_CLOSE, WS_PING, WS_PONG = 1, 2, 8, 9, 10


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Events:
    """A whole answer, taken apart."""

    def __init__(self, body):
        frames = body.split(b"\n\n")
        assert frames.pop() == b"", "the last event has no empty line behind it"
        self.list = [json.loads(frame) for frame in frames]
        assert not any(b"\n" in frame for frame in frames)

    def of(self, kind):
        return [event for event in self.list if event["type"] == kind]

    def texts(self, kind="stdout"):
        return [event["text"] for event in self.of(kind)]

    @property
    def id(self):
        return self.list[0]["text"]

    @property
    def types(self):
        return [event["type"] for event in self.list]

    @property
    def error(self):
        last = self.list[-1]
        return last["error"] if last["type"] == "error" else None

    @property
    def code(self):
        """As the SDKs see it."""
        if not self.error:
            return 0 if self.types[-1] == "execution_complete" else None
        return int(self.error["evalue"]) if self.error["evalue"].lstrip("-").isdigit() else None


class Box:
    """A sandbox of the OpenSandbox API."""

    def __init__(self, case, answer):
        self.case = case
        self.uuid = answer["id"]
        endpoint = case.ask("GET", f"/v1/sandboxes/{self.uuid}/endpoints/{EXECD_PORT}").json
        self.root = "/" + endpoint["endpoint"].partition("/")[2]
        self.headers = endpoint["headers"]

    @property
    def token(self):
        return self.headers["X-EXECD-ACCESS-TOKEN"]

    def proxy(self, port):
        return f"/v1/sandboxes/{self.uuid}/proxy/{port}"

    def execd(self, method, path, body=None, **options):
        return self.case.ask(method, self.root + path, body, headers=self.headers, **options)

    def own(self):
        """The same sandbox by our own API, which an operator may use as well."""
        return Sandbox(self.case.daemon, {"id": self.own_id, "token": self.token})

    def init_pid(self):
        """Its PID 1, on the host."""
        self.own().run("touch", "/tmp/this-one")
        found = [pid for pid in self.case.daemon.inits()
                 if os.path.exists(f"/proc/{pid}/root/tmp/this-one")]
        # Those of isolated sessions are below it.
        first = [pid for pid in found if not any(
            pid in (child for child, _name, _state in t.descendants_of(other))
            for other in found if other != pid)]
        assert len(first) == 1, found
        return first[0]


class ExecdCase(SandpoolCase):
    pools = {"default": {"max_idle": 2, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "256MiB", "pids": 128, "tmp": "64MiB"}}}

    @classmethod
    def setUpClass(cls):
        cls.tcp = free_port()
        cls.config = {"pools": cls.pools}
        original = cls.daemon_class

        def with_tcp(config, env=None):
            daemon = original(config, env=env)
            with open(f"{daemon.directory}/keys", "w", encoding="ascii") as file:
                file.write(KEY + "\n")
            os.chmod(f"{daemon.directory}/keys", 0o600)
            listen, more = cls.listen_more(daemon.directory)
            daemon.write_config({
                "listen": [f"unix://{daemon.directory}/run/sandpool.sock",
                           f"tcp://127.0.0.1:{cls.tcp}", *listen],
                "api_keys_file": f"{daemon.directory}/keys", **more})
            return daemon

        cls.daemon_class = staticmethod(with_tcp)
        try:
            super().setUpClass()
        finally:
            cls.daemon_class = original

    @classmethod
    def listen_more(cls, _directory):
        """(addresses, configuration) beside the usual."""
        return [], {}

    # -- requests --

    def ask(self, method, target, body=None, headers=None, raw=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.tcp,
                                                timeout=timeout * t.SLOW_FACTOR)
        headers = {"OPEN-SANDBOX-API-KEY": KEY, **(headers or {})}
        try:
            connection.request(method, target, raw if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return t.Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def connect(self, timeout=20):
        sock = socket.create_connection(("127.0.0.1", self.tcp), timeout=timeout * t.SLOW_FACTOR)
        self.addCleanup(sock.close)
        return sock

    def send(self, sock, method, target, headers, body=b""):
        head = f"{method} {target} HTTP/1.1\r\nHost: sandpool\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        sock.sendall(head.encode() + b"\r\n" + body)

    # -- sandboxes --

    def leased(self):
        answer = self.daemon.call("GET", "/v1/pools/-/sandboxes?state=leased")
        return {item["id"] for item in answer["sandboxes"]}

    def box(self):
        before = self.leased()
        response = self.ask("POST", "/v1/sandboxes", {
            "image": {"uri": "python:3.11"}, "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": {"cpu": "500m", "memory": "128Mi"}, "timeout": 300})
        self.assertEqual(response.status, 202, response.body)
        box = Box(self, response.json)
        box.own_id = (self.leased() - before).pop()
        self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{box.uuid}")
        return box


def receive_head(sock):
    """(status, {name in lower case: value}, what came after it)."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            raise AssertionError(f"the connection ended in the head: {data!r}")
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(re.match(r"HTTP/1\.1 (\d{3})", lines[0]).group(1))
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        headers[name.lower()] = value
    return status, headers, rest


def receive_all(sock):
    data = b""
    while True:
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not part:
            return data
        data += part


class WebSocket:
    """A client; masks as it must unless told otherwise."""

    def __init__(self, sock, target, headers, handshake=None):
        self.sock = sock
        self.data = b""
        key = base64.b64encode(os.urandom(16)).decode()
        wanted = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                  "Sec-WebSocket-Key": key, **headers, **(handshake or {})}
        head = f"GET {target} HTTP/1.1\r\nHost: sandpool\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in wanted.items() if value is not None)
        sock.sendall(head.encode() + b"\r\n")
        self.status, self.headers, self.data = receive_head(sock)
        if self.status == 101:
            digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            assert self.headers["sec-websocket-accept"] == base64.b64encode(digest).decode()

    @property
    def body(self):
        """Of an answer that is no 101."""
        length = int(self.headers["content-length"])
        while len(self.data) < length:
            self.data += self.sock.recv(65536)
        return self.data[:length]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def frame(self, opcode, payload=b"", fin=True, mask=True):
        first = (0x80 if fin else 0) | opcode
        size = len(payload)
        length = (bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
                  if size < 65536 else b"\x7f" + struct.pack(">Q", size))
        if not mask:
            return bytes([first]) + length + payload
        key = os.urandom(4)
        long_key = (key * (size // 4 + 1))[:size]
        masked = (int.from_bytes(payload, "big") ^
                  int.from_bytes(long_key, "big")).to_bytes(size, "big")
        return bytes([first, length[0] | 0x80]) + length[1:] + key + masked

    def send(self, opcode, payload=b"", **options):
        self.sock.sendall(self.frame(opcode, payload, **options))

    def json(self, **message):
        self.send(WS_TEXT, json.dumps(message).encode())

    def stdin(self, data):
        self.send(WS_BINARY, b"\0" + (data if isinstance(data, bytes) else data.encode()))

    def _need(self, size):
        while len(self.data) < size:
            part = self.sock.recv(65536)
            if not part:
                raise EOFError(f"the connection ended in a frame: {self.data!r}")
            self.data += part

    def receive(self):
        """(opcode, payload) of the next frame; PINGs are answered and skipped."""
        while True:
            self._need(2)
            size, at = self.data[1], 2
            if size == 126:
                self._need(4)
                size, at = struct.unpack(">H", self.data[2:4])[0], 4
            elif size == 127:
                self._need(10)
                size, at = struct.unpack(">Q", self.data[2:10])[0], 10
            self._need(at + size)
            first, payload = self.data[0], self.data[at:at + size]
            self.data = self.data[at + size:]
            assert first & 0x80, "a server of ours does not fragment"
            if first & 15 == WS_PING:
                self.send(WS_PONG, payload)
                continue
            return first & 15, payload

    def receive_json(self):
        """The next text message; what binary messages came before it is added to `output`."""
        while True:
            opcode, payload = self.receive()
            if opcode == WS_TEXT:
                return json.loads(payload)
            assert opcode == WS_BINARY, (opcode, payload)
            self.output += payload[1:]

    output = b""

    def read_until(self, wanted, timeout=15):
        """Output up to and with these bytes."""
        end = time.monotonic() + timeout * t.SLOW_FACTOR
        while wanted not in self.output:
            assert time.monotonic() < end, self.output
            opcode, payload = self.receive()
            assert opcode == WS_BINARY and payload[0] in (1, 2), (opcode, payload)
            self.output += payload[1:]
        before, _, self.output = self.output.partition(wanted)
        return before + wanted

    def closed(self):
        """Read to the CLOSE: (code, reason)."""
        while True:
            opcode, payload = self.receive()
            if opcode == WS_CLOSE:
                if not payload:
                    return None, ""
                return struct.unpack(">H", payload[:2])[0], payload[2:].decode()
