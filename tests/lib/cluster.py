"""Several hosts and one Redis in one machine: what tests/cluster runs against.

    with Cluster(hosts=3, config={"pools": {"default": {"max_idle": 20}}}) as cluster:
        cluster.start()
        cluster.redis.kill()
        cluster.daemons["a"].pause()
        cluster.hosts["b"].cut()

Each daemon is a real sandpoold in a network namespace of its own (netlab.py), with its own
directory, instance, uid range and socket; Redis listens on TCP in its namespace and on a Unix socket
that no fault but its own reaches: `redis.call(…)` sees it whatever is cut off. Everything is ended and
removed by close(), also what a failed test has stopped, paused or half started.
"""

import contextlib
import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

import netlab
import redis_proxy
import sandpool_test as t
from redis_client import Redis, RedisError
from sandpool_test import Daemon, wait_until

KEY = "cluster-test-key-0123456789abcdef"
HTTP_PORT = 7070
REDIS_PORT = 6379
SENTINEL_PORT = 26379
HOST_DEADLINE_MS = 5000
HOST_COLUMNS = ("host", "state", "idle", "creating", "leased", "waiters", "share", "capacity",
                "age_ms", "version", "endpoint")
WALLCLOCK = t.PROGRAMS / "cluster" / "wallclock.so"


def boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def needs_cluster():
    """Why the tests of this folder cannot run here, or None."""
    reason = t.needs_root() or t.needs_programs()
    if reason:
        return reason
    if not shutil.which("redis-server"):
        return "redis-server is not installed"
    return netlab.missing()


# ---- clocks ---------------------------------------------------------------------------------


class Clock:
    """A wall clock that a program is started with and that jumps when told (wallclock.c).
    CLOCK_BOOTTIME and CLOCK_MONOTONIC stay true."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(struct.pack("q", 0))
        os.chmod(path, 0o644)

    def set(self, offset_s):
        with open(self.path, "r+b") as file:
            file.write(struct.pack("q", int(offset_s * 1e9)))

    def environment(self):
        # The runtime of a sanitizer wants to be the first library and is the second.
        options = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return {"LD_PRELOAD": str(WALLCLOCK), "SP_WALLCLOCK": self.path, "ASAN_OPTIONS": options}


# ---- Redis ----------------------------------------------------------------------------------


class RedisServer:
    """redis-server, or redis-sentinel, in the namespace of `host`."""

    def __init__(self, host, directory, *, port=REDIS_PORT, config=(), clock=None, append=False,
                 sentinel=False):
        self.host = host
        self.directory = directory
        self.port = port
        self.config = list(config)
        self.clock = clock
        self.append = append
        self.sentinel = sentinel
        self.process = None
        self.paused = False
        self.password = None
        self.socket_path = f"{directory}/redis.sock"
        self.log_path = f"{directory}/redis.log"
        self._threads = threading.local()
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, 0o755)

    @property
    def url(self):
        return f"redis://{self.host.address}:{self.port}"

    def start(self, wait=True):
        path = f"{self.directory}/redis.conf"
        # Sentinel keeps what it has learnt in its file.
        if not (self.sentinel and os.path.exists(path)):
            lines = [f"port {self.port}", f"bind {self.host.address} 127.0.0.1",
                     f"dir {self.directory}", "protected-mode no", f"unixsocket {self.socket_path}",
                     "unixsocketperm 777"]
            if not self.sentinel:
                lines += ['save ""', f"appendonly {'yes' if self.append else 'no'}",
                          "appendfsync always", "enable-debug-command yes",
                          "repl-diskless-sync-delay 0", "repl-ping-replica-period 1"]
            with open(path, "w", encoding="ascii") as file:
                file.write("\n".join(lines + self.config) + "\n")
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        if self.clock:
            environment.update(self.clock.environment())
        # It ends with us, whatever ends us.
        program = ["setpriv", "--pdeathsig", "KILL", "redis-server", path]
        if self.sentinel:
            program.append("--sentinel")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.host.prefix + program, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, cwd=self.directory)
        if wait:
            wait_until(self.answers, 10, "Redis answers")
        return self

    def answers(self):
        with contextlib.suppress(OSError, EOFError, RedisError):
            return self.call("PING") == "PONG"
        return False

    def call(self, *words, timeout=5.0):
        """Past every fault of the network. RedisError is what Redis refused. Each thread has a
        connection of its own."""
        kept = getattr(self._threads, "connection", None)
        connection = self._threads.connection = kept or self.connect(timeout)
        try:
            return connection.call(*words)
        except RedisError:
            raise
        except BaseException as error:
            connection.close()
            self._threads.connection = None
            # Sentinel and tests close connections; what was kept may have been dead for long.
            if kept is None or not isinstance(error, (ConnectionError, EOFError)):
                raise
        return self.call(*words, timeout=timeout)

    def connect(self, timeout=5.0):
        """Another connection, past every fault of the network."""
        connection = Redis(path=self.socket_path, timeout=timeout)
        if self.password:
            connection.call("AUTH", self.password)
        return connection

    def time_ms(self):
        with self.connect() as connection:
            return connection.time_ms()

    # -- faults --

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        self._end(signal.SIGTERM)

    def _end(self, number):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.resume()
            self.process.send_signal(number)
        self.process.wait(20)
        self.process = None

    def restart(self, down_s=0.0):
        """kill -9, and again. What it knew is gone unless append is set."""
        self.kill()
        if down_s:
            time.sleep(down_s)
        self.start()

    def pause(self):
        if self.process and not self.paused:
            self.process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self):
        if self.process and self.paused:
            self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill_clients(self):
        return self.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def close(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


# ---- one host -------------------------------------------------------------------------------


class HostDaemon(Daemon):
    """sandpoold in a namespace, with Redis as its store."""

    def __init__(self, host, store, config=None, *, clock=None, env=None):
        self.host = host
        self.clock = clock
        self.paused = False
        keys = tempfile.NamedTemporaryFile("w", prefix="sandpool-keys-", dir="/tmp", delete=False)
        with keys:
            keys.write(KEY + "\n")
        os.chmod(keys.name, 0o600)
        self.keys_path = keys.name
        own = {"store": store, "insecure": True, "host": host.name,
               "advertise": f"tcp://{host.address}:{HTTP_PORT}",
               "uid_base": 2147483648 + (host.number % 32) * 512 * 65536, "uid_count": 512,
               "api_keys_file": keys.name}
        environment = dict(clock.environment() if clock else {}, **(env or {}))
        super().__init__(t.merge(own, config or {}), env=environment, prefix=host.prefix,
                         wait_ready=True)
        self.config["listen"] = [f"unix://{self.directory}/run/sandpool.sock",
                                 f"tcp://{host.address}:{HTTP_PORT}"]
        self.write_config()

    @property
    def pid(self):
        return self.process.pid  # nsenter has become it

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/readyz", timeout=2).status == 200
        return False

    def running(self):
        return self.process is not None and self.process.poll() is None

    # -- faults --

    def pause(self):
        if self.running() and not self.paused:
            os.kill(self.pid, signal.SIGSTOP)
            self.paused = True

    def resume(self):
        if self.running() and self.paused:
            os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def crash(self):
        """kill -9 of sandpoold; waits until its sandboxes are gone."""
        self.paused = False
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        wait_until(lambda: not self.inits(), 8, f"sandboxes of '{self.host.name}' died with it")

    def crash_launcher(self):
        """kill -9 of the launcher, and with it of every sandbox; sandpoold then ends by itself."""
        os.kill(self.launcher_pid, signal.SIGKILL)
        wait_until(lambda: not self.running(), 15, "the daemon ends after its launcher")

    def kill(self):
        self.resume()
        super().kill()

    def remove(self):
        super().remove()
        with contextlib.suppress(OSError):
            os.unlink(self.keys_path)


# ---- clients --------------------------------------------------------------------------------


class NetConnection(http.client.HTTPConnection):
    """HTTP from inside of a namespace."""

    def __init__(self, host, address, timeout):
        super().__init__(address[0], address[1], timeout=timeout)
        self.net_host = host

    def connect(self):
        self.sock = self.net_host.connect((self.host, self.port), self.timeout)


def endpoint_address(endpoint):
    """("10.77.0.1", 7070) of tcp://10.77.0.1:7070."""
    where = endpoint.split("://", 1)[-1].split("/", 1)[0]
    name, _colon, port = where.rpartition(":")
    return name, int(port)


class RemoteSandbox:
    """A sandbox as a client elsewhere has it: an endpoint, an id and the secret."""

    def __init__(self, host, endpoint, sandbox_id, secret, timeout=5.0):
        self.host = host
        self.address = endpoint_address(endpoint)
        self.id = sandbox_id
        self.secret = secret
        self.timeout = timeout

    def request(self, method, path="", body=None):
        connection = NetConnection(self.host, self.address, self.timeout)
        try:
            headers = {"Authorization": f"Bearer {KEY}", "X-Sandpool-Token": self.secret}
            data = None
            if body is not None:
                data = json.dumps(body).encode()
                headers["Content-Type"] = "application/json"
            connection.request(method, f"/v1/sandboxes/{self.id}{path}", data, headers)
            response = connection.getresponse()
            return t.Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def claim(self, ttl_ms=0):
        """With the ttl once more: the owner may hear of us before it hears from Redis."""
        return self.request("POST", "/claim", {"ttl": f"{ttl_ms}ms"} if ttl_ms else {})

    def shell(self, text, **start):
        return self.request("POST", "/exec", dict(start, shell=text))

    def renew(self, ttl):
        return self.request("POST", "/renew", {"ttl": ttl})

    def release(self):
        return self.request("DELETE")


class Refused(Exception):
    """A function's answer that is no sandbox; `status` is its first word."""

    def __init__(self, status, words=()):
        super().__init__(f"{status} {list(words)}")
        self.status = status


class Client:
    """What an SDK does (redis/README.md, direct use): acquire over Redis, claim at the owner, begin
    again if that did not work out."""

    BUDGET = 8
    TTL_MS = 60000
    PATIENCE_S = 3.0  # how long it asks again where there is none

    def __init__(self, cluster, timeout=5.0):
        self.cluster = cluster
        self.timeout = timeout

    def fcall(self, name, *args):
        with contextlib.closing(self.cluster.client(self.timeout)) as redis:
            return redis.fcall(name, self.cluster.meta(), *args)

    def ask(self, lease, *, policy="fail_fast", min_ttl_ms=-1, ttl_ms=TTL_MS, prefer="", reject=(),
            exclude=()):
        """One _acquire: {"id", "host", "endpoint", "end_ms", "remaining_ms", "time_ms"}."""
        return grant(self.fcall("acquire", lease, policy, min_ttl_ms, ttl_ms, prefer,
                                ",".join(reject), ",".join(exclude)))

    def ask_until(self, end, lease, **how):
        """Again while there is none: what was taken is being made anew, as fast as the machine can."""
        while True:
            try:
                return self.ask(lease, **how)
            except Refused as error:
                if error.status != "EMPTY" or time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def acquire(self, secret=None, **how):
        """A sandbox that was claimed. A candidate that turns out to be none costs a lease: the
        next is asked for with another secret, which the sandbox then has."""
        reject = list(how.pop("reject", ()))
        end = time.monotonic() + self.PATIENCE_S * t.SLOW_FACTOR
        problem = None
        for _ in range(self.BUDGET):
            secret = secret or secrets.token_hex(32)
            try:
                answer = self.ask_until(end, lease_of(secret), reject=reject, **how)
            except Refused as error:
                if error.status != "LEASE_ENDED":
                    raise
                secret, problem = None, error  # it ended before our claim
                continue
            box = RemoteSandbox(self.cluster.client_host, answer["endpoint"], answer["id"], secret,
                                self.timeout)
            box.owner = answer["host"]
            try:
                claim = box.claim(how.get("ttl_ms", self.TTL_MS))
                if claim.status == 200:
                    box.remaining_ms = claim.json["remaining_ms"]
                    return box
                problem = claim
            except OSError as error:
                problem = error
            self.fcall("cancel", lease_of(secret))
            reject.append(answer["id"])
            secret = None
        raise Refused("BUDGET", [repr(problem), *reject])


def lease_of(secret):
    return hashlib.sha256(secret.encode()).hexdigest()


def grant(words):
    if words[0] != "OK":
        raise Refused(words[0], words[1:])
    return {"id": words[1], "host": words[2], "endpoint": words[3], "end_ms": int(words[4]),
            "remaining_ms": int(words[5]), "time_ms": int(words[6])}


# ---- all of it ------------------------------------------------------------------------------


class Cluster:
    """`hosts` daemons named a, b, c…, one Redis, and a host for clients. `proxy`: the daemons reach
    Redis through one that breaks what it is told to."""

    def __init__(self, hosts=2, *, config=None, redis_config=(), append=False, clocks=False,
                 store=None, proxy=False):
        self.directory = tempfile.mkdtemp(prefix="sandpool-cluster-", dir="/tmp")
        os.chmod(self.directory, 0o755)
        self.names = [chr(ord("a") + number) for number in range(hosts)]
        self.daemons = {}
        self.extra = []
        self.network = self.redis = self.proxy = None
        try:
            self.network = netlab.Network()
            self.hosts = {name: self.network.host(name) for name in self.names}
            self.client_host = self.network.host("client")
            self.redis_host = self.network.host("redis")
            self.redis = RedisServer(self.redis_host, f"{self.directory}/redis",
                                     config=redis_config, append=append,
                                     clock=self._clock("redis") if clocks else None)
            if proxy:
                host = self.network.host("proxy")
                self.proxy = self.own(redis_proxy.RedisProxy(
                    host, (self.redis_host.address, REDIS_PORT), REDIS_PORT))
                store = f"redis://{host.address}:{REDIS_PORT}"
            for name in self.names:
                self.daemons[name] = HostDaemon(
                    self.hosts[name], store or self.redis.url, config,
                    clock=self._clock(name) if clocks else None)
        except BaseException:
            self.close()
            raise

    def _clock(self, name):
        return Clock(f"{self.directory}/clock-{name}")

    def own(self, thing):
        """close() closes it too, first."""
        self.extra.append(thing)
        return thing

    def start(self):
        try:
            return self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        if self.redis.process is None:
            self.redis.start()
        for daemon in self.daemons.values():
            daemon.wait_ready = False
            daemon.start()
        for daemon in self.daemons.values():
            daemon.ready()
            daemon.wait_ready = True
        return self

    def client(self, timeout=5.0):
        """A connection to Redis over the network, from where clients live."""
        return Redis(sock=self.client_host.connect((self.redis_host.address, self.redis.port),
                                                   timeout), timeout=timeout)

    def meta(self, pool="default"):
        return f"sandpool:{{{pool}}}:meta"

    def fcall(self, name, *args, pool="default"):
        """A function, asked past every fault of the network."""
        return self.redis.call("FCALL", f"sandpool_v1_{name}", 1, self.meta(pool), *args)

    def stats(self, pool="default"):
        """sandpool_v1_stats as a dict; `hosts` by name."""
        words = self.fcall("stats", pool=pool)
        if words[0] != "OK":
            raise Refused(words[0])
        pairs = words[3:3 + 2 * words[2]]
        facts = {"time_ms": words[1], **dict(zip(pairs[::2], pairs[1::2]))}
        rows = words[4 + 2 * words[2]:]
        facts["hosts"] = {
            rows[at]: dict(zip(HOST_COLUMNS, rows[at:at + len(HOST_COLUMNS)]))
            for at in range(0, len(rows), len(HOST_COLUMNS))}
        return facts

    def pools(self, pool="default"):
        """What every running daemon says of the pool, by host."""
        answers = {}
        for name, daemon in self.daemons.items():
            if daemon.running() and not daemon.paused:
                answers[name] = daemon.pool(pool)
        return answers

    def max_idle(self, pool="default"):
        """As configured."""
        return next(iter(self.daemons.values())).config["pools"][pool]["max_idle"]

    def idle(self, pool="default"):
        return sum(answer["idle"] for answer in self.pools(pool).values())

    def wait_idle(self, count, pool="default", timeout=15, even=False):
        """So many idle in all, nothing under way; `even`: and all hosts have their part."""
        now = {}

        def full():
            now.clear()
            now.update(self.pools(pool))
            idle = [answer["idle"] for answer in now.values()]
            return (sum(idle) == count and (not even or max(idle) - min(idle) <= 1) and
                    not any(answer["creating"] or answer["killing"] for answer in now.values()))
        try:
            wait_until(full, timeout, f"{count} idle in all hosts", interval=0.05)
        except AssertionError as error:
            logs = "".join(f"\n-- {name}\n{daemon.log()[-1500:]}"
                           for name, daemon in self.daemons.items())
            raise AssertionError(f"{error}: {now}{logs}") from None

    def heal(self):
        """Undo every fault: cables, stopped processes, dead daemons, a dead Redis."""
        self.network.heal()
        if self.redis.process is None or self.redis.process.poll() is not None:
            self.redis.start()
        self.redis.resume()
        for daemon in self.daemons.values():
            daemon.resume()
            if not daemon.running():
                daemon.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                for daemon in self.daemons.values():
                    daemon.stop()
        finally:
            self.close()

    def close(self):
        for thing in reversed(self.extra):
            with contextlib.suppress(OSError):
                thing.close()
        for daemon in self.daemons.values():
            with contextlib.suppress(OSError):
                daemon.kill()
            daemon.remove()
        if self.redis is not None:
            self.redis.close()
        if self.network is not None:
            self.network.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Sentinels:
    """Three of them watch one master; the replica is the other server."""

    def __init__(self, cluster, master, name="pool", down_after_ms=500):
        self.servers = []
        host = cluster.network.host("sentinel")
        for number in range(3):
            server = RedisServer(
                host, f"{cluster.directory}/sentinel-{number}", port=SENTINEL_PORT + number,
                sentinel=True,
                config=[f"sentinel monitor {name} {master.host.address} {master.port} 2",
                        f"sentinel down-after-milliseconds {name} {down_after_ms}",
                        f"sentinel failover-timeout {name} 3000",
                        f"sentinel parallel-syncs {name} 1"])
            self.servers.append(cluster.own(server).start())
        self.name = name
        self.url = "redis+sentinel://" + ",".join(
            f"{host.address}:{server.port}" for server in self.servers) + f"/{name}"

    def master(self):
        """Its address as the first of them sees it."""
        words = self.servers[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return (words[0], int(words[1])) if words else None

    def settled(self):
        """All see each other and a replica: a failover is possible."""
        for server in self.servers:
            words = server.call("SENTINEL", "MASTER", self.name)
            facts = dict(zip(words[::2], words[1::2]))
            if facts["num-other-sentinels"] != "2" or facts["num-slaves"] == "0":
                return False
        return True
