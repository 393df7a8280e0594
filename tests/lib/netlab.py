"""A small network in one machine: hosts are network namespaces, joined by veth to a bridge.

    with Network() as network:
        a, b = network.host("a"), network.host("b")
        subprocess.Popen(a.prefix + ["some-server"])
        b.connect((a.address, 80)).sendall(b"…")
        a.cut()                     # as if somebody pulled the cable: no RST, no ICMP, silence
        a.impair(delay_ms=200, loss=0.1)

Namespaces have no name (nothing in /run/netns, no mount) and the bridge lives in one too: a
namespace lives as long as its holder process and our descriptor of it, the holder dies with us, and
whatever ends this process, nothing of the network stays. Needs root and iproute2.

Delay and loss are tc netem's where the kernel has it. Where it has not, the host's cable becomes a
pair of TAP devices with a thread of ours between them; the address moves over with its MAC, so open
connections do not notice. `Network.impairments` says which of the two it is.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
PREFIX = "10.77.0"

_libc = ctypes.CDLL(None, use_errno=True)


class NoNetwork(Exception):
    """This machine cannot make such a network; the text says why."""


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class Netns:
    """A network namespace. Threads enter it for a moment to make a socket, programs by `prefix`."""

    def __init__(self):
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--", "sleep", "infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.path = f"/proc/{self.holder.pid}/ns/net"
        ours = os.readlink("/proc/self/ns/net")
        end = time.monotonic() + 10
        while True:
            if self.holder.poll() is not None:
                with self.holder.stderr:
                    raise NoNetwork(f"unshare: {self.holder.stderr.read().decode().strip()}")
            with contextlib.suppress(OSError):
                if os.readlink(self.path) != ours:
                    break
            if time.monotonic() > end:
                self.holder.kill()
                raise NoNetwork("no network namespace within 10 s")
            time.sleep(0.002)
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self.prefix = ["nsenter", f"--net={self.path}", "--"]

    @contextlib.contextmanager
    def entered(self):
        """This thread is inside; what it opens stays there."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(self.fd)
            try:
                yield
            finally:
                _setns(home)
        finally:
            os.close(home)

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM):
        with self.entered():
            return socket.socket(family, kind)

    def connect(self, address, timeout=5.0):
        sock = self.socket()
        try:
            sock.settimeout(timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(address)
            return sock
        except BaseException:
            sock.close()
            raise

    def ip(self, *lines):
        """Commands for ip(8), one a line."""
        self._run(["ip", "-batch", "-"], "\n".join(lines) + "\n")

    def tc(self, line):
        self._run(["tc", *line.split()])

    def _run(self, command, text=""):
        result = subprocess.run(self.prefix + command, input=text, capture_output=True, text=True,
                                check=False)
        if result.returncode:
            raise NoNetwork(f"{' '.join(command)}: {text.strip()} {result.stderr.strip()}")

    def close(self):
        if self.holder.poll() is None:
            self.holder.kill()
        self.holder.wait()
        self.holder.stderr.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _tap(netns, name):
    with netns.entered():
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


class _SlowCable:
    """Two TAP devices and the thread that carries frames between them, late or not at all."""

    def __init__(self, host, seed):
        self.delay_s = self.jitter_s = self.loss = 0.0
        self.random = random.Random(seed)
        self.ends = [_tap(host.netns, "slow0"), _tap(host.network.switch, f"s{host.number}")]
        self.wake, self.woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    def _carry(self):
        heap, serial = [], itertools.count()
        while True:
            wait = max(0.0, heap[0][0] - time.monotonic()) if heap else None
            ready, _, _ = select.select([*self.ends, self.wake], [], [], wait)
            if self.wake in ready:
                return
            for fd in ready:
                other = self.ends[1 - self.ends.index(fd)]
                with contextlib.suppress(OSError):
                    while True:
                        frame = os.read(fd, 65536)
                        if self.loss and self.random.random() < self.loss:
                            continue
                        due = (time.monotonic() + self.delay_s +
                               self.random.random() * self.jitter_s)
                        heapq.heappush(heap, (due, next(serial), other, frame))
            while heap and heap[0][0] <= time.monotonic():
                _, _, fd, frame = heapq.heappop(heap)
                with contextlib.suppress(OSError):  # a full queue drops, as cables do
                    os.write(fd, frame)

    def close(self):
        os.close(self.woken)
        self.thread.join(5)
        for fd in (*self.ends, self.wake):
            os.close(fd)


class Host:
    """One namespace with an address, behind a cable of its own."""

    def __init__(self, network, name, number):
        self.network = network
        self.name = name
        self.number = number
        self.address = f"{PREFIX}.{number}"
        self.netns = Netns()
        self.prefix = self.netns.prefix
        self.port = f"p{number}"
        self.slow = None
        self.netem = False
        self.is_cut = False
        try:
            self.netns.ip("link set lo up")
            network.switch.ip(
                f"link add name {self.port} type veth peer name eth0 netns {self.netns.holder.pid}",
                f"link set {self.port} master br0", f"link set {self.port} up")
            self.netns.ip(f"addr add {self.address}/24 dev eth0", "link set eth0 up")
        except BaseException:
            self.netns.close()
            raise

    def connect(self, address, timeout=5.0):
        return self.netns.connect(address, timeout)

    # -- faults --

    def _cables(self):
        return [self.port] + ([f"s{self.number}"] if self.slow else [])

    def cut(self):
        """Nothing passes in either direction and nobody is told."""
        self.network.switch.ip(*[f"link set {cable} down" for cable in self._cables()])
        self.is_cut = True

    def join(self):
        self.network.switch.ip(*[f"link set {cable} up" for cable in self._cables()])
        self.is_cut = False

    def impair(self, delay_ms=0, jitter_ms=0, loss=0.0, seed=1):
        """Each direction: every frame is late by this much, this share of them is lost."""
        if self.network.impairments == "netem":
            words = f"netem delay {delay_ms}ms {jitter_ms}ms loss {loss * 100:g}%"
            for netns, device in ((self.network.switch, self.port), (self.netns, "eth0")):
                netns.tc(f"qdisc replace dev {device} root {words}")
            self.netem = True
            return
        if self.slow is None:
            self.slow = _SlowCable(self, seed)
            mac = self._mac()
            self.network.switch.ip(f"link set s{self.number} master br0",
                                   f"link set s{self.number} up", f"link set {self.port} down")
            self.netns.ip("link set eth0 down", f"addr del {self.address}/24 dev eth0",
                          f"link set slow0 address {mac}", f"addr add {self.address}/24 dev slow0",
                          "link set slow0 up")
        self.slow.delay_s, self.slow.jitter_s = delay_ms / 1000, jitter_ms / 1000
        self.slow.loss = loss

    def _mac(self):
        text = subprocess.run(self.prefix + ["ip", "-o", "link", "show", "eth0"],
                              capture_output=True, text=True, check=True).stdout
        return text.split("link/ether ")[1].split()[0]

    def repair(self):
        """Undo impair(); the cable is as fast as it was."""
        if self.netem:
            for netns, device in ((self.network.switch, self.port), (self.netns, "eth0")):
                netns.tc(f"qdisc del dev {device} root")
            self.netem = False
        if self.slow is None:
            return
        slow, self.slow = self.slow, None
        self.netns.ip("link set slow0 down", f"addr del {self.address}/24 dev slow0",
                      f"addr add {self.address}/24 dev eth0", "link set eth0 up")
        self.network.switch.ip(f"link set {self.port} {'down' if self.is_cut else 'up'}")
        slow.close()

    def close(self):
        if self.slow is not None:
            self.slow.close()
            self.slow = None
        self.netns.close()


class Network:
    """The bridge and its hosts."""

    def __init__(self):
        for program in ("ip", "tc", "unshare", "nsenter", "setpriv"):
            if not shutil.which(program):
                raise NoNetwork(f"{program} is not installed")
        if os.geteuid() != 0:
            raise NoNetwork("needs root")
        self.hosts = {}
        self.switch = Netns()
        try:
            self.switch.ip("link set lo up", "link add name br0 type bridge", "link set br0 up")
            self.impairments = self._impairments()
        except BaseException:
            self.close()
            raise

    def _impairments(self):
        """"netem", "tap", or None when neither is to be had."""
        with contextlib.suppress(NoNetwork):
            self.switch.tc("qdisc add dev lo root netem delay 1ms")
            self.switch.tc("qdisc del dev lo root")
            return "netem"
        return "tap" if os.access("/dev/net/tun", os.R_OK | os.W_OK) else None

    def host(self, name):
        if name not in self.hosts:
            self.hosts[name] = Host(self, name, len(self.hosts) + 1)
        return self.hosts[name]

    def heal(self):
        for host in self.hosts.values():
            host.repair()
            if host.is_cut:
                host.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for host in self.hosts.values():
            host.close()
        self.hosts = {}
        self.switch.close()


def missing():
    """Why no such network can be made here, or None."""
    try:
        with Network() as network:
            network.host("probe")
    except (NoNetwork, OSError) as error:
        return f"no network namespaces: {error}"
    return None
