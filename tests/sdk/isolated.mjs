// Isolated sessions as the published SDK uses them. Ids A-… are the behaviours of OpenSandbox's own
// suites.

import assert from "node:assert/strict";
import { Sandbox } from "@alibaba-group/opensandbox";
import { suite, wish } from "./harness.mjs";

const { test, before, after } = suite();

const UNKNOWN = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
let sandbox;

before(async () => {
  sandbox = await Sandbox.create(wish({
    extensions: { "bootstrap.execd.isolation": "enable" },
  }));
});

after(async () => {
  await sandbox?.kill();
  await sandbox?.close();
});

const text = (execution) => execution.logs.stdout.map((message) => message.text).join("\n");

async function outside(command) {
  return text(await sandbox.commands.run(command));
}

async function within(request, body) {
  return sandbox.isolation.withSession(request, body);
}

const rw = (path, more = {}) => ({ workspace: { path, mode: "rw" }, ...more });

test("A-057 isolation is available", async () => {
  const capabilities = await sandbox.isolation.capabilities();
  assert.equal(capabilities.available, true);
});

test("A-058 create, get, delete", async () => {
  const session = await sandbox.isolation.create(rw("/workspace"));
  assert.ok(session.sessionId);
  assert.equal((await session.get()).status, "active");
  await session.delete();
});

test("A-059 list has both, and not the deleted one", async () => {
  const one = await sandbox.isolation.create(rw("/workspace"));
  const two = await sandbox.isolation.create(rw("/workspace"));
  const listed = await sandbox.isolation.list();
  for (const session of [one, two]) {
    const found = listed.find((item) => item.session_id === session.sessionId);
    assert.equal(found.status, "active");
    assert.ok(found.created_at);
  }
  await one.delete();
  const ids = (await sandbox.isolation.list()).map((item) => item.session_id);
  assert.ok(!ids.includes(one.sessionId) && ids.includes(two.sessionId));
  await two.delete();
});

test("A-060 echo", async () => {
  await within(rw("/workspace"), async (session) => {
    const execution = await session.run("echo hello");
    assert.equal(text(execution), "hello");
    assert.equal(execution.exitCode, 0);
    assert.equal(execution.error, undefined);
  });
});

test("A-061 the shell is one of the first processes", async () => {
  await within(rw("/workspace"), async (session) => {
    assert.ok(Number(text(await session.run("echo $$"))) <= 2);
  });
});

test("A-062 envs of a run", async () => {
  await within(rw("/workspace"), async (session) => {
    assert.equal(text(await session.run("echo $GREETING", { envs: { GREETING: "hi" } })), "hi");
  });
});

test("A-063 export persists", async () => {
  await within(rw("/workspace"), async (session) => {
    await session.run("export KEPT=yes");
    assert.equal(text(await session.run("echo $KEPT")), "yes");
  });
});

test("A-064 a strict session's /tmp is its own", async () => {
  await within(rw("/workspace"), (one) => within(rw("/workspace"), async (two) => {
    await one.run("echo secret > /tmp/a064");
    assert.notEqual((await two.run("cat /tmp/a064")).exitCode, 0);
  }));
});

test("A-065 handlers get stdout", async () => {
  await within(rw("/workspace"), async (session) => {
    const seen = [];
    await session.run("echo one; echo two", undefined,
      { onStdout: (message) => { seen.push(message.text); } });
    assert.deepEqual(seen, ["one", "two"]);
  });
});

test("A-066 a file of one run is there in the next", async () => {
  await within(rw("/workspace"), async (session) => {
    await session.run("echo content > a066");
    assert.equal(text(await session.run("cat a066")), "content");
  });
});

test("A-067 overlay on /tmp is invisible to the sandbox", async () => {
  await within({ workspace: { path: "/tmp", mode: "overlay" } }, async (session) => {
    assert.equal((await session.run("echo x > /tmp/a067")).exitCode, 0);
    assert.equal(await outside("ls /tmp | grep -c a067 || true"), "0");
  });
});

test("A-068 rw is visible to the sandbox", async () => {
  await within(rw("/tmp"), async (session) => {
    await session.run("mkdir -p /tmp/a068/b && echo x > /tmp/a068/b/file");
    assert.equal(await outside("cat /tmp/a068/b/file"), "x");
    assert.equal(text(await session.run("cat /tmp/a068/b/file")), "x");
  });
});

test("A-069 a second delete and an unknown session reject", async () => {
  const session = await sandbox.isolation.create(rw("/workspace"));
  await session.delete();
  await assert.rejects(session.delete(), /404/);
  await assert.rejects(sandbox.isolation.attach(UNKNOWN), /404/);
});

test("A-070 attach echoes, and works", async () => {
  const session = await sandbox.isolation.create(rw("/workspace"));
  const attached = await sandbox.isolation.attach(session.sessionId);
  assert.deepEqual(attached.info.workspace, { path: "/workspace", mode: "rw" });
  assert.equal(text(await attached.run("echo on")), "on");
  assert.equal((await attached.get()).status, "active");
  await attached.delete();
});

test("A-071 rw files: upload and download", async () => {
  await within(rw("/tmp"), async ({ files }) => {
    await files.writeFiles([{ path: "/tmp/a071", data: "text äö" }]);
    assert.equal(await files.readFile("/tmp/a071"), "text äö");
    const bytes = new Uint8Array([0, 1, 2, 255]);
    await files.writeFiles([{ path: "/tmp/a071b", data: bytes }]);
    assert.deepEqual([...await files.readBytes("/tmp/a071b")], [...bytes]);
  });
});

test("A-072 rw files: info", async () => {
  await within(rw("/tmp"), async ({ files }) => {
    await files.writeFiles([{ path: "/tmp/a072", data: "four", mode: 644 }]);
    const info = (await files.getFileInfo(["/tmp/a072"]))["/tmp/a072"];
    assert.equal(info.path, "/tmp/a072");
    assert.equal(info.type, "file");
    assert.equal(info.size, 4);
    assert.equal(info.mode, 644);
  });
});

test("A-073 rw files: search", async () => {
  await within(rw("/tmp"), async ({ files }) => {
    await files.writeFiles([{ path: "/tmp/tag73.txt", data: "x" }]);
    const found = await files.search({ path: "/tmp", pattern: "tag73*" });
    assert.equal(found.length, 1);
    assert.ok(found[0].path.includes("tag73.txt"));
  });
});

test("A-074 rw files: directories", async () => {
  await within(rw("/tmp"), async ({ files }) => {
    await files.createDirectories([{ path: "/tmp/a074/b", mode: 755 }]);
    assert.equal((await files.getFileInfo(["/tmp/a074/b"]))["/tmp/a074/b"].type, "directory");
  });
});

test("A-075 rw files: delete", async () => {
  await within(rw("/tmp"), async (session) => {
    await session.files.writeFiles([{ path: "/tmp/a075", data: "x" }]);
    await session.files.deleteFiles(["/tmp/a075"]);
    assert.equal(text(await session.run("test -e /tmp/a075 || echo not found")), "not found");
    await assert.rejects(session.files.getFileInfo(["/tmp/a075"]));
  });
});

test("A-076 rw files: move", async () => {
  await within(rw("/tmp"), async ({ files }) => {
    await files.writeFiles([{ path: "/tmp/a076", data: "moved" }]);
    await files.moveFiles([{ src: "/tmp/a076", dest: "/tmp/a076b" }]);
    assert.equal(await files.readFile("/tmp/a076b"), "moved");
  });
});

test("A-077 rw files: permissions", async () => {
  await within(rw("/tmp"), async (session) => {
    await session.files.writeFiles([{ path: "/tmp/a077", data: "x" }]);
    await session.files.setPermissions([{ path: "/tmp/a077", mode: 755 }]);
    assert.equal(text(await session.run("stat -c %a /tmp/a077")), "755");
  });
});

test("A-078 rw files: replace", async () => {
  await within(rw("/tmp"), async ({ files }) => {
    await files.writeFiles([{ path: "/tmp/a078", data: "old text" }]);
    await files.replaceContents([{ path: "/tmp/a078", oldContent: "old", newContent: "new" }]);
    assert.equal(await files.readFile("/tmp/a078"), "new text");
  });
});

test("A-079 rw files: list", async () => {
  await within(rw("/tmp/a079"), async ({ files }) => {
    await files.writeFiles([{ path: "/tmp/a079/file", data: "x" }]);
    await files.createDirectories([{ path: "/tmp/a079/dir", mode: 755 }]);
    const listed = await files.listDirectory({ path: "/tmp/a079", depth: 1 });
    assert.deepEqual(listed.map((item) => item.type).sort(), ["directory", "file"]);
  });
});

test("A-080 ro reads and does not write", async () => {
  await outside("mkdir -p /workspace/a080 && echo base > /workspace/a080/file");
  await within({ workspace: { path: "/workspace/a080", mode: "ro" } }, async (session) => {
    assert.equal(text(await session.run("cat file")), "base");
    assert.notEqual((await session.run("echo x > file")).exitCode, 0);
    assert.equal(await session.files.readFile("/workspace/a080/file"), "base\n");
    assert.equal((await session.files.search({ path: "/workspace/a080", pattern: "f*" })).length, 1);
    assert.equal((await session.files.listDirectory({ path: "/workspace/a080" })).length, 1);
    await assert.rejects(session.files.writeFiles([{ path: "/workspace/a080/x", data: "x" }]));
  });
});

test("A-081 runOnce and withSession", async () => {
  assert.equal(text(await sandbox.isolation.runOnce("echo once", "/workspace")), "once");
  const opts = { workspaceMode: "rw", runOpts: { envs: { A: "env" } } };
  assert.equal(text(await sandbox.isolation.runOnce("echo $A", "/workspace", opts)), "env");
  const value = await within(rw("/workspace"), async (session) => {
    await session.run("X=1");
    assert.match(text(await session.run("echo $$")), /^\d+$/);
    return text(await session.run("echo $X"));
  });
  assert.equal(value, "1");
});

test("A-082 bind rw", async () => {
  await outside("mkdir -p /data/a082 /mnt/a082");
  const binds = [{ source: "/data/a082", dest: "/mnt/a082", readonly: false }];
  await within(rw("/workspace", { binds }), async (session) => {
    await session.run("echo bound > /mnt/a082/file");
  });
  assert.equal(await outside("cat /data/a082/file"), "bound");
});

test("A-083 a bind of /etc is refused", async () => {
  await assert.rejects(
    sandbox.isolation.create(rw("/workspace", { binds: [{ source: "/etc" }] })), /400/);
});

test("A-084 bind ro", async () => {
  await outside("mkdir -p /data/a084 /mnt/a084; echo there > /data/a084/file");
  const binds = [{ source: "/data/a084", dest: "/mnt/a084", readonly: true }];
  await within(rw("/workspace", { binds }), async (session) => {
    assert.equal(text(await session.run("cat /mnt/a084/file")), "there");
    assert.notEqual((await session.run("echo x > /mnt/a084/file")).exitCode, 0);
  });
});

// What follows is asked of those only that say they can diff or commit, and holds here anyway.

const overlay = (path) => ({ workspace: { path, mode: "overlay" } });

test("A-085 overlay: the sandbox's files are read, and not changed", async () => {
  await outside("mkdir -p /workspace/a085 && echo base > /workspace/a085/file");
  await within(overlay("/workspace/a085"), async (session) => {
    assert.equal(text(await session.run("cat file; echo changed > file; echo n > new")), "base");
    assert.equal(await outside("cd /workspace/a085; ls; cat file"), "file\nbase");
  });
});

test("A-086 overlay: an upload is there for the session only", async () => {
  await within(overlay("/workspace"), async ({ files }) => {
    await files.writeFiles([{ path: "/workspace/a086", data: "up" }]);
    assert.equal(await files.readFile("/workspace/a086"), "up");
    assert.equal(await outside("test -e /workspace/a086 || echo none"), "none");
  });
});

test("A-087 overlay: search and list show both layers", async () => {
  await outside("mkdir -p /workspace/a087 && echo x > /workspace/a087/lower.txt");
  await within(overlay("/workspace/a087"), async ({ files }) => {
    await files.writeFiles([{ path: "/workspace/a087/upper.txt", data: "x" }]);
    assert.equal((await files.search({ path: "/workspace/a087", pattern: "*.txt" })).length, 2);
    assert.equal((await files.listDirectory({ path: "/workspace/a087" })).length, 2);
  });
});

test("A-088 overlay: what is deleted is gone here and stays there", async () => {
  await outside("mkdir -p /workspace/a088 && echo base > /workspace/a088/lower");
  await within(overlay("/workspace/a088"), async (session) => {
    await session.files.writeFiles([{ path: "/workspace/a088/upper", data: "x" }]);
    await session.files.deleteFiles(["/workspace/a088/upper", "/workspace/a088/lower"]);
    assert.notEqual((await session.run("cat upper")).exitCode, 0);
    assert.notEqual((await session.run("cat lower")).exitCode, 0);
    await assert.rejects(session.files.readFile("/workspace/a088/lower"));
    assert.equal(await outside("cat /workspace/a088/lower"), "base");
  });
});

test("A-089 overlay: move", async () => {
  await within(overlay("/workspace"), async ({ files }) => {
    await files.writeFiles([{ path: "/workspace/a089", data: "moved" }]);
    await files.moveFiles([{ src: "/workspace/a089", dest: "/workspace/a089b" }]);
    assert.equal(await files.readFile("/workspace/a089b"), "moved");
  });
});

test("A-090 overlay: a chmod is seen by what runs", async () => {
  await outside("mkdir -p /workspace/a090 && cd /workspace/a090 && echo x > lower && chmod 644 lower");
  await within(overlay("/workspace/a090"), async (session) => {
    await session.files.writeFiles([{ path: "/workspace/a090/file", data: "x" }]);
    await session.files.setPermissions([{ path: "/workspace/a090/file", mode: 755 },
      { path: "/workspace/a090/lower", mode: 755 }]);
    assert.equal(text(await session.run("stat -c %a file lower")), "755\n755");
    assert.equal(await outside("stat -c %a /workspace/a090/lower"), "644");
  });
});

test("A-091 overlay: replace", async () => {
  await outside("mkdir -p /workspace/a091 && echo 'old text' > /workspace/a091/file");
  await within(overlay("/workspace/a091"), async ({ files }) => {
    const item = { path: "/workspace/a091/file", oldContent: "old", newContent: "new" };
    await files.replaceContents([item]);
    assert.equal(await files.readFile("/workspace/a091/file"), "new text\n");
    assert.equal(await outside("cat /workspace/a091/file"), "old text");
  });
});
