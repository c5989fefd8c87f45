"""manifest.json of a .gcx file: what the parts are, how they fit, and what format 1 said."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.export import containers, signature
from graphc.export.contents import Contents, Golden, Native, Variant
from graphc.export.errors import ExportError
from graphc.export.signature import VALUES, Signature, Weights, json_with
from graphc.ir import dim, dtypes
from graphc.ir.dim import Size
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType

FORMAT = 4
# 3: a recorded call may have "apart" and a state of its own; 4: containers may be dataclasses; all
# else is as in format 2
MANIFEST, GRAPH, WEIGHTS = "manifest.json", "graph.txt", "weights.safetensors"
PARTS_1 = (GRAPH, WEIGHTS)  # of format 1
_DEPTH = 100  # of containers in containers
_KEYS = frozenset("""
    format kind graphc name parts positional keywords arguments dims narrowed graphs state tied
    parameters buffers kinds numbers generator goldens checked native step
""".split())
_GRAPH_KEYS = frozenset("file ones inputs results writes guards".split())
_OF_STEPS = frozenset({"item", "numpy", "computed"})  # results
_RESULTS = frozenset({"output", "argument", "weight", "size", "value"})
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError,
              StopIteration, SyntaxError)


def graph_file(number: int) -> str:
    """The name of a graph's part."""
    return f"graphs/{number}.txt" if number else GRAPH


def golden_file(number: int) -> str:
    """The name of a recorded call's part."""
    return f"golden/{number}.safetensors"


# --- writing ---------------------------------------------------------------------------------


def dumps(contents: Contents, parts: Mapping[str, Any]) -> bytes:
    """The manifest of a file with these parts."""
    main = contents.main
    return json.dumps({
        "format": _format(contents),
        "kind": contents.kind, "graphc": contents.writer or version(),
        "name": main.graph.name, "parts": dict(parts), **main.signature.to_json(),
        "graphs": [
            {
                "file": graph_file(number), "ones": sorted(variant.ones),
                **variant.signature.of_graph(),
                "guards": [guard.text() for guard in variant.graph.env.guards],
            }
            for number, variant in enumerate(contents.variants)
        ],
        **contents.weights.to_json(),
        "numbers": [dict(number) for number in contents.numbers],
        "generator": contents.generator and dict(contents.generator),
        "goldens": [
            {
                "file": golden_file(number), "dims": dict(golden.dims),
                "numbers": dict(golden.numbers), "rtol": golden.rtol, "atol": golden.atol,
                **({"apart": dict(golden.apart)} if golden.apart else {}),
            }
            for number, golden in enumerate(contents.goldens)
        ],
        "checked": [dict(sizes) for sizes in contents.checked],
        "native": [
            {"target": each.target, "file": each.file, "sha256": each.sha256}
            for each in contents.native
        ],
        "step": contents.step and dict(contents.step),
    }, indent=1).encode()


def _format(contents: Contents) -> int:
    """The first that has all that these contents need."""
    signatures = [variant.signature for variant in contents.variants]
    if any(containers.has_dataclass(part) for s in signatures for part in (s.arguments, s.results)):
        return 4
    return 3 if any(golden.state or golden.apart for golden in contents.goldens) else 2


def version() -> str:
    """Of this graphc."""
    try:
        return importlib.metadata.version("graphc-compiler")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# --- reading ---------------------------------------------------------------------------------


def loads(data: bytes) -> dict[str, Any]:
    """A manifest of a format that this graphc reads, whose parts are listed."""
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{MANIFEST} is not JSON: {error}") from None
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        raise ExportError(f"{MANIFEST} does not say the format of the file")
    if found["format"] > FORMAT:
        raise ExportError(
            f"it has format {found['format']}, written by graphc {found.get('graphc')}; "
            f"this graphc reads formats up to {FORMAT}: upgrade graphc"
        )
    if found["format"] < 1:
        raise ExportError(f"there is no format {found['format']}")
    if found["format"] > 1:
        _check_keys(found)
    return found


def _check_keys(found: Mapping[str, Any]) -> None:
    unknown = sorted(set(found) ^ _KEYS)
    if unknown:
        raise ExportError(f"{MANIFEST} has unknown or missing entries: {unknown}")
    for name, entry in _mapping(found["parts"]).items():
        if set(_mapping(entry)) != {"sha256", "bytes"}:
            raise ExportError(f"{MANIFEST} says {entry!r} of the part {name!r}")
    for each in found["graphs"] if isinstance(found["graphs"], list) else ():
        if set(_mapping(each)) != _GRAPH_KEYS:
            raise ExportError(f"{MANIFEST} has a graph with the entries {sorted(each)}")


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ExportError(f"{MANIFEST} is malformed: {str(value)[:80]!r} is no object")
    return value


def contents(
    found: dict[str, Any], graphs: Mapping[str, Graph],
    arrays: Mapping[str, Mapping[str, np.ndarray]],
) -> Contents:
    """All of a file, its parts being fit together. Raises ExportError where they do not fit."""
    if found["format"] == 1:
        found = _upgraded(found)
    for part in (found["arguments"], *(each["results"] for each in found["graphs"])):
        _check_depth(part)
    weights = signature.weights_from_json(found, arrays[WEIGHTS])
    numbers = _numbers(found["numbers"])
    variants = _variants(found, graphs)
    for variant in variants:
        check_fit(variant, weights.arrays, numbers, found["kind"] == "step")
    try:
        made = Contents(
            variants, weights, _goldens(found, variants, arrays),
            tuple(_sizes(each) for each in found["checked"]), _kind(found["kind"]),
            tuple(found["numbers"]), _generator(found["generator"], weights),
            native_of(found), str(found["graphc"]), found["step"],
        )
    except _MALFORMED as error:
        raise ExportError(f"the manifest is malformed: {error!r}") from None
    if (made.kind == "step") != isinstance(made.step, dict) or (made.kind == "program" and numbers):
        raise ExportError("the manifest gives numbers to what is no step")
    return made


def _check_depth(spec: Any) -> None:
    stack = [(spec, 0)]
    while stack:
        value, depth = stack.pop()
        if depth > _DEPTH:
            raise ExportError(f"the manifest nests containers more than {_DEPTH} deep")
        if isinstance(value, dict):
            stack.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, list):
            stack.extend((item, depth) for item in value)


def _variants(found: dict[str, Any], graphs: Mapping[str, Graph]) -> tuple[Variant, ...]:
    try:
        described = [
            (frozenset(signature.strings(each["ones"])), each["file"], each)
            for each in found["graphs"]
        ]
        if [file for _, file, _ in described] != [graph_file(i) for i in range(len(graphs))]:
            raise ValueError(f"the graphs are {sorted(graphs)}")
        if len({ones for ones, _, _ in described}) != len(described) or described[0][0]:
            raise ValueError("the sizes of 1 of the graphs")
    except _MALFORMED as error:
        raise ExportError(f"the manifest is malformed: {error!r}") from None
    made: list[Variant] = []
    for ones, file, each in described:
        whole = signature.from_json(found, each)
        missing = sorted(ones - set(whole.ranges))
        if missing:
            raise ExportError(f"the manifest has no range of {missing[0]!r}")
        made.append(Variant(ones, graphs[file], whole))
    return tuple(made)


def _numbers(given: Any) -> dict[str, TensorType]:
    found: dict[str, TensorType] = {}
    try:
        for each in given:
            kind, default = each["dtype"], each["default"]
            if set(each) != {"name", "dtype", "default"} or kind not in ("f64", "i64") or (
                default is not None and type(default) not in (int, float)
            ) or type(each["name"]) is not str or each["name"] in found:
                raise ValueError(each)
            found[each["name"]] = TensorType(dtypes.by_name(kind), ())
    except _MALFORMED as error:
        raise ExportError(f"the manifest has malformed numbers: {error!r}") from None
    return found


def _kind(kind: Any) -> str:
    if kind not in ("program", "step"):
        raise ExportError(f"it holds a {kind!r}, which this graphc does not know")
    return str(kind)


def _generator(given: Any, weights: Weights) -> Mapping[str, str] | None:
    states = [weights.arrays[name] for name, kind in weights.kinds.items() if kind == "generator"]
    if any(each.shape != (626,) or each.dtype != np.int64 for each in states):
        raise ValueError("a generator's state is no i64[626]")
    if given is None:
        return None
    array = weights.arrays[given["weight"]]
    known = given["algorithm"] in ("mt19937", "counter") and set(given) == {"weight", "algorithm"}
    if not known or array.shape != (626,) or array.dtype != np.int64:
        raise ValueError(f"the generator {given}")
    return dict(given)


def native_of(found: Mapping[str, Any]) -> tuple[Native, ...]:
    """What a manifest says of machine code: named, and not read. Raises ExportError where that is
    not what the file holds."""
    parts, made = found["parts"], []
    for each in found["native"]:
        if set(each) != {"target", "file", "sha256"} or type(each["target"]) is not str or (
            parts[each["file"]]["sha256"] != each["sha256"]
        ):
            raise ValueError(f"the native code {each}")
        made.append(Native(each["target"], each["file"], each["sha256"]))
    files = {name for name in parts if name.startswith("native/")}
    if files != {each.file for each in made}:
        raise ExportError(f"the manifest says nothing of the native code {sorted(files)}")
    if len({each.target for each in made}) != len(made):
        raise ValueError("native code for one machine twice")
    return tuple(made)


def native_contents(found: Mapping[str, Any]) -> tuple[Signature, tuple[Native, ...]]:
    """How a program is called, and its machine code: what a caller needs who runs that, and reads
    no graph. Raises ExportError where the manifest is malformed."""
    try:
        found = _upgraded(found) if found["format"] == 1 else found
        if _kind(found["kind"]) != "program":
            raise ExportError(
                "it is a training step, of which a file holds no native code. Cure: load(path), "
                "which compiles it here; or graphc.export.aot(load(path), folder), a library "
                "beside the file, which C and ctypes call"
            )
        main = found["graphs"][0]
        for part in (found["arguments"], main["results"]):
            _check_depth(part)
        for leaf in containers.leaves_of(main["results"]):
            ((kind, value),) = leaf.items()
            if kind not in _RESULTS or not isinstance(value, VALUES):
                raise ValueError(f"the result {leaf!r}")
        return signature.from_json(found, main), native_of(found)
    except _MALFORMED as error:
        raise ExportError(f"the manifest is malformed: {error!r}") from None


def _sizes(given: Any) -> dict[str, int]:
    if not all(type(size) is int and size >= 0 for size in given.values()):
        raise ValueError(f"the sizes {given}")
    return dict(given)


def _goldens(
    found: Mapping[str, Any], variants: tuple[Variant, ...],
    arrays: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[Golden, ...]:
    made: list[Golden] = []
    files = sorted(name for name in arrays if name != WEIGHTS)
    if sorted(each["file"] for each in found["goldens"]) != files:
        raise ValueError(f"the recorded calls are {files}")
    specs = variants[0].signature.specs()
    tensors = {i for i, spec in enumerate(specs) if "value" not in spec}
    for each in found["goldens"]:
        by_kind: dict[str, dict[str, np.ndarray]] = {
            "in": {}, "out": {}, "write": {}, "state": {},
        }
        for name, array in arrays[each["file"]].items():
            kind, _, rest = name.partition(".")
            by_kind[kind][rest] = array
        rtol, atol = float(each["rtol"]), float(each["atol"])
        if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
            raise ValueError(f"the tolerances of {each['file']}")
        golden = Golden(
            _sizes(each["dims"]), {int(k): a for k, a in by_kind["in"].items()},
            {int(k): a for k, a in by_kind["out"].items()}, rtol, atol, by_kind["write"],
            _plain_numbers(each["numbers"]), by_kind["state"],
            _plain_numbers(each.get("apart", {})),
        )
        if set(golden.inputs) != tensors:
            raise ValueError(f"the arguments in {each['file']}")
        for name, array in golden.state.items():
            weight = arrays[WEIGHTS][name]
            if array.shape != weight.shape or array.dtype != weight.dtype:
                raise ValueError(f"the state {name!r} in {each['file']}")
        made.append(golden)
    return tuple(made)


def _plain_numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    if not all(type(value) in (int, float) for value in given.values()):
        raise ValueError(f"the numbers {given}")
    return dict(given)


# --- format 1 ------------------------------------------------------------------------------------


def _upgraded(old: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of format 1 as one of format 2. There, a leaf of the arguments said which input
    of the graph it was, and an input was a weight's name or null."""
    inputs: list[Any] = []
    try:
        leaves = list(containers.leaves_of(old["arguments"]))
        by_input = {leaf["tensor"]: i for i, leaf in enumerate(leaves) if "tensor" in leaf}
        for number, name in enumerate(old["weights"]):
            if name is None and number not in by_input:
                raise ExportError(f"nothing says where input {number} of the graph comes from")
            inputs.append({"argument": by_input[number]} if name is None else {"weight": name})
        arguments = json_with(
            old["arguments"], lambda leaf: {k: v for k, v in leaf.items() if k != "tensor"}
        )
        graph = {"file": GRAPH, "ones": [], "inputs": inputs, "results": old["results"],
                 "writes": []}
        return {
            **old, "arguments": arguments, "graphs": [graph], "kind": "program", "narrowed": {},
            "buffers": [], "kinds": {}, "numbers": [], "generator": None, "goldens": [],
            "checked": [], "native": [], "parts": {}, "graphc": old.get("graphc", ""),
            "step": None,
        }
    except _MALFORMED as error:
        raise ExportError(f"the manifest is malformed: {error!r}") from None


# --- how the parts fit ---------------------------------------------------------------------------


def check_fit(
    variant: Variant, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, TensorType],
    step: bool = False,
) -> None:
    """Raise ExportError unless graph, weights and signature fit each other. `step`: results may be
    numbers, whose own check is in steps/manifest.py."""
    graph, whole = variant.graph, variant.signature
    if len(whole.inputs) != len(graph.inputs):
        raise ExportError(
            f"the graph has {len(graph.inputs)} inputs, the manifest {len(whole.inputs)}"
        )
    ones = dict.fromkeys(variant.ones, 1)
    specs = whole.specs()
    types = [None if "value" in spec else _at(signature.tensor_type(spec), ones) for spec in specs]

    def source_type(source: Mapping[str, Any], what: str) -> TensorType:
        ((kind, value),) = source.items()
        if kind == "weight":
            if value not in arrays:
                raise ExportError(f"the weight {value!r} is missing")
            return TensorType(dtypes.from_numpy(arrays[value].dtype), tuple(arrays[value].shape))
        if kind == "number":
            if value not in numbers:
                raise ExportError(f"the number {value!r} is missing")
            return numbers[value]
        found = types[value] if 0 <= value < len(types) else None
        if found is None:
            raise ExportError(f"nothing says where {what} comes from")
        return found

    for i, (source, node) in enumerate(zip(whole.inputs, graph.inputs, strict=True)):
        found = source_type(source, f"input {i} of the graph")
        if found != node.type:
            raise ExportError(f"input {i} of the graph is {node.type}, but its data is {found}")
    named = set(graph.env.hints)
    for type_ in types:
        for size in () if type_ is None else type_.shape:
            named -= _names(size)
    if named:
        raise ExportError(f"no argument gives the free sizes {sorted(named)}")
    for leaf in containers.leaves_of(whole.results):
        if not (step and isinstance(leaf, dict) and leaf.keys() <= _OF_STEPS):
            _check_result(leaf, graph, arrays, types)
    _check_writes(whole, graph, source_type)


def _check_writes(whole: Signature, graph: Graph, source_type: Any) -> None:
    written: set[Any] = set()
    for write in whole.writes:
        target = {kind: value for kind, value in write.items() if kind != "output"}
        if not 0 <= write["output"] < len(graph.outputs) or str(target) in written:
            raise ExportError(f"the manifest has the write {write!r}")
        written.add(str(target))
        found, node = source_type(target, f"what {write!r} writes"), graph.outputs[write["output"]]
        if found != node.type:
            raise ExportError(f"the manifest writes {node.type} into {found}: {write!r}")


def _check_result(
    leaf: Any, graph: Graph, arrays: Mapping[str, np.ndarray], types: list[TensorType | None]
) -> None:
    if not isinstance(leaf, dict) or len(leaf) != 1:
        raise ExportError(f"the manifest has the result {leaf!r}")
    ((kind, value),) = leaf.items()
    fits = {
        "output": lambda: type(value) is int and 0 <= value < len(graph.outputs),
        "argument": lambda: type(value) is int and 0 <= value < len(types)
        and types[value] is not None,
        "weight": lambda: value in arrays,
        "size": lambda: _names(dim.parse(value)) <= set(graph.env.hints),
        "value": lambda: isinstance(value, VALUES),
    }
    try:
        good = kind in fits and fits[kind]()
    except (*_MALFORMED, MemoryError):
        good = False
    if not good:
        raise ExportError(f"the manifest has the result {leaf!r}")


def _at(type_: TensorType, ones: Mapping[str, int]) -> TensorType:
    shape = tuple(dim.unwrap(dim.substitute(size, ones)) for size in type_.shape)
    return TensorType(type_.dtype, shape)


def _names(size: Size) -> set[str]:
    return set() if isinstance(size, int) else set(size.variables())
