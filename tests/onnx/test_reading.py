"""graphc.onnx.load: a file as a Module that is called, compiled and trained."""

from typing import Any

import numpy as np
import pytest

import graphc as torch

onnx = pytest.importorskip("onnx")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto


def model_of(text: str, **initializers: np.ndarray) -> Any:
    """A model from the text form of graphs; `initializers` by name, dots as two underscores."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> {text}'
    )
    for name, array in initializers.items():
        model.graph.initializer.append(
            numpy_helper.from_array(array, name.replace("__", "."))
        )
    return model


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


MLP = """
mlp (float[n, 4] x) => (float[n, 3] y) {
    h = Gemm<transB = 1>(x, first.weight, first.bias)
    r = Relu(h)
    y = Gemm<transB = 1>(r, second.weight, second.bias)
}
"""


def mlp() -> Any:
    """Names with dots are written into the nodes here: the text form has none."""
    text = MLP.replace("first.", "first__").replace("second.", "second__")
    model = model_of(text, first__weight=random(5, 4), first__bias=random(5),
                     second__weight=random(3, 5), second__bias=random(3))
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = name.replace("__", ".")
    return model


def test_parameters_have_the_files_names() -> None:
    model = torch.onnx.load(mlp())
    assert list(model.state_dict()) == [
        "first.weight", "first.bias", "second.weight", "second.bias"
    ]
    assert all(p.requires_grad for p in model.parameters())
    assert model.input_names == ("x",)
    assert model.output_names == ("y",)
    x = torch.randn(2, 4)
    state = model.state_dict()
    hidden = torch.relu(x @ state["first.weight"].T + state["first.bias"])
    expected = hidden @ state["second.weight"].T + state["second.bias"]
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model(x=x), expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_it_is_trained(compiled: bool) -> None:
    model = torch.onnx.load(mlp())
    plain = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    names = {"0": "first", "2": "second"}
    plain.load_state_dict({
        f"{i}.{what}": model.state_dict()[f"{name}.{what}"].clone()
        for i, name in names.items() for what in ("weight", "bias")
    })
    losses = []
    for each in (model, plain):
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.1)

        def step(x: Any, y: Any, each: Any = each, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(each(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = torch.compile(step) if compiled else step
        losses.append([
            run(torch.randn(6, 4), torch.randint(0, 3, (6,))).item() for _ in range(3)
        ])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_shapes_stay_symbolic() -> None:
    """Shape -> Gather -> Concat -> Reshape is arithmetic on sizes: one program for any batch."""
    model = torch.onnx.load(model_of("""
flat (float[n, 2, 3] x) => (float[n, 6] y, float[m, k] z) {
    zero = Constant<value = int64 {0}>()
    shape = Shape(x)
    n = Gather<axis = 0>(shape, zero)
    axes = Constant<value_ints = [0]>()
    n1 = Unsqueeze(n, axes)
    rest = Constant<value_ints = [-1]>()
    wanted = Concat<axis = 0>(n1, rest)
    y = Reshape(x, wanted)
    two = Constant<value = int64 {2}>()
    double = Mul(n, two)
    d1 = Unsqueeze(double, axes)
    three = Constant<value_ints = [3]>()
    other = Concat<axis = 0>(d1, three)
    z = Reshape(x, other)
}
"""))
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for n in (5, 4, 7, 9):  # others than the fixed sizes: equal ones would be one name
        x = torch.randn(n, 2, 3)
        y, z = compiled(x)
        assert torch.equal(y, x.reshape(n, 6))
        assert torch.equal(z, x.reshape(2 * n, 3))
    assert torch.explain(compiled, x).versions == 1


def test_odd_names() -> None:
    """Names that are no Python names, that are a Module's own, and that are in each other."""
    names = ["forward", "a", "a.b", "type.float", "/x/y:0", "..", "training", "x" * 300, "é.ß"]
    nodes = [helper.make_node("Add", ["in", names[0]], ["out0"])] + [
        helper.make_node("Add", [f"out{i}", name], [f"out{i + 1}"])
        for i, name in enumerate(names[1:])
    ]
    tensors = [
        numpy_helper.from_array(np.full(2, 2.0**i, np.float32), name)
        for i, name in enumerate(names)
    ]
    graph = helper.make_graph(
        nodes, "odd", [helper.make_tensor_value_info("in", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info(f"out{len(names) - 1}", TensorProto.FLOAT, [2])], tensors,
    )
    model = torch.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert set(model.initializer_names) == set(names)
    assert len(model.state_dict()) == len(names)
    assert model(torch.zeros(2)).tolist() == [2.0 ** len(names) - 1] * 2
    assert "é.ß" in model.state_dict()


def test_settings_are_no_parameters() -> None:
    one = np.ones(3, np.float32)
    model = torch.onnx.load(model_of("""
norm (float[n, 3, 4, 4] x) => (float[n, 3, 8, 8] y) {
    h = BatchNormalization(x, scale, bias, mean, var)
    c = Clip(h, low, high)
    y = Resize<mode = "nearest">(c, , scales)
}
""", scale=one, bias=one, mean=one, var=one, low=np.float32(0).reshape(()),
        high=np.float32(6).reshape(()), scales=np.array([1, 1, 2, 2], np.float32)))
    assert [name for name, _ in model.named_parameters()] == ["scale", "bias"]
    assert model(torch.randn(2, 3, 4, 4)).shape == (2, 3, 8, 8)


BRANCH = """
branch (bool c, float[2] x) => (float[2] y) {
    y = If (c) <
        then_branch = yes () => (float[2] a) { a = Mul(x, scale) },
        else_branch = no () => (float[2] b) { b = Neg(x) }
    >
}
"""


@pytest.mark.parametrize("compiled", [False, True])
def test_a_branch_reads_values_around_it(compiled: bool) -> None:
    model = torch.onnx.load(model_of(BRANCH, scale=np.array([2, 3], np.float32)))
    assert [name for name, _ in model.named_parameters()] == ["scale"]
    run = torch.compile(model, fullgraph=True) if compiled else model
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert run(torch.tensor(True), x).tolist() == [2, 6]
    assert run(torch.tensor(False), x).tolist() == [-1, -2]
    run(torch.tensor(True), x).sum().backward()
    assert x.grad.tolist() == [2, 3]
    assert model.scale.grad.tolist() == [1, 2]


COLLATZ = """
steps (int64 n) => (int64 count) {
    zero = Constant<value = int64 {0}>()
    yes = Constant<value = bool {1}>()
    last, count = Loop (, yes, n, zero) <body = step (int64 i, bool going, int64 v, int64 c)
        => (bool more, int64 w, int64 d)
    {
        one = Constant<value = int64 {1}>()
        two = Constant<value = int64 {2}>()
        three = Constant<value = int64 {3}>()
        half = Div(v, two)
        tripled = Mul(v, three)
        next = Add(tripled, one)
        odd_ = Mod(v, two)
        odd = Cast<to = 9>(odd_)
        w = Where(odd, next, half)
        d = Add(c, one)
        more = Greater(w, one)
    }>
}
"""


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_that_values_end(compiled: bool) -> None:
    model = torch.onnx.load(model_of(COLLATZ))
    run = torch.compile(model, fullgraph=True) if compiled else model
    assert [run(torch.tensor(n)).item() for n in (6, 7, 27)] == [8, 16, 111]


def test_functions_of_the_file() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
agraph (float[n] x) => (float[n] y) { y = own.twice<factor = 3.0>(x) }
<domain: "own", opset_import: ["" : 21]>
twice<factor>(x) => (y) {
    f = Constant<value_float : float = @factor>()
    y = Mul(x, f)
}
""")
    assert torch.onnx.load(model)(torch.tensor([1.0, 2.0])).tolist() == [3, 6]


def test_what_is_missing_is_named() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
agraph (float[n] x) => (float[n] y) { z = com.microsoft.Strange(x) y = com.microsoft.Odd(z) }
""")
    with pytest.raises(torch.onnx.OnnxError, match=r"com\.microsoft\.Odd-1 .*Strange-1"):
        torch.onnx.load(model)


def test_wrong_inputs_are_named() -> None:
    model = torch.onnx.load(mlp())
    with pytest.raises(TypeError, match="'x' is missing"):
        model()
    with pytest.raises(TypeError, match=r"'x' is torch.float32 in the file, got torch.int64"):
        model(torch.zeros(2, 4, dtype=torch.int64))
    for shape in ((4,), (2, 7)):
        with pytest.raises(ValueError, match=r"'x' has the shape \['any', 4\]"):
            model(torch.zeros(shape))
    with pytest.raises(TypeError, match="not 'q'"):
        model(torch.zeros(2, 4), q=1)


def test_an_error_names_the_node() -> None:
    model = torch.onnx.load(model_of(
        "g (float[n] x, float[m] y) => (float[k] z) { [total] z = Add(x, y) }"
    ))
    with pytest.raises(RuntimeError) as caught:
        model(torch.zeros(2), torch.zeros(3))
    assert any("node 'total' (Add)" in note for note in caught.value.__notes__)


def test_a_converted_module() -> None:
    model = torch.onnx.load(mlp()).double()
    assert model(torch.zeros(2, 4, dtype=torch.float64)).dtype is torch.float64


def test_a_small_parameter_beside_sizes_is_learned() -> None:
    """Expand(token, sizes): all that is known when the file is read, and still no constant."""
    model = torch.onnx.load(model_of("""
token (float[n, 2] x) => (float[n, 3] y) {
    n = Shape<end = 1>(x)
    three = Constant<value_ints = [3]>()
    sizes = Concat<axis = 0>(n, three)
    y = Expand(cls, sizes)
}
""", cls=np.ones((1, 3), np.float32)))
    assert [name for name, _ in model.named_parameters()] == ["cls"]
    model(torch.zeros(4, 2)).sum().backward()
    assert model.cls.grad.tolist() == [[4, 4, 4]]


def round_trip(model: Any, *args: Any, **options: Any) -> Any:
    """What is written, read again."""
    return torch.onnx.load(torch.onnx.export(model, args, **options).model_proto)


def test_round_trips() -> None:
    torch.manual_seed(0)
    nn = torch.nn
    models = [
        (nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                       nn.Flatten(), nn.Linear(16, 5)), torch.randn(2, 3, 8, 8)),
        (nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), torch.randn(2, 5, 8)),
    ]
    for model, x in models:
        again = round_trip(model.eval(), x)
        assert {name for name, _ in model.named_parameters()} <= set(again.state_dict())
        torch.testing.assert_close(again(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_read_model_is_written_again() -> None:
    model = torch.onnx.load(mlp())
    x = torch.randn(2, 4)
    again = round_trip(model, x)
    assert list(again.state_dict()) == list(model.state_dict())
    torch.testing.assert_close(again(x), model(x))
