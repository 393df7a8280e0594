"""Files of an isolated session: execd's file routes below /v1/isolated/session/ID."""

import json
import os
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from test_isolated_sessions import IsolatedCase as Base, main  # noqa: E402


class FilesCase(Base):
    def ask_in(self, session, method, path, body=None, **options):
        return self.sandbox.execd(method, f"/v1/isolated/session/{session}{path}", body, **options)

    def good(self, session, method, path, body=None):
        response = self.ask_in(session, method, path, body)
        self.assertEqual(response.status, 200, (path, response.body))
        return response

    def upload(self, session, path, data, status=200, **metadata):
        parts = []
        for name, content in (("metadata", json.dumps({"path": path, **metadata}).encode()),
                              ("file", data)):
            parts.append(b"--B\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"f\"\r\n\r\n"
                         % name.encode() + content + b"\r\n")
        raw = b"".join(parts) + b"--B--\r\n"
        target = self.sandbox.root + f"/v1/isolated/session/{session}/files/upload"
        response = self.ask("POST", target, raw=raw, headers={
            **self.sandbox.headers, "Content-Type": "multipart/form-data; boundary=B"})
        self.assertEqual(response.status, status, response.body)

    def download(self, session, path, status=200):
        query = urllib.parse.urlencode({"path": path})
        response = self.ask_in(session, "GET", f"/files/download?{query}")
        self.assertEqual(response.status, status, response.body)
        return response.body

    def info(self, session, path):
        query = urllib.parse.urlencode({"path": path})
        return self.good(session, "GET", f"/files/info?{query}").json[path]


class Rw(FilesCase):
    def setUp(self):
        super().setUp()
        self.session = self.create("/tmp", "rw")

    def test_A_071_upload_and_download(self):
        for data in (b"text\n", bytes([0, 1, 2, 255]), b""):
            self.upload(self.session, "/tmp/d/file", data)
            self.assertEqual(self.download(self.session, "/tmp/d/file"), data)
        self.assertEqual(self.outside("ls -A /tmp/d"), "file\n")

    def test_A_072_info(self):
        self.upload(self.session, "/tmp/file", b"four", mode=644)
        info = self.info(self.session, "/tmp/file")
        self.assertEqual((info["path"], info["type"], info["size"], info["mode"]),
                         ("/tmp/file", "file", 4, 644))

    def test_A_073_search(self):
        for name in ("a.txt", "b.txt", "c.log"):
            self.upload(self.session, f"/tmp/{name}", b"x")
        found = self.good(self.session, "GET", "/files/search?path=/tmp&pattern=*.txt").json
        self.assertEqual(sorted(os.path.basename(item["path"]) for item in found),
                         ["a.txt", "b.txt"])

    def test_A_074_directories(self):
        self.good(self.session, "POST", "/directories", {"/tmp/x/y": {"mode": 755}})
        self.assertEqual(self.info(self.session, "/tmp/x/y")["type"], "directory")
        self.good(self.session, "DELETE", "/directories?path=/tmp/x")
        self.assertEqual(self.run_in(self.session, "ls -d x")[1], "2")

    def test_A_075_delete(self):
        self.upload(self.session, "/tmp/file", b"x")
        self.good(self.session, "DELETE", "/files?path=/tmp/file")
        self.assertEqual(self.ask_in(self.session, "GET", "/files/info?path=/tmp/file").status, 404)
        self.assertEqual(self.run_in(self.session, "cat file")[1], "1")

    def test_A_076_move(self):
        self.upload(self.session, "/tmp/from", b"moved")
        self.good(self.session, "POST", "/files/mv", [{"src": "/tmp/from", "dest": "/tmp/to"}])
        self.assertEqual(self.download(self.session, "/tmp/to"), b"moved")

    def test_A_077_permissions(self):
        self.upload(self.session, "/tmp/file", b"x")
        self.good(self.session, "POST", "/files/permissions", {"/tmp/file": {"mode": 755}})
        self.assertEqual(self.run_in(self.session, "stat -c %a file"), ("755\n", None))

    def test_A_078_replace(self):
        self.upload(self.session, "/tmp/file", b"one two one")
        self.good(self.session, "POST", "/files/replace", {"/tmp/file": {"old": "one", "new": "1"}})
        self.assertEqual(self.download(self.session, "/tmp/file"), b"1 two 1")

    def test_A_079_list(self):
        self.upload(self.session, "/tmp/d/file", b"x")
        self.upload(self.session, "/tmp/file", b"x")
        listed = self.good(self.session, "GET", "/directories/list?path=/tmp&depth=1").json
        self.assertEqual({item["path"]: item["type"] for item in listed},
                         {"/tmp/d": "directory", "/tmp/file": "file"})

    def test_paths_are_the_workspaces(self):
        self.upload(self.session, "plain", b"x")
        self.upload(self.session, "/etc/rooted", b"y")
        self.upload(self.session, "..name", b"z")
        self.assertEqual(self.outside("cd /tmp; ls -A; ls -A etc"),
                         "..name\netc\nplain\nrooted\n")
        self.upload(self.session, "../out", b"x", status=400)
        self.assertEqual(self.ask_in(self.session, "DELETE", "/files?path=../out").status, 500)

    def test_D_4_links_lead_nowhere_else(self):
        self.outside("echo secret > /data/secret")
        self.run_in(self.session, "ln -s /data d; ln -s /data/secret s")
        # The session may read it, so that is no secret; it may not write there.
        self.assertEqual(self.download(self.session, "s"), b"secret\n")
        self.upload(self.session, "d/new", b"x", status=500)
        self.upload(self.session, "s", b"x", status=500)
        self.assertEqual(self.ask_in(self.session, "DELETE", "/files?path=d/secret").status, 500)
        self.assertEqual(self.ask_in(self.session, "DELETE", "/directories?path=d").status, 200)
        self.assertEqual(self.outside("cat /data/secret; ls -A /data"), "secret\nsecret\n")


class Other(FilesCase):
    def test_A_080_ro(self):
        self.outside("echo base > /workspace/base; mkdir /workspace/d")
        session = self.create(mode="ro")
        self.assertEqual(self.download(session, "/workspace/base"), b"base\n")
        self.assertEqual(len(self.good(session, "GET", "/files/search?path=/workspace").json), 1)
        self.assertEqual(len(self.good(session, "GET", "/directories/list?path=/workspace").json),
                         2)
        self.upload(session, "/workspace/new", b"x", status=500)
        self.assertEqual(self.ask_in(session, "DELETE", "/files?path=/workspace/base").status, 500)

    def test_A_085_A_091_overlay(self):
        self.outside("cd /workspace; echo base > base; mkdir d; echo x > d/x; echo 'a b' > text; "
                     "chmod 644 text")
        session = self.create(mode="overlay")
        self.run_in(session, "echo mine > new; echo more >> base")
        self.upload(session, "/workspace/up", b"up")
        self.assertEqual(self.download(session, "/workspace/up"), b"up")
        self.assertEqual(self.run_in(session, "cat up"), ("up\n", None))
        # both layers
        listed = self.good(session, "GET", "/directories/list?path=/workspace&depth=1").json
        self.assertEqual(sorted(os.path.basename(item["path"]) for item in listed),
                         ["base", "d", "new", "text", "up"])
        # D-3: what is deleted on either side is gone on both
        self.good(session, "DELETE", "/files?path=/workspace/up")
        self.assertEqual(self.run_in(session, "cat up")[1], "1")
        self.run_in(session, "rm base")
        self.download(session, "/workspace/base", status=404)
        self.good(session, "DELETE", "/directories?path=/workspace/d")
        self.assertEqual(self.run_in(session, "ls"), ("new\ntext\n", None))
        self.good(session, "POST", "/files/permissions", {"/workspace/text": {"mode": 755}})
        self.assertEqual(self.run_in(session, "stat -c %a text"), ("755\n", None))
        self.good(session, "POST", "/files/replace",
                  {"/workspace/text": {"old": "a", "new": "A"}})
        self.good(session, "POST", "/files/mv", [{"src": "/workspace/text", "dest": "/workspace/t"}])
        self.assertEqual(self.download(session, "/workspace/t"), b"A b\n")
        self.assertEqual(self.outside("cd /workspace; ls -A; cat base d/x text; stat -c %a text"),
                         "base\nd\ntext\nbase\nx\na b\n644\n")

    def test_uploads_belong_to_who_runs(self):
        self.outside("chmod 777 /workspace")
        session = self.create(uid=2000, gid=2001)
        self.upload(session, "/workspace/file", b"x")
        self.assertEqual(self.run_in(session, "id -u; id -g; stat -c '%u %g' file"),
                         ("2000\n2001\n2000 2001\n", None))

    def test_a_workspace_is_made(self):
        session = self.create("/data/a/b")
        self.upload(session, "file", b"x")
        self.assertEqual(self.outside("stat -c '%a %u' /data/a/b; cat /data/a/b/file"),
                         "755 1000\nx\n")
        self.refused({"workspace": {"path": "/nowhere/x"}}, 400, "RUNTIME_ERROR")


class Names(FilesCase):
    """Whose a file is, by a session's own /etc/passwd, which is a file of the workload's here."""

    rested = 2.5  # from then on names are kept

    def setUp(self):
        super().setUp()
        self.outside("echo one:x:1000:1000:: > /data/passwd; echo in:x:1000: > /data/group; "
                     "touch /workspace/file /workspace/other")
        self.session = self.create(binds=[{"source": f"/data/{name}", "dest": f"/etc/{name}"}
                                          for name in ("passwd", "group")])

    def opens(self):
        return self.daemon.metric_sum("sandpool_file_operation_duration_seconds_count",
                                      operation="open")

    def names(self):
        """By a stat and by a listing, which must agree."""
        info = self.info(self.session, "/workspace/file")
        listed = self.good(self.session, "GET", "/directories/list?path=/workspace").json
        found = {(item["owner"], item["group"]) for item in [info, *listed]}
        self.assertEqual(len(found), 1, found)
        return found.pop()

    def test_names_are_read_once(self):
        time.sleep(self.rested)
        self.assertEqual(self.names(), ("one", "in"))
        before = self.opens()
        for _ in range(5):
            self.assertEqual(self.names(), ("one", "in"))
        self.assertEqual(self.opens(), before)
        # Of every sandbox and session its own.
        self.assertNotEqual(self.info(self.create(), "/workspace/file")["owner"], "one")

    def test_a_change_is_seen_at_once(self):
        time.sleep(self.rested)
        self.assertEqual(self.names(), ("one", "in"))
        # Of the same size, and with the same time of modification.
        self.outside("touch -r /data/passwd /data/then; echo two:x:1000:1000:: > /data/passwd; "
                     "touch -r /data/then /data/passwd")
        self.assertEqual(self.names(), ("two", "in"))
        self.outside("echo out:x:1000: > /data/group")
        self.assertEqual(self.names(), ("two", "out"))
        self.outside(": > /data/passwd")
        self.assertEqual(self.names(), ("1000", "out"))

    def test_no_change_is_missed_while_it_goes_on(self):
        for i in range(10, 60):
            self.outside(f"echo n{i}:x:1000:1000:: > /data/passwd")
            self.assertEqual(self.names(), (f"n{i}", "in"))


if __name__ == "__main__":
    main()
