"""What a workload can see of the host, of the supervisor and of its neighbours: nothing."""

import contextlib
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile

from escape_case import EscapeCase, PYTHON, main, on_host, payload_path, t

READ = """
import sys
try:
    print("read", open(sys.argv[1]).read())
except OSError as error:
    print("refused", error.errno)
"""
# Look for a marker in every file that can be read, /proc included.
HUNT = """
import os, sys
marker = sys.argv[1].encode()
me = os.getpid()
hits = []
for top in sys.argv[2:]:
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if not (directory == "/proc" and name in (str(me), "self", "thread-self"))]
        if marker in os.fsencode(directory):
            hits.append(directory)
        for name in files:
            path = os.path.join(directory, name)
            if marker in os.fsencode(name):
                hits.append(path)
            try:
                if not os.path.isfile(path) or os.path.getsize(path) > 1 << 20:
                    continue
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    if marker in os.read(fd, 1 << 16):
                        hits.append(path)
                finally:
                    os.close(fd)
            except OSError:
                pass
print("hits", hits)
"""
WRITABLE = ["/tmp", "/home/user", "/run/lock", "/dev/shm", "/workspace", "/data", "/mnt", "/var/tmp"]
PLACES = ["/tmp", "/home", "/run", "/dev/shm", "/workspace", "/data", "/mnt", "/proc", "/var", "/srv",
          "/root", "/etc"]


class HostFiles(EscapeCase):
    def test_secrets_of_the_host_are_unreadable(self):
        for place in ("/home", "/tmp", "/root", "/run", "/var/tmp", "/srv"):
            if not os.path.isdir(place):
                continue
            with self.subTest(place=place):
                path = f"{place}/sandpool-secret-{secrets.token_hex(8)}"
                try:
                    with open(path, "w", encoding="ascii") as file:
                        file.write("treasure")
                    os.chmod(path, 0o644)
                    self.assertIn("refused", self.inside(READ, path))
                    # Control: the same user id can read it outside (below /root only root can).
                    user = None if place == "/root" else 1000
                    control = on_host(PYTHON, "-c", READ, path, user=user)
                    self.assertIn(b"read treasure", control.stdout)
                finally:
                    os.unlink(path)

    def test_shadow_and_host_accounts_are_not_there(self):
        self.assertIn("refused", self.inside(READ, "/etc/shadow"))
        self.assertIn(b"read root:", on_host(PYTHON, "-c", READ, "/etc/shadow").stdout)

    def test_system_is_read_only(self):
        text = """
import os
wrote = []
for place in ("/", "/usr", "/usr/bin", "/etc", "/bin/", "/lib/", "/dev", "/proc", "/proc/sys/kernel"):
    try:
        os.close(os.open(os.path.join(place, "planted"), os.O_CREAT | os.O_WRONLY, 0o644))
        wrote.append(place)
    except OSError:
        pass
print("wrote", wrote)
"""
        self.assertEqual(self.inside(text), "wrote []")

    def test_hard_links_of_system_files_cannot_be_kept_b201(self):
        before = os.stat("/usr/bin/env").st_nlink
        outcome = self.box.shell("ln /usr/bin/env /tmp/kept 2>/dev/null && echo linked")
        self.assertNotIn("linked", outcome.text)
        self.assertEqual(os.stat("/usr/bin/env").st_nlink, before)

    def test_every_mount_is_nosuid_and_nodev_b029(self):
        lines = self.shell("cat /proc/self/mountinfo").splitlines()
        self.assertGreater(len(lines), 5)
        for line in lines:
            with self.subTest(line=line):
                options = line.split()[5].split(",")
                self.assertIn("nosuid", options)
                # Device nodes of the minimal /dev have to work.
                if not line.split()[4].startswith("/dev"):
                    self.assertIn("nodev", options)
        shm = [line for line in lines if line.split()[4] == "/dev/shm"]
        self.assertTrue(shm and all("noexec" in line.split()[5] for line in shm), lines)

    def test_devices_are_the_harmless_ones(self):
        names = set(self.shell("ls /dev").split())
        self.assertLessEqual({"null", "zero", "full", "random", "urandom", "tty"}, names)
        self.assertLessEqual(names, {"null", "zero", "full", "random", "urandom", "tty", "fd",
                                     "stdin", "stdout", "stderr", "shm", "pts", "ptmx", "console",
                                     "core"})


class Neighbours(EscapeCase):
    def test_data_of_a_sibling_is_unreadable_b024(self):
        other = self.acquire()
        marker = f"marker{secrets.token_hex(12)}"
        write = """
import os, sys
wrote = []
for place in sys.argv[2:]:
    open(os.path.join(place, "file"), "w").write(sys.argv[1])
    wrote.append(place)
print(*wrote)
"""
        wrote = self.inside(write, marker, *WRITABLE).split()
        self.assertEqual(wrote, WRITABLE)
        # Control: the hunt finds it at home.
        found = self.inside(HUNT, marker, *PLACES)
        for place in wrote:
            self.assertIn(f"{place}/file", found)
        # The marker is in the argument list of the hunter itself, which is left out.
        self.assertEqual(self.inside(HUNT, marker, *PLACES, box=other), "hits []")

    def test_shared_memory_is_private_b025(self):
        other = self.acquire()
        make = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x5a4d, 4096, 0o1666), libc.semget(0x5a4d, 1, 0o1666), libc.msgget(0x5a4d, 0o1666))
"""
        find = make.replace("0o1666", "0")
        self.assertNotIn("-1", self.inside(make))
        self.assertNotIn("-1", self.inside(find))
        self.assertEqual(self.inside(find, box=other), "-1 -1 -1")
        self.assertEqual(on_host(PYTHON, "-c", find).stdout.split(), [b"-1"] * 3)

    def test_nothing_stays_for_the_next_holder_b104(self):
        marker = f"left{secrets.token_hex(12)}"
        self.shell(f"echo {marker} >/tmp/x; echo {marker} >/dev/shm/y; echo {marker} >/workspace/z;"
                   f" (setsid sleep 1000 </dev/null >/dev/null 2>&1 &)")
        first = self.box.id
        self.box.release()
        for _ in range(4):
            with self.daemon.acquire(policy="wait", wait="20s") as box:
                self.assertNotEqual(box.id, first)
                self.assertEqual(self.inside(HUNT, marker, *PLACES, box=box), "hits []")
                self.assertNotIn("sleep", self.shell(
                    "cat /proc/[0-9]*/comm", box=box))


class Supervisor(EscapeCase):
    secret = f"topsecret{secrets.token_hex(12)}"
    env = {"REDIS_URL": f"redis://:{secret}@host", "API_TOKEN": secret, "AWS_SECRET_ACCESS_KEY": secret}

    def test_secrets_of_the_supervisor_are_not_inside_b020_b021(self):
        half = len(self.secret) // 2
        # Built from halves, so that the probe's own command line does not hold it.
        probe = f"""
import glob
secret = ({self.secret[:half]!r} + {self.secret[half:]!r}).encode()
hits = []
for pattern in ("/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"):
    for path in glob.glob(pattern):
        try:
            if secret in open(path, "rb").read():
                hits.append(path)
        except OSError:
            pass
print("hits", hits)
"""
        self.assertEqual(self.inside(probe), "hits []")
        self.assertEqual(self.shell("cat /proc/1/cmdline | tr '\\0' ' '").count(self.secret), 0)
        # Control: the daemon's own environment does hold it, and the probe finds it there.
        self.assertIn(self.secret, t.read_text(f"/proc/{self.daemon.pid}/environ"))
        control = on_host(PYTHON, "-c", probe)
        self.assertIn(f"/proc/{self.daemon.pid}/environ".encode(), control.stdout)

    def test_environment_is_exactly_what_is_documented(self):
        names = set(self.box.run("/usr/bin/env", env={"X": "1"}).text.split("\n"))
        names = {line.split("=")[0] for line in names}
        self.assertLessEqual({"PATH", "HOME", "LANG", "X"}, names)
        self.assertLessEqual(names, {"PATH", "HOME", "LANG", "TERM", "X", "USER", "LOGNAME", "PWD",
                                     "SHELL"})

    def test_only_own_processes_are_seen_b021(self):
        pids = [int(name) for name in self.shell("ls /proc").split() if name.isdigit()]
        self.assertIn(1, pids)
        self.assertLess(len(pids), 6, pids)
        command = self.shell("cat /proc/1/cmdline | tr '\\0' ' '")
        self.assertNotIn(self.daemon.directory, command)

    def test_descriptors_are_three_b002_b003(self):
        outcome = self.payload("descriptors")
        numbers = [line.split()[0] for line in outcome.text.splitlines()]
        self.assertEqual(numbers, ["0", "1", "2"], outcome)
        for line in outcome.text.splitlines():
            self.assertRegex(line, r"^\d (pipe:|/dev/null|socket:|/dev/pts/)", outcome)
        # Control: the payload does see a fourth one.
        read_end, write_end = os.pipe()
        try:
            control = on_host(payload_path("descriptors"), pass_fds=[write_end])
            self.assertIn(f"\n{write_end} pipe:".encode(), control.stdout)
        finally:
            os.close(read_end)
            os.close(write_end)

    def test_cgroup_tree_is_out_of_reach_b023(self):
        self.assertEqual(self.shell("ls -A /sys 2>/dev/null | wc -l"), "0")
        for line in self.shell("cat /proc/self/cgroup").splitlines():
            # "/", or the exec's own cgroup below it: nothing of where that is on the host.
            self.assertRegex(line.split(":", 2)[2], r"^/(x\d+)?$", line)
        control = t.read_text(f"/proc/{self.daemon.inits()[0]}/cgroup")
        self.assertIn(self.daemon.instance, control)

    def test_groups_are_dropped_b022(self):
        self.assertEqual(self.shell("id -u; id -g; id -G"), "1000\n1000\n1000")

    def test_namespaces_are_not_the_hosts(self):
        for name in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
            with self.subTest(namespace=name):
                self.assertNotEqual(self.shell(f"readlink /proc/self/ns/{name}"),
                                    os.readlink(f"/proc/self/ns/{name}"))

    def test_sensitive_proc_files_b038(self):
        text = """
import os
for path, write in (("/proc/sys/kernel/core_pattern", 1), ("/proc/sys/vm/drop_caches", 1),
                    ("/proc/sysrq-trigger", 1), ("/proc/sys/kernel/hostname", 1),
                    ("/proc/kcore", 0), ("/proc/kmsg", 0), ("/proc/keys", 0),
                    ("/proc/timer_list", 0), ("/sys/firmware", 0), ("/proc/kallsyms", 0)):
    try:
        if write:
            fd = os.open(path, os.O_WRONLY)
            data = b"x"
        elif os.path.isdir(path):
            print(path, "open" if os.listdir(path) else "empty")
            continue
        else:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            data = os.read(fd, 4096)
        os.close(fd)
        useful = bool(data.strip(b"\\0 \\n"))
        if path == "/proc/kallsyms":  # addresses are what matters
            useful = any(line.split()[0].strip(b"0") for line in data.splitlines()[:50] if line)
        print(path, "open" if useful else "empty")
    except OSError as error:
        print(path, "refused")
"""
        for line in self.inside(text).splitlines():
            with self.subTest(path=line.split()[0]):
                self.assertNotEqual(line.split()[1], "open")
        control = on_host(PYTHON, "-c", text).stdout.decode()
        self.assertGreaterEqual(control.count(" open"), 5, control)

    def test_output_can_be_reopened_by_path(self):
        outcome = self.box.shell("echo one >/dev/stdout; echo two >/dev/stderr;"
                                 " echo three | tee /dev/stderr")
        self.assertExited(outcome)
        self.assertEqual(outcome.stdout, b"one\nthree\n")
        self.assertEqual(sorted(outcome.stderr.split()), [b"three", b"two"])

    def test_result_cannot_be_written_by_the_workload_b026_b177(self):
        outcome = self.box.python("""
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"reason":"exited","exit_code":0}\\n')
    except OSError:
        pass
print('{"reason":"exited","exit_code":0}')
os._exit(7)
""")
        self.assertExited(outcome, 7)


class SetId(t.HostDirectory, EscapeCase):
    """A set-id file in a workspace would be real on the host."""

    @classmethod
    def fill_top(cls):
        cls.rw = f"{cls.top}/rw"
        cls.ro = f"{cls.top}/ro"
        os.mkdir(cls.rw)
        os.mkdir(cls.ro)
        shutil.chown(cls.rw, 1234, 1234)
        shutil.copy(payload_path("ids"), f"{cls.ro}/ids")
        os.chmod(f"{cls.ro}/ids", 0o6755)
        return [cls.rw, {"path": cls.ro, "read_only": True}]

    TRY = """
import os, shutil, sys
top = sys.argv[1]
def attempt(name, call):
    try:
        call()
    except OSError:
        pass
def create(path, mode):
    os.umask(0)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))
for name, mode in (("u", 0o4755), ("g", 0o2755), ("ug", 0o6755)):
    plain = f"{top}/{name}-plain"
    create(plain, 0o755)
    attempt("chmod", lambda: os.chmod(plain, mode))
    fd = os.open(plain, os.O_RDONLY)
    attempt("fchmod", lambda: os.fchmod(fd, mode))
    os.close(fd)
    attempt("open", lambda: create(f"{top}/{name}-open", mode))
    attempt("mkdir", lambda: os.mkdir(f"{top}/{name}-dir", mode))
    attempt("mknod", lambda: os.mknod(f"{top}/{name}-node", 0o100000 | mode))
    os.system(f"chmod {mode:o} {plain} 2>/dev/null; install -m {mode:o} /bin/true {top}/{name}-inst 2>/dev/null;"
              f" cp --preserve=mode /usr/bin/passwd {top}/{name}-cp 2>/dev/null")
print(len(os.listdir(top)))
"""

    @staticmethod
    def set_id_files(top):
        return [path.path for path in os.scandir(top)
                if path.stat(follow_symlinks=False).st_mode & (stat.S_ISUID | stat.S_ISGID)]

    def test_none_can_be_planted(self):
        box = self.acquire(binds=[{"source": self.rw, "target": "/workspace", "mode": "rw"}])
        made = int(self.inside(self.TRY, "/workspace", box=box))
        self.assertGreaterEqual(made, 3)
        self.assertEqual(len(os.listdir(self.rw)), made)
        self.assertEqual(self.set_id_files(self.rw), [])
        # Control: without the filter the owner can.
        control = f"{self.top}/control"
        os.mkdir(control)
        shutil.chown(control, 1234, 1234)
        on_host(PYTHON, "-c", self.TRY, control, user=1234)
        self.assertGreaterEqual(len(self.set_id_files(control)), 6)

    def test_existing_one_has_no_effect(self):
        box = self.acquire(binds=[{"source": self.ro, "target": "/mnt", "mode": "ro"}])
        self.assertEqual(self.shell("/mnt/ids", box=box), "1000 1000 1000 1000")
        control = on_host(f"{self.ro}/ids", user=1234)
        self.assertEqual(control.stdout.split()[1], b"0")


class LateMounts(t.Case):
    """With shared propagation everywhere a careless late mount shows up on the host (B-079)."""

    def test_never_appear_in_the_mount_table_of_the_host(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        with contextlib.ExitStack() as stack:
            work = tempfile.mkdtemp(prefix="sandpool-late-", dir="/srv")
            stack.callback(shutil.rmtree, work)
            os.chmod(work, 0o755)
            for name in ("a", "b"):
                os.mkdir(f"{work}/{name}")
                shutil.chown(f"{work}/{name}", 1234, 1234)
            # A mount namespace of its own in which / is shared, as systemd makes it.
            daemon = stack.enter_context(t.Daemon(
                {"pools": {"default": {"allowed_binds": [work]}}},
                prefix=["/usr/bin/unshare", "--mount", "--propagation", "shared"]))
            table = f"/proc/{daemon.pid}/mountinfo"
            self.assertIn("shared:", t.read_text(table))
            before = t.read_text(table)
            for _ in range(5):
                with daemon.acquire(policy="wait", wait="20s", binds=[
                        {"source": f"{work}/a", "target": "/workspace", "mode": "rw"},
                        {"source": f"{work}/b", "target": "/data", "mode": "ro"}]) as box:
                    self.assertIn(" /workspace ", box.shell("cat /proc/self/mountinfo").text)
                    self.assertEqual(t.read_text(table), before)
            self.assertEqual(t.read_text(table), before)
            # Control: a mount made there does show.
            subprocess.run(["/usr/bin/nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt", "/bin/mount",
                            "--bind", f"{work}/a", f"{work}/b"], check=True)
            self.assertNotEqual(t.read_text(table), before)
            subprocess.run(["/usr/bin/nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt", "/bin/umount",
                            f"{work}/b"], check=True)


class Roots(t.Case):
    """Directory roots whose own links try to lead the set-up astray (B-005, B-006, B-007)."""

    def setUp(self):
        reason = t.needs_root() or t.needs_programs()
        if reason:
            self.skipTest(reason)
        self.root = tempfile.mkdtemp(prefix="sandpool-root-", dir="/srv")
        self.addCleanup(shutil.rmtree, self.root)
        os.chmod(self.root, 0o755)
        for name in ("bin", "tmp", "home", "run", "workspace", "data", "mnt", "proc", "dev", "etc"):
            os.mkdir(f"{self.root}/{name}")
        for name in ("descriptors", "ids", "syscalls"):
            shutil.copy(payload_path(name), f"{self.root}/bin/{name}")

    def daemon(self, **options):
        return t.Daemon({"pools": {"default": {"root": self.root, "max_idle": 1}}}, **options)

    def test_plain_root_without_a_shell_works_b173(self):
        with self.daemon() as daemon:
            self.assertEqual(daemon.run("/bin/ids").text, "1000 1000 1000 1000")

    def attempt_hostile(self):
        """Whatever happens, it must not happen outside the root; the pool may refuse to start."""
        with contextlib.ExitStack() as stack:
            daemon = self.daemon(wait_ready=False)
            stack.callback(daemon.remove)
            daemon.start()
            stack.callback(daemon.kill)
            t.wait_until(lambda: daemon.process.poll() is not None or self._settled(daemon), 15,
                         "a sandbox or a refusal")
            if daemon.process.poll() is None and daemon.pool()["idle"]:
                outcome = daemon.run("/bin/syscalls")
                self.assertIn(b"mount 1\n", outcome.stdout)
            daemon.stop()

    @staticmethod
    def _settled(daemon):
        with contextlib.suppress(OSError, t.ApiError):
            pool = daemon.pool()
            return pool["idle"] or pool["create_failures_total"]
        return False

    def test_dev_is_a_link_to_the_host_b006(self):
        canary = tempfile.mkdtemp(prefix="sandpool-canary-", dir="/srv")
        self.addCleanup(shutil.rmtree, canary)
        os.rmdir(f"{self.root}/dev")
        os.symlink(f"../../..{canary}", f"{self.root}/dev")
        before = t.mountinfo()
        self.attempt_hostile()
        self.assertEqual(os.listdir(canary), [])
        self.assertEqual(t.mountinfo(), before)

    def test_null_is_a_link_to_sysrq_b005(self):
        os.symlink("/proc/sysrq-trigger", f"{self.root}/dev/null")
        self.attempt_hostile()
        self.assertTrue(os.path.islink(f"{self.root}/dev/null"))

    def test_proc_is_a_link_or_a_file_b007(self):
        os.rmdir(f"{self.root}/proc")
        os.symlink("/tmp", f"{self.root}/proc")
        self.attempt_hostile()
        os.unlink(f"{self.root}/proc")
        with open(f"{self.root}/proc", "w", encoding="ascii"):
            pass
        self.attempt_hostile()


if __name__ == "__main__":
    main()
