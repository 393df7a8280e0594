// Files and directories. Ids A-… are the behaviours of OpenSandbox's own suites, in whose order
// these run: each begins where the one before ended.

import assert from "node:assert/strict";
import { Sandbox } from "@alibaba-group/opensandbox";
import { suite, wish } from "./harness.mjs";

const { test, before, after } = suite();

const dir1 = "/tmp/fs_test1_7";
const dir2 = "/tmp/fs_test2_7";
const file1 = `${dir1}/test_file1.txt`;
const file2 = `${dir1}/test_file2.txt`;
const file3 = `${dir1}/test_file3.txt`;
const moved3 = `${dir2}/moved_file3.txt`;
const content = "Hello Filesystem!\nLine 2 with special chars: åäö\nLine 3";
const bytes = new TextEncoder().encode(content);
let sandbox;

before(async () => {
  sandbox = await Sandbox.create(wish());
});

after(async () => {
  await sandbox?.kill();
  await sandbox?.close();
});

const texts = (messages) => messages.map((message) => message.text);

async function collect(stream) {
  const parts = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

test("A-029 directories are made with their modes", async () => {
  await sandbox.files.createDirectories([
    { path: dir1, mode: 755 },
    { path: dir2, mode: 644 },
  ]);
  const info = await sandbox.files.getFileInfo([dir1, dir2]);
  assert.equal(info[dir1].path, dir1);
  assert.equal(info[dir2].path, dir2);
  assert.equal(info[dir1].mode, 755);
  assert.equal(info[dir2].mode, 644);
  assert.equal(info[dir1].type, "directory");
});

test("A-030 a command sees both", async () => {
  const ls = await sandbox.commands.run("ls -la | grep fs_test", { workingDirectory: "/tmp" });
  assert.equal(ls.error, undefined);
  assert.equal(ls.logs.stdout.length, 2);
});

test("A-031 files are written from text and bytes, with mode, owner and group", async () => {
  await sandbox.files.writeFiles([
    { path: file1, data: content, mode: 644 },
    { path: file2, data: bytes, mode: 755 },
    { path: file3, data: bytes, mode: 755, owner: "nobody", group: "nogroup" },
  ]);
  const info = await sandbox.files.getFileInfo([file1, file2, file3]);
  assert.deepEqual([info[file1].mode, info[file2].mode, info[file3].mode], [644, 755, 755]);
  assert.equal(info[file1].size, bytes.length);
  assert.equal(info[file3].owner, "nobody");
  assert.equal(info[file3].group, "nogroup");
  assert.ok(Math.abs(Date.now() - info[file1].modifiedAt.getTime()) < 60_000);
});

test("A-032 a search finds all three by their absolute paths", async () => {
  const found = await sandbox.files.search({ path: dir1, pattern: "*" });
  assert.deepEqual(found.map((file) => file.path).sort(), [file1, file2, file3]);
});

test("A-033 text, a range, bytes and a stream read the same", async () => {
  assert.equal(await sandbox.files.readFile(file1, { encoding: "utf-8" }), content);
  assert.equal(await sandbox.files.readFile(file1, { encoding: "utf-8", range: "bytes=0-9" }),
    content.slice(0, 10));
  assert.deepEqual(Buffer.from(await sandbox.files.readBytes(file2)), Buffer.from(bytes));
  assert.deepEqual(await collect(sandbox.files.readBytesStream(file3)), Buffer.from(bytes));
});

test("A-034 permissions are visible afterwards", async () => {
  await sandbox.files.setPermissions([
    { path: file1, mode: 755, owner: "nobody", group: "nogroup" },
    { path: file2, mode: 600, owner: "nobody", group: "nogroup" },
  ]);
  const info = await sandbox.files.getFileInfo([file1, file2]);
  assert.equal(info[file1].mode, 755);
  assert.equal(info[file1].owner, "nobody");
  assert.equal(info[file1].group, "nogroup");
  assert.equal(info[file2].mode, 600);
});

test("A-035 overwriting changes the content", async () => {
  await sandbox.files.writeFiles([
    { path: file1, data: `${content}\nAppended line to file1`, mode: 644 },
    { path: file2, data: `${content}\nAppended line to file2`, mode: 755 },
  ]);
  assert.equal(await sandbox.files.readFile(file1), `${content}\nAppended line to file1`);
  assert.equal(await sandbox.files.readFile(file2), `${content}\nAppended line to file2`);
});

test("A-036 replacing counts: one, none, three, and per file in a batch", async () => {
  const replace = (entries) => sandbox.files.replaceContentsDetailed(entries);
  const other = `${dir1}/other.txt`;
  assert.deepEqual(
    await replace([{ path: file1, oldContent: "Appended line", newContent: "Replaced line" }]),
    [{ path: file1, replacedCount: 1 }]);
  const after1 = await sandbox.files.readFile(file1);
  assert.equal(after1, `${content}\nReplaced line to file1`);
  assert.deepEqual(
    await replace([{ path: file1, oldContent: "no such text", newContent: "x" }]),
    [{ path: file1, replacedCount: 0 }]);
  assert.equal(await sandbox.files.readFile(file1), after1);
  await sandbox.files.writeFiles([{ path: other, data: "a-a-a", mode: 644 }]);
  assert.deepEqual(await replace([{ path: other, oldContent: "a", newContent: "bb" }]),
    [{ path: other, replacedCount: 3 }]);
  assert.equal(await sandbox.files.readFile(other), "bb-bb-bb");
  const batch = await replace([
    { path: other, oldContent: "bb", newContent: "c" },
    { path: file1, oldContent: "Replaced", newContent: "New" },
  ]);
  assert.deepEqual(Object.fromEntries(batch.map((one) => [one.path, one.replacedCount])),
    { [other]: 3, [file1]: 1 });
  assert.equal(await sandbox.files.replaceContents(
    [{ path: other, oldContent: "c", newContent: "d" }]), undefined);
  assert.equal(await sandbox.files.readFile(other), "d-d-d");
  await sandbox.files.deleteFiles([other]);
});

test("A-037 a file moves into another directory", async () => {
  await sandbox.files.moveFiles([{ src: file3, dest: moved3 }]);
  assert.equal(await sandbox.files.readFile(moved3), content);
  await assert.rejects(sandbox.files.readFile(file3));
});

test("A-038 a deleted file cannot be read", async () => {
  await sandbox.files.deleteFiles([file2]);
  await assert.rejects(sandbox.files.readFile(file2), (error) => error.statusCode === 404);
  await sandbox.files.deleteFiles([file2]);
});

test("A-039 directories go with what is in them", async () => {
  await sandbox.files.deleteDirectories([dir1, dir2]);
  const verify = await sandbox.commands.run(
    `test ! -d ${dir1} && test ! -d ${dir2} && echo OK`, { workingDirectory: "/tmp" });
  assert.equal(verify.error, undefined);
  assert.deepEqual(texts(verify.logs.stdout), ["OK"]);
});

test("A-040 offset and limit give lines", async () => {
  const path = "/tmp/lines.txt";
  await sandbox.files.writeFiles([{ path, data: "one\ntwo\nthree\nfour\n", mode: 644 }]);
  const read = (opts) => sandbox.files.readFile(path, opts);
  assert.equal(await read({ offset: 1, limit: 2 }), "one\ntwo");
  assert.equal(await read({ offset: 3, limit: 2 }), "three\nfour");
  assert.equal(await read({ offset: 3 }), "three\nfour");
  assert.equal(await read({ limit: 3 }), "one\ntwo\nthree");
  assert.equal(await read({ offset: 9 }), "");
});

test("an async iterable is uploaded in chunks", async () => {
  const path = "/workspace/deep/er/streamed.bin";
  async function* parts() {
    for (let i = 0; i < 64; i++) yield new Uint8Array(65536).fill(i);
  }
  await sandbox.files.writeFiles([{ path, data: parts(), mode: 640 }]);
  const back = Buffer.from(await sandbox.files.readBytes(path));
  assert.equal(back.length, 64 * 65536);
  for (let i = 0; i < 64; i++) assert.equal(back[i * 65536 + 7], i);
  assert.equal((await sandbox.files.getFileInfo([path]))[path].mode, 640);
});

test("a listing goes as deep as it is told", async () => {
  const paths = async (depth) =>
    (await sandbox.files.listDirectory({ path: "/workspace/deep", depth })).map((one) => one.path);
  assert.deepEqual(await paths(0), []);
  assert.deepEqual(await paths(undefined), ["/workspace/deep/er"]);
  assert.deepEqual(await paths(2), ["/workspace/deep/er", "/workspace/deep/er/streamed.bin"]);
});
