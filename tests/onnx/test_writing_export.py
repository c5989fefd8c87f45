"""torch.onnx.export: what it takes, what a file holds, what is refused and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.onnx import OnnxExporterError, ONNXProgram, is_in_onnx_export
from graphc.onnx.errors import UnsupportedOperatorError
from tests.onnx import writing
from tests.onnx.writing import onnx


class Net(nn.Module):
    """A linear layer with a buffer, results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x: Any, *, scale: Any = None) -> Any:
        y = self.head(x) + self.shift
        return {"y": y if scale is None else y * scale, "rows": x.shape[0]}


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def names(infos: Any) -> list[str]:
    return [info.name for info in infos]


def sizes(info: Any) -> list[Any]:
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


# --- names and sizes ---------------------------------------------------------------------------


def test_names_and_weights(model: Net) -> None:
    x = torch.randn(2, 4)
    program = torch.onnx.export(
        model, (x,), input_names=["rows"], output_names=["y", "count"],
        dynamic_axes={"rows": {0: "batch size"}, "y": {0: "batch size"}},
    )
    graph = program.model_proto.graph
    assert names(graph.input) == ["rows"] and names(graph.output) == ["y", "count"]
    assert sizes(graph.input[0]) == ["batch size", 4] == [*sizes(graph.output[0])[:1], 4]
    assert {"head.weight", "head.bias", "shift"} <= set(names(graph.initializer))
    weight = next(each for each in graph.initializer if each.name == "head.weight")
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), model.head.weight.detach())
    for batch in (1, 2, 5):
        y, count = program(torch.ones(batch, 4))
        np.testing.assert_allclose(y, model(torch.ones(batch, 4))["y"].detach(), atol=1e-6)
        assert count.item() == batch and count.dtype is torch.int64


def test_named_arguments_and_containers() -> None:
    def function(pair: Any, *, extra: Any) -> Any:
        a, b = pair
        return [a + b, (extra["k"] * 2, a)]

    given = ((torch.ones(2), torch.arange(2.0)),), {"extra": {"k": torch.ones(3)}}
    program = torch.onnx.export(function, *given[:1], kwargs=given[1])
    graph = program.model_proto.graph
    assert names(graph.input) == ["pair_0", "pair_1", "extra_k"]
    found = program(*given[0], **given[1])
    assert [each.tolist() for each in found] == [[1.0, 2.0], [2.0, 2.0, 2.0], [1.0, 1.0]]


def test_an_input_that_is_not_read_stays() -> None:
    program = torch.onnx.export(lambda x, y: x + 1, (torch.ones(2), torch.ones(3)))
    assert names(program.model_proto.graph.input) == ["x", "y"]
    assert program(torch.ones(2), torch.ones(3))[0].tolist() == [2.0, 2.0]


def test_results_that_are_arguments_weights_and_numbers() -> None:
    class Same(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        def forward(self, x: Any) -> Any:
            y = x * 2
            return x, self.w, y, y, 3, 2.5, True, None

    program = torch.onnx.export(Same(), (torch.ones(2),))
    found = program(torch.zeros(2))
    assert [each.tolist() for each in found] == [
        [0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], 3, 2.5, True
    ]


def test_a_loop_and_a_branch_of_a_function() -> None:
    def function(x: Any, n: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return i + 1, torch.cond(y.sum() > 10, lambda y: y - x, lambda y: y * 2 + i, (y,))

        return torch.while_loop(lambda i, y: i < n, step, (torch.zeros((), dtype=torch.int64), x))

    program = torch.onnx.export(
        function, (torch.ones(3), torch.tensor(4)), dynamic_shapes=({0: "size"}, None)
    )
    kinds = [node.op_type for node in program.model_proto.graph.node]
    assert "Loop" in kinds
    for size, n in ((3, 4), (1, 0), (5, 7)):
        x = torch.arange(float(size)) + 1
        want = function(x, torch.tensor(n))
        found = program(x, torch.tensor(n))
        assert found[0].item() == want[0].item()
        np.testing.assert_allclose(found[1], want[1], rtol=1e-6)


def test_sizes_are_computed_in_the_file() -> None:
    def function(x: Any) -> Any:
        n, m = x.shape
        pairs = x[: n // 2 * 2].reshape(n // 2, 2 * m)
        return pairs.mean() * n, torch.arange(n * m).view(n, m), x.flip(0)[1:], x.new_zeros(m + n)

    program = torch.onnx.export(function, (torch.randn(4, 3),), dynamic_shapes=({0: "n", 1: "m"},))
    for shape in ((2, 2), (4, 5), (7, 3)):
        x = torch.randn(shape)
        for ours, theirs in zip(program(x), function(x), strict=True):
            assert ours.shape == theirs.shape and ours.dtype is theirs.dtype
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


# --- what the model relies on ------------------------------------------------------------------


def test_the_file_refuses_sizes_that_the_model_does_not_stand_for() -> None:
    def function(x: Any) -> Any:
        return x * 2 if x.shape[0] > 3 else x - 1

    program = torch.onnx.export(function, (torch.ones(5),), dynamic_shapes=({0: "n"},))
    session = writing.session(program.model_proto.SerializeToString())
    assert session.run(None, {"x": np.ones(4, np.float32)})[0].tolist() == [2.0] * 4
    with pytest.raises(Exception, match="this model holds only where"):
        session.run(None, {"x": np.ones(3, np.float32)})
    with pytest.raises(ValueError, match="holds only where"):
        program(torch.ones(2))


def test_what_follows_from_declared_ranges_is_not_checked() -> None:
    table = nn.Embedding(8, 4)

    def function(x: Any) -> Any:
        return x + table.weight[: x.shape[0]]

    def slices(most: int | None) -> int:
        n = torch.export.Dim("n", min=1, max=most)
        program = torch.onnx.export(function, (torch.ones(4, 4),), dynamic_shapes=({0: n},))
        assert program(torch.ones(5, 4))[0].shape == (5, 4)
        return sum("holds only" in node.name for node in program.model_proto.graph.node)

    assert slices(8) == 0 and slices(None) > 0


def test_what_is_another_computation_at_1_is_a_branch() -> None:
    def function(x: Any) -> Any:
        return (x.sum(0) if x.shape[0] == 1 else x.mean(0) - 1), x + 1

    program = torch.onnx.export(function, (torch.ones(4, 3),), dynamic_shapes=({0: "n"},))
    session = writing.session(program.model_proto.SerializeToString())
    for n in (1, 2, 5):
        x = torch.randn(n, 3)
        for ours, theirs in zip(session.run(None, {"x": x.numpy()}), function(x), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


# --- files -------------------------------------------------------------------------------------


def test_one_file_or_two(model: Net, tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    large = nn.Sequential(nn.Linear(4, 400), nn.Linear(400, 3)).eval()
    for external, files in ((False, {"m.onnx"}), (True, {"m.onnx", "m.onnx.data"})):
        folder = tmp_path / str(external)
        folder.mkdir()
        path = folder / "m.onnx"
        program = torch.onnx.export(large, (x,), path, external_data=external)
        assert {each.name for each in folder.iterdir()} == files
        onnx.checker.check_model(str(path), full_check=True)
        session = writing.onnxruntime.InferenceSession(str(path))
        (found,) = session.run(None, {program.model_proto.graph.input[0].name: x.numpy()})
        np.testing.assert_allclose(found, large(x).detach(), atol=1e-5)
    entry = next(t for t in onnx.load(str(path), load_external_data=False).graph.initializer
                 if t.name == "0.weight")
    said = {each.key: each.value for each in entry.external_data}
    assert said == {"location": "m.onnx.data", "offset": "0", "length": str(4 * 400 * 4)}


def test_many_bytes_go_into_a_second_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                          model: Net) -> None:
    monkeypatch.setattr("graphc.onnx.writing.files.LARGEST", 8)
    program = torch.onnx.export(model, (torch.ones(2, 4),), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists()
    assert program(torch.ones(2, 4))[0].shape == (2, 3)  # through a folder of its own


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, model: Net) -> None:
    program = torch.onnx.export(model, (torch.ones(2, 4),))
    with pytest.raises(OSError):
        program.save(tmp_path / "missing" / "m.onnx")
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(OSError):
        program.save(tmp_path / "m.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]


def test_weights_as_inputs(model: Net, tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    torch.onnx.export(model, (x,), tmp_path / "bare.onnx", export_params=False)
    bare = onnx.load(str(tmp_path / "bare.onnx"))
    assert names(bare.graph.input) == ["x", "head.weight", "head.bias", "shift"]
    feeds = {"x": x.numpy(), **{k: v.numpy() for k, v in model.state_dict().items()}}
    found = writing.session(bare.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(found[0], model(x)["y"].detach(), atol=1e-6)
    torch.onnx.export(model, (x,), tmp_path / "both.onnx", keep_initializers_as_inputs=True)
    both = onnx.load(str(tmp_path / "both.onnx"))
    assert len(both.graph.input) == 4 and "shift" in names(both.graph.initializer)
    other = writing.session(both.SerializeToString()).run(
        None, {"x": x.numpy(), "shift": np.zeros(3, np.float32)}
    )
    np.testing.assert_allclose(other[0] + model.shift.numpy(), found[0], atol=1e-6)


def test_weights_of_the_program_can_be_replaced(model: Net) -> None:
    program = torch.onnx.export(model, (torch.zeros(2, 4),))
    before = program(torch.zeros(2, 4))[0]
    program.apply_weights({"head.bias": model.head.bias + 1})
    np.testing.assert_allclose(program(torch.zeros(2, 4))[0], before + 1, atol=1e-6)
    with pytest.raises(ValueError, match=r"'head\.bias' is float32"):
        program.apply_weights({"head.bias": torch.zeros(5)})
    with pytest.warns(UserWarning, match="no weight 'other'"):
        program.apply_weights({"other": torch.zeros(5)})


def test_weights_and_inputs_without_dims() -> None:
    """A temperature, a counter: numbers in the state."""
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.register_buffer("count", torch.tensor(3))

        def forward(self, by: Any) -> Any:
            return by * self.scale, self.count + 1, self.scale * 3

    program = torch.onnx.export(Scaled(), (torch.tensor(1.5),))
    found = program(torch.tensor(1.25))
    assert [x.shape for x in found] == [(), (), ()]
    assert [x.item() for x in found] == [2.5, 4, 6]
    program.apply_weights({"scale": torch.tensor(4.0)})
    assert program(torch.tensor(1.25))[0].item() == 5


def test_tied_weights_are_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    graph = torch.onnx.export(Tied(), (torch.ones(1, 3),)).model_proto.graph
    assert names(graph.initializer) == ["a.weight"]


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [13, 17, 18, 20, 23])
def test_opsets(opset: int) -> None:
    def function(x: Any) -> Any:
        return F.gelu(x).cumsum(0), F.gelu(x, approximate="tanh"), x.isinf(), x.amax(1)

    x = torch.randn(3, 4)
    program = torch.onnx.export(function, (x,), opset_version=opset)
    assert program.model_proto.opset_import[0].version == opset
    for ours, theirs in zip(program(x), function(x), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_opsets_that_there_are_not(model: Net) -> None:
    for opset in (9, 1000):
        with pytest.raises(OnnxExporterError, match=f"opset_version is {opset}(.|\n)*Cure"):
            torch.onnx.export(model, (torch.ones(2, 4),), opset_version=opset)


def test_verify_and_verbose(capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(4, 3).eval()
    torch.onnx.export(model, (torch.ones(2, 4),), verify=True, verbose=True)
    assert "1 Gemm" in capsys.readouterr().out
    monkeypatch.setattr(ONNXProgram, "__call__", lambda self, *a, **k: (torch.zeros(2, 3),))
    with pytest.raises(OnnxExporterError, match="other numbers for 'output'"):
        torch.onnx.export(model, (torch.ones(2, 4),), verify=True)


def test_modes() -> None:
    """As it is; the older kind of export is of eval mode."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    with pytest.raises(Exception, match=r"model\.eval\(\)"):
        torch.onnx.export(model, (torch.ones(1, 2),))
    assert torch.onnx.export(model, (torch.ones(1, 2),), dynamo=False) is None
    assert model.training and model[1].training


def test_a_program_of_torch_export(model: Net) -> None:
    exported = torch.export.export(model, (torch.ones(2, 4),), check=False)
    program = torch.onnx.export(exported)
    assert program.exported_program is exported
    assert program(torch.ones(2, 4))[0].shape == (2, 3)


def test_code_can_ask() -> None:
    seen = []

    def function(x: Any) -> Any:
        return x + 1 if is_in_onnx_export() else x - 1

    seen.append(torch.onnx.export(function, (torch.ones(1),))(torch.ones(1))[0].item())
    assert seen == [2.0] and function(torch.ones(1)).item() == 0.0


def test_the_reference_implementation_agrees(model: Net) -> None:
    program = torch.onnx.export(model, (torch.ones(2, 4),))
    for ours, theirs in zip(program(torch.ones(2, 4)), program.call_reference(torch.ones(2, 4)),
                            strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_it_says_what_it_is(model: Net) -> None:
    program = torch.onnx.export(model, (torch.ones(2, 4),), dynamic_shapes=({0: "batch"},))
    assert "x: float32[batch,4]" in repr(program) and "1 Gemm" in repr(program)


# --- what is refused ---------------------------------------------------------------------------


def test_an_operator_without_a_rule_is_named_with_its_line() -> None:
    def function(x: Any) -> Any:
        return torch.special.bessel_j0(x)

    with pytest.raises(UnsupportedOperatorError, match=r"bessel_j0 at test_writing_export\.py:"):
        torch.onnx.export(function, (torch.ones(2),))


def test_what_draws_or_writes_is_refused() -> None:
    x = torch.ones(4, 3)
    with pytest.raises(UnsupportedOperatorError, match=r"rng_\w+ at test_writing_export\.py:\d+"):
        torch.onnx.export(lambda x: x + torch.rand(3), (x,))
    with pytest.raises(OnnxExporterError, match=r"'running_mean'(.|\n)*model\.eval\(\)"):
        torch.onnx.export(nn.BatchNorm1d(3), (x,))


def test_axes_of_a_name_that_there_is_not(model: Net) -> None:
    with pytest.warns(UserWarning, match="dynamic_axes names 'z'"):
        torch.onnx.export(model, (torch.ones(2, 4),), input_names=["x"], dynamic_axes={"z": [0]})


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(OnnxExporterError, match=r"x is of torch\.complex64(.|\n)*view_as_real"):
        torch.onnx.export(lambda x: x * 2, (torch.ones(2, dtype=torch.complex64),))
    with pytest.raises(UnsupportedOperatorError, match="complex"):
        torch.onnx.export(lambda x: x.to(torch.complex64).real, (torch.ones(2),))


def test_names_that_do_not_fit(model: Net) -> None:
    x = torch.ones(2, 4)
    for options, said in (
        ({"input_names": ["a", "b"]}, "2 names for 1"),
        ({"output_names": ["a", "b", "c"]}, "3 names, but the model gives 2"),
        ({"input_names": ["a"], "output_names": ["a"]}, "'a' is given twice"),
    ):
        with pytest.raises(OnnxExporterError, match=said):
            torch.onnx.export(model, (x,), **options)


def test_texts_are_no_results() -> None:
    with pytest.raises(OnnxExporterError, match="the text 'a'"):
        torch.onnx.export(lambda x: (x + 1, "a"), (torch.ones(1),))
