"""sandpool --redis: the command line on a machine without a daemon, against real daemons and a real
Redis; and tls:// endpoints, which only sandpool-remote can speak to."""

import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from redis_client import Redis, RedisError, Server  # noqa: E402
from sandpool_test import (Case, Daemon, main, merge, needs_programs, needs_root,  # noqa: E402
                           wait_until)

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_IDLE = 4
KEY = "sandpool:{default}:meta"


def missing():
    return (needs_root() or needs_programs("sandpoold", "sandpool", "sandpool-remote") or
            (None if shutil.which("redis-server") else "redis-server is not installed"))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def openssl(directory, *words):
    try:
        subprocess.run(["openssl", *words], cwd=directory, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise unittest.SkipTest(f"no certificate: {error}") from None


def make_certificate(directory, name="cert", subject="localhost"):
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", f"/CN={subject}", "-addext",
            f"subjectAltName=DNS:{subject},IP:127.0.0.1", "-keyout", f"{name}.key", "-out",
            f"{name}.pem")
    os.chmod(f"{directory}/{name}.key", 0o644)


def cli(*args, env=None, input=b"", timeout=30, program="sandpool"):
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    environment.update(env or {})
    return subprocess.run([str(t.BIN / program), *map(str, args)], env=environment, input=input,
                          capture_output=True, timeout=timeout * t.SLOW_FACTOR, check=False)


class Tls(Case):
    """A daemon that listens on tls:// only knows its tenants by their tokens."""

    @classmethod
    def setUpClass(cls):
        if missing():
            raise unittest.SkipTest(missing())
        cls.daemon = Daemon()
        directory = cls.daemon.directory
        make_certificate(directory)
        make_certificate(directory, "other")
        with open(f"{directory}/keys", "w", encoding="utf-8") as file:
            file.write("sesame-open-0123456789abcdef\n")
        os.chmod(f"{directory}/keys", 0o600)
        cls.address = f"tls://127.0.0.1:{free_port()}"
        cls.daemon.write_config({
            "listen": [f"unix://{directory}/run/sandpool.sock", cls.address],
            "api_keys_file": f"{directory}/keys",
            "tls_certificate_file": f"{directory}/cert.pem",
            "tls_key_file": f"{directory}/cert.key"})
        cls.daemon.__enter__()
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)

    def cli(self, *args, ca="cert", **kwargs):
        env = {"SANDPOOL_SOCKET": self.address,
               "SANDPOOL_TLS_CA": f"{self.daemon.directory}/{ca}.pem",
               "SANDPOOL_API_KEY": "sesame-open-0123456789abcdef"}
        return cli(*args, env=merge(env, kwargs.pop("env", {})), **kwargs)

    def test_a_command_runs_and_its_bytes_are_its_own(self):
        data = os.urandom(3 << 20)
        done = self.cli("run", "cat", input=data)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(hashlib.sha256(done.stdout).digest(), hashlib.sha256(data).digest())

    def test_the_exit_status_is_the_commands(self):
        self.assertEqual(self.cli("run", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.cli("run", "--timeout", "200ms", "sleep", "9").returncode, 124)

    def test_a_signal_reaches_the_command(self):
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "run", "sh", "-c", "trap 'exit 9' TERM; echo up; "
             "while :; do sleep 0.05; done"], stdout=subprocess.PIPE,
            env={"SANDPOOL_SOCKET": self.address, "PATH": "/usr/bin:/bin",
                 "SANDPOOL_TLS_CA": f"{self.daemon.directory}/cert.pem",
                 "SANDPOOL_API_KEY": "sesame-open-0123456789abcdef"})
        with process:
            self.assertEqual(process.stdout.readline(), b"up\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 9)

    def test_a_reader_that_leaves_ends_it(self):
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "run", "yes"], stdout=subprocess.PIPE,
            env={"SANDPOOL_SOCKET": self.address, "PATH": "/usr/bin:/bin",
                 "SANDPOOL_TLS_CA": f"{self.daemon.directory}/cert.pem",
                 "SANDPOOL_API_KEY": "sesame-open-0123456789abcdef"})
        process.stdout.read(1 << 16)
        process.stdout.close()
        self.assertEqual(process.wait(10), 141)

    def test_another_authority_and_another_name_are_refused(self):
        done = self.cli("ls", ca="other")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, rb"TLS with '127.0.0.1'")
        done = self.cli("ls", env={"SANDPOOL_SOCKET": self.address.replace("127.0.0.1", "[::1]")})
        self.assertEqual(done.returncode, 125)

    def test_a_peer_that_says_nothing_is_left_after_the_deadline(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            start = time.monotonic()
            done = self.cli("ls", env={"SANDPOOL_SOCKET":
                                       f"tls://127.0.0.1:{silent.getsockname()[1]}"})
            self.assertEqual(done.returncode, 125)
            self.assertLess(time.monotonic() - start, 12)

    def test_a_plain_server_is_no_tls_server(self):
        def answer(server):
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with socket.create_server(("127.0.0.1", 0)) as plain:
            thread = threading.Thread(target=answer, args=(plain,))
            thread.start()
            done = self.cli("ls", env={"SANDPOOL_SOCKET":
                                       f"tls://127.0.0.1:{plain.getsockname()[1]}"})
            thread.join()
        self.assertEqual(done.returncode, 125)
        self.assertEqual(json.loads(self.cli("ls", "--json", env={
            "SANDPOOL_SOCKET": "tls://127.0.0.1:1"}).stderr)["code"], "UNAVAILABLE")


if __name__ == "__main__":
    main()
