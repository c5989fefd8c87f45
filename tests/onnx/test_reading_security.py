"""Hostile and damaged files: each ends in an error that says so, in little time and memory."""

import os
import random
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.onnx.reading.compute import build
from graphc.onnx.reading.compute.rows import control

onnx = pytest.importorskip("onnx")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto


def add_model(tensor: Any, **options: Any) -> Any:
    """x + the initializer `w`."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])], [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **options)


def external(location: str, **more: Any) -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_data_of_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"12" + np.arange(4, dtype=np.float32).tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(add_model(external("sub/w.bin", offset=2, length=16)).SerializeToString())
    assert torch.onnx.load(path)(torch.zeros(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("location", "more", "text"), [
    ("../w.bin", {}, "no path below"), ("/etc/passwd", {}, "no path below"), ("", {}, "no path"),
    ("a/../../w.bin", {}, "no path below"), ("link.bin", {}, "is a link"),
    ("linked/w.bin", {}, "is a link"), ("missing.bin", {}, "cannot be opened"),
    ("w.bin", {"offset": 4}, "which has"), ("w.bin", {"offset": -4}, "no offset"),
    ("w.bin", {"length": 8}, "8 bytes"), ("w.bin", {"offset": "9" * 30}, "no offset"),
    ("sub", {}, "is no file"), ("pipe", {}, "is no file"),
    ("..\\w.bin", {}, "no path below"), ("C:\\w.bin", {}, "no path below"),
])
def test_external_data_elsewhere(
    tmp_path: Path, location: str, more: dict[str, Any], text: str
) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder, folder / "sub"):
        (place / "w.bin").write_bytes(np.zeros(4, np.float32).tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    path = folder / "m.onnx"
    path.write_bytes(add_model(external(location, **more)).SerializeToString())
    with pytest.raises(torch.onnx.OnnxError, match=text):
        torch.onnx.load(path)


def test_bytes_have_no_folder() -> None:
    with pytest.raises(torch.onnx.OnnxError, match="has no folder"):
        torch.onnx.load(add_model(external("w.bin")).SerializeToString())


@pytest.mark.parametrize("dims", [[2**40], [2**31, 2**31], [-1], [5], [1] * 80])
def test_sizes_are_checked_before_memory_is_taken(dims: list[int]) -> None:
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    with pytest.raises(torch.onnx.OnnxError, match=r"damaged"):
        torch.onnx.load(add_model(tensor))
    field = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, float_data=[1.0] * 4)
    with pytest.raises(torch.onnx.OnnxError, match=r"damaged"):
        torch.onnx.load(add_model(field))


@pytest.mark.parametrize("text", [
    "y = ConstantOfShape(s)", "y = Expand(x, s)", "y = Tile(x, s)",
    "e = Constant<value = int64 {1099511627776}>() b = Constant<value = int64 {0}>() "
    "o = Constant<value = int64 {1}>() y = Range(b, e, o)",
])
def test_results_of_hostile_sizes(text: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1] x) => (float[n] y) '
        f"{{ s = Constant<value_ints = [1099511627776]>() {text} }}"
    )
    with pytest.raises(torch.onnx.OnnxError, match="elements"):
        torch.onnx.load(model)(torch.zeros(1))


def test_functions_that_call_themselves() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
agraph (float[n] x) => (float[n] y) { y = own.f(x) }
<domain: "own", opset_import: ["" : 21, "own" : 1]> f (x) => (y) { z = own.f(x) y = own.f(z) }
""")
    with pytest.raises(torch.onnx.OnnxError, match="deep"):
        torch.onnx.load(model)


def test_functions_that_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty functions that call the next one twice each are 2**40 nodes."""
    monkeypatch.setattr(build, "MOST_NODES", 2000)
    rows = "".join(
        f'<domain: "own", opset_import: ["" : 21, "own" : 1]> '
        f"f{i} (x) => (y) {{ z = own.f{i + 1}(x) y = own.f{i + 1}(z) }}\n" for i in range(40)
    )
    model = onnx.parser.parse_model(f"""
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
agraph (float[n] x) => (float[n] y) {{ y = own.f0(x) }}
{rows}<domain: "own", opset_import: ["" : 21]> f40 (x) => (y) {{ y = Neg(x) }}
""")
    with pytest.raises(torch.onnx.OnnxError, match="more than 2000 nodes"):
        torch.onnx.load(model)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"not a model", b"\x0a\xff\xff\xff\xff\x7f"])
def test_no_models(data: bytes) -> None:
    with pytest.raises(torch.onnx.OnnxError):
        torch.onnx.load(data)


def test_operator_sets_that_are_unknown() -> None:
    for version in (0, -1, 10_000):
        model = add_model(numpy_helper.from_array(np.zeros(4, np.float32), "w"))
        model.opset_import[0].version = version
        with pytest.raises(torch.onnx.OnnxError, match=f"operator set {version}"):
            torch.onnx.load(model)


def test_a_loop_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_ITERATIONS", 50)
    model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
g (float[1] x) => (float[1] y) {
    n = Constant<value = int64 {9223372036854775807}>()
    yes = Constant<value = bool {1}>()
    y = Loop(n, yes, x) <body = b (int64 i, bool c, float[1] v) => (bool d, float[1] u)
        { d = Identity(c) u = Neg(v) }>
}''')
    with pytest.raises(torch.onnx.OnnxError, match="more than 50 iterations"):
        torch.onnx.load(model)(torch.zeros(1))


# --- mutants -------------------------------------------------------------------------------------

NET = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[n, 1, 8, 8] x, int64[k] where) => (float[n, m] y, float[k, r] rows, float[a] looped)
<float[3, 1, 3, 3] w = {0.5, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1, 1, 1, 1,
    1, 1, 1}, float[3] b = {1, 2, 3}>
{
    h = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
    r = Relu(h)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    shape = Shape(p)
    zero = Constant<value_ints = [0]>()
    n = Gather<axis = 0>(shape, zero)
    rest = Constant<value_ints = [-1]>()
    wanted = Concat<axis = 0>(n, rest)
    y = Reshape(p, wanted)
    rows = Gather<axis = 0>(y, where)
    trips = Constant<value = int64 {3}>()
    yes = Constant<value = bool {1}>()
    start = ReduceSum<keepdims = 0>(y)
    last, looped = Loop (trips, yes, start) <body = step (int64 i, bool going, float v)
        => (bool more, float u, float out)
    { more = Identity(going) u = Mul(v, v) out = Identity(u) }>
}
"""


def changed(model: Any, source: random.Random) -> None:
    """Change a number, a name or a node: the file stays a message, and says something else."""
    graph = model.graph
    node = source.choice(graph.node)
    kind = source.randrange(6)
    names = [*node.input, *node.output, *[each.name for each in graph.initializer], "", "new"]
    if kind == 0 and node.attribute:
        attribute = source.choice(node.attribute)
        number = source.choice((0, 1, 2, -1, 3, 7, 100, 2**31, -(2**63), 2**63 - 1))
        if attribute.ints:
            attribute.ints[source.randrange(len(attribute.ints))] = number
        attribute.i = number
    elif kind == 1 and node.input:
        node.input[source.randrange(len(node.input))] = source.choice(names)
    elif kind == 2:
        del graph.node[source.randrange(len(graph.node))]
    elif kind == 3:
        node.op_type = source.choice(("Relu", "Conv", "Loop", "Reshape", "Slice", "TopK", "Pad"))
    elif kind == 4:
        tensor = source.choice(graph.initializer)
        tensor.dims[0] = source.choice((0, 1, -1, 2**40, 27))
    else:
        model.opset_import[0].version = source.choice((1, 7, 9, 11, 13, 18, 99))


def mutants(count: int, seed: int) -> list[bytes]:
    """Files that are nearly NET: bytes or parts changed, cut out, repeated, the end missing."""
    source = random.Random(seed)
    parsed = onnx.parser.parse_model(NET)
    whole = parsed.SerializeToString()
    found = []
    for number in range(count):
        if number % 2:
            model = onnx.ModelProto.FromString(whole)
            for _ in range(source.choice((1, 1, 2, 3))):
                changed(model, source)
            found.append(model.SerializeToString())
            continue
        data = bytearray(whole)
        for _ in range(source.choice((1, 1, 2, 5, 20))):
            at = source.randrange(len(data))
            kind = source.randrange(5)
            if kind == 0:
                data[at] = source.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << source.randrange(8)
            elif kind == 2:
                del data[at : at + source.randrange(1, 20)]
            elif kind == 3:
                data[at:at] = data[at : at + source.randrange(1, 40)]
            elif source.random() < 0.2:
                del data[at:]
            if not data:
                data = bytearray(b"\n")
        found.append(bytes(data))
    return found


ALLOWED = (
    torch.onnx.OnnxError, RuntimeError, IndexError, ValueError, TypeError, NotImplementedError,
    ZeroDivisionError, OverflowError, MemoryError,
)


def tried(data: bytes) -> str:
    """How a file ends: what loading raises is an OnnxError, what a call raises is an error."""
    try:
        model = torch.onnx.load(data)
    except torch.onnx.OnnxError:
        return "refused"
    try:
        model(torch.ones(2, 1, 8, 8), torch.tensor([0, 1]))
    except ALLOWED:
        return "error"
    return "ran"


def fuzzed(count: int, seed: int) -> dict[str, int]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = dict.fromkeys(("refused", "error", "ran"), 0)
    for data in mutants(count, seed):
        start = time.process_time()
        ends[tried(data)] += 1
        assert time.process_time() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB
    return ends


def test_mutants() -> None:
    ends = fuzzed(150, 0)
    assert min(ends.values()) > 5, ends


@pytest.mark.slow
def test_many_mutants() -> None:
    ends = fuzzed(5000, 1)
    print(ends)
    assert min(ends.values()) > 100, ends
