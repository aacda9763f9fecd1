// Configures the TypeScript client for a mode of access and has it make its calls: `run.mjs URL MODE DIRECTORY`.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import * as undici from "undici";
import { walk } from "./walk.mjs";

const [baseUrl, mode, directory] = process.argv.slice(2);
const read = (name) => readFileSync(`${directory}/${name}`, "utf8");

/** A client that trusts the server, with what its user sets besides. */
function configured(headers, certificate) {
    // Certificates are a matter of undici, the library under the `fetch` of Node, and not of `fetch`.
    const connect = baseUrl.startsWith("https:") ? { ca: read("ca.pem"), ...certificate } : {};
    const requestInitExt = { dispatcher: new undici.Agent({ connect }) };
    return createClient({ baseUrl, headers, fetch: undici.fetch, Request: undici.Request, requestInitExt });
}

const tokens = { "api-key": "api-key", jwt: "jwt" };
const headers = mode in tokens ? { Authorization: `Bearer ${read(tokens[mode])}` } : {};
const certificate = mode === "certificate" ? { cert: read("client.pem"), key: read("client.key") } : {};

const { response } = await configured({}, {}).GET("/v1/collections");
const expected = mode === "open" ? 200 : 401;
if (response.status !== expected) throw new Error(`a stranger is answered with ${response.status}`);
const statuses = await walk(configured(headers, certificate));
console.log(`openapi-clients: ${mode}: TypeScript made ${statuses.length} calls: ${statuses.join(" ")}`);
