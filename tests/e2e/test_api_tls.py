"""TLS: the same server behind it, streams at full speed, ends that both sides see."""

import hashlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import time
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import (Case, Daemon, StartFailed, StreamClosed, main, needs_programs,  # noqa: E402
                           needs_root, wait_until)

KEY = "sesame-open-0123456789abcdef"
MAX = 12
OVERFLOW = 32


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def make_certificate(directory):
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
             f"{directory}/key.pem", "-out", f"{directory}/cert.pem"],
            capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise unittest.SkipTest(f"no certificate: {error}") from None
    os.chmod(f"{directory}/key.pem", 0o600)


class TlsStream(t.ExecStream):
    def __init__(self, sock, target, token):  # pylint: disable=super-init-not-called
        self.sock = sock
        self.buffer = b""
        self.credit = t.STDIN_WINDOW
        self.out, self.err, self.result = [], [], None
        self.sock.sendall((f"POST {target} HTTP/1.1\r\nHost: a\r\nX-Sandpool-Token: {token}\r\n"
                           "Connection: Upgrade\r\nUpgrade: sandpool-exec\r\n"
                           "Content-Length: 0\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self._receive()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])


class Tls(Case):
    @classmethod
    def setUpClass(cls):
        reason = needs_root() or needs_programs()
        if reason:
            raise unittest.SkipTest(reason)
        cls.daemon = Daemon({"max_connections": MAX})
        directory = cls.daemon.directory
        make_certificate(directory)
        with open(f"{directory}/keys", "w", encoding="utf-8") as file:
            file.write(KEY + "\n")
        os.chmod(f"{directory}/keys", 0o600)
        cls.port = free_port()
        cls.context = ssl.create_default_context(cafile=f"{directory}/cert.pem")
        cls.daemon.write_config({
            "listen": [f"unix://{directory}/run/sandpool.sock", f"tls://127.0.0.1:{cls.port}"],
            "api_keys_file": f"{directory}/keys",
            "tls_certificate_file": f"{directory}/cert.pem",
            "tls_key_file": f"{directory}/key.pem"})
        cls.daemon.__enter__()
        cls.daemon.wait_settled()
        time.sleep(0.2)
        cls.quiet = t.fd_count(cls.daemon.pid)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def tcp(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20 * t.SLOW_FACTOR)

    def tls(self):
        return self.context.wrap_socket(self.tcp(), server_hostname="localhost")

    def ask(self, sock, method, target, body=None, **headers):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = sock
        connection.request(method, target, body,
                           {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return t.Response(response.status, dict(response.getheaders()), response.read())

    def test_requests_on_a_kept_connection(self):
        with self.tls() as sock:
            self.assertIn(sock.version(), ("TLSv1.2", "TLSv1.3"))
            for _ in range(20):
                self.assertEqual(self.ask(sock, "GET", "/healthz").body, b"ok\n")
            self.assertEqual(self.ask(sock, "GET", "/v1/pools").status, 401)
            self.assertEqual(self.ask(sock, "GET", "/v1/pools", X_API_Key=KEY).status, 200)
            # operators are peers of the Unix socket, never of the pair behind TLS
            self.assertEqual(self.ask(sock, "GET", "/v1/config", X_API_Key=KEY).status, 403)
            self.assertEqual(self.ask(sock, "GET", "/v1/config").status, 401)

    def test_long_bodies_both_ways(self):
        text = "x" * 900_000
        with self.tls() as sock:
            body = ('{"argv": ["/bin/cat"], "policy": "wait", "wait": "20s", "stdin_text": "%s"}'
                    % text)
            answer = self.ask(sock, "POST", "/v1/pools/default/run", body, X_API_Key=KEY)
            self.assertEqual(answer.json["stdout"], text)

    def test_streams(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box, self.tls() as sock:
            stream = TlsStream(sock, f"/v1/sandboxes/{box.id}/exec", box.token)
            data = os.urandom(3 << 20)
            start = time.monotonic()
            outcome = stream.run(argv=["/bin/cat"], stdin=data)
            self.assertEqual(hashlib.sha256(outcome.stdout).digest(), hashlib.sha256(data).digest())
            self.assertLess(time.monotonic() - start, 5 * t.SLOW_FACTOR)
            start = time.monotonic()
            for number in range(50):
                self.assertEqual(stream.run(argv=["/bin/echo", str(number)]).text, str(number))
            self.assertLess(time.monotonic() - start, 50 * 0.03 * t.SLOW_FACTOR,
                            "no frame waits for a delayed acknowledgement")
            stream.send(99)
            self.assertEqual(stream.receive()[0], t.FRAME_ERROR)
            with self.assertRaises((StreamClosed, ConnectionResetError, ssl.SSLError)):
                stream.receive()

    def test_slow_reader_is_held_back(self):
        with self.daemon.acquire(policy="wait", wait="20s") as box, self.tls() as sock:
            stream = TlsStream(sock, f"/v1/sandboxes/{box.id}/exec", box.token)
            before = t.rss_kib(self.daemon.pid)
            stream.begin(argv=["/usr/bin/head", "-c", "40000000", "/dev/zero"])
            time.sleep(0.5)
            self.assertLess(t.rss_kib(self.daemon.pid), before + 4096 * t.SLOW_FACTOR)
            self.assertEqual(len(stream.finish().stdout), 40_000_000)

    def test_leaving_kills_the_exec(self):
        for polite in (True, False):
            with self.subTest(polite=polite), \
                    self.daemon.acquire(policy="wait", wait="20s") as box:
                sock = self.tls()
                stream = TlsStream(sock, f"/v1/sandboxes/{box.id}/exec", box.token)
                stream.begin(argv=["/bin/sleep", "60"])
                if polite:
                    sock.settimeout(0.2)
                    try:
                        sock.unwrap()
                    except (OSError, ValueError):
                        pass
                sock.close()
                wait_until(lambda: box.inspect()["running_execs"] == 0, 5, "the exec ends")
        wait_until(lambda: t.fd_count(self.daemon.pid) <= self.quiet + 2, 5, "no descriptor stays")

    def test_what_is_no_tls_is_closed(self):
        for noise in (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"\0" * 600,
                      b"\x16\x03\x01\xff\xff" + b"x" * 600):
            with self.subTest(noise[:10]), self.tcp() as sock:
                sock.sendall(noise)
                try:
                    while sock.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        with self.tls() as sock:
            self.assertEqual(self.ask(sock, "GET", "/healthz").status, 200)

    def test_old_versions_are_refused(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python calls them deprecated, which is the point
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.minimum_version = ssl.TLSVersion.TLSv1
        with self.assertRaises((ssl.SSLError, ConnectionResetError)), self.tcp() as sock:
            context.wrap_socket(sock)

    @t.limit(60)
    def test_a_handshake_has_ten_seconds(self):
        with self.tcp() as sock:
            start = time.monotonic()
            self.assertEqual(sock.recv(1), b"")
            self.assertTrue(9 <= time.monotonic() - start <= 14)

    def test_the_limit_and_one_more(self):
        socks = [self.tls() for _ in range(MAX)]
        for sock in socks:
            self.assertEqual(self.ask(sock, "GET", "/healthz").status, 200)
        extra = self.tls()
        self.assertEqual(self.ask(extra, "GET", "/healthz").status, 503)
        for sock in socks + [extra]:
            sock.close()
        wait_until(lambda: t.fd_count(self.daemon.pid) <= self.quiet + 2, 5, "all are gone")
        silent = [self.tcp() for _ in range(MAX + OVERFLOW + 5)]
        self.assertEqual(silent[-1].recv(1), b"", "beyond the overflow")
        for sock in silent:
            sock.close()
        wait_until(lambda: t.fd_count(self.daemon.pid) <= self.quiet + 2, 5, "all are gone")


class Reload(Case):
    """Certificate and key belong to root alone, and the daemon does not open them itself."""

    def setUp(self):
        reason = needs_root() or needs_programs()
        if reason:
            self.skipTest(reason)
        self.daemon = Daemon({"pools": {"default": {"max_idle": 0}}})
        self.addCleanup(self.daemon.remove)
        self.addCleanup(self.daemon.kill)
        self.directory = self.daemon.directory
        self.port = free_port()
        self.write()
        self.daemon.write_config({
            "listen": [f"unix://{self.daemon.socket_path}", f"tls://127.0.0.1:{self.port}"],
            "tls_certificate_file": f"{self.directory}/cert.pem",
            "tls_key_file": f"{self.directory}/key.pem", "insecure": True})
        self.daemon.start()

    def write(self):
        make_certificate(self.directory)
        for name in ("cert.pem", "key.pem"):
            os.chmod(f"{self.directory}/{name}", 0o600)

    def presented(self):
        text = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=10 * t.SLOW_FACTOR)
        return ssl.PEM_cert_to_DER_cert(text)

    def on_disk(self):
        return ssl.PEM_cert_to_DER_cert(t.read_text(f"{self.directory}/cert.pem"))

    def test_a_new_certificate_is_presented_after_a_reload_and_old_connections_go_on(self):
        first = self.on_disk()
        context = ssl.create_default_context(cafile=f"{self.directory}/cert.pem")
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=20 * t.SLOW_FACTOR)
        with context.wrap_socket(raw, server_hostname="localhost") as old:
            self.write()
            self.assertEqual(self.presented(), first, "nothing changes without a reload")
            self.daemon.cli("reload", check=True)
            self.assertNotEqual(self.on_disk(), first)
            self.assertEqual(self.presented(), self.on_disk())
            old.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b"200 OK", old.recv(4096))
        self.daemon.stop()

    def test_a_key_of_another_certificate_refuses_the_reload(self):
        first = self.on_disk()
        key = t.read_text(f"{self.directory}/key.pem")
        self.write()
        with open(f"{self.directory}/key.pem", "w", encoding="ascii") as file:
            file.write(key)
        done = self.daemon.cli("reload")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"key.pem", done.stderr)
        self.assertEqual(self.presented(), first)

    def test_neither_is_shown(self):
        text = self.daemon.request("GET", "/v1/config").body
        self.assertIn(b"tls_key_file", text)
        self.assertNotIn(b"BEGIN", text)

    def test_a_key_for_everybody_is_refused(self):
        os.chmod(f"{self.directory}/key.pem", 0o644)
        done = self.daemon.cli("reload")
        self.assertIn(b"readable by everybody", done.stderr)


class Files(Case):
    def test_bad_certificates_name_the_file(self):
        reason = needs_root() or needs_programs()
        if reason:
            self.skipTest(reason)
        for cert, key, word in (("missing", "key.pem", "missing"), ("cert.pem", "missing", "missing"),
                                ("key.pem", "cert.pem", "cert.pem"), ("cert.pem", "other.pem", "")):
            daemon = Daemon({"pools": {"default": {"max_idle": 0}}})
            directory = daemon.directory
            make_certificate(directory)
            subprocess.run(["openssl", "genrsa", "-out", f"{directory}/other.pem", "2048"],
                           capture_output=True, check=True)
            daemon.write_config({
                "listen": [f"unix://{daemon.socket_path}", f"tls://127.0.0.1:{free_port()}"],
                "tls_certificate_file": f"{directory}/{cert}",
                "tls_key_file": f"{directory}/{key}"})
            with self.subTest(cert=cert, key=key), self.assertRaises(StartFailed) as caught:
                with daemon:
                    pass
            self.assertIn(word, str(caught.exception))


if __name__ == "__main__":
    main()
