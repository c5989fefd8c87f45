"""A damaged or hostile file from a good one, by a seed."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphc.ir.graph import Builder, Graph, Node, get_, input_
from graphc.ir.op import REGISTRY, OpError
from graphc.ir.text import parse_graph, print_graph

NUMBERS = [0, 1, -1, 2, 3, 7, 255, 4096, 1 << 20, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64,
           -(1 << 63), 10**12, 10**30]
VALUES: list[Any] = [
    None, True, "", "x", "n", "f32", "../../etc/passwd", "%0", [], {}, [[]], 1.5, float("inf"),
    *NUMBERS,
]
_ELF = b"\x7fELF\2\1\1" + bytes(9) + b"\3\0\x3e\0\1\0\0\0" + bytes(4096)  # of a library
WORDS = ["nan", "inf", "f64", "i64", "bool", "n", "%0", "%1", "%999", "(", ")", "[", "{", "}",
         "graph", "return", "dims", "guard", '"', "b64\"AAAA\"", "-", "//", "*", "0", "1", "\n"]


def kind_of(seed: int) -> str:
    """What is done by a seed."""
    return list(KINDS)[seed % len(KINDS)]


def mutated(seed: int, files: list[Path]) -> bytes:
    """The bytes of a file that a seed has changed."""
    chance = random.Random(seed)
    return KINDS[kind_of(seed)](chance, chance.choice(files).read_bytes())


# --- bytes ---------------------------------------------------------------------------------------


def _truncated(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def _flipped(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        changed[chance.randrange(len(changed))] ^= chance.randrange(1, 256)
    return bytes(changed)


def _spliced(chance: random.Random, data: bytes) -> bytes:
    start, stop, to = (chance.randrange(len(data)) for _ in range(3))
    start, stop = min(start, stop), max(start, stop)
    return data[:to] + data[start:stop] + data[to:]


# --- parts, with right checksums -----------------------------------------------------------------


def unpacked(data: bytes) -> dict[str, bytes]:
    """The parts of a file."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(parts: dict[str, bytes], hashes: bool = True) -> bytes:
    """A file of parts; `hashes`: the manifest says what they are."""
    parts = dict(parts)
    if hashes:
        try:
            manifest = json.loads(parts["manifest.json"])
            if isinstance(manifest, dict) and manifest.get("format") == 2:
                manifest["parts"] = {
                    name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
                    for name, data in parts.items() if name != "manifest.json"
                }
                parts["manifest.json"] = json.dumps(manifest).encode()
        except (ValueError, KeyError, RecursionError):
            pass
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def _in_part(ending: str, change: Callable[[random.Random, bytes], bytes]) -> Any:
    def one(chance: random.Random, data: bytes) -> bytes:
        parts = unpacked(data)
        name = chance.choice([name for name in parts if name.endswith(ending)])
        parts[name] = change(chance, parts[name])
        return packed(parts)

    return one


def _manifest(chance: random.Random, data: bytes) -> bytes:
    manifest = json.loads(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        place = chance.choice(_places(manifest))
        holder, key = place
        action = chance.randrange(5)
        if action == 0:
            del holder[key]
        elif action == 1:
            other, from_key = chance.choice(_places(manifest) or [place])
            holder[key] = json.loads(json.dumps(other[from_key]))
        elif action == 2 and isinstance(holder, dict):
            holder[str(chance.choice(VALUES))] = chance.choice(VALUES)
        elif action == 3 and isinstance(holder, list):
            holder.append(chance.choice(VALUES))
        else:
            holder[key] = chance.choice(VALUES)
        if not isinstance(manifest, dict) or not _places(manifest):
            break
    return json.dumps(manifest).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of everything inside."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        part = stack.pop()
        keys: Any = list(part) if isinstance(part, dict) else (
            range(len(part)) if isinstance(part, list) else ()
        )
        for key in keys:
            found.append((part, key))
            stack.append(part[key])
    return found


def _text(chance: random.Random, data: bytes) -> bytes:
    """Other numbers, words and lines in a graph's text."""
    lines = data.decode().split("\n")
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(len(lines))
        action = chance.randrange(6)
        if action == 0:
            lines[at] = ""
        elif action == 1:
            lines.insert(at, lines[chance.randrange(len(lines))])
        else:
            words = lines[at].split(" ")
            words[chance.randrange(len(words))] = str(
                chance.choice(WORDS) if action == 2 else chance.choice(NUMBERS)
                if action == 3 else chance.choice(list(REGISTRY))
            )
            lines[at] = " ".join(words)
    return "\n".join(lines).encode()


def _graph(chance: random.Random, data: bytes) -> bytes:
    """Another graph that is well typed: an attribute, an operand or an operator is another one."""
    graph = parse_graph(data.decode())
    for _ in range(40):
        target = chance.choice([node for node in graph.nodes if node.op is not input_] or [None])
        if target is None:
            break
        try:
            return print_graph(_rebuilt(chance, graph, target)).encode()
        except (OpError, ValueError, TypeError, KeyError, IndexError, AttributeError,
                ArithmeticError, AssertionError):
            continue
    return data


def _rebuilt(chance: random.Random, graph: Graph, target: Node) -> Graph:
    builder = Builder(graph.env.copy())
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op is input_:
            new[node] = node
            continue
        op, attrs, inputs = node.op, dict(node.attrs), [new[x] for x in node.inputs]
        if node is target:
            kind = chance.randrange(3)
            if kind == 0 and attrs:
                name = chance.choice(list(attrs))
                attrs[name] = _other(chance, attrs[name])
            elif kind == 1 and inputs:
                pool = list(new.values())
                inputs[chance.randrange(len(inputs))] = chance.choice(pool)
            else:
                alike = [o for o in REGISTRY.values() if o.attrs == op.attrs and o.arity == op.arity
                         and o is not op]
                op = chance.choice(alike or [op])
        made = builder.emit(op, *inputs, graphs=node.graphs, **attrs)
        new[node] = made
        if node.op is not get_ and type(made.type) is not type(node.type):
            raise TypeError("another number of results")
    return Graph(graph.name, graph.inputs, tuple(new[n] for n in graph.outputs), builder.env)


def _other(chance: random.Random, value: Any) -> Any:
    if isinstance(value, tuple) and value:
        items = list(value)
        items[chance.randrange(len(items))] = _other(chance, chance.choice(items))
        return tuple(items)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([*NUMBERS, value + 1, value - 1, value * 2])
    if isinstance(value, float):
        return chance.choice([0.0, -1.0, 1e300, float("nan"), float("inf"), value * 2])
    return chance.choice(VALUES)


# --- hostile on purpose --------------------------------------------------------------------------


def _hostile(chance: random.Random, data: bytes) -> bytes:
    """A graph that asks for too much, in place of the main one."""
    parts = unpacked(data)
    parts["graph.txt"] = chance.choice([*HOSTILE, *LARGE])().encode()
    return packed(parts)


def _body(lines: list[str], result: int) -> str:
    return "\n".join(["graph g(%0: f32[4]) {", *lines, f"  return %{result}", "}"]) + "\n"


def _chain(count: int) -> str:
    lines = [f"  %{i} = exp %{i - 1} : f32[4]" for i in range(1, count)]
    return _body(lines, count - 1)


def _nested(depth: int) -> str:
    text = "  return %0\n"
    for _ in range(depth):
        text = (
            "  %1 = full, shape=(), value=True, dtype=bool : bool[]\n"
            "  %2 = cond %1, %0 : f32[4] {\n"
            "  graph a(%0: f32[4]) {\n" + text + "  }\n"
            "  graph b(%0: f32[4]) {\n  return %0\n  }\n  }\n  return %2\n"
        )
    return "graph g(%0: f32[4]) {\n" + text + "}\n"


def _sized(shape: str) -> str:
    return _body([f"  %1 = full, shape=({shape},), value=1.0, dtype=f32 : f32[{shape}]",
                  f"  %2 = exp %1 : f32[{shape}]"], 2)


HOSTILE: list[Callable[[], str]] = [
    lambda: _sized("4000000000000"),
    lambda: _sized("1099511627776"),
    lambda: _sized("9223372036854775807"),
    lambda: _sized("(" * 3000 + "4" + ")" * 3000),
    lambda: _sized("4" + " + 0" * 5000),
    lambda: _sized(" * ".join(["(a + b + c + d + e + f + g + h)"] * 60)),
    lambda: _sized("9" * 4000),
    lambda: _sized("-" * 3000 + "4"),
    lambda: _chain(20_000),
    lambda: _nested(400),
    lambda: _body(["  %1 = expand %0, shape=(1099511627776, 4) : f32[1099511627776,4]",
                   "  %2 = sum %1, dims=(0,), keepdim=False : f32[4]"], 2),
    lambda: _body(["  %1 = pad %0, low=(99999999999,), high=(0,), interior=(0,), value=0.0 : "
                   "f32[100000000003]"], 1),
    lambda: _body(["  %1 = as_strided %0, size=(4,), stride=(1,), offset=99999 : f32[4]"], 1),
    lambda: _body(["  %1 = as_strided %0, size=(1 << 40,), stride=(0,), offset=0 : f32[4]"], 1),
    lambda: _body([f"  %1 = full, shape=({'1, ' * 5000}), value=1.0, dtype=f32 : "
                   f"f32[{','.join(['1'] * 5000)}]"], 1),
    lambda: _body(["  %1 = iota, shape=(4000000000,), dim=0, dtype=i64 : i64[4000000000]"], 1),
]
# what may be loaded, and costs its caller little
LARGE: list[Callable[[], str]] = [
    lambda: _body(["  %1 = concat " + ", ".join(["%0"] * 2000) + ", dim=0 : f32[8000]"], 1),
    lambda: _chain(2000),
    lambda: _nested(20),
]


def _native(chance: random.Random, data: bytes) -> bytes:
    """Other machine code, which the manifest says it is; there may have been none."""
    parts = unpacked(data)
    old = next((code for name, code in parts.items() if name.startswith("native/")), _ELF)
    parts = {name: code for name, code in parts.items() if not name.startswith("native/")}
    file = chance.choice(["x86_64-linux/libvector.so", "aarch64-linux/libvector.so",
                          "x86_64-linux/vector.so", "../lib_.so", "x/lib-;.so"])
    code = chance.choice([_truncated, _flipped, _spliced])(chance, old)
    target = chance.choice(["x86_64-linux", "aarch64-linux", "", "../.."])
    manifest = json.loads(parts["manifest.json"])
    manifest["native"] = [{"target": target, "file": f"native/{file}",
                           "sha256": hashlib.sha256(code).hexdigest()}]
    parts |= {f"native/{file}": code, "manifest.json": json.dumps(manifest).encode()}
    return packed(parts)


KINDS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "truncated": _truncated,
    "bytes flipped": _flipped,
    "spliced": _spliced,
    "manifest": _in_part("manifest.json", _manifest),
    "manifest again": _in_part("manifest.json", _manifest),
    "graph's text": _in_part(".txt", _text),
    "another graph": _in_part(".txt", _graph),
    "another graph again": _in_part(".txt", _graph),
    "bytes of a part": _in_part("", _flipped),
    "bytes of the weights": _in_part(".safetensors", _flipped),
    "hostile": _hostile,
    "native code": _native,
}
