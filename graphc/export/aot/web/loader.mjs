// `load()` gives a Model; `await model.create()` a Context with memory of its own, which computes.
// A tensor is { data, shape, dtype }: `data` is a typed array, row by row. Inputs may be typed
// arrays or lists alone where no more than one of their sizes is free, and numbers where they have
// no dims. Of f16 and bf16 there are the 16 bits, in a Uint16Array.

const KINDS = {
  bool: Uint8Array, u8: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array,
  i64: BigInt64Array, f16: Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array,
};
const ALIGN = 64, PAGE = 65536, MOST = 2 ** 32;
const TEXT = 1024; // bytes for a message, while there is no context
const TENSOR = 32, OPTIONS = 64; // bytes of the records, whose fields `_tensor` and `create` write

/** What a call refuses: `code` is a name such as GRAPHC_RANGE. */
export class ModelError extends Error {
  constructor(code, text) {
    super(text);
    this.name = "ModelError";
    this.code = code;
  }
}

/**
 * The model. `source`: the .wasm file as an address, a Response (or the promise of one), its bytes
 * or a WebAssembly.Module; else it lies beside this file. `weights`, where they are a file of their
 * own: likewise.
 */
export async function load(source, weights) {
  let module = await source;
  if (!(module instanceof WebAssembly.Module)) {
    module = await WebAssembly.compile(await bytesOf(module ?? new URL(MODEL.wasm, import.meta.url)));
  }
  const entry = `${MODEL.name}_create`;
  if (!WebAssembly.Module.exports(module).some(({ name }) => name === entry)) {
    throw new ModelError("GRAPHC_FILE", `the module is not ${MODEL.wasm}: it has no ${entry}`);
  }
  if (MODEL.weights === null) return new Model(module);
  return new Model(module, await bytesOf((await weights) ?? new URL(MODEL.weights, import.meta.url)));
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return bytesIn(source);
  if (typeof source === "string") {
    source = new URL(source, globalThis.location?.href ?? import.meta.url);
  }
  if (source instanceof URL && source.protocol === "file:") {
    return (await import("node:fs/promises")).readFile(source);
  }
  const response = source instanceof URL ? await fetch(source) : source;
  if (!(response instanceof Response)) {
    throw new ModelError("GRAPHC_FILE", `${response} is no address, no bytes and no Response`);
  }
  if (!response.ok) {
    throw new ModelError("GRAPHC_FILE", `${response.url || "the Response"}: status ${response.status}`);
  }
  return new Uint8Array(await response.arrayBuffer());
}

/** What a model takes and gives: lists of { name, dtype, shape }, whose free sizes are names. */
export class Model {
  constructor(module, weights) {
    this.module = module;
    this.weights = weights;
    this.name = MODEL.name;
    this.isStep = MODEL.step; // its contexts have step(), not run()
    this.inputs = MODEL.inputs;
    this.outputs = MODEL.outputs;
    this.sizes = MODEL.sizes;
    this.states = MODEL.states;
  }

  /** A context. `sizes`: the largest of free sizes to come, by name; it takes less memory then. */
  async create({ sizes = {} } = {}) {
    const instance = await WebAssembly.instantiate(this.module, {});
    return new Context(this, instance.exports, sizes);
  }
}

/** All memory of a model that computes, and the state of one that is trained. */
export class Context {
  constructor(model, code, sizes) {
    this.model = model;
    this._code = code;
    this._free = code.__heap_base.value;
    for (const name of Object.keys(sizes)) {
      if (!model.sizes.some((each) => each.name === name)) {
        const known = model.sizes.map((each) => each.name).join(", ") || "there are none";
        throw new ModelError("GRAPHC_ARGUMENT", `${name} is no free size (${known})`);
      }
    }
    const options = this._take(OPTIONS), text = this._take(TEXT), place = this._take(8);
    const limits = this._take(8 * model.sizes.length);
    const weights = model.weights === undefined ? 0 : this._take(model.weights.length);
    const view = this._view();
    model.sizes.forEach((each, i) => {
      const most = Object.hasOwn(sizes, each.name) ? sizes[each.name] : each.most;
      if (!Number.isSafeInteger(most)) {
        throw new ModelError("GRAPHC_ARGUMENT", `sizes has ${most} for ${each.name}: no whole number`);
      }
      view.setBigInt64(limits + 8 * i, BigInt(most), true);
    });
    if (weights) {
      this._bytes(weights, model.weights.length).set(model.weights);
      view.setUint32(options + 16, weights, true);
      view.setBigInt64(options + 24, BigInt(model.weights.length), true);
    }
    view.setInt32(options, MODEL.abi, true);
    view.setUint32(options + 8, limits, true);
    view.setUint32(options + 52, text, true);
    view.setBigInt64(options + 56, BigInt(TEXT), true);
    const bytes = Number(this._call("bytes", options));
    if (bytes < 0) throw new ModelError(this._named(-bytes), this._text(text));
    const memory = this._take(bytes);
    this._view().setUint32(options + 32, memory, true);
    this._view().setBigInt64(options + 40, BigInt(bytes), true);
    const code_ = this._call("create", options, place);
    if (code_ !== 0) throw new ModelError(this._named(code_), this._text(text));
    this._context = this._view().getUint32(place, true);
    this._calls = this._free; // from here on, memory is the next call's
  }

  /** Outputs by name, for inputs by name or in their order. */
  run(inputs) {
    if (MODEL.step) throw new TypeError(`${MODEL.name} is a training step: call step()`);
    return this._run("run", inputs);
  }

  /** One step of training, which changes the state: results by name. */
  step(inputs) {
    if (!MODEL.step) throw new TypeError(`${MODEL.name} is no training step: call run()`);
    return this._run("step", inputs);
  }

  /** A part of the state, copied. */
  read(name) {
    const [place, entry, count] = this._state(name);
    const kind = KINDS[entry.dtype];
    const data = new kind(this._bytes(place, count * kind.BYTES_PER_ELEMENT).slice().buffer);
    return { data, shape: entry.shape, dtype: entry.dtype };
  }

  /** Other values for a part of the state. */
  write(name, value) {
    const [place, entry] = this._state(name);
    const { data, shape } = tensorOf(entry, value);
    if (shape.join() !== entry.shape.join()) {
      const text = `${name} has the shape [${entry.shape.join(", ")}], not [${shape.join(", ")}]`;
      throw new ModelError("GRAPHC_SHAPE", text);
    }
    this._bytes(place, data.byteLength).set(bytesIn(data));
  }

  /** The whole state as a safetensors file. */
  save() {
    this._free = this._calls;
    const size = this._stepOnly("state_bytes");
    const place = this._take(Number(size));
    this._check(this._call("state_save", this._context, place, size));
    return this._bytes(place, Number(size)).slice();
  }

  /** The state of such a file; one that is damaged, or another model's, changes nothing. */
  load(file) {
    this._stepOnly("state_bytes");
    const bytes = bytesIn(file);
    this._free = this._calls;
    const place = this._take(bytes.length);
    this._bytes(place, bytes.length).set(bytes);
    this._check(this._call("state_load", this._context, place, BigInt(bytes.length)));
  }

  /** The random numbers to come are those of torch.manual_seed(seed). */
  seed(seed) {
    this._stepOnly("state_bytes");
    this._check(this._call("seed", this._context, BigInt(seed)));
  }

  _run(name, given) {
    const { inputs, outputs } = MODEL;
    const named = given === undefined || given === null ? [] : given;
    if (typeof named !== "object" || ArrayBuffer.isView(named)) {
      throw new ModelError("GRAPHC_ARGUMENT", `give inputs as a list, or by name: ${namesOf(inputs)}`);
    }
    if (Array.isArray(named) && named.length > inputs.length) {
      const text = `${named.length} inputs are given, and there are ${inputs.length}: ${namesOf(inputs)}`;
      throw new ModelError("GRAPHC_ARGUMENT", text);
    }
    const tensors = inputs.map((entry, i) => {
      const key = Array.isArray(named) ? i : entry.name;
      const value = Object.hasOwn(named, key) ? named[key] : undefined;
      if (value === undefined) throw new ModelError("GRAPHC_ARGUMENT", `${entry.name} is missing`);
      return tensorOf(entry, value);
    });
    for (const other of Array.isArray(named) ? [] : Object.keys(named)) {
      if (!inputs.some((entry) => entry.name === other)) {
        throw new ModelError("GRAPHC_ARGUMENT", `${other} is no input: there are ${namesOf(inputs)}`);
      }
    }
    this._free = this._calls;
    const records = this._take(TENSOR * (inputs.length + outputs.length));
    const results = records + TENSOR * inputs.length;
    tensors.forEach(({ data, shape }, i) => {
      const place = this._take(data.byteLength), sizes = this._take(8 * shape.length);
      this._bytes(place, data.byteLength).set(bytesIn(data));
      const view = this._view();
      shape.forEach((size, k) => view.setBigInt64(sizes + 8 * k, BigInt(size), true));
      const dtype = MODEL.dtypes.indexOf(inputs[i].dtype);
      this._tensor(records + TENSOR * i, place, data.byteLength, dtype, shape.length, sizes);
    });
    outputs.forEach((entry, i) => {
      this._tensor(results + TENSOR * i, 0, 0, 0, 0, this._take(8 * entry.shape.length));
    });
    this._check(this._call("shapes", this._context, records, results));
    const places = outputs.map((_, i) => {
      const at = results + TENSOR * i;
      const place = this._take(Number(this._view().getBigInt64(at + 8, true)));
      this._view().setUint32(at, place, true);
      return place;
    });
    this._check(this._call(name, this._context, records, results));
    const view = this._view();
    return Object.fromEntries(outputs.map((entry, i) => {
      const at = results + TENSOR * i, sizes = view.getUint32(at + 24, true);
      const shape = entry.shape.map((_, k) => Number(view.getBigInt64(sizes + 8 * k, true)));
      const bytes = this._bytes(places[i], Number(view.getBigInt64(at + 8, true))).slice();
      return [entry.name, { data: new KINDS[entry.dtype](bytes.buffer), shape, dtype: entry.dtype }];
    }));
  }

  _tensor(at, data, bytes, dtype, rank, shape) {
    const view = this._view();
    view.setUint32(at, data, true);
    view.setBigInt64(at + 8, BigInt(bytes), true);
    view.setInt32(at + 16, dtype, true);
    view.setInt32(at + 20, rank, true);
    view.setUint32(at + 24, shape, true);
  }

  _state(name) {
    this._stepOnly("state_bytes");
    const number = MODEL.states.findIndex((entry) => entry.name === name);
    if (number < 0) throw new ModelError("GRAPHC_ARGUMENT", `${name} is no part of the state`);
    const entry = MODEL.states[number], count = entry.shape.reduce((a, b) => a * b, 1);
    return [this._call("state_data", this._context, number) >>> 0, entry, count];
  }

  _stepOnly(name) {
    if (!MODEL.step) throw new TypeError(`${MODEL.name} is no training step: it has no state`);
    return this._call(name);
  }

  /** A function of the module. One that traps leaves its context as nobody knows. */
  _call(name, ...given) {
    if (this._trapped) throw new ModelError("GRAPHC_BUSY", `an earlier call failed: ${this._trapped}`);
    try {
      return this._code[`${MODEL.name}_${name}`](...given);
    } catch (error) {
      this._trapped = error.message;
      throw error;
    }
  }

  _check(code) {
    if (code !== 0) {
      throw new ModelError(this._named(code), this._text(this._call("message", this._context)));
    }
  }

  _named(code) {
    return this._text(this._call("text", code));
  }

  _text(place) {
    const bytes = new Uint8Array(this._code.memory.buffer, place >>> 0);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }

  _view() {
    return new DataView(this._code.memory.buffer);
  }

  _bytes(place, count) {
    return new Uint8Array(this._code.memory.buffer, place, count);
  }

  /** Memory behind what is taken already, for at least a byte. */
  _take(bytes) {
    const place = Math.ceil(this._free / ALIGN) * ALIGN, end = place + Math.max(bytes, 1) + ALIGN;
    const missing = Math.ceil((end - this._code.memory.buffer.byteLength) / PAGE);
    try {
      if (end > MOST) throw new RangeError();
      if (missing > 0) this._code.memory.grow(missing);
    } catch {
      const text = `there is no memory for ${bytes} bytes more: WebAssembly has ${MOST} at most`;
      throw new ModelError("GRAPHC_MEMORY", text);
    }
    this._free = end - ALIGN;
    return place;
  }
}

function bytesIn(data) {
  if (!ArrayBuffer.isView(data)) return new Uint8Array(data);
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

function namesOf(entries) {
  return entries.map((entry) => entry.name).join(", ") || "none";
}

function tensorOf(entry, value) {
  const kind = KINDS[entry.dtype];
  const given = ArrayBuffer.isView(value) || Array.isArray(value) || typeof value !== "object";
  let { data, shape } = given ? { data: value } : value ?? {};
  if (!ArrayBuffer.isView(data)) data = elements(entry, kind, Array.isArray(data) ? data : [data]);
  const half = entry.dtype === "f16" && globalThis.Float16Array;
  if (!(data instanceof kind) && !(half && data instanceof half)) {
    const found = data.constructor.name;
    throw new ModelError("GRAPHC_DTYPE", `${entry.name} is ${entry.dtype}, a ${kind.name}, not ${found}`);
  }
  shape = Array.from(shape ?? inferred(entry, data.length));
  const count = shape.reduce((a, b) => a * b, 1);
  if (shape.some((size) => !Number.isSafeInteger(size) || size < 0) || count !== data.length) {
    const text = `${entry.name} has ${data.length} elements, and the shape [${shape.join(", ")}]`;
    throw new ModelError("GRAPHC_SHAPE", text);
  }
  return { data, shape };
}

/** A list's numbers as a typed array. What is no number of the dtype is refused, not wrapped. */
function elements(entry, kind, list) {
  if (["f16", "bf16"].includes(entry.dtype)) {
    throw new ModelError("GRAPHC_DTYPE", `${entry.name} is ${entry.dtype}: a Uint16Array of bits`);
  }
  const whole = kind !== Float32Array && kind !== Float64Array;
  const data = new kind(list.length);
  list.forEach((each, i) => {
    if (!["number", "bigint", "boolean"].includes(typeof each)) {
      throw new ModelError("GRAPHC_ARGUMENT", `${entry.name} is no typed array, no list of numbers`);
    }
    const fits = !whole || Number.isInteger(Number(each));
    if (fits) data[i] = kind === BigInt64Array ? BigInt(each) : Number(each);
    if (!fits || (whole && Number(data[i]) !== Number(each)) || (entry.dtype === "bool" && data[i] > 1)) {
      throw new ModelError("GRAPHC_DTYPE", `${entry.name} is ${entry.dtype}, which ${each} does not fit`);
    }
  });
  return data;
}

/** The shape of so many elements, where no more than one size is free, and that is a name. */
function inferred(entry, count) {
  const names = new Set(MODEL.sizes.map((each) => each.name));
  const free = entry.shape.filter((size) => typeof size !== "number");
  const fixed = entry.shape.filter((size) => typeof size === "number").reduce((a, b) => a * b, 1);
  if (free.length > 1 || (free.length === 1 && (!names.has(free[0]) || fixed === 0))) {
    const text = `give ${entry.name} as { data, shape }: its shape is [${entry.shape.join(", ")}]`;
    throw new ModelError("GRAPHC_SHAPE", text);
  }
  return entry.shape.map((size) => (typeof size === "number" ? size : count / fixed));
}
