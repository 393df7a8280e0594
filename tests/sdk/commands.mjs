// Commands in both forms, shell sessions, metrics. Ids A-… are the behaviours of OpenSandbox's own
// suites.

import assert from "node:assert/strict";
import { Sandbox } from "@alibaba-group/opensandbox";
import { suite, until, wish } from "./harness.mjs";

const { test, before, after } = suite();

const UNKNOWN = "00000000000000000000000000000000";
let sandbox;

before(async () => {
  sandbox = await Sandbox.create(wish());
});

after(async () => {
  await sandbox?.kill();
  await sandbox?.close();
});

const texts = (messages) => messages.map((message) => message.text);

function assertRecent(timestamp) {
  assert.equal(typeof timestamp, "number");
  assert.ok(Math.abs(Date.now() - timestamp) < 60_000, `timestamp ${timestamp}`);
}

test("A-005 metrics are of this sandbox and of now", async () => {
  const metrics = await sandbox.getMetrics();
  assert.ok(metrics.cpuCount > 0);
  assert.ok(metrics.cpuUsedPercentage >= 0 && metrics.cpuUsedPercentage <= 100);
  assert.ok(metrics.memoryTotalMiB > 0);
  assert.ok(metrics.memoryUsedMiB > 0 && metrics.memoryUsedMiB <= metrics.memoryTotalMiB);
  assert.ok(Math.abs(Date.now() - metrics.timestamp) < 120_000);
});

test("A-017 echo gives an id, one line, no error, exit code 0", async () => {
  const execution = await sandbox.commands.run("echo 'Hello OpenSandbox E2E'");
  assert.ok(execution.id);
  assert.equal(execution.error, undefined);
  assert.deepEqual(texts(execution.logs.stdout), ["Hello OpenSandbox E2E"]);
  assertRecent(execution.logs.stdout[0].timestamp);
  assert.equal(execution.exitCode, 0);
  assert.ok(execution.complete.executionTimeMs >= 0);
});

test("A-018 handlers see one init, one completion and no error", async () => {
  const seen = { init: [], stdout: [], stderr: [], complete: [], error: [] };
  await sandbox.commands.run("echo out; echo err >&2", {}, {
    onInit: (event) => seen.init.push(event),
    onStdout: (event) => seen.stdout.push(event),
    onStderr: (event) => seen.stderr.push(event),
    onExecutionComplete: (event) => seen.complete.push(event),
    onError: (event) => seen.error.push(event),
  });
  assert.equal(seen.init.length, 1);
  assertRecent(seen.init[0].timestamp);
  assert.deepEqual(texts(seen.stdout), ["out"]);
  assert.deepEqual(texts(seen.stderr), ["err"]);
  assert.equal(seen.complete.length, 1);
  assert.deepEqual(seen.error, []);
});

test("A-019 a command runs in the working directory that is asked for", async () => {
  const execution = await sandbox.commands.run("pwd", { workingDirectory: "/tmp" });
  assert.deepEqual(texts(execution.logs.stdout), ["/tmp"]);
  assert.equal(execution.exitCode, 0);
});

test("A-020 a background command returns at once and has no exit code yet", async () => {
  const start = Date.now();
  const execution = await sandbox.commands.run("sleep 30", { background: true });
  assert.ok(Date.now() - start < 5_000);
  assert.ok(execution.id);
  assert.equal(execution.exitCode ?? null, null);
  await sandbox.commands.interrupt(execution.id);
});

test("A-021 a program that is not there is an error with its name on stderr", async () => {
  const execution = await sandbox.commands.run("nonexistent-command-that-does-not-exist");
  assert.ok(execution.id);
  assert.equal(execution.error.name, "CommandExecError");
  assert.ok(texts(execution.logs.stderr).join().includes("nonexistent-command-that-does-not-exist"));
  assert.equal(execution.complete, undefined);
  assert.equal(execution.exitCode, 127);
  assert.equal(execution.exitCode, Number(execution.error.value));
});

test("A-022 the status of a background command", async () => {
  const { id } = await sandbox.commands.run("sleep 0.3; exit 3", { background: true });
  const running = await sandbox.commands.getCommandStatus(id);
  assert.equal(running.id, id);
  assert.equal(running.running, true);
  assert.equal(running.content, "sleep 0.3; exit 3");
  const ended = await until(async () => {
    const status = await sandbox.commands.getCommandStatus(id);
    return status.running ? null : status;
  }, "the end of the command");
  assert.equal(ended.exitCode, 3);
  assert.ok(ended.finishedAt >= ended.startedAt);
});

test("A-023 the log of a background command goes on where the cursor says", async () => {
  const { id } = await sandbox.commands.run("echo one; sleep 0.2; echo two >&2", {
    background: true,
  });
  let text = "";
  let cursor = 0;
  await until(async () => {
    const logs = await sandbox.commands.getBackgroundCommandLogs(id, cursor);
    text += logs.content;
    cursor = logs.cursor ?? cursor;
    return text.includes("two\n");
  }, "both lines");
  assert.equal(text, "one\ntwo\n");
  assert.equal(cursor, 8);
});

test("A-024 an environment is that command's only", async () => {
  const name = "OPEN_SANDBOX_E2E_CMD_ENV";
  const print = `printf %s "\${${name}:-missing}"`;
  const before = await sandbox.commands.run(print);
  const with_it = await sandbox.commands.run(print, { envs: { [name]: "it's \"here\"\n$x" } });
  const after = await sandbox.commands.run(print);
  assert.deepEqual(texts(before.logs.stdout), ["missing"]);
  assert.deepEqual(texts(with_it.logs.stdout), ['it\'s "here"', "$x"]);
  assert.deepEqual(texts(after.logs.stdout), ["missing"]);
});

test("A-025 a session begins in its directory; a run may name another", async () => {
  const id = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
  for (const [directory, options] of [
    ["/tmp", undefined],
    ["/var", { workingDirectory: "/var" }],
    ["/tmp", { workingDirectory: "/tmp" }],
  ]) {
    const execution = await sandbox.commands.runInSession(id, "pwd", options);
    assert.deepEqual(texts(execution.logs.stdout), [directory]);
    assert.equal(execution.exitCode, 0);
  }
  await sandbox.commands.deleteSession(id);
});

test("A-026 an exported variable is there in the next run", async () => {
  const id = await sandbox.commands.createSession();
  await sandbox.commands.runInSession(id, "export E2E_SESSION_ENV='session it''s ok'");
  const execution = await sandbox.commands.runInSession(id, "echo $E2E_SESSION_ENV");
  assert.deepEqual(texts(execution.logs.stdout), ["session its ok"]);
  await sandbox.commands.deleteSession(id);
});

test("A-027 a run that fails is an error with its exit code, and the session goes on", async () => {
  const id = await sandbox.commands.createSession();
  const failed = await sandbox.commands.runInSession(id, "sh -c 'echo oops; exit 7'");
  assert.equal(failed.error.name, "CommandExecError");
  assert.equal(failed.error.value, "7");
  assert.equal(failed.exitCode, 7);
  assert.equal(failed.complete, undefined);
  const next = await sandbox.commands.runInSession(id, "echo alive");
  assert.deepEqual(texts(next.logs.stdout), ["alive"]);
  await sandbox.commands.deleteSession(id);
});

test("A-028 two sessions have directories of their own, and both can be deleted", async () => {
  const one = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
  const two = await sandbox.commands.createSession({ workingDirectory: "/var" });
  const execution = await sandbox.commands.runInSession(two, "pwd");
  assert.deepEqual(texts(execution.logs.stdout), ["/var"]);
  await sandbox.commands.deleteSession(one);
  await sandbox.commands.deleteSession(two);
  await assert.rejects(sandbox.commands.deleteSession(two));
});

test("A-030 lines of a pipe in a directory", async () => {
  await sandbox.commands.run("mkdir -p /tmp/a030 && touch /tmp/a030/x1 /tmp/a030/x2 /tmp/a030/y");
  const execution = await sandbox.commands.run("ls | grep x", { workingDirectory: "/tmp/a030" });
  assert.deepEqual(texts(execution.logs.stdout), ["x1", "x2"]);
});

test("A-041 an interrupt by the init's id ends the stream", async () => {
  let init;
  const running = sandbox.commands.run("sleep 30", {}, {
    onInit: (event) => {
      init = event;
      void sandbox.commands.interrupt(event.id);
    },
  });
  const start = Date.now();
  const execution = await running;
  assert.ok(Date.now() - start < 10_000);
  assertRecent(init.timestamp);
  assert.equal(execution.error.name, "CommandExecError");
  const next = await sandbox.commands.run("echo still-alive");
  assert.deepEqual(texts(next.logs.stdout), ["still-alive"]);
});

test("A-041 an interrupt of what does not run rejects", async () => {
  await assert.rejects(sandbox.commands.interrupt(UNKNOWN));
  const { id } = await sandbox.commands.run("true");
  await assert.rejects(sandbox.commands.interrupt(id));
});

test("a command that ends is told at once, without a second of waiting", async () => {
  const start = Date.now();
  for (let i = 0; i < 10; i++) await sandbox.commands.run("true");
  assert.ok(Date.now() - start < 5_000, `${Date.now() - start} ms for ten`);
});

test("a timeout ends a command and not the sandbox", async () => {
  const start = Date.now();
  const execution = await sandbox.commands.run("sleep 20", { timeoutSeconds: 1 });
  const took = Date.now() - start;
  assert.ok(took >= 1_000 && took < 5_000, `${took} ms`);
  assert.equal(execution.error.name, "CommandExecError");
  const next = await sandbox.commands.run("echo ok");
  assert.deepEqual(texts(next.logs.stdout), ["ok"]);
});

test("a directory that is not there is refused before the stream", async () => {
  await assert.rejects(sandbox.commands.run("pwd", { workingDirectory: "/no/such/place" }),
    (error) => error.statusCode === 400);
});
