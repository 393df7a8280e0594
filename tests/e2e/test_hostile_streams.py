"""Streams that flood, clients of them that do not read, and clients that leave at every byte: what
neighbours notice of it, and what is left."""

import contextlib
import json
import os
import select
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from execd_case import ExecdCase, KEY, WS_BINARY, WebSocket, free_port, receive_head  # noqa: E402
from sandpool_test import main, wait_until  # noqa: E402
from test_api_tls import make_certificate  # noqa: E402

MIB = 1 << 20
# Of a stream whose client does not read: two queues' worth, and what libmicrohttpd has.
STREAM_KIB = 1024
PORT = 8080

# A client that reads from as many streams as it is given and forgets it all: as fast as it can, or a
# piece of each and then a pause. It asks for them, or is given them. "reading" when all of them flow.
READER = r"""
import os, select, socket, sys, time
path, pause = sys.argv[1], float(sys.argv[2])
poll, socks, totals = select.poll(), {}, {}
for word in sys.argv[3:]:
    if path == "given":
        sock = socket.socket(fileno=int(word))
    elif path.isdigit():
        sock = socket.socket()
        if pause:  # what the kernel holds would be filled at full speed
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        sock.connect(("127.0.0.1", int(path)))
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
    if path != "given":
        sock.sendall(bytes.fromhex(word))
    socks[sock.fileno()] = sock
    totals[sock.fileno()] = 0
    poll.register(sock, select.POLLIN)
buffer, flowing = bytearray(1 << (14 if pause else 18)), False
while True:
    for number, _ in poll.poll():
        got = socks[number].recv_into(buffer)
        if got == 0:
            print("ended", totals[number], bytes(buffer[:500]), flush=True)
            poll.unregister(number)
        totals[number] += got
    if not flowing and min(totals.values()) > 65536:
        print("reading", flush=True)
        flowing = True
    if pause:
        time.sleep(pause)
"""

# Answers on PORT without an end, to a request or to an Upgrade.
SERVER = r"""
import socket, threading
def serve(sock):
    data = sock.recv(65536)
    if b"Upgrade" in data:
        import base64, hashlib, re
        key = re.search(rb"(?i)sec-websocket-key: (.*)\r\n", data).group(1)
        accept = base64.b64encode(hashlib.sha1(
            key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                     b"Upgrade: websocket\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    else:
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    try:
        while True: sock.sendall(b"y\n" * 32768)
    except OSError: pass
listener = socket.create_server(("127.0.0.1", %d))
print("ready", flush=True)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
""" % PORT

SPIN = "import sys\nprint('reading', flush=True)\nwhile True: pass\n"


def frame(kind, payload=b""):
    return struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload


def head(method, target, headers, body=b""):
    return (f"{method} {target} HTTP/1.1\r\nHost: sandpool\r\n" +
            "".join(f"{name}: {value}\r\n" for name, value in headers.items()) +
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


UPGRADE = {"Connection": "Upgrade", "Upgrade": "sandpool-exec"}


def upgrade(target, headers):
    """To a WebSocket."""
    return head("GET", target, {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers})


class HostileCase(ExecdCase):
    pools = {"default": {"max_idle": 2, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "512MiB", "pids": 256, "tmp": "64MiB",
                                    "output": "1TiB"}}}

    def exec_request(self, sandbox, argv):
        """The bytes of a framed exec."""
        return (head("POST", f"/v1/sandboxes/{sandbox.id}/exec",
                     {**UPGRADE, "X-Sandpool-Token": sandbox.token}) +
                frame(t.FRAME_START, json.dumps({"argv": argv}).encode()))

    def own_box(self):
        """A sandbox of our API and its token."""
        sandbox = self.daemon.acquire(policy="create", wait="20s")
        self.addCleanup(sandbox.release)
        return sandbox

    def serve(self, box):
        """SERVER in it, to the end of the test."""
        stream = box.own().stream(timeout=300)
        self.addCleanup(stream.close)
        stream.begin(argv=[t.PYTHON, "-c", SERVER])
        stream.read_stdout(b"ready\n")


BATCHES = 4  # of rounds, at most


class FloodCase(HostileCase):
    """How long a neighbour's exec takes beside a flood, of what is to be held against it: `ways` are
    {(name of a method that makes it, how many): medians}."""

    ROUNDS = 4  # and as many again while others on this machine blur the medians
    SECONDS = 1.9

    def setUp(self):
        self.noisy, self.neighbour = self.own_box(), self.own_box()
        self.event_box = self.box()

    @contextlib.contextmanager
    def outside(self, *argv, given=()):
        process = subprocess.Popen([t.PYTHON, "-c", *argv], stdout=subprocess.PIPE, pass_fds=given)
        try:
            self.assertEqual(process.stdout.readline(), b"reading\n", "the flood begins")
            yield
            if process.poll() is not None or select_readable(process.stdout):
                self.fail(f"the flood ended: {process.stdout.readline()}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @contextlib.contextmanager
    def silent(self, count):
        """yes that nobody hears, and a client that works for nothing."""
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stream = stack.enter_context(self.noisy.stream(timeout=60))
                stream.begin(shell="exec yes >/dev/null")
            stack.enter_context(self.outside(SPIN))
            yield

    @contextlib.contextmanager
    def quiet(self, _count):
        yield

    def read(self, path, requests, pause=0):
        return self.outside(READER, str(path), str(pause), *[request.hex() for request in requests])

    @contextlib.contextmanager
    def framed(self, count, pause=0):
        request = self.exec_request(self.noisy, ["yes"])
        with self.read(self.daemon.socket_path, [request] * count, pause):
            yield

    @contextlib.contextmanager
    def events(self, count, pause=0):
        box = self.event_box
        body = json.dumps({"command": "exec yes"}).encode()
        with self.read(self.tcp, [head("POST", box.root + "/command", box.headers, body)] * count,
                       pause):
            yield
        # These outlive their client.
        box.own().shell("pkill -9 -x yes; true")

    @contextlib.contextmanager
    def terminals(self, count, pause=0):
        box = self.event_box
        with contextlib.ExitStack() as stack:
            clients = []
            for _ in range(count):
                key = box.execd("POST", "/pty", {}).json["session_id"]
                stack.callback(box.execd, "DELETE", f"/pty/{key}")
                sock = stack.enter_context(socket.socket())
                if pause:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                sock.settimeout(30 * t.SLOW_FACTOR)
                sock.connect(("127.0.0.1", self.tcp))
                clients.append(WebSocket(sock, f"{box.root}/pty/{key}/ws", box.headers))
                clients[-1].receive_json()
                clients[-1].read_until(b"$ ")
            numbers = [client.sock.fileno() for client in clients]
            for client in clients:
                client.stdin("exec yes\n")
                client.sock.setblocking(True)
            with self.outside(READER, "given", str(pause), *map(str, numbers), given=numbers):
                yield

    def proxied(self, count, pause=0):
        box = self.event_box
        return self.read(self.tcp, [head("GET", box.proxy(PORT) + "/", box.headers)] * count, pause)

    def downloads(self, count, pause=0):
        box = self.event_box
        return self.read(self.tcp, [head("GET", box.root + "/files/download?path=/workspace/long",
                                         box.headers)] * count, pause)

    def median_ms(self, stream):
        times = []
        end = time.monotonic() + self.SECONDS
        while time.monotonic() < end or len(times) < 5:
            start = time.perf_counter()
            self.assertEqual(stream.run(argv=["/bin/true"]).exit_code, 0)
            times.append((time.perf_counter() - start) * 1000)
        return statistics.median(times)

    def measure(self, ways, stream, pause):
        peak = 0
        for _ in range(self.ROUNDS):
            for (name, count), medians in ways.items():
                more = (pause,) if pause and name not in ("quiet", "silent") else ()
                with getattr(self, name)(count, *more):
                    medians.append(self.median_ms(stream))
                    peak = max(peak, t.rss_kib(self.daemon.pid))
        return peak

    def too_slow(self, ways, basis, last):
        """Those whose last so many medians are."""
        return {way: medians for way, medians in ways.items()
                if statistics.median(medians[-last:]) >=
                2 * statistics.median(ways[basis, way[1]][-last:])}

    def compare(self, basis, names, counts=(1, 8), pause=0):
        """None may cost a neighbour more than twice what `basis` does. A wake-up that finds both
        processors busy waits for a tick of 4 ms or does not, for seconds on end: who is within the
        bound in some rounds, beside what it is held against in the same ones, has met it."""
        ways = {(name, count): [] for count in counts for name in (basis, *names)}
        slow = dict(ways)
        before = t.rss_kib(self.daemon.pid)
        peak = 0
        with self.neighbour.stream(timeout=300) as stream:
            for batch in range(1, BATCHES + 1):
                peak = max(peak, self.measure(ways, stream, pause) - before)
                for last in (self.ROUNDS, batch * self.ROUNDS):
                    now = self.too_slow(ways, basis, last)
                    slow = {way: medians for way, medians in slow.items() if way in now}
                # A sanitizer slows the daemon and nothing else.
                if t.SLOW_FACTOR != 1 or not slow:
                    break
        print({f"{name} {count}": [round(one, 2) for one in medians]
               for (name, count), medians in ways.items()}, "ms; RSS +", peak, "KiB")
        if t.SLOW_FACTOR == 1:
            self.assertEqual(slow, {})
            self.assertLess(peak, max(counts) * STREAM_KIB + 4096)


def select_readable(file):
    return bool(select.select([file], [], [], 0)[0])


class Readers(HostileCase):
    """Every kind of stream with a client that has asked and reads nothing."""

    @classmethod
    def listen_more(cls, directory):
        make_certificate(directory)
        cls.tls_port = free_port()
        return [f"tls://127.0.0.1:{cls.tls_port}"], {
            "tls_certificate_file": f"{directory}/cert.pem",
            "tls_key_file": f"{directory}/key.pem"}

    def open(self, method, target, headers, body=b""):
        sock = socket.socket()
        # What the kernel holds for a client is the kernel's bound.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(30 * t.SLOW_FACTOR)
        self.addCleanup(sock.close)
        sock.connect(("127.0.0.1", self.tcp))
        sock.sendall(head(method, target, headers, body))
        return sock

    def secure(self, request):
        context = ssl.create_default_context(cafile=f"{self.daemon.directory}/cert.pem")
        sock = context.wrap_socket(socket.create_connection(("127.0.0.1", self.tls_port)),
                                   server_hostname="localhost")
        self.addCleanup(sock.close)
        sock.sendall(request)
        return sock

    def post(self, box, path, **body):
        return self.open("POST", box.root + path, box.headers, json.dumps(body).encode())

    def streams(self, box, own):
        """{kind: socket}"""
        cat = "exec cat /dev/zero"
        for sandbox in (own, box.own()):
            sandbox.put("/workspace/big", b"z" * (32 * MIB), 0o644)
        session = box.execd("POST", "/session", {}).json["session_id"]
        isolated = box.execd("POST", "/v1/isolated/session", {
            "workspace": {"path": "/workspace", "mode": "rw"}}).json["session_id"]
        context = box.execd("POST", "/code/context", {"language": "python"}).json["id"]
        pty = box.execd("POST", "/pty", {}).json["session_id"]
        socks = {
            "framed": self.open("POST", f"/v1/sandboxes/{own.id}/exec",
                                {**UPGRADE, "X-Sandpool-Token": own.token}),
            "framed in TLS": self.secure(self.exec_request(own, ["cat", "/dev/zero"])),
            "command": self.post(box, "/command", command=cat),
            "yes": self.post(box, "/command", command="exec yes"),
            "session": self.post(box, f"/session/{session}/run", command="cat /dev/zero"),
            "isolated": self.post(box, f"/v1/isolated/session/{isolated}/run",
                                  code="cat /dev/zero"),
            "code": self.post(box, "/code", context={"id": context, "language": "python"},
                              code="while True: print('x' * 1000)"),
            "download": self.open("GET", box.root + "/files/download?path=/workspace/big",
                                  box.headers),
            "download in ranges": self.open(
                "GET", f"/v1/sandboxes/{own.id}/files?path=/workspace/big",
                {"X-Sandpool-Token": own.token, "Range": "bytes=1-33000000"}),
            "watch": self.open("GET", box.root + "/metrics/watch", box.headers),
            "proxy": self.open("GET", box.proxy(PORT) + "/", box.headers),
        }
        socks["framed"].sendall(frame(t.FRAME_START, json.dumps(
            {"argv": ["cat", "/dev/zero"]}).encode()))
        terminal = WebSocket(self.connect(), f"{box.root}/pty/{pty}/ws", box.headers)
        terminal.stdin("exec cat /dev/zero\n")
        socks["terminal"] = terminal.sock
        tunnel = WebSocket(self.connect(), box.proxy(PORT) + "/tunnel", box.headers)
        self.assertEqual(tunnel.status, 101)
        socks["tunnel"] = tunnel.sock
        return socks

    def cpu_ticks(self):
        total = 0
        for pid in t.cgroup_processes(self.daemon.instance):
            fields = t.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if len(fields) > 12:
                total += int(fields[11]) + int(fields[12])
        return total

    def test_they_stop_their_programs_and_hold_little(self):
        box, own = self.box(), self.own_box()
        self.serve(box)
        self.daemon.wait_settled()
        quiet_fds, quiet_kib = t.fd_count(self.daemon.pid), t.rss_kib(self.daemon.pid)
        socks = self.streams(box, own)

        def stand_still():
            before = self.cpu_ticks()
            time.sleep(0.5)
            return self.cpu_ticks() - before <= 1
        wait_until(stand_still, 20, "what writes for nobody waits", 0.01)
        if t.SLOW_FACTOR == 1:
            self.assertLess(t.rss_kib(self.daemon.pid) - quiet_kib, len(socks) * STREAM_KIB + 8192)
        self.assertEqual(self.daemon.run("echo", "neighbour").text, "neighbour")
        # One that begins to read gets more than was held for it.
        for kind in ("framed", "framed in TLS", "command", "proxy", "download", "tunnel"):
            got = 0
            while got < 4 * MIB:
                try:
                    piece = socks[kind].recv(MIB)
                except TimeoutError:
                    self.fail(f"{kind}: nothing after {got} bytes")
                self.assertTrue(piece, kind)
                got += len(piece)
        for sock in socks.values():
            sock.close()
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{box.uuid}").status, 204)
        own.release()
        wait_until(lambda: t.fd_count(self.daemon.pid) <= quiet_fds, 20, "nothing is left of them")


class Leavers(HostileCase):
    """Clients that leave at every byte of an exchange, theirs and ours."""

    LENGTH_MAX = 1000

    def setUp(self):
        self.sandbox = self.box()
        self.inside = self.own_box()
        # What the first of its kind makes stays: a cgroup, a session's shell.
        self.inside.run("true")
        self.sandbox.execd("POST", "/command", {"command": "true"})
        self.session = self.sandbox.execd("POST", "/session", {}).json["session_id"]
        self.isolated = self.sandbox.execd("POST", "/v1/isolated/session", {
            "workspace": {"path": "/workspace", "mode": "rw"}}).json["session_id"]
        self.terminal = self.sandbox.execd("POST", "/pty", {}).json["session_id"]
        with self.attach() as client:
            client.receive_json()
            client.read_until(b"$ ")
        self.serve(self.sandbox)
        self.daemon.wait_settled()
        time.sleep(0.2)
        self.quiet = self.state()

    def attach(self):
        return WebSocket(self.connect(), f"{self.sandbox.root}/pty/{self.terminal}/ws",
                         self.sandbox.headers)

    def state(self):
        """What may not grow."""
        listed = self.ask("GET", "/v1/sandboxes?pageSize=1").json["pagination"]["totalItems"]
        return {"fds": t.held_count(self.daemon.pid), "leased": self.daemon.pool()["leased"],
                "sandboxes": listed, "processes": len(t.cgroup_processes(self.daemon.instance)),
                "files": self.inside.shell("ls -A /workspace").text}

    def leave(self, request, read, how):
        """Send `request`, read so many bytes of the answer, and go."""
        sock = socket.create_connection(("127.0.0.1", self.tcp), 20 * t.SLOW_FACTOR)
        sock.sendall(request)
        while read > 0:
            piece = sock.recv(read)
            if not piece:
                break
            read -= len(piece)
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == "half":
            sock.shutdown(socket.SHUT_WR)
        sock.close()

    def exchanges(self):
        box, own = self.sandbox, self.inside
        execd = {**box.headers}
        text = json.dumps({"command": "echo out; echo err >&2"}).encode()
        code = json.dumps({"code": "echo out"}).encode()
        upload = (b'--X\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n\r\n'
                  b'{"path":"/workspace/file"}\r\n--X\r\nContent-Disposition: form-data; name="file"; '
                  b'filename="file"\r\n\r\ncontent\r\n--X--\r\n')
        return {
            "framed": self.exec_request(self.inside, ["echo", "hi"]),
            "plain": head("POST", f"/v1/sandboxes/{own.id}/exec",
                          {"X-Sandpool-Token": own.token}, b'{"argv":["echo","hi"]}'),
            "command": head("POST", box.root + "/command", execd, text),
            "session": head("POST", f"{box.root}/session/{self.session}/run", execd, text),
            "isolated": head("POST", f"{box.root}/v1/isolated/session/{self.isolated}/run", execd,
                             code),
            "upload": head("POST", box.root + "/files/upload",
                           {**execd, "Content-Type": "multipart/form-data; boundary=X"}, upload),
            "put": head("PUT", f"/v1/sandboxes/{own.id}/files?path=/workspace/file",
                        {"X-Sandpool-Token": own.token}, b"content"),
            "download": head("GET", box.root + "/files/download?path=/etc/passwd", execd),
            "watch": head("GET", box.root + "/metrics/watch", execd),
            "proxied": head("GET", box.proxy(PORT) + "/", execd),
            "terminal": upgrade(f"{box.root}/pty/{self.terminal}/ws?takeover=1", execd),
            "run": head("POST", "/v1/pools/default/run",
                        {"X-API-Key": KEY},
                        b'{"argv":["true"],"policy":"wait","wait":"20s"}'),
        }

    def assert_quiet(self, what):
        def same():
            now = self.state()
            return (now["fds"] <= self.quiet["fds"] + 2 and now["leased"] == self.quiet["leased"] and
                    now["sandboxes"] == self.quiet["sandboxes"] and
                    now["processes"] <= self.quiet["processes"] and
                    set(now["files"].split()) <= {"file"})
        try:
            wait_until(same, 20, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.quiet} → {self.state()}") from None

    def test_while_they_ask(self):
        for what, request in self.exchanges().items():
            with self.subTest(what):
                for end in range(len(request)):
                    self.leave(request[:end], 0, ("close", "reset", "half")[end % 3])
                self.assert_quiet(what)

    def length_of(self, request):
        """Of the whole answer; of one that goes on, its beginning."""
        sock = socket.create_connection(("127.0.0.1", self.tcp))
        length = 0
        end = time.monotonic() + 0.5 * t.SLOW_FACTOR  # some say something every second, for ever
        with sock, contextlib.suppress(TimeoutError):
            sock.sendall(request)
            while length < self.LENGTH_MAX and (left := end - time.monotonic()) > 0:
                sock.settimeout(left)
                piece = sock.recv(65536)
                if not piece:
                    break
                length += len(piece)
        return min(length, self.LENGTH_MAX) - 16  # times have more digits or fewer

    def test_while_they_are_answered(self):
        for what, request in self.exchanges().items():
            with self.subTest(what):
                length = self.length_of(request)
                self.assertGreater(length, 60)
                for end in range(0, length, max(1, length // 60)):
                    self.leave(request, end, ("close", "reset", "half")[end % 3])
                self.assert_quiet(what)
        self.assert_serves_on()

    @t.limit(400)
    def test_at_every_byte_of_their_answers(self):
        for what, request in self.exchanges().items():
            if what in ("run", "watch"):  # a sandbox each; a second of waiting each
                continue
            with self.subTest(what):
                length = self.length_of(request)
                for end in range(0, length, 1 if t.SLOW_FACTOR == 1 else 8):
                    self.leave(request, end, "reset")
                self.assert_quiet(what)
        self.assert_serves_on()

    def assert_serves_on(self):
        self.assertEqual(self.inside.run("echo", "still").text, "still")
        response = self.sandbox.execd("POST", f"/session/{self.session}/run", {"command": "echo on"})
        self.assertIn(b'"text":"on"', response.body)
        self.assertEqual(self.sandbox.execd("DELETE", f"/session/{self.session}").status, 200)

    def test_creates(self):
        body = json.dumps({"image": {"uri": "x"}, "entrypoint": ["sleep", "1000"],
                           "resourceLimits": {"memory": "128Mi"}, "timeout": 300}).encode()
        request = head("POST", "/v1/sandboxes", {"OPEN-SANDBOX-API-KEY": KEY}, body)
        for end in range(len(request)):
            self.leave(request[:end], 0, ("close", "reset", "half")[end % 3])
        # Whole ones: the client is gone before the answer, or as it comes.
        for number in range(20):
            sock = socket.create_connection(("127.0.0.1", self.tcp), 20 * t.SLOW_FACTOR)
            sock.sendall(request)
            time.sleep(0.002 * (number % 5))
            sock.close()
        # Who got an answer has a sandbox, who got none has none: what is listed is what is leased.
        def agree():
            items = self.ask("GET", "/v1/sandboxes?pageSize=200").json["items"]
            return len(items) + 1 == self.daemon.pool()["leased"] and items  # and our own
        items = wait_until(agree, 20, "the table and the pool agree")
        for item in items:
            if item["id"] != self.sandbox.uuid:
                self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{item['id']}").status, 204)
        self.assert_quiet("creates")


class Capacity(HostileCase):
    """More creates than there is room for."""

    TOTAL = 4
    pools = {"default": {"max_idle": 0, "max_total": TOTAL, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "128MiB", "pids": 64, "tmp": "16MiB"}}}

    def create(self):
        sock = self.connect(60)
        body = json.dumps({"image": {"uri": "x"}, "entrypoint": ["sleep", "1000"],
                           "resourceLimits": {"memory": "64Mi"}, "timeout": 300}).encode()
        self.send(sock, "POST", "/v1/sandboxes",
                  {"OPEN-SANDBOX-API-KEY": KEY, "Content-Length": len(body)}, body)
        return sock

    def answer(self, sock):
        status, headers, rest = receive_head(sock)
        while len(rest) < int(headers["content-length"]):
            rest += sock.recv(65536)
        return status, json.loads(rest) if rest else None

    def test_the_capacity_and_more(self):
        ids = []
        for sock in [self.create() for _ in range(self.TOTAL)]:
            status, answer = self.answer(sock)
            self.assertEqual(status, 202, answer)
            ids.append(answer["id"])
        before = t.rss_kib(self.daemon.pid)
        flood = [self.create() for _ in range(500)]
        self.assertEqual(self.ask("GET", f"/v1/sandboxes/{ids[0]}").status, 200)
        self.assertEqual(ids_of(self), set(ids))
        for number, sock in enumerate(flood):
            if number % 3 == 0:  # leaves before it hears
                sock.close()
                continue
            status, answer = self.answer(sock)
            self.assertEqual((status, answer["code"]), (429, "SANDPOOL::POOL_SATURATED"), answer)
        close_all(flood)
        if t.SLOW_FACTOR == 1:
            self.assertLess(t.rss_kib(self.daemon.pid) - before, 500 * 96)
        self.assertEqual(self.daemon.pool()["leased"], self.TOTAL)
        # What one gives back is the next one's.
        self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{ids.pop()}").status, 204)

        def room():
            status, answer = self.answer(self.create())
            return status == 202 and answer["id"]
        ids.append(wait_until(room, 20, "there is room for one"))
        self.assertEqual(self.answer(self.create())[0], 429)
        self.assertEqual(ids_of(self), set(ids))
        for one in ids:
            self.assertEqual(self.ask("DELETE", f"/v1/sandboxes/{one}").status, 204)


def ids_of(case):
    return {item["id"] for item in case.ask("GET", "/v1/sandboxes?pageSize=200").json["items"]}


def close_all(socks):
    for sock in socks:
        sock.close()


if __name__ == "__main__":
    main()
