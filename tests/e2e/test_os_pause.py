"""Pause where there is no cgroup v2: it says so, and the sandbox goes on."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from execd_case import ExecdCase  # noqa: E402
import sandpool_test as t  # noqa: E402
from sandpool_test import main  # noqa: E402


def unified():
    """Where cgroup v2 is mounted."""
    return [line.split()[1] for line in t.read_text("/proc/mounts").splitlines()
            if line.split()[2] == "cgroup2"]


class Hidden(t.Daemon):
    """It and its launcher see no cgroup v2. Where that is all there is no limit is left either."""

    def __init__(self, config=None, **options):
        covers = "".join(f"umount -l {place} && " for place in unified())
        super().__init__(t.merge({"degraded": True}, config or {}), prefix=[
            "/usr/bin/unshare", "--mount", "/bin/sh", "-c", covers + 'exec "$@"', "sh"], **options)


class Without(ExecdCase):
    daemon_class = Hidden

    def change(self, box, what):
        return self.ask("POST", f"/v1/sandboxes/{box.uuid}/{what}")

    def state(self, box):
        return self.ask("GET", f"/v1/sandboxes/{box.uuid}").json["status"]["state"]

    def test_pause_is_not_supported(self):
        box = self.box()
        answer = self.change(box, "pause")
        self.assertEqual(answer.status, 501, answer.body)
        self.assertEqual(set(answer.json), {"code", "message"})
        self.assertEqual(answer.json["code"], "SANDBOX::API_NOT_SUPPORTED")
        self.assertIn("cgroup v2", answer.json["message"])
        # Nothing of it was done, and nothing waits to be undone.
        self.assertEqual(self.state(box), "Running")
        self.assertEqual(box.execd("GET", "/ping").status, 200)
        self.assertEqual(self.change(box, "resume").status, 409)
        self.assertEqual(self.change(box, "pause").status, 501)
        answer = box.execd("POST", "/command", {"command": "echo on"})
        self.assertIn(b'"text":"on"', answer.body)


class With(Without):
    """The control: the same daemon, with nothing hidden from it."""

    daemon_class = t.Daemon

    def setUp(self):
        if not unified():
            self.skipTest("no cgroup v2 is mounted here")

    def test_pause_is_not_supported(self):
        box = self.box()
        self.assertEqual(self.change(box, "pause").status, 202)
        self.assertEqual(self.state(box), "Paused")
        self.assertEqual(box.execd("GET", "/ping").status, 503)
        self.assertEqual(self.change(box, "resume").status, 202)
        self.assertEqual(box.execd("GET", "/ping").status, 200)


del ExecdCase
if __name__ == "__main__":
    main()
