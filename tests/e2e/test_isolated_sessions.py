"""Isolated sessions: namespaces inside a sandbox, by execd's /v1/isolated routes."""

import concurrent.futures
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from execd_case import Box, ExecdCase  # noqa: E402
import sandpool_test as t  # noqa: E402
from sandpool_test import main  # noqa: E402


class IsolatedCase(ExecdCase):
    def setUp(self):
        self.sandbox = self.box()

    def create(self, path="/workspace", mode="rw", box=None, **more):
        response = (box or self.sandbox).execd(
            "POST", "/v1/isolated/session", {"workspace": {"path": path, "mode": mode}, **more})
        self.assertEqual(response.status, 201, response.body)
        return response.json["session_id"]

    def refused(self, body, status, code):
        response = self.sandbox.execd("POST", "/v1/isolated/session", body)
        self.assertEqual(response.status, status, response.body)
        self.assertEqual(response.json["code"], code)
        return response.json["message"]

    def delete(self, session, status=200):
        response = self.sandbox.execd("DELETE", f"/v1/isolated/session/{session}")
        self.assertEqual(response.status, status, response.body)

    def events(self, session, code, **more):
        response = self.sandbox.execd("POST", f"/v1/isolated/session/{session}/run",
                                      {"code": code, **more}, timeout=60)
        self.assertEqual(response.status, 200, response.body)
        return [json.loads(part) for part in response.body.decode().split("\n\n") if part]

    def run_in(self, session, code, **more):
        """(stdout, evalue of the error or None)"""
        events = self.events(session, code, **more)
        text = "".join(event["text"] + ("" if event["text"].endswith("\n") else "\n")
                       for event in events if event["type"] == "stdout")
        self.assertIn(events[-1]["type"], ("execution_complete", "error"))
        error = events[-1].get("error")
        return text, error and error["evalue"]

    def outside(self, command):
        response = self.sandbox.execd("POST", "/command", {"command": command})
        events = [json.loads(part) for part in response.body.decode().split("\n\n") if part]
        return "".join(event["text"] + "\n" for event in events if event["type"] == "stdout")


class Sessions(IsolatedCase):
    def test_A_057_capabilities(self):
        answer = self.sandbox.execd("GET", "/v1/isolated/capabilities").json
        self.assertTrue(answer["available"], answer)
        self.assertTrue(answer["setpriv_available"])
        self.assertFalse(answer["userns_available"])
        self.assertTrue(answer["diff_supported"] and answer["commit_supported"])
        self.assertEqual(self.sandbox.execd("GET", "/v1/isolated/capabilities").json, answer)

    def test_A_058_create_get_run_delete(self):
        session = self.create()
        state = self.sandbox.execd("GET", f"/v1/isolated/session/{session}").json
        self.assertEqual(state["status"], "active")
        self.assertEqual(self.run_in(session, "echo hello"), ("hello\n", None))
        self.delete(session)
        self.delete(session, 404)

    def test_A_059_list(self):
        sessions = [self.create(), self.create()]
        listed = self.sandbox.execd("GET", "/v1/isolated/sessions").json["sessions"]
        self.assertEqual({item["session_id"] for item in listed}, set(sessions))
        self.assertEqual({item["status"] for item in listed}, {"active"})
        self.assertTrue(all(item["created_at"] and item["last_run_at"] for item in listed))
        self.delete(sessions[0])
        listed = self.sandbox.execd("GET", "/v1/isolated/sessions").json["sessions"]
        self.assertEqual([item["session_id"] for item in listed], sessions[1:])

    def test_A_061_first_processes(self):
        session = self.create()
        text, _ = self.run_in(session, "echo $$; ls /proc | grep -c '^[0-9]'; hostname")
        pid, count, name = text.split()
        self.assertLessEqual(int(pid), 2)
        self.assertLessEqual(int(count), 4)
        self.assertEqual(name, "sandbox")

    def test_A_062_envs_are_of_one_run(self):
        session = self.create()
        script = "echo ${A-none} ${B-none}"
        self.assertEqual(self.run_in(session, "export B=kept"), ("", None))
        self.assertEqual(self.run_in(session, script + "; B=lost", envs={"A": "it's \"x\""}),
                         ("it's \"x\" kept\n", None))
        self.assertEqual(self.run_in(session, script), ("none kept\n", None))

    def test_A_063_state_persists(self):
        session = self.create()
        self.run_in(session, "export A=1; b=2; f() { echo f$b; }; mkdir -p d; cd d")
        self.assertEqual(self.run_in(session, "echo $A; f; pwd"), ("1\nf2\n/workspace/d\n", None))

    def test_A_064_strict_tmp_is_private(self):
        one, two = self.create(), self.create()
        self.run_in(one, "echo secret > /tmp/one")
        self.assertEqual(self.run_in(two, "cat /tmp/one")[1], "1")
        self.assertEqual(self.run_in(one, "cat /tmp/one"), ("secret\n", None))
        self.assertEqual(self.outside("ls /tmp"), "")

    def test_balanced_tmp_is_the_sandboxs(self):
        session = self.create(profile="balanced")
        self.run_in(session, "echo shared > /tmp/both")
        self.assertEqual(self.outside("cat /tmp/both"), "shared\n")

    def test_A_067_overlay_on_tmp(self):
        self.outside("echo base > /tmp/base; mkdir /tmp/d; echo x > /tmp/d/x")
        session = self.create("/tmp", "overlay")
        text, error = self.run_in(session, "cat base; echo new > new; echo more >> base; rm -r d; "
                                           "mkdir d; ls d; cat base")
        self.assertEqual((text, error), ("base\nbase\nmore\n", None))
        self.assertEqual(self.outside("ls /tmp; cat /tmp/base /tmp/d/x"), "base\nd\nbase\nx\n")
        # Nobody sees the upper, not even who wrote it.
        self.assertEqual(self.run_in(session, "ls /.init")[1], "2")

    def test_A_068_rw_is_the_sandboxs(self):
        session = self.create()
        self.run_in(session, "mkdir -p a/b; echo in > a/b/file")
        self.assertEqual(self.outside("cat /workspace/a/b/file"), "in\n")
        self.outside("echo out > /workspace/a/b/file")
        self.assertEqual(self.run_in(session, "cat a/b/file"), ("out\n", None))

    def test_A_070_attach_echoes_what_it_was_created_with(self):
        self.outside("mkdir -p /data/s /mnt/t")
        session = self.create("/workspace/x", "ro", binds=[{"source": "/data/s", "dest": "/mnt/t"}],
                              extra_writable=["/data/s"], share_net=False)
        state = self.sandbox.execd("GET", f"/v1/isolated/session/{session}").json
        self.assertEqual(state["workspace"], {"path": "/workspace/x", "mode": "ro"})
        self.assertEqual(state["binds"],
                         [{"source": "/data/s", "dest": "/mnt/t", "readonly": False}])
        self.assertEqual(state["extra_writable"], ["/data/s"])
        self.assertEqual((state["profile"], state["share_net"], state["uid_mode"]),
                         ("strict", False, "setpriv"))
        self.assertEqual(state["env_passthrough"], {"mode": "deny"})
        self.assertEqual(state["idle_timeout_seconds"], 0)
        self.assertNotIn("idle_remaining_seconds", state)

    def test_A_080_ro(self):
        self.outside("echo base > /workspace/base")
        session = self.create(mode="ro")
        self.assertEqual(self.run_in(session, "cat base"), ("base\n", None))
        self.assertEqual(self.run_in(session, "echo x > base")[1], "1")
        self.assertEqual(self.outside("cat /workspace/base"), "base\n")

    def test_A_082_A_084_binds(self):
        self.outside("mkdir -p /data/s /mnt/rw /mnt/ro; echo there > /data/s/file")
        session = self.create(binds=[{"source": "/data/s", "dest": "/mnt/rw"},
                                     {"source": "/data/s", "dest": "/mnt/ro", "readonly": True}])
        self.assertEqual(self.run_in(session, "cat /mnt/ro/file; echo new > /mnt/rw/new"),
                         ("there\n", None))
        self.assertEqual(self.outside("cat /data/s/new"), "new\n")
        self.assertEqual(self.run_in(session, "echo x > /mnt/ro/new")[1], "1")
        # What is not asked for is read-only.
        self.assertEqual(self.run_in(session, "echo x > /data/s/new")[1], "1")
        self.assertEqual(self.run_in(session, "cat /data/s/new"), ("new\n", None))

    def test_extra_writable(self):
        self.outside("mkdir -p /data/w")
        session = self.create(extra_writable=["/data/w"])
        self.run_in(session, "echo new > /data/w/new")
        self.assertEqual(self.outside("cat /data/w/new"), "new\n")

    def test_A_083_sources_are_below_allowed_roots(self):
        self.outside("mkdir -p /workspace-escape /home/user/x; ln -s /etc /workspace/etc; "
                     "ln -s /home/user/x /data/x")
        workspace = {"path": "/workspace"}
        for source in ("/etc", "/workspace/etc", "/data/x", "/workspace/../etc", "/home/user/x"):
            message = self.refused({"workspace": workspace, "binds": [{"source": source}]},
                                   400, "RUNTIME_ERROR")
            self.assertIn("allowed", message)
            self.refused({"workspace": workspace, "extra_writable": [source]}, 400,
                         "RUNTIME_ERROR")
        self.refused({"workspace": workspace, "binds": [{"source": "/data/none"}]}, 400,
                     "RUNTIME_ERROR")

    def test_kernels_places_are_neither_source_nor_target(self):
        for path in ("/proc", "/proc/self", "/dev", "/dev/shm", "/", "/.init", "/sys"):
            self.refused({"workspace": {"path": path, "mode": "rw"}}, 400, "RUNTIME_ERROR")
        self.outside("mkdir /data/s")
        for path in ("/proc", "/dev", "/", "/proc/self", "/.init"):
            self.refused({"workspace": {"path": "/workspace"},
                          "binds": [{"source": "/data/s", "dest": path}]}, 400, "RUNTIME_ERROR")

    def test_bodies_that_are_refused(self):
        good = {"path": "/workspace"}
        for body in ({}, {"workspace": {}}, {"workspace": {"path": ""}},
                     {"workspace": {"path": "relative"}}, {"workspace": "/workspace"},
                     {"workspace": {"path": "/workspace", "mode": "none"}},
                     {"workspace": good, "profile": "loose"},
                     {"workspace": good, "binds": [{"source": "data"}]},
                     {"workspace": good, "binds": [{"dest": "/data"}]},
                     {"workspace": good, "binds": [{"source": "/data", "dest": "data"}]},
                     {"workspace": good, "extra_writable": ["data"]},
                     {"workspace": good, "extra_writable": [1]},
                     {"workspace": good, "env_passthrough": {"mode": "some"}},
                     {"workspace": good, "idle_timeout_seconds": -1},
                     {"workspace": good, "uid": -1},
                     {"workspace": good, "uid_mode": "root"}):
            self.refused(body, 400, "INVALID_REQUEST_BODY")
        self.refused({"workspace": good, "uid_mode": "userns"}, 503, "NOT_SUPPORTED")
        self.refused({"workspace": good, "uid": 0}, 503, "NOT_SUPPORTED")
        response = self.sandbox.execd("POST", "/v1/isolated/session", raw=b"{")
        self.assertEqual((response.status, response.json["code"]), (400, "INVALID_REQUEST_BODY"))

    def test_lists_have_a_limit(self):
        self.outside("mkdir /data/s")
        self.create(extra_writable=["/data/s"] * 32)
        self.refused({"workspace": {"path": "/workspace"}, "extra_writable": ["/data/s"] * 33},
                     400, "INVALID_REQUEST_BODY")
        binds = [{"source": "/data/s"}]
        self.create(binds=binds * 32)
        self.refused({"workspace": {"path": "/workspace"}, "binds": binds * 33}, 400,
                     "INVALID_REQUEST_BODY")

    def test_sessions_have_a_limit(self):
        sessions = [self.create() for _ in range(32)]
        response = self.sandbox.execd("POST", "/v1/isolated/session",
                                      {"workspace": {"path": "/workspace"}})
        self.assertEqual(response.status, 429, response.body)
        for session in sessions:
            self.delete(session)
        self.delete(self.create())

    def test_I_F_what_is_private_has_a_limit_while_it_runs(self):
        session = self.create(mode="overlay")
        # limits.tmp of the pool is 64 MiB, whole pages of which also hold directories.
        text, error = self.run_in(session, "head -c 66000000 /dev/zero > one && rm one && "
                                           "head -c 68000000 /dev/zero > two; rm -f one two")
        self.assertIn("No space left", text)
        self.assertIsNone(error)
        other = self.create(mode="overlay")
        self.assertEqual(self.run_in(other, "head -c 30000000 /dev/zero > x"), ("", None))

    def test_unknown_sessions(self):
        unknown = "/v1/isolated/session/f81d4fae-7dec-41d0-a765-00a0c91e6bf6"
        for method, path, body in (("GET", "", None), ("DELETE", "", None),
                                   ("POST", "/run", {"code": "true"}),
                                   ("GET", "/files/info?path=/workspace/x", None),
                                   ("GET", "/directories/list?path=/workspace", None),
                                   ("POST", "/files/mv", [])):
            response = self.sandbox.execd(method, unknown + path, body)
            self.assertEqual((response.status, response.json["code"]), (404, "SESSION_NOT_FOUND"),
                             path)

    def test_it_is_no_plain_session(self):
        session = self.create()
        response = self.sandbox.execd("DELETE", f"/session/{session}")
        self.assertEqual(response.status, 404)
        response = self.sandbox.execd("POST", f"/session/{session}/run", {"command": "true"})
        self.assertEqual(response.status, 500)
        self.assertEqual(self.run_in(session, "echo on"), ("on\n", None))


class Environment(IsolatedCase):
    """What of the sandbox's variables a session gets."""

    variables = {"PLAIN": "p", "MY_API_KEY": "k", "my_token": "t", "AWS_REGION": "a",
                 "KEPT_SECRET": "s", "EXECD_ACCESS_TOKEN": "x", "EXECD_ENVS": "/x"}

    def setUp(self):
        before = self.leased()
        response = self.ask("POST", "/v1/sandboxes", {
            "image": {"uri": "python:3.11"}, "entrypoint": ["tail", "-f", "/dev/null"],
            "resourceLimits": {"cpu": "500m", "memory": "128Mi"}, "env": self.variables})
        self.sandbox = Box(self, response.json)
        self.sandbox.own_id = (self.leased() - before).pop()
        self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{self.sandbox.uuid}")

    def passed(self, **spec):
        session = self.create(**({"env_passthrough": spec} if spec else {}))
        text, _ = self.run_in(session, "env; tr '\\0' '\\n' < /proc/1/environ 2>/dev/null")
        names = {line.partition("=")[0] for line in text.splitlines()}
        return names & set(self.variables)

    def test_secrets_are_kept_back(self):
        self.assertEqual(self.passed(), {"PLAIN"})
        self.assertEqual(self.passed(mode="deny"), {"PLAIN"})
        # Keys without a mode are dropped, and switch nothing off.
        self.assertEqual(self.passed(keys=["PLAIN"]), {"PLAIN"})
        self.assertEqual(self.passed(mode="deny", keys=["PLAIN"]),
                         {"MY_API_KEY", "my_token", "AWS_REGION", "KEPT_SECRET"})
        self.assertEqual(self.passed(mode="allow"), set())
        self.assertEqual(self.passed(mode="allow", keys=["KEPT_SECRET", "NONE",
                                                         "EXECD_ACCESS_TOKEN", "EXECD_ENVS"]),
                         {"KEPT_SECRET"})


class Metrics(IsolatedCase):
    def value(self, name, **labels):
        return self.daemon.metric_sum(name, **labels)

    def test_I_G_sessions_and_runs_are_counted(self):
        runs = "sandpool_isolated_run_duration_seconds_count"
        good, bad = self.value(runs, result="success"), self.value(runs, result="error")
        session = self.create()
        self.run_in(session, "true")
        self.run_in(session, "false")
        self.assertEqual(self.value("sandpool_isolated_sessions"), 1)
        self.assertEqual(self.value(runs, result="success"), good + 1)
        self.assertEqual(self.value(runs, result="error"), bad + 1)
        self.delete(session)
        t.wait_until(lambda: self.value("sandpool_isolated_sessions") == 0)

    def test_I_G_what_is_private_is_measured(self):
        name = "sandpool_upper_bytes"
        self.assertEqual(self.value(name), 0)
        session, other = self.create(mode="overlay"), self.create(mode="rw")
        self.outside("head -c 9000000 /dev/zero > /tmp/not-private")
        self.run_in(session, "head -c 8388608 /dev/zero > upper")
        self.run_in(other, "head -c 4194304 /dev/zero > /tmp/own; "
                           "head -c 9000000 /dev/zero > /workspace/not-private")
        t.wait_until(lambda: self.value(name) >= 12 << 20, 60, "12 MiB are seen")
        self.assertLess(self.value(name), 14 << 20)
        self.delete(session)
        t.wait_until(lambda: self.value(name) < 6 << 20, 60, "the overlay's are gone")
        self.assertGreaterEqual(self.value(name), 4 << 20)
        self.delete(other)
        t.wait_until(lambda: self.value(name) == 0, what="nothing is left")


class Runs(IsolatedCase):
    def wait_for_no_sleep(self, session):
        """What was killed may take a moment to be gone."""
        count = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep"
        t.wait_until(lambda: self.run_in(session, count)[0] == "0\n", what="no sleep")

    def test_events(self):
        session = self.create()
        events = self.events(session, "echo one; echo two >&2; exit 42")
        self.assertEqual([event["type"] for event in events],
                         ["init", "ping", "stdout", "stdout", "error"])
        self.assertEqual(events[-1]["text"], "command exited with code 42")
        self.assertEqual(events[-1]["error"],
                         {"ename": "ExitError", "evalue": "42", "traceback": None})

    def test_D_1_timeout_leaves_the_session_with_its_state(self):
        session = self.create()
        self.run_in(session, "A=kept")
        events = self.events(session, "A=lost; sleep 30 & sleep 30", timeout_seconds=1)
        self.assertEqual(events[-1]["error"]["ename"], "RuntimeError")
        self.assertEqual(events[-1]["error"]["evalue"], "context deadline exceeded")
        self.assertEqual(self.run_in(session, "echo $A"), ("kept\n", None))
        self.wait_for_no_sleep(session)

    def test_D_5_the_code_does_not_share_stdin_with_the_protocol(self):
        session = self.create()
        for code, text in (("cat; echo done", "done\n"), ("read x; echo \"[$x]\"", "[]\n"),
                           ("printf tail", "tail\n"), ("exec >/dev/null; echo lost", "")):
            self.assertEqual(self.run_in(session, code), (text, None), code)
        self.assertIsNotNone(self.run_in(session, "echo 'open")[1])
        self.assertEqual(self.run_in(session, "echo on"), ("on\n", None))

    def test_D_6_blank_lines(self):
        session = self.create()
        self.assertEqual(self.run_in(session, "echo a; echo; echo b"), ("a\n\nb\n", None))

    def test_the_first_process_cannot_be_killed_from_inside(self):
        session = self.create()
        self.assertEqual(self.run_in(session, "kill -9 1; echo $?")[0].split()[-1], "1")
        self.assertEqual(self.run_in(session, "echo on"), ("on\n", None))

    def first_process(self):
        """On the host: the first process of the only session that there is."""
        def is_init(pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    return file.read().startswith(b"sandpool-init")
            except OSError:
                return False

        def status(pid):
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                return dict(line[:-1].split(":\t", 1) for line in file if ":\t" in line)
        # Other daemons' are not ours to kill.
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if is_init(pid) and is_init(status(pid)["PPid"]):
                if os.path.exists(f"/proc/{pid}/root{self.marker}"):
                    found.append(int(pid))
        self.assertEqual(len(found), 1)
        return found[0]

    def test_a_dead_session(self):
        session = self.create()
        self.marker = f"/workspace/{session}"
        self.run_in(session, f"touch {self.marker}")
        os.kill(self.first_process(), signal.SIGKILL)

        def is_dead():
            state = self.sandbox.execd("GET", f"/v1/isolated/session/{session}").json
            return state["status"] == "dead"
        t.wait_until(is_dead)
        events = self.events(session, "echo on")
        text = "isolated session is not active: session process has exited"
        self.assertEqual((events[-1]["type"], events[-1]["text"]), ("error", text))
        self.assertEqual(events[-1]["error"]["evalue"], text)
        response = self.sandbox.execd(
            "GET", f"/v1/isolated/session/{session}/files/info?path=/workspace/x")
        self.assertGreaterEqual(response.status, 400)
        listed = self.sandbox.execd("GET", "/v1/isolated/sessions").json["sessions"]
        self.assertEqual([item["status"] for item in listed], ["dead"])
        self.delete(session)

    def test_a_client_that_leaves_ends_its_run_and_no_session(self):
        session = self.create()
        sock = self.connect()
        body = json.dumps({"code": "sleep 60"}).encode()
        self.send(sock, "POST", f"{self.sandbox.root}/v1/isolated/session/{session}/run",
                  {**self.sandbox.headers, "Content-Length": len(body)}, body)
        sock.recv(4096)
        sock.close()
        self.wait_for_no_sleep(session)

    def test_runs_take_turns(self):
        session = self.create()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            code = "n=$((n+1)); sleep 0.1; echo $n"
            texts = list(pool.map(lambda _: self.run_in(session, code)[0], range(4)))
        self.assertEqual(sorted(texts), ["1\n", "2\n", "3\n", "4\n"])

    def test_delete_ends_a_run(self):
        session = self.create()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            run = pool.submit(self.events, session, "touch on; sleep 60")
            t.wait_until(lambda: "on" in self.outside("ls /workspace"))
            self.delete(session)
            self.assertEqual(run.result(10)[-1]["type"], "error")
        t.wait_until(lambda: self.outside("cat /proc/[0-9]*/comm | grep -c sleep") == "0\n")

    def test_bodies_that_are_refused(self):
        session = self.create()
        for body in ({}, {"code": ""}, {"code": 1}, {"code": "true", "timeout_seconds": -1},
                     {"code": "true", "envs": []}, {"code": "true", "envs": {"A": 1}}):
            response = self.sandbox.execd("POST", f"/v1/isolated/session/{session}/run", body)
            self.assertEqual((response.status, response.json["code"]),
                             (400, "INVALID_REQUEST_BODY"), body)

    def test_idle_sessions_go_and_busy_ones_stay(self):
        idle = self.create(idle_timeout_seconds=1)
        busy = self.create(idle_timeout_seconds=1)
        state = self.sandbox.execd("GET", f"/v1/isolated/session/{idle}").json
        self.assertIn(state["idle_remaining_seconds"], (0, 1))
        self.assertEqual(self.run_in(busy, "sleep 4; echo done"), ("done\n", None))
        self.assertEqual(self.sandbox.execd("GET", f"/v1/isolated/session/{idle}").status, 404)
        self.assertEqual(self.sandbox.execd("GET", f"/v1/isolated/session/{busy}").status, 200)


if __name__ == "__main__":
    main()
