// Runs the requests of a file, a JSON list, on the model of a script, and writes what came of each.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [script, requests, answers] = process.argv.slice(2);
const { load } = await import(pathToFileURL(script));
const KINDS = {
  bool: Uint8Array, u8: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array,
  i64: BigInt64Array, f16: Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array,
};
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const told = (data) => Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64");
const tensor = (t) => ({ data: new KINDS[t.dtype](bytes(t.data).buffer), shape: t.shape });
const spoken = (t) => ({ dtype: t.dtype, shape: t.shape, data: told(t.data) });

const model = await load();
const contexts = {};
const DO = {
  create: async (r) => { contexts[r.context] = await model.create(r.options); },
  call: (r) => {
    const given = r.inputs.map(tensor);
    const out = contexts[r.context][model.isStep ? "step" : "run"](given);
    return Object.fromEntries(Object.entries(out).map(([name, t]) => [name, spoken(t)]));
  },
  save: (r) => told(contexts[r.context].save()),
  load: (r) => contexts[r.context].load(bytes(r.file)),
  read: (r) => spoken(contexts[r.context].read(r.name)),
  write: (r) => contexts[r.context].write(r.name, tensor(r.tensor)),
  seed: (r) => contexts[r.context].seed(r.seed),
};
const found = [];
for (const request of JSON.parse(await readFile(requests, "utf8"))) {
  try {
    found.push({ value: (await DO[request.do]({ context: "first", ...request })) ?? null });
  } catch (error) {
    found.push({ error: error.code ?? String(error.stack), text: error.message });
  }
}
await writeFile(answers, JSON.stringify(found));
