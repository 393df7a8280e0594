"""Overlays of host directories: E-10 (the base sees nothing), E-11 (commit), E-12 (the check)."""

import fcntl
import io
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import Daemon, RootlessDaemon, SandpoolCase, main, wait_until  # noqa: E402

OWNER = 4321
OVERLAYS_MAX = 8
CHANGES_MAX = 100_000
MIB = 1 << 20


def snapshot(top):
    """Everything below `top`, as (path, type and mode, owner, content or link)."""
    found = []
    for directory, subdirectories, files in os.walk(top):
        for name in sorted(subdirectories) + sorted(files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found.append((os.path.relpath(path, top), status.st_mode, status.st_uid,
                          status.st_gid, content))
    return sorted(found)


class OverlayCase(t.HostDirectory, SandpoolCase):
    config = {"pools": {"default": {"max_idle": 3}}}

    @classmethod
    def fill_top(cls):
        for name in ("work", "only", "roots"):
            os.mkdir(f"{cls.top}/{name}")
        cls.prepare()
        return [f"{cls.top}/work", {"path": f"{cls.top}/only", "read_only": True},
                f"{cls.top}/roots"]

    @classmethod
    def prepare(cls):
        """What must be there before the daemon is; clean() is its end."""

    def setUp(self):
        self.base = self.make_base()

    def make_base(self, top="work", owner=OWNER):
        """A directory of its own for each test: what was changed long ago is no change."""
        base = tempfile.mkdtemp(prefix="base-", dir=f"{self.top}/{top}")
        os.makedirs(f"{base}/kept/below")
        os.mkdir(f"{base}/gone")
        for name in ("file", "kept/below/deep", "gone/x"):
            with open(f"{base}/{name}", "w", encoding="ascii") as file:
                file.write(f"{name}\n")
        os.symlink("file", f"{base}/link")
        for directory, subdirectories, files in os.walk(base):
            for path in [directory] + [f"{directory}/{n}" for n in subdirectories + files]:
                os.chown(path, owner, owner, follow_symlinks=False)
        os.chmod(base, 0o750)
        return base

    def acquire(self, *binds, **more):
        box = self.daemon.acquire(policy="wait", wait="20s", binds=list(binds), **more)
        self.addCleanup(box.__exit__, None, None, None)
        return box

    def overlay(self, base=None, target="/workspace", **more):
        return {"source": base or self.base, "target": target, "mode": "overlay", **more}

    def overlays(self, box):
        return self.daemon.call("GET", f"/v1/sandboxes/{box.id}/overlays",
                                headers=box.headers())["overlays"]

    def diff(self, box, number=1):
        response = self.daemon.request("GET", f"/v1/sandboxes/{box.id}/overlays/{number}/diff",
                                       headers=box.headers())
        self.assertEqual(response.status, 200, response.body)
        self.assertEqual(response.headers["Content-Type"], "application/gzip")
        return tarfile.open(fileobj=io.BytesIO(response.body), mode="r:gz")

    def commit(self, box, number=1):
        return self.daemon.call("POST", f"/v1/sandboxes/{box.id}/overlays/{number}/commit",
                                headers=box.headers(), timeout=300)

    def text(self, name, base=None):
        with open(f"{base or self.base}/{name}", encoding="ascii") as file:
            return file.read()


class Frozen(OverlayCase):
    """E-10."""

    def test_the_base_sees_nothing(self):
        before = snapshot(self.base)
        box = self.acquire(self.overlay())
        self.assertExited(box.shell(
            "cd /workspace && cat kept/below/deep && echo more >> file && rm -r gone && mkdir gone"
            " && echo new > gone/new && ln -sf /etc link && mkdir -p a/b && chmod 711 kept"))
        self.assertEqual(box.shell("cat /workspace/file /workspace/gone/new; ls /workspace").text,
                         "file\nmore\nnew\na\nfile\ngone\nkept\nlink")
        self.assertEqual(snapshot(self.base), before)
        box.release()
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 10, "it is released")
        self.assertEqual(snapshot(self.base), before)

    def test_the_workload_cannot_reach_the_base_or_the_upper(self):
        box = self.acquire(self.overlay())
        outcome = box.python("""
import os
for top in ('/.init', '/.init/overlay', '/.init/overlay/1', '/.init/overlay/1/lower'):
    try:
        print(top, os.listdir(top))
    except OSError as error:
        print(type(error).__name__)
""")
        self.assertEqual(outcome.text.split(), ["PermissionError"] * 4)
        lines = box.shell("grep ' /workspace ' /proc/self/mountinfo").text
        self.assertIn("- overlay", lines.splitlines()[-1])

    def test_it_is_in_no_mount_table_of_the_host(self):
        before = t.mountinfo()
        box = self.acquire(self.overlay())
        self.assertExited(box.shell("echo x > /workspace/new"))
        self.assertEqual([line for line in t.mountinfo() if line not in before], [])
        for pid in self.daemon.process.pid, self.daemon.launcher_pid:
            self.assertNotIn(self.base, t.read_text(f"/proc/{pid}/mountinfo"))

    def test_ids_are_the_workloads(self):
        box = self.acquire(self.overlay())
        self.assertEqual(box.shell("stat -c '%u:%g %a' /workspace /workspace/file;"
                                   "touch /workspace/new; stat -c %u:%g /workspace/new").text,
                         "1000:1000 750\n1000:1000 644\n1000:1000")

    def test_listed(self):
        other = self.make_base()
        box = self.acquire(self.overlay(size="1MiB"), self.overlay(other, "/data"))
        self.assertEqual(self.daemon.call("GET", f"/v1/sandboxes/{self.acquire().id}/overlays"),
                         {"overlays": []})
        first, second = self.overlays(box)
        self.assertEqual((first["number"], first["source"], first["target"], first["size_bytes"],
                          first["state"], first["read_only"]),
                         (1, self.base, "/workspace", MIB, "clean", False))
        self.assertEqual((second["number"], second["source"], second["target"],
                          second["size_bytes"]), (2, other, "/data", 64 * MIB))
        self.assertExited(box.shell("head -c 500000 /dev/zero > /workspace/zeros"))
        used = [one["used_bytes"] for one in self.overlays(box)]
        self.assertGreaterEqual(used[0], 500000)
        self.assertLess(used[1], 500000)

    def test_what_is_written_is_in_the_metrics(self):
        def held():
            return self.daemon.metric_sum("sandpool_upper_bytes")
        box, other = self.acquire(self.overlay()), self.acquire(self.overlay())
        self.assertExited(box.shell("head -c 8388608 /dev/zero > /workspace/zeros;"
                                    "head -c 9000000 /dev/zero > /tmp/not-an-overlay"))
        self.assertExited(other.shell("head -c 4194304 /dev/zero > /workspace/zeros"))
        wait_until(lambda: held() >= 12 * MIB, 60, "12 MiB are seen")
        self.assertLess(held(), 14 * MIB)
        self.assertEqual(self.commit(box)["files"], 1)
        wait_until(lambda: held() < 6 * MIB, 60, "what is committed is no more in memory")
        self.assertGreaterEqual(held(), 4 * MIB)
        other.release()
        box.release()
        wait_until(lambda: held() == 0, 60, "nothing is left")

    def test_upper_full_is_an_error_of_the_writer_alone(self):
        other = self.make_base()
        box = self.acquire(self.overlay(size=MIB), self.overlay(other, "/data"))
        neighbour = self.acquire(self.overlay(other, "/data"))
        outcome = box.shell("head -c 2000000 /dev/zero 2>&1 > /workspace/zeros; echo $?;"
                            "head -c 2000000 /dev/zero > /data/zeros; echo $?")
        self.assertIn("No space left on device", outcome.text)
        self.assertEqual(outcome.text.split()[-1], "0")
        self.assertExited(neighbour.shell("head -c 2000000 /dev/zero > /data/zeros"))
        self.assertExited(box.shell("rm /workspace/zeros && echo fits > /workspace/small"))

    def test_size_at_its_limit(self):
        self.acquire(self.overlay(size=64 * MIB))
        for size in (64 * MIB + 1, "65MiB"):
            with self.refused("INVALID_ARGUMENT", 400):
                self.acquire(self.overlay(size=size))
        for bad in (0, -1, "much", True, {}):
            with self.subTest(size=bad), self.refused("INVALID_ARGUMENT", 400):
                self.acquire(self.overlay(size=bad))
        for mode in ("rw", "ro"):
            with self.refused("INVALID_ARGUMENT", 400):
                self.acquire({"source": self.base, "target": "/mnt", "mode": mode, "size": 4096})

    def test_as_many_as_are_allowed(self):
        binds = [self.overlay(target=f"/mnt/{i}", size=MIB) for i in range(OVERLAYS_MAX + 1)]
        box = self.acquire(*binds[:OVERLAYS_MAX])
        self.assertEqual(box.shell("cat /mnt/*/file; for i in /mnt/*; do echo $i > $i/own; done;"
                                   "cat /mnt/7/own").text.split(),
                         ["file"] * OVERLAYS_MAX + ["/mnt/7"])
        self.assertEqual(len(self.overlays(box)), OVERLAYS_MAX)
        with self.refused("INVALID_ARGUMENT", 400):
            self.acquire(*binds)

    def test_run_takes_one(self):
        before = snapshot(self.base)
        outcome = self.daemon.run(shell="rm -r /workspace/* && ls -A /workspace",
                                  binds=[self.overlay()])
        self.assertEqual((outcome.exit_code, outcome.text), (0, ""))
        self.assertEqual(snapshot(self.base), before)

    def test_set_id_files_do_not_work(self):
        shutil.copy("/usr/bin/id", f"{self.base}/id")
        os.chown(f"{self.base}/id", OWNER, OWNER)
        os.chmod(f"{self.base}/id", 0o6755)
        box = self.acquire(self.overlay())
        self.assertEqual(box.shell("/workspace/id -u; grep ' /workspace ' /proc/self/mountinfo |"
                                   " tail -n 1 | grep -c nosuid").text.split(), ["1000", "1"])


class Refusals(OverlayCase):
    def test_not_allowed(self):
        before = self.daemon.metric_sum("sandpool_ends_total")
        for source in ("/etc", f"{self.top}", f"{self.base}/../../only", f"{self.base}/link"):
            with self.subTest(source=source), self.refused("BIND_REFUSED", 403):
                self.acquire(self.overlay(source))
        self.assertGreaterEqual(self.daemon.metric_sum("sandpool_ends_total"), before)

    def test_a_file_is_no_base(self):
        with self.refused("BIND_REFUSED", 403):
            self.acquire(self.overlay(f"{self.base}/file", "/workspace/file"))

    def test_roots_directory_is_refused(self):
        with self.refused("BIND_REFUSED", 403) as caught:
            self.acquire(self.overlay(self.make_base("roots", 0)))
        self.assertIn("belongs to root", str(caught.exception))

    def test_targets(self):
        for target in ("/", "/proc", "/etc", "/dev/shm", "/.init", "/.init/overlay/1", "/sys"):
            with self.subTest(target=target), self.refused("NO_MOUNT_POINT", 422):
                self.acquire(self.overlay(target=target))
        for target in ("/usr",):  # nothing of the pool is mounted below it
            box = self.acquire(self.overlay(target=target))
            self.assertEqual(self.overlays(box)[0]["target"], target)

    def test_a_target_that_covers_another_bind(self):
        other = self.make_base()
        for one, two in (("/data", "/data"), ("/data", "/data/sub"), ("/data/sub", "/data")):
            for mode in ("overlay", "ro"):
                with self.subTest(one=one, two=two, mode=mode), \
                        self.refused("INVALID_ARGUMENT", 400):
                    self.acquire(self.overlay(target=one),
                                 {"source": other, "target": two, "mode": mode})
        self.acquire(self.overlay(target="/data"), self.overlay(other, "/data2"))

    def test_a_fuse_or_network_file_system_is_named(self):
        if not os.path.exists("/dev/fuse"):
            self.skipTest("no /dev/fuse here")
        point = f"{self.top}/work/fuse"
        os.mkdir(point)
        self.addCleanup(os.rmdir, point)
        fuse = os.open("/dev/fuse", os.O_RDWR)
        self.addCleanup(os.close, fuse)
        done = subprocess.run(
            ["python3", "-c", "import ctypes, sys\n"
             "libc = ctypes.CDLL(None, use_errno=True)\n"
             "sys.exit(libc.mount(b'x', sys.argv[1].encode(), b'fuse', 0, sys.argv[2].encode()))",
             point, f"fd={fuse},rootmode=40000,user_id=0,group_id=0"], pass_fds=(fuse,), check=False)
        if done.returncode != 0:
            self.skipTest("no fuse in this kernel")
        self.addCleanup(subprocess.run, ["umount", "-l", point], check=True)
        # Nobody answers on it, so even a stat hangs: whatever is said is said in time.
        with self.assertRaises(t.ApiError) as caught:
            self.acquire(self.overlay(point))
        self.assertIn(caught.exception.code, ("UNSUPPORTED", "UNAVAILABLE", "BIND_REFUSED"))

    def test_of_a_read_only_root_without_commit(self):
        base = self.make_base("only")
        before = snapshot(base)
        with self.refused("BIND_REFUSED", 403):
            self.acquire({"source": base, "target": "/workspace", "mode": "rw"})
        box = self.acquire(self.overlay(base))
        self.assertExited(box.shell("echo x > /workspace/new && rm /workspace/file"))
        self.assertTrue(self.overlays(box)[0]["read_only"])
        self.assertIn(".wh.file", self.diff(box).getnames())
        with self.refused("BIND_REFUSED", 403):
            self.commit(box)
        self.assertEqual(snapshot(base), before)

    def test_unknown_numbers(self):
        box = self.acquire(self.overlay())
        for number in ("0", "2", "9", "x", "-1", "65536"):
            for method, what in (("GET", "diff"), ("POST", "commit")):
                response = self.daemon.request(
                    method, f"/v1/sandboxes/{box.id}/overlays/{number}/{what}",
                    headers=box.headers())
                self.assertEqual((response.status, response.code), (404, "NOT_FOUND"), number)

    def test_another_ones_sandbox(self):
        box = self.acquire(self.overlay())
        stranger = {"X-Sandpool-Token": "0" * 32}
        # We are root, who may see all: as somebody else over the same socket.
        if os.path.exists("/usr/bin/setpriv"):
            for method, what in (("GET", ""), ("GET", "/1/diff"), ("POST", "/1/commit")):
                done = subprocess.run(
                    ["setpriv", "--reuid", "61999", "--regid", "61999", "--clear-groups",
                     "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method,
                     "-H", f"X-Sandpool-Token: {stranger['X-Sandpool-Token']}", "--unix-socket",
                     self.daemon.socket_path, f"http://x/v1/sandboxes/{box.id}/overlays{what}"],
                    capture_output=True, text=True, check=False)
                self.assertIn(done.stdout, ("401", "403", "404", "000"))


class Spoilt(OverlayCase):
    """What did not end by itself is never written back."""

    def assertSpoilt(self, box, reason):
        self.assertEqual(self.overlays(box)[0]["state"], "spoilt")
        self.assertIn(reason, self.overlays(box)[0]["reason"])
        with self.refused("CONFLICT", 409) as caught:
            self.commit(box)
        self.assertIn(reason, str(caught.exception))
        # A later run that ends well changes nothing about it.
        self.assertExited(box.shell("true"))
        with self.refused("CONFLICT", 409):
            self.commit(box)

    def test_after_a_timeout(self):
        before = snapshot(self.base)
        box = self.acquire(self.overlay())
        outcome = box.shell("echo half > /workspace/half; sleep 60", timeout="300ms")
        self.assertEqual(outcome.reason, "timeout")
        self.assertSpoilt(box, "timeout")
        self.assertEqual(self.diff(box).extractfile("half").read(), b"half\n")
        self.assertEqual(snapshot(self.base), before)

    def test_after_too_much_output(self):
        box = self.acquire(self.overlay())
        outcome = box.shell("echo half > /workspace/half; seq 100000", output_limit=1000)
        self.assertEqual(outcome.reason, "output")
        self.assertSpoilt(box, "output")

    def test_after_a_signal(self):
        box = self.acquire(self.overlay())
        self.assertEqual(box.shell("echo half > /workspace/half; kill -ABRT $$").reason, "signaled")
        self.assertSpoilt(box, "signaled")

    def test_after_a_lost_client(self):
        box = self.acquire(self.overlay())
        with box.stream() as stream:
            stream.begin(shell="echo half > /workspace/half; echo there; sleep 60")
            stream.read_stdout(b"there")
        wait_until(lambda: box.inspect()["running_execs"] == 0, 10, "the run is ended")
        self.assertSpoilt(box, "killed")

    def test_not_after_a_status(self):
        box = self.acquire(self.overlay())
        self.assertEqual(box.shell("echo x > /workspace/new; exit 3").exit_code, 3)
        self.assertEqual(self.overlays(box)[0]["state"], "clean")
        self.assertNotEqual(box.run("/no/such/program").exit_code, 0)
        self.assertEqual(self.commit(box)["files"], 1)
        self.assertEqual(self.text("new"), "x\n")


class Commit(OverlayCase):
    """E-11."""

    def test_all_kinds_of_changes_with_the_owners_ids(self):
        box = self.acquire(self.overlay())
        self.assertExited(box.shell(
            "cd /workspace && echo more >> file && rm -r gone && mkdir -p kept/new/deep &&"
            " echo n > kept/new/deep/n && chmod 640 kept/new/deep/n && ln -sfn kept link &&"
            " echo e > run && chmod 755 run && rm kept/below/deep"))
        answer = self.commit(box)
        self.assertEqual({key: answer[key] for key in ("files", "directories", "deleted")},
                         {"files": 4, "directories": 2, "deleted": 2}, answer)
        names = [entry[0] for entry in snapshot(self.base)]
        self.assertEqual(names, ["file", "kept", "kept/below", "kept/new", "kept/new/deep",
                                 "kept/new/deep/n", "link", "run"])
        self.assertEqual(self.text("file"), "file\nmore\n")
        self.assertEqual(os.readlink(f"{self.base}/link"), "kept")
        for name, mode, uid, gid, _content in snapshot(self.base):
            self.assertEqual((uid, gid), (OWNER, OWNER), name)
            if name in ("run", "kept/new/deep/n"):
                self.assertEqual(stat.S_IMODE(mode), 0o755 if name == "run" else 0o640)

    def test_it_goes_on_with_an_empty_upper(self):
        box = self.acquire(self.overlay())
        self.assertExited(box.shell("echo one > /workspace/one"))
        self.assertEqual(self.commit(box)["files"], 1)
        self.assertEqual(self.diff(box).getnames(), [])
        self.assertEqual(box.shell("cat /workspace/one; echo two > /workspace/two;"
                                   "grep -c ' /workspace ' /proc/self/mountinfo").text, "one\n2")
        self.assertEqual(sorted(self.diff(box).getnames()), ["two"])
        self.assertFalse(os.path.exists(f"{self.base}/two"))
        self.assertEqual(self.commit(box)["files"], 1)
        self.assertEqual(self.text("two"), "two\n")
        self.assertEqual(self.overlays(box)[0]["state"], "clean")

    def test_nothing_to_do(self):
        before = snapshot(self.base)
        box = self.acquire(self.overlay())
        answer = self.commit(box)
        self.assertEqual([answer[key] for key in ("files", "directories", "deleted", "bytes")],
                         [0, 0, 0, 0])
        self.assertEqual(snapshot(self.base), before)

    def test_somebody_else_has_changed_the_base(self):
        for change in ("echo theirs >> kept/below/deep", "touch kept/below/more",
                       "chmod 600 file", "rm gone/x", "ln -sf /etc link"):
            with self.subTest(change):
                self.base = self.make_base()
                box = self.acquire(self.overlay())
                self.assertExited(box.shell("echo mine > /workspace/mine"))
                time.sleep(0.02)
                subprocess.run(["sh", "-c", change], cwd=self.base, check=True)
                before = snapshot(self.base)
                with self.refused("CONFLICT", 409) as caught:
                    self.commit(box)
                self.assertIn("somebody else", str(caught.exception))
                self.assertEqual(snapshot(self.base), before)
                box.release()

    def test_of_two_over_one_base_the_second_is_refused(self):
        one = self.acquire(self.overlay())
        two = self.acquire(self.overlay())
        self.assertExited(one.shell("echo one > /workspace/one"))
        self.assertExited(two.shell("echo two > /workspace/two"))
        self.assertEqual(self.commit(one)["files"], 1)
        before = snapshot(self.base)
        with self.refused("CONFLICT", 409):
            self.commit(two)
        self.assertEqual(snapshot(self.base), before)
        self.assertFalse(os.path.exists(f"{self.base}/two"))

    def test_two_in_one_sandbox(self):
        other = self.make_base()
        box = self.acquire(self.overlay(), self.overlay(other, "/data"))
        self.assertExited(box.shell("echo a > /workspace/a; echo b > /data/b"))
        self.assertEqual(self.commit(box, 2)["files"], 1)
        self.assertEqual(self.text("b", other), "b\n")
        self.assertFalse(os.path.exists(f"{self.base}/a"))
        self.assertEqual(self.commit(box, 1)["files"], 1)
        self.assertEqual(self.text("a"), "a\n")

    def test_not_while_something_runs(self):
        box = self.acquire(self.overlay())
        with box.stream() as stream:
            stream.begin(shell="echo x > /workspace/x; echo there; sleep 60")
            stream.read_stdout(b"there")
            with self.refused("CONFLICT", 409) as caught:
                self.commit(box)
            self.assertIn("runs something", str(caught.exception))
        self.assertFalse(os.path.exists(f"{self.base}/x"))

    def test_what_runs_left_behind_is_killed_first(self):
        box = self.acquire(self.overlay())
        self.assertExited(box.shell(
            "echo x > /workspace/x; (while :; do echo y >> /workspace/y; done) >/dev/null 2>&1 &"
            " sleep 0.1"))
        self.commit(box)
        size = os.stat(f"{self.base}/y").st_size
        self.assertEqual(box.shell("stat -c %s /workspace/y").text, str(size))
        self.assertEqual(self.text("x"), "x\n")

    def commit_much(self):
        """A box with an overlay whose commit takes a while, and the thread that asks for it."""
        box = self.acquire(self.overlay())
        self.assertExited(box.shell("cd /workspace && seq 400 | split -l 1 -a 4 - many-"))
        result = []

        def ask():
            try:
                result.append(self.commit(box))
            except t.ApiError as error:
                result.append(error)
        thread = threading.Thread(target=ask)
        return box, thread, result

    @t.limit(180)
    def test_nothing_starts_meanwhile(self):
        box, thread, result = self.commit_much()
        thread.start()
        wait_until(lambda: os.path.exists(f"{self.base}/.sandpool-commit"), 20, "it has begun",
                   interval=0.001)
        refused = []
        while thread.is_alive():
            for attempt in (lambda: box.shell("true"), lambda: self.commit(box)):
                try:
                    attempt()
                except t.ApiError as error:
                    refused.append(error)
            time.sleep(0.005)
        thread.join()
        self.assertEqual(result[0]["files"], 400, result)
        self.assertTrue(any("being committed" in str(error) for error in refused), refused)
        self.assertEqual({error.code for error in refused}, {"CONFLICT"})
        self.assertExited(box.shell("test $(ls /workspace | wc -l) = 404"))

    @t.limit(180)
    def test_it_is_finished_without_its_client(self):
        box, _thread, _result = self.commit_much()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.daemon.socket_path)
            client.sendall(f"POST /v1/sandboxes/{box.id}/overlays/1/commit HTTP/1.1\r\n"
                           f"Host: x\r\nX-Sandpool-Token: {box.token}\r\n"
                           "Content-Length: 0\r\n\r\n".encode())
            wait_until(lambda: os.path.exists(f"{self.base}/.sandpool-commit"), 20, "it has begun")
        wait_until(lambda: len(os.listdir(self.base)) == 404, 60, "it is done")
        wait_until(lambda: self.overlays(box)[0]["used_bytes"] == self.empty_bytes(), 20,
                   "and the upper is empty")
        self.assertExited(box.shell("echo more > /workspace/more"))
        self.assertEqual(self.commit(box)["files"], 1)

    def empty_bytes(self):
        return self.overlays(self.acquire(self.overlay(self.make_base())))[0]["used_bytes"]

    def test_links_planted_by_the_workload_lead_nowhere(self):
        outside = tempfile.mkdtemp(prefix="outside-", dir=self.top)
        shutil.chown(outside, OWNER, OWNER)
        box = self.acquire(self.overlay())
        self.assertExited(box.shell(
            f"cd /workspace && ln -s {outside} out && rm -r kept && ln -s {outside} kept &&"
            f" ln -s ../../.. up && mkdir real && echo x > real/x"))
        self.commit(box)
        self.assertEqual(os.listdir(outside), [])
        self.assertEqual(os.readlink(f"{self.base}/kept"), outside)
        # The next one writes below a name that is such a link on the host by now.
        self.assertExited(box.shell(
            "cd /workspace && rm out kept && mkdir out kept && echo y > out/y && echo z > kept/z"))
        self.commit(box)
        self.assertEqual(os.listdir(outside), [])
        self.assertEqual(self.text("out/y") + self.text("kept/z"), "y\nz\n")

    def test_set_id_bits_are_cleared(self):
        """The workload cannot set them, but what the base has comes up with its mode."""
        shutil.copy("/usr/bin/id", f"{self.base}/id")
        os.chown(f"{self.base}/id", OWNER, OWNER)
        os.chmod(f"{self.base}/id", 0o6755)
        box = self.acquire(self.overlay())
        self.assertNotEqual(box.shell("cd /workspace && cp id own && chmod 6755 own").exit_code, 0)
        self.assertEqual(box.shell("cd /workspace && touch id && stat -c %a id").text, "6755")
        self.commit(box)
        for name in ("id", "own"):
            self.assertEqual(stat.S_IMODE(os.stat(f"{self.base}/{name}").st_mode), 0o755)

    def test_files_of_the_api_are_committed_too(self):
        box = self.acquire(self.overlay())
        response = self.daemon.request(
            "PUT", f"/v1/sandboxes/{box.id}/files?path=/workspace/uploaded", raw=b"by the api\n",
            headers={**box.headers(), "Content-Type": "application/octet-stream"})
        self.assertIn(response.status, (200, 201, 204), response)
        self.assertEqual(self.commit(box)["files"], 1)
        self.assertEqual(self.text("uploaded"), "by the api\n")

    def test_diff_has_whiteouts_and_opaque_directories(self):
        box = self.acquire(self.overlay())
        self.assertExited(box.shell("cd /workspace && rm file && rm -r gone && mkdir gone &&"
                                    " echo new > gone/new && echo more >> kept/below/deep"))
        archive = self.diff(box)
        self.assertEqual(sorted(archive.getnames()),
                         [".wh.file", "gone", "gone/.wh..wh..opq", "gone/new", "kept",
                          "kept/below", "kept/below/deep"])
        self.assertEqual(archive.extractfile("kept/below/deep").read(), b"kept/below/deep\nmore\n")


class ManyChanges(OverlayCase):
    """As many as one commit may have, and one more."""

    top_parent = "/dev/shm"  # a disk would take most of the time
    config = t.merge(OverlayCase.config, {"pools": {"default": {
        "limits": {"memory": "2GiB", "tmp_inodes": 2 * CHANGES_MAX}}}})

    @t.unittest.skipIf(t.SLOW_FACTOR > 1, "what does the work is the same program in every build")
    @t.limit(600)
    def test_as_many_changes_as_are_allowed(self):
        before = snapshot(self.base)
        box = self.acquire(self.overlay())
        outcome = box.python(f"""
import os
os.mkdir('/workspace/many')
for i in range({CHANGES_MAX}):
    os.close(os.open(f'/workspace/many/{{i}}', os.O_CREAT))
""", timeout_s=300)
        self.assertExited(outcome)
        with self.refused("TOO_MANY", 429) as caught:
            self.commit(box)
        self.assertIn("too much for one commit", str(caught.exception))
        self.assertEqual(snapshot(self.base), before)
        self.assertExited(box.shell("rm /workspace/many/0"))
        answer = self.commit(box)
        self.assertEqual((answer["files"], answer["directories"]), (CHANGES_MAX - 1, 1))
        self.assertEqual(len(os.listdir(f"{self.base}/many")), CHANGES_MAX - 1)
        self.assertFalse(os.path.exists(f"{self.base}/.sandpool-commit"))
        self.assertExited(box.shell("echo more > /workspace/more"))
        self.assertEqual(self.commit(box)["files"], 1, "and it goes on")


class Kills(OverlayCase):
    """Whatever ends it: the base is as it was and nothing is left."""

    def test_sigkill_of_the_command_line(self):
        before = snapshot(self.base)
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "run", "--overlay", f"{self.base}:/workspace", "--commit",
             "--", "sh", "-c", "rm -r /workspace/*; echo there; sleep 60"],
            env={"PATH": "/usr/bin:/bin", "SANDPOOL_SOCKET": self.daemon.socket_path},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"there\n")
        process.kill()
        process.wait()
        process.stdout.close()
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 10, "the sandbox is gone")
        self.assertEqual(snapshot(self.base), before)

    def test_sigkill_of_the_daemon(self):
        before = snapshot(self.base)
        config = {"pools": {"default": {"allowed_binds": [f"{self.top}/work"]}}}
        daemon = Daemon(config)
        self.addCleanup(daemon.remove)
        self.addCleanup(daemon.kill)
        daemon.start()
        box = daemon.acquire(policy="wait", wait="20s", binds=[self.overlay()])
        self.assertExited(box.shell("rm -r /workspace/* && echo x > /workspace/x"))
        daemon.process.kill()
        daemon.process.wait()
        wait_until(lambda: not daemon.inits(), 10, "sandboxes died with the daemon")
        daemon.start()  # which sweeps what the dead one could not
        daemon.stop()   # … and looks for anything that is left
        self.assertEqual(snapshot(self.base), before)

    def test_a_sandbox_killed_while_it_commits(self):
        """All of it or nothing, at the latest when the base is bound again."""
        box = self.acquire(self.overlay())
        self.assertExited(box.shell(
            "cd /workspace && for i in $(seq 200); do echo $i > f$i; done; rm -r gone"))
        before = snapshot(self.base)
        pid = self.daemon.inits()
        self.assertTrue(pid)
        result = []

        def ask():
            try:
                result.append(self.commit(box))
            except (t.ApiError, OSError) as error:
                result.append(error)
        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.003)
        box.release()
        thread.join()
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 10, "it is released")
        again = self.acquire(self.overlay())
        self.assertExited(again.shell("true"))
        names = [entry[0] for entry in snapshot(self.base)]
        new = [name for name in names if name.startswith("f") and name != "file"]
        self.assertIn(len(new), (0, 200), result)
        if not new:
            self.assertEqual(snapshot(self.base), before)
        else:
            self.assertNotIn("gone", names)
        self.assertNotIn(".sandpool-commit", names)


class Recovery(OverlayCase):
    """What an earlier commit has left in a base, when it is bound again."""

    def leave(self, journal=None):
        directory = f"{self.base}/.sandpool-commit"
        os.makedirs(f"{directory}/new")
        with open(f"{directory}/new/0", "wb") as file:
            file.write(b"staged\n")
        if journal is not None:
            with open(f"{directory}/journal", "wb") as file:
                file.write(journal)
        for path in (directory, f"{directory}/new", f"{directory}/new/0"):
            os.chown(path, OWNER, OWNER)
        if journal is not None:
            os.chown(f"{directory}/journal", OWNER, OWNER)

    def test_not_decided_it_is_forgotten(self):
        for mode in ("overlay", "rw"):
            with self.subTest(mode=mode):
                before = snapshot(self.base)
                self.leave()
                box = self.acquire({"source": self.base, "target": "/workspace", "mode": mode})
                self.assertEqual(snapshot(self.base), before)
                self.assertEqual(box.shell("ls -A /workspace").text, "file\ngone\nkept\nlink")
                if mode == "overlay":
                    self.assertExited(box.shell("echo x > /workspace/x"))
                    self.assertEqual(self.commit(box)["files"], 1)
                    os.unlink(f"{self.base}/x")
                box.release()

    def test_what_is_no_journal_is_refused(self):
        for journal in (b"", b"x" * 4096):
            self.base = self.make_base()
            self.leave(journal)
            before = snapshot(self.base)
            for mode in ("overlay", "rw"):
                with self.subTest(mode=mode, size=len(journal)), self.refused("CONFLICT", 409):
                    self.acquire({"source": self.base, "target": "/workspace", "mode": mode})
            self.assertEqual(snapshot(self.base), before)
            box = self.acquire({"source": self.base, "target": "/workspace", "mode": "ro"})
            self.assertExited(box.shell("cat /workspace/file"))

    def test_a_name_of_ours_is_not_committed(self):
        before = snapshot(self.base)
        box = self.acquire(self.overlay())
        self.assertExited(box.shell("mkdir /workspace/.sandpool-commit"))
        with self.refused("CONFLICT", 409):
            self.commit(box)
        self.assertEqual(snapshot(self.base), before)


class Subvolumes(OverlayCase):
    """A subvolume of btrfs is no mount, but nothing can be renamed into it."""

    SUBVOLUME_CREATE = 0x5000940E  # BTRFS_IOC_SUBVOL_CREATE

    def make_subvolume(self, parent, name):
        fd = os.open(parent, os.O_RDONLY)
        fcntl.ioctl(fd, self.SUBVOLUME_CREATE,
                    bytearray(struct.pack("q4088s", 0, name.encode())), True)
        os.close(fd)
        with open(f"{parent}/{name}/file", "w", encoding="ascii") as file:
            file.write("file\n")
        for path in (f"{parent}/{name}", f"{parent}/{name}/file"):
            os.chown(path, OWNER, OWNER)

    @classmethod
    def prepare(cls):
        if not shutil.which("mkfs.btrfs"):
            raise t.unittest.SkipTest("no mkfs.btrfs")
        disk = f"{cls.top}/disk"
        with open(disk, "wb") as file:
            file.truncate(200 * MIB)
        subprocess.run(["mkfs.btrfs", "-q", disk], check=True)
        done = subprocess.run(["mount", "-o", "loop", disk, f"{cls.top}/work"], check=False)
        if done.returncode != 0:
            raise t.unittest.SkipTest("btrfs cannot be mounted")

    @classmethod
    def clean(cls):
        if os.path.ismount(f"{cls.top}/work"):
            subprocess.run(["umount", f"{cls.top}/work"], check=True)

    def setUp(self):
        super().setUp()
        self.make_subvolume(self.base, "part")

    def test_nothing_is_begun_that_cannot_be_finished(self):
        for change in ("echo x > part/new", "mkdir part/new", "echo x > part/file",
                       "rm part/file; mkdir part/file"):
            with self.subTest(change=change):
                before = snapshot(self.base)
                box = self.acquire(self.overlay())
                self.assertExited(box.shell(f"cd /workspace; rm file; {change}"))
                with self.refused("UNSUPPORTED", 501):
                    self.commit(box)
                self.assertEqual(snapshot(self.base), before)
                box.release()
        box = self.acquire(self.overlay())  # the control: beside it, and out of it
        self.assertExited(box.shell("cd /workspace; rm file part/file; echo x > kept/new"))
        self.commit(box)
        self.assertEqual((os.listdir(f"{self.base}/part"), self.text("kept/new")), ([], "x\n"))
        box.release()


class WarmRecovery(Recovery):
    """The same where the warm-up has left something that runs."""

    config = t.merge(OverlayCase.config, {"pools": {"default": {"warmup": {"command": [
        "/bin/sh", "-c", "setsid sleep 4321 </dev/null >/dev/null 2>&1 &"]}}}})

    def test_what_is_warm_stays_so(self):
        running = "cat /proc/[0-9]*/comm | grep -c sleep"
        for left in (False, True):
            with self.subTest(left=left):
                if left:
                    self.leave()
                box = self.acquire(self.overlay())
                self.assertEqual(box.shell(running).text, "1")
                self.assertExited(box.shell("echo x > /workspace/x"))
                self.commit(box)
                self.assertEqual(box.shell(running).text, "0")  # the control: a commit ends it
                self.base = self.make_base()


class CommandLine(OverlayCase):
    """run --overlay, diff, commit; E-12."""

    def check_program(self, body):
        path = tempfile.mktemp(prefix="check-", dir=self.top)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\necho \"$1 $2\" >> {path}.log\n{body}\n")
        os.chmod(path, 0o755)
        return path

    def log(self, program):
        return t.read_text(f"{program}.log").split("\n")[:-1]

    def run_overlay(self, *options, command="echo new > /workspace/new"):
        return self.daemon.cli("run", "--overlay", f"{self.base}:/workspace", *options, "--", "sh",
                               "-c", command)

    def test_without_commit_it_is_gone(self):
        before = snapshot(self.base)
        done = self.run_overlay(command="rm -r /workspace/*; ls /workspace")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        self.assertEqual(snapshot(self.base), before)

    def test_commit(self):
        done = self.run_overlay("--commit", command="echo new > /workspace/new; cat /workspace/file")
        self.assertEqual((done.returncode, done.stdout), (0, b"file\n"), done.stderr)
        self.assertIn(b"files 1", done.stderr)
        self.assertEqual(self.text("new"), "new\n")
        done = self.run_overlay("--commit", "-q", command="rm /workspace/new")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        self.assertFalse(os.path.exists(f"{self.base}/new"))

    def test_commit_after_status_0_only(self):
        before = snapshot(self.base)
        for command, code in (("exit 3", 3), ("kill -TERM $$", 143), ("no-such-command", 127)):
            done = self.run_overlay("--commit", command=f"echo x > /workspace/x; {command}")
            self.assertEqual(done.returncode, code, done.stderr)
        done = self.run_overlay("--commit", "--timeout", "300ms",
                                command="echo x > /workspace/x; sleep 60")
        self.assertEqual(done.returncode, 124)
        self.assertEqual(snapshot(self.base), before)

    def test_diff(self):
        path = f"{self.top}/diff.tar.gz"
        for code in (0, 5):
            done = self.run_overlay("--diff", path, command="cd /workspace; rm file; echo n > n;"
                                    f" exit {code}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, b"", b""))
            with tarfile.open(path) as archive:
                self.assertEqual(sorted(archive.getnames()), [".wh.file", "n"])
            os.unlink(path)
        done = self.run_overlay("--diff", path, "--timeout", "300ms",
                                command="echo half > /workspace/half; sleep 60")
        self.assertEqual(done.returncode, 124)
        with tarfile.open(path) as archive:
            self.assertEqual(archive.getnames(), ["half"])

    def test_diff_and_commit(self):
        path = f"{self.top}/both.tar.gz"
        done = self.run_overlay("--diff", path, "--commit")
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(path) as archive:
            self.assertEqual(archive.getnames(), ["new"])
        self.assertEqual(self.text("new"), "new\n")

    def test_check_is_asked_before_start_and_before_commit(self):
        program = self.check_program("exit 0")
        done = self.run_overlay("--commit", "--check", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.log(program), [f"start {self.base}", f"commit {self.base}"])
        self.assertEqual(self.text("new"), "new\n")
        # Nothing is written back, so nobody is asked about that.
        self.run_overlay("--commit", "--check", program, command="exit 1")
        self.run_overlay("--check", program)
        self.assertEqual(self.log(program)[2:], [f"start {self.base}"] * 2)

    def test_check_refuses_the_start(self):
        program = self.check_program('test "$1" != start || exit 7')
        done = self.run_overlay("--commit", "--check", program, command="echo ran")
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(os.path.basename(program).encode(), done.stderr)
        self.assertIn(b"status 7", done.stderr)
        self.assertEqual(self.log(program), [f"start {self.base}"])
        wait_until(lambda: self.daemon.pool()["leased"] == 0, 10, "the sandbox is gone")

    def test_check_refuses_the_commit(self):
        before = snapshot(self.base)
        program = self.check_program('test "$1" != commit || kill -9 $$')
        done = self.run_overlay("--commit", "--check", program, command="echo x > /workspace/x;"
                                " echo ran")
        self.assertEqual((done.returncode, done.stdout), (125, b"ran\n"))
        self.assertIn(b"signal 9", done.stderr)
        self.assertEqual(snapshot(self.base), before)

    def test_check_that_changed_its_mind_meanwhile(self):
        before = snapshot(self.base)
        flag = f"{self.top}/flag"
        program = self.check_program(f"test ! -e {flag}")
        self.addCleanup(lambda: os.path.exists(flag) and os.unlink(flag))
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "run", "--overlay", f"{self.base}:/workspace", "--commit",
             "--check", program, "--", "sh", "-c", "rm /workspace/file; echo there; read line"],
            env={"PATH": "/usr/bin:/bin", "SANDPOOL_SOCKET": self.daemon.socket_path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"there\n")
        with open(flag, "wb"):
            pass
        _out, error = process.communicate(b"go\n", timeout=20)
        self.assertEqual(process.returncode, 125, error)
        self.assertEqual(self.log(program), [f"start {self.base}", f"commit {self.base}"])
        self.assertEqual(snapshot(self.base), before)

    def test_check_that_is_not_there(self):
        done = self.run_overlay("--check", "/no/such/program", command="echo ran")
        self.assertEqual((done.returncode, done.stdout), (125, b""))
        self.assertIn(b"/no/such/program", done.stderr)

    def test_commit_refused_is_125(self):
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "run", "--overlay", f"{self.base}:/workspace", "--commit",
             "--", "sh", "-c", "rm /workspace/file; echo there; read line"],
            env={"PATH": "/usr/bin:/bin", "SANDPOOL_SOCKET": self.daemon.socket_path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"there\n")
        time.sleep(0.02)
        with open(f"{self.base}/theirs", "wb"):
            pass
        _out, error = process.communicate(b"go\n", timeout=20)
        self.assertEqual(process.returncode, 125, error)
        self.assertIn(b"somebody else", error)
        self.assertEqual(self.text("file"), "file\n")

    def test_options_that_need_an_overlay(self):
        for options in (["--commit"], ["--diff", "/dev/null"], ["--check", "/bin/true"]):
            done = self.daemon.cli("run", *options, "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn(b"--overlay", done.stderr)
        done = self.daemon.cli("run", "--overlay", self.base, "--overlay",
                               f"{self.make_base()}:/data", "--diff", "/dev/null", "--", "true")
        self.assertEqual(done.returncode, 125)

    def test_verbs(self):
        answer = self.daemon.cli("acquire", "-q", "--wait", "20s", "--bind",
                                 f"{self.base}:/workspace:overlay=2MiB", "default", check=True)
        box = answer.stdout.decode().strip()
        self.addCleanup(self.daemon.cli, "release", box)
        self.daemon.cli("exec", box, "--", "sh", "-c", "echo n > /workspace/n", check=True)
        done = self.daemon.cli("diff", box, check=True)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            self.assertEqual(archive.getnames(), ["n"])
        self.daemon.cli("diff", "-o", f"{self.top}/verb.tar.gz", box, check=True)
        self.assertEqual(os.path.getsize(f"{self.top}/verb.tar.gz"), len(done.stdout))
        program = self.check_program("exit 4")
        refused = self.daemon.cli("commit", "--check", program, box)
        self.assertEqual(refused.returncode, 125)
        self.assertFalse(os.path.exists(f"{self.base}/n"))
        done = self.daemon.cli("commit", box, check=True)
        self.assertIn(b"files 1", done.stdout)
        self.assertEqual(self.text("n"), "n\n")
        for verb in ("diff", "commit"):
            refused = self.daemon.cli(verb, "--number", "2", box)
            self.assertEqual(refused.returncode, 125)
            self.assertIn(self.base.encode(), refused.stderr)


class ShortLives(OverlayCase):
    config = t.merge(OverlayCase.config, {"pools": {"default": {"idle_timeout": "3s"}}})

    def test_a_command_outlives_what_is_left_of_the_idle_life(self):
        done = self.daemon.cli("run", "--wait", "20s", "--overlay", f"{self.base}:/workspace",
                               "--commit", "--", "sh", "-c", "sleep 5; echo x > /workspace/x")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.text("x"), "x\n")

    def test_so_does_a_check(self):
        check = f"{self.top}/slow"
        with open(check, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nsleep 4\n")
        os.chmod(check, 0o755)
        done = self.daemon.cli("run", "--wait", "20s", "--overlay", f"{self.base}:/workspace",
                               "--commit", "--check", check, "--", "sh", "-c",
                               "echo x > /workspace/x")
        self.assertEqual((done.returncode, done.stdout), (0, b""), done.stderr)
        self.assertEqual(self.text("x"), "x\n")


class Rootless(t.Case):
    def test_is_refused_by_name(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        top = tempfile.mkdtemp(prefix="sandpool-overlay-", dir="/srv")
        self.addCleanup(shutil.rmtree, top)
        os.chmod(top, 0o755)
        os.mkdir(f"{top}/base")
        with RootlessDaemon({"pools": {"default": {"allowed_binds": [top]}}}) as daemon:
            os.chown(f"{top}/base", daemon.uid, daemon.uid)
            bind = {"source": f"{top}/base", "target": "/workspace"}
            with daemon.acquire(policy="wait", wait="20s", binds=[{**bind, "mode": "rw"}]) as box:
                self.assertEqual(box.shell("touch /workspace/x").exit_code, 0)
            with self.refused("UNSUPPORTED", 501) as caught:
                daemon.acquire(policy="wait", wait="20s", binds=[{**bind, "mode": "overlay"}])
            self.assertIn("rootless", str(caught.exception))
            daemon.stop()


class NothingRuns(OverlayCase):
    config = {**OverlayCase.config, "exec_enabled": False}

    def test_is_refused_by_name(self):
        with self.refused("EXEC_DISABLED", 403):
            self.acquire(self.overlay())
        self.acquire({"source": self.base, "target": "/workspace", "mode": "rw"})


if __name__ == "__main__":
    main()
