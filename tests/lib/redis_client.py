"""A small Redis client (RESP2) and private servers for tests. Standard library only.

    with Server() as server:                      # or Server(cluster=True), Server(program="valkey-server")
        redis = server.connect()
        redis.call("SET", "k", 1)                 # "OK"
        redis.fcall("info", "sandpool:{p}:meta")  # FCALL sandpool_v1_info 1 …

Bulk strings come back as str; bytes that are no UTF-8 survive as surrogates and may be sent back as
they are. An error reply is raised as RedisError, a closed connection as EOFError.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

FUNCTIONS = pathlib.Path(__file__).resolve().parents[2] / "redis" / "functions"
LIBRARY = "sandpool_v1"
START_TIMEOUT_S = 10


def library_text():
    """redis/functions/*.lua as the build puts them together (redis/functions/embed.cmake)."""
    parts = [path.read_text(encoding="utf-8") for path in sorted(FUNCTIONS.glob("*.lua"))]
    return f"#!lua name={LIBRARY}\n" + "".join(parts)


class RedisError(Exception):
    """An error reply; str() is the server's text."""


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if not isinstance(word, bytes):
            word = str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Redis:
    def __init__(self, path=None, host=None, port=None, sock=None, timeout=5.0):
        if sock is None and path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(timeout)
            try:
                sock.connect(path)
            except BaseException:
                sock.close()
                raise
        elif sock is None:
            sock = socket.create_connection((host, port), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(timeout)
        self.sock = sock
        self.file = sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.file.close()
        self.sock.close()

    def send(self, *words):
        self.sock.sendall(encode(words))

    def receive(self):
        """The next reply; an error inside of an array is returned, not raised."""
        reply = self._read()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def _read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RedisError(rest.decode("utf-8", "surrogateescape"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            if size < 0:
                return None
            data = self.file.read(size + 2)
            if len(data) != size + 2:
                raise EOFError("Redis closed the connection")
            return data[:-2].decode("utf-8", "surrogateescape")
        if kind == b"*":
            return None if int(rest) < 0 else [self._read() for _ in range(int(rest))]
        raise ValueError(f"not RESP: {line!r}")

    def call(self, *words):
        self.send(*words)
        return self.receive()

    def pipeline(self, commands):
        """The replies of many commands; errors are among them."""
        commands = list(commands)
        self.sock.sendall(b"".join(encode(words) for words in commands))
        return [self._read() for _ in commands]

    def fcall(self, name, key, *args):
        return self.call("FCALL", f"{LIBRARY}_{name}", 1, key, *args)

    def load_library(self):
        return self.call("FUNCTION", "LOAD", "REPLACE", library_text())

    def time_ms(self):
        seconds, micros = self.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


class Server:
    """A private server on a Unix socket, without persistence, in a directory of its own."""

    def __init__(self, *options, cluster=False, program="redis-server", library=True):
        self.program = program
        self.options = list(options)
        self.cluster = cluster
        self.library = library
        self.process = self.directory = None

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="sandpool-redis-", dir="/tmp")
        self.path = f"{self.directory}/redis.sock"
        self.log_path = f"{self.directory}/log"
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        words = [self.program, "--unixsocket", self.path, "--save", "", "--appendonly", "no",
                 "--dir", self.directory, "--daemonize", "no"]
        if self.cluster:
            # A cluster node insists on a port; nobody speaks to it there.
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            words += ["--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes",
                      "--cluster-port", str(port + 10000 if port < 55000 else port - 10000)]
        else:
            words += ["--port", "0"]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(words + self.options, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=self.directory)
        end = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.log_path, encoding="utf-8", errors="replace") as log:
                    raise RuntimeError(f"{self.program} does not answer:\n{log.read()[-2000:]}")
            time.sleep(0.01)
        with self.connect() as redis:
            if self.cluster:
                redis.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
                while "cluster_state:ok" not in redis.call("CLUSTER", "INFO"):
                    time.sleep(0.01)
            if self.library:
                redis.load_library()

    def _answers(self):
        try:
            with self.connect() as redis:
                return redis.call("PING") == "PONG"
        except (OSError, EOFError, RedisError):
            return False

    def connect(self, timeout=5.0):
        return Redis(path=self.path, timeout=timeout)

    def __exit__(self, *_):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def has_program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None
