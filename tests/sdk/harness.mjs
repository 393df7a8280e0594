// What the suites of this folder share: named tests, one after the other, with a report on stdout
// that sdk_case.py reads, and how to reach the daemon.
//
//     import { connection, image, suite } from "./harness.mjs";
//     const { test, before, after } = suite();
//     test("A-017 echo gives one line", async () => { … assert … });
//
// Names begin with the id of the behaviour. A failed `before` fails every test.

import process from "node:process";
import { ConnectionConfig } from "@alibaba-group/opensandbox";

export const domain = process.env.SANDPOOL_DOMAIN; // HOST:PORT
export const apiKey = process.env.SANDPOOL_API_KEY;
export const image = process.env.SANDPOOL_IMAGE;

export function connection(more = {}) {
  return new ConnectionConfig({ domain, apiKey, ...more });
}

// What most sandboxes of these tests are made with.
export function wish(more = {}) {
  return {
    connectionConfig: connection(),
    image,
    timeoutSeconds: 300,
    readyTimeoutSeconds: 60,
    healthCheckPollingInterval: 50,
    ...more,
  };
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

// Until condition() gives something true, which is returned.
export async function until(condition, what, timeoutMs = 20_000) {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${timeoutMs} ms`);
    await sleep(20);
  }
}

function report(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

async function attempt(body, limitMs) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not over within ${limitMs} ms`)), limitMs);
  });
  try {
    await Promise.race([body(), late]);
    return null;
  } catch (error) {
    return error?.stack ?? String(error);
  } finally {
    clearTimeout(timer);
  }
}

export function suite({ limitMs = 60_000 } = {}) {
  const tests = [];
  const begins = [];
  const ends = [];

  process.nextTick(() => setImmediate(run));

  async function run() {
    const only = process.env.SANDPOOL_TESTS?.split("\n");
    let broken = null;
    for (const body of begins) broken ??= await attempt(body, limitMs);
    for (const { name, body } of tests) {
      if (only && !only.includes(name)) continue;
      const start = Date.now();
      const error = broken ? `before: ${broken}` : await attempt(body, limitMs);
      report({ name, ok: !error, error, ms: Date.now() - start });
    }
    for (const body of ends) {
      const error = await attempt(body, limitMs);
      if (error) process.stderr.write(`after: ${error}\n`);
    }
    report({ end: true });
    process.exit(0); // agents of the SDK may keep connections
  }

  return {
    test: (name, body) => tests.push({ name, body }),
    before: (body) => begins.push(body),
    after: (body) => ends.push(body),
  };
}
