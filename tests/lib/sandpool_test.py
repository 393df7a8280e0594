"""What the Python suites share: a daemon under test, its clients, and the leak check.

Standard library only, and it must work with the python3 of Debian 12.

A test file looks like this and can be run alone (`python3 tests/e2e/test_x.py`):

    from sandpool_test import SandpoolCase, main

    class Greeting(SandpoolCase):
        config = {"pools": {"default": {"max_idle": 2}}}

        def test_says_hello(self):
            self.assertEqual(self.run_argv("echo", "hello").stdout, b"hello\\n")

    if __name__ == "__main__":
        main()

Every Daemon has an instance name of its own, so that several run on one host, and checks when it
stops that nothing of it is left: no process, cgroup, mount, socket or file. Programs come from
SANDPOOL_BIN (default: build/bin). SP_TESTS_MUST_RUN=1 turns every skip into a failure.
"""

import contextlib
import copy
import functools
import glob
import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SANDPOOL_BIN", ROOT / "build" / "bin")).resolve()
# Payloads and bench programs are built beside bin/.
PROGRAMS = BIN.parent / "tests"
# The unprivileged user that sandpoold runs as in tests; any that exists will do.
USER = "daemon"
PYTHON = "/usr/bin/python3"
START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 20
TEST_TIMEOUT_S = int(os.environ.get("SP_TEST_TIMEOUT", "120"))
SLOW_FACTOR = float(os.environ.get("SP_TEST_SLOW", "1"))  # sanitizer builds

# ---- configuration --------------------------------------------------------------------------


def merge(base, override):
    """Objects merge, None deletes a key, everything else replaces."""
    result = copy.deepcopy(base)
    for key, value in override.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def base_config(directory, instance):
    return {
        "store": "memory",
        "listen": [f"unix://{directory}/run/sandpool.sock"],
        "instance": instance,
        "state_dir": f"{directory}/state",
        "user": USER,
        "log_level": "info",
        "pools": {
            "default": {
                "max_idle": 2,
                "idle_timeout": "10m",
                "acquire_min_remaining_ttl": 0,
                "max_lease": "10m",
                "limits": {"memory": "256MiB", "pids": 128, "tmp": "64MiB", "output": "64MiB"},
            }
        },
    }


# ---- waiting --------------------------------------------------------------------------------


def wait_until(condition, timeout=10.0, what="condition", interval=0.01):
    """Poll until condition() is true and return its value; AssertionError after the timeout."""
    end = time.monotonic() + timeout * SLOW_FACTOR
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {timeout * SLOW_FACTOR:g} s")
        time.sleep(interval)


def free_port():
    """Of loopback; nobody holds it until somebody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


# ---- what a host holds ----------------------------------------------------------------------


def read_text(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def cgroups_of(instance):
    """Every cgroup directory of this instance, in whatever hierarchy."""
    found = []
    for top, directories, _files in os.walk("/sys/fs/cgroup"):
        if os.path.basename(top) == instance:
            found.append(top)
            directories.clear()
        # Those of the other daemons are many, and this is asked for in loops.
        elif os.path.basename(os.path.dirname(top)) == "sandpool" or top.count("/") > 8:
            directories.clear()
    return found


def cgroup_processes(instance):
    """Processes that live in a cgroup of this instance."""
    found = set()
    for top in cgroups_of(instance):
        for directory, _subdirectories, _files in os.walk(top):
            for word in read_text(os.path.join(directory, "cgroup.procs")).split():
                found.add(int(word))
    return found


def children_of(pid):
    """Live and zombie children of a process: [(pid, name, state)]."""
    result = []
    for other in pids():
        match = re.match(r"\d+ \((.*)\) (\S) (\d+) ", read_text(f"/proc/{other}/stat"), re.S)
        if match and int(match.group(3)) == pid:
            result.append((other, match.group(1), match.group(2)))
    return result


def descendants_of(pid):
    result = []
    for child, name, state in children_of(pid):
        result.append((child, name, state))
        result.extend(descendants_of(child))
    return result


def is_init(pid):
    """Is it PID 1 of a pid namespace below ours?"""
    match = re.search(r"^NSpid:\s+(.*)$", read_text(f"/proc/{pid}/status"), re.M)
    return bool(match) and len(match.group(1).split()) > 1 and match.group(1).split()[-1] == "1"


def mountinfo():
    """Host mounts without their ids, so that two readings can be compared; without file systems that
    a test made for itself (HostDirectory)."""
    lines = []
    for line in read_text("/proc/1/mountinfo").splitlines():
        fields = line.split()
        if not re.search(r"/sandpool-top-\w+/work$", fields[4]):
            lines.append(" ".join(fields[2:]))
    return sorted(lines)


def fd_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def fd_kinds(pid):
    """{what: how many}, without the numbers that tell two of a kind apart."""
    kinds = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            kind = "/".join(target.split("/")[:-2] + ["…", target.split("/")[-1]]) \
                if target.startswith("/sys/") else re.sub(r"\d+", "", target)
            kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def is_exec_cgroup(kind):
    return re.fullmatch(r"/sys/fs/cgroup/.*/x\d+", kind) is not None


def spare_cgroups(pid):
    """The cgroups for single execs that it has in hand, or in use."""
    return sum(count for kind, count in fd_kinds(pid).items() if is_exec_cgroup(kind))


def held_count(pid):
    """Descriptors, but for those cgroups: a leased sandbox has one or two in hand, as it comes."""
    return sum(count for kind, count in fd_kinds(pid).items() if not is_exec_cgroup(kind))


def rss_kib(pid):
    match = re.search(r"^VmRSS:\s+(\d+)", read_text(f"/proc/{pid}/status"), re.M)
    return int(match.group(1)) if match else 0


def shared_state():
    """What must look the same before and after any instance lived on this host."""
    return {
        "mounts": mountinfo(),
        "shm": sorted(name for name in os.listdir("/dev/shm")
                      if not name.startswith("sandpool-top-")),  # HostDirectory
    }


# ---- clients --------------------------------------------------------------------------------


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("sandpool", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The error code ("POOL_EMPTY"), or None."""
        try:
            return self.json.get("code")
        except (ValueError, AttributeError):
            return None

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class ApiError(Exception):
    def __init__(self, response):
        super().__init__(f"{response!r}")
        self.response = response
        self.status = response.status
        self.code = response.code


FRAME_START, FRAME_STDIN, FRAME_STDIN_EOF, FRAME_RESIZE, FRAME_SIGNAL = 1, 2, 3, 4, 5
FRAME_STARTED, FRAME_STDOUT, FRAME_STDERR, FRAME_STDIN_CREDIT = 65, 66, 67, 68
FRAME_RESULT, FRAME_ERROR = 69, 70
STDIN_WINDOW = 256 * 1024
DATA_MAX = 64 * 1024


class StreamClosed(Exception):
    """The server closed the stream."""


class ExecStream:
    """Client end of the framed stream (supervisor/api/exec_frame.h)."""

    def __init__(self, socket_path, target, headers=None, timeout=30):
        self.out, self.err, self.result = [], [], None
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout * SLOW_FACTOR)
        self.sock.connect(socket_path)
        self.buffer = b""
        self.credit = STDIN_WINDOW
        lines = [f"POST {target} HTTP/1.1", "Host: sandpool", "Connection: Upgrade",
                 "Upgrade: sandpool-exec", "Content-Length: 0"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self._receive()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])
        if self.status != 101:
            match = re.search(rb"content-length: *(\d+)", head, re.I)
            while match and len(self.buffer) < int(match.group(1)):
                self._receive()
            self.sock.close()
            raise ApiError(Response(self.status, {}, self.buffer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def _receive(self):
        data = self.sock.recv(1 << 16)
        if not data:
            raise StreamClosed(f"after {len(self.buffer)} buffered bytes")
        self.buffer += data

    def send(self, kind, payload=b""):
        self.sock.sendall(struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload)

    def start(self, **start):
        self.send(FRAME_START, json.dumps(start).encode())

    def signal(self, number):
        self.send(FRAME_SIGNAL, struct.pack("<I", number))

    def resize(self, rows, columns):
        self.send(FRAME_RESIZE, struct.pack("<HH", rows, columns))

    def receive(self):
        """The next frame: (type, payload)."""
        while len(self.buffer) < 8:
            self._receive()
        kind, zero, zero16, length = struct.unpack("<BBHI", self.buffer[:8])
        if zero or zero16:
            raise AssertionError(f"reserved bytes of a frame are set: {self.buffer[:8]!r}")
        while len(self.buffer) < 8 + length:
            self._receive()
        payload = self.buffer[8:8 + length]
        self.buffer = self.buffer[8 + length:]
        return kind, payload

    def started(self):
        """Wait for STARTED; its object, or None after the RESULT of a program that could not be
        started. ApiError on ERROR."""
        kind, payload = self.receive()
        if kind == FRAME_ERROR:
            raise ApiError(Response(0, {}, payload))
        if kind == FRAME_RESULT:
            self.result = json.loads(payload)
            return None
        if kind != FRAME_STARTED:
            raise AssertionError(f"frame {kind} {payload[:200]!r} where STARTED was due")
        return json.loads(payload)

    def stdin(self, data):
        """Send stdin within the credit, until all is sent or the program has ended."""
        while data:
            while self.credit == 0 and self.result is None:
                self._note(*self.receive())
            if self.result is not None:
                return
            part = data[:min(self.credit, DATA_MAX)]
            self.send(FRAME_STDIN, part)
            self.credit -= len(part)
            data = data[len(part):]

    def stdin_eof(self):
        self.send(FRAME_STDIN_EOF)

    def _note(self, kind, payload):
        if kind == FRAME_STDIN_CREDIT:
            self.credit += struct.unpack("<I", payload)[0]
        elif kind == FRAME_STDOUT:
            self.out.append(payload)
        elif kind == FRAME_STDERR:
            self.err.append(payload)
        elif kind == FRAME_RESULT:
            self.result = json.loads(payload)
        elif kind == FRAME_ERROR:
            raise ApiError(Response(0, {}, payload))

    def begin(self, **start):
        """START and STARTED; collects output from here on."""
        self.out, self.err, self.result, self.credit = [], [], None, STDIN_WINDOW
        self.start(**start)
        return self.started()

    def finish(self):
        """Read up to RESULT."""
        while self.result is None:
            self._note(*self.receive())
        return Outcome(self.result, b"".join(self.out), b"".join(self.err))

    def run(self, stdin=None, **start):
        if stdin is not None:
            start["stdin"] = True
        self.begin(**start)
        if stdin is not None and self.result is None:
            self.stdin(stdin)
            self.stdin_eof()
        return self.finish()

    def read_stdout(self, want):
        """Read until stdout holds `want`."""
        while want not in b"".join(self.out):
            self._note(*self.receive())
            if self.result is not None and want not in b"".join(self.out):
                raise AssertionError(f"ended without {want!r}: {self.result} {self.out} {self.err}")


class Outcome:
    def __init__(self, result, stdout, stderr):
        self.result = result
        self.stdout = stdout
        self.stderr = stderr

    reason = property(lambda self: self.result["reason"])
    exit_code = property(lambda self: self.result["exit_code"])
    signal = property(lambda self: self.result["signal"])
    text = property(lambda self: self.stdout.decode("utf-8", "backslashreplace").strip())

    def __repr__(self):
        return f"<{self.result} out={self.stdout[-400:]!r} err={self.stderr[-400:]!r}>"


class Sandbox:
    """A held sandbox; leaving the context releases it."""

    def __init__(self, daemon, answer):
        self.daemon = daemon
        self.answer = answer
        self.id = answer["id"]
        self.token = answer.get("token")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, ApiError, http.client.HTTPException):
            self.release()

    def headers(self):
        return {"X-Sandpool-Token": self.token} if self.token else {}

    def stream(self, timeout=30):
        return ExecStream(self.daemon.socket_path, f"/v1/sandboxes/{self.id}/exec",
                          self.headers(), timeout)

    def run(self, *argv, stdin=None, timeout_s=30, **start):
        """Run argv (or shell=…) and return its Outcome."""
        if argv:
            start["argv"] = list(argv)
        with self.stream(timeout_s) as stream:
            return stream.run(stdin=stdin, **start)

    def shell(self, text, **start):
        return self.run(shell=text, **start)

    def python(self, text, *args, **start):
        return self.run(PYTHON, "-c", text, *args, **start)

    def put(self, path, data, mode=0o755):
        outcome = self.run("/bin/sh", "-c", f'cat > "$0" && chmod {mode:o} "$0"', path, stdin=data)
        if outcome.exit_code != 0:
            raise AssertionError(f"put {path}: {outcome}")

    def inspect(self):
        return self.daemon.call("GET", f"/v1/sandboxes/{self.id}", headers=self.headers())

    def renew(self, ttl):
        return self.daemon.call("POST", f"/v1/sandboxes/{self.id}/renew", {"ttl": ttl},
                                headers=self.headers())

    def release(self):
        return self.daemon.call("DELETE", f"/v1/sandboxes/{self.id}", headers=self.headers())


# ---- the daemon under test ------------------------------------------------------------------

_serial = 0


def instance_name():
    global _serial
    _serial += 1
    return f"test-{os.getpid()}-{_serial}"


class StartFailed(Exception):
    """sandpoold ended before it was ready; the text is its log."""


class Daemon:
    """sandpoold with a configuration, directory and instance name of its own.

    with Daemon({"pools": {"default": {"max_idle": 4}}}) as daemon: …
    """

    def __init__(self, config=None, *, env=None, prefix=(), wait_ready=True):
        self.instance = instance_name()
        self.directory = tempfile.mkdtemp(prefix="sandpool-test-", dir="/tmp")
        os.chmod(self.directory, 0o755)
        self.config = merge(base_config(self.directory, self.instance), config or {})
        self.instance = self.config["instance"]
        self.config_path = f"{self.directory}/sandpool.json"
        self.log_path = f"{self.directory}/log"
        self.env = env
        self.prefix = list(prefix)
        self.wait_ready = wait_ready
        self.process = None
        self.before = shared_state()
        self.write_config()
        listen = [item for item in self.config["listen"] if item.startswith("unix://")]
        self.socket_path = listen[0][len("unix://"):] if listen else None
        # sandpoold makes its sockets as its own user.
        for name in ("run", "state"):
            os.makedirs(f"{self.directory}/{name}", exist_ok=True)
        if self.config.get("user"):
            shutil.chown(f"{self.directory}/run", self.config["user"])

    # -- life --

    def write_config(self, override=None):
        if override:
            self.config = merge(self.config, override)
        temporary = self.config_path + ".new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.config, file, indent=2)
        os.chmod(temporary, 0o644)
        os.rename(temporary, self.config_path)

    def __enter__(self):
        try:
            self.start()
        except StartFailed:
            # A start that is refused takes its launcher along, which leaves no lock behind.
            wait_until(lambda: not self.processes(), what="the end of a refused start")
            self.kill()
            self.remove()
            lock = f"/run/sandpool-launcher/{self.instance}.lock"
            if os.path.exists(lock):
                raise AssertionError(f"left behind: {lock}") from None
            raise
        except BaseException:
            self.kill()
            self.remove()
            raise
        return self

    def __exit__(self, kind, *_):
        self.stop(check=kind is None)
        self.remove()

    def start(self):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "SANDPOOL_TEST_INSTANCE": self.instance}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "GCOV_PREFIX"):
            if name in os.environ:
                environment[name] = os.environ[name]
        environment.update(self.env or {})
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.prefix + [str(BIN / "sandpoold"), "--config", self.config_path],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True)
        if self.wait_ready:
            self.ready()
        return self

    def ready(self, timeout=START_TIMEOUT_S):
        end = time.monotonic() + timeout * SLOW_FACTOR
        while True:
            if self.process.poll() is not None:
                raise StartFailed(f"exit {self.process.returncode}\n{self.log()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                response = self.request("GET", "/readyz", timeout=2)
                if response.status == 200:
                    return
            if time.monotonic() > end:
                raise StartFailed(f"not ready within {timeout * SLOW_FACTOR:g} s\n{self.log()}")
            time.sleep(0.01)

    @property
    def pid(self):
        """sandpoold itself, also when a prefix program started it."""
        if not self.prefix:
            return self.process.pid
        for pid, name, _state in descendants_of(self.process.pid):
            if name == "sandpoold":
                return pid
        return self.process.pid

    @property
    def launcher_pid(self):
        for pid, name, _state in descendants_of(self.process.pid):
            if name.startswith("sandpool-launch"):
                return pid
        for pid in pids():
            if (read_text(f"/proc/{pid}/comm").startswith("sandpool-launch")
                    and self.instance in read_text(f"/proc/{pid}/environ")):
                return pid
        raise AssertionError("no launcher process")

    def inits(self):
        """Host pids of the sandboxes' PID 1."""
        return [pid for pid in cgroup_processes(self.instance) if is_init(pid)]

    def processes(self):
        """Everything that belongs to this instance, seen from the host."""
        found = set(cgroup_processes(self.instance))
        mark = f"SANDPOOL_TEST_INSTANCE={self.instance}"
        for pid in pids():
            if mark in read_text(f"/proc/{pid}/environ").split("\0"):
                found.add(pid)
            elif self.directory in read_text(f"/proc/{pid}/cmdline"):
                found.add(pid)
        if self.process:
            found.update(pid for pid, _name, _state in descendants_of(self.process.pid))
        found.discard(os.getpid())
        return found

    def stop(self, check=True, number=signal.SIGTERM):
        """SIGTERM, wait, and (unless check is False) look for leftovers."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_TIMEOUT_S * SLOW_FACTOR)
            except subprocess.TimeoutExpired:
                log = self.log()
                self.kill()
                if check:
                    raise AssertionError(f"did not stop within {STOP_TIMEOUT_S} s\n{log}") from None
        code = self.process.returncode
        if check:
            self.check_leaks()
            if number == signal.SIGTERM and code != 0:
                raise AssertionError(f"sandpoold ended with {code}\n{self.log()}")
            # The launcher has an environment of its own, so its reports come here.
            if re.search("Sanitizer: |runtime error: ", self.log()):
                raise AssertionError(f"a sanitizer found something\n{self.log()}")
        else:
            self.kill()
        self.process = None

    def kill(self):
        """SIGKILL whatever is left of this instance; for tests that failed already."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        end = time.monotonic() + 5
        while time.monotonic() < end:
            left = self.processes()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for top in cgroups_of(self.instance):
            for directory, _subdirectories, _files in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def leaks(self):
        """What of this instance is left on the host: a list of sentences."""
        found = []
        for pid in self.processes():
            found.append(f"process {pid} {read_text(f'/proc/{pid}/comm').strip()}")
        found += [f"cgroup {path}" for path in cgroups_of(self.instance)]
        after = shared_state()
        found += [f"mount {line}" for line in after["mounts"]
                  if line not in self.before["mounts"]]
        found += [f"/dev/shm/{name}" for name in after["shm"] if name not in self.before["shm"]]
        run = f"{self.directory}/run"
        if os.path.isdir(run):
            found += [f"file {run}/{name}" for name in os.listdir(run)]
        found += [f"file {path}" for top in ("/run", "/var/lib", "/tmp")
                  for path in glob.glob(f"{top}/sandpool*/*{self.instance}*")
                  if not path.startswith(self.directory)]
        # The state directory keeps what a restart needs (flat files), never anything of a sandbox.
        for directory, subdirectories, _files in os.walk(f"{self.directory}/state"):
            found += [f"directory {directory}/{name}" for name in subdirectories]
        return found

    def check_leaks(self, timeout=5):
        """The kernel finishes a few things (cgroup removal) shortly after the last process."""
        end = time.monotonic() + timeout * SLOW_FACTOR
        while True:
            found = self.leaks()
            if not found:
                return
            if time.monotonic() > end:
                raise AssertionError("left behind:\n  " + "\n  ".join(found) +
                                     f"\nlog:\n{self.log()[-4000:]}")
            time.sleep(0.02)

    def log(self):
        return read_text(self.log_path)

    # -- HTTP --

    def request(self, method, target, body=None, headers=None, timeout=30, raw=None):
        connection = UnixConnection(self.socket_path, timeout * SLOW_FACTOR)
        try:
            headers = dict(headers or {})
            data = raw
            if body is not None:
                data = json.dumps(body).encode()
                headers.setdefault("Content-Type", "application/json")
            # A server may refuse before it has read the body; its answer is there all the same.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, target, data, headers)
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def call(self, method, target, body=None, headers=None, timeout=30):
        """As request(), but any status >= 400 raises ApiError; returns the parsed body."""
        response = self.request(method, target, body, headers, timeout)
        if response.status >= 400:
            raise ApiError(response)
        return response.json if response.body else None

    def acquire(self, pool="default", timeout=30, **body):
        return Sandbox(self, self.call("POST", f"/v1/pools/{pool}/acquire", body, timeout=timeout))

    def run_stream(self, pool="default", timeout=30):
        return ExecStream(self.socket_path, f"/v1/pools/{pool}/run", None, timeout)

    def run(self, *argv, pool="default", stdin=None, timeout_s=30, **start):
        """One program in a fresh sandbox."""
        if argv:
            start["argv"] = list(argv)
        start.setdefault("policy", "wait")
        start.setdefault("wait", "20s")
        with self.run_stream(pool, timeout_s) as stream:
            return stream.run(stdin=stdin, **start)

    def python(self, text, *args, **start):
        return self.run(PYTHON, "-c", text, *args, **start)

    def pools(self):
        return {pool["name"]: pool for pool in self.call("GET", "/v1/pools")["pools"]}

    def pool(self, name="default"):
        return self.call("GET", f"/v1/pools/{name}")

    def sandboxes(self):
        return self.call("GET", "/v1/pools/-/sandboxes")["sandboxes"]

    def metrics(self):
        """{'name{labels}': value}."""
        values = {}
        for line in self.request("GET", "/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, _space, value = line.rpartition(" ")
                values[name] = float(value)
        return values

    def metric_sum(self, name, **labels):
        """Sum over the series of one metric that carry these labels."""
        total = 0.0
        for key, value in self.metrics().items():
            family, _brace, rest = key.partition("{")
            if family == name and all(f'{label}="{text}"' in rest for label, text in labels.items()):
                total += value
        return total

    def wait_idle(self, count, pool="default", timeout=15):
        wait_until(lambda: self.pool(pool)["idle"] == count, timeout,
                   f"pool '{pool}' has {count} idle")

    def wait_settled(self, pool="default", timeout=15):
        """Full, and nothing under way."""
        now = {}

        def settled():
            now.update(self.pool(pool))
            return (now["idle"] >= now["max_idle"] and not now["creating"] and
                    not now["killing"])
        try:
            wait_until(settled, timeout, f"pool '{pool}' is full and quiet")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{now}\n{self.log()[-2000:]}") from None

    # -- CLI --

    def cli(self, *args, input=None, timeout=30, env=None, check=False):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "SANDPOOL_SOCKET": self.socket_path}
        environment.update(env or {})
        if isinstance(input, str):
            input = input.encode()
        result = subprocess.run(
            [str(BIN / "sandpool"), *map(str, args)], env=environment, capture_output=True,
            input=input if input is not None else b"", timeout=timeout * SLOW_FACTOR, check=False)
        if check and result.returncode != 0:
            raise AssertionError(f"sandpool {args}: exit {result.returncode}: {result.stderr!r}")
        return result


@functools.cache
def process_number():
    """A small number that no other process of tests has: (number, the socket that keeps it)."""
    number = 0
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(f"\0sandpool-tests-{number}")
            return number, sock
        except OSError:
            sock.close()
            number += 1


class RootlessDaemon(Daemon):
    """sandpoold and launcher as an ordinary user. The account and its subordinate ids exist only in
    the mount namespace that they are started in: nothing of the host's /etc is touched."""

    SUBIDS = 65536
    INSTANCES = 256  # of a file
    subids = 0  # how many

    def __init__(self, config=None, uid=None, **options):
        if self.subids and not os.access("/usr/bin/newuidmap", os.X_OK):
            raise unittest.SkipTest("no newuidmap here (package uidmap)")
        # Not shared with another instance, of whatever file: it would be held for a leftover of this
        # one, and killed as such.
        serial = process_number()[0] * self.INSTANCES + _serial % self.INSTANCES
        self.uid = uid or 100_000 + serial
        self.first = 3_000_000_000 + serial * self.SUBIDS
        super().__init__(merge({"user": "", "degraded": True}, config or {}), **options)
        shutil.copytree(BIN, f"{self.directory}/bin")  # BIN may lie where only root may look
        for name in ("run", "state"):
            os.chown(f"{self.directory}/{name}", self.uid, self.uid)
        binds = ""
        for name, text in self.account().items():
            with open(f"{self.directory}/{name}", "w", encoding="ascii") as file:
                file.write(text)
            binds += f"mount --bind {self.directory}/{name} /etc/{name} && "
        self.prefix += [
            "/usr/bin/unshare", "--mount", "/bin/sh", "-c", binds + "shift && exec setpriv "
            f'--reuid {self.uid} --regid {self.uid} --clear-groups "{self.directory}/bin/sandpoold"'
            ' "$@"', "sh"]

    def account(self):
        line = f"rootless:{self.first}:{self.subids}\n" if self.subids else ""
        return {"passwd": "root:x:0:0::/root:/bin/sh\n"
                          f"rootless:x:{self.uid}:{self.uid}::/:/bin/sh\n",
                "subuid": line, "subgid": line}

    def write_config(self, override=None):
        super().write_config(override)
        os.chown(self.config_path, self.uid, self.uid)

    def inits(self):
        return [pid for pid, _name, _state in descendants_of(self.process.pid) if is_init(pid)]

    def processes(self):
        """Without cgroups: by the user's ids, which nobody else has."""
        found = super().processes()
        for pid in pids():
            match = re.search(r"^State:\s+[^Z].*^Uid:\s+(\d+)", read_text(f"/proc/{pid}/status"),
                              re.M | re.S)
            uid = int(match.group(1)) if match else 0
            if uid == self.uid or self.first <= uid < self.first + self.subids:
                found.add(pid)
        return found


# ---- test cases -----------------------------------------------------------------------------


def needs_root():
    return None if os.geteuid() == 0 else "needs root"


def needs_programs(*names):
    missing = [name for name in names or ("sandpoold", "sandpool-launcher", "sandpool-init")
               if not (BIN / name).exists()]
    return f"not built: {', '.join(missing)} in {BIN}" if missing else None


class TestTimeout(Exception):
    pass


@contextlib.contextmanager
def time_limit(seconds):
    def expire(_number, _frame):
        raise TestTimeout(f"test ran longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


class Case(unittest.TestCase):
    """A test with a time limit; `timeout_s` on the class or on the method changes it."""

    timeout_s = TEST_TIMEOUT_S
    maxDiff = None

    def run(self, result=None):
        method = getattr(self, self._testMethodName)
        limit = getattr(method, "timeout_s", self.timeout_s) * SLOW_FACTOR
        wrapped = method

        @functools.wraps(method)
        def limited(*args, **kwargs):
            with time_limit(limit):
                return wrapped(*args, **kwargs)

        setattr(self, self._testMethodName, limited)
        try:
            return super().run(result)
        finally:
            delattr(self, self._testMethodName)

    @contextlib.contextmanager
    def refused(self, code, status=None):
        """The block must raise ApiError with this code."""
        with self.assertRaises(ApiError) as caught:
            yield caught
        self.assertEqual(caught.exception.code, code, caught.exception)
        if status is not None:
            self.assertEqual(caught.exception.status, status)


def limit(seconds):
    """Decorator: this test may take so long."""
    def mark(method):
        method.timeout_s = seconds
        return method
    return mark


class SandpoolCase(Case):
    """Tests that share one daemon of `config`; its leak check belongs to the class."""

    config = {}
    env = None
    daemon = None
    daemon_class = Daemon

    @classmethod
    def setUpClass(cls):
        reason = needs_root() or needs_programs()
        if reason:
            raise unittest.SkipTest(reason)
        with time_limit(START_TIMEOUT_S * 2 * SLOW_FACTOR):
            cls.daemon = cls.daemon_class(cls.config, env=cls.env)
            cls.daemon.__enter__()

    @classmethod
    def tearDownClass(cls):
        if cls.daemon is not None:
            daemon, cls.daemon = cls.daemon, None
            try:
                with time_limit(STOP_TIMEOUT_S * 2 * SLOW_FACTOR):
                    daemon.stop()
            finally:
                daemon.kill()
                daemon.remove()

    def run_argv(self, *argv, **start):
        return self.daemon.run(*argv, **start)

    def assertExited(self, outcome, code=0):
        self.assertEqual((outcome.reason, outcome.exit_code), ("exited", code), outcome)


class HostDirectory:
    """Before a SandpoolCase among the bases: `top` is a directory of the host for its tests, part
    of which the default pool may bind."""

    top_parent = "/srv"

    @classmethod
    def fill_top(cls):
        """Called in an empty top; what the pool's allowed_binds are."""
        raise NotImplementedError

    @classmethod
    def clean(cls):
        """Before top is removed: the end of what is no file."""

    @classmethod
    def setUpClass(cls):
        reason = needs_root()
        if reason:
            raise unittest.SkipTest(reason)
        cls.top = tempfile.mkdtemp(prefix="sandpool-top-", dir=cls.top_parent)
        try:
            os.chmod(cls.top, 0o755)
            binds = {"pools": {"default": {"allowed_binds": cls.fill_top()}}}
            cls.config = merge(cls.config, binds)
            super().setUpClass()
        except BaseException:
            cls.clean()
            shutil.rmtree(cls.top)
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            super().tearDownClass()
        finally:
            cls.clean()
            shutil.rmtree(cls.top)


# ---- running --------------------------------------------------------------------------------


class _Counting(unittest.TextTestResult):
    """Counts what tests/run adds up. A subtest that fails is one failure."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.passed += 1


def run_suite(suite, verbosity=2):
    """Run, print the counts, return the exit code."""
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=verbosity,
                                     resultclass=_Counting)
    result = runner.run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    if os.environ.get("SP_TESTS_MUST_RUN") == "1" and skipped:
        for test, reason in result.skipped:
            print(f"must run but was skipped: {test}: {reason}")
        failed, skipped = failed + skipped, 0
    print(f"{result.passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


def main():
    """Every test of the calling file, or those whose name contains one of argv."""
    module = sys.modules["__main__"]
    loader = unittest.TestLoader()
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if words:
        loader.testNamePatterns = [f"*{word}*" for word in words]
    sys.exit(run_suite(loader.loadTestsFromModule(module)))
