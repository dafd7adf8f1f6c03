// Loads a trace into Perfetto's own trace processor and answers SQL from standard input, one query a line, each with one line of JSON:
// {"columns": [...], "rows": [[...]]} or {"error": "..."}. It judges nothing and writes no file.
//
//     node trace_processor.mjs FOLDER TRACE <queries
//
// FOLDER has engine_bundle.js and the trace processor as Perfetto's page ships them. The bundle is the worker of that page: here it finds
// what a browser gives a worker, and gets the messages of trace_processor.proto through its port.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";

const [folder, trace] = process.argv.slice(2);

// Numbers of trace_processor.proto.
const APPEND_TRACE_DATA = 1, FINALIZE_TRACE_DATA = 2, QUERY_STREAMING = 3;
const STREAM = { message: 1 };
const RPC = { sequence: 1, request: 2, fatalError: 5, appendTraceData: 101, query: 103, appendResult: 201, queryResult: 203 };
const RESULT = { columnNames: 1, error: 2, batch: 3 };
const BATCH = { cells: 1, varints: 2, floats: 3, blobs: 4, strings: 5, isLast: 6 };
const CELL = { null: 1, varint: 2, float: 3, string: 4, blob: 5 };

function varint(n) {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  return [...out, n];
}
const uint = (field, n) => Buffer.from([...varint(field * 8), ...varint(n)]);
const bytes = (field, b) => Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(b.length)]), b]);

class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }
  get more() {
    return this.at < this.data.length;
  }
  varint() {
    for (let n = 0n, shift = 0n; ; shift += 7n) {
      const byte = this.data[this.at++];
      n |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, n);
    }
  }
  take(count) {
    return this.data.subarray(this.at, (this.at += count));
  }
  value(wire) {
    if (wire === 0) return this.varint();
    if (wire === 1) return this.take(8);
    if (wire === 2) return this.take(Number(this.varint()));
    throw new Error(`wire type ${wire} is not expected here`);
  }
}

// The fields of a message: [number, value] each, values as BigInt or bytes.
function fields(data) {
  const reader = new Reader(data), out = [];
  while (reader.more) {
    const key = Number(reader.varint());
    out.push([key >> 3, reader.value(key & 7)]);
  }
  return out;
}
const all = (message, field) => message.filter((f) => f[0] === field).map((f) => f[1]);
const text = (message, field) => all(message, field).map(String).join("");
function packed(message, field) {
  const out = [];
  for (const data of all(message, field)) for (const r = new Reader(data); r.more; ) out.push(r.varint());
  return out;
}

// Cells of a batch as JSON text; whole numbers keep all their digits.
function cells(batch) {
  const varints = packed(batch, BATCH.varints);
  const floats = all(batch, BATCH.floats).flatMap((b) => Array.from({ length: b.length / 8 }, (_, i) => b.readDoubleLE(i * 8)));
  const strings = all(batch, BATCH.strings).flatMap((b) => String(b).split("\0"));
  return packed(batch, BATCH.cells).map((kind) => {
    switch (Number(kind)) {
      case CELL.null: return "null";
      case CELL.varint: return String(varints.shift());
      case CELL.float: return JSON.stringify(floats.shift());
      case CELL.string: return JSON.stringify(strings.shift());
      default: throw new Error(`a cell of kind ${kind} is not expected here`);
    }
  });
}

function answer(results) {
  const error = results.map((r) => text(r, RESULT.error)).join("");
  if (error) return JSON.stringify({ error });
  const columns = results.flatMap((r) => all(r, RESULT.columnNames).map(String));
  const batches = results.flatMap((r) => all(r, RESULT.batch).map(fields));
  if (!batches.some((b) => all(b, BATCH.isLast).length > 0)) return JSON.stringify({ error: "the answer has no end" });
  const flat = batches.flatMap(cells), rows = [];
  while (flat.length > 0) rows.push(`[${flat.splice(0, columns.length).join(",")}]`);
  return `{"columns":${JSON.stringify(columns)},"rows":[${rows.join(",")}]}`;
}

// Starts the worker of the page; its port takes and gives bytes of TraceProcessorRpcStream.
async function start(replies) {
  const worker = { location: { href: "http://localhost/" } };
  class FileRequest {
    open(_, url) { this.name = basename(url); }
    send() { this.response = readFileSync(join(folder, this.name)); }
  }
  const given = {
    self: worker,
    WorkerGlobalScope: Object,
    XMLHttpRequest: FileRequest,
    process: undefined,
    console: { log: () => {}, warn: () => {}, error: console.error },
  };
  new Function(...Object.keys(given), readFileSync(join(folder, "engine_bundle.js"), "utf8"))(...Object.values(given));
  const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
  worker.onmessage({ data: port });
  // The engine has come up when what was promised before now has been kept.
  await new Promise((resolve) => setTimeout(resolve, 0));
  return port;
}

const replies = [];
const port = await start(replies);
let sequence = 0;

// Every request is answered before it returns: the engine has one thread, this one.
function ask(method, field, content) {
  const rpc = [uint(RPC.sequence, sequence++), uint(RPC.request, method)];
  if (field) rpc.push(bytes(field, content));
  port.onmessage({ data: new Uint8Array(bytes(STREAM.message, Buffer.concat(rpc))) });
  const got = fields(Buffer.concat(replies.splice(0))).map((f) => fields(f[1]));
  const fatal = got.map((r) => text(r, RPC.fatalError)).join("");
  if (fatal) throw new Error(fatal);
  return got;
}

const APPEND_ERROR = 2;
const wrong = ask(APPEND_TRACE_DATA, RPC.appendTraceData, readFileSync(trace))
  .flatMap((r) => all(r, RPC.appendResult)).map((r) => text(fields(r), APPEND_ERROR)).join("");
if (wrong) throw new Error(wrong);
ask(FINALIZE_TRACE_DATA);
for (const sql of readFileSync(0, "utf8").split("\n").filter((line) => line !== "")) {
  const query = ask(QUERY_STREAMING, RPC.query, bytes(1, Buffer.from(sql)));
  console.log(answer(query.flatMap((r) => all(r, RPC.queryResult)).map(fields)));
}
