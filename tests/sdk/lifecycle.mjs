// Sandboxes: create, look at, find, pause, renew, end. Ids A-… are the behaviours of OpenSandbox's
// own suites.

import assert from "node:assert/strict";
import {
  DEFAULT_EXECD_PORT,
  Sandbox,
  SandboxApiException,
  SandboxManager,
  SandboxReadyTimeoutException,
} from "@alibaba-group/opensandbox";
import { apiKey, connection, domain, image, suite, until, wish } from "./harness.mjs";

const { test, before, after } = suite();

const ENTRYPOINT = ["tail", "-f", "/dev/null"];
const UNKNOWN = "00000000-0000-4000-8000-000000000000";
const tag = `t${process.pid}`;
let sandbox;
let manager;

before(async () => {
  manager = SandboxManager.create({ connectionConfig: connection() });
});

after(async () => {
  const list = await manager.listSandboxInfos({ pageSize: 200 });
  for (const { id } of list.items) await manager.killSandbox(id);
  await manager.close();
});

// A sandbox for the time of one test.
async function lent(more, body) {
  const lent = await Sandbox.create(wish(more));
  try {
    await body(lent);
  } finally {
    await lent.kill();
    await lent.close();
  }
}

async function status(method, path, { body, headers = {} } = {}) {
  const answer = await fetch(`http://${domain}${path}`, {
    method,
    headers: { "OPEN-SANDBOX-API-KEY": apiKey, "content-type": "application/json", ...headers },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, json: text && JSON.parse(text), headers: answer.headers };
}

test("A-001 a create with image, timeout, metadata, env and entrypoint becomes healthy", async () => {
  const start = performance.now();
  sandbox = await Sandbox.create(
    wish({
      timeoutSeconds: 20 * 60,
      metadata: { tag, team: "t0" },
      env: { E2E_TEST: "true", NODE_VERSION: "22" },
      entrypoint: ENTRYPOINT,
    }),
  );
  assert.ok(performance.now() - start < 10_000);
  assert.equal(await sandbox.isHealthy(), true);
});

test("A-002 the id is a UUID", async () => {
  assert.equal(typeof sandbox.id, "string");
  assert.match(sandbox.id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(await sandbox.isHealthy(), true);
});

test("A-003 getInfo tells what was asked for", async () => {
  const info = await sandbox.getInfo();
  assert.equal(info.id, sandbox.id);
  assert.equal(info.status.state, "Running");
  assert.deepEqual(info.entrypoint, ENTRYPOINT);
  assert.deepEqual(info.metadata, { tag, team: "t0" });
  assert.equal(info.image.uri, image);
  assert.ok(Math.abs(info.createdAt.getTime() - Date.now()) < 60_000);
  assert.ok(Math.abs(info.expiresAt.getTime() - Date.now() - 20 * 60_000) < 60_000);
});

test("A-004 an endpoint has no scheme and ends in its port", async () => {
  const { endpoint, headers } = await sandbox.getEndpoint(DEFAULT_EXECD_PORT);
  assert.equal(endpoint, `${domain}/v1/sandboxes/${sandbox.id}/proxy/44772`);
  assert.match(headers["X-EXECD-ACCESS-TOKEN"], /^[0-9a-f]{64}$/);
  for (const port of [1, 8080, 18080, 65535])
    assert.ok((await sandbox.getEndpoint(port)).endpoint.endsWith(`/proxy/${port}`));
  for (const port of [0, 65536])
    await assert.rejects(sandbox.getEndpoint(port), (error) => error.statusCode === 400);
  assert.equal(
    (await status("GET", `/sandboxes/${sandbox.id}/endpoints/80?use_server_proxy=true`)).json.endpoint,
    `${domain}/sandboxes/${sandbox.id}/proxy/80`,
  );
});

test("A-005 metrics are plausible", async () => {
  const metrics = await sandbox.getMetrics();
  assert.ok(metrics.cpuCount > 0);
  assert.ok(metrics.cpuUsedPercentage >= 0 && metrics.cpuUsedPercentage <= 100);
  assert.ok(metrics.memoryTotalMiB > 0);
  assert.ok(metrics.memoryUsedMiB >= 0 && metrics.memoryUsedMiB <= metrics.memoryTotalMiB);
  assert.ok(Math.abs(metrics.timestamp - Date.now()) < 120_000);
});

test("A-006 renew moves the end, back as well", async () => {
  for (const seconds of [30 * 60, 60]) {
    const { expiresAt } = await sandbox.renew(seconds);
    assert.ok(expiresAt instanceof Date);
    assert.ok(Math.abs(expiresAt.getTime() - Date.now() - seconds * 1000) < 10_000);
    const info = await sandbox.getInfo();
    assert.ok(Math.abs(info.expiresAt.getTime() - expiresAt.getTime()) < 1000);
  }
  await sandbox.renew(20 * 60);
});

test("A-007 connect by id, and a command there", async () => {
  const other = await Sandbox.connect({ sandboxId: sandbox.id, connectionConfig: connection() });
  assert.equal(other.id, sandbox.id);
  assert.equal(await other.isHealthy(), true);
  const run = await other.commands.run("echo connect-ok");
  assert.equal(run.error, undefined);
  assert.deepEqual(
    run.logs.stdout.map(({ text }) => text),
    ["connect-ok"],
  );
  await other.close();
});

test("A-008 public extensions come back, others do not", async () => {
  const extensions = { "opensandbox.extensions.a": "1", "opensandbox.extensions.b c": '"2"', x: "3" };
  await lent({ extensions }, async ({ id }) => {
    const { json } = await status("GET", `/v1/sandboxes/${id}`);
    delete extensions.x;
    assert.deepEqual(json.extensions, extensions);
    assert.deepEqual((await manager.getSandboxInfo(id)).extensions ?? extensions, extensions);
  });
});

test("A-009 without a timeout nothing expires", async () => {
  await lent({ timeoutSeconds: null, metadata: { tag } }, async (manual) => {
    const info = await manual.getInfo();
    assert.equal(info.expiresAt ?? null, null);
    assert.deepEqual(info.metadata, { tag });
    await assert.rejects(manual.renew(60), (error) => error.statusCode === 409);
  });
});

test("A-016 the manager finds it by state and metadata", async () => {
  const { items, pagination } = await manager.listSandboxInfos({
    states: ["Running"],
    metadata: { tag, team: "t0" },
    pageSize: 50,
  });
  assert.deepEqual(
    items.map(({ id }) => id),
    [sandbox.id],
  );
  assert.equal(pagination.totalItems, 1);
  assert.equal((await manager.getSandboxInfo(sandbox.id)).id, sandbox.id);
});

test("A-042 a paused sandbox is unhealthy and goes on where it stood", async () => {
  await lent({ metadata: { tag: "paused" } }, async (paused) => {
    await paused.commands.run("echo before > /tmp/state");
    await paused.pause();
    await until(async () => (await paused.getInfo()).status.state === "Paused", "Paused");
    assert.equal(await paused.isHealthy(), false);
    await assert.rejects(paused.pause(), (error) => error.statusCode === 409);
    const resumed = await paused.resume({ readyTimeoutSeconds: 30 });
    assert.equal(await resumed.isHealthy(), true);
    assert.equal((await resumed.getInfo()).status.state, "Running");
    const run = await resumed.commands.run("cat /tmp/state");
    assert.equal(run.logs.stdout[0].text, "before");
    await assert.rejects(manager.resumeSandbox(paused.id), (error) => error.statusCode === 409);
  });
});

test("A-043 the request's id is in the exception", async () => {
  const requestId = `sdk-${tag}`;
  const other = SandboxManager.create({
    connectionConfig: connection({ headers: { "X-Request-ID": requestId } }),
  });
  for (const id of [UNKNOWN, "missing-sandbox"])
    await assert.rejects(other.getSandboxInfo(id), (error) => {
      assert.ok(error instanceof SandboxApiException);
      assert.equal(error.statusCode, 404);
      assert.equal(error.requestId, requestId);
      assert.equal(error.error.code, "DOCKER::SANDBOX_NOT_FOUND");
      return true;
    });
  await other.close();
});

const group = `g${process.pid}`;
const three = [];

test("A-044 one of three is paused", async () => {
  for (const metadata of [
    { tag: group, team: "t1", env: "prod" },
    { tag: group, team: "t1", env: "dev" },
    { tag: group, env: "prod" },
  ])
    three.push(await Sandbox.create(wish({ metadata })));
  for (const member of three) assert.equal(await member.isHealthy(), true);
  await manager.pauseSandbox(three[2].id);
  await until(
    async () => (await manager.getSandboxInfo(three[2].id)).status.state === "Paused",
    "Paused",
  );
});

// Which of the three a filter finds, newest first as they are listed.
async function found(filter) {
  const { items } = await manager.listSandboxInfos({ pageSize: 50, ...filter });
  const ids = three.map(({ id }) => id);
  return items.map(({ id }) => ids.indexOf(id));
}

test("A-045 states are alternatives", async () => {
  const metadata = { tag: group };
  assert.deepEqual(await found({ metadata, states: ["Running", "Paused"] }), [2, 1, 0]);
  assert.deepEqual(await found({ metadata, states: ["Paused"] }), [2]);
  assert.deepEqual(await found({ metadata, states: ["running"] }), [1, 0]);
  assert.deepEqual(await found({ metadata, states: ["Failed"] }), []);
});

test("A-046 labels must all fit", async () => {
  assert.deepEqual(await found({ metadata: { tag: group, team: "t1" } }), [1, 0]);
  assert.deepEqual(await found({ metadata: { tag: group, team: "t1", env: "prod" } }), [0]);
  assert.deepEqual(await found({ metadata: { tag: group, env: "prod" } }), [2, 0]);
  assert.deepEqual(await found({ metadata: { tag: group, team: "t2" } }), []);
  assert.deepEqual(await found({ metadata: { tag: group }, page: 2, pageSize: 2 }), [0]);
});

test("A-047 a patch of metadata changes and removes", async () => {
  const { id } = three[0];
  const patched = await manager.patchSandboxMetadata?.(id, { team: "t9", env: null, "new.key": "v" }) ??
    (await status("PATCH", `/v1/sandboxes/${id}/metadata`, {
      body: { team: "t9", env: null, "new.key": "v" },
    })).json;
  const wanted = { tag: group, team: "t9", "new.key": "v" };
  assert.deepEqual(patched.metadata, wanted);
  assert.deepEqual((await manager.getSandboxInfo(id)).metadata, wanted);
  const refused = await status("PATCH", `/v1/sandboxes/${id}/metadata`, {
    body: { "opensandbox.io/id": "x" },
  });
  assert.equal(refused.status, 400);
  assert.equal(refused.json.code, "SANDBOX::INVALID_METADATA_LABEL");
});

test("A-048 nothing can be done with an unknown id", async () => {
  for (const id of [UNKNOWN, `non-existent-${Date.now()}`, "0123456789abcdefghjk"]) {
    await assert.rejects(manager.getSandboxInfo(id));
    await assert.rejects(manager.pauseSandbox(id));
    await assert.rejects(manager.resumeSandbox(id));
    await assert.rejects(manager.killSandbox(id));
    await assert.rejects(manager.renewSandbox(id, 300));
  }
});

test("A-049 an event is taken and forgotten", async () => {
  const body = { eventType: "sandbox.create", createDurationMs: 1, success: true };
  assert.equal((await status("POST", "/v1/metrics/events", { body })).status, 204);
});

test("A-050 a create reports itself", async () => {
  const bodies = [];
  const spy = async (input, init) => {
    if (String(input?.url ?? input).endsWith("/v1/metrics/events"))
      bodies.push(JSON.parse(init?.body ?? (await input.clone().text())));
    return realFetch(input, init);
  };
  const realFetch = globalThis.fetch;
  globalThis.fetch = spy;
  try {
    await lent({}, async ({ id }) => {
      await until(() => bodies.length > 0, "the event");
      assert.equal(bodies[0].eventType, "sandbox.create");
      assert.equal(bodies[0].success, true);
      assert.equal(bodies[0].sandboxId, id);
      assert.equal(bodies[0].image, image);
      assert.ok(bodies[0].createDurationMs > 0);
    });
  } finally {
    globalThis.fetch = realFetch;
  }
});

test("A-051 a sandbox that never becomes ready is named and ended", async () => {
  const count = (await manager.listSandboxInfos({})).pagination.totalItems;
  await assert.rejects(
    Sandbox.create(wish({ readyTimeoutSeconds: 0.3, healthCheck: () => false })),
    (error) => {
      assert.ok(error instanceof SandboxReadyTimeoutException);
      assert.ok(error.message.includes(domain), error.message);
      return true;
    },
  );
  assert.equal((await manager.listSandboxInfos({})).pagination.totalItems, count);
});
