"""The reverse proxy to a port inside a sandbox: exact bytes both ways, back-pressure, tunnels, what is
passed on and what is not, and servers that misbehave."""

import hashlib
import json
import os
import socket
import ssl
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from execd_case import ExecdCase, free_port, receive_all, receive_head  # noqa: E402
from sandpool_test import main, wait_until  # noqa: E402
from test_api_tls import make_certificate  # noqa: E402

PORT = 8080
HEAD_MAX = 12 * 1024

# Runs inside. Paths say what it does; the state is on /state.
SERVER = r'''
import hashlib, json, socket, struct, sys, threading, time

state = {"requests": 0, "received": 0, "sent": 0, "ended": 0}

def read_head(sock):
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            return None, b""
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), rest

def body_of(sock, lines, rest):
    names = {line.split(":")[0].lower(): line.split(":", 1)[1].strip() for line in lines[1:]}
    file = sock.makefile("rb")
    buffered = rest

    def read(size):
        nonlocal buffered
        while len(buffered) < size:
            part = sock.recv(65536)
            if not part:
                raise EOFError
            buffered += part
            state["received"] += len(part)
        data, buffered = buffered[:size], buffered[size:]
        return data

    def line():
        data = b""
        while not data.endswith(b"\r\n"):
            data += read(1)
        return data[:-2]
    state["received"] += len(rest)
    if "content-length" in names:
        left = int(names["content-length"])
        while left:
            piece = read(min(left, 65536))
            left -= len(piece)
            yield piece
    elif names.get("transfer-encoding") == "chunked":
        while True:
            size = int(line(), 16)
            if size:
                yield read(size)
            assert line() == b""
            if not size:
                return

def answer(sock, body, extra=""):
    sock.sendall(("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body), extra)).encode()
                 + body)

def serve(sock):
    lines, rest = read_head(sock)
    if lines is None:
        return
    state["requests"] += 1
    path = lines[0].split(" ")[1]
    word = path.split("?")[0].strip("/").split("/")[0]
    argument = path.split("?")[-1]
    if word == "state":
        answer(sock, json.dumps(state).encode())
    elif word == "raw":
        for _ in body_of(sock, lines, rest):
            pass
        sock.sendall(bytes.fromhex(argument))
    elif word == "head":
        start = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Pad: "
        sock.sendall(start + b"x" * (int(argument) - len(start) - 4) + b"\r\n\r\nhi")
    elif word == "drip":
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                     b"Content-Type: text/event-stream\r\n\r\n")
        for number in range(5):
            sock.sendall(b"3\r\n%d\n\n\r\n" % number)
            time.sleep(0.3)
        sock.sendall(b"0\r\n\r\n")
    elif word == "big":
        size = int(argument)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block = bytes(range(256)) * 256
        try:
            while size > 0:
                sock.sendall(block[:size])
                state["sent"] += min(size, len(block))
                size -= len(block)
        finally:
            state["ended"] += 1
    elif word == "early":
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nstop")
    elif word == "stay":
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nstop")
        time.sleep(30)
    elif word == "deaf":
        time.sleep(3)
        total = sum(len(piece) for piece in body_of(sock, lines, rest))
        answer(sock, str(total).encode())
    elif word == "reset":
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        time.sleep(0.2)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif word == "hang":
        time.sleep(60)
    elif word == "switch":
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                     b"Upgrade: echo\r\nX-Extra: yes\r\n\r\nearly")
        data = rest
        while data or (data := sock.recv(65536)):
            state["received"] += len(data)
            if data.startswith(b"quit"):
                sock.sendall(b"bye")
                return
            if data.startswith(b"flood"):
                while True:
                    sock.sendall(bytes(65536))
                    state["sent"] += 65536
            sock.sendall(data)
            data = b""
        state["ended"] += 1
    else:
        digest, length = hashlib.sha256(), 0
        for piece in body_of(sock, lines, rest):
            digest.update(piece)
            length += len(piece)
        answer(sock, json.dumps({"lines": lines, "length": length,
                                 "sha256": digest.hexdigest()}).encode(),
               "Set-Cookie: a=b\r\nX-Empty:\r\nConnection: X-Hop\r\nX-Hop: 1\r\nServer: inside\r\n")

def guarded(sock):
    try:
        serve(sock)
    except Exception:
        pass
    finally:
        sock.close()

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
print("ready", flush=True)
while True:
    sock, _ = listener.accept()
    threading.Thread(target=guarded, args=(sock,), daemon=True).start()
'''


class ProxyCase(ExecdCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        helper = cls("id")
        cls.shared = helper.box()
        helper._cleanups.clear()  # it lasts as long as the class
        cls.server = cls.shared.own().stream(timeout=600)
        cls.server.begin(argv=[t.PYTHON, "-c", SERVER, str(PORT)])
        cls.server.read_stdout(b"ready\n")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)
        super().tearDownClass()

    def setUp(self):
        self.roots = {"lifecycle": self.shared.proxy(PORT),
                      "execd": f"{self.shared.root}/proxy/{PORT}"}

    def get(self, path, method="GET", root="lifecycle", **options):
        headers = {**self.shared.headers, **options.pop("headers", {})}
        return self.ask(method, self.roots[root] + path, headers=headers, **options)

    def state(self):
        return self.get("/state").json

    def open(self, path, method="GET", body=b"", **headers):
        sock = self.connect()
        wanted = {**self.shared.headers,
                  **{name.replace("_", "-"): value for name, value in headers.items()}}
        self.send(sock, method, self.roots["lifecycle"] + path, wanted, body)
        return sock


class Requests(ProxyCase):
    def test_the_server_sees_the_request(self):
        for root in self.roots:
            with self.subTest(root):
                response = self.get("/a%2Fb/../c?x=1+2&y=%20&&z", root=root,
                                    headers={"Accept-Language": "de", "X-Custom": "x  y"})
                self.assertEqual(response.status, 200)
                lines = response.json["lines"]
                self.assertEqual(lines[0], "GET /a%2Fb/../c?x=1+2&y=%20&&z HTTP/1.1")
                self.assertIn("Accept-Language: de", lines)
                self.assertIn("X-Custom: x  y", lines)
                self.assertIn(f"Host: 127.0.0.1:{PORT}", lines)
                self.assertIn("X-Forwarded-For: 127.0.0.1", lines)
                self.assertIn("Connection: close", lines)

    def test_the_root_with_and_without_slash(self):
        for path in ("", "/"):
            self.assertEqual(self.get(path).json["lines"][0], "GET / HTTP/1.1")
        self.assertEqual(self.get("?a=b").json["lines"][0], "GET /?a=b HTTP/1.1")
        path = self.roots["lifecycle"][len("/v1"):]
        self.assertEqual(self.ask("GET", path + "/x", headers=self.shared.headers).status, 200)

    def test_every_method(self):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
            response = self.get("/m", method)
            self.assertEqual(response.json["lines"][0], f"{method} /m HTTP/1.1")

    def test_head_has_no_body(self):
        response = self.get("/big?5000", "HEAD")
        self.assertEqual((response.status, response.body), (200, b""))
        self.assertEqual(response.headers["Content-Length"], "5000")

    def test_no_credential_goes_in(self):
        secrets = {"Authorization": "Basic secret1", "Cookie": "a=secret2",
                   "OpenSandbox-Secure-Access": "secret3", "X-API-Key": "secret4",
                   "Proxy-Authorization": "secret5"}
        for root in self.roots:
            text = "\n".join(self.get("/", root=root, headers=secrets).json["lines"])
            self.assertNotIn("secret", text)
            self.assertNotIn(self.shared.token, text)
            self.assertNotIn("API-KEY", text.upper())

    def test_hop_by_hop_headers_stay_on_their_hop(self):
        sock = self.open("/", Connection="keep-alive, X-Mine", X_Mine="1", TE="trailers",
                         Keep_Alive="5", X_Yours="2")
        _status, headers, rest = receive_head(sock)
        while len(rest) < int(headers["content-length"]):
            rest += sock.recv(65536)
        text = "\n".join(json.loads(rest)["lines"]).lower()
        for name in ("x-mine", "te:", "keep-alive"):
            self.assertNotIn(name, text)
        self.assertIn("x-yours: 2", text)
        for name in ("x-hop", "x-empty"):
            self.assertNotIn(name, headers)
        self.assertEqual((headers["set-cookie"], headers["server"]), ("a=b", "inside"))

    def test_what_a_client_claims_of_itself_is_replaced(self):
        lines = self.get("/", headers={"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4",
                                       "X-Real-IP": "1.2.3.4"}).json["lines"]
        self.assertNotIn("1.2.3.4", "\n".join(lines))

    def test_bodies_of_both_kinds(self):
        for size in (0, 1, 100_000, 5_000_000):
            data = os.urandom(size)
            digest = hashlib.sha256(data).hexdigest()
            with self.subTest(size):
                response = self.get("/", "POST", raw=data)
                self.assertEqual((response.json["length"], response.json["sha256"]),
                                 (size, digest))

                def pieces():
                    for at in range(0, size, 70_001):
                        yield data[at:at + 70_001]
                response = self.get("/", "PUT", raw=pieces())
                self.assertEqual((response.json["length"], response.json["sha256"]),
                                 (size, digest))

    def test_ports_that_are_none(self):
        for port in ("0", "65536", "-1", "x", "8080x", "99999999999999999999"):
            with self.subTest(port):
                response = self.ask("GET", f"/v1/sandboxes/{self.shared.uuid}/proxy/{port}/",
                                    headers=self.shared.headers)
                self.assertEqual(response.status, 400)
                self.assertTrue(response.json["message"])
                response = self.shared.execd("GET", f"/proxy/{port}/")
                self.assertEqual(response.status, 400)
        response = self.shared.execd("GET", "/proxy/")
        self.assertEqual((response.status, response.body), (400, b"port is required\n"))

    def test_a_query_with_control_bytes_is_refused(self):
        sock = self.connect()
        self.send(sock, "GET", self.roots["lifecycle"] + "/?a\x01b", self.shared.headers)
        self.assertEqual(receive_head(sock)[0], 400)

    def test_the_token_is_the_credential(self):
        for root in self.roots.values():
            self.assertEqual(self.ask("GET", root + "/").status, 401)
            for token in ("x", "0" * 64):
                self.assertEqual(
                    self.ask("GET", root + "/", headers={"X-EXECD-ACCESS-TOKEN": token}).status,
                    401)


class Answers(ProxyCase):
    def raw(self, text, method="GET", **options):
        data = text.encode() if isinstance(text, str) else text
        return self.get("/raw?" + data.hex(), method, **options)

    def test_statuses_and_headers(self):
        response = self.raw("HTTP/1.1 418 Teapot\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 3\r\n\r\nabc")
        self.assertEqual((response.status, response.body), (418, b"abc"))
        self.assertIn(response.headers["X-A"], ("1", "2", "1, 2"))
        self.assertEqual(self.raw("HTTP/1.1 204 None\r\n\r\n").status, 204)
        response = self.raw("HTTP/1.1 304 Same\r\nETag: \"x\"\r\n\r\n")
        self.assertEqual((response.status, response.headers["ETag"]), (304, '"x"'))

    def test_without_a_length_the_end_is_the_end(self):
        response = self.raw("HTTP/1.0 200 OK\r\n\r\nall of it")
        self.assertEqual((response.status, response.body), (200, b"all of it"))

    def test_redirects_to_the_root_stay_in_the_proxy(self):
        for root, path in self.roots.items():
            response = self.raw("HTTP/1.1 302 Found\r\nLocation: /login?x\r\n"
                                "Content-Length: 0\r\n\r\n", root=root)
            self.assertEqual((response.status, response.headers["Location"]),
                             (302, f"{path}/login?x"))
        response = self.raw("HTTP/1.1 302 Found\r\nLocation: http://e.example/\r\n"
                            "Content-Length: 0\r\n\r\n")
        self.assertEqual(response.headers["Location"], "http://e.example/")

    def lines(self, text, root="lifecycle"):
        """The head's lines as they came."""
        sock = self.connect()
        self.send(sock, "GET", self.roots[root] + "/raw?" + text.encode().hex(),
                  {**self.shared.headers, "Connection": "close"})
        return receive_all(sock).partition(b"\r\n\r\n")[0].decode().split("\r\n")

    def test_of_many_locations_the_first_is_passed_on(self):
        """However long the others are: what they become lies in one place."""
        for root, path in self.roots.items():
            for others in (["/b"], ["/" + "b" * 3000], ["/b", "http://e.example/", "/" + "c" * 2000]):
                text = "".join(f"Location: {value}\r\n" for value in ["/a", *others])
                with self.subTest(root=root, others=[other[:3] for other in others]):
                    lines = self.lines("HTTP/1.1 302 Found\r\n" + text +
                                       "Content-Length: 0\r\n\r\n", root)
                    self.assertEqual([line for line in lines if line.startswith("Location:")],
                                     [f"Location: {path}/a"])

    def test_what_goes_with_a_status_is_the_servers(self):
        for status, header, ours in (
                (401, 'WWW-Authenticate: Basic realm="x"', "WWW-Authenticate"),
                (405, "Allow: BREW", "Allow"), (429, "Retry-After: 77", "Retry-After"),
                (503, "Retry-After: 78", "Retry-After"), (503, "X-None: 1", "Retry-After"),
                (401, "X-None: 1", "WWW-Authenticate")):
            with self.subTest(status=status, header=header):
                lines = self.lines(f"HTTP/1.1 {status} No\r\n{header}\r\nContent-Length: 0\r\n\r\n")
                self.assertIn(header, lines)
                self.assertEqual([line for line in lines if line.startswith(ours) and line != header],
                                 [])
        response = self.ask("GET", self.roots["lifecycle"] + "/x")
        self.assertEqual((response.status, response.headers["WWW-Authenticate"]), (401, "Bearer"))

    def test_every_line_of_connection_counts(self):
        lines = self.lines("HTTP/1.1 200 OK\r\nConnection: X-A\r\nX-A: 1\r\nX-B: 1\r\nX-C: 1\r\n"
                           "Connection: close, X-B\r\nContent-Length: 0\r\n\r\n")
        self.assertIn("X-C: 1", lines)
        for name in ("X-A", "X-B"):
            self.assertFalse([line for line in lines if line.startswith(name)], lines)

    def test_a_dead_port_is_502(self):
        """execd says it in text, the lifecycle API as an error of its own."""
        response = self.shared.execd("GET", "/proxy/9/x")
        self.assertEqual((response.status, response.body), (502, b"Bad Gateway\n"))
        self.assertTrue(response.headers["Content-Type"].startswith("text/plain"))
        response = self.ask("GET", self.shared.proxy(9), headers=self.shared.headers)
        self.assertEqual((response.status, response.code), (502, "BACKEND_CONNECTION_FAILED"))
        response = self.ask("POST", self.shared.proxy(9), headers=self.shared.headers,
                            raw=bytes(3_000_000))
        self.assertEqual(response.status, 502)

    def test_what_is_no_http_is_502(self):
        for text in ("", "hello\r\n\r\n", "HTTP/1.1 200 OK\r\n",
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                     "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
                     "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
                     "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "HTTP/9 200"):
            with self.subTest(text):
                self.assertEqual(self.raw(text).status, 502)

    def test_the_longest_head_is_passed_on_and_one_byte_more_refused(self):
        """Also beside the largest request that is served."""
        large = {f"X-Pad-{number}": "y" * 240 for number in range(55)}
        for headers in ({}, large):
            response = self.get(f"/head?{HEAD_MAX}", headers=headers)
            self.assertEqual((response.status, response.body), (200, b"hi"))
            self.assertEqual(self.get(f"/head?{HEAD_MAX + 1}", headers=headers).status, 502)

    def test_chunks_are_taken_apart(self):
        response = self.raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 200 OK\r\n")
        self.assertEqual((response.status, response.body), (200, b"hello!"))

    def test_an_answer_that_is_cut_is_cut_for_the_client_97a450a7(self):
        """Nothing of ours is written into an answer that has begun."""
        for path in ("/reset", "/raw?" + b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".hex()):
            with self.subTest(path):
                sock = self.open(path)
                status, headers, rest = receive_head(sock)
                self.assertEqual((status, headers["content-length"]), (200, "100"))
                self.assertEqual(rest + receive_all(sock), b"half")
        broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n"
        sock = self.open("/raw?" + broken.hex())
        data = receive_all(sock)
        self.assertTrue(data.startswith(b"HTTP/1.1 200 "), data)
        self.assertFalse(data.endswith(b"0\r\n\r\n"), data)

    def test_events_come_as_they_are_sent_ee38bb49(self):
        sock = self.open("/drip")
        status, headers, data = receive_head(sock)
        self.assertEqual((status, headers["content-type"]), (200, "text/event-stream"))
        start, seen = time.monotonic(), []
        while not data.endswith(b"0\r\n\r\n"):
            for number in range(5):
                if b"\n%d\n\n" % number in data and len(seen) == number:
                    seen.append(time.monotonic() - start)
            data += sock.recv(65536)
        self.assertEqual(len(seen), 5, data)
        self.assertGreater(seen[4] - seen[0], 0.9)
        self.assertLess(max(b - a for a, b in zip(seen, seen[1:])), 0.6 * t.SLOW_FACTOR)

    def test_large_answers_are_exact(self):
        size = 30_000_000
        response = self.get(f"/big?{size}")
        expected = (bytes(range(256)) * (size // 256 + 1))[:size]
        self.assertEqual(hashlib.sha256(response.body).digest(),
                         hashlib.sha256(expected).digest())

    def test_a_slow_client_stops_the_server_b158(self):
        before = self.state()
        sock = self.open("/big?1000000000")
        receive_head(sock)
        seen = [0]

        def stands_still():
            now = self.state()["sent"] - before["sent"]
            still = now == seen[0] and now > 0
            seen[0] = now
            return still
        wait_until(stands_still, 20, "the server waits", interval=0.5)
        self.assertLess(seen[0], 64_000_000)
        sock.close()
        wait_until(lambda: self.state()["ended"] > before["ended"], 10, "the server is told")

    def test_clients_that_leave_before_the_answer(self):
        def open_files():
            return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))
        before = open_files()
        for _ in range(20):
            self.open("/hang").close()
        wait_until(lambda: open_files() <= before + 2, 10, "no socket is left")

    def test_an_error_before_the_body_is_over(self):
        """413 at once; the client hears it although it goes on sending."""
        for path in ("/early", "/stay"):
            response = self.get(path, "POST", raw=bytes(20_000_000), timeout=10)
            self.assertEqual((response.status, response.body), (413, b"stop"))

    def test_a_server_that_reads_late_stops_the_client(self):
        size = 50_000_000
        sock = self.open("/deaf", "POST", Content_Length=size)
        sock.settimeout(1)
        sent, block, stalled = 0, bytes(1_000_000), False
        while sent < size:
            try:
                sent += sock.send(block[:size - sent])
            except TimeoutError:
                stalled = True
                sock.settimeout(20 * t.SLOW_FACTOR)
        self.assertTrue(stalled)
        _status, headers, rest = receive_head(sock)
        while len(rest) < int(headers["content-length"]):
            rest += sock.recv(65536)
        self.assertEqual(rest, str(size).encode())

    def test_a_kept_connection_serves_again(self):
        sock = self.connect()
        for number in range(3):
            self.send(sock, "GET", self.roots["lifecycle"] + f"/{number}", self.shared.headers)
            status, headers, rest = receive_head(sock)
            while len(rest) < int(headers["content-length"]):
                rest += sock.recv(65536)
            self.assertEqual((status, json.loads(rest)["lines"][0]),
                             (200, f"GET /{number} HTTP/1.1"))

    def test_many_at_once(self):
        results = []

        def one(number):
            results.append(self.get(f"/{number}", "POST", raw=b"x" * number).json["length"])
        threads = [threading.Thread(target=one, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), list(range(100)))


class Tunnels(ProxyCase):
    def tunnel(self, root="lifecycle"):
        sock = self.connect()
        self.send(sock, "GET", self.roots[root] + "/switch",
                  {**self.shared.headers, "Connection": "Upgrade", "Upgrade": "echo"})
        status, headers, rest = receive_head(sock)
        self.assertEqual((status, headers["upgrade"], headers["x-extra"]), (101, "echo", "yes"))
        while len(rest) < 5:
            rest += sock.recv(65536)
        self.assertEqual(rest, b"early")
        return sock

    def test_bytes_go_both_ways(self):
        for root in self.roots:
            with self.tunnel(root) as sock:
                for size in (1, 5, 70_000):
                    data = os.urandom(size - 1) + b"\n"
                    sock.sendall(data)
                    back = b""
                    while len(back) < size:
                        back += sock.recv(65536)
                    self.assertEqual(back, data)

    def test_much_goes_both_ways(self):
        data = os.urandom(8_000_000)
        with self.tunnel() as sock:
            writer = threading.Thread(target=sock.sendall, args=(data,))
            writer.start()
            back = b""
            while len(back) < len(data):
                back += sock.recv(1 << 20)
            writer.join()
        self.assertEqual(hashlib.sha256(back).digest(), hashlib.sha256(data).digest())

    def test_the_server_ends_it(self):
        with self.tunnel() as sock:
            sock.sendall(b"quit")
            self.assertEqual(receive_all(sock), b"bye")

    def test_the_client_ends_it(self):
        before = self.state()["ended"]
        self.tunnel().close()
        wait_until(lambda: self.state()["ended"] > before, 10, "the server is told")

    def test_a_client_that_does_not_read_stops_the_server(self):
        before = self.state()["sent"]
        with self.tunnel() as sock:
            sock.sendall(b"flood")
            seen = [0]

            def stands_still():
                now = self.state()["sent"] - before
                still = now == seen[0] and now > 0
                seen[0] = now
                return still
            wait_until(stands_still, 20, "the server waits", interval=0.5)
            self.assertLess(seen[0], 64_000_000)

    def test_a_server_that_does_not_switch_answers(self):
        sock = self.connect()
        self.send(sock, "GET", self.roots["lifecycle"] + "/plain",
                  {**self.shared.headers, "Connection": "Upgrade", "Upgrade": "echo"})
        status, headers, rest = receive_head(sock)
        while len(rest) < int(headers["content-length"]):
            rest += sock.recv(65536)
        lines = json.loads(rest)["lines"]
        self.assertEqual(status, 200)
        self.assertIn("Connection: Upgrade", lines)
        self.assertIn("Upgrade: echo", lines)

    def test_an_upgrade_of_a_dead_port(self):
        sock = self.connect()
        self.send(sock, "GET", self.shared.proxy(9),
                  {**self.shared.headers, "Connection": "Upgrade", "Upgrade": "websocket"})
        self.assertEqual(receive_head(sock)[0], 502)

    def test_release_ends_tunnels(self):
        box = self.box()
        with box.own().stream(timeout=60) as server:
            server.begin(argv=[t.PYTHON, "-c", SERVER, str(PORT)])
            server.read_stdout(b"ready\n")
            sock = self.connect()
            self.send(sock, "GET", box.proxy(PORT) + "/switch",
                      {**box.headers, "Connection": "Upgrade", "Upgrade": "echo"})
            self.assertEqual(receive_head(sock)[0], 101)
            self.ask("DELETE", f"/v1/sandboxes/{box.uuid}")
            receive_all(sock)


class Secure(ProxyCase):
    """The same by TLS, where the client's socket is one end of a pair."""

    @classmethod
    def listen_more(cls, directory):
        make_certificate(directory)
        cls.tls = free_port()
        cls.context = ssl.create_default_context(cafile=f"{directory}/cert.pem")
        return [f"tls://127.0.0.1:{cls.tls}"], {
            "tls_certificate_file": f"{directory}/cert.pem",
            "tls_key_file": f"{directory}/key.pem"}

    def connect(self, timeout=20):
        sock = socket.create_connection(("127.0.0.1", self.tls), timeout=timeout * t.SLOW_FACTOR)
        sock = self.context.wrap_socket(sock, server_hostname="localhost")
        self.addCleanup(sock.close)
        return sock

    def test_requests_and_tunnels(self):
        sock = self.open("/x")
        _status, headers, rest = receive_head(sock)
        while len(rest) < int(headers["content-length"]):
            rest += sock.recv(65536)
        self.assertIn("X-Forwarded-Proto: https", json.loads(rest)["lines"])
        data = os.urandom(3_000_000)
        with Tunnels.tunnel(self) as sock:
            back = b""
            for at in range(0, len(data), 50_000):
                sock.sendall(data[at:at + 50_000])
                while len(back) < min(at + 50_000, len(data)):
                    back += sock.recv(65536)
            self.assertEqual(back, data)
            sock.sendall(b"quit")
            self.assertEqual(receive_all(sock), b"bye")


if __name__ == "__main__":
    main()
