"""Workspaces of the host in a warm sandbox: rw, ro, and everything that must be refused."""

import os
import shutil
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402

OWNER = 4321


class Binds(t.HostDirectory, SandpoolCase):
    @classmethod
    def fill_top(cls):
        for name in ("sessions/one", "sessions/two/deep", "skills", "sessions-other", "roots"):
            os.makedirs(f"{cls.top}/{name}")
        for name in ("sessions/one", "sessions/two", "sessions/two/deep", "sessions-other"):
            shutil.chown(f"{cls.top}/{name}", OWNER, OWNER)
        with open(f"{cls.top}/skills/skill", "w", encoding="ascii") as file:
            file.write("skill\n")
        os.symlink("/etc", f"{cls.top}/sessions/link")
        os.symlink("one", f"{cls.top}/sessions/inner")
        with open(f"{cls.top}/sessions/file", "w", encoding="ascii") as file:
            file.write("content\n")
        return [f"{cls.top}/sessions", {"path": f"{cls.top}/skills", "read_only": True},
                f"{cls.top}/roots"]

    def acquire(self, *binds):
        box = self.daemon.acquire(policy="wait", wait="20s", binds=list(binds))
        self.addCleanup(box.__exit__, None, None, None)
        return box

    def test_write_is_visible_at_once_and_belongs_to_the_owner(self):
        box = self.acquire({"source": f"{self.top}/sessions/one", "target": "/workspace",
                            "mode": "rw"})
        with box.stream() as stream:
            stream.begin(shell="echo hello >/workspace/note; mkdir /workspace/sub; echo written;"
                               " sleep 30")
            stream.read_stdout(b"written")
            with open(f"{self.top}/sessions/one/note", encoding="ascii") as file:
                self.assertEqual(file.read(), "hello\n")
        for name in ("note", "sub"):
            status = os.stat(f"{self.top}/sessions/one/{name}")
            self.assertEqual((status.st_uid, status.st_gid), (OWNER, OWNER))
        self.assertEqual(box.shell("stat -c '%u %g' /workspace/note").text, "1000 1000")

    def test_host_write_is_visible_inside(self):
        box = self.acquire({"source": f"{self.top}/sessions/one", "target": "/data", "mode": "rw"})
        with open(f"{self.top}/sessions/one/fromhost", "w", encoding="ascii") as file:
            file.write("host\n")
        self.assertEqual(box.shell("cat /data/fromhost").text, "host")

    def test_default_target_is_the_source_path(self):
        box = self.acquire({"source": f"{self.top}/sessions/two", "mode": "rw"})
        self.assertEqual(box.shell(f"ls {self.top}/sessions/two").text, "deep")
        # Nothing of the neighbours shows beside it.
        self.assertEqual(box.shell(f"ls {self.top}/sessions").text, "two")

    def test_read_only_is_read_only(self):
        for source, mode in ((f"{self.top}/skills", "ro"), (f"{self.top}/sessions/two", "ro")):
            box = self.acquire({"source": source, "target": "/mnt", "mode": mode})
            outcome = box.shell("ls /mnt; touch /mnt/x 2>&1; mkdir /mnt/y 2>&1; rm -rf /mnt/* 2>&1")
            self.assertIn("Read-only file system", outcome.text)
            self.assertTrue(os.listdir(source))
        self.assertEqual(self.acquire({"source": f"{self.top}/skills", "target": "/mnt",
                                       "mode": "ro"}).shell("cat /mnt/skill").text, "skill")

    def test_read_only_root_cannot_be_bound_writable(self):
        with self.refused("BIND_REFUSED"):
            self.acquire({"source": f"{self.top}/skills", "target": "/mnt", "mode": "rw"})

    def test_writable_source_of_root_is_refused(self):
        os.makedirs(f"{self.top}/roots/dir", exist_ok=True)
        with self.refused("BIND_REFUSED"):
            self.acquire({"source": f"{self.top}/roots/dir", "target": "/mnt", "mode": "rw"})

    def test_paths_outside_are_refused_b035(self):
        for source in ("/etc", "/", f"{self.top}", f"{self.top}/sessions-other",
                       f"{self.top}/sessions/../sessions-other", f"{self.top}/sessions/one/../../..",
                       f"{self.top}/sessions/link", f"{self.top}/sessions/link/ssl",
                       f"{self.top}/sessions/inner", f"{self.top}/sessions/missing",
                       "/proc/self/root/etc", f"{self.top}/sessions/one/../../skills"):
            for mode in ("ro", "rw"):
                with self.subTest(source=source, mode=mode), self.assertRaises(t.ApiError) as caught:
                    self.acquire({"source": source, "target": "/mnt", "mode": mode})
                self.assertIn(caught.exception.code, ("BIND_REFUSED", "INVALID_ARGUMENT",
                                                      "NOT_FOUND"))

    def test_malformed_binds_are_typed(self):
        good = f"{self.top}/sessions/one"
        for bind in ({"source": "relative"}, {"source": ""}, {}, {"source": good, "mode": "wr"},
                     {"source": good, "target": "relative"}, {"source": good, "traget": "/mnt"},
                     {"source": good + "\0x"}, {"source": "/" + "x" * 5000},
                     {"source": good, "target": "/mnt/../etc"}):
            with self.subTest(bind=bind), self.assertRaises(t.ApiError) as caught:
                self.acquire(bind)
            self.assertIn(caught.exception.code, ("INVALID_ARGUMENT", "BIND_REFUSED",
                                                  "NO_MOUNT_POINT"))

    def test_protected_targets_are_refused(self):
        for target in ("/proc", "/proc/1", "/dev", "/dev/shm/x", "/etc", "/etc/passwd", "/"):
            with self.subTest(target=target), self.assertRaises(t.ApiError) as caught:
                self.acquire({"source": f"{self.top}/sessions/one", "target": target, "mode": "rw"})
            self.assertIn(caught.exception.code, ("NO_MOUNT_POINT", "INVALID_ARGUMENT",
                                                  "BIND_REFUSED"))

    def test_target_through_a_link_of_the_workload_is_refused(self):
        # Late targets are resolved without links; the sandbox of a failed bind never reaches anyone.
        before = self.daemon.metric_sum("sandpool_ends_total")
        with self.assertRaises(t.ApiError):
            self.acquire({"source": f"{self.top}/sessions/one", "target": "/bin/x", "mode": "ro"})
        wait_until(lambda: self.daemon.metric_sum("sandpool_ends_total") > before, 5, "it was ended")

    def test_several_binds_in_one_sandbox(self):
        box = self.acquire(
            {"source": f"{self.top}/sessions/one", "target": "/workspace", "mode": "rw"},
            {"source": f"{self.top}/sessions/two", "target": "/data", "mode": "rw"},
            {"source": f"{self.top}/skills", "target": "/mnt/skills", "mode": "ro"})
        self.assertEqual(box.shell("touch /workspace/a /data/b && cat /mnt/skills/skill").text,
                         "skill")
        self.assertTrue(os.path.exists(f"{self.top}/sessions/two/b"))

    def test_others_files_are_nobodys_inside(self):
        path = f"{self.top}/sessions/one/foreign"
        with open(path, "w", encoding="ascii") as file:
            file.write("x")
        os.chmod(path, 0o600)
        shutil.chown(path, 777, 777)
        box = self.acquire({"source": f"{self.top}/sessions/one", "target": "/mnt", "mode": "rw"})
        self.assertEqual(box.shell("stat -c %u /mnt/foreign").text, "65534")
        self.assertNotEqual(box.shell("cat /mnt/foreign").exit_code, 0)

    def test_devices_and_fifos_of_a_workspace_are_harmless(self):
        os.mknod(f"{self.top}/sessions/one/disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
        os.chmod(f"{self.top}/sessions/one/disk", 0o666)
        box = self.acquire({"source": f"{self.top}/sessions/one", "target": "/mnt", "mode": "rw"})
        self.assertNotEqual(box.shell("head -c 1 /mnt/disk").exit_code, 0)

    def test_run_takes_binds_too(self):
        outcome = self.daemon.run("/bin/cat", "/mnt/skill", binds=[
            {"source": f"{self.top}/skills", "target": "/mnt", "mode": "ro"}])
        self.assertEqual(outcome.text, "skill")


if __name__ == "__main__":
    main()
