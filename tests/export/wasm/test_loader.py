"""What the script that loads a model takes, and what it refuses, in words."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

import graphc as torch
from graphc.export import Dim, aot, export

from .node import node

_SCRIPT = """
import { readFile } from "node:fs/promises";
import { load } from "./pair.mjs";
import { load as loadProduct } from "./product.mjs";

const bytes = async (name) => new Uint8Array(await readFile(new URL(name, import.meta.url)));
const pair = await (await load()).create(), product = await (await loadProduct()).create();
const a = Int8Array.of(1, 2, 3), b = Float32Array.of(NaN, Infinity, -0);
const matrix = (rows, columns) => (
  { data: new Float32Array(rows * columns).fill(1), shape: [rows, columns] });
const weights = await bytes("./pair.safetensors");
const response = (status) => new Response(status === 200 ? weights : "none", { status });
const loaded = async (...given) => (await (await load(...given)).create()).run([a, [1, 1, 1]]);
const CASES = {
  good: () => pair.run([a, b]),
  named: () => pair.run({ b: [1, 2, 3], a: [true, 2n, -128] }),
  slices: () => pair.run(
    [Int8Array.of(9, 1, 2, 3).subarray(1), Float32Array.of(9, 1, 2, 3).subarray(1)]),
  "typed shape": () => pair.run([a, { data: b, shape: Int32Array.of(3) }]),
  "too many": () => pair.run([a, b, b]), null: () => pair.run([null, b]), none: () => pair.run(),
  "no list": () => pair.run(b), number: () => pair.run(3), text: () => pair.run(["abc", b]),
  nested: () => pair.run([[[1], [2], [3]], b]), missing: () => pair.run({ a }),
  inherited: () => pair.run({ a, __proto__: { b } }), unknown: () => pair.run({ a, b, c: b }),
  "300 in i8": () => pair.run([[300, 1, 2], b]), "half in i8": () => pair.run([[0.5, 1, 2], b]),
  "NaN in i8": () => pair.run([[NaN, 1, 2], b]), f64: () => pair.run([a, new Float64Array(3)]),
  view: () => pair.run([a, new DataView(new ArrayBuffer(12))]),
  count: () => pair.run([a, new Float32Array(4)]), rank: () => pair.run([a, matrix(3, 1)]),
  "below 0": () => pair.run([a, { data: b, shape: [-1, -3] }]),
  "no shape": () => product.run([new Float32Array(6), matrix(3, 4)]),
  apart: () => product.run([matrix(2, 3), matrix(2, 4)]),
  empty: () => product.run([matrix(0, 3), matrix(3, 4)]),
  "a half size": async () => (await loadProduct()).create({ sizes: { n: 2.5 } }),
  "no size": async () => (await loadProduct()).create({ sizes: { n: "x" } }),
  "above most": async () => (await loadProduct()).create({ sizes: { n: 10 } }),
  address: () => loaded("./pair.wasm", String(new URL("./pair.safetensors", import.meta.url))),
  "a module": async () => loaded(new WebAssembly.Module(await bytes("./pair.wasm"))),
  "a promise": () => loaded(undefined, Promise.resolve(response(200))),
  "another view": () => loaded(undefined, new DataView(weights.buffer)),
  "not found": () => loaded(undefined, response(404)),
  "cut off": () => loaded(undefined, weights.subarray(9)),
  "another module": async () => loaded(await bytes("./product.wasm")), "no source": () => loaded(3),
  again: () => pair.run([a, b]),
};
const told = {};
for (const [name, does] of Object.entries(CASES)) {
  try {
    told[name] = Object.values(await does()).map(({ data }) => Array.from(data, String).join());
  } catch (error) {
    told[name] = `${error.code}: ${error.message}`;
  }
}
console.log(JSON.stringify(told));
"""
_REFUSED = {
    "too many": "ARGUMENT: 3 inputs are given, and there are 2: a, b",
    "null": "ARGUMENT: a is no typed array", "none": "ARGUMENT: a is missing",
    "no list": "ARGUMENT: give inputs as a list, or by name: a, b",
    "number": "ARGUMENT: give inputs as a list",
    "text": "ARGUMENT: a is no typed array, no list of",
    "nested": "ARGUMENT: a is no typed array", "missing": "ARGUMENT: b is missing",
    "inherited": "ARGUMENT: b is missing", "unknown": "ARGUMENT: c is no input: there are a, b",
    "300 in i8": "DTYPE: a is i8, which 300 does not fit",
    "half in i8": "DTYPE: a is i8, which 0.5 does not fit",
    "NaN in i8": "DTYPE: a is i8, which NaN does not fit",
    "f64": "DTYPE: b is f32, a Float32Array, not Float64Array",
    "view": "DTYPE: b is f32, a Float32Array, not DataView",
    "count": "SHAPE: b has 4 elements, and the shape [3]",
    "rank": "RANK: b must have 1 dims, has 2",
    "below 0": "SHAPE: b has 3 elements, and the shape [-1, -3]",
    "no shape": "SHAPE: give x as { data, shape }", "apart": "SHAPE: dim 0 of y gives 2 for k",
    "empty": "RANGE: dim 0 of x gives 0 for n, which may be 1 to 9",
    "a half size": "ARGUMENT: sizes has 2.5 for n", "no size": "ARGUMENT: sizes has x for n",
    "above most": "RANGE: options.sizes has 10 for n, which may be 1 to 9",
    "not found": "FILE: the Response: status 404", "cut off": "FILE: options.weights_bytes is",
    "another module": "FILE: the module is not pair.wasm: it has no pair_create",
    "no source": "FILE: 3 is no address, no bytes and no Response",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each of the script's cases."""
    node()
    folder = tmp_path_factory.mktemp("loader")
    one = torch.ones(3)
    pair = export(
        lambda a, b: (a.float() * one + b, b), (torch.zeros(3, dtype=torch.int8), torch.zeros(3))
    )
    aot(pair, folder, name="pair", targets=["wasm32"], weights="file", freeze=False)
    n, k = Dim("n", min=1, max=9), Dim("k", min=2, max=9)
    product = export(
        lambda x, y: x @ y, (torch.zeros(2, 3), torch.zeros(3, 4)),
        dynamic_shapes={"x": {0: n, 1: k}, "y": {0: k}},
    )
    aot(product, folder, name="product", targets=["wasm32"])
    (folder / "cases.mjs").write_text(_SCRIPT)
    done = subprocess.run([node(), folder / "cases.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_it_takes(told: dict[str, Any]) -> None:
    good = ["NaN,Infinity,3", "NaN,Infinity,0"]
    assert told["good"] == told["typed shape"] == told["again"] == good
    assert told["named"] == ["2,4,-125", "1,2,3"] and told["slices"] == ["2,4,6", "1,2,3"]
    for name in ("address", "a module", "a promise", "another view"):
        assert told[name] == ["2,3,4", "1,1,1"]


@pytest.mark.parametrize("name", _REFUSED)
def test_what_it_refuses(name: str, told: dict[str, Any]) -> None:
    assert isinstance(told[name], str), told[name]
    assert told[name].startswith(f"GRAPHC_{_REFUSED[name]}")
