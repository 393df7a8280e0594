"""What an isolated session's overlay has changed, put into its workspace: POST …/commit."""

import concurrent.futures
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from test_isolated_sessions import IsolatedCase as Base, main  # noqa: E402
import sandpool_test as t  # noqa: E402

NOTHING = {"files": 0, "directories": 0, "deleted": 0, "bytes": 0}


class Commit(Base):
    def commit(self, session, status=200):
        response = self.sandbox.execd("POST", f"/v1/isolated/session/{session}/commit", timeout=60)
        self.assertEqual(response.status, status, response.body)
        return response.json

    def refused_commit(self, session, text, status=409, code="CONFLICT"):
        answer = self.commit(session, status)
        self.assertEqual(answer["code"], code)
        self.assertIn(text, answer["message"])

    def must(self, session, code, expected=""):
        self.assertEqual(self.run_in(session, code), (expected, None))

    def test_I_C_capabilities(self):
        answer = self.sandbox.execd("GET", "/v1/isolated/capabilities").json
        self.assertEqual((answer["commit_supported"], answer["diff_supported"]), (True, True))

    def test_I_C_the_workspace_gets_it_and_the_session_goes_on(self):
        self.outside("cd /workspace; mkdir -p gone sub; echo 1 > gone/x; echo 2 > sub/kept; "
                     "echo 3 > sub/changed")
        session = self.create(mode="overlay")
        self.must(session, "rm -r gone; echo new > sub/changed; mkdir -m 750 made; "
                           "echo four > made/four; ln -s made link; cd made; state=kept")
        self.assertEqual(self.outside("cat /workspace/sub/changed; ls /workspace"),
                         "3\ngone\nsub\n")
        self.assertEqual(self.commit(session),
                         {"files": 3, "directories": 1, "deleted": 1, "bytes": 9})
        # Who is outside sees it …
        self.assertEqual(
            self.outside("cd /workspace; cat sub/* link/four; stat -c %a made; ls -A"),
            "new\n2\nfour\n750\nlink\nmade\nsub\n")
        # … and who is inside, where nothing else has changed.
        self.must(session, "pwd; echo $state; cat four; cat ../sub/changed",
                  "/workspace/made\nkept\nfour\nnew\n")
        self.assertEqual(self.commit(session), NOTHING)
        self.must(session, "echo five > ../five")
        self.assertEqual(self.outside("cat /workspace/five 2>&1 | grep -c 'No such'"), "1\n")
        self.assertEqual(self.commit(session)["files"], 1)
        self.assertEqual(self.outside("cat /workspace/five"), "five\n")

    def test_E_11_the_second_of_two_sessions(self):
        first, second = self.create(mode="overlay"), self.create(mode="overlay")
        self.must(first, "echo 1 > first")
        self.must(second, "echo 2 > second")
        self.commit(first)
        # The base is not any more what the second one was laid upon.
        self.refused_commit(second, "somebody else has changed")
        self.assertEqual(self.outside("ls /workspace"), "first\n")
        self.must(self.create(mode="overlay"), "ls", "first\n")

    def test_E_11_a_base_that_somebody_has_changed(self):
        self.outside("echo base > /workspace/file")
        session = self.create(mode="overlay")
        self.must(session, "echo mine > mine")
        self.outside("echo theirs >> /workspace/file")
        self.refused_commit(session, "somebody else has changed")
        self.assertEqual(self.outside("cd /workspace; ls -A; cat file"), "file\nbase\ntheirs\n")
        # What it has is still there to be taken.
        self.must(session, "cat mine", "mine\n")
        response = self.sandbox.execd("GET", f"/v1/isolated/session/{session}/diff")
        self.assertEqual(response.status, 200)

    def test_E_11_a_run_that_did_not_end_by_itself_spoils_it(self):
        cases = (("sleep 60", "timeout"), ("kill -9 $$", "signal"))
        for code, reason in cases:
            session = self.create(mode="overlay")
            self.must(session, "echo before > before")
            self.assertNotEqual(self.run_in(session, "echo half > half; " + code,
                                            timeout_seconds=1)[1], None)
            self.must(session, "cat half", "half\n")
            self.refused_commit(session, reason)
            self.refused_commit(session, "run 2 ")
            self.assertEqual(self.outside("ls -A /workspace"), "")
            self.delete(session)
        # One that fails has ended by itself.
        session = self.create(mode="overlay")
        self.assertEqual(self.run_in(session, "echo x > file; false")[1], "1")
        self.commit(session)
        self.assertEqual(self.outside("ls -A /workspace"), "file\n")

    def test_E_11_a_client_that_left_spoils_it(self):
        session = self.create(mode="overlay")
        sock = self.connect()
        body = b'{"code": "echo half > half; echo there; sleep 60"}'
        self.send(sock, "POST", f"{self.sandbox.root}/v1/isolated/session/{session}/run",
                  {**self.sandbox.headers, "Content-Length": len(body)}, body)
        t.wait_until(lambda: b"there" in sock.recv(4096))
        self.refused_commit(session, "a run is going on")
        sock.close()
        t.wait_until(lambda: self.run_in(session, "ls")[0] == "half\n")
        self.refused_commit(session, "run 1 ")
        self.assertEqual(self.outside("ls -A /workspace"), "")

    def test_nothing_else_goes_on_meanwhile(self):
        session = self.create(mode="overlay")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.run_in, session, "echo x > file; sleep 2")
            t.wait_until(lambda: self.run_outside_sees(session))
            self.refused_commit(session, "a run is going on")
            self.assertEqual(running.result(), ("", None))
        # What a run left behind is ended; the commit is of what is there then.
        self.must(session, "(while :; do echo y >> busy; sleep 0.01; done) > /dev/null 2>&1 &")
        self.commit(session)
        self.must(session, "ls", "busy\nfile\n")
        size = self.outside("stat -c %s /workspace/busy")
        self.must(session, "sleep 0.1; stat -c %s busy", size)

    def test_all_is_refused_until_it_is_over(self):
        session = self.create(mode="overlay")
        path = f"/v1/isolated/session/{session}"
        self.must(session, "echo x > file; kept=1")
        init = self.sandbox.init_pid()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            os.kill(init, signal.SIGSTOP)  # who is to do it does not begin
            try:
                # One of two is refused at once, so the other one is under way.
                commits = [pool.submit(self.sandbox.execd, "POST", path + "/commit", timeout=60)
                           for _ in range(2)]
                answers = [next(concurrent.futures.as_completed(commits)).result()]
                for method, rest, body in (
                        ("POST", "/run", {"code": "echo run >> file"}), ("POST", "/commit", None),
                        ("GET", "/diff", None), ("GET", "/files/info?path=/workspace/file", None),
                        ("DELETE", "", None)):
                    answers.append(self.sandbox.execd(method, path + rest, body))
                for answer in answers:
                    self.assertEqual(answer.status, 409, answer)
                    self.assertIn(answer.code, ("CONFLICT", "RUNTIME_ERROR"))  # that of files
                    self.assertIn("being committed", answer.json["message"])
                self.assertEqual(self.sandbox.execd("GET", path).json["status"], "active")
                self.assertEqual([commit.done() for commit in commits].count(False), 1)
            finally:
                os.kill(init, signal.SIGCONT)
            statuses = [commit.result().status for commit in commits]
        self.assertEqual(sorted(statuses), [200, 409])
        # None of what was refused has been done, and all of it is possible again.
        self.must(session, "cat file; echo $kept; echo more > file", "x\n1\n")
        self.assertEqual(self.commit(session)["files"], 1)
        self.assertEqual(self.outside("cat /workspace/file"), "more\n")
        self.delete(session)

    def test_it_is_finished_without_its_client(self):
        session = self.create(mode="overlay")
        self.must(session, "mkdir d; for i in $(seq 2000); do echo $i > d/$i; done")
        sock = self.connect()
        self.send(sock, "POST", f"{self.sandbox.root}/v1/isolated/session/{session}/commit",
                  {**self.sandbox.headers, "Content-Length": 0})
        t.wait_until(lambda: self.outside("ls -A /workspace") != "")
        sock.close()
        t.wait_until(lambda: self.outside("ls -A /workspace; ls /workspace/d | wc -l") ==
                     "d\n2000\n", timeout=60)

        def goes_on():
            response = self.sandbox.execd("POST", f"/v1/isolated/session/{session}/run",
                                          {"code": "echo on > on"})
            self.assertIn(response.status, (200, 409), response.body)
            return response.status == 200
        t.wait_until(goes_on)
        self.assertEqual(self.commit(session)["files"], 1)

    def run_outside_sees(self, session):
        response = self.sandbox.execd(
            "GET", f"/v1/isolated/session/{session}/files/info?path=/workspace/file")
        return response.status == 200

    def test_only_of_an_overlay(self):
        for mode in ("rw", "ro"):
            self.refused_commit(self.create(mode=mode), "no overlay")
        response = self.sandbox.execd(
            "POST", "/v1/isolated/session/f81d4fae-7dec-41d0-a765-00a0c91e6bf6/commit")
        self.assertEqual((response.status, response.json["code"]), (404, "SESSION_NOT_FOUND"))

    def test_a_name_of_its_own(self):
        session = self.create(mode="overlay")
        self.must(session, "mkdir .sandpool-commit")
        self.refused_commit(session, ".sandpool-commit")

    def test_no_room_in_the_workspace(self):
        session = self.create(mode="overlay")
        # Both are within limits.tmp, and together are not.
        self.outside("head -c 40000000 /dev/zero > /tmp/full")
        self.must(session, "echo small > small; head -c 40000000 /dev/zero > big")
        self.refused_commit(session, "big", 507, "RUNTIME_ERROR")
        self.assertEqual(self.outside("ls -A /workspace"), "")
        self.must(session, "rm big")
        self.assertEqual(self.commit(session)["files"], 1)
        self.assertEqual(self.outside("ls -A /workspace"), "small\n")

    def test_it_ends_where_something_is_mounted_in_it(self):
        self.outside("mkdir /workspace/in")
        session = self.create(mode="overlay", extra_writable=["/workspace/in"])
        self.must(session, "echo x > file")
        answer = self.commit(session)
        self.assertTrue(answer["closed"])
        self.assertEqual(answer["files"], 1)
        self.assertEqual(self.outside("cat /workspace/file"), "x\n")
        response = self.sandbox.execd("GET", f"/v1/isolated/session/{session}")
        self.assertEqual(response.json["status"], "dead")

    def test_one_that_was_cut_off_is_forgotten_at_the_next_session(self):
        self.outside("cd /workspace; echo base > file; mkdir -p -m 700 .sandpool-commit/new; "
                     "echo half > .sandpool-commit/new/1")
        for mode in ("overlay", "rw"):
            session = self.create(mode=mode)
            self.must(session, "ls -A", "file\n")
            self.outside("cd /workspace; mkdir -p -m 700 .sandpool-commit/new")
        # One that nobody can make sense of stays, and so does the workspace.
        self.outside("cd /workspace; echo nonsense > .sandpool-commit/journal")
        response = self.sandbox.execd("POST", "/v1/isolated/session",
                                      {"workspace": {"path": "/workspace", "mode": "overlay"}})
        self.assertEqual(response.status, 409, response.body)
        self.assertIn("remove it", response.json["message"])
        self.must(self.create(mode="ro"), "ls -A", ".sandpool-commit\nfile\n")


if __name__ == "__main__":
    main()
