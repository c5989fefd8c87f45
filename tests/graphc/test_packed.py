"""Products whose weights are constants read them in panels, laid out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc import nn
from graphc.backends.host.machine import CPU
from graphc.backends.llvm.target import host_target
from graphc.engine.version.frozen import RESTLESS
from graphc.ir import dtypes
from graphc.ir.graph import Builder, Expr
from graphc.ir.passes.freeze.products import pack_products
from graphc.ir.record import replaced
from graphc.ir.types import TensorType

from ..ir.kernel_cases import dot

Model = Any
TILING = host_target().machine.tiling
has_pairs = pytest.mark.skipif(
    TILING is None or "bf16" not in TILING.steps,
    reason="this CPU multiplies no pairs of bfloat16",
)

SIZES = (520, 600, 70)  # weights that a second cache has no room for; panels that are not full


def model(sizes: tuple[int, ...] = SIZES) -> Model:
    torch.manual_seed(0)
    first, middle, last = sizes
    return nn.Sequential(nn.Linear(first, middle), nn.GELU(), nn.Linear(middle, last)).eval()


def constants(compiled: Any, *args: Any) -> Any:
    return compiled.version(*args).constants


def same(compiled: Any, plain: Any, *args: Any) -> None:
    torch.testing.assert_close(compiled(*args), plain(*args), rtol=1e-4, atol=1e-5)


def through_numpy(m: Model) -> None:
    m[0].weight.detach().numpy()[:] *= 2


EDITS: dict[str, Callable[[Model], Any]] = {
    "in place": lambda m: m[0].weight.mul_(2),
    ".data is set": lambda m: setattr(m[2].weight, "data", torch.ones(70, 600)),
    "another parameter": lambda m: setattr(m[2], "weight", nn.Parameter(torch.ones(70, 600))),
    "numpy": through_numpy,
}


@pytest.mark.parametrize("rows", [1, 40])
@torch.no_grad()
def test_weights_are_laid_out_once(rows: int) -> None:
    m, x = model(), torch.randn(rows, 520)
    compiled = torch.compile(lambda x: m(x))
    for _ in range(3):
        same(compiled, m, x)
    made = constants(compiled, x)
    # panels of as many columns as a tile of the product has: 600 and 70 columns in all
    columns = made.made[0].shape[-1]
    assert columns % host_target().lanes(4) == 0
    assert [tensor.shape for tensor in made.made] == [
        (-(-600 // columns), 520, columns), (-(-70 // columns), 600, columns)
    ]
    assert made.runs == 1
    assert "kept beside them: 2 values" in str(torch.explain(compiled, x))


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@torch.no_grad()
def test_what_is_written_to_weights_is_seen(edit: Callable[[Model], Any]) -> None:
    m, x = model(), torch.randn(3, 520)
    compiled = torch.compile(lambda x: m(x))
    same(compiled, m, x)
    for _ in range(2):
        edit(m)
        for _ in range(2):
            same(compiled, m, x)


@torch.no_grad()
def test_few_rows_of_small_weights_stay_as_they_lie() -> None:
    m, x = model((500, 508, 16)), torch.randn(2, 500)
    compiled = torch.compile(lambda x: m(x))
    same(compiled, m, x)
    assert constants(compiled, x) is None


@torch.no_grad()
def test_a_limit_of_memory_has_no_second_copy() -> None:
    m, x = model(), torch.randn(40, 520)
    compiled = torch.compile(lambda x: m(x), max_memory=1 << 30)
    same(compiled, m, x)
    assert constants(compiled, x) is None


@torch.no_grad()
def test_a_weight_that_every_call_finds_changed_is_no_constant() -> None:
    m, x = model(), torch.randn(40, 520)
    compiled = torch.compile(lambda x: m(x))
    for _ in range(RESTLESS + 3):
        same(compiled, m, x)
        m[0].weight.mul_(1.01)
    assert constants(compiled, x) is None
    assert compiled.compile_count == 2
    m[2].bias.add_(1)
    same(compiled, m, x)


@torch.no_grad()
def test_a_weight_that_changes_now_and_then_stays_a_constant() -> None:
    m, x = model(), torch.randn(40, 520)
    compiled = torch.compile(lambda x: m(x))
    for _ in range(RESTLESS + 3):
        for _ in range(5):
            same(compiled, m, x)
        m[0].weight.mul_(1.01)
    assert constants(compiled, x).runs == RESTLESS + 4 and compiled.compile_count == 1


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "a matrix that is not transposed": (lambda x, w: x @ w, (40, 128), (128, 100)),
    "rows of several dims": (lambda x, w: x @ w.mT + 1, (3, 5, 7, 96), (96, 96)),
    "two dims are summed over": (
        lambda x, w: torch.einsum("bij,nij->bn", x, w), (70, 12, 16), (65, 12, 16)
    ),
    "two dims of columns, in turn": (
        lambda x, w: torch.einsum("bij,jmin->bmn", x, w), (70, 12, 16), (16, 5, 12, 13)
    ),
    "a part of a weight": (lambda x, w: x @ w[10:90].t(), (50, 64), (128, 64)),
    "of two users": (lambda x, w: (x @ w).relu() @ w, (50, 80), (80, 80)),
    "stored by columns": (lambda x, w: (x @ w).t().contiguous(), (50, 80), (80, 90)),
    "which is embedded, too": (lambda x, w: w[torch.arange(5)] + (x @ w.t())[:5, :1], (50, 80),
                               (90, 80)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_products_in_every_spelling(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("graphc.ir.passes.freeze", "graphc.engine.version.frozen"):
        monkeypatch.setattr(f"{place}.LEAST", 1)
    function, of_x, of_w = FUNCTIONS[name]
    torch.manual_seed(1)
    dtype = torch.float64 if "columns" in name else torch.float32
    w, x = torch.randn(of_w, dtype=dtype), torch.randn(of_x, dtype=dtype)
    compiled = torch.compile(lambda x: function(x, w))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x, w), rtol=1e-4, atol=1e-3)
        w.mul_(0.5)
    assert constants(compiled, x) is not None


@has_pairs
@pytest.mark.usefixtures("quick_pairs")
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if " of " in name or "two" in name])
@torch.no_grad()
def test_products_of_halves_in_every_spelling(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("graphc.ir.passes.freeze", "graphc.engine.version.frozen"):
        monkeypatch.setattr(f"{place}.LEAST", 1)
    function, of_x, of_w = FUNCTIONS[name]
    torch.manual_seed(1)
    w, x = (torch.randn(shape).bfloat16() for shape in (of_w, of_x))
    compiled = torch.compile(lambda x: function(x, w))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x, w), rtol=3e-2, atol=0.3)
        w.mul_(0.5)
    made = constants(compiled, x)
    assert any(tensor.shape[-1] == 2 and tensor.ndim == 4 for tensor in made.made)


@torch.no_grad()
def test_batches_of_any_size() -> None:
    m = model()
    compiled = torch.compile(lambda x: m(x))
    for rows in (40, 3, 1, 7, 0, 200, 33):
        same(compiled, m, torch.randn(rows, 520))


@has_pairs
@pytest.mark.usefixtures("quick_pairs")
@torch.no_grad()
def test_batches_of_halves_of_any_size() -> None:
    m = model((521, 600, 70)).bfloat16()
    compiled = torch.compile(lambda x: m(x))
    for rows in (40, 3, 1, 7, 0, 200, 33):
        x = torch.randn(rows, 521).bfloat16()
        torch.testing.assert_close(compiled(x), m(x), rtol=2e-2, atol=2e-2)


def _step(m: Model) -> None:
    """A step of training between two answers."""
    optimizer = torch.optim.SGD(m.parameters(), lr=1.0)
    with torch.enable_grad():
        m(torch.ones(2, 520)).sum().backward()
    optimizer.step()


HALVES_EDITS: dict[str, Callable[[Model], Any]] = {
    "in place": EDITS["in place"],
    "a state is loaded": lambda m: m.load_state_dict(
        {name: value * 2 for name, value in m.state_dict().items()}
    ),
    "an optimizer steps": _step,
}


@has_pairs
@pytest.mark.usefixtures("quick_pairs")
@pytest.mark.parametrize("edit", HALVES_EDITS.values(), ids=HALVES_EDITS)
@torch.no_grad()
def test_what_is_written_to_weights_is_seen_under_autocast(edit: Callable[[Model], Any]) -> None:
    m, x = model(), torch.randn(40, 520)

    def run(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return m(x)

    compiled = torch.compile(run)
    torch.testing.assert_close(compiled(x), run(x), rtol=2e-2, atol=2e-2)
    made = constants(compiled, x).made[0]
    assert made.shape[-1] == 2 and made.shape[0] * made.shape[2] >= 600  # panels of pairs
    for _ in range(2):
        before = run(x)
        edit(m)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), run(x), rtol=2e-2, atol=2e-2)
        assert (before - run(x)).abs().max() > 0.1


@has_pairs
@pytest.mark.usefixtures("quick_pairs")
@torch.no_grad()
def test_infinite_weights_and_inputs_of_halves() -> None:
    m, x = model((519, 600, 70)).bfloat16(), torch.randn(40, 519).bfloat16()
    m[0].weight[:, 518] = float("inf")  # in a word of its own, whose other value is none
    m[2].bias[5] = float("nan")
    compiled = torch.compile(lambda x: m(x))
    x[2] = float("nan")
    torch.testing.assert_close(compiled(x), m(x), equal_nan=True, rtol=2e-2, atol=2e-2)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_halves(kind: str) -> None:
    """Whose weights are laid out in every call, in front of the loop."""
    torch.manual_seed(0)
    net = getattr(nn, kind)(20, 35).bfloat16()
    compiled = torch.compile(lambda x: net(x)[0])
    for rows in (5, 1):
        x = torch.randn(12, rows, 20).bfloat16()
        torch.testing.assert_close(compiled(x), net(x)[0], rtol=2e-2, atol=2e-2)


@torch.no_grad()
def test_infinite_weights_and_inputs() -> None:
    m, x = model(), torch.randn(40, 520)
    m[0].weight[:, 3] = float("inf")
    m[2].bias[5] = float("nan")
    compiled = torch.compile(lambda x: m(x))
    x[2] = float("nan")
    torch.testing.assert_close(compiled(x), m(x), equal_nan=True)


@torch.no_grad()
def test_weights_that_autocast_rounds_are_rounded_once() -> None:
    m, x = model(), torch.randn(40, 520)

    def run(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return m(x)

    compiled = torch.compile(run)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), run(x), rtol=3e-2, atol=3e-2)
        made = constants(compiled, x)
        m[0].weight.mul_(2)
    assert {t.dtype for t in made.made} == {torch.bfloat16} and made.runs == 2


def test_a_large_second_copy_is_made_where_few_rows_gain_most() -> None:
    builder = Builder()
    weight = Expr(builder, builder.input(TensorType(dtypes.f32, (500, 300))))
    products = []
    for rows in (8, 256, 512, 513):
        left = Expr(builder, builder.input(TensorType(dtypes.f32, (rows, 300))))
        products.append(dot(left, weight).node)
    graph = builder.build(products)
    for most, chosen in ((CPU.tiling.packed_bytes, [256, 512]), (300 * 500 * 4 - 1, [8, 256])):
        # in a cache, few rows read a weight as it lies
        tiling = replaced(CPU.tiling, packed_bytes=most, in_place_bytes=most)
        packed, weights = pack_products(graph, {weight.node}, replaced(CPU, tiling=tiling))
        found = [
            node.inputs[0].shape[0] for node in packed.nodes
            if node.op.name == "dot_general" and node.inputs[1] is not weight.node
        ]
        assert found == chosen and len(weights) == 1
