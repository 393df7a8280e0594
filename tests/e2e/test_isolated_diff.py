"""What an isolated session's overlay has changed: GET /v1/isolated/session/ID/diff."""

import io
import os
import sys
import tarfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from test_isolated_sessions import IsolatedCase as Base, main  # noqa: E402

LONG = "/".join(["n" * 100] * 3)


class Diff(Base):
    def diff(self, session, status=200):
        response = self.sandbox.execd("GET", f"/v1/isolated/session/{session}/diff")
        self.assertEqual(response.status, status, response.body)
        return response

    def archive(self, session):
        response = self.diff(session)
        self.assertEqual(response.headers["Content-Type"], "application/gzip")
        return tarfile.open(fileobj=io.BytesIO(response.body), mode="r:gz")

    def test_nothing(self):
        session = self.create(mode="overlay")
        self.assertEqual(self.archive(session).getnames(), [])

    def test_I_C_all_kinds_of_changes(self):
        self.outside("cd /workspace; mkdir -p gone kept/below replaced; echo x > gone/x; "
                     "echo base > kept/file; echo y > kept/below/y; echo z > replaced/z; "
                     "echo untouched > untouched")
        session = self.create(mode="overlay")
        text, error = self.run_in(session, f"""
            rm -r gone; echo more >> kept/file; rm kept/below/y; rm -r replaced; mkdir replaced
            echo new > replaced/new; ln -s kept/file link; ln -s {LONG} long; mkfifo fifo
            mkdir -p {LONG}; echo deep > {LONG}/deep; chmod 751 {LONG}/deep
            head -c 100000 /dev/zero > zeros; touch empty; echo closed > closed; chmod 0 closed
            mkdir shut; echo in > shut/in; chmod 0 shut""")
        self.assertEqual((text, error), ("", None))
        archive = self.archive(session)
        members = {member.name: member for member in archive.getmembers()}
        deep = [LONG[:101 * i - 1] for i in range(1, 4)]
        self.assertEqual(sorted(members), sorted([
            ".wh.gone", "kept", "kept/file", "kept/below", "kept/below/.wh.y", "replaced",
            "replaced/.wh..wh..opq", "replaced/new", "link", "long", "fifo", *deep,
            LONG + "/deep", "zeros", "empty", "closed", "shut", "shut/in"]))

        def content(name):
            return archive.extractfile(members[name]).read()
        self.assertEqual(content("kept/file"), b"base\nmore\n")
        self.assertEqual(content("replaced/new"), b"new\n")
        self.assertEqual(content(LONG + "/deep"), b"deep\n")
        self.assertEqual(content("zeros"), bytes(100000))
        self.assertEqual(content("closed"), b"closed\n")
        self.assertEqual(content("shut/in"), b"in\n")
        self.assertEqual(content(".wh.gone") + content("replaced/.wh..wh..opq"), b"")
        self.assertEqual(members["link"].linkname, "kept/file")
        self.assertEqual(members["long"].linkname, LONG)
        self.assertTrue(members["fifo"].isfifo() and members["kept"].isdir())
        deep = members[LONG + "/deep"]
        self.assertEqual((deep.mode, deep.uid, deep.gid), (0o751, 1000, 1000))
        self.assertEqual(members["shut"].mode, 0)
        # The session goes on, and nothing of the archive is left in it.
        self.assertEqual(self.run_in(session, "cat empty; ls -A /tmp"), ("", None))

    def test_what_programs_make_of_it(self):
        session = self.create(mode="overlay")
        self.run_in(session, "head -c 1000000 /dev/urandom > data; sha256sum data > sum")
        response = self.diff(session)
        self.assertEqual(int(response.headers["Content-Length"]), len(response.body))
        zlib.decompress(response.body, wbits=31)  # whole, and its checksum
        archive = tarfile.open(fileobj=io.BytesIO(response.body), mode="r:gz")
        self.assertEqual(len(archive.extractfile("data").read()), 1000000)

    def test_links_planted_in_it_lead_nowhere(self):
        session = self.create(mode="overlay")
        self.run_in(session, "ln -s /etc/passwd p; ln -s / root; mkdir d; ln -s /etc d/e")
        members = self.archive(session).getmembers()
        self.assertEqual({member.name: member.linkname for member in members},
                         {"p": "/etc/passwd", "root": "/", "d": "", "d/e": "/etc"})

    def test_only_of_an_overlay(self):
        for mode in ("rw", "ro"):
            self.diff(self.create(mode=mode), 409)
        response = self.sandbox.execd(
            "GET", "/v1/isolated/session/f81d4fae-7dec-41d0-a765-00a0c91e6bf6/diff")
        self.assertEqual((response.status, response.json["code"]), (404, "SESSION_NOT_FOUND"))

    def test_room_for_it(self):
        session = self.create(mode="overlay")
        self.assertEqual(self.run_in(session, "head -c 40000000 /dev/zero > big")[1], None)
        self.diff(session, 413)
        # What could not be finished is gone.
        self.assertEqual(self.run_in(session, "head -c 20000000 /dev/zero > more")[1], None)


if __name__ == "__main__":
    main()
