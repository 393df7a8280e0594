// An HTTP server with fixed answers to what OpenSandbox's client asks in Sandbox.create: what a create
// takes with it is the client's own time and node's. Prints its port.

import http from "node:http";

const id = "f81d4fae-7dec-41d0-a765-00a0c91e6bf6";
const time = "2026-11-30T15:00:00.000Z";
const sandbox = {
  id,
  status: { state: "Running", lastTransitionAt: time },
  metadata: {},
  expiresAt: time,
  createdAt: time,
  entrypoint: ["tail", "-f", "/dev/null"],
};

function answer(method, url, host) {
  if (method === "POST" && url === "/v1/sandboxes") return [202, JSON.stringify(sandbox)];
  const port = url.match(/\/endpoints\/(\d+)/)?.[1];
  if (port) {
    const endpoint = `${host}/v1/sandboxes/${id}/proxy/${port}`;
    return [200, JSON.stringify({ endpoint, headers: { "X-EXECD-ACCESS-TOKEN": "0".repeat(64) } })];
  }
  return url.endsWith("/ping") ? [200, ""] : [204, ""];
}

const server = http.createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    const [status, body] = answer(request.method, request.url, request.headers.host);
    const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) };
    response.writeHead(status, status === 204 ? {} : headers);
    response.end(body);
  });
});

server.listen(0, "127.0.0.1", () => console.log(server.address().port));
