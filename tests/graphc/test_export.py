"""Export: what is recorded, what a file holds, calls of loaded programs, and damaged files."""

import json
import subprocess
import sys
import zipfile
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim, ExportedProgram, ExportError, archive, export, load, save
from graphc.frontend.errors import TraceError
from tests.export_fuzz.mutate import packed, unpacked

ROOT = Path(__file__).parents[2]
Pair = namedtuple("Pair", ["first", "second"])


class ConvNet(nn.Module):
    """Convolution, batch norm, pooling, a linear layer; results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        logits = self.head(x.flatten(1)) * scale
        return {"logits": logits, "prob": F.softmax(logits, 1), "rows": x.shape[0]}


@pytest.fixture
def model() -> ConvNet:
    torch.manual_seed(0)
    made = ConvNet()
    made(torch.randn(7, 1, 8, 8))  # running statistics that are not the initial ones
    return made.eval()


def values(result: Any) -> Any:
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in result.items()}


def assert_same(found: Any, want: Any) -> None:
    found, want = values(found), values(want)
    assert list(found) == list(want) and found["rows"] == want["rows"]
    np.testing.assert_allclose(found["logits"], want["logits"], atol=2e-6)
    np.testing.assert_allclose(found["prob"], want["prob"], atol=1e-6)


# --- what is recorded --------------------------------------------------------------------------


def test_round_trip_with_a_free_batch(model: ConvNet, tmp_path: Path) -> None:
    program = export(model, (torch.randn(5, 1, 8, 8),), dynamic_shapes={"x": {0: "batch"}})
    program.save(tmp_path / "m.gcx")
    loaded = load(tmp_path / "m.gcx")
    assert str(loaded.graph) == str(program.graph)
    with torch.no_grad():
        for batch in (2, 5, 9, 1):
            x = torch.randn(batch, 1, 8, 8)
            for run in (program, loaded, loaded.module()):
                assert_same(run(x), model(x))


def test_weights_are_copies_named_as_in_the_model(model: ConvNet) -> None:
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        want = model(x)
    program = export(model, (x,))
    assert list(program.state_dict) == list(model.state_dict())
    assert [n for n, _ in program.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert program.constants == {}
    with torch.no_grad():
        model.head.bias.zero_()
    assert_same(program(x), want)


def test_module_takes_new_weights(model: ConvNet) -> None:
    x = torch.randn(2, 1, 8, 8)
    module = export(model, (x,)).module()
    assert list(module.state_dict()) == list(model.state_dict())
    torch.manual_seed(1)
    other = ConvNet().eval()
    assert module.load_state_dict(other.state_dict())
    with torch.no_grad():
        assert_same(module(x), other(x))


def test_the_file_runs_where_the_model_is_unknown(model: ConvNet, tmp_path: Path) -> None:
    x = torch.randn(3, 1, 8, 8)
    export(model, (x,)).save(tmp_path / "m.gcx")
    np.save(tmp_path / "x.npy", x.numpy())
    script = (
        "import sys, numpy, graphc, graphc.export\n"
        "program = graphc.export.load(sys.argv[1])\n"
        "result = program(graphc.from_numpy(numpy.load(sys.argv[2])))\n"
        "numpy.save(sys.argv[3], result['logits'].numpy())\n"
    )
    paths = [str(tmp_path / name) for name in ("m.gcx", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", script, *paths], cwd=ROOT, check=True)
    with torch.no_grad():
        want = model(x)["logits"].numpy()
    np.testing.assert_allclose(np.load(paths[2]), want, atol=2e-6)


def test_equal_models_give_equal_bytes_without_paths(model: ConvNet, tmp_path: Path) -> None:
    x = torch.randn(3, 1, 8, 8)
    for name in ("a", "b"):
        save(export(model, (x,)), tmp_path / name)
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert str(ROOT).encode() not in data and b"test_export.py:" in data
    load(tmp_path / "a").save(tmp_path / "c")
    assert data == (tmp_path / "c").read_bytes()


def test_a_failed_save_leaves_the_old_file(model: ConvNet, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    program = export(model, (torch.randn(3, 1, 8, 8),))
    program.save(tmp_path / "m.gcx")
    before = (tmp_path / "m.gcx").read_bytes()

    def full(*args: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(archive, "_write_zip", full)
    with pytest.raises(OSError, match="no space left"):
        program.save(tmp_path / "m.gcx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gcx"]
    assert (tmp_path / "m.gcx").read_bytes() == before


def test_functions_containers_and_constants(tmp_path: Path) -> None:
    large = torch.arange(600).reshape(3, 200).double()
    offset = torch.ones(3)

    def mix(pair: Any, items: list[Any], *, options: dict[str, Any]) -> Any:
        a = pair.first + items[0] * options["gain"]
        b = a @ (pair.second.T + large.float()[:, :4].T)
        return OrderedDict(sum=a, both=Pair(b, (a, None)), same=items[1], offset=offset,
                           note="ok", view=a.T)

    def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
        pair = Pair(torch.randn(2, 4), torch.randn(3, 4))
        return (pair, [torch.randn(2, 4), torch.randn(1)]), {"options": {"gain": 2.5}}

    args, kwargs = arguments()
    export(mix, args, kwargs).save(tmp_path / "f.gcx")
    program = load(tmp_path / "f.gcx")
    args, kwargs = arguments()
    found, want = program(*args, **kwargs), mix(*args, **kwargs)
    assert type(found) is OrderedDict and list(found) == list(want)
    assert found["both"]._fields == Pair._fields and found["both"].second[1] is None
    assert found["same"] is args[1][1] and found["note"] == "ok"
    for a, b in ((found["sum"], want["sum"]), (found["both"].first, want["both"].first),
                 (found["offset"], offset), (found["view"], want["view"])):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)


def test_tied_weights_stay_one(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 4)
            self.head = nn.Linear(4, 11, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.table(ids))

    model = Tied()
    ids = torch.tensor([[1, 2], [3, 10]])
    export(model, (ids,)).save(tmp_path / "t.gcx")
    program = load(tmp_path / "t.gcx")
    assert program.tied == {"head.weight": "table.weight"}
    assert list(program.state_dict) == list(model.state_dict())
    module = program.module()
    assert module.head.weight is module.table.weight
    np.testing.assert_allclose(program(ids).numpy(), model(ids).detach().numpy(), rtol=1e-6)
    with pytest.raises(IndexError):
        program(torch.tensor([[1, 2], [3, 11]]))


def test_guards_of_free_sizes_are_checked() -> None:
    def pairs(x: Any) -> Any:
        return x * 2 if x.shape[0] % 2 == 0 else x

    program = export(pairs, (torch.ones(4, 3),), dynamic_shapes={"x": {0: Dim("n", max=8)}})
    assert program(torch.ones(6, 3)).sum() == 36
    with pytest.raises(ValueError, match="the exported model holds only where"):
        program(torch.ones(5, 3))
    with pytest.raises(ValueError, match="exported for 1 to 8"):
        program(torch.ones(10, 3))


def test_sizes_too_large_for_this_machine_are_not_tried() -> None:
    free = {"x": {0: Dim("n", min=1, max=1 << 50)}}
    program = export(lambda x: x.cumsum(0), (torch.arange(3),), dynamic_shapes=free)
    assert {"n": 2} in program.contents.checked
    assert {"n": 1 << 50} not in program.contents.checked
    assert program(torch.arange(7)).tolist() == [0, 1, 3, 6, 10, 15, 21]


def test_sizes_with_one_name_are_equal() -> None:
    program = export(lambda x, y: x + y, (torch.ones(4), torch.ones(4)),
                     dynamic_shapes=({0: "n"}, (Dim("n"),)))
    assert program(torch.ones(7), torch.ones(7)).tolist() == [2.0] * 7
    with pytest.raises(ValueError, match="dim 0 of y is 6, but dim 0 of x is 7: both are 'n'"):
        program(torch.ones(7), torch.ones(6))


def test_layouts_do_not_matter() -> None:
    program = export(lambda x: (x * 2).T, (torch.ones(3, 4),))
    x = torch.arange(12.0).reshape(4, 3).T
    assert program(x).tolist() == (x * 2).T.tolist()


def test_grad_and_traces_are_refused(model: ConvNet) -> None:
    x = torch.randn(2, 1, 8, 8)
    program = export(model, (x,))
    y = x.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="has no autograd"):
        program(y)
    with torch.no_grad():
        program(y)
    with pytest.raises(TraceError, match="a call of an exported program"):
        torch.compile(lambda t: program(t)["logits"], fullgraph=True)(x)
    with pytest.raises(TraceError, match="a call of an exported program"):
        torch.vmap(program)(x[None])


def test_a_compiled_function_calls_it_between_segments(model: ConvNet) -> None:
    x = torch.randn(2, 1, 8, 8)
    program = export(model.eval(), (x,))
    expected = program(x * 2)["logits"] + 1
    module = program.module()
    with torch.no_grad():
        calls: tuple[Any, ...] = (program, module, torch.compile(module))
        for call in calls:
            compiled = torch.compile(lambda t, call=call: call(t * 2)["logits"] + 1)
            for _ in range(3):
                assert compiled(x).tolist() == expected.tolist()


# --- what cannot be exported -------------------------------------------------------------------


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Any) -> Any:
        self.weight.data = x * 2
        return x


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "argument": (lambda: export(lambda x: x.add_(1), (torch.ones(4),)), "argument number 0.*clone"),
    "data": (lambda: export(_Counter(), (torch.ones(2),)), r"sets `\.data` of weight"),
    "shared": (lambda: export(torch.add, (X, X)), r"share memory.*clone\(\)"),
    "size 1": (lambda: export(lambda x: x if x.shape[0] > 1 else x.reshape(7), (torch.ones(1),),
                              dynamic_shapes=({0: "n"},)),
               "'n' is to be free.*has size 1 in the example.*2 or more"),
    "two sizes": (lambda: export(torch.add, (torch.ones(4), torch.ones(4, 1)),
                                 dynamic_shapes=({0: Dim("n")}, {0: Dim("n", max=9)})),
                  "two ranges"),
    "fixed": (lambda: export(lambda x: x + torch.ones(4), (torch.ones(4),),
                             dynamic_shapes=({0: "n"},)), "fixes the free size 'n' to 4"),
    "name": (lambda: export(lambda x: x, (torch.ones(4),), dynamic_shapes={"y": {0: "n"}}),
             "names 'y', which is no argument.*'x'"),
    "rank": (lambda: export(lambda x: x, (torch.ones(4),), dynamic_shapes={"x": {1: "n"}}),
             "dim 1 of x, which is 1-dimensional"),
    "entries": (lambda: export(lambda x: x, (torch.ones(4),), dynamic_shapes=()),
                "0 entries for 1"),
    "object": (lambda: export(lambda x, y: x, (torch.ones(4), object())), "y is a object"),
    "result": (lambda: export(lambda x: {object(): x}, (torch.ones(4),)), "dict with the key"),
    "set": (lambda: export(lambda x: {1, 2}, (torch.ones(4),)), "returns a set"),
}
X = torch.ones(3)


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_exported(case: str) -> None:
    attempt, message = BAD[case]
    with pytest.raises(ExportError, match=f"(?s){message}"):
        attempt()


def test_bad_dims_and_arguments() -> None:
    with pytest.raises(ValueError, match="identifier that is no dtype"):
        Dim("f32")
    with pytest.raises(ValueError, match="has no size: min is 5, max is 4"):
        Dim("n", min=5, max=4)
    with pytest.raises(TypeError, match=r"export\(model, \(x,\)\)"):
        export(torch.exp, torch.ones(3))  # type: ignore[arg-type]


CALLS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "missing": (lambda p: p(), TypeError, "needs x, scale; it takes x, scale"),
    "many": (lambda p: p(1, 2, 3), TypeError, "takes 2 arguments, got 3"),
    "unknown": (lambda p: p(torch.ones(2, 1, 8, 8), 3.0, y=1), TypeError, "'y'.*takes none"),
    "twice": (lambda p: p(torch.ones(2, 1, 8, 8), 3.0, x=1), TypeError, "'x'.*twice"),
    "constant": (lambda p: p(torch.ones(2, 1, 8, 8), 2.0), ValueError, "exported with 3.0"),
    "array": (lambda p: p(np.ones((2, 1, 8, 8)), 3.0), TypeError, r"graphc\.from_numpy"),
    "dtype": (lambda p: p(torch.ones(2, 1, 8, 8).double(), 3.0), ValueError, r"got f64\[2,1,8,8\]"),
    "rank": (lambda p: p(torch.ones(2, 8, 8), 3.0), ValueError, r"got f32\[2,8,8\]"),
    "size": (lambda p: p(torch.ones(2, 1, 8, 9), 3.0), ValueError, r"f32\[2,1,8,9\].*export"),
    "one": (lambda p: p(torch.ones(1, 1, 8, 8), 3.0), ValueError, "dim 0 of x is 1"),
}


def test_wrong_calls(model: ConvNet) -> None:
    x = torch.randn(2, 1, 8, 8)
    program = export(model, (x, 3.0), dynamic_shapes={"x": {0: Dim("batch", min=2)}})
    for name, (call, kind, message) in CALLS.items():
        with pytest.raises(kind, match=f"(?s){message}"):
            call(program)
            pytest.fail(name)
    with torch.no_grad():
        assert_same(program(scale=3.0, x=x), model(x, 3.0))


# --- damaged files -----------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The smallest interesting file: one weight, one argument, a free size."""
    torch.manual_seed(0)
    path = tmp_path / "small.gcx"
    export(nn.Linear(2, 3), (torch.ones(4, 2),), dynamic_shapes=({0: "n"},)).save(path)
    return path


def test_every_truncation_is_an_error(small: Path) -> None:
    data = small.read_bytes()
    for length in range(0, len(data), 97):
        small.write_bytes(data[:length])
        with pytest.raises(ExportError, match=r"small\.gcx cannot be loaded: .*Cure: "):
            load(small)


def test_no_flipped_byte_goes_unnoticed(small: Path) -> None:
    data = bytearray(small.read_bytes())
    good = load(small)
    want = good.state_dict["weight"].tolist()
    harmless = 0
    for place in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[place] ^= 0x41
        small.write_bytes(bytes(flipped))
        try:
            found = load(small)
        except ExportError:
            continue
        harmless += 1  # dates and permissions in the zip's own headers
        assert str(found.graph) == str(good.graph)
        assert found.state_dict["weight"].tolist() == want
    assert harmless < 200


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None], **options: Any) -> None:
    """The file with changed parts and right checksums."""
    parts = unpacked(path.read_bytes())
    change(parts)
    parts = unpacked(packed(parts))
    with zipfile.ZipFile(path, "w", **options) as new:
        for name, data in parts.items():
            new.writestr(name, data)


def manifest(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(parts: dict[str, bytes]) -> None:
        found = json.loads(parts["manifest.json"])
        found.update(changes)
        parts["manifest.json"] = json.dumps(found).encode()

    return change


def of_graph(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    """The manifest with other entries of the main graph."""
    def change(parts: dict[str, bytes]) -> None:
        found = json.loads(parts["manifest.json"])
        found["graphs"][0].update(changes)
        parts["manifest.json"] = json.dumps(found).encode()

    return change


def text(old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    def change(parts: dict[str, bytes]) -> None:
        assert old.encode() in parts["graph.txt"]
        parts["graph.txt"] = parts["graph.txt"].replace(old.encode(), new.encode())

    return change


def put(name: str, data: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda parts: parts.update({name: data})


NESTED = b'{"list": [' * 100_000
TAMPERED: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "newer": (manifest(format=99), "format 99.*upgrade graphc"),
    "older": (manifest(format=0), "no format 0"),
    "formatless": (manifest(format="1"), "does not say the format"),
    "no json": (put("manifest.json", b"{"), "is not JSON"),
    "deep json": (put("manifest.json", NESTED), "is not JSON"),
    "list": (put("manifest.json", b"[]"), "does not say the format"),
    "missing part": (lambda parts: parts.pop("graph.txt"), "the graphs are"),
    "further part": (put("run.py", b"import os"), "does not know"),
    "unknown operator": (text("dot_general", "dot_generous"), "unknown operator 'dot_generous'"),
    "wrong type": (text("f32[n,3]", "f32[n,4]"), "graph.txt"),
    "fixed size": (text("dims n=4", "dims n=1"), "n' below 2"),
    "other size": (text("f32[n,2]", "f32[m,2]"), "cannot be loaded"),
    "not a graph": (put("graph.txt", b"import os"), "expected 'graph'"),
    "binary": (put("graph.txt", b"\xff\xfe\x00"), "graph.txt is malformed|cannot be loaded"),
    "weights": (put("weights.safetensors", b"\x08\0\0\0\0\0\0\0{}      "), "names of weights"),
    "no weights": (put("weights.safetensors", b""), "too few"),
    "inputs": (of_graph(inputs=[{"weight": "weight"}]), "3 inputs, the manifest 1"),
    "input kind": (of_graph(inputs=[{"eval": "1"}]), "malformed"),
    "input leaf": (of_graph(inputs=[{"argument": 9}] * 3), "nothing says where input 0"),
    "write": (of_graph(writes=[{"output": 0, "weight": "bias"}]), "writes"),
    "write twice": (of_graph(writes=[{"output": 0, "argument": 0}] * 2), "the write|writes"),
    "arguments": (manifest(arguments={"tuple": []}), "malformed"),
    "argument type": (manifest(arguments={"tuple": [{"tuple": [{"dtype": "f64",
                      "shape": ["n", 2]}]}, {"dict": []}]}), "but its data is f64"),
    "unbound": (manifest(arguments={"tuple": [{"tuple": [{"dtype": "f32",
                "shape": [4, 2]}]}, {"dict": []}]}), "but its data is"),
    "result": (of_graph(results={"output": 5}), "the result"),
    "result kind": (of_graph(results={"eval": "1"}), "the result"),
    "result size": (of_graph(results={"size": "__import__('os')"}), "the result"),
    "result free": (of_graph(results={"size": "q"}), "the result"),
    "result value": (of_graph(results={"argument": 7}), "the result"),
    "tied": (manifest(tied={"a": "b"}), "names of weights"),
    "parameters": (manifest(parameters=["nothing"]), "names of weights"),
    "state": (manifest(state=None), "names of weights"),
    "fields": (of_graph(results={"namedtuple": "A", "fields": ["class"],
               "items": [{"output": 0}]}), "malformed namedtuple"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_tampered_files(case: str, small: Path) -> None:
    change, message = TAMPERED[case]
    rewrite(small, change)
    with pytest.raises(ExportError, match=f"(?s){message}"):
        load(small)


def test_compressed_files_are_refused(small: Path) -> None:
    rewrite(small, lambda parts: None, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ExportError, match="compressed or encrypted"):
        load(small)


def test_a_fusion_made_elsewhere_is_refused(small: Path) -> None:
    b = (
        'graph g(%0: f32[n,2]) {\n  dims n=4\n  %1 = fusion %0, kind="loop" : f32[n,2] {\n'
        "    graph loop(%0: f32[n,2]) {\n      %1 = exp %0 : f32[n,2]\n      return %1\n    }\n"
        "  }\n"
        "  return %1\n}\n"
    )
    rewrite(small, put("graph.txt", b.encode()))
    with pytest.raises(ExportError, match="which only passes make"):
        load(small)


def test_missing_files_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.gcx")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


def test_a_program_says_what_it_is(model: ConvNet) -> None:
    program = export(model, (torch.randn(2, 1, 8, 8),))
    assert isinstance(program, ExportedProgram)
    assert repr(program).startswith("ExportedProgram(x):\ngraph ConvNet(")


class Sized(nn.Module):
    """Takes a size, and gives one."""

    def forward(self, x: Any, size: Any) -> Any:
        return {"values": x.reshape(size), "shape": x.size()}


def test_sizes_are_tuples_in_a_file(tmp_path: Path) -> None:
    rows = Dim("rows", max=9)
    given = torch.ones(3, 4), torch.Size([-1])
    program = export(Sized(), given, dynamic_shapes=({0: rows}, None))
    program.save(tmp_path / "sized.gcx")
    for size in (torch.Size([-1]), (-1,)):
        found = load(tmp_path / "sized.gcx")(torch.ones(5, 4), size)
        assert found["shape"] == (5, 4) and found["values"].shape == (20,)
