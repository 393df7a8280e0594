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
from redis_client import Redis, Server  # noqa: E402
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
        os.chmod(f"{directory}/cert.key", 0o600)
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


class RedisHost:
    """A private Redis that the daemons' user can reach, and daemons that share it."""

    def __init__(self, *options):
        self.server = Server("--unixsocketperm", "777", *options)

    def __enter__(self):
        self.server.__enter__()
        os.chmod(self.server.directory, 0o755)
        self.url = f"unix://{self.server.path}"
        return self

    def __exit__(self, *args):
        self.server.__exit__()

    def daemon(self, name, config=None):
        base = {"store": self.url, "host": name,
                "pools": {"default": {"max_idle": MAX_IDLE, "claim_timeout": "5s"}}}
        return Daemon(merge(base, config or {}))


class ClusterCase(Case):
    hosts = ("a", "b")
    pool = {}

    @classmethod
    def setUpClass(cls):
        if missing():
            raise unittest.SkipTest(missing())
        cls.redis_host = RedisHost().__enter__()
        cls.addClassCleanup(cls.redis_host.__exit__)
        cls.daemons = {}
        for name in cls.hosts:
            daemon = cls.redis_host.daemon(name, {"pools": {"default": cls.pool}}).__enter__()
            cls.addClassCleanup(daemon.__exit__, None, None, None)
            cls.daemons[name] = daemon

    def setUp(self):
        self.redis = self.redis_host.server.connect()
        self.addCleanup(self.redis.close)
        self.wait_listed(MAX_IDLE)

    def stats(self):
        reply = self.redis.fcall("stats", KEY)
        pairs = reply[3:3 + 2 * reply[2]]
        return dict(zip(pairs[::2], pairs[1::2]))

    def wait_listed(self, count, timeout=20):
        wait_until(lambda: self.stats()["idle"] == count, timeout, f"{count} listed as idle")

    def cli(self, *args, env=None, **kwargs):
        return cli(*args, env={"SANDPOOL_REDIS": self.redis_host.url, **(env or {})}, **kwargs)

    def json(self, *args, **kwargs):
        done = self.cli("--json", *args, **kwargs)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return json.loads(done.stdout)

    def fails(self, code, *args, **kwargs):
        done = self.cli("--json", *args, **kwargs)
        self.assertEqual(done.returncode, 125, done)
        self.assertEqual(done.stdout, b"")
        error = json.loads(done.stderr)
        self.assertEqual(error["code"], code, error)
        return error["message"]

    def sandboxes(self):
        return {box["id"]: box for daemon in self.daemons.values() for box in daemon.sandboxes()}

    def leased(self):
        return [box for box in self.sandboxes().values() if box["state"] == "leased"]

    def tearDown(self):
        for box in self.leased():
            for daemon in self.daemons.values():
                daemon.cli("release", box["id"])


class Leases(ClusterCase):
    def test_acquire_claims_at_the_host_and_exec_finds_it_again(self):
        box = self.json("acquire", "--ttl", "1m", "default")
        for key in ("id", "pool", "host", "lease", "endpoint", "token", "expires_at"):
            self.assertIn(key, box)
        self.assertEqual(hashlib.sha256(box["token"].encode()).hexdigest(), box["lease"])
        self.assertTrue(0 < box["remaining_ms"] <= 60_000, box)
        mine = self.sandboxes()[box["id"]]
        self.assertEqual((mine["state"], mine["claimed"], mine["lease"]),
                         ("leased", True, box["lease"]))
        token = {"SANDPOOL_TOKEN": box["token"]}
        for name in (box["id"], box["lease"]):
            done = self.cli("exec", name, "--", "sh", "-c", "echo $((6*7)); exit 3", env=token)
            self.assertEqual((done.returncode, done.stdout), (3, b"42\n"), done.stderr)
        renewed = self.json("renew", "--ttl", "5m", box["id"], env=token)
        self.assertGreater(renewed["remaining_ms"], 200_000)
        self.assertEqual(self.cli("release", box["id"], env=token).returncode, 0)
        wait_until(lambda: box["id"] not in [b["id"] for b in self.leased()], 5, "released")
        self.assertIn("released", self.fails("LEASE_ENDED", "exec", box["lease"], "true", env=token))

    def test_the_lease_alone_renews_and_releases_but_does_not_enter(self):
        box = self.json("acquire", "--ttl", "30s", "default")
        wanted = self.json("renew", "--ttl", "3m", box["lease"])
        self.assertIn("wanted_at", wanted)
        wait_until(lambda: self.sandboxes()[box["id"]]["remaining_ms"] > 150_000, 5, "renewed")
        # A stranger to the daemon: the socket lets root in as operator, so another user asks.
        self.assertEqual(self.cli("release", box["lease"]).returncode, 0)
        wait_until(lambda: box["id"] not in [b["id"] for b in self.leased()], 5, "released")
        self.fails("NOT_FOUND", "release", "0" * 64)

    def test_a_lease_of_ones_own_is_the_same_sandbox_again(self):
        secret = secrets.token_hex(32)
        lease = hashlib.sha256(secret.encode()).hexdigest()
        first = self.json("acquire", "--lease", lease, "default")
        self.assertNotIn("token", first)
        self.assertFalse(first["claimed"])
        again = self.json("acquire", "--lease", lease, "default", env={"SANDPOOL_TOKEN": secret})
        self.assertEqual((again["id"], again["claimed"]), (first["id"], True))
        self.fails("LEASE_MISMATCH", "acquire", "--lease", lease, "--ttl", "1m", "default")

    def test_what_is_acquired_from_many_at_once_is_never_the_same(self):
        done = [None] * MAX_IDLE

        def one(number):
            done[number] = self.cli("acquire", "-q", "--wait", "10s", "default")
        threads = [threading.Thread(target=one, args=(n,)) for n in range(MAX_IDLE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids = [result.stdout for result in done]
        self.assertEqual([result.returncode for result in done], [0] * MAX_IDLE, done)
        self.assertEqual(len(set(ids)), MAX_IDLE)

    def test_a_preferred_host_is_asked_first(self):
        for name in self.hosts:
            self.wait_listed(MAX_IDLE)
            box = self.json("acquire", "--prefer-host", name, "default")
            self.assertEqual(box["host"], name)
            self.assertIn(box["id"], [b["id"] for b in self.daemons[name].sandboxes()])

    def test_what_makes_no_sense_is_said(self):
        self.assertIn("--bind", self.fails("UNSUPPORTED", "acquire", "--bind", "/srv:/x", "default"))
        self.assertIn("SANDPOOL_TOKEN", self.fails("INVALID_ARGUMENT", "exec", "0" * 20, "true"))
        self.fails("INVALID_ARGUMENT", "acquire", "--lease", "short", "default")
        self.fails("INVALID_ARGUMENT", "acquire", "No}Pool", )
        self.fails("INVALID_ARGUMENT", "--socket", "/x", "--redis", "redis://x", "stats")
        for verb in (["ls"], ["inspect", "0" * 20], ["reload"]):
            self.assertIn("daemon", self.fails("UNSUPPORTED", *verb))
        self.fails("POOL_NOT_RUNNING", "acquire", "nosuch")
        self.fails("POOL_NOT_FOUND", "pool", "show", "nosuch")


class Run(ClusterCase):
    def test_output_and_status_are_the_commands_and_nothing_stays(self):
        data = os.urandom(1 << 20)
        done = self.cli("run", "cat", input=data)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(done.stdout, data)
        self.assertEqual(self.cli("run", "sh", "-c", "exit 9").returncode, 9)
        self.assertEqual(self.cli("run", "--timeout", "200ms", "sleep", "9").returncode, 124)
        wait_until(lambda: not self.leased(), 5, "nothing is leased")

    def test_a_file_goes_with_it(self):
        with tempfile.NamedTemporaryFile(suffix=".sh") as file:
            file.write(b"#!/bin/sh\necho \"$0:$1\"\n")
            file.flush()
            done = self.cli("run", "--file", file.name, "--", "sh", "{}", "x")
        self.assertRegex(done.stdout, rb"^/workspace/tmp\w+\.sh:x\n$")

    def test_json_is_the_result(self):
        result = self.json("run", "echo", "hello")
        self.assertEqual((result["result"]["exit_code"], result["stdout"]), (0, "hello\n"))

    def test_the_lease_is_renewed_while_it_runs_and_short_when_it_is_killed(self):
        process = subprocess.Popen([str(t.BIN / "sandpool"), "run", "sleep", "60"],
                                   env={"SANDPOOL_REDIS": self.redis_host.url,
                                        "PATH": "/usr/bin:/bin"})
        with process:
            box = wait_until(self.leased, 10, "leased")[0]["id"]
            self.assertLessEqual(self.sandboxes()[box]["remaining_ms"], 60_000)
            wait_until(lambda: self.sandboxes()[box]["remaining_ms"] < 42_000, 30, "time passes")
            wait_until(lambda: self.sandboxes()[box]["remaining_ms"] > 55_000, 10, "renewed")
            process.kill()


class Waiting(ClusterCase):
    hosts = ("a",)
    pool = {"max_total": MAX_IDLE}

    def test_an_empty_pool_says_so_and_waiting_ends_with_the_first_that_is_free(self):
        boxes = [self.json("acquire", "--ttl", "1m", "default") for _ in range(MAX_IDLE)]
        self.fails("POOL_EMPTY", "acquire", "default")
        start = time.monotonic()
        self.fails("ACQUIRE_TIMEOUT", "acquire", "--wait", "700ms", "default")
        self.assertTrue(0.6 < time.monotonic() - start < 3)
        result = []
        thread = threading.Thread(
            target=lambda: result.append(self.cli("acquire", "-q", "--wait", "20s", "default")))
        thread.start()
        wait_until(lambda: self.stats()["tickets"] == 1, 5, "a ticket")
        self.cli("release", boxes[0]["lease"])
        thread.join()
        self.assertEqual(result[0].returncode, 0, result[0].stderr)

    def test_a_waiter_that_is_killed_leaves_no_ticket_b122(self):
        for _ in range(MAX_IDLE):
            self.json("acquire", "--ttl", "1m", "default")
        process = subprocess.Popen([str(t.BIN / "sandpool"), "acquire", "--wait", "1m", "default"],
                                   env={"SANDPOOL_REDIS": self.redis_host.url,
                                        "PATH": "/usr/bin:/bin"})
        with process:
            wait_until(lambda: self.stats()["tickets"] == 1, 5, "a ticket")
            process.kill()
        wait_until(lambda: self.stats()["tickets"] == 0, 8, "the ticket is stale")

    def test_a_lost_directory_is_survived_by_who_waits_b140(self):
        boxes = [self.json("acquire", "--ttl", "1m", "default") for _ in range(MAX_IDLE)]
        result = []
        thread = threading.Thread(
            target=lambda: result.append(self.cli("acquire", "-q", "--wait", "25s", "default")))
        thread.start()
        wait_until(lambda: self.stats()["tickets"] == 1, 5, "a ticket")
        self.redis.call("FLUSHALL")
        self.redis.call("FUNCTION", "FLUSH")
        self.daemons["a"].cli("release", boxes[0]["id"])
        thread.join()
        self.assertEqual(result[0].returncode, 0, result[0].stderr)


class Operators(ClusterCase):
    def test_stats_hosts_and_pools_are_told(self):
        pools = self.json("stats")["pools"]
        self.assertEqual([(p["name"], p["idle"], p["hosts_live"]) for p in pools],
                         [("default", MAX_IDLE, 2)])
        self.assertRegex(self.cli("stats").stdout.decode(), r"(?m)^default +active +2 +4 +4 ")
        hosts = self.json("hosts")["hosts"]
        self.assertEqual([(h["host"], h["state"], h["share"]) for h in hosts],
                         [("a", "live", 2), ("b", "live", 2)])
        for host in hosts:
            self.assertEqual(host["endpoint"], self.daemons[host["host"]].config["listen"][0])
        self.assertEqual(self.cli("hosts", "-q").stdout, b"a\nb\n")
        self.assertEqual(self.cli("pool", "ls", "-q").stdout, b"default\n")
        self.assertEqual(self.cli("top", "-c", "2", "-d", "100").stdout.count(b"default"), 2)

    def test_a_daemon_tells_the_hosts_too(self):
        hosts = json.loads(self.daemons["a"].cli("hosts", "--json", check=True).stdout)["hosts"]
        self.assertEqual(sorted({host["host"] for host in hosts}), ["a", "b"])
        self.assertEqual(self.daemons["a"].cli("hosts", "-q").stdout, b"a\nb\n")

    def test_resize_and_drain_reach_all_hosts(self):
        self.addCleanup(self.cli, "pool", "resize", "default", "--max-idle", MAX_IDLE)
        self.assertEqual(self.json("pool", "resize", "default", "--max-idle", "0")["max_idle"], 0)
        self.wait_listed(0)
        wait_until(lambda: not any(d.sandboxes() for d in self.daemons.values()), 5, "all gone")
        self.assertEqual(self.json("pool", "resize", "default", "--max-idle", "2")["max_idle"], 2)
        self.wait_listed(2)

    def test_a_drained_pool_gives_nothing_until_it_is_resumed(self):
        self.addCleanup(self.cli, "pool", "resume", "default")
        self.assertEqual(self.json("pool", "drain", "default")["state"], "draining")
        self.fails("POOL_NOT_RUNNING", "acquire", "default")
        self.assertEqual(self.json("pool", "resume", "default")["state"], "active")
        self.wait_listed(MAX_IDLE)

    def test_a_drained_host_gives_nothing_the_other_all(self):
        self.addCleanup(self.cli, "hosts", "resume", "a")
        self.assertEqual(self.cli("hosts", "drain", "a").returncode, 0)
        wait_until(lambda: {h["host"]: h["share"] for h in self.json("hosts")["hosts"]} ==
                   {"a": 0, "b": MAX_IDLE}, 15, "shares moved")
        self.wait_listed(MAX_IDLE)
        self.assertEqual(self.json("acquire", "--prefer-host", "a", "default")["host"], "b")
        self.fails("NOT_FOUND", "hosts", "drain", "nosuch")

    def test_another_prefix_is_another_world_b145(self):
        self.assertEqual(self.json("--prefix", "other", "stats")["pools"], [])
        self.fails("POOL_NOT_FOUND", "--prefix", "other", "pool", "destroy", "default")
        self.assertEqual(self.stats()["state"], "active")

    def test_no_call_walks_over_the_keys_but_the_one_that_lists_pools_b145(self):
        with self.redis_host.server.connect() as monitor:
            monitor.call("MONITOR")
            self.cli("run", "true")
            self.json("pool", "show", "default")
            self.redis.call("PING", "end-of-watch")
            seen = []
            while "end-of-watch" not in (seen or [""])[-1]:
                seen.append(str(monitor.receive()))
        commands = {re.match(r'\S+ \[[^]]*\] "(\w+)"', line).group(1).upper() for line in seen}
        self.assertFalse(commands & {"KEYS", "SCAN", "EVAL", "HGETALL"} - {"HGETALL"}, commands)


class Faults(ClusterCase):
    pool = {"idle_timeout": "1m"}

    def test_a_host_that_died_is_passed_over(self):
        """Its entries are listed until its deadline; whoever is given one asks for another."""
        daemon = self.daemons["b"]
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            box = self.json("acquire", "--prefer-host", "b", "default", timeout=40)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        self.assertEqual(box["host"], "a")

    def test_an_entry_that_nobody_made_is_passed_over_b117(self):  # P-152
        seq = [0]

        def host(name, *args):
            reply = self.redis.fcall(name, KEY, "forged", "inc1", seq[0], *args)
            seq[0] += 1
            return reply
        stats = self.stats()
        host("register", "c" * 64, "boot", "unix:///nonexistent/sp.sock", 1, "0", MAX_IDLE, 0, 0, 5000,
             "active", 0, stats["spec_revision"], stats["spec_digest"])
        host("heartbeat", 0, 1, 0, 0, 0, MAX_IDLE, 0, "active", 0)
        host("publish", "0123456789abcdefghjk", self.redis.time_ms() + 600_000,
             stats["spec_digest"])
        self.addCleanup(host, "unregister")
        box = self.json("acquire", "--prefer-host", "forged", "default")
        self.assertIn(box["host"], ("a", "b"))

    def test_a_redis_that_is_away_is_said_soon_and_held_sandboxes_work_on(self):
        box = self.json("acquire", "--ttl", "1m", "default")
        dead = {"SANDPOOL_REDIS": "unix:///nonexistent/redis.sock"}
        start = time.monotonic()
        self.fails("POOL_STATE_STORE_UNAVAILABLE", "acquire", "default", env=dead)
        self.assertLess(time.monotonic() - start, 5)
        done = cli("exec", box["id"], "echo", "still", env={
            "SANDPOOL_SOCKET": box["endpoint"], "SANDPOOL_TOKEN": box["token"]})
        self.assertEqual(done.stdout, b"still\n")

    def test_a_redis_that_hangs_is_said_soon(self):
        os.kill(self.redis_host.server.process.pid, signal.SIGSTOP)
        try:
            start = time.monotonic()
            self.fails("POOL_STATE_STORE_UNAVAILABLE", "acquire", "default")
            self.assertLess(time.monotonic() - start, 8)
        finally:
            os.kill(self.redis_host.server.process.pid, signal.SIGCONT)

    def test_functions_that_vanish_come_back_b137(self):
        self.redis.call("FUNCTION", "FLUSH")
        self.json("acquire", "default")


class Secrets(ClusterCase):
    hosts = ("a",)

    def test_redis_hears_the_digest_and_never_the_secret_b146(self):
        with self.redis_host.server.connect() as monitor:
            monitor.call("MONITOR")
            box = self.json("acquire", "default")
            self.cli("exec", box["id"], "true", env={"SANDPOOL_TOKEN": box["token"]})
            self.cli("release", box["id"], env={"SANDPOOL_TOKEN": box["token"]})
            self.redis.call("PING", "end-of-watch")
            seen = ""
            while "end-of-watch" not in seen:
                seen += str(monitor.receive())
        self.assertIn(box["lease"], seen)
        self.assertNotIn(box["token"], seen)
        self.assertNotIn(box["token"], self.daemons["a"].log())

    def test_a_password_in_the_url_is_refused_and_not_repeated_b146(self):
        message = self.fails("INVALID_ARGUMENT", "--redis", "redis://u:hunter22@h/0", "stats")
        self.assertNotIn("hunter22", message)

    def test_no_argument_of_a_running_client_is_a_secret_b146(self):
        process = subprocess.Popen([str(t.BIN / "sandpool"), "run", "sleep", "20"],
                                   env={"SANDPOOL_REDIS": self.redis_host.url,
                                        "PATH": "/usr/bin:/bin"})
        with process:
            lease = wait_until(self.leased, 10, "leased")[0]["lease"]
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            process.terminate()
        self.assertEqual(words[1:4], [b"run", b"sleep", b"20"])
        self.assertNotIn(lease.encode(), words)


class Users(Case):
    """With the users of deploy/redis/users.acl, over TLS where this redis-server can."""

    @classmethod
    def setUpClass(cls):
        if missing():
            raise unittest.SkipTest(missing())
        cls.directory = tempfile.mkdtemp(prefix="sandpool-test-")
        os.chmod(cls.directory, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        acl = f"{cls.directory}/users.acl"
        with open(ROOT / "deploy/redis/users.acl", "rb") as template, open(acl, "wb") as out:
            subprocess.run([ROOT / "deploy/redis/set-passwords", cls.directory], stdin=template,
                           stdout=out, check=True)
        make_certificate(cls.directory)
        make_certificate(cls.directory, "other")
        cls.port = free_port()
        cls.path = f"{cls.directory}/redis.sock"
        cls.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--tls-port", str(cls.port), "--bind", "127.0.0.1",
             "--unixsocket", cls.path, "--save", "", "--appendonly", "no", "--aclfile", acl,
             "--tls-cert-file", f"{cls.directory}/cert.pem", "--tls-key-file",
             f"{cls.directory}/cert.key", "--tls-ca-cert-file", f"{cls.directory}/cert.pem",
             "--tls-auth-clients", "no", "--dir", cls.directory],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.end)
        wait_until(lambda: os.path.exists(cls.path), 10, "redis-server")
        cls.url = f"rediss://127.0.0.1:{cls.port}"
        # The daemon's user reads it at each connect.
        password = f"{cls.directory}/sandpool-supervisor.password"
        shutil.chown(password, t.USER)
        cls.daemon = Daemon({
            "store": cls.url, "host": "a",
            "redis": {"user": "sandpool-supervisor", "password_file": password,
                      "ca_file": f"{cls.directory}/cert.pem"}})
        cls.daemon.__enter__()
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)

    @classmethod
    def end(cls):
        cls.process.kill()
        cls.process.wait()

    def cli(self, user, *args, **override):
        env = {"SANDPOOL_REDIS": self.url, "SANDPOOL_REDIS_USER": user,
               "SANDPOOL_REDIS_PASSWORD_FILE": f"{self.directory}/{user}.password",
               "SANDPOOL_REDIS_CA": f"{self.directory}/cert.pem"}
        return cli(*args, env=merge(env, override))

    def test_a_client_runs_and_may_not_change_the_pool(self):
        wait_until(lambda: self.daemon.pool()["idle"] > 0, 20, "idle")
        done = self.cli("sandpool-client", "run", "--wait", "10s", "echo", "hello")
        self.assertEqual((done.returncode, done.stdout), (0, b"hello\n"), done.stderr)
        done = self.cli("sandpool-client", "pool", "resize", "default", "--max-idle", "1")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"NOPERM", done.stderr)

    def test_who_may_not_list_keys_names_a_pool(self):
        done = self.cli("sandpool-client", "stats")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"pool show NAME", done.stderr)
        self.assertEqual(self.cli("sandpool-client", "pool", "show", "default").returncode, 0)
        self.assertEqual(self.cli("sandpool-viewer", "stats").returncode, 0)

    def test_an_operator_changes_the_pool(self):
        done = self.cli("sandpool-operator", "pool", "resize", "default", "--max-idle", "3",
                        "--json")
        self.assertEqual(json.loads(done.stdout)["max_idle"], 3, done.stderr)

    def test_a_wrong_password_is_said_without_it_and_soon_b133(self):
        with open(f"{self.directory}/wrong", "w", encoding="ascii") as file:
            file.write("hunter22\n")
        start = time.monotonic()
        done = self.cli("sandpool-client", "stats",
                        SANDPOOL_REDIS_PASSWORD_FILE=f"{self.directory}/wrong")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"WRONGPASS", done.stderr)
        self.assertNotIn(b"hunter22", done.stderr)
        self.assertLess(time.monotonic() - start, 5)

    def test_another_authority_is_refused(self):
        done = self.cli("sandpool-client", "stats",
                        SANDPOOL_REDIS_CA=f"{self.directory}/other.pem")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, rb"(?i)certificate")

    def doctor(self, config=None):
        path = f"{self.directory}/doctor.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(merge(self.daemon.config, config or {}), file)
        done = cli("doctor", "--config", path, "--json",
                   env={"SANDPOOL_SOCKET": self.daemon.socket_path})
        checks = json.loads(done.stdout)["checks"]
        return {check["name"]: check for check in checks if check["name"].startswith("redis")}

    def test_doctor_looks_at_the_redis_of_the_configuration_b141(self):
        checks = self.doctor()
        self.assertEqual({name: check["verdict"] for name, check in checks.items()},
                         {"redis": "pass", "redis version": "pass", "redis eviction": "pass",
                          "redis persistence": "pass", "redis rights": "pass"}, checks)
        with Redis(path=self.path) as admin:
            with open(f"{self.directory}/admin.password", encoding="ascii") as file:
                admin.call("AUTH", "admin", file.read().strip())
            admin.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            self.addCleanup(self.policy_back)
        self.assertEqual(self.doctor()["redis eviction"]["verdict"], "warn")

    def policy_back(self):
        with Redis(path=self.path) as admin:
            with open(f"{self.directory}/admin.password", encoding="ascii") as file:
                admin.call("AUTH", "admin", file.read().strip())
            admin.call("CONFIG", "SET", "maxmemory-policy", "noeviction")

    def test_doctor_names_the_functions_that_a_user_may_not_call(self):
        password = f"{self.directory}/sandpool-client.password"
        checks = self.doctor({"redis": {"user": "sandpool-client", "password_file": password}})
        self.assertEqual(checks["redis rights"]["verdict"], "fail")
        self.assertIn("heartbeat", checks["redis rights"]["detail"])
        self.assertNotIn("acquire", checks["redis rights"]["detail"])

    def test_doctor_names_a_file_that_the_daemon_cannot_read(self):
        password = f"{self.directory}/unreadable.password"
        shutil.copy(f"{self.directory}/sandpool-supervisor.password", password)
        os.chmod(password, 0o600)
        self.addCleanup(os.unlink, password)
        checks = self.doctor({"redis": {"user": "sandpool-supervisor", "password_file": password}})
        self.assertEqual(checks["redis"]["verdict"], "pass", checks)  # root can
        self.assertEqual(checks["redis files"]["verdict"], "fail")
        self.assertIn("unreadable.password", checks["redis files"]["detail"])
        shutil.chown(password, t.USER)
        checks = self.doctor({"redis": {"user": "sandpool-supervisor", "password_file": password}})
        self.assertNotIn("redis files", checks)

    def test_doctor_says_that_it_is_away(self):
        checks = self.doctor({"store": "redis://127.0.0.1:1"})
        self.assertEqual(checks["redis"]["verdict"], "fail")


if __name__ == "__main__":
    main()
