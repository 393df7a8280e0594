"""What the escape suites share: payloads run inside a sandbox, and the same ones on the host.

A denial proves nothing unless the same probe succeeds with the protection off (pitfall B-019), so
every test here comes with its positive control: the payload run on the host, as root or as an
ordinary user, or in a pool whose configuration turns the protection off.
"""

import errno
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import PYTHON, SandpoolCase, limit, main, wait_until  # noqa: E402,F401

PAYLOADS = t.PROGRAMS / "escape"
DENIED = {errno.EPERM, errno.ENOSYS}


def payload_path(name):
    path = PAYLOADS / name
    if not path.exists():
        raise AssertionError(f"payload '{name}' is not built ({path})")
    return path


def on_host(*argv, user=None, input=None, timeout=30, **options):
    """Run argv outside any sandbox; as `user` if given. Returns the CompletedProcess."""
    if user is not None:
        options.update(user=user, group=user, extra_groups=[])
    return subprocess.run([str(item) for item in argv], input=input, capture_output=True,
                          timeout=timeout * t.SLOW_FACTOR, check=False, cwd="/", **options)


def answers(text):
    """{"mount": "1", …} from a payload that prints "NAME ANSWER" lines."""
    if isinstance(text, bytes):
        text = text.decode()
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


class EscapeCase(SandpoolCase):
    """One daemon per class; `self.box` is a sandbox of the test's own."""

    config = {"pools": {"default": {"max_idle": 2}}}

    def setUp(self):
        self.box = self.acquire()

    def acquire(self, pool="default", **body):
        body.setdefault("policy", "wait")
        body.setdefault("wait", "20s")
        box = self.daemon.acquire(pool, **body)
        self.addCleanup(box.__exit__, None, None, None)
        return box

    def payload(self, name, *args, box=None, **start):
        """Upload a payload and run it; returns its Outcome."""
        box = box or self.box
        box.put(f"/tmp/{name}", payload_path(name).read_bytes())
        return box.run(f"/tmp/{name}", *map(str, args), **start)

    def inside(self, text, *args, box=None, **start):
        """Output of a Python program that must exit with 0."""
        outcome = (box or self.box).python(text, *map(str, args), **start)
        self.assertExited(outcome)
        return outcome.text

    def shell(self, text, box=None, **start):
        outcome = (box or self.box).shell(text, **start)
        self.assertExited(outcome)
        return outcome.text
