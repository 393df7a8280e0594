"""sandpool doctor and config: what a host lacks is named, with the remedy, and nothing is changed."""

import json
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main  # noqa: E402

NAMES = ["configuration", "kernel", "system calls", "seccomp", "libseccomp", "core_pattern",
         "namespace limits", "user namespaces", "id-mapped mounts", "new namespaces", "fresh /proc",
         "memory limit", "pids limit", "cpu limit", "cgroup v2", "swap", "privilege", "open files",
         "pid_max", "daemon"]


class Case(t.Case):
    def setUp(self):
        if reason := t.needs_programs("sandpool"):
            self.skipTest(reason)
        directory = tempfile.TemporaryDirectory(prefix="sandpool-test-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        os.chmod(self.directory, 0o755)

    def write(self, name="sandpool.json", **config):
        path = f"{self.directory}/{name}"
        base = t.base_config(self.directory, "doctor-test")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(t.merge(base, config), file, indent=1)
        return path

    def cli(self, *args, prefix=(), **kwargs):
        return subprocess.run([*prefix, str(t.BIN / "sandpool"), *args],
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                                   "SANDPOOL_SOCKET": f"{self.directory}/none"},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=30,
                              check=False, **kwargs)

    def doctor(self, *args, **kwargs):
        """{name: [check, …]} and the exit status."""
        done = self.cli("doctor", "--json", *args, **kwargs)
        self.assertEqual(done.stderr, b"")
        report = json.loads(done.stdout)
        checks = {}
        for check in report["checks"]:
            checks.setdefault(check["name"], []).append(check)
        failed = sum(check["verdict"] == "fail" for check in report["checks"])
        self.assertEqual((report["failed"], done.returncode), (failed, 1 if failed else 0), report)
        return checks

    def assertVerdict(self, checks, name, verdict, says=None, fix=None):
        check = checks[name][0]
        self.assertEqual(check["verdict"], verdict, check)
        if says:
            self.assertIn(says, check["detail"])
        if fix:
            self.assertIn(fix, check["fix"])


class Doctor(Case):
    def test_every_requirement_has_a_line_b216(self):
        checks = self.doctor()
        self.assertEqual([name for name in NAMES if name not in checks], [])

    def test_text_is_one_line_each_and_a_sum(self):
        lines = self.cli("doctor").stdout.decode().splitlines()
        for line in lines[:-1]:
            self.assertRegex(line, r"^(pass|warn|fail)  \S")
        self.assertRegex(lines[-1], r"^\d+ passed, \d+ warnings, \d+ failed$")

    def test_whatever_does_not_pass_has_a_fix_or_says_why_it_was_not_checked(self):
        for checks in self.doctor().values():
            for check in checks:
                if check["verdict"] != "pass":
                    self.assertTrue(check.get("fix") or "not checked" in check["detail"], check)

    def test_it_changes_nothing(self):
        before = (t.shared_state()["mounts"], self.probes())
        self.doctor()
        self.assertEqual((t.shared_state()["mounts"], self.probes()), before)

    def probes(self):
        return [top for top, _directories, _files in os.walk("/sys/fs/cgroup")
                if "sandpool-doctor" in top]

    def test_no_daemon_is_a_warning(self):
        self.assertVerdict(self.doctor(), "daemon", "warn", "cannot connect")

    def test_a_named_configuration_that_is_missing_is_a_failure(self):
        self.assertVerdict(self.doctor("--config", "/nonexistent.json"), "configuration", "fail",
                           "/nonexistent.json")

    def test_a_faulty_configuration_is_a_failure(self):
        path = self.write(colour="red")
        self.assertVerdict(self.doctor("--config", path), "configuration", "fail", "1 fault",
                           f"sandpool config check {path}")

    def test_a_uid_range_with_an_account_in_it_is_a_failure(self):
        path = self.write(uid_base=65536)
        user = next((line.split(":") for line in t.read_text("/etc/passwd").splitlines()
                     if 65536 <= int(line.split(":")[2]) < 65536 + 65536), None)
        checks = self.doctor("--config", path)
        if user:
            self.assertVerdict(checks, "uid range", "fail", user[0])
        else:
            self.assertIn("uid range", checks)

    def test_few_open_files_are_a_failure(self):
        path = self.write(pools={"default": {"max_idle": 100}})

        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))

        checks = self.doctor("--config", path, preexec_fn=lower)
        self.assertVerdict(checks, "open files", "fail", "hard limit 500", "LimitNOFILE")

    def test_a_state_dir_that_may_run_programs_is_a_warning(self):
        self.assertVerdict(self.doctor("--config", self.write()), "state dir", "warn", "noexec")

    def test_as_an_ordinary_user_it_says_what_it_saw(self):
        if reason := t.needs_root():
            self.skipTest(reason)
        checks = self.doctor(user=65534, group=65534, extra_groups=[])
        self.assertVerdict(checks, "privilege", "warn", "uid 65534")
        self.assertVerdict(checks, "id-mapped mounts", "warn", "not checked")
        self.assertEqual(checks["memory limit"][0]["verdict"], "fail")
        self.assertTrue(checks["memory limit"][0]["fix"])

    def test_no_user_namespaces_is_a_failure_that_names_the_sysctl_b232(self):
        script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
        checks = self.doctor(prefix=["unshare", "-Ur", "sh", "-c", script, "sh"])
        self.assertVerdict(checks, "namespace limits", "fail", "user.max_user_namespaces is 0",
                           "sysctl -w user.max_user_namespaces=")
        self.assertVerdict(checks, "new namespaces", "fail", None, "user.max_")

    def test_a_masked_proc_is_a_failure_that_names_the_option_b225(self):
        if reason := t.needs_root():
            self.skipTest(reason)
        script = 'mount --bind /dev/null /proc/cmdline && exec "$@"'
        checks = self.doctor(prefix=["unshare", "-m", "sh", "-c", script, "sh"])
        self.assertVerdict(checks, "fresh /proc", "fail", "covered", "systempaths=unconfined")

    def test_read_only_cgroups_are_a_failure_with_advice_b228(self):
        if reason := t.needs_root():
            self.skipTest(reason)
        script = ('for m in $(awk \'$3 ~ /^cgroup/ {print $2}\' /proc/mounts); do '
                  'mount -o remount,bind,ro "$m" || exit 9; done; exec "$@"')
        checks = self.doctor(prefix=["unshare", "-m", "sh", "-c", script, "sh"])
        self.assertVerdict(checks, "memory limit", "fail", "Read-only", "read-write")
        self.assertVerdict(checks, "cgroup v2", "warn")


class Config(Case):
    def test_a_good_file_is_good(self):
        done = self.cli("config", "check", self.write())
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"good, 1 pool", done.stdout)

    def test_every_fault_is_a_line_and_the_status_is_1_b204(self):
        path = self.write(colour="red", pools={"default": {"max_idel": 3}})
        done = self.cli("config", "check", path)
        self.assertEqual(done.returncode, 1)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(len(lines), 2, lines)
        for line in lines:
            self.assertRegex(line, rf"^{path}:\d+: ")
        self.assertIn("max_idle", "".join(lines))

    def test_faults_as_json(self):
        path = self.write(colour="red")
        done = self.cli("config", "check", path, "--json")
        faults = json.loads(done.stdout)
        self.assertEqual((done.returncode, len(faults["faults"]), faults["more"]), (1, 1, False))
        self.assertEqual(faults["faults"][0]["file"], path)
        self.assertGreater(faults["faults"][0]["line"], 0)

    def test_dump_is_json_with_the_defaults_and_can_be_checked_again(self):
        done = self.cli("config", "dump", self.write())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["pools"]["default"]["max_idle"], 2)
        path = f"{self.directory}/again.json"
        with open(path, "wb") as file:
            file.write(done.stdout)
        self.assertEqual(self.cli("config", "check", path).returncode, 0)

    def test_a_file_that_is_missing_is_said(self):
        done = self.cli("config", "check", "/nonexistent")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"/nonexistent", done.stdout + done.stderr)

    def test_reference_names_the_keys(self):
        done = self.cli("config", "reference")
        self.assertEqual(done.returncode, 0)
        for key in (b"max_idle", b"allowed_binds", b"uid_base"):
            self.assertIn(key, done.stdout)


class WithDaemon(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 1}}}

    def test_a_healthy_daemon_passes(self):
        self.daemon.wait_idle(1)
        report = json.loads(self.daemon.cli("doctor", "--json").stdout)
        verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
        for name in ("daemon", "daemon version", "daemon ready", "pools", "limits in force"):
            self.assertEqual(verdicts[name], "pass", report)


if __name__ == "__main__":
    main()
