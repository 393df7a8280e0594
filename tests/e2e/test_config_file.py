"""The configuration as an operator meets it: check, dump, units, typos, dangerous words."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Case, main  # noqa: E402


class Config(Case):
    def setUp(self):
        reason = t.needs_programs("sandpool")
        if reason:
            self.skipTest(reason)
        directory = tempfile.TemporaryDirectory(prefix="sandpool-config-")
        self.addCleanup(directory.cleanup)
        self.path = f"{directory.name}/sandpool.json"

    def write(self, text, path=None):
        with open(path or self.path, "w", encoding="utf-8") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))

    def sandpool(self, *args):
        return subprocess.run([str(t.BIN / "sandpool"), "config", *args], capture_output=True,
                              text=True, timeout=20, check=False)

    def check(self, text):
        self.write(text)
        return self.sandpool("check", self.path)

    def dump(self, text):
        self.write(text)
        result = self.sandpool("dump", self.path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_good_file_with_comments(self):
        result = self.check('// top\n{ /* inner */ "pools": { "default": { "max_idle": 1 } } }\n')
        self.assertEqual(result.returncode, 0, result)

    def test_all_faults_at_once_with_lines_and_a_suggestion_b204(self):
        result = self.check("""{
  "stroe": "memory",
  "pools": {
    "default": {
      "max_idel": 1,
      "network": "brigde",
      "idle_timeout": "10 minutes"
    }
  }
}
""")
        self.assertNotEqual(result.returncode, 0)
        output = result.stdout + result.stderr
        for line, words in ((2, ("stroe", "store")), (5, ("max_idel", "max_idle")),
                            (6, ("brigde",)), (7, ("idle_timeout",))):
            for word in words:
                self.assertIn(word, output)
            self.assertIn(f":{line}:", output)

    def test_explicit_zero_and_false_are_kept_b203(self):
        dump = self.dump({"exec_enabled": False, "pools": {"default": {
            "max_idle": 0, "acquire_min_remaining_ttl": 0}}})
        self.assertIs(dump["exec_enabled"], False)
        self.assertEqual(dump["pools"]["default"]["max_idle"], 0)

    def test_units_b205(self):
        for text, good in (("64MiB", True), ("1GiB", True), ("64M", False), ("64", False),
                           ("6 4MiB", False), ("1e3", False), ("-1MiB", False), ("12x", False)):
            with self.subTest(text=text):
                result = self.check({"pools": {"default": {"limits": {"memory": text}}}})
                self.assertEqual(result.returncode == 0, good, result)
        for text, good in (("10m", True), ("1h30m", True), ("500ms", True), ("10", False),
                           ("10 m", False), ("", False), ("-5s", False), ("99999999999h", False)):
            with self.subTest(text=text):
                result = self.check({"pools": {"default": {"max_lease": text}}})
                self.assertEqual(result.returncode == 0, good, result)

    def test_dump_is_a_fixed_point(self):
        first = self.dump({"pools": {"default": {"max_idle": 3, "idle_timeout": "90s"}}})
        second = self.dump(first)
        self.assertEqual(first, second)

    def test_minimum_must_be_below_the_idle_timeout(self):
        result = self.check({"pools": {"default": {"idle_timeout": "10s",
                                                   "acquire_min_remaining_ttl": "10s"}}})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("acquire_min_remaining_ttl", result.stdout + result.stderr)

    def test_dangerous_choices_need_their_switch(self):
        for config, word in (
                ({"pools": {"default": {"network": "host"}}}, "allow_host_network"),
                ({"pools": {"default": {"backend": "direct", "direct_user": "daemon"}}},
                 "allow_direct"),
                ({"allow_direct": True, "pools": {"default": {"backend": "direct"}}}, "direct_user"),
                ({"allow_direct": True, "pools": {"default": {"backend": "direct",
                                                              "direct_user": "root"}}}, "root"),
                ({"pools": {"default": {"backend": "dierct"}}}, "dierct"),
                ({"listen": ["tcp://0.0.0.0:8080"]}, "insecure")):
            with self.subTest(config=config):
                result = self.check(config)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(word, result.stdout + result.stderr)

    def test_repeated_key_is_an_error_b206(self):
        result = self.check('{"store": "memory", "store": "memory", "pools": {"default": {}}}')
        self.assertNotEqual(result.returncode, 0)

    def test_drop_ins_merge_in_order(self):
        os.mkdir(self.path + ".d")
        self.write({"pools": {"default": {"max_idle": 1, "max_total": 9}}})
        self.write({"pools": {"default": {"max_idle": 2}}}, self.path + ".d/10-a.json")
        self.write({"pools": {"default": {"max_idle": 3}}}, self.path + ".d/20-b.json")
        result = self.sandpool("dump", self.path)
        pool = json.loads(result.stdout)["pools"]["default"]
        self.assertEqual((pool["max_idle"], pool["max_total"]), (3, 9))

    def test_missing_file_names_it(self):
        result = self.sandpool("check", "/nonexistent/sandpool.json")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("/nonexistent/sandpool.json", result.stderr + result.stdout)

    def test_exec_can_be_switched_off_for_all(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        with t.Daemon({"exec_enabled": False}) as daemon:
            with self.assertRaises(t.ApiError) as caught:
                daemon.run("/bin/true")
            self.assertEqual(caught.exception.code, "EXEC_DISABLED")
            with daemon.acquire() as box, self.assertRaises(t.ApiError) as caught:
                box.run("/bin/true")
            self.assertEqual(caught.exception.code, "EXEC_DISABLED")


if __name__ == "__main__":
    main()
