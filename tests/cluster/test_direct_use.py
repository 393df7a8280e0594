"""The examples of redis/README.md, section "Direct use", run as they are printed there.

What they print is compared with the block below each, names and numbers aside. Python's example runs
with the package `redis` where it is installed, else with a stand-in over our own small client that
has the same calls; JavaScript's with the node and the ioredis that tests/lib/npm.py installs.

`test_direct_use.py --print LANGUAGE` shows what an example prints now, for the README.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import npm  # noqa: E402
import sandpool_test as t  # noqa: E402
from redis_client import Server  # noqa: E402
from sandpool_test import Case, Daemon, main, merge, needs_programs, needs_root  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "redis" / "README.md"
API_KEY = "sesame-open-0123456789abcdef"
TIMEOUT_S = 60

# The calls of the example, with the signatures that the package has.
STAND_IN = f'''
import sys
sys.path.insert(0, {str(ROOT / "tests" / "lib")!r})
import redis_client


class Redis:
    def __init__(self, unix_socket_path, decode_responses):
        assert decode_responses
        self.link = redis_client.Redis(path=unix_socket_path)

    def fcall(self, function, numkeys, *keys_and_args):
        return self.link.call("FCALL", function, numkeys, *keys_and_args)

    def blpop(self, keys, timeout=0):
        return self.link.call("BLPOP", keys, timeout)

    def time(self):
        return tuple(int(word) for word in self.link.call("TIME"))
'''


def examples():
    """language → (code, transcript), in the order of the README."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index("\n## Direct use\n"):]
    found = re.findall(r"^```(sh|python|javascript)\n(.*?)^```\n+^```text\n(.*?)^```$", section,
                       re.M | re.S)
    return {language: (code, transcript) for language, code, transcript in found}


def normalised(text):
    """Names and numbers of one run give way to what they are."""
    for pattern, name in ((r"\b[0-9a-f]{64}\b", "<lease or secret>"),
                          (r"\b[0-9a-hjkmnp-tv-z]{20}\b", "<sandbox>"),
                          (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>"),
                          (r"127\.0\.0\.1:\d+", "<address>"), (r"\b\d{4,}\b", "<number>")):
        text = re.sub(pattern, name, text)
    return text


def free_port():
    import socket  # pylint: disable=import-outside-toplevel
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def has_python_redis():
    # Elsewhere: here, `redis` is a folder of ours.
    return subprocess.run([t.PYTHON, "-c", "import redis; redis.Redis.fcall"], cwd="/",
                          capture_output=True, check=False).returncode == 0


def interpreter(language):
    """(words, environment)."""
    if language == "javascript":
        installed = npm.install()
        return [installed.node], {"NODE_PATH": installed.modules}
    return {"sh": ["/bin/sh", "-eu"], "python": [t.PYTHON]}[language], {}


class Stage:
    """A Redis and a daemon that clients reach by TCP."""

    def __enter__(self):
        self.server = Server("--unixsocketperm", "777").__enter__()
        os.chmod(self.server.directory, 0o755)
        self.directory = tempfile.mkdtemp(prefix="sandpool-test-")
        self.daemon = Daemon({"store": f"unix://{self.server.path}", "host": "node-1",
                              "pools": {"default": {"max_idle": 3}}})
        keys = f"{self.daemon.directory}/keys"
        with open(keys, "w", encoding="ascii") as file:
            file.write(API_KEY + "\n")
        os.chmod(keys, 0o600)
        self.daemon.write_config({
            "listen": self.daemon.config["listen"] + [f"tcp://127.0.0.1:{free_port()}"],
            "api_keys_file": keys})
        try:
            self.daemon.__enter__()
        except BaseException:
            self.server.__exit__()
            raise
        return self

    def __exit__(self, *args):
        shutil.rmtree(self.directory)
        try:
            self.daemon.__exit__(*args)
        finally:
            self.server.__exit__()

    def run(self, language, code):
        with self.server.connect() as redis:
            def listed():
                reply = redis.fcall("stats", "sandpool:{default}:meta")
                return reply[0] == "OK" and reply[reply.index("idle") + 1] > 0
            t.wait_until(listed, 20, "something is listed")
        program, env = interpreter(language)
        env = merge(dict(os.environ), {"REDIS": self.server.path, "LC_ALL": "C.UTF-8", **env})
        path = f"{self.directory}/example"
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
        if language == "python" and not has_python_redis():
            with open(f"{self.directory}/redis.py", "w", encoding="utf-8") as file:
                file.write(STAND_IN)
        return subprocess.run(program + [path], env=env, cwd=self.directory, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False)


class DirectUse(Case):
    @classmethod
    def setUpClass(cls):
        reason = (needs_root() or needs_programs() or
                  (None if shutil.which("redis-server") else "redis-server is not installed"))
        if reason:
            raise unittest.SkipTest(reason)
        cls.stage = Stage().__enter__()
        cls.addClassCleanup(cls.stage.__exit__, None, None, None)

    def check(self, language):
        code, transcript = examples()[language]
        done = self.stage.run(language, code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(normalised(done.stdout), normalised(transcript))
        # Whatever it took it gave back.
        t.wait_until(lambda: not [box for box in self.stage.daemon.sandboxes()
                                  if box["state"] == "leased"], 10, "nothing is leased")

    def test_all_languages_are_there(self):
        self.assertEqual(sorted(examples()), ["javascript", "python", "sh"])

    @unittest.skipUnless(shutil.which("curl") and shutil.which("redis-cli"),
                         "curl or redis-cli is not installed")
    def test_the_shell_example_does_what_it_shows(self):
        self.check("sh")

    def test_the_python_example_does_what_it_shows(self):
        self.check("python")

    def test_the_javascript_example_does_what_it_shows(self):
        self.check("javascript")

    def test_the_python_example_waits_for_its_turn(self):
        code = examples()["python"][0].replace("box = acquire()", "import threading, time\n"
                                               "boxes = [acquire() for _ in range(3)]\n"
                                               "threading.Timer(1, lambda: redis.Redis("
                                               "unix_socket_path=os.environ['REDIS'], "
                                               "decode_responses=True).fcall('sandpool_v1_release', "
                                               "1, KEY, boxes[0]['lease'])).start()\n"
                                               "box = acquire()\n"
                                               "[function('release', b['lease']) for b in boxes]")
        done = self.stage.run("python", code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("42\n", done.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--print"]:
        with Stage() as shown:
            result = shown.run(sys.argv[2], examples()[sys.argv[2]][0])
            print(result.stdout, end="")
            sys.exit(f"{result.stderr}exit {result.returncode}" if result.returncode else 0)
    main()
