"""network "none": loopback works, everything else is unreachable at once."""

import contextlib
import socket
import threading

from escape_case import EscapeCase, PYTHON, main, on_host

# Try to connect to each "family:address" and print how it went and how long it took.
CONNECT = """
import socket, sys, time
for target in sys.argv[1:]:
    family, address = target.split(":", 1)
    start = time.monotonic()
    try:
        if family == "abstract":
            s = socket.socket(socket.AF_UNIX); s.connect("\\0" + address)
        elif family == "unix":
            s = socket.socket(socket.AF_UNIX); s.connect(address)
        elif family == "udp":
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            host, port = address.rsplit(":", 1); s.connect((host, int(port))); s.send(b"x")
        else:
            s = socket.socket(socket.AF_INET6 if family == "tcp6" else socket.AF_INET)
            s.settimeout(3)
            host, port = address.rsplit(":", 1); s.connect((host, int(port)))
        word = "connected"
    except OSError as error:
        word = "refused"
    print(target, word, "slow" if time.monotonic() - start > 1 else "quick")
"""


class Network(EscapeCase):
    @contextlib.contextmanager
    def listeners(self):
        with contextlib.ExitStack() as stack:
            tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
            abstract.bind("\0sandpool-test-canary")
            abstract.listen()
            path = f"{self.daemon.directory}/listener"
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(path)
            unix.listen()
            yield [f"tcp:127.0.0.1:{tcp.getsockname()[1]}", "abstract:sandpool-test-canary",
                   f"unix:{path}", f"unix:{self.daemon.socket_path}"]

    def test_services_of_the_host_are_unreachable_b032_b033(self):
        with self.listeners() as targets:
            control = on_host(PYTHON, "-c", CONNECT, *targets).stdout.decode()
            self.assertEqual(control.count("connected"), len(targets), control)
            text = self.inside(CONNECT, *targets)
            self.assertEqual(text.count("refused quick"), len(targets), text)

    def test_the_world_is_unreachable_at_once_b033(self):
        text = self.inside(CONNECT, "tcp:169.254.169.254:80", "udp:8.8.8.8:53", "tcp:10.0.0.1:6379",
                           "tcp6:2001:4860:4860::8888:53", "tcp:192.168.0.1:22")
        self.assertEqual(text.count("refused quick"), 5, text)

    def test_only_loopback_and_it_is_up(self):
        self.assertEqual(self.inside("""
import socket, threading
assert [name for _, name in socket.if_nameindex()] == ["lo"], socket.if_nameindex()
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), 2)
peer, _ = server.accept()
client.sendall(b"ping")
assert peer.recv(4) == b"ping"
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp.sendto(b"x", udp.getsockname())
assert udp.recv(1) == b"x"
print("up")
"""), "up")

    def test_abstract_sockets_of_a_neighbour_are_unreachable(self):
        other = self.acquire()
        holder = threading.Thread(target=self.box.python, daemon=True, kwargs={}, args=("""
import socket, time
s = socket.socket(socket.AF_UNIX); s.bind("\\0sandpool-neighbour"); s.listen()
time.sleep(5)
""",))
        holder.start()
        end = ""
        for _ in range(100):
            end = self.inside(CONNECT, "abstract:sandpool-neighbour")
            if "connected" in end:
                break
        self.assertIn("connected", end)  # control
        self.assertIn("refused", self.inside(CONNECT, "abstract:sandpool-neighbour", box=other))
        self.box.release()
        holder.join(10)

    def test_raw_and_packet_sockets_are_refused(self):
        text = """
import socket
made = []
for family, kind, protocol in ((socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_PACKET, socket.SOCK_RAW, 0)):
    try:
        socket.socket(family, kind, protocol)
        made.append(family)
    except OSError:
        pass
print("made", len(made))
"""
        self.assertEqual(self.inside(text), "made 0")
        self.assertIn(b"made 2", on_host(PYTHON, "-c", text).stdout)


class HostNetwork(EscapeCase):
    """Control for all of the above: with the protection turned off the same probes connect."""

    config = {"allow_host_network": True, "pools": {"default": {"network": "host"}}}

    def test_host_network_reaches_the_host(self):
        with contextlib.ExitStack() as stack:
            tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
            abstract.bind("\0sandpool-test-host-network")
            abstract.listen()
            text = self.inside(CONNECT, f"tcp:127.0.0.1:{tcp.getsockname()[1]}",
                               "abstract:sandpool-test-host-network")
            self.assertEqual(text.count("connected"), 2, text)


if __name__ == "__main__":
    main()
