"""One context of Python code, see execd_context.c.

stdin brings code, each piece behind its length (4 bytes, little-endian). stdout takes frames: a
letter, a length (4 bytes, little-endian) and as many bytes.

    c  the count of this execution: it begins, an interrupt finds it
    o  of its stdout        e  of its stderr
    r  a result: MIME type NUL data NUL, ...
    x  an exception: name NUL text NUL, then the lines of the traceback, each with a NUL
    d  it is over, and all that it wrote has been sent

The code has neither of the two: its stdin is /dev/null, its outputs are pipes that end here.
"""

import ast
import base64
import builtins
import linecache
import os
import select
import signal
import struct
import sys
import threading
import traceback
import types

DATUM_MAX = 1 << 19  # bytes; of a frame twice that
COROUTINE = 0x80  # inspect.CO_COROUTINE
RICH = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
)


class Wire:
    def __init__(self):
        self.source = os.dup(0)
        self.target = os.dup(1)
        self.lock = threading.Lock()

    def read(self, size):
        data = b""
        while len(data) < size:
            piece = os.read(self.source, size - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return data

    def next_code(self):
        (size,) = struct.unpack("<I", self.read(4))
        return self.read(size).decode()

    def send(self, kind, data=b""):
        view = memoryview(kind + struct.pack("<I", len(data)) + data)
        with self.lock:
            while view:
                view = view[os.write(self.target, view) :]


def open_stream(number, mode):
    return open(number, mode, buffering=1, encoding="utf-8", errors="surrogateescape",
                closefd=False)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the code has closed it, or put something else in its place


class Outputs:
    """What the code and its children write, on its way to the wire."""

    def __init__(self, wire):
        self.wire = wire
        self.lock = threading.Lock()
        self.kinds = {}
        self.ends = {0: os.open("/dev/null", os.O_RDONLY)}
        self.streams = [sys.stdin, sys.stdout, sys.stderr]
        self.poll = select.poll()
        for number, kind in ((1, b"o"), (2, b"e")):
            ours, self.ends[number] = os.pipe()
            os.set_blocking(ours, False)
            self.kinds[ours] = kind
            self.poll.register(ours, select.POLLIN)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="surrogateescape")
        self.restore()
        threading.Thread(target=self.pump, daemon=True).start()

    def usable(self, number):
        stream = self.streams[number]
        try:
            if number > 0:
                stream.flush()
            return not stream.closed
        except Exception:
            return False

    def restore(self):
        """Whatever a run has made of its streams, the next one begins with the client's."""
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            if getattr(sys, name, None) is not self.streams[number]:
                setattr(sys, name, None)  # a wrapper of ours closes it when it goes
            if not self.usable(number):
                self.streams[number] = None  # what is stuck in it goes now
            os.dup2(self.ends[number], number)
            if not self.streams[number]:
                self.streams[number] = open_stream(number, "w" if number > 0 else "r")
            setattr(sys, name, self.streams[number])

    def take(self, number):
        try:
            data = os.read(number, 65536)
        except BlockingIOError:
            return False
        self.wire.send(self.kinds[number], data)
        return True

    def pump(self):
        while True:
            ready = self.poll.poll()
            with self.lock:
                for number, _events in ready:
                    self.take(number)

    def drain(self):
        flush()
        with self.lock:
            for number in self.kinds:
                while self.take(number):
                    pass


class Context:
    def __init__(self):
        self.pid = os.getpid()
        self.wire = Wire()
        self.outputs = Outputs(self.wire)
        self.count = 0
        self.in_code = False
        self.interrupted = False
        self.loop = None
        self.module = types.ModuleType("__main__")
        self.names = self.module.__dict__
        sys.modules["__main__"] = self.module
        sys.argv = [""]
        builtins.display = self.display
        self.listen()

    def listen(self):
        signal.signal(signal.SIGINT, self.on_interrupt)

    def on_interrupt(self, _number, _frame):
        self.interrupted = True
        if self.in_code:
            self.raise_interrupt()

    def raise_interrupt(self):
        self.interrupted = False
        raise KeyboardInterrupt

    # ---- results ----

    def describe(self, value):
        data = [("text", repr(value))]
        for method, kind in RICH:
            make = getattr(type(value), method, None)
            try:
                made = make(value) if make else None
            except Exception:
                continue
            if isinstance(made, bytes):
                made = base64.b64encode(made).decode()
            if isinstance(made, str) and len(made) <= DATUM_MAX // 4:
                data.append((kind, made))
        return data

    def show(self, value):
        data = b""
        for kind, text in self.describe(value):
            raw = text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")
            datum = kind.encode() + b"\0" + raw[:DATUM_MAX] + b"\0"
            if len(data) + len(datum) < 2 * DATUM_MAX:
                data += datum
        if threading.current_thread() is not threading.main_thread():
            self.wire.send(b"r", data)
            return
        # No frame is cut in two by an interrupt.
        self.in_code = False
        self.outputs.drain()
        self.wire.send(b"r", data)
        self.in_code = True
        if self.interrupted:
            self.raise_interrupt()

    def display(self, *values):
        for value in values:
            self.show(value)

    # ---- one execution ----

    def compile(self, code, name):
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        body = compile(tree, name, "exec", flags, True)
        return body, last and compile(last, name, "eval", flags, True)

    def evaluate(self, code):
        value = eval(code, self.names)
        if not code.co_flags & COROUTINE:
            return value
        if not self.loop:
            import asyncio

            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(value)

    def run(self, code, name):
        body, last = self.compile(code, name)
        self.evaluate(body)
        value = self.evaluate(last) if last else None
        if value is not None:
            builtins._ = value
            self.show(value)

    def report(self, error, name):
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        try:
            text = str(error)
            lines = traceback.format_exception(type(error), error, trace)
        except BaseException:
            text, lines = "", []
        parts = [type(error).__name__, text] + [line.rstrip("\n") for line in lines[-200:]]
        self.wire.send(b"x", b"".join(
            part.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00")[: DATUM_MAX // 256]
            + b"\0" for part in parts))

    def execute(self, code):
        error = None
        self.count += 1
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        self.names["__builtins__"] = builtins
        self.interrupted = False
        self.wire.send(b"c", str(self.count).encode())
        try:
            self.in_code = True
            if self.interrupted:
                self.raise_interrupt()
            self.run(code, name)
            self.in_code = False
        except BaseException as raised:
            self.in_code = False
            error = raised
        self.listen()
        if os.getpid() != self.pid:  # a fork that came back
            self.leave()
        self.outputs.restore()
        self.outputs.drain()
        if error:
            self.report(error, name)
            error.__traceback__ = None
        self.wire.send(b"d")

    def leave(self):
        flush()
        os._exit(0)

    def serve(self):
        while True:
            self.execute(self.wire.next_code())


Context().serve()
