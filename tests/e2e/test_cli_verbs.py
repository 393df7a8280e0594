"""The other verbs: acquire, renew, release, ls, inspect, stats, pool, reload, version, help."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402

VERBS = ["run", "acquire", "exec", "cp", "files", "diff", "commit", "renew", "release", "ls",
         "inspect", "stats", "top", "pool", "hosts", "doctor", "config", "reload", "version",
         "help"]


class Lifecycle(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2, "max_total": 4}, "none": {"max_idle": 0}}}

    def cli(self, *args, **kwargs):
        return self.daemon.cli(*args, **kwargs)

    def json(self, *args):
        return json.loads(self.cli(*args, "--json", check=True).stdout)

    def setUp(self):
        self.daemon.wait_idle(2)

    def tearDown(self):
        for sandbox in self.daemon.sandboxes():
            if sandbox["state"] == "leased":
                self.cli("release", sandbox["id"])

    def test_acquire_renew_release(self):
        box = self.json("acquire", "--ttl", "1m", "default")
        for key in ("id", "lease", "endpoint", "token", "expires_at", "remaining_ms"):
            self.assertIn(key, box)
        self.assertLessEqual(box["remaining_ms"], 60_000)
        renewed = self.json("renew", "--ttl", "5m", box["id"])
        self.assertGreater(renewed["remaining_ms"], 200_000)
        self.assertEqual(self.json("inspect", box["id"])["state"], "leased")
        done = self.cli("release", box["id"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        wait_until(lambda: self.cli("inspect", box["id"]).returncode == 125, what="gone")

    def test_acquire_prints_a_table_or_the_id(self):
        lines = dict(line.split(maxsplit=1)
                     for line in self.cli("acquire", "default").stdout.decode().splitlines())
        self.assertEqual(sorted(lines), ["endpoint", "expires_at", "id", "lease", "pool",
                                         "remaining_ms", "token"])
        self.assertRegex(self.cli("acquire", "-q", "default").stdout.decode(), r"^[0-9a-z]{20}\n$")

    def test_the_same_lease_is_the_same_sandbox_and_has_no_token(self):
        lease = "ab" * 32
        first = self.json("acquire", "--lease", lease, "default")
        self.assertEqual(self.json("acquire", "--lease", lease, "default")["id"], first["id"])
        self.assertIsNone(first.get("token"))

    def test_an_empty_pool_says_so(self):
        done = self.cli("acquire", "--policy", "fail_fast", "none")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"POOL_EMPTY", done.stderr)

    def test_a_policy_that_is_none_is_refused(self):
        done = self.cli("acquire", "--policy", "hope", "default")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"INVALID_ARGUMENT", done.stderr)

    def test_releasing_one_that_is_gone_does_not_spare_the_others_b102(self):
        first = self.json("acquire", "default")["id"]
        done = self.cli("release", "0" * 20, first)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"NOT_FOUND", done.stderr)
        self.assertNotIn(first, [s["id"] for s in self.daemon.sandboxes()
                                 if s["state"] == "leased"])

    def test_ls_filters_and_agrees_with_the_daemon_b209(self):
        box = self.json("acquire", "default")
        listed = self.json("ls", "--pool", "default", "--state", "leased")["sandboxes"]
        self.assertEqual([s["id"] for s in listed], [box["id"]])
        self.assertEqual(self.json("ls", "--pool", "none")["sandboxes"], [])
        ids = self.cli("ls", "-q", "--state", "leased").stdout.decode().split()
        self.assertEqual(ids, [box["id"]])
        table = self.cli("ls").stdout.decode()
        self.assertIn("STATE", table)
        self.assertIn(box["id"], table)

    def test_ls_of_nothing_prints_no_id(self):
        self.assertEqual(self.cli("ls", "-q", "--pool", "none").stdout, b"")

    def test_what_can_be_no_name_is_named(self):
        for args, says in ((["run", "--pool", "a b", "true"], "'a b' is not the name of a pool"),
                           (["acquire", ""], "'' is not the name of a pool"),
                           (["pool", "show", "%41"], "'%41' is not the name of a pool"),
                           (["exec", "é", "true"], "'é' is not the id of a sandbox"),
                           (["inspect", ""], "'' is not the id of a sandbox"),
                           (["release", "a/b"], "'a/b' is not the id of a sandbox"),
                           (["hosts", "drain", "a?b"], "'a?b' is not the name of a host")):
            with self.subTest(args):
                done = self.daemon.cli(*args)
                self.assertEqual(done.returncode, 125)
                self.assertIn(says, done.stderr.decode())

    def test_stats_has_the_numbers_of_every_pool(self):
        pools = {pool["name"]: pool for pool in self.json("stats")["pools"]}
        self.assertEqual(sorted(pools), ["default", "none"])
        for key in ("idle", "leased", "creating", "killing"):
            self.assertIsInstance(pools["default"][key], int)
        self.assertRegex(self.cli("stats").stdout.decode(), r"(?m)^default +running +healthy +2 ")

    def test_without_smartcols_the_table_is_the_same_but_for_looks(self):
        with tempfile.TemporaryDirectory(prefix="sandpool-test-") as directory:
            with open(f"{directory}/libsmartcols.so.1", "wb") as file:
                file.write(b"no library")
            # The two are asked one after the other: nothing may be on its way meanwhile.
            self.daemon.wait_settled()
            plain = self.cli("stats", env={"LD_LIBRARY_PATH": directory}).stdout.decode()
        with_library = self.cli("stats").stdout.decode()
        self.assertEqual([line.split() for line in plain.splitlines()],
                         [line.split() for line in with_library.splitlines()])

    def test_pool_show_and_ls(self):
        shown = self.json("pool", "show", "default")
        # As the configuration has them.
        self.assertEqual((shown["max_idle"], shown["backend"]), (2, "sandbox"))
        self.assertEqual(self.cli("pool", "ls", "-q").stdout, b"default\nnone\n")
        self.assertEqual(self.cli("pool", "show", "nope").returncode, 125)

    def test_pool_resize_to_zero_and_back_b203(self):
        self.assertEqual(self.json("pool", "resize", "default", "--max-idle", "0")["max_idle"], 0)
        self.daemon.wait_idle(0)
        self.assertEqual(self.json("pool", "resize", "default", "--max-idle=2")["max_idle"], 2)

    def test_pool_drain_and_resume(self):
        self.cli("pool", "drain", "default", check=True)
        done = self.cli("run", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"POOL_NOT_RUNNING", done.stderr)
        self.cli("pool", "resume", "default", check=True)
        self.daemon.wait_idle(2)
        self.cli("run", "true", check=True)

    def test_pool_refuses_what_makes_no_sense(self):
        for args in (["pool"], ["pool", "resize", "default"], ["pool", "show"], ["pool", "ls", "x"],
                     ["pool", "resize", "default", "--max-idle", "-1"],
                     ["pool", "resize", "default", "--max-idle", "3x"], ["pool", "shwo", "x"]):
            with self.subTest(args):
                self.assertEqual(self.cli(*args).returncode, 125)

    def test_reload_with_a_fault_tells_it_b208(self):
        self.assertEqual(self.cli("reload").returncode, 0)

    def test_binds_reach_the_sandbox(self):
        done = self.cli("run", "--bind", "/etc/hosts:/data/hosts:ro", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"BIND_REFUSED", done.stderr)


class Secrets(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 1}}}

    def test_a_token_file_is_read_and_a_bad_one_is_named(self):
        done = self.daemon.cli("--token-file", "/nonexistent", "ls")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"'/nonexistent'", done.stderr)
        done = self.daemon.cli("ls", env={"SANDPOOL_TOKEN": "two\nlines"})
        self.assertEqual(done.returncode, 0, "the first line counts")
        done = self.daemon.cli("ls", env={"SANDPOOL_TOKEN": "sp ace"})
        self.assertEqual(done.returncode, 125)
        self.assertNotIn(b"sp ace", done.stderr)

    def test_secrets_are_never_arguments_b146(self):
        for word in ("--token", "--api-key"):
            self.assertEqual(self.daemon.cli(word, "x", "ls").returncode, 125)


class NoDaemon(t.Case):
    """Everything that needs none."""

    def cli(self, *args, env=None, input=b""):
        environment = {"PATH": "/usr/bin:/bin", "SANDPOOL_SOCKET": "/nonexistent/socket"}
        environment.update(env or {})
        return subprocess.run([str(t.BIN / "sandpool"), *args], env=environment, input=input,
                              capture_output=True, timeout=20, check=False)

    def setUp(self):
        if reason := t.needs_programs("sandpool"):
            self.skipTest(reason)

    def test_help_lists_every_verb_and_each_explains_itself(self):
        listed = self.cli("--help")
        self.assertEqual(listed.returncode, 0)
        for verb in VERBS:
            with self.subTest(verb):
                self.assertRegex(listed.stdout.decode(), rf"(?m)^  {verb} ")
                text = self.cli(verb, "--help")
                self.assertEqual((text.returncode, text.stderr), (0, b""))
                self.assertIn(b"Usage: sandpool " + verb.encode(), text.stdout)
                self.assertEqual(self.cli("help", verb).stdout, text.stdout)
                lines = text.stdout.decode().splitlines()
                self.assertLess(max(map(len, lines)), 101)
                self.assertEqual([line for line in lines if line != line.rstrip()], [])
                self.assert_explanations_in_one_column(lines[lines.index("Options of every verb:"):])

    def assert_explanations_in_one_column(self, lines):
        for line in lines[1:]:
            with self.subTest(line):
                self.assertTrue(re.match(r"  .{32} \S", line) or re.fullmatch(r"      --\S+ \S+", line))

    def test_verbs_are_those_that_there_are(self):
        done = self.cli("help", "--complete")
        names = [line.split(b"\t")[0].decode() for line in done.stdout.splitlines()]
        self.assertEqual(sorted(n for n in names if not n.startswith("-")), sorted(VERBS))

    def test_slips_are_answered_with_a_guess(self):
        for args, guess in ((["rn"], "run"), (["aquire"], "acquire"), (["lst"], "ls"),
                            (["run", "--timout", "1s", "x"], "--timeout"),
                            (["pool", "drian", "x"], "drain"), (["config", "chek"], "check"),
                            (["help", "stat"], "stats")):
            with self.subTest(args):
                done = self.cli(*args)
                self.assertEqual(done.returncode, 125)
                self.assertIn(f"did you mean '{guess}'", done.stderr.decode())

    def test_nothing_to_do_is_an_error(self):
        for args in ([], ["run"], ["acquire"], ["exec", "x"], ["ls", "x"], ["renew", "x"],
                     ["release"], ["top", "x"]):
            with self.subTest(args):
                done = self.cli(*args)
                self.assertEqual((done.returncode, done.stdout), (125, b""))
                self.assertTrue(done.stderr)

    def test_values_given_twice_are_refused_b206(self):
        for args in (["run", "--timeout", "1s", "--timeout", "1s", "true"],
                     ["--socket", "/a", "ls", "--socket", "/b"],
                     ["run", "-e", "A=1", "-e", "A=1", "true"]):
            with self.subTest(args):
                done = self.cli(*args)
                self.assertEqual(done.returncode, 125)
                self.assertRegex(done.stderr.decode(), "twice|set already")

    def test_addresses_that_are_none_are_refused(self):
        for address in ("tcp://", "tcp://host", "tcp://:1", "tcp://host:", "tcp://host:x",
                        "tcp://::1:80", "tls://host", "redis://host", "unix://", "a" * 108):
            with self.subTest(address):
                done = self.cli("ls", env={"SANDPOOL_SOCKET": address})
                self.assertEqual(done.returncode, 125)
                self.assertIn("address" if "://" in address and address != "unix://"
                              else "socket path", done.stderr.decode())

    def test_the_longest_socket_path_is_tried(self):
        done = self.cli("ls", env={"SANDPOOL_SOCKET": "/" + "a" * 106})
        self.assertIn(b"No such file", done.stderr)

    def test_what_redis_does_not_hold_is_refused_by_name(self):
        for args, env in ((["--redis", "redis://u:secret@h", "ls"], {}),
                          (["ls"], {"SANDPOOL_REDIS": "redis://u:secret@h", "SANDPOOL_SOCKET": ""})):
            done = self.cli(*args, env=env)
            self.assertEqual(done.returncode, 125)
            self.assertIn(b"only a daemon can answer this", done.stderr)
            self.assertNotIn(b"secret", done.stderr)

    def test_version_needs_no_daemon(self):
        done = self.cli("version", "--json")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("daemon", json.loads(done.stdout))

    def test_a_listener_that_is_no_daemon_is_told_apart_b219(self):
        with tempfile.TemporaryDirectory(prefix="sandpool-test-") as directory:
            path = f"{directory}/s"
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.addCleanup(server.close)
            server.bind(path)
            server.listen()

            def serve():
                while True:
                    try:
                        client, _address = server.accept()
                    except OSError:
                        return
                    client.recv(4096)
                    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                    client.close()

            threading.Thread(target=serve, daemon=True).start()
            for args in (["ls"], ["run", "true"], ["acquire", "default"]):
                done = self.cli(*args, env={"SANDPOOL_SOCKET": path})
                self.assertEqual(done.returncode, 125)
                self.assertIn(b"is this sandpoold?", done.stderr)
            server.shutdown(socket.SHUT_RDWR)

    def test_only_libc_is_loaded(self):
        needed = subprocess.run(["ldd", str(t.BIN / "sandpool")], capture_output=True, text=True,
                                check=True).stdout
        if "asan" in needed or "ubsan" in needed:
            self.skipTest("a sanitizer build loads more")
        names = {line.split()[0].split("/")[-1] for line in needed.splitlines()}
        self.assertFalse({name for name in names
                          if not name.startswith(("linux-vdso", "libc.so", "ld-linux", "libm.so"))})


class Documentation(t.Case):
    """What is written down is what is there."""

    def completion(self, *args):
        done = subprocess.run([str(t.BIN / "sandpool"), "help", "--complete", *args],
                              capture_output=True, text=True, timeout=10, check=True)
        return [line.split("\t")[0].rstrip("=") for line in done.stdout.splitlines()]

    def setUp(self):
        if reason := t.needs_programs("sandpool"):
            self.skipTest(reason)

    def test_page_and_manual_name_every_verb_and_option(self):
        page = (t.ROOT / "deploy" / "docs" / "cli.md").read_text()
        manual = (t.ROOT / "deploy" / "man" / "sandpool.1").read_text().replace("\\-", "-")
        for verb in VERBS:
            self.assertIn(f"sandpool {verb}", page)
            self.assertRegex(manual, rf"(?m)^\.(It|Ic|Ss|SS|B) .*\b{verb}\b")
            for option in self.completion(verb):
                with self.subTest(f"{verb} {option}"):
                    self.assertIn(f"`{option}", page)

    def test_the_quick_start_builds_every_program(self):
        script = (t.ROOT / "deploy" / "quickstart").read_text()
        built = re.search(r"(?m)^\tninja .*$", script)[0].split()
        programs = {path.name for path in t.BIN.iterdir() if path.name.startswith("sandpool")}
        self.assertEqual(programs - set(built), set())

    def bash(self, line):
        script = (f'source "{t.ROOT}/deploy/completion/sandpool.bash"\n'
                  'COMP_LINE="$1"; read -ra COMP_WORDS <<<"$1"\n'
                  'case $1 in *" ") COMP_WORDS+=("");; esac\n'
                  'COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n'
                  '_sandpool\nprintf "%s\\n" "${COMPREPLY[@]}"\n')
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", line], capture_output=True,
                              text=True, timeout=10, check=True,
                              env={"PATH": f"{t.BIN}:/usr/bin:/bin"})
        return [word.strip() for word in done.stdout.split("\n") if word.strip()]

    def test_bash_completes_verbs_and_options(self):
        self.assertEqual(self.bash("sandpool acq"), ["acquire"])
        self.assertEqual(self.bash("sandpool re"), ["renew", "release", "reload"])
        self.assertEqual(self.bash("sandpool run --ti"), ["--timeout"])
        self.assertIn("--bind", self.bash("sandpool run --"))
        self.assertEqual(self.bash("sandpool pool res"), ["resize", "resume"])
        self.assertEqual(self.bash("sandpool config ch"), ["check"])
        self.assertEqual(self.bash("sandpool help acq"), ["acquire"])

    def test_bash_completes_places_on_this_machine(self):
        for line in ("run --overlay /us", "run -o /us", "run --bind /us", "run --diff /us",
                     "run --check /us", "diff -o /us", "commit --check /us"):
            with self.subTest(line):
                self.assertIn("/usr", self.bash(f"sandpool {line}"))
        self.assertNotIn("/etc/passwd", self.bash("sandpool run -o /etc/passw"))
        self.assertIn("/etc/passwd", self.bash("sandpool diff -o /etc/passw"))


class Pools(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 0}, "python": {"max_idle": 0}}}

    def test_completion_knows_the_pools(self):
        script = (f'source "{t.ROOT}/deploy/completion/sandpool.bash"\n'
                  'COMP_WORDS=(sandpool run --pool "py"); COMP_CWORD=3\n'
                  '_sandpool\nprintf "%s\\n" "${COMPREPLY[@]}"\n')
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True,
                              timeout=10, check=True,
                              env={"PATH": f"{t.BIN}:/usr/bin:/bin",
                                   "SANDPOOL_SOCKET": self.daemon.socket_path})
        self.assertEqual(done.stdout.split(), ["python"])


if __name__ == "__main__":
    main()
