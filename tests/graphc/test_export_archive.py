"""Format 2: what a file holds, hashes, recorded calls, `graphc verify`, limits."""

import copy
import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.__main__ import main
from graphc.export import Dim, ExportedProgram, ExportError, Limits, export, lifted, load, save
from graphc.export import limits as limits_module
from graphc.export.archive import FORMAT
from graphc.export.contents import Contents, Golden, Variant
from graphc.export.portable import portable
from graphc.export.signature import Signature, Weights
from graphc.ir.text import parse_graph, print_graph
from tests.export_fuzz.mutate import HOSTILE, packed, unpacked


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One weight, one argument, a free size with a second graph."""
    torch.manual_seed(0)
    path = tmp_path / "small.gcx"

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(x).squeeze(0) + x.shape[0]

    export(Small().eval(), (torch.rand(4, 2),), dynamic_shapes=({0: Dim("n", min=1)},)).save(path)
    return path


def manifest_of(path: Path) -> Any:
    return json.loads(unpacked(path.read_bytes())["manifest.json"])


def test_a_file_holds_what_the_specification_says(small: Path) -> None:
    with zipfile.ZipFile(small) as file:
        names = file.namelist()
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in file.infolist())
    assert names == ["manifest.json", "graph.txt", "graphs/1.txt", "weights.safetensors",
                     "golden/0.safetensors", "golden/1.safetensors"]
    manifest, parts = manifest_of(small), unpacked(small.read_bytes())
    assert manifest["format"] == 2 <= FORMAT and manifest["kind"] == "program"
    assert list(manifest["parts"]) == names[1:]
    for name, described in manifest["parts"].items():
        assert described == {"sha256": hashlib.sha256(parts[name]).hexdigest(),
                             "bytes": len(parts[name])}
    assert [graph["ones"] for graph in manifest["graphs"]] == [[], ["n"]]
    assert manifest["dims"] == {"n": [1, None]}
    assert {"n": 1} in manifest["checked"] and {"n": 3} in manifest["checked"]
    text = (Path(__file__).parents[2] / "docs" / "reference" / "gcx.md").read_text()
    for key in (*manifest, *manifest["graphs"][0]):
        assert f"`{key}`" in text, key


@pytest.mark.parametrize("names", [{}, {"": ""}, {"other": ""}])
def test_texts_beside_the_program_as_in_torch(names: dict[str, str]) -> None:
    given = {"vocabulary.txt": "an\u00e9mone\n", "notes/graph.txt": "no graph", "a.safetensors": ""}
    results = []
    for t in (pytest.importorskip("torch"), torch):
        class Model(t.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return x + 1

        file, found = io.BytesIO(), dict(names)
        t.export.save(t.export.export(Model(), (t.ones(2),)), file, extra_files=given)
        file.seek(0)
        program = t.export.load(file, extra_files=found)
        assert program.module()(t.ones(2)).tolist() == [2.0, 2.0]
        results.append(found)
    assert results[0] == results[1] == ({**names, **given} if names else {})


def test_texts_beside_a_program_stay_with_it(small: Path, tmp_path: Path) -> None:
    path, found = tmp_path / "again.gcx", {"": ""}
    load(small).save(path, extra_files={"a/b.txt": "text"})
    load(path).save(path)
    load(path, extra_files=found)
    assert found["a/b.txt"] == "text"
    with pytest.raises(ExportError, match=r"Bad CRC-32 for file 'extra/a/b\.txt'"):
        load(io.BytesIO(path.read_bytes().replace(b"textPK", b"TEXTPK")))
    for name in ("../a", "a/..", "/a", "a//b", "", "a\n"):
        with pytest.raises(ValueError, match="cannot be the name of an extra file"):
            load(path).save(path, extra_files={name: "text"})
    with pytest.raises(TypeError, match="must be a str, got bytes"):
        load(path).save(path, extra_files={"a": b"text"})
    with pytest.raises(ValueError, match="extra_files are not read"):
        load(path, native=True, extra_files={"": ""})


def test_a_loaded_file_is_saved_as_it_was(small: Path, tmp_path: Path) -> None:
    load(small).save(tmp_path / "again.gcx")
    assert (tmp_path / "again.gcx").read_bytes() == small.read_bytes()


def test_open_files_and_copies(small: Path) -> None:
    file = io.BytesIO()
    program = load(small)
    save(program, file)
    assert file.getvalue() == small.read_bytes()
    x = torch.rand(3, 2)
    other = copy.deepcopy(load(file))
    module = copy.deepcopy(program.module())
    assert torch.equal(other(x), program(x)) and torch.equal(module(x), program(x))
    with torch.no_grad():
        other.state_dict["linear.bias"].zero_()
    assert not torch.equal(other(x), program(x))
    with pytest.raises(ExportError, match="the file cannot be loaded: File is not a zip file"):
        load(io.BytesIO(b"junk"))


def changed(path: Path, part: str, change: Callable[[bytes], bytes], hashes: bool = True) -> Path:
    parts = unpacked(path.read_bytes())
    parts[part] = change(parts[part])
    path.write_bytes(packed(parts, hashes))
    return path


def test_a_part_with_another_hash_is_refused(small: Path) -> None:
    for part in ("graph.txt", "graphs/1.txt", "weights.safetensors", "golden/0.safetensors"):
        data = small.read_bytes()
        changed(small, part, lambda old: old + b" ", hashes=False)
        with pytest.raises(ExportError, match=f"{part} is not what the manifest says"):
            load(small)
        small.write_bytes(data)


def test_unknown_parts_and_entries_are_refused_by_name(small: Path) -> None:
    data = small.read_bytes()
    small.write_bytes(packed({**unpacked(data), "run.py": b"import os"}))
    with pytest.raises(ExportError, match=r"it holds 'run\.py', a part that format 4 does not"):
        load(small)
    small.write_bytes(data)
    changed(small, "manifest.json", lambda old: json.dumps({**json.loads(old), "run": 1}).encode())
    with pytest.raises(ExportError, match=r"unknown or missing entries: \['run'\]"):
        load(small)


def test_native_code_has_a_place_and_is_not_loaded(small: Path) -> None:
    code, name = b"\x7fELF", "native/x86_64-linux/model.so"
    parts = {**unpacked(small.read_bytes()), name: code}
    small.write_bytes(packed(parts))
    with pytest.raises(ExportError, match=r"says nothing of the native code \['native"):
        load(small)
    manifest = json.loads(parts["manifest.json"])
    manifest["native"] = [{"target": "x86_64-linux", "file": name,
                           "sha256": hashlib.sha256(code).hexdigest()}]
    small.write_bytes(packed({**parts, "manifest.json": json.dumps(manifest).encode()}))
    assert load(small)(torch.ones(2, 2)).shape == (2, 3)
    assert main(["verify", str(small)]) == 0
    manifest["native"][0]["sha256"] = "0" * 64
    small.write_bytes(packed({**parts, "manifest.json": json.dumps(manifest).encode()}))
    with pytest.raises(ExportError, match="the native code"):
        load(small)


# --- recorded calls and `verify` -------------------------------------------------------------


def test_verify_runs_the_recorded_calls(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(small)]) == 0
    said = capsys.readouterr().out
    assert said.count("ok  ") == 4 and "compiled" in said and "interpreter" in said
    assert "call 0 (n = 4)" in said and "call 1 (n = 1)" in said


def test_verify_finds_another_weight(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def other(old: bytes) -> bytes:
        return old[:-4] + np.float32(3).tobytes()

    changed(small, "weights.safetensors", other)
    assert main(["verify", str(small)]) == 1
    said = capsys.readouterr().out
    assert said.count("FAIL") == 4 and "result 0 is off in" in said


def test_verify_says_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "no.gcx")]) == 2
    (tmp_path / "junk.gcx").write_bytes(b"junk")
    assert main(["verify", str(tmp_path / "junk.gcx")]) == 2
    export(torch.exp, (torch.ones(3),), check=False).save(tmp_path / "none.gcx")
    assert main(["verify", str(tmp_path / "none.gcx")]) == 2
    said = capsys.readouterr().err
    assert "junk.gcx cannot be loaded" in said and "holds no recorded call" in said


def test_a_changed_state_keeps_no_recorded_call(small: Path, tmp_path: Path) -> None:
    program = load(small)
    with torch.no_grad():
        program.state_dict["linear.bias"].zero_()
    program.save(tmp_path / "other.gcx")
    assert "golden/0.safetensors" not in unpacked((tmp_path / "other.gcx").read_bytes())
    x = torch.rand(3, 2)
    assert torch.equal(load(tmp_path / "other.gcx")(x), program(x))


def test_large_calls_are_not_recorded(tmp_path: Path) -> None:
    program = export(torch.exp, (torch.ones(3 << 20),))
    assert not program.contents.goldens and program.contents.checked
    assert program.example_inputs is None


def test_what_a_call_writes_is_recorded_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = parse_graph("graph g(%0 x: f32[2], %1 total: f32[2]) {\n  %2 = add %0, %1 : f32[2]\n"
                        "  return %2\n}\n")
    spec = {"tuple": [{"tuple": [{"dtype": "f32", "shape": [2]}]}, {"dict": []}]}
    signature = Signature(("x",), (), spec, {"output": 0}, ({"argument": 0}, {"weight": "total"}),
                          {}, ({"output": 0, "weight": "total"},))
    total, x = np.float32([1, 2]), np.float32([10, 20])
    goldens = [Golden({}, {0: x}, {0: x + total}, 0, 0, {"total": y}) for y in (x + total, x)]
    for number, golden in enumerate(goldens):
        contents = Contents((Variant(frozenset(), graph, signature),),
                            Weights({"total": total.copy()}, ("total",)), (golden, golden))
        ExportedProgram(contents).save(tmp_path / f"{number}.gcx")
    program = load(tmp_path / "0.gcx")
    assert program(torch.from_numpy(x)).tolist() == [11, 22]
    assert program(torch.from_numpy(x)).tolist() == [21, 42]
    assert program.state_dict["total"].tolist() == [21, 42]
    assert program.graph_signature.buffers_to_mutate == {"add": "total"}
    assert main(["verify", str(tmp_path / "0.gcx")]) == 0
    assert main(["verify", str(tmp_path / "1.gcx")]) == 1
    assert "total is off in 2 of 2 elements" in capsys.readouterr().out


# --- compared with eager mode ----------------------------------------------------------------


def test_what_differs_from_eager_mode_is_not_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(graph: Any, labels: Any) -> Any:
        text = print_graph(graph).replace("= sinh", "= tan")
        return portable(parse_graph(text), labels)

    def model(x: Any) -> Any:
        return x + 1, torch.sinh(x)

    monkeypatch.setattr(lifted, "portable", wrong)
    x = torch.tensor([0.0, 0.9])
    with pytest.raises(ExportError, match=r"differs from the model in eager mode: result 1 is off "
                                          r"in 1 of 2 elements, most in \[1\]: 1\.26"):
        export(model, (x,))
    assert export(model, (x,), check=False)(x)[0].tolist() == (x + 1).tolist()


def test_no_example_is_made_of_a_size_too_large_to_compare() -> None:
    """A largest size of 2^62: its arrays would fill any memory."""
    n = Dim("n", min=1, max=1 << 62)
    program = export(lambda x: (x * 2)[1:], (torch.zeros(5),), dynamic_shapes={"x": {0: n}})
    assert [dims["n"] for dims in program.contents.checked] == [5, 1, 2, 3]


def test_sizes_that_raise_in_eager_mode() -> None:
    table = torch.arange(5)

    def model(x: Any) -> Any:
        return table[x.shape[0] - torch.ones(x.shape[0], dtype=torch.int64)]

    with pytest.raises(ExportError, match="raises IndexError at n = 9, which its range allows"):
        export(model, (torch.ones(4),), dynamic_shapes=({0: Dim("n", max=9)},))
    program = export(model, (torch.ones(4),), dynamic_shapes=({0: Dim("n", max=5)},))
    assert program(torch.ones(5)).tolist() == [4] * 5
    assert {"n": 5} in program.contents.checked


def test_results_that_rounding_moves_are_no_difference() -> None:
    x = torch.linspace(0, 1, 64)
    export(lambda x: (x * 3).sin().sum().mul(1e7).floor().to(torch.int64), (x,))
    export(lambda x: (x.sum() - x.flip(0).sum()).sign(), (x,))


def test_comparing_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def model(x: Any) -> Any:
        print("called")
        return x + 1

    export(model, (torch.ones(3),), dynamic_shapes=({0: "n"},), check=False)
    said = capsys.readouterr().out
    export(model, (torch.ones(3),), dynamic_shapes=({0: "n"},))
    assert capsys.readouterr().out == said


def test_a_number_that_is_no_number_repeats(tmp_path: Path) -> None:
    program = export(lambda x, by: x * 2, (torch.ones(3), float("nan")))
    program.save(tmp_path / "m.gcx")
    assert load(tmp_path / "m.gcx")(torch.ones(3), float("nan")).tolist() == [2.0] * 3


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_graphs_are_refused(number: int, tmp_path: Path) -> None:
    path = tmp_path / "hostile.gcx"
    export(torch.exp, (torch.ones(4),)).save(path)
    text = HOSTILE[number]().encode()
    parts = unpacked(path.read_bytes())
    path.write_bytes(packed({**parts, "graph.txt": text}))
    with pytest.raises(ExportError, match=r"hostile\.gcx cannot be loaded: "):
        load(path, limits=Limits(nodes=10_000, memory=1 << 28, elements=1 << 32))


def test_limits_hold_at_the_sizes_of_a_call(tmp_path: Path) -> None:
    export(lambda x: (x[:, None] * x).exp().sum(1), (torch.ones(4),),
           dynamic_shapes=({0: "n"},)).save(tmp_path / "m.gcx")
    program = load(tmp_path / "m.gcx", limits=Limits(memory=1 << 20))
    assert program(torch.ones(100)).shape == (100,)
    with pytest.raises(ExportError, match=r"needs 8,000,000 bytes at n = 1000, at .*, and the"):
        program(torch.ones(1000))
    assert limits_module.machine_memory() > 1 << 28


def test_deep_containers_are_refused(small: Path) -> None:
    nested: Any = {"output": 0}
    for _ in range(300):
        nested = {"list": [nested]}
    manifest = manifest_of(small)
    manifest["graphs"][0]["results"] = nested
    changed(small, "manifest.json", lambda old: json.dumps(manifest).encode())
    with pytest.raises(ExportError, match="more than 100 deep"):
        load(small)
