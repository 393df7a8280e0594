"""Isolated sessions by what their pool is: where they may write, how much, and where there are none."""

import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from execd_case import Box, ExecdCase  # noqa: E402
import sandpool_test as t  # noqa: E402
from test_isolated_sessions import IsolatedCase  # noqa: E402
from sandpool_test import main  # noqa: E402

WORKSPACE = {"workspace": {"path": "/workspace", "mode": "rw"}}
LIMITS = {"memory": "256MiB", "pids": 128, "tmp": "64MiB"}


def pool(**more):
    return {"max_idle": 1, "max_lease": "10m", "limits": LIMITS, **more}


class OfPools(IsolatedCase):
    """Each test asks for the pool that it means."""

    def setUp(self):
        pass

    def take(self, name):
        before = self.leased()
        response = self.ask("POST", "/v1/sandboxes", {"extensions": {"poolRef": name}})
        self.assertEqual(response.status, 202, response.body)
        self.sandbox = Box(self, response.json)
        self.sandbox.own_id = (self.leased() - before).pop()
        self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{self.sandbox.uuid}")
        return self.sandbox

    def capabilities(self):
        response = self.sandbox.execd("GET", "/v1/isolated/capabilities")
        self.assertEqual(response.status, 200, response.body)
        return response.json


class AllowedWritable(OfPools):
    pools = {"default": pool(), "none": pool(allowed_writable=[]),
             "other": pool(allowed_writable=["/workspace/in", "/home/user"])}

    def make_places(self):
        self.outside("mkdir -p /workspace/in/deep /workspace/in-escape /home/user/x /data/s; "
                     "ln -s /data/s /workspace/in/link")

    def test_the_configured_ones_replace_the_usual(self):
        self.take("other")
        self.make_places()
        for path in ("/workspace/in", "/workspace/in/deep", "/home/user/x"):
            session = self.create(extra_writable=[path])
            self.assertEqual(self.run_in(session, f"echo x > {path}/f; cat {path}/f"),
                             ("x\n", None))
        for path in ("/data/s", "/workspace", "/workspace/in-escape", "/workspace/in/link"):
            for more in ({"extra_writable": [path]}, {"binds": [{"source": path}]},
                         {"binds": [{"source": path, "readonly": True}]}):
                message = self.refused({**WORKSPACE, **more}, 400, "RUNTIME_ERROR")
                self.assertIn("allowed_writable of pool 'other'", message)

    def test_the_usual_ones(self):
        self.take("default")
        self.make_places()
        self.create(extra_writable=["/data/s", "/workspace/in"])
        self.refused({**WORKSPACE, "extra_writable": ["/home/user/x"]}, 400, "RUNTIME_ERROR")

    def test_an_empty_list_refuses_all(self):
        self.take("none")
        self.make_places()
        for path in ("/workspace/in", "/data/s", "/mnt", "/home/user/x"):
            self.refused({**WORKSPACE, "extra_writable": [path]}, 400, "RUNTIME_ERROR")
            self.refused({**WORKSPACE, "binds": [{"source": path}]}, 400, "RUNTIME_ERROR")
        # The workspace itself is no matter of that list.
        session = self.create(mode="rw")
        self.assertEqual(self.run_in(session, "echo x > f; cat f"), ("x\n", None))


class Reloaded(OfPools):
    pools = {"default": pool()}

    def reload(self, **more):
        self.daemon.write_config({"pools": {"default": more}})
        self.assertEqual(self.daemon.request("POST", "/v1/reload").status, 204)

    def test_a_reload_counts_for_the_sessions_after_it(self):
        self.take("default")
        self.outside("mkdir /data/s")
        before = self.create(mode="overlay", extra_writable=["/data/s"])
        self.reload(allowed_writable=["/home"], limits={"upper": "1MiB", "diff": "64KiB"})
        self.assertIn(self.sandbox.own_id, self.leased())
        # What is made is what it is, …
        self.assertEqual(self.run_in(before, "echo x > /data/s/x; "
                                             "head -c 2000000 /dev/zero > two"), ("", None))
        # … and the next one is as the file now says.
        self.refused({**WORKSPACE, "extra_writable": ["/data/s"]}, 400, "RUNTIME_ERROR")
        after = self.create(mode="overlay", extra_writable=["/home"])
        self.assertIn("No space left", self.run_in(after, "head -c 2000000 /dev/zero > two; "
                                                          "rm -f two")[0])
        # A file with a fault changes nothing.
        self.daemon.write_config({"pools": {"default": {"allowed_writable": ["/"]}}})
        self.assertEqual(self.daemon.request("POST", "/v1/reload").status, 422)
        self.create(extra_writable=["/home"])
        # An archive of what cannot be made smaller, on either side of the limit.
        self.run_in(after, "head -c 60000 /dev/urandom > r")
        diff = f"/v1/isolated/session/{after}/diff"
        self.assertEqual(self.sandbox.execd("GET", diff).status, 200)
        self.run_in(after, "head -c 70000 /dev/urandom > r")
        refused = self.sandbox.execd("GET", diff)
        self.assertEqual(refused.status, 413, refused.body)
        self.assertIn("limits.diff", refused.json["message"])


class Without(OfPools):
    """Where there are no sessions every route says so, and what says why is the capabilities."""

    def check_none(self, words):
        answer = self.capabilities()
        self.assertFalse(answer["available"] or answer["setpriv_available"] or
                         answer["userns_available"] or answer["diff_supported"] or
                         answer["commit_supported"], answer)
        for word in words:
            self.assertIn(word, answer["message"])
        message = self.refused(WORKSPACE, 503, "SERVICE_UNAVAILABLE")
        self.assertEqual(message, answer["message"])
        self.assertEqual(self.sandbox.execd("GET", "/v1/isolated/sessions").json, {"sessions": []})
        unknown = "/v1/isolated/session/f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
        response = self.sandbox.execd("POST", unknown + "/run", {"code": "true"})
        self.assertEqual((response.status, response.json["code"]), (404, "SESSION_NOT_FOUND"))


class Direct(Without):
    pools = {"default": pool(), "direct": pool(backend="direct", direct_user="nobody")}

    @classmethod
    def listen_more(cls, _directory):
        return [], {"allow_direct": True}

    def test_not_without_namespaces(self):
        self.take("direct")
        self.check_none(["pool 'direct'", "backend is direct"])
        # Its programs run all the same, and a pool beside it has sessions.
        self.assertEqual(self.outside("echo on"), "on\n")
        self.take("default")
        self.assertTrue(self.capabilities()["available"])
        self.assertEqual(self.run_in(self.create(), "echo on"), ("on\n", None))


class ExecDisabled(Without):
    pools = {"default": pool()}

    @classmethod
    def listen_more(cls, _directory):
        return [], {"exec_enabled": False}

    def test_not_where_nothing_may_run(self):
        self.take("default")
        self.check_none(["exec_enabled"])
        response = self.sandbox.execd("POST", "/command", {"command": "true"})
        self.assertEqual(response.status, 403, response.body)
        # That is no matter of the sandbox: the same one has them once it is allowed.
        self.daemon.write_config({"exec_enabled": True})
        self.assertEqual(self.daemon.request("POST", "/v1/reload").status, 204)
        self.assertTrue(self.capabilities()["available"])
        self.assertEqual(self.run_in(self.create(), "echo on"), ("on\n", None))


class Rootless(Without):
    """With the one id of its user."""

    pools = {"default": pool(limits=None)}

    class OneId(t.RootlessDaemon):
        pass

    daemon_class = OneId

    @classmethod
    def listen_more(cls, directory):
        shutil.chown(f"{directory}/keys", os.stat(f"{directory}/state").st_uid)
        return [], {}

    def test_not_without_ids(self):
        self.take("default")
        self.check_none(["rootless", "subordinate ids"])
        self.assertEqual(self.outside("echo on"), "on\n")


class RootlessOwnIds(OfPools):
    """With subordinate ones there is what sessions need."""

    pools = Rootless.pools
    listen_more = Rootless.listen_more

    class OwnIds(t.RootlessDaemon):
        subids = t.RootlessDaemon.SUBIDS

    daemon_class = OwnIds

    def test_they_work(self):
        self.take("default")
        answer = self.capabilities()
        self.assertTrue(answer["available"] and answer["setpriv_available"], answer)
        self.outside("echo base > /workspace/file; mkdir /data/s")
        session = self.create(mode="overlay", extra_writable=["/data/s"])
        self.assertEqual(self.run_in(session, "id -u; cat file; echo own > file; cat file; "
                                              "echo x > /data/s/x; echo $$"),
                         ("1000\nbase\nown\n2\n", None))
        self.assertEqual(self.outside("cat /workspace/file /data/s/x"), "base\nx\n")
        answer = self.sandbox.execd("GET", "/files/download?path=/workspace/file")
        self.assertEqual((answer.status, answer.body), (200, b"base\n"))
        path = f"/v1/isolated/session/{session}"
        answer = self.sandbox.execd("GET", f"{path}/files/download?path=/workspace/file")
        self.assertEqual((answer.status, answer.body), (200, b"own\n"))
        answer = self.sandbox.execd("GET", f"{path}/diff")
        self.assertEqual((answer.status, answer.body[:2]), (200, b"\x1f\x8b"))
        # Siblings are kept apart here as well.
        other = self.create()
        self.run_in(session, "echo secret > /tmp/secret; sleep 60 >/dev/null 2>&1 &")
        self.assertEqual(self.run_in(other, "cat /tmp/secret 2>/dev/null; "
                                            "cat /proc/[0-9]*/comm | grep -c sleep")[0], "0\n")
        self.assertEqual(self.outside("cat /workspace/file"), "base\n")
        self.delete(session)
        self.delete(other)


del ExecdCase, IsolatedCase, OfPools, Without
if __name__ == "__main__":
    main()
