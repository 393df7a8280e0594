"""Runs a suite of the published JavaScript SDK against a daemon of its own.

A suite is a .mjs file (harness.mjs says how it looks); each of its tests becomes a test of the
Python file beside it, which is nothing but:

    from sdk_case import main, suite_case

    Lifecycle = suite_case("lifecycle.mjs", {"pools": {"default": {"max_idle": 4}}})

    if __name__ == "__main__":
        main()

tests/lib/npm.py installs the SDK, and says why not where the tests are skipped.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

import npm  # noqa: E402
import sandpool_test as t  # noqa: E402
from sandpool_test import main  # noqa: E402, F401

HERE = pathlib.Path(__file__).resolve().parent
IMAGE = "python:3.11"
KEY = "sdk-tests-0123456789abcdef"
SUITE_TIMEOUT_S = 300


def sdk_config(directory, port, config):
    """A pool as the SDK's defaults want it (cpu 1, memory 2Gi), one address with a key."""
    base = {
        "listen": [f"unix://{directory}/run/sandpool.sock", f"tcp://127.0.0.1:{port}"],
        "api_keys_file": f"{directory}/keys",
        "pools": {"default": {
            "max_idle": 3, "max_lease": "1h", "images": ["python:*", "opensandbox/*"],
            "limits": {"memory": "2GiB", "pids": 256, "cpu": 1, "tmp": "256MiB"}}},
    }
    return t.merge(base, config)


class SdkCase(unittest.TestCase):
    """One node process for the whole suite; its tests only look up what came of them."""

    suite = None
    config = {}

    @classmethod
    def setUpClass(cls):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            raise unittest.SkipTest(reason)
        cls.npm = npm.install()
        cls.daemon = t.Daemon()
        port = t.free_port()
        keys = pathlib.Path(cls.daemon.directory) / "keys"
        keys.write_text(KEY + "\n", encoding="utf-8")
        keys.chmod(0o600)
        cls.daemon.write_config(sdk_config(cls.daemon.directory, port, cls.config))
        cls.daemon.__enter__()
        try:
            cls.daemon.wait_settled()
            cls.run_suite(port)
        except BaseException:
            cls.daemon.__exit__(*sys.exc_info())
            raise

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    @classmethod
    def run_suite(cls, port):
        environment = dict(os.environ, SANDPOOL_DOMAIN=f"127.0.0.1:{port}", SANDPOOL_API_KEY=KEY,
                           SANDPOOL_IMAGE=IMAGE)
        with tempfile.TemporaryDirectory(prefix="sandpool-sdk-") as directory:
            os.symlink(cls.npm.modules, f"{directory}/node_modules")
            for file in HERE.glob("*.mjs"):
                shutil.copy(file, directory)
            process = subprocess.run(
                [cls.npm.node, f"{directory}/{cls.suite}"], env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=SUITE_TIMEOUT_S * t.SLOW_FACTOR, check=False)
        cls.stderr = process.stderr.decode(errors="replace")
        lines = [json.loads(line) for line in process.stdout.decode().splitlines()
                 if line.startswith("{")]
        cls.over = any(line.get("end") for line in lines)
        cls.results = {line["name"]: line for line in lines if "name" in line}

    def check(self, name):
        result = self.results.get(name)
        if not result:
            self.fail(f"no result; the suite {'ended' if self.over else 'broke off'}\n"
                      f"{self.stderr}\n{self.daemon.log()[-2000:]}")
        if not result["ok"]:
            self.fail(f"{result['error']}\n{self.stderr[-1000:]}\n{self.daemon.log()[-2000:]}")


def suite_case(suite, config=None):
    """A TestCase with a test for each `test("A-… …")` of the suite."""
    text = (HERE / suite).read_text(encoding="utf-8")
    names = re.findall(r'^test\("((?:[^"\\]|\\.)+)"', text, re.MULTILINE)
    assert names and len(set(names)) == len(names), f"{suite}: no tests, or two of one name"
    methods = {"suite": suite, "config": config or {}}
    for name in names:
        identifier = "test_" + re.sub(r"\W+", "_", name).strip("_")

        def method(self, name=name):
            self.check(name)
        method.__doc__ = name
        methods[identifier] = method
    # Where it is defined, not here: unittest looks there for its tests.
    methods["__module__"] = sys._getframe(1).f_globals["__name__"]
    return type(pathlib.Path(suite).stem.title(), (SdkCase,), methods)
