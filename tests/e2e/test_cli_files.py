"""sandpool cp and sandpool files, and the routes of ours that they use."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import sandpool_test as t  # noqa: E402
from sandpool_test import SandpoolCase, main, wait_until  # noqa: E402


class CliFiles(SandpoolCase):
    config = {"pools": {"default": {"max_idle": 2}}}

    def setUp(self):
        super().setUp()
        self.box = self.daemon.acquire(policy="wait", wait="20s")
        self.addCleanup(self.box.__exit__)
        self.local = tempfile.mkdtemp(prefix="sandpool-cp-")
        self.addCleanup(shutil.rmtree, self.local, ignore_errors=True)

    def at(self, path):
        return f"{self.box.id}:{path}"

    def here(self, *names):
        return os.path.join(self.local, *names)

    def write(self, name, data, mode=0o644):
        os.makedirs(os.path.dirname(self.here(name)), exist_ok=True)
        with open(self.here(name), "wb") as file:
            file.write(data)
        os.chmod(self.here(name), mode)
        return self.here(name)

    def read(self, *names):
        with open(self.here(*names), "rb") as file:
            return file.read()

    def cli(self, *args, **options):
        return self.daemon.cli(*args, **options)

    def works(self, *args, **options):
        done = self.cli(*args, **options)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        return done.stdout

    def fails(self, *args, code=None, **options):
        done = self.cli("--json", *args, **options)
        self.assertEqual(done.returncode, 125, done)
        fault = json.loads(done.stderr)
        if code:
            self.assertEqual(fault["code"], code, fault)
        return fault["message"]

    def shell(self, text):
        outcome = self.box.shell(text)
        self.assertEqual(outcome.exit_code, 0, outcome)
        return outcome.text

    # -- cp --

    def test_a_file_goes_in_and_comes_out(self):
        data = os.urandom(3_000_000)
        self.write("a.bin", data, 0o750)
        self.works("cp", self.here("a.bin"), self.at("/workspace/b.bin"))
        self.assertEqual(self.shell("stat -c %a /workspace/b.bin; sha256sum < /workspace/b.bin"),
                         "750\n" + hashlib.sha256(data).hexdigest() + "  -")
        self.works("cp", self.at("/workspace/b.bin"), self.here("c.bin"))
        self.assertEqual(self.read("c.bin"), data)
        self.assertEqual(stat.S_IMODE(os.stat(self.here("c.bin")).st_mode), 0o750)

    def test_a_directory_takes_the_copy_under_its_name(self):
        self.write("a", b"a")
        for target in ("/workspace", "/workspace/", "/tmp/new/"):
            self.works("cp", self.here("a"), self.at(target))
        self.assertEqual(self.shell("cat /workspace/a /tmp/new/a"), "aa")
        os.mkdir(self.here("d"))
        self.works("cp", self.at("/workspace/a"), self.here("d"))
        self.assertEqual(self.read("d", "a"), b"a")

    def test_standard_streams(self):
        self.works("cp", "-", self.at("/workspace/in"), input=b"x" * 300_000)
        self.assertEqual(self.works("cp", self.at("/workspace/in"), "-"), b"x" * 300_000)
        self.works("cp", "-", self.at("/workspace/empty"), input=b"")
        self.assertEqual(self.works("cp", self.at("/workspace/empty"), "-"), b"")
        self.works("cp", "--mode", "711", "-", self.at("/workspace/m"), input=b"m")
        self.assertEqual(self.shell("stat -c %a /workspace/m"), "711")

    def test_relative_paths_are_below_the_workspace(self):
        self.works("cp", "-", self.at("r/s"), input=b"1")
        self.assertEqual(self.shell("cat /workspace/r/s"), "1")

    def test_no_path_is_the_workspace(self):
        self.write("d/f", b"f")
        self.works("cp", "-r", self.here("d"), self.at(""))
        self.works("cp", self.here("d/f"), self.at(""))
        self.assertEqual(self.shell("cat /workspace/d/f /workspace/f"), "ff")
        self.assertIn(b"/workspace/f", self.works("files", "ls", self.at("")))
        done = self.cli("files", "rm", "-r", self.at(""))
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"a PATH is missing", done.stderr)
        self.assertEqual(self.shell("cat /workspace/d/f"), "f")

    def test_a_tree_goes_in_and_comes_out(self):
        self.write("tree/a", b"a", 0o600)
        self.write("tree/sub/b", b"b" * 100_000, 0o755)
        self.write("tree/sub/odd\nname 😀", b"odd")
        os.mkdir(self.here("tree/empty"))
        os.symlink("a", self.here("tree/link"))
        os.mkfifo(self.here("tree/pipe"))
        done = self.cli("cp", "-r", self.here("tree"), self.at("/workspace"))
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"link", done.stderr)
        self.assertIn(b"pipe", done.stderr)
        self.assertEqual(self.shell("cd /workspace/tree; stat -c '%a %F' a sub sub/b empty; ls -a"),
                         "600 regular file\n755 directory\n755 regular file\n755 directory\n"
                         ".\n..\na\nempty\nsub")
        self.shell("cd /workspace/tree; ln -s /etc/passwd l; mkfifo p; chmod 500 empty")
        done = self.cli("cp", "-r", self.at("/workspace/tree"), self.here("back"))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.read("back", "sub", "b"), b"b" * 100_000)
        self.assertEqual(self.read("back", "sub", "odd\nname 😀"), b"odd")
        self.assertEqual(sorted(os.listdir(self.here("back"))), ["a", "empty", "sub"])
        self.works("cp", "-r", self.here("tree", "sub", "."), self.at("/workspace/contents"))
        self.works("cp", "-r", self.at("/workspace/contents"), self.here("back"))
        self.assertEqual(self.read("back", "contents", "b"), b"b" * 100_000)

    def test_what_is_there_is_replaced_as_a_whole(self):
        self.write("x", b"old" * 1000)
        inode = os.stat(self.here("x")).st_ino
        self.shell("echo new > /workspace/x")
        self.works("cp", self.at("/workspace/x"), self.here("x"))
        self.assertEqual(self.read("x"), b"new\n")
        self.assertNotEqual(os.stat(self.here("x")).st_ino, inode)
        self.works("cp", self.at("/workspace/x"), "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_a_copy_that_breaks_off_leaves_nothing(self):
        self.shell("head -c 50000000 /dev/zero > /workspace/big")
        self.write("big", b"mine")
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "cp", self.at("/workspace/big"), "-"],
            stdout=subprocess.PIPE, env={"SANDPOOL_SOCKET": self.daemon.socket_path})
        process.stdout.read(1000)
        process.stdout.close()
        self.assertEqual(process.wait(20), 141)
        process = subprocess.Popen(
            [str(t.BIN / "sandpool"), "cp", "-", self.at("/workspace/up")],
            stdin=subprocess.PIPE, env={"SANDPOOL_SOCKET": self.daemon.socket_path})
        process.stdin.write(b"x" * 1_000_000)
        process.stdin.flush()
        process.kill()
        process.wait()
        process.stdin.close()
        wait_until(lambda: self.shell("ls -A /workspace") == "big", what="nothing is left")
        self.box.release()
        self.fails("cp", self.at("/workspace/big"), self.here("big"))
        self.assertEqual(self.read("big"), b"mine")
        self.assertEqual(os.listdir(self.local), ["big"])

    def test_faults_say_what_is_wrong(self):
        self.write("f", b"f")
        os.mkdir(self.here("d"))
        self.fails("cp", self.at("/none"), self.here("x"), code="FILE_NOT_FOUND")
        self.fails("cp", self.here("none"), self.at("/workspace/x"))
        self.fails("cp", self.here("f"), self.at("/etc/x"), code="FILE_DENIED")
        self.fails("cp", "-", self.at("/etc/x"), code="FILE_DENIED", input=b"x" * 3_000_000)
        self.assertIn("-r", self.fails("cp", self.here("d"), self.at("/workspace/x")))
        self.assertIn("-r", self.fails("cp", self.at("/workspace"), self.here("x")))
        self.fails("cp", self.here("f"), self.here("g"), code="INVALID_ARGUMENT")
        self.fails("cp", self.at("/a"), self.at("/b"), code="INVALID_ARGUMENT")
        self.fails("cp", "--mode", "999", self.here("f"), self.at("/workspace/x"),
                   code="INVALID_ARGUMENT")
        self.fails("cp", self.here("f"), self.box.id[::-1] + ":/x", code="NOT_FOUND")
        self.assertEqual(self.shell("ls -A /workspace"), "")

    def test_a_hostile_listing_stays_in_its_directory(self):
        """What the daemon passes on is the sandbox's word; here a false daemon says it."""
        listing = [{"path": "/t/../../evil", "type": "file", "size": 1, "mode": 644}]
        answers = {"files/info": {"/t": {"path": "/t", "type": "directory", "mode": 755}},
                   "directories/list": listing}
        with FalseDaemon(self.here("socket"), answers) as socket_path:
            for path in ("/t/../../evil", "/t/..", "/elsewhere/x", "/t//x", "/tx", "t/x", "/t/./x"):
                listing[0]["path"] = path
                done = self.cli("cp", "-r", self.at("/t"), self.here("out"),
                                env={"SANDPOOL_SOCKET": socket_path})
                self.assertEqual(done.returncode, 125, path)
                self.assertIn(b"lists", done.stderr)
        os.remove(self.here("socket"))
        self.assertEqual(os.listdir(self.local), ["out"])
        self.assertEqual([files for _top, _directories, files in os.walk(self.here("out"))
                          if files], [])

    # -- files --

    def test_ls_and_stat(self):
        self.shell("cd /workspace; mkdir -p a/b; printf 12345 > a/f; chmod 640 a/f; touch a/b/g")
        table = self.works("files", "ls", self.at("/workspace/a")).decode().splitlines()
        self.assertEqual(table[0].split(), ["MODE", "OWNER", "GROUP", "SIZE", "TYPE", "MODIFIED",
                                            "PATH"])
        self.assertEqual([line.split()[-1] for line in table[1:]],
                         ["/workspace/a/b", "/workspace/a/f"])
        deep = json.loads(self.works("--json", "files", "ls", "-d", "2", self.at("/workspace/a")))
        self.assertEqual([one["path"] for one in deep],
                         ["/workspace/a/b", "/workspace/a/b/g", "/workspace/a/f"])
        info = json.loads(self.works("--json", "files", "stat", self.at("/workspace/a/f")))
        self.assertEqual((info["size"], info["mode"], info["type"]), (5, 640, "file"))
        self.assertIn(b"640", self.works("files", "stat", self.at("/workspace/a/f")))

    def test_rm_mkdir_mv(self):
        self.works("files", "mkdir", self.at("/workspace/a/b"), self.at("/workspace/c"))
        self.works("files", "mkdir", "--mode", "700", self.at("/workspace/d"))
        self.assertEqual(self.shell("stat -c %a /workspace/a/b /workspace/c /workspace/d"),
                         "755\n755\n700")
        self.works("files", "mv", self.at("/workspace/c"), "/workspace/a/c")
        self.works("files", "mv", self.at("/workspace/d"), self.at("/workspace/a/d"))
        self.shell("touch /workspace/f")
        self.works("files", "rm", self.at("/workspace/f"))
        self.fails("files", "rm", self.at("/workspace/a"), code="FILE_KIND")
        self.works("files", "rm", "-r", self.at("/workspace/a"))
        self.assertEqual(self.shell("ls -A /workspace"), "")

    def test_missing_things_are_not_found(self):  # B-196
        for args in (("stat", self.at("/none")), ("ls", self.at("/none")),
                     ("rm", self.at("/workspace/none")), ("rm", "-r", self.at("/workspace/none")),
                     ("rm", self.at("/none")),
                     ("mv", self.at("/workspace/none"), "/workspace/x")):
            self.fails("files", *args, code="FILE_NOT_FOUND")
        self.fails("files", "mv", self.at("/etc/passwd"), "/workspace/x", code="FILE_DENIED")
        self.shell("touch /workspace/a /workspace/b")
        self.fails("files", "mv", self.at("/workspace/a"), "/workspace/b", code="FILE_EXISTS")
        for args in (("lss", self.at("/")), ("stat", "/none"), ("mv", self.at("/a")),
                     ("ls", "-d", "x", self.at("/"))):
            self.fails("files", *args, code="INVALID_ARGUMENT")

    def test_each_place_is_tried(self):
        self.shell("touch /workspace/a /workspace/b")
        done = self.cli("files", "rm", self.at("/workspace/a"), self.at("/workspace/none"),
                        self.at("/workspace/b"))
        self.assertEqual(done.returncode, 125)
        self.assertEqual(self.shell("ls -A /workspace"), "")

    # -- the routes --

    def test_another_token_finds_no_sandbox(self):
        other = self.daemon.acquire(policy="wait", wait="20s")
        self.addCleanup(other.__exit__)
        for method, target in (("GET", "files?path=/etc/passwd"), ("PUT", "files?path=/tmp/x"),
                               ("GET", "files/info?path=/"), ("DELETE", "files?path=/tmp/x"),
                               ("GET", "directories/list?path=/")):
            done = subprocess.run(
                ["setpriv", "--reuid", "65534", "--clear-groups", t.PYTHON, "-c", PEER,
                 self.daemon.socket_path, method, f"/v1/sandboxes/{self.box.id}/{target}",
                 other.token], capture_output=True, check=False)
            self.assertIn(done.stdout.strip(), (b"404", b"denied"), done)

    def test_routes_of_ours(self):
        root = f"/v1/sandboxes/{self.box.id}"
        headers = self.box.headers()

        def ask(method, target, **options):
            return self.daemon.request(method, root + target, headers=headers, **options)

        response = ask("PUT", "/files?path=/workspace/a&mode=640", raw=b"data")
        self.assertEqual((response.status, response.body), (204, b""))
        response = ask("GET", "/files?path=/workspace/a")
        self.assertEqual((response.status, response.body), (200, b"data"))
        self.assertEqual(ask("GET", "/files?path=~/x").status, 404)
        self.assertEqual(ask("GET", "/files?path=$HOME").code, "FILE_NOT_FOUND")
        self.assertEqual(ask("PUT", "/files", raw=b"x").code, "INVALID_ARGUMENT")
        self.assertEqual(ask("PUT", "/files?path=/workspace/a&mode=8", raw=b"x").code,
                         "INVALID_ARGUMENT")
        self.assertEqual(ask("PUT", "/files?path=/workspace", raw=b"x").code, "FILE_KIND")
        self.assertEqual(ask("GET", "/files?path=/workspace").code, "FILE_KIND")
        response = ask("POST", "/files/replace?verbose=true",
                       body={"/workspace/a": {"old": "a", "new": "o"}})
        self.assertEqual(response.json, {"/workspace/a": {"replacedCount": 2}})
        self.assertEqual(ask("POST", "/files/permissions",
                             body={"/workspace/a": {"owner": "no-such"}}).code, "INVALID_ARGUMENT")
        self.assertEqual(ask("PUT", "/files?path=/workspace/full",
                             raw=bytes(100 << 20)).code, "FILE_FULL")
        self.assertEqual(self.shell("ls -A /workspace; cat /workspace/a"), "a\ndoto")


PEER = """
import http.client, socket, sys
sock = socket.socket(socket.AF_UNIX)
try:
    sock.connect(sys.argv[1])
except PermissionError:
    print("denied")
    raise SystemExit
connection = http.client.HTTPConnection("x")
connection.sock = sock
connection.request(sys.argv[2], sys.argv[3], b"x" if sys.argv[2] == "PUT" else None,
                   {"X-Sandpool-Token": sys.argv[4]})
print(connection.getresponse().status)
"""


class FalseDaemon:
    """Answers with JSON by what the target contains."""

    def __init__(self, path, answers):
        self.path = path
        self.answers = answers

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += sock.recv(65536)
                target = head.split()[1].decode()
                body = json.dumps(next((value for key, value in self.answers.items()
                                        if key in target), {})).encode()
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def __enter__(self):
        import socket
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self.path

    def __exit__(self, *_):
        import socket
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


if __name__ == "__main__":
    main()
