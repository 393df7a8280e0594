"""Files and directories of execd on the wire: forms, codes, conditions, hostile sandboxes, broken
connections, and what a large file costs. B-… are the checks of known bugs of such systems."""

import email.utils
import hashlib
import json
import os
import random
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))

import sandpool_test as t  # noqa: E402
from execd_case import ExecdCase, receive_all, receive_head  # noqa: E402
from sandpool_test import main, rss_kib, wait_until  # noqa: E402

MIB = 1 << 20


def query(**parameters):
    return urllib.parse.urlencode(parameters, doseq=True)


def part(name, data, filename="x", headers=()):
    disposition = f'Content-Disposition: form-data; name="{name}"'
    if filename is not None:
        disposition += f'; filename="{filename}"'
    lines = [disposition, *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def form(*parts, boundary="XbX"):
    body = b"".join(b"--" + boundary.encode() + b"\r\n" + one + b"\r\n" for one in parts)
    return body + b"--" + boundary.encode() + b"--\r\n"


def pair(path, data, **permission):
    metadata = json.dumps({"path": path, **permission}).encode()
    return [part("metadata", metadata, "metadata", ["Content-Type: application/json"]),
            part("file", data, "file", ["Content-Type: application/octet-stream"])]


FORM = {"Content-Type": "multipart/form-data; boundary=XbX"}


class FilesCase(ExecdCase):
    pools = {"default": {"max_idle": 2, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "256MiB", "pids": 128, "tmp": "64MiB"}}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = None

    def setUp(self):
        super().setUp()
        self.box_ = self.box()
        self.inside = self.box_.own()

    def execd(self, method, path, body=None, **options):
        return self.box_.execd(method, path, body, **options)

    def upload(self, *parts, headers=None):
        return self.ask("POST", self.box_.root + "/files/upload", raw=form(*parts),
                        headers={**self.box_.headers, **FORM, **(headers or {})})

    def put(self, path, data, **permission):
        response = self.upload(*pair(path, data, **permission))
        self.assertEqual(response.status, 200, response)

    def get(self, path, headers=None, **parameters):
        return self.ask("GET", self.box_.root + "/files/download?" + query(path=path, **parameters),
                        headers={**self.box_.headers, **(headers or {})})

    def info(self, *paths):
        return self.execd("GET", "/files/info?" + query(path=paths))

    def file_info(self, path):
        response = self.info(path)
        self.assertEqual(response.status, 200, response)
        return response.json[path]

    def shell(self, text, code=0):
        outcome = self.inside.shell(text)
        self.assertEqual(outcome.exit_code, code, outcome)
        return outcome.text

    def refused(self, response, status, code=None):
        self.assertEqual(response.status, status, response)
        if code:
            self.assertEqual(response.code, code, response)
        self.assertTrue(response.json["message"], response)

    def empty_success(self, response):
        """What the JavaScript SDK needs of an answer without content."""
        self.assertEqual(response.status, 200, response)
        self.assertEqual(response.body, b"")
        self.assertEqual(response.headers.get("Content-Length"), "0")

    def temporary_files(self):
        """Everything below the writable places that a test did not make."""
        return self.shell("find /workspace /tmp /data /mnt /home -type f")


class Info(FilesCase):
    def test_info_is_a_map_from_what_was_asked(self):
        self.put("/workspace/a.txt", b"four", mode=640)
        self.shell("ln -s /etc/passwd /workspace/link; mkfifo /workspace/pipe")
        response = self.info("/workspace/../workspace//a.txt", "/workspace", "/workspace/link",
                             "/workspace/pipe")
        self.assertEqual(response.status, 200, response)
        self.assertEqual(response.headers["Content-Type"], "application/json")
        infos = response.json
        file = infos["/workspace/../workspace//a.txt"]
        self.assertEqual(list(file), ["path", "type", "size", "modified_at", "created_at", "owner",
                                      "group", "mode"])
        self.assertEqual((file["path"], file["type"], file["size"], file["mode"]),
                         ("/workspace/a.txt", "file", 4, 640))
        names = self.shell("id -un; id -gn").split()
        self.assertEqual([file["owner"], file["group"]], names)
        self.assertRegex(file["modified_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$")
        self.assertEqual(infos["/workspace"]["type"], "directory")
        self.assertEqual(infos["/workspace/link"]["type"], "symlink")
        self.assertEqual(infos["/workspace/pipe"]["type"], "other")

    def test_times_are_those_of_the_file(self):
        self.shell("touch -d '2001-02-03T04:05:06.789Z' /workspace/old;"
                   "touch -d '1969-12-31T23:59:59.5Z' /workspace/older")
        self.assertEqual(self.file_info("/workspace/old")["modified_at"],
                         "2001-02-03T04:05:06.789000000Z")
        self.assertEqual(self.file_info("/workspace/older")["modified_at"],
                         "1969-12-31T23:59:59.500000000Z")

    def test_no_path_is_an_empty_map(self):
        response = self.execd("GET", "/files/info")
        self.assertEqual((response.status, response.json), (200, {}))

    def test_first_missing_path_is_404(self):
        self.refused(self.info("/workspace", "/none"), 404, "FILE_NOT_FOUND")

    def test_home_and_variables_are_expanded(self):
        home = self.shell("echo $HOME")
        response = self.info("~", "$HOME", "${HOME}/.", "~/../$LANG")
        self.refused(response, 404, "FILE_NOT_FOUND")
        infos = self.info("~", "$HOME", "${HOME}/.").json
        self.assertEqual([one["path"] for one in infos.values()], [home] * 3)
        self.put("~/x", b"1")
        self.assertEqual(self.get("$HOME/x").body, b"1")
        self.refused(self.info("/$NO_SUCH_VARIABLE"), 400)
        self.put("/workspace/cost$5", b"5")
        self.assertEqual(self.get("/workspace/cost$5").body, b"5")

    def test_relative_paths_are_below_the_workspace(self):
        self.put("relative/x", b"1")
        self.assertEqual(self.file_info("relative/x")["path"], "/workspace/relative/x")

    def test_a_path_too_long_is_refused(self):
        self.refused(self.info("/" + "x" * 4096), 400)
        self.refused(self.info("/" + "x" * 256), 400)

    def test_wrong_token_gets_nothing(self):
        target = self.box_.root + "/files/info?" + query(path="/workspace")
        for headers in ({}, {"X-EXECD-ACCESS-TOKEN": "x" * 43}):
            response = self.ask("GET", target, headers=headers)
            self.assertEqual(response.status, 401)
            self.assertIn("X-EXECD-ACCESS-TOKEN", response.json["error"])


    def test_a_request_for_nothing_needs_the_token_as_well(self):
        """Of our own routes: nobody is told that all went well in a sandbox that is not his."""
        asked = [("POST", "/files/mv", b"[]"), ("POST", "/files/replace", b"{}"),
                 ("POST", "/files/replace?verbose=true", b"{}"), ("POST", "/files/permissions", b"{}"),
                 ("POST", "/directories", b"{}"), ("DELETE", "/files", None),
                 ("DELETE", "/directories", None), ("GET", "/files/info", None)]
        wrong = [(self.box_.own_id, "0" * 64), (self.box_.own_id, self.box().token),
                 ("a" * len(self.box_.own_id), self.box_.token)]
        for method, path, body in asked:
            with self.subTest(method=method, path=path):
                own = f"/v1/sandboxes/{self.box_.own_id}{path}"
                response = self.ask(method, own, raw=body,
                                    headers={"X-Sandpool-Token": self.box_.token})
                self.assertEqual(response.status, 200, response.body)
                for sandbox, token in wrong:
                    response = self.ask(method, f"/v1/sandboxes/{sandbox}{path}", raw=body,
                                        headers={"X-Sandpool-Token": token})
                    self.assertEqual((response.status, response.code), (404, "NOT_FOUND"))

    def test_a_search_that_would_keep_the_daemon_busy_is_refused(self):
        """Each name is compared with 256 patterns that fail at their last byte, wherever they begin."""
        self.shell("mkdir /workspace/d; cd /workspace/d; "
                   "for i in $(seq 100); do touch $(printf 'a%.0s' $(seq 250))$i; done")
        slow = "*" + "{,}" * 8 + "a" * 128 + "b"
        self.refused(self.execd("GET", "/files/search?" + query(path="/workspace/d", pattern=slow)),
                     400)
        response = self.execd("GET", "/files/search?" + query(path="/workspace/d", pattern="*7"))
        self.assertEqual((response.status, len(response.json)), (200, 10))


class Search(FilesCase):
    def search(self, path, **parameters):
        response = self.execd("GET", "/files/search?" + query(path=path, **parameters))
        self.assertEqual(response.status, 200, response)
        return [one["path"] for one in response.json]

    def test_base_names_are_matched_at_every_depth(self):
        self.shell("cd /workspace; mkdir -p a/b; touch a/x.txt a/b/y.txt a/b/z.log .h;"
                   "ln -s /etc a/etc")
        self.assertEqual(self.search("/workspace", pattern="*.txt"),
                         ["/workspace/a/b/y.txt", "/workspace/a/x.txt"])
        self.assertEqual(self.search("/workspace"),
                         ["/workspace/.h", "/workspace/a/b/y.txt", "/workspace/a/b/z.log",
                          "/workspace/a/etc", "/workspace/a/x.txt"])
        self.assertEqual(self.search("/workspace", pattern="[yz].{txt,log}"),
                         ["/workspace/a/b/y.txt", "/workspace/a/b/z.log"])
        self.assertEqual(self.search("/workspace", pattern="a"), [])
        self.assertEqual(self.search("/workspace/a/x.txt", pattern="?.txt"),
                         ["/workspace/a/x.txt"])
        self.assertEqual(self.search("/workspace/a/x.txt", pattern="y*"), [])

    def test_faults(self):
        self.refused(self.execd("GET", "/files/search"), 400, "MISSING_QUERY")
        self.refused(self.execd("GET", "/files/search?path="), 400, "MISSING_QUERY")
        self.refused(self.execd("GET", "/files/search?path=/none"), 404, "FILE_NOT_FOUND")
        self.refused(self.execd("GET", "/files/search?path=/tmp&pattern=%5B"), 500)


class Directories(FilesCase):
    def list(self, path, **parameters):
        return self.execd("GET", "/directories/list?" + query(path=path, **parameters))

    def paths(self, path, **parameters):
        response = self.list(path, **parameters)
        self.assertEqual(response.status, 200, response)
        return [one["path"] for one in response.json]

    def test_children_follow_their_parent(self):
        self.shell("cd /workspace; mkdir -p a/c b; touch a/c/1 a/d 'a b' a.x; ln -s /etc l")
        self.assertEqual(self.paths("/workspace"),
                         [f"/workspace/{name}" for name in ("a", "a b", "a.x", "b", "l")])
        self.assertEqual(self.paths("/workspace", depth=0), [])
        deep = self.paths("/workspace", depth=9)
        self.assertLess(deep.index("/workspace/a"), deep.index("/workspace/a/c"))
        self.assertLess(deep.index("/workspace/a/c/1"), deep.index("/workspace/a/d"))
        self.assertNotIn("/workspace/l/passwd", deep)
        self.assertEqual(len(deep), 8)

    def test_faults(self):
        self.shell("ln -s /workspace /tmp/link; touch /tmp/file")
        self.refused(self.execd("GET", "/directories/list"), 400, "MISSING_QUERY")
        self.refused(self.list("/none"), 404, "FILE_NOT_FOUND")
        self.refused(self.list("/tmp/link"), 400)
        self.refused(self.list("/tmp/file"), 400)
        for depth in ("-1", "x", "1.5", ""):
            self.refused(self.list("/tmp", depth=depth), 400)

    def test_made_with_parents_and_left_alone_when_there(self):
        self.empty_success(self.execd("POST", "/directories",
                                      {"/workspace/p/q/r": {"mode": 700}, "/workspace/s": None}))
        self.assertEqual(self.shell("stat -c %a /workspace/p /workspace/p/q/r /workspace/s"),
                         "755\n700\n755")
        before = self.shell("stat -c '%a %u' /tmp")
        self.empty_success(self.execd("POST", "/directories",
                                      {"/workspace/p/q/r": {"mode": 755}, "/tmp": {"mode": 700}}))
        self.assertEqual(self.shell("stat -c %a /workspace/p/q/r"), "700")
        self.assertEqual(self.shell("stat -c '%a %u' /tmp"), before)

    def test_bad_bodies_are_400(self):
        for body in (b"", b"{", b"[]", b'"x"', b'{"/a":1}', b'{"/a":{"mode":"755"}}',
                     b'{"/a":{"owner":5}}', b"\xff"):
            response = self.execd("POST", "/directories", raw=body)
            self.refused(response, 400, "INVALID_REQUEST_BODY")
        self.empty_success(self.execd("POST", "/directories", raw=b'null'))
        self.empty_success(self.execd(
            "POST", "/directories",
            raw=b'{"/workspace/x":{"mode":null,"owner":null,"more":1}}trailing'))

    def test_deleted_with_all_that_is_in_them(self):
        self.shell("cd /workspace; mkdir -p a/b/c; touch a/b/f; ln -s /workspace/keep a/l;"
                   "mkdir keep; touch keep/x; touch file")
        self.empty_success(self.execd("DELETE", "/directories?" + query(
            path=["/workspace/a", "/none", "/workspace/file"])))
        self.assertEqual(self.shell("find /workspace | sort"),
                         "/workspace\n/workspace/keep\n/workspace/keep/x")


class Changes(FilesCase):
    def test_move(self):
        self.put("/workspace/a", b"a")
        self.put("/workspace/b", b"b")
        self.empty_success(self.execd("POST", "/files/mv", [
            {"src": "/workspace/a", "dest": "/workspace/new/dir/a"}]))
        self.assertEqual(self.get("/workspace/new/dir/a").body, b"a")
        self.refused(self.execd("POST", "/files/mv", [
            {"src": "/workspace/a", "dest": "/workspace/c"}]), 404, "FILE_NOT_FOUND")
        self.refused(self.execd("POST", "/files/mv", [
            {"src": "/workspace/b", "dest": "/workspace/new/dir/a"}]), 500, "RUNTIME_ERROR")
        self.assertEqual(self.get("/workspace/new/dir/a").body, b"a")
        for body in ({}, [1], [{"src": 1, "dest": "/x"}]):
            self.refused(self.execd("POST", "/files/mv", body), 400, "INVALID_REQUEST_BODY")
        self.empty_success(self.execd("POST", "/files/mv", []))

    def test_a_directory_closed_by_its_owner_is_no_obstacle_to_him(self):
        self.put("/workspace/a", b"a")
        self.empty_success(self.execd("POST", "/directories", {"/workspace/closed/in": {"mode": 644},
                                                               "/workspace/d": {"mode": 755}}))
        self.shell("chmod 644 /workspace/closed")
        self.empty_success(self.execd("POST", "/files/mv", [
            {"src": "/workspace/a", "dest": "/workspace/closed/in/a"}]))
        self.assertEqual(self.get("/workspace/closed/in/a").body, b"a")
        self.assertEqual(self.file_info("/workspace/closed/in/a")["size"], 1)
        self.empty_success(self.execd("POST", "/files/permissions",
                                      {"/workspace/closed/in/a": {"mode": 600}}))
        self.assertEqual(self.file_info("/workspace/closed/in")["mode"], 644)
        self.assertEqual(self.file_info("/workspace/closed")["mode"], 644)
        self.empty_success(self.execd("DELETE", "/files?path=/workspace/closed/in/a"))
        self.refused(self.get("/workspace/closed/in/a"), 404, "FILE_NOT_FOUND")
        # What belongs to somebody else stays closed.
        self.refused(self.get("/root/x"), 500)

    def test_permissions(self):
        self.put("/workspace/a", b"a", mode=600)
        self.empty_success(self.execd("POST", "/files/permissions", {"/workspace/a": {
            "mode": 640, "owner": "nobody", "group": "nogroup"}}))
        info = self.file_info("/workspace/a")
        self.assertEqual((info["mode"], info["owner"], info["group"]), (640, "nobody", "nogroup"))
        self.put("/workspace/b", b"b", mode=600)
        for change in ({"mode": 888}, {"mode": -1}, {"mode": 77777}, {"owner": "no-such"},
                       {"group": "no-such"}):
            self.refused(self.execd("POST", "/files/permissions", {"/workspace/b": change}), 500,
                         "RUNTIME_ERROR")
        self.refused(self.execd("POST", "/files/permissions", {"/none": {"mode": 644}}), 500,
                     "RUNTIME_ERROR")
        self.empty_success(self.execd("POST", "/files/permissions", {"/workspace/b": {"mode": 0}}))
        self.assertEqual(self.file_info("/workspace/b")["mode"], 600)

    def test_delete(self):
        self.put("/workspace/a", b"a")
        self.shell("ln -s /workspace/a /workspace/l; mkdir /workspace/d")
        self.empty_success(self.execd("DELETE", "/files?" + query(
            path=["/workspace/l", "/workspace/none"])))
        self.assertEqual(self.get("/workspace/a").body, b"a")
        self.refused(self.execd("DELETE", "/files?path=/workspace/d"), 500, "RUNTIME_ERROR")
        self.empty_success(self.execd("DELETE", "/files?path=/workspace/a"))
        self.empty_success(self.execd("DELETE", "/files"))
        self.assertEqual(self.get("/workspace/a").status, 404)

    def test_replace(self):
        self.put("/workspace/a", b"one two one", mode=751)
        self.put("/workspace/b", "å\n".encode() * 3)
        target = "/files/replace"
        self.empty_success(self.execd("POST", target, {"/workspace/a": {"old": "one",
                                                                        "new": "1"}}))
        self.assertEqual(self.get("/workspace/a").body, b"1 two 1")
        self.assertEqual(self.file_info("/workspace/a")["mode"], 751)
        response = self.execd("POST", target + "?verbose=true", {
            "/workspace/b": {"old": "å", "new": "aaa"}, "/workspace/a": {"old": "none", "new": ""}})
        self.assertEqual(response.json, {"/workspace/b": {"replacedCount": 3},
                                         "/workspace/a": {"replacedCount": 0}})
        self.assertEqual(self.get("/workspace/b").body, b"aaa\n" * 3)
        self.refused(self.execd("POST", target, {"/none": {"old": "a", "new": ""}}), 404,
                     "FILE_NOT_FOUND")
        for item in ({"old": "", "new": "x"}, {"new": "x"}, {"old": 1}, 5):
            self.refused(self.execd("POST", target, {"/workspace/a": item}), 400,
                         "INVALID_REQUEST_BODY")
        self.refused(self.execd("POST", target, {"/workspace": {"old": "a", "new": "b"}}), 500)

    def test_replace_across_the_pieces_of_a_large_file(self):
        data = (b"x" * 99 + b"needle" + b"y" * 13) * 90000
        self.put("/workspace/large", data)
        response = self.execd("POST", "/files/replace?verbose=true",
                              {"/workspace/large": {"old": "needle", "new": "pins & needles"}})
        self.assertEqual(response.json, {"/workspace/large": {"replacedCount": 90000}})
        wanted = data.replace(b"needle", b"pins & needles")
        self.assertEqual(self.shell("sha256sum /workspace/large").split()[0],
                         hashlib.sha256(wanted).hexdigest())

    def test_replace_that_finds_nothing_does_not_write(self):
        self.put("/workspace/a", b"text")
        before = self.shell("stat -c '%i %Y %Z' /workspace/a")
        self.empty_success(self.execd("POST", "/files/replace",
                                      {"/workspace/a": {"old": "none", "new": "x"}}))
        self.assertEqual(self.shell("stat -c '%i %Y %Z' /workspace/a"), before)

    def test_items_of_the_limit_pass_and_one_more_does_not(self):
        items = {f"/none/{i}": {"mode": 0} for i in range(1024)}
        self.refused(self.execd("POST", "/files/permissions", items), 500, "RUNTIME_ERROR")
        items["/one/more"] = {"mode": 0}
        self.refused(self.execd("POST", "/files/permissions", items), 400, "INVALID_REQUEST_BODY")


class Upload(FilesCase):
    def test_pairs_belong_together_by_number(self):
        response = self.upload(*pair("/workspace/p/1", b"one", mode=600), part("other", b"", None),
                               *pair("/workspace/p/2", b"", mode=755))
        self.empty_success(response)
        self.assertEqual(self.get("/workspace/p/1").body, b"one")
        self.assertEqual(self.get("/workspace/p/2").body, b"")
        self.assertEqual(self.shell("stat -c %a /workspace/p/1 /workspace/p/2"), "600\n755")
        one, two = pair("/workspace/3", b"3"), pair("/workspace/4", b"4")
        self.empty_success(self.upload(one[0], two[0], one[1], two[1]))
        self.assertEqual(self.get("/workspace/3").body + self.get("/workspace/4").body, b"34")

    def test_errors_in_their_order(self):
        metadata, file = pair("/workspace/x", b"x")
        cases = [
            ([], "INVALID_FILE", {"Content-Type": "application/json"}),
            ([file], "INVALID_FILE_METADATA", None),
            ([part("metadata", b'{"path":"/workspace/x"}', None), file], "INVALID_FILE_METADATA",
             None),
            ([metadata], "INVALID_FILE_CONTENT", None),
            ([metadata, part("file", b"x", None)], "INVALID_FILE_CONTENT", None),
            ([metadata, file, file], "INVALID_FILE", None),
            ([metadata, metadata, file], "INVALID_FILE", None),
            ([part("metadata", b"{"), file], "INVALID_FILE_METADATA", None),
            ([part("metadata", b"[]"), file], "INVALID_FILE_METADATA", None),
            ([part("metadata", b'{"path":""}'), file], "INVALID_FILE_METADATA", None),
            ([part("metadata", b'{"path":1}'), file], "INVALID_FILE_METADATA", None),
            ([part("metadata", b"{"), file, file], "INVALID_FILE", None),
            ([file, metadata], "INVALID_FILE_METADATA", None),
        ]
        for parts, code, headers in cases:
            with self.subTest(code=code, parts=len(parts)):
                self.refused(self.upload(*parts, headers=headers), 400, code)
        self.assertEqual(self.temporary_files(), "")

    def test_a_body_that_is_no_form_is_refused(self):
        for body in (b"", b"--XbX", b"--XbX\r\nA\r\n\r\n--XbX--", form(*pair("/x", b""))[:-4]):
            response = self.ask("POST", self.box_.root + "/files/upload", raw=body,
                                headers={**self.box_.headers, **FORM})
            self.refused(response, 400, "INVALID_FILE")

    def test_a_file_that_cannot_be_written_is_500(self):
        self.shell("mkdir /workspace/d; touch /workspace/f")
        for path in ("/etc/x", "/workspace/d", "/workspace/f/x", "/proc/x"):
            self.refused(self.upload(*pair(path, b"x")), 500, "RUNTIME_ERROR")
        for permission in ({"mode": 999}, {"owner": "no-such"}):
            self.refused(self.upload(*pair("/workspace/x", b"x", **permission)), 500,
                         "RUNTIME_ERROR")
        self.assertEqual(self.get("/workspace/x").status, 404)

    def test_what_comes_after_a_fault_is_not_written(self):
        response = self.upload(*pair("/workspace/1", b"1"), *pair("/etc/2", b"2"),
                               *pair("/workspace/3", b"3"))
        self.refused(response, 500, "RUNTIME_ERROR")
        self.assertEqual(self.get("/workspace/3").status, 404)

    def test_default_mode_of_a_new_file_and_an_old_one(self):
        self.put("/workspace/new", b"1")
        self.assertEqual(self.file_info("/workspace/new")["mode"], 755)
        self.put("/workspace/new", b"2", mode=604)
        self.put("/workspace/new", b"3", mode=0)
        self.assertEqual(self.file_info("/workspace/new")["mode"], 604)

    def test_set_id_bits_are_dropped(self):  # B-199
        self.put("/workspace/x", b"x", mode=6755)
        self.assertEqual(self.shell("stat -c %a /workspace/x"), "755")

    def test_owner_names_are_the_sandboxs(self):
        self.put("/workspace/x", b"x", owner="nobody", group="nogroup", mode=644)
        self.assertEqual(self.shell("stat -c %U:%G /workspace/x"), "nobody:nogroup")
        self.put("/workspace/y", b"y", owner="", group=None)

    def test_content_that_looks_like_a_boundary(self):
        data = b"\r\n--XbX?" * 3 + b"x\r\n--Xb\r\r\n--XbX.\r\n-" + bytes(range(256)) * 100
        self.put("/workspace/x", data)
        self.assertEqual(self.get("/workspace/x").body, data)

    def test_overwriting_leaves_no_tail(self):  # B-184
        self.put("/workspace/x", b"x" * MIB)
        self.put("/workspace/x", b"0123456789")
        self.assertEqual(self.get("/workspace/x").body, b"0123456789")

    def test_overwriting_again_and_again_costs_no_room(self):  # B-202
        data = os.urandom(4 * MIB)
        for _ in range(40):
            self.put("/workspace/x", data)
        self.assertEqual(self.file_info("/workspace/x")["size"], len(data))

    def test_a_full_sandbox_refuses_and_keeps_the_old_file(self):
        self.put("/workspace/x", b"old")
        response = self.upload(*pair("/workspace/x", bytes(80 * MIB)))
        self.refused(response, 500, "RUNTIME_ERROR")
        self.assertEqual(self.get("/workspace/x").body, b"old")
        self.put("/workspace/y", bytes(20 * MIB))

    def test_parents_belong_to_the_workload(self):  # B-186, B-187
        before = self.shell("stat -c '%a %u %g' /tmp /workspace")
        self.put("/tmp/a/b/c", b"x")
        self.assertEqual(self.shell("stat -c '%a %u' /tmp/a /tmp/a/b | uniq | sed s/$(id -u)/me/"),
                         "755 me")
        self.assertEqual(self.shell("stat -c '%a %u %g' /tmp /workspace"), before)
        self.shell("rm -rf /tmp/a")

    def test_readers_see_the_old_or_the_new_file(self):  # B-185
        one, two = b"1" * 300000, b"2" * 300000
        self.put("/workspace/x", one)
        with self.inside.stream() as stream:
            stream.begin(argv=[t.PYTHON, "-uc", """
import os
seen = set()
while not os.path.exists("/workspace/stop"):
    seen.add(open("/workspace/x", "rb").read())
print(sorted((chr(text[0]), len(text), len(set(text))) for text in seen))
"""])
            for i in range(60):
                self.put("/workspace/x", two if i % 2 == 0 else one)
            self.put("/workspace/stop", b"")
            outcome = stream.finish()
        self.assertEqual(outcome.text, "[('1', 300000, 1), ('2', 300000, 1)]")

    def test_an_uploaded_program_can_be_run_at_once(self):  # B-165
        program = b"#!/bin/sh\necho ran\n"
        faults = []

        def one(index):
            for round_ in range(10):
                path = f"/workspace/p{index}"
                self.put(path, program + b"# %d\n" % round_, mode=755)
                outcome = self.inside.run(path)
                if outcome.text != "ran":
                    faults.append(outcome)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def test_many_files_in_one_request(self):
        parts = [one for i in range(100) for one in pair(f"/workspace/many/{i}", b"%d" % i)]
        self.empty_success(self.upload(*parts))
        self.assertEqual(self.shell("ls /workspace/many | wc -l; cat /workspace/many/77"),
                         "100\n77")

    def test_a_hundred_at_once_take_turns(self):
        faults = []

        def one(index):
            path = f"/workspace/turn/{index}"
            if self.upload(*pair(path, b"%d" % index)).status != 200:
                faults.append(index)
            elif self.get(path).body != b"%d" % index or self.info(path).status != 200:
                faults.append(index)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def test_those_that_wait_for_a_turn_may_leave(self):
        body = form(*pair("/workspace/x", bytes(MIB)))
        head = {**self.box_.headers, **FORM, "Content-Length": len(body)}
        socks = [self.connect() for _ in range(60)]
        for sock in socks:
            self.send(sock, "POST", self.box_.root + "/files/upload", head, body[:len(body) // 2])
        time.sleep(0.2)
        random.shuffle(socks)
        for sock in socks:
            sock.close()
        self.put("/workspace/y", b"y")
        wait_until(lambda: self.temporary_files() == "/workspace/y", what="nothing else is left")

    def test_chunked_and_waiting_for_leave(self):
        body = form(*pair("/workspace/x", b"chunked" * 1000))
        sock = self.connect()
        self.send(sock, "POST", self.box_.root + "/files/upload",
                  {**self.box_.headers, **FORM, "Transfer-Encoding": "chunked",
                   "Expect": "100-continue"})
        status, _headers, rest = receive_head(sock)
        self.assertEqual((status, rest), (100, b""))
        for at in range(0, len(body), 777):
            piece = body[at:at + 777]
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        sock.sendall(b"0\r\n\r\n")
        status, headers, _rest = receive_head(sock)
        self.assertEqual((status, headers["content-length"]), (200, "0"))
        self.assertEqual(self.get("/workspace/x").body, b"chunked" * 1000)

    def test_a_refused_upload_is_told_before_it_is_sent(self):
        for headers, status in (({}, 401), ({**self.box_.headers, "Content-Length": 1 << 50}, 413)):
            sock = self.connect()
            self.send(sock, "POST", self.box_.root + "/files/upload",
                      {"Content-Length": 1 << 20, **FORM, "Expect": "100-continue", **headers})
            self.assertEqual(receive_head(sock)[0], status)

    def test_a_connection_that_ends_anywhere_leaves_nothing(self):  # B-198
        body = form(*pair("/workspace/deep/er/x", os.urandom(100000)))
        cuts = list(range(0, 420, 7)) + [random.randrange(len(body)) for _ in range(30)]
        cuts += range(len(body) - 12, len(body))
        for cut in cuts:
            sock = self.connect()
            self.send(sock, "POST", self.box_.root + "/files/upload",
                      {**self.box_.headers, **FORM, "Content-Length": len(body)}, body[:cut])
            sock.close()
        wait_until(lambda: self.temporary_files() == "", what="nothing is left")
        self.put("/workspace/deep/er/x", b"and it works")

    def test_a_client_that_stops_sending_is_not_waited_for_by_others(self):
        body = form(*pair("/workspace/x", bytes(MIB)))
        socks = [self.connect() for _ in range(20)]
        for sock in socks:
            self.send(sock, "POST", self.box_.root + "/files/upload",
                      {**self.box_.headers, **FORM, "Content-Length": len(body)},
                      body[:len(body) // 2])
        start = time.monotonic()
        self.put("/workspace/y", b"y")
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)
        for sock in socks:
            sock.close()


class Download(FilesCase):
    def setUp(self):
        super().setUp()
        self.put("/workspace/x", b"0123456789", mode=644)

    def test_headers_of_a_whole_file(self):
        response = self.get("/workspace/x")
        self.assertEqual((response.status, response.body), (200, b"0123456789"))
        headers = response.headers
        self.assertEqual(headers["Content-Type"], "application/octet-stream")
        self.assertEqual(headers["Content-Disposition"], 'attachment; filename="x"')
        self.assertEqual(headers["Content-Length"], "10")
        when = email.utils.parsedate_to_datetime(headers["Last-Modified"]).timestamp()
        self.assertLess(abs(when - time.time()), 60)

    def test_head_has_the_same_headers_and_no_body(self):
        target = self.box_.root + "/files/download?path=/workspace/x"
        response = self.ask("HEAD", target, headers=self.box_.headers)
        self.assertEqual((response.status, response.body), (200, b""))
        self.assertEqual(response.headers["Content-Length"], "10")

    def test_names_are_quoted(self):
        cases = {
            "file with spaces.txt": 'attachment; filename="file with spaces.txt"',
            "测.txt": "attachment; filename=\"%E6%B5%8B.txt\"; filename*=UTF-8''%E6%B5%8B.txt",
            'a"b\\c\n': "attachment; filename=\"a%22b%5Cc%0A\"; filename*=UTF-8''a%22b%5Cc%0A",
        }
        for name, disposition in cases.items():
            self.put(f"/workspace/{name}", name.encode())
            response = self.get(f"/workspace/{name}")
            self.assertEqual(response.body, name.encode())
            self.assertEqual(response.headers["Content-Disposition"], disposition)

    def test_ranges(self):
        cases = {"bytes=0-3": (b"0123", "bytes 0-3/10"), "bytes=8-": (b"89", "bytes 8-9/10"),
                 "bytes=-1": (b"9", "bytes 9-9/10"), "bytes=5-99": (b"56789", "bytes 5-9/10"),
                 "bytes=20-,1-2": (b"12", "bytes 1-2/10")}
        for wanted, (data, content_range) in cases.items():
            response = self.get("/workspace/x", {"Range": wanted})
            self.assertEqual((response.status, response.body), (206, data), wanted)
            self.assertEqual(response.headers["Content-Range"], content_range)
            self.assertEqual(response.headers["Content-Length"], str(len(data)))
        for wanted in ("bytes=10-", "bytes=-0", "bytes=x", "chars=1-2", "bytes=3-2"):
            response = self.get("/workspace/x", {"Range": wanted})
            self.refused(response, 416, "UNKNOWN")
            self.assertEqual(response.headers["Content-Range"], "bytes */10")

    def test_an_empty_file_ignores_a_range(self):
        self.put("/workspace/empty", b"")
        response = self.get("/workspace/empty", {"Range": "bytes=0-9"})
        self.assertEqual((response.status, response.body), (200, b""))

    def test_conditions(self):
        modified = self.get("/workspace/x").headers["Last-Modified"]
        past, future = "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"
        cases = [
            ({"If-Modified-Since": modified}, 304), ({"If-Modified-Since": future}, 304),
            ({"If-Modified-Since": past}, 200), ({"If-Modified-Since": "yesterday"}, 200),
            ({"If-Unmodified-Since": past}, 412), ({"If-Unmodified-Since": modified}, 200),
            ({"If-None-Match": "*"}, 304), ({"If-None-Match": '"x"'}, 200),
            ({"If-None-Match": '"x"', "If-Modified-Since": future}, 200),
            ({"If-Match": '"x"'}, 412), ({"If-Match": "*"}, 200),
            ({"If-Range": modified, "Range": "bytes=0-0"}, 206),
            ({"If-Range": past, "Range": "bytes=0-0"}, 200),
            ({"If-Range": '"tag"', "Range": "bytes=0-0"}, 200),
        ]
        for headers, status in cases:
            response = self.get("/workspace/x", headers)
            self.assertEqual(response.status, status, headers)
            if status == 304:
                self.assertEqual(response.body, b"")

    def test_lines(self):
        self.put("/workspace/l", b"one\r\ntwo\n\nfour\nfive")
        cases = [({"offset": 1, "limit": 2}, b"one\ntwo"), ({"offset": 3}, b"\nfour\nfive"),
                 ({"limit": 1}, b"one"), ({"offset": 5, "limit": 9}, b"five"),
                 ({"offset": 6}, b""), ({"offset": 10 ** 12, "limit": 10 ** 12}, b"")]
        for parameters, text in cases:
            response = self.get("/workspace/l", **parameters)
            self.assertEqual((response.status, response.body), (200, text), parameters)
            self.assertEqual(response.headers["Content-Type"], "text/plain; charset=utf-8")
        for parameters in ({"offset": 0}, {"limit": 0}, {"offset": -1}, {"limit": "x"},
                           {"offset": "1.5"}):
            self.refused(self.get("/workspace/l", **parameters), 400)
        self.refused(self.get("/workspace/l", {"Range": "bytes=0-1"}, limit=1), 400)

    def test_a_line_has_no_limit_of_length(self):
        self.shell("head -c 20000000 /dev/zero | tr '\\0' x > /workspace/l; echo >> /workspace/l;"
                   "echo end >> /workspace/l")
        self.assertEqual(len(self.get("/workspace/l", limit=1).body), 20000000)
        self.assertEqual(self.get("/workspace/l", offset=2).body, b"end")

    def test_faults(self):
        self.refused(self.execd("GET", "/files/download"), 400, "MISSING_QUERY")
        self.refused(self.get("/none"), 404, "FILE_NOT_FOUND")
        self.refused(self.get("/workspace"), 500)

    def test_a_file_that_shrinks_cuts_the_connection(self):
        self.shell("head -c 40000000 /dev/zero > /workspace/big")
        sock = self.connect()
        self.send(sock, "GET", self.box_.root + "/files/download?path=/workspace/big",
                  self.box_.headers)
        status, headers, rest = receive_head(sock)
        self.assertEqual((status, headers["content-length"]), (200, "40000000"))
        self.shell("truncate -s 1000 /workspace/big")
        rest += receive_all(sock)
        self.assertLess(len(rest), 40000000)

    def test_clients_that_leave_cost_nothing(self):
        self.shell("head -c 40000000 /dev/zero > /workspace/big")
        files = t.held_count(self.daemon.pid)
        for i in range(40):
            sock = self.connect()
            self.send(sock, "GET", self.box_.root + "/files/download?path=/workspace/big",
                      self.box_.headers)
            if i % 2:
                receive_head(sock)
            sock.close()
        wait_until(lambda: t.held_count(self.daemon.pid) <= files, what="files are closed")


class Hostile(FilesCase):
    def test_links_lead_nowhere_outside(self):  # B-178
        self.shell("""cd /workspace
ln -s /etc/shadow out; ln -s / root; ln -s ../../../../../../etc/hostname up; ln -s loop loop
""")
        self.assertIn(self.get("/workspace/out").status, (404, 500))
        with open("/etc/machine-id", encoding="ascii") as file:
            secret = file.read().strip().encode()
        for path in ("/workspace/root/etc/machine-id", "/workspace/up", "/workspace/root/etc/shadow",
                     "/workspace/loop", "/workspace/root/proc/1/environ"):
            response = self.get(path)
            self.assertNotIn(secret, response.body)
            inside = self.inside.run("/bin/cat", path)
            if response.status == 200:
                self.assertEqual(response.body, inside.stdout)
            else:
                self.assertIn(response.status, (404, 500), path)

    def test_uploads_through_links_stay_inside(self):  # B-179, B-181
        self.shell("""cd /workspace; mkdir real
ln -s /etc/cron.d/x in.txt; ln -s /none/x dangling; ln -s real dir; ln -s /etc etc; ln -s loop loop
""")
        for path in ("in.txt", "dangling", "dir/x", "etc/x", "loop", "loop/x"):
            response = self.upload(*pair(f"/workspace/{path}", b"planted"))
            self.assertIn(response.status, (200, 500), response)
            self.assertFalse(os.path.exists("/etc/cron.d/x") or os.path.exists("/none"))
        self.assertFalse(os.path.exists("/etc/x"))
        self.assertEqual(self.get("/workspace/dir/x").body, b"planted")
        self.assertEqual(self.shell("cat /workspace/real/x"), "planted")

    def test_directory_swapped_while_files_come_and_go(self):  # B-180
        self.shell("mkdir /workspace/a /workspace/real")
        with self.inside.stream() as stream:
            stream.begin(argv=[t.PYTHON, "-c", """
import os
os.chdir("/workspace")
os.symlink("/etc", "link")
print("on", flush=True)
while not os.path.exists("stop"):
    for one, other in (("a", "b"), ("link", "a"), ("a", "link"), ("b", "a")):
        try:
            os.rename(one, other)
        except OSError:
            pass # an upload has made a directory of that name
"""])
            stream.read_stdout(b"on")
            for i in range(40):
                response = self.upload(*pair(f"/workspace/a/x{i}", b"x"))
                self.assertIn(response.status, (200, 500), response)
                self.assertIn(self.get("/workspace/a/hostname").status, (200, 404, 500))
            self.put("/workspace/stop", b"")
            self.assertEqual(stream.finish().exit_code, 0)
        self.assertEqual([name for name in os.listdir("/etc") if name.startswith("x")
                          and name[1:].isdigit()], [])

    def test_a_fifo_blocks_nobody(self):  # B-182
        self.shell("mkfifo /workspace/p")
        start = time.monotonic()
        self.refused(self.get("/workspace/p"), 500)
        self.refused(self.execd("POST", "/files/replace",
                                {"/workspace/p": {"old": "a", "new": "b"}}), 500)
        self.assertLess(time.monotonic() - start, 2 * t.SLOW_FACTOR)

    def test_what_is_no_regular_file_is_refused(self):  # B-183
        self.shell(t.PYTHON + " -c 'import socket;"
                   "socket.socket(socket.AF_UNIX).bind(\"/workspace/s\")'")
        self.assertEqual(self.get("/proc/kmsg").body, b"" if self.get("/proc/kmsg").status == 200
                         else self.get("/proc/kmsg").body)
        for path in ("/workspace", "/workspace/s", "/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/status", "/proc/self/environ"):
            response = self.get(path)
            self.assertIn(response.status, (404, 500), path)
            self.assertTrue(response.code, path)

    def test_odd_names_round_trip(self):  # B-193
        names = ["new\nline", "x" * 255, "-rf", "emoji 😀", "perc%41ent", "a;b&c=d+e", "tab\t",
                 "quote\"'\\", " ", "..."]
        for name in names:
            self.put(f"/workspace/odd/{name}", name.encode())
            self.assertEqual(self.get(f"/workspace/odd/{name}").body, name.encode(), name)
            self.assertEqual(self.file_info(f"/workspace/odd/{name}")["path"],
                             f"/workspace/odd/{name}")
        listed = self.execd("GET", "/directories/list?path=/workspace/odd").json
        self.assertEqual([one["path"] for one in listed],
                         sorted((f"/workspace/odd/{name}" for name in names), key=str.encode))
        self.shell("printf x > $(printf '/workspace/\\377')")
        raw = self.ask("GET", self.box_.root + "/files/download?path=/workspace/%FF",
                       headers=self.box_.headers)
        self.assertEqual(raw.body, b"x")
        self.assertIn("/workspace/�",
                      [one["path"] for one in
                       self.execd("GET", "/files/search?path=/workspace&pattern=?").json])

    def test_a_listing_beyond_the_limit_names_it(self):  # B-194, B-195
        """The writable places hold less than that many files, the programs of most hosts more."""
        if int(self.shell("find /usr | wc -l")) <= 100100:
            self.skipTest("/usr has no more than 100000 entries")
        before = rss_kib(self.daemon.pid)
        response = self.execd("GET", "/files/search?" + query(path="/usr", pattern="none"))
        self.assertEqual(response.status, 500, response)
        self.assertIn("100000", response.json["message"])
        self.assertLess(rss_kib(self.daemon.pid) - before, 60000)

    def test_ids_are_judged_before_anything_else(self):  # B-197
        for uuid in ("../x", "%2e%2e", "x" * 4096, "00000000-0000-4000-8000-000000000000"):
            response = self.ask("GET", f"/v1/sandboxes/{uuid}/proxy/44772/files/info",
                                headers=self.box_.headers)
            self.assertIn(response.status, (400, 401, 404, 413, 414), response)

    def test_hostile_account_files_change_names_only(self):
        """/etc is not the workload's to write; what it says there is only shown."""
        self.assertNotEqual(self.inside.shell("echo x >> /etc/passwd").exit_code, 0)


class Large(ExecdCase):
    """What a gigabyte costs the daemon: time, and no memory."""

    SIZE = 1 << 30
    pools = {"default": {"max_idle": 1, "max_lease": "10m", "images": ["*"],
                         "limits": {"memory": "2GiB", "tmp": "1536MiB", "pids": 64}}}

    def peak_kib(self, work):
        """Highest RSS of the daemon above what it had, while work() runs."""
        pid, highest, over = self.daemon.pid, [0], threading.Event()
        before = rss_kib(pid)

        def watch():
            while not over.wait(0.01):
                highest[0] = max(highest[0], rss_kib(pid))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            work()
        finally:
            over.set()
            thread.join()
        return highest[0] - before

    def assert_flat(self, work, limit_kib):
        peak = self.peak_kib(work)
        if t.SLOW_FACTOR == 1:  # a sanitizer keeps what was freed
            self.assertLess(peak, limit_kib)

    def test_a_gigabyte_up_and_down_with_flat_memory(self):
        box = self.box()
        pattern = os.urandom(MIB)
        digest = hashlib.sha256()
        metadata = json.dumps({"path": "/workspace/big", "mode": 644}).encode()
        head = (b"--XbX\r\n" + part("metadata", metadata, "metadata") + b"\r\n--XbX\r\n" +
                part("file", b"", "file"))
        tail = b"\r\n--XbX--\r\n"
        for _ in range(self.SIZE // MIB):
            digest.update(pattern)

        def up():
            sock = self.connect(120)
            self.send(sock, "POST", box.root + "/files/upload",
                      {**box.headers, **FORM, "Content-Length": len(head) + self.SIZE + len(tail)},
                      head)
            for _ in range(self.SIZE // MIB):
                sock.sendall(pattern)
            sock.sendall(tail)
            self.assertEqual(receive_head(sock)[0], 200)

        def down():
            seen, length = hashlib.sha256(), 0
            sock = self.connect(120)
            self.send(sock, "GET", box.root + "/files/download?path=/workspace/big", box.headers)
            status, _headers, rest = receive_head(sock)
            self.assertEqual(status, 200)
            while length + len(rest) < self.SIZE:
                seen.update(rest)
                length += len(rest)
                rest = sock.recv(MIB)
                self.assertTrue(rest, length)
            seen.update(rest)
            length += len(rest)
            self.assertEqual((length, seen.digest()), (self.SIZE, digest.digest()))

        self.assert_flat(up, 8 * 1024)
        self.assert_flat(down, 8 * 1024)

    def test_a_client_that_does_not_read_holds_a_queue_and_nothing_else(self):
        box = self.box()
        box.own().shell("head -c 300000000 /dev/zero > /workspace/big")
        socks = []

        def stall():
            for _ in range(10):
                sock = self.connect()
                self.send(sock, "GET", box.root + "/files/download?path=/workspace/big",
                          box.headers)
                receive_head(sock)
                socks.append(sock)
            time.sleep(0.5)

        self.assert_flat(stall, 16 * 1024)
        for sock in socks:
            sock.close()


if __name__ == "__main__":
    main()
