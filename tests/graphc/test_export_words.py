"""torch.export's words: Dims and what follows from them, signatures, state, decompositions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import graphc as torch
import graphc.nn as nn
from graphc.export import (
    AdditionalInputs,
    Dim,
    ExportError,
    Limits,
    ShapesCollection,
    default_decompositions,
    dims,
    export,
    load,
)
from graphc.export.graph_signature import ConstantArgument, InputKind, OutputKind
from tests.export_fuzz.mutate import packed, unpacked


class Model(nn.Module):
    """A parameter, buffers of both kinds, a constant from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("shift", torch.ones(3), persistent=False)

    def forward(self, x: Any, scale: float = 2.0) -> Any:
        return self.norm(self.linear(x)) * scale + self.shift + CONSTANT, x.shape[0]


CONSTANT = torch.full((3,), 0.5)


def equal_at(program: Any, model: Callable[..., Any], *sizes: tuple[int, ...]) -> None:
    args = [torch.randn(*size) for size in sizes]
    with torch.no_grad():
        found, wanted = program(*args), model(*args)
    assert found.shape == wanted.shape and torch.allclose(found, wanted, atol=1e-5)


def test_sizes_that_follow(tmp_path: Path) -> None:
    batch = Dim("batch", min=1, max=64)
    assert str(2 * batch + 1) == "(2*batch + 1)" and (2 * batch + 1).max == 129
    assert ((batch + 1) * 2 - 3).min == 1

    def model(x: Any, y: Any) -> Any:
        return torch.cat([x, y[: x.shape[0]] * 2, y[1:]]).cumsum(0)

    shapes = ({0: batch}, {0: 2 * batch + 1})
    program = export(model, (torch.rand(3, 2), torch.rand(7, 2)), dynamic_shapes=shapes)
    program.save(tmp_path / "m.gcx")
    for each in (program, load(tmp_path / "m.gcx")):
        for n in (1, 2, 5, 64):
            equal_at(each, model, (n, 2), (2 * n + 1, 2))
        with pytest.raises(ValueError, match=r"dim 0 of y is 8, but \(2\*batch \+ 1\) is 7, as "
                                             "dim 0 of x is 3"):
            each(torch.rand(3, 2), torch.rand(8, 2))
        with pytest.raises(ValueError, match="'batch' was exported for 1 to 64"):
            each(torch.rand(65, 2), torch.rand(131, 2))


def test_a_size_that_says_what_its_root_is() -> None:
    half = Dim("half", min=2, max=8)

    def model(x: Any) -> Any:
        return x.reshape(-1, 2).sum(1)

    program = export(model, (torch.rand(6),), dynamic_shapes=({0: half * 2},))
    for size in (4, 6, 16):
        equal_at(program, model, (size,))
    for size, said in ((5, "was exported for"), (18, "exported for 2 to 8"), (2, "2 to 8")):
        with pytest.raises(ValueError, match=said):
            program(torch.rand(size))


def test_wrong_dims() -> None:
    n = Dim("n", min=2, max=9)
    for attempt in (lambda: n * -1, lambda: 1 - n, lambda: n + 0.5, lambda: n * n):
        with pytest.raises(NotImplementedError):
            attempt()
    with pytest.raises(ExportError, match="where 'n' is 2; before, 'n' is 3"):
        export(torch.add, (torch.ones(3), torch.ones(3)), dynamic_shapes=({0: n}, {0: n + 1}))
    with pytest.raises(ExportError, match="is 3, but dynamic_shapes fixes it to 4"):
        export(torch.exp, (torch.ones(3),), dynamic_shapes=({0: 4},))
    with pytest.raises(TypeError, match=r"Dim\.STATIC"):
        Dim.STATIC(min=2)
    assert [each.name for each in dims("a", "b", min=2)] == ["a", "b"]


def test_unnamed_sizes_are_what_the_model_says() -> None:
    def model(x: Any, y: Any) -> Any:
        return (x @ y)[:, :4]

    shapes = {"x": {0: Dim.AUTO, 1: Dim.AUTO}, "y": {0: Dim.AUTO, 1: Dim.AUTO(min=4, max=32)}}
    program = export(model, (torch.rand(3, 5), torch.rand(5, 6)), dynamic_shapes=shapes)
    for n, k, m in ((1, 5, 6), (3, 2, 4), (7, 9, 32)):
        equal_at(program, model, (n, k), (k, m))
    with pytest.raises(ValueError):
        program(torch.rand(2, 3), torch.rand(4, 6))
    with pytest.raises(ValueError, match="exported for 4 to 32"):
        program(torch.rand(2, 3), torch.rand(3, 33))

    def fixed(x: Any) -> Any:
        return x + torch.ones(4)

    assert export(fixed, (torch.rand(4),), dynamic_shapes=({0: Dim.AUTO},)).range_constraints == {}
    with pytest.raises(ExportError, match="fixes the free size"):
        export(fixed, (torch.rand(4),), dynamic_shapes=({0: Dim.DYNAMIC},))


def test_shapes_by_tensor_and_by_example() -> None:
    def model(items: Any, *, last: Any) -> Any:
        return torch.cat([*items["parts"], last])

    parts, last = [torch.rand(2, 3), torch.rand(4, 3)], torch.rand(5, 3)
    args, kwargs = ({"parts": parts},), {"last": last}
    shapes = ShapesCollection()
    shapes[parts[1]] = {0: Dim("m", max=9)}
    shapes[last] = (Dim("l"), None)
    program = export(model, args, kwargs, dynamic_shapes=shapes)
    assert set(program.range_constraints) == {"m", "l"} and len(shapes) == 2
    assert program({"parts": [parts[0], torch.rand(8, 3)]}, last=torch.rand(1, 3)).shape == (11, 3)

    more = AdditionalInputs()
    more.add(({"parts": [torch.rand(2, 3), torch.rand(6, 3)]},), {"last": last})
    program = export(model, args, kwargs, dynamic_shapes=more)
    assert program({"parts": [parts[0], torch.rand(8, 3)]}, last=last).shape == (15, 3)
    with pytest.raises(ValueError):
        program({"parts": parts}, last=torch.rand(4, 3))
    assert program.graph_signature.user_inputs == ("items_parts_0", "items_parts_1", "last")
    shapes[torch.rand(2)] = {0: "x"}
    with pytest.raises(ValueError, match="not among the arguments"):
        export(model, args, kwargs, dynamic_shapes=shapes)


def test_arguments_given_by_star() -> None:
    def model(x: Any, *others: Any, **named: Any) -> Any:
        return x + sum(others) * named["scale"]

    n = Dim("n")
    program = export(
        model, (torch.rand(3), torch.rand(3), torch.rand(3)), {"scale": torch.rand(3)},
        dynamic_shapes={"x": {0: n}, "others": ({0: n}, {0: n}), "named": {"scale": {0: n}}},
    )
    args = [torch.rand(6) for _ in range(4)]
    assert torch.equal(program(*args[:3], scale=args[3]), model(*args[:3], scale=args[3]))


def test_the_signature_in_torch_s_words(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    model = Model().eval()
    model.norm.running_mean.copy_(torch.tensor([0.1, 0.2, 0.3]))
    export(model, (x, 3.0), dynamic_shapes={"x": {0: "n"}}).save(tmp_path / "m.gcx")
    for program in (export(model, (x, 3.0)), load(tmp_path / "m.gcx")):
        signature = program.graph_signature
        assert signature.parameters == tuple(n for n, _ in model.named_parameters())
        assert set(signature.buffers) == {"norm.running_mean", "norm.running_var", "shift"}
        assert signature.non_persistent_buffers == ("shift",)
        assert len(signature.lifted_tensor_constants) == 1
        assert signature.inputs_to_parameters["p_linear_weight"] == "linear.weight"
        assert signature.inputs_to_buffers["b_shift"] == "shift"
        assert signature.user_inputs == ("x", 3.0)
        kinds = [spec.kind for spec in signature.input_specs]
        assert kinds.count(InputKind.USER_INPUT) == 2 and kinds[-1] is InputKind.USER_INPUT
        assert signature.input_specs[-1].arg == ConstantArgument("scale", 3.0)
        outputs = signature.output_specs
        assert [spec.kind for spec in outputs] == [OutputKind.USER_OUTPUT] * 2
        assert not signature.buffers_to_mutate and "p_linear_weight: PARAMETER" in str(signature)
        assert dict(program.named_parameters()).keys() == dict(model.named_parameters()).keys()
        assert dict(program.named_buffers()).keys() == dict(model.named_buffers()).keys()
        assert len(list(program.parameters())) == 4 and len(list(program.buffers())) == 4
        program.validate()
        args, kwargs = program.example_inputs
        assert torch.equal(args[0], x) and args[1] == 3.0 and not kwargs


def test_module_moves_and_loads(tmp_path: Path) -> None:
    model = Model().eval()
    module = export(model, (torch.randn(2, 4),), dynamic_shapes=({0: "n"},)).module()
    assert list(module.state_dict()) == list(model.state_dict())
    assert dict(module.named_buffers()).keys() >= {"shift"}
    module.to("cpu")
    with pytest.raises(ValueError, match=r"must be f32\[3.*\], is f64\[3"):
        module.double()(torch.randn(2, 4))


def test_decompositions() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Softmax(1)).eval()
    x = torch.randn(3, 4)
    program = export(model, (x,), dynamic_shapes=({0: "n"},))
    names = [node.op.name for node in program.graph.nodes]
    assert {"gelu", "softmax"} <= set(names)
    assert [n.op.name for n in program.run_decompositions({}).graph.nodes] == names
    table = default_decompositions()
    del table["softmax"]
    some = {node.op.name for node in program.run_decompositions(table).graph.nodes}
    assert "softmax" in some and "gelu" not in some
    whole = program.run_decompositions()
    assert not set(default_decompositions()) & {node.op.name for node in whole.graph.nodes}
    for each in (torch.randn(1, 4), torch.randn(6, 4)):
        assert torch.allclose(whole(each), program(each), atol=1e-6)
    with pytest.raises(ExportError, match="'softmax' that is not graphc's own"):
        program.run_decompositions({"softmax": lambda x, dim: x})


def test_limits_are_said() -> None:
    assert Limits(memory=5).bytes == 5 and Limits().bytes > 1 << 20


def test_the_graph_as_a_graph_module() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)).eval()

    def run(x: Any, y: Any) -> Any:
        return model(x).sum(0) * x.shape[0] + CONSTANT[:1], y.flatten().topk(2)[0]

    n = Dim("n", min=2)
    program = export(run, (torch.randn(3, 4), torch.rand(6, 2)),
                     dynamic_shapes=({0: n}, {0: 2 * n}))
    module = program.graph_module
    nodes = list(module.graph.nodes)
    assert {node.op for node in nodes} <= {"placeholder", "call_function", "get_attr", "output"}
    assert [node.name for node in nodes if node.op == "placeholder"] == [
        spec.arg.name for spec in program.graph_signature.input_specs
    ]
    assert "dot_general" in module.code and "sym_size_n" in str(module.graph)
    module.graph.print_tabular()
    module.graph.lint()
    for rows in (2, 5):
        x, y = torch.randn(rows, 4), torch.rand(2 * rows, 2)
        weights = {**program.state_dict, **program.constants}
        given = [
            (x, y)[("x", "y").index(spec.arg.name)] if spec.target is None else weights[spec.target]
            for spec in program.graph_signature.input_specs
        ]
        with torch.no_grad():
            found, wanted = module(*given), program(x, y)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def test_names_that_no_module_can_have(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False)).eval()
    export(model, (torch.rand(1, 2),)).save(tmp_path / "m.gcx")
    data = (tmp_path / "m.gcx").read_bytes()
    for name in ("forward", "_modules", "__class__", "a..b", "", "."):
        parts = {
            part: content.replace(b'"0.weight"', json.dumps(name).encode())
            for part, content in unpacked(data).items()
        }
        head = parts["weights.safetensors"]
        length = len(head) - 16  # 4 numbers of 4 bytes: the header has another length now
        parts["weights.safetensors"] = (length - 8).to_bytes(8, "little") + head[8:]
        (tmp_path / "m.gcx").write_bytes(packed(parts))
        program = load(tmp_path / "m.gcx")
        assert program(torch.ones(1, 2)).shape == (1, 2)
        with pytest.raises(ExportError, match="cannot be part of a Module"):
            program.module()
