"""A proxy before Redis that breaks single commands, at the place a packet cannot be aimed at.

    with RedisProxy(host, ("10.77.0.9", 6379)) as proxy:
        proxy.on("sandpool_v1_heartbeat", LOSE_REPLY, times=1)

A rule names a function (the word after FCALL) or a command, and what becomes of the next so many of
them. The first rule that fits is used up first. Everything else passes unchanged. `seen` counts all
commands by that name, `broken` those that a rule hit.
"""

import collections
import contextlib
import socket
import threading
import time

REFUSE = "refuse"          # closed before Redis sees it: it has no effect
SWALLOW = "swallow"        # Redis never sees it, and nobody is told
LOSE_REPLY = "lose-reply"  # Redis does it, then the connection is closed
HANG = "hang"              # Redis does it, the answer never comes, the connection stays
DELAY = "delay"            # the answer comes `seconds` later
ERROR = "error"            # Redis never sees it; `text` is the answer


class _Stream:
    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def line(self):
        while b"\r\n" not in self.buffer:
            self._more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line + b"\r\n"

    def exactly(self, count):
        while len(self.buffer) < count:
            self._more()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def _more(self):
        data = self.sock.recv(1 << 16)
        if not data:
            raise EOFError
        self.buffer += data

    def item(self):
        """One RESP2 or RESP3 value as it came, and its words if it is an array of strings."""
        head = self.line()
        kind, rest = head[:1], head[1:-2]
        if kind in b"$=!" and rest != b"-1":
            body = self.exactly(int(rest) + 2)
            return head + body, [body[:-2]]
        if kind in b"*~>%" and rest != b"-1":
            raw, words = head, []
            for _ in range(int(rest) * (2 if kind == b"%" else 1)):
                part, inner = self.item()
                raw += part
                words += inner
            return raw, words
        return head, [rest]


def name_of(words):
    """What rules and counts go by: "sandpool_v1_acquire", "auth", "ping"."""
    first = words[0].decode("latin-1").lower()
    if first in ("fcall", "fcall_ro") and len(words) > 1:
        return words[1].decode("latin-1")
    return first


class RedisProxy:
    def __init__(self, host, target, port=6380):
        self.host = host
        self.target = target
        self.address = (host.address, port)
        self.rules = []
        self.seen = collections.Counter()
        self.broken = collections.Counter()
        self.lock = threading.Lock()
        self.sockets = set()
        self.closing = False
        self.listener = host.netns.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(self.address)
        self.listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, name, action, times=1, seconds=0.0, text="ERR broken by the test"):
        with self.lock:
            self.rules.append({"name": name, "action": action, "left": times,
                               "seconds": seconds, "text": text})

    def clear(self):
        with self.lock:
            self.rules.clear()

    def _rule(self, name):
        with self.lock:
            self.seen[name] += 1
            for rule in self.rules:
                if rule["name"] in (name, "*") and rule["left"] > 0:
                    rule["left"] -= 1
                    self.broken[name] += 1
                    return rule
        return {"action": None}

    def drop_all(self):
        """Close every connection that is open now."""
        with self.lock:
            sockets, self.sockets = self.sockets, set()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = None
        try:
            server = self.host.connect(self.target)
            server.settimeout(None)
            with self.lock:
                self.sockets.update((client, server))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._commands(client, server)
        except (OSError, EOFError, ValueError):
            pass
        finally:
            with self.lock:
                self.sockets.difference_update((client, server))
            for sock in (client, server):
                if sock is not None:
                    sock.close()

    def _commands(self, client, server):
        requests, replies = _Stream(client), _Stream(server)
        while True:
            raw, words = requests.item()
            name = name_of(words)
            rule = self._rule(name)
            action = rule["action"]
            if action == REFUSE:
                return
            if action == SWALLOW:
                continue
            if action == ERROR:
                client.sendall(f"-{rule['text']}\r\n".encode())
                continue
            server.sendall(raw)
            if name in ("subscribe", "ssubscribe"):
                self._pump(requests, replies)
                return
            answer, _ = replies.item()
            if action == LOSE_REPLY:
                return
            if action == HANG:
                while client.recv(1 << 16):
                    pass
                return
            if action == DELAY:
                time.sleep(rule["seconds"])
            client.sendall(answer)

    @staticmethod
    def _pump(requests, replies):
        """A connection that listens to channels: bytes both ways, no rules."""
        def forward(source, sink):
            with contextlib.suppress(OSError):
                if source.buffer:
                    sink.sock.sendall(source.buffer)
                while data := source.sock.recv(1 << 16):
                    sink.sock.sendall(data)
            for sock in (source.sock, sink.sock):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        back = threading.Thread(target=forward, args=(replies, requests), daemon=True)
        back.start()
        forward(requests, replies)
        back.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.drop_all()
