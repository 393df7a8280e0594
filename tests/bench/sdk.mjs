// What OpenSandbox's own client waits for, call by call, one rotation: every round does each once,
// so the machine's drift hits all alike. Prints one row of milliseconds a line, for tests/bench/run.
//
//	node sdk.mjs DOMAIN KEY ROUNDS GAP_MS BARE
//
// BARE: the domain of a server (sdk_bare.mjs) that only answers; what a create takes with it is
// what the client itself takes.

import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionConfig, Sandbox } from "@alibaba-group/opensandbox";

const [domain, apiKey, rounds, gap, bare] = process.argv.slice(2);
const connectionConfig = new ConnectionConfig({ domain, apiKey });
const bareConfig = new ConnectionConfig({ domain: bare, apiKey });
const rows = new Map();

async function timed(name, body) {
  const start = performance.now();
  const result = await body();
  if (!rows.has(name)) rows.set(name, []);
  rows.get(name).push(performance.now() - start);
  return result;
}

for (let round = 0; round < Number(rounds); round++) {
  await timed("http", async () => (await fetch(`http://${domain}/health`)).text());
  const sandbox = await timed("create", () =>
    Sandbox.create({ connectionConfig, image: "python:3.11" }),
  );
  const { exitCode } = await timed("run", () => sandbox.commands.run("true"));
  if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
  const session = await timed("session", () =>
    sandbox.isolation.create({ workspace: { path: "/workspace", mode: "rw" } }),
  );
  await timed("session_run", () => session.run("true"));
  await timed("kill", () => sandbox.kill());
  await sandbox.close();
  const nothing = await timed("bare_create", () =>
    Sandbox.create({ connectionConfig: bareConfig, image: "python:3.11" }),
  );
  await nothing.close();
  await sleep(Number(gap));
}

for (const [name, values] of rows) {
  values.sort((a, b) => a - b);
  const at = (share) => values[Math.min(values.length - 1, Math.floor(values.length * share))];
  console.log(name, values[0], at(0.5), at(0.9), at(0.99), values.length);
}
