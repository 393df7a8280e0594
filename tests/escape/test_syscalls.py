"""System calls that a workload must not have, and those that it must keep."""

import errno
import os

from escape_case import (DENIED, EscapeCase, PYTHON, answers, main, on_host, payload_path, t)

# Answered as if the kernel were older, so that libraries fall back (B-014, B-016).
LIKE_OLD_KERNEL = {"clone3", "openat2", "unknown_9999"}
# The number's high half is not looked at by the kernel in these, so the call must be denied too; for
# unshare it is, and the kernel itself says EINVAL.
ANY_ERROR = {"unshare_user_high"}


class Syscalls(EscapeCase):
    def test_dangerous_calls_are_denied_b013_b015_b009(self):
        inside = answers(self.payload("syscalls").stdout)
        outside = answers(on_host(payload_path("syscalls")).stdout)
        self.assertEqual(set(inside), set(outside))
        self.assertGreater(len(inside), 60)
        without_control = []
        for name, answer in inside.items():
            with self.subTest(call=name):
                self.assertRegex(answer, r"^\d+$", f"{name}: {answer}")
                if name in LIKE_OLD_KERNEL:
                    self.assertEqual(int(answer), errno.ENOSYS)
                elif name not in ANY_ERROR:
                    self.assertIn(int(answer), DENIED, name)
                # Control: an unconfined root gets past the entry.
                if outside[name] in (str(errno.ENOSYS), str(errno.EPERM)):
                    without_control.append(name)
        # Not built into this kernel; everything else has its control.
        self.assertLessEqual(set(without_control),
                             {"kexec_load", "init_module", "finit_module", "delete_module", "iopl",
                              "ioperm", "unknown_9999", "acct", "quotactl", "perf_event_open",
                              "swapon", "swapoff", "bpf", "userfaultfd", "open_tree_attr",
                              "fchmodat2_setuid", "io_uring_setup", "io_uring_enter",
                              "io_uring_register"})

    def test_foreign_entries_are_shut_b011_b012(self):
        if os.uname().machine != "x86_64":
            self.skipTest("int 0x80 and x32 are x86-64 only")
        inside = answers(self.payload("foreign").stdout)
        outside = answers(on_host(payload_path("foreign")).stdout)
        self.assertEqual(set(inside), set(outside))
        for name, answer in inside.items():
            with self.subTest(call=name):
                self.assertIn(answer, ("signal 31", str(errno.ENOSYS), str(errno.EPERM)))
        if outside["int80_getpid"] != "ok":
            self.skipTest("this kernel has no 32-bit entry: no positive control")

    def test_every_thread_is_confined_b017(self):
        text = self.inside("""
import glob, threading
done = threading.Event()
threads = [threading.Thread(target=done.wait) for _ in range(4)]
for thread in threads:
    thread.start()
count = 0
for path in glob.glob("/proc/[0-9]*/task/*/status"):
    fields = dict(line.split(":", 1) for line in open(path) if ":" in line)
    get = lambda name: fields[name].strip()
    # PID 1 keeps the capabilities of its own namespace for late mounts; nothing else has any.
    own = "/proc/1/" in path
    ok = get("Seccomp") == "2" and get("NoNewPrivs") == "1"
    if not own:
        ok = ok and all(int(get(name), 16) == 0 for name in
                        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    print(path, "ok" if ok else {name: get(name) for name in
                                 ("Seccomp", "NoNewPrivs", "CapEff", "CapBnd", "CapAmb")})
    count += 1
done.set()
print("threads", count)
""")
        lines = text.splitlines()
        self.assertGreaterEqual(int(lines[-1].split()[1]), 6, text)
        bad = [line for line in lines[:-1] if not line.endswith(" ok")]
        self.assertEqual(bad, [])
        control = on_host("/bin/sh", "-c", "grep -E '^Seccomp:' /proc/self/status")
        self.assertIn(b"0", control.stdout)

    def test_threads_subprocesses_and_names_still_work_b014(self):
        self.assertEqual(self.inside("""
import subprocess, threading, socket, os, tempfile, multiprocessing
results = []
threads = [threading.Thread(target=results.append, args=(i,)) for i in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert sorted(results) == list(range(8))
assert subprocess.run(["/bin/echo", "sub"], capture_output=True).stdout == b"sub\\n"
pid = os.posix_spawn("/bin/true", ["true"], {})
assert os.waitpid(pid, 0)[1] == 0
assert socket.getaddrinfo("localhost", 80)
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
    os.chmod(file.name, 0o755)
print("fine")
"""), "fine")

    def test_terminal_injection_b008(self):
        text = """
import fcntl, os, termios
for name, number in (("sti", termios.TIOCSTI), ("linux", 0x541C), ("high", termios.TIOCSTI | 1 << 32)):
    try:
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        result = libc.syscall(16, 0, ctypes.c_ulong(number), ctypes.c_char_p(b"x"))
        print(name, "ok" if result == 0 else ctypes.get_errno())
    except OSError as error:
        print(name, error.errno)
"""
        with self.box.stream() as stream:
            outcome = stream.run(argv=[PYTHON, "-c", text], tty={"rows": 24, "columns": 80})
        result = answers(outcome.stdout.replace(b"\r", b""))
        self.assertEqual(set(result), {"sti", "linux", "high"}, outcome)
        for name, answer in result.items():
            self.assertNotEqual(answer, "ok", name)
        self.assertEqual(result["sti"], str(errno.EPERM))
        # Control: on a pty of its own an unconfined process may type into it.
        control = on_host(PYTHON, "-c", f"""
import os, pty, sys
pid, master = pty.fork()
if pid == 0:
    exec({text!r})
    os._exit(0)
data = b""
try:
    while True:
        part = os.read(master, 4096)
        if not part:
            break
        data += part
except OSError:
    pass
os.waitpid(pid, 0)
sys.stdout.buffer.write(data.replace(b"\\r", b""))
""")
        if b"sti ok" not in control.stdout:
            self.skipTest(f"TIOCSTI is off on this host, no control: {control.stdout!r}")

    def test_new_processes_of_init_cannot_be_attacked_b028(self):
        text = """
import os, sys
import glob
opened = []
for name in ("mem", "environ", "maps", "fd", "fd/0", "cwd", "root", "exe"):
    path = "/proc/1/" + name
    try:
        if name == "fd":
            os.listdir(path)
        elif name in ("fd/0", "cwd", "root", "exe"):
            os.readlink(path)
        else:
            os.close(os.open(path, os.O_RDONLY))
            if name == "maps":
                assert open(path).read()
        opened.append(name)
    except OSError:
        pass
    except AssertionError:
        pass
print("opened", opened)
"""
        self.assertEqual(self.inside(text), "opened []")
        control = on_host(PYTHON, "-c", text.replace("/proc/1/", "/proc/self/"))
        self.assertNotIn(b"[]", control.stdout)

    def test_init_cannot_be_replaced_b001(self):
        text = """
import glob, os
wrote = []
for path in glob.glob("/proc/[0-9]*/exe"):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
        try:
            os.close(os.open(path, flags))
            wrote.append(path)
        except OSError:
            pass
print("wrote", wrote)
"""
        init = t.BIN / "sandpool-init"
        before = init.read_bytes()
        self.assertEqual(self.inside(text), "wrote []")
        self.assertEqual(init.read_bytes(), before)


if __name__ == "__main__":
    main()
