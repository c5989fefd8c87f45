// Classify digits from Node, by the addon of addon.c:
//
//     node client.js ./digits.node ../out/golden [x86-64-v3]
"use strict";
const fs = require("fs");
const path = require("path");

const DTYPES = ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"];

// A file is a line, "f32 4 10", and the elements of a float32 [4, 10].
function readTensor(file) {
  const bytes = fs.readFileSync(file);
  const end = bytes.indexOf("\n");
  const [dtype, ...shape] = bytes.toString("latin1", 0, end).split(" ");
  const data = new Uint8Array(bytes.length - end - 1); // its own memory, so that it is aligned
  data.set(bytes.subarray(end + 1));
  return { dtype: DTYPES.indexOf(dtype), shape: shape.map(Number), data };
}

// 0 where the bits are equal; else the largest difference of floats, relative to 1 and above.
function difference(found, recorded) {
  if (found.dtype !== recorded.dtype || String(found.shape) !== String(recorded.shape)) {
    return Infinity;
  }
  if (Buffer.compare(found.data, recorded.data) === 0) return 0;
  if (DTYPES[found.dtype] !== "f32") return Infinity;
  const [a, b] = [found, recorded].map((tensor) => new Float32Array(tensor.data.buffer));
  let worst = 0;
  for (let at = 0; at < a.length; at++) {
    const apart = Math.abs(a[at] - b[at]) / Math.max(1, Math.abs(b[at]));
    if (!(apart <= worst)) worst = apart;
  }
  return worst;
}

const [addon, folder, level] = process.argv.slice(2);
const digits = require(path.resolve(addon));
for (const [kind, entries] of [["input", digits.inputs()], ["output", digits.outputs()]]) {
  for (const { name, dtype, shape } of entries) {
    const sizes = shape.map((size) => size ?? "?").join(", ");
    console.log(`${kind} ${name}: ${DTYPES[dtype]} [${sizes}]`);
  }
}
const context = digits.create(level);
console.log(`code for ${digits.cpu(context)}`);
const given = digits.inputs().map((_, at) => readTensor(path.join(folder, `input${at}.tensor`)));
digits.run(context, given).forEach((output, at) => {
  const apart = difference(output, readTensor(path.join(folder, `output${at}.tensor`)));
  console.log(`${output.name}: ${apart === 0 ? "equal to the bit" : `${apart} apart`}`);
  if (!(apart <= 1e-4)) process.exitCode = 1;
});
