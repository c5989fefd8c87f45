"""Which graphs' rows are independent: what is proven is tried on rows, alone and together."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.backends.numpy import TABLE
from graphc.export import ExportedProgram, export
from graphc.ir.independence import dependence
from graphc.ir.independence.bodies import BODIES
from graphc.ir.independence.rules import FAMILIES, RULES, SIZES
from graphc.ir.interpret import evaluate
from graphc.ir.op import REGISTRY
from graphc.ir.text import parse_graph

ROWS = 5


def program(model: Callable[..., Any], *shapes: tuple[int, ...], ids: bool = False) -> Any:
    """The model exported with arguments of these shapes, and a free batch in front of each."""
    if isinstance(model, nn.Module):
        model = model if model.training else model.eval()
    torch.manual_seed(0)
    made = [torch.randint(0, 3, (ROWS, *shape)) if ids else torch.randn(ROWS, *shape)
            for shape in shapes]
    free = tuple({0: "batch"} for _ in shapes)
    return export(model, tuple(made), dynamic_shapes=free), made


def reason(exported: ExportedProgram) -> str:
    shared = [i for i, name in enumerate(exported.signature.weights) if name is not None]
    found = dependence(exported.graph, "batch", shared)
    return "" if found is None else str(found)


def results(exported: ExportedProgram, arrays: list[np.ndarray]) -> list[np.ndarray]:
    given = iter(arrays)
    weights = {**exported.state_dict, **exported.constants}
    inputs = [next(given) if name is None else weights[name].numpy()
              for name in exported.signature.weights]
    return evaluate(exported.graph, inputs, TABLE)


class Attention(nn.Module):
    """Rows in dim 0, dim 1, and folded with the heads, as torch's own code has them."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        n, length, _ = x.shape
        q, k, v = self.qkv(x).transpose(0, 1).chunk(3, dim=-1)  # [L, N, 8]
        q, k, v = (
            t.reshape(length, n * 2, 4).transpose(0, 1).reshape(n, 2, length, 4) for t in (q, k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(n, length, 8))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.rnn(x)[0][:, -1]


def _folded_heads(x: Any) -> Any:
    n, length, width = x.shape
    heads = x.view(n, length, 2, width // 2).transpose(1, 2).reshape(n * 2, length, width // 2)
    scores = torch.softmax(heads @ heads.transpose(1, 2), -1)
    return (scores @ heads).view(n, 2, length, width // 2).transpose(1, 2).flatten(2)


def _time_first(x: Any) -> Any:
    y = x.transpose(0, 1)  # [T, N, F]
    flat = y.reshape(-1, y.shape[-1]).tanh()  # the batch inside of dim 0
    return flat.view(y.shape).transpose(0, 1).sum(1)


def _written(x: Any) -> Any:
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    return y


# name: (model, shapes of one row)
INDEPENDENT: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "mlp": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval(), [(6,)]),
    "conv": (nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16, 3), nn.LogSoftmax(1)).eval(), [(2, 4, 4)]),
    "transposed conv": (nn.ConvTranspose2d(2, 3, 2, stride=2).eval(), [(2, 3, 3)]),
    "adaptive pool": (nn.AdaptiveAvgPool2d((2, 2)), [(2, 6, 6)]),
    "attention": (Attention().eval(), [(5, 8)]),
    "folded heads": (_folded_heads, [(4, 6)]),
    "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), [(4, 8)]),
    "gru": (Recurrent().eval(), [(4, 4)]),
    "layer_norm": (nn.LayerNorm(6).eval(), [(4, 6)]),
    "group_norm": (nn.GroupNorm(2, 4).eval(), [(4, 3, 3)]),
    "embedding": (None, [(4,)]),
    "time first": (_time_first, [(3, 4)]),
    "softmax": (lambda x: F.softmax(x, 1), [(6,)]),
    "mean of a row": (lambda x: x - x.mean(1, keepdim=True), [(6,)]),
    "sorted rows": (lambda x: x.sort(1)[0], [(6,)]),
    "best of a row": (lambda x: x.topk(2, 1), [(6,)]),
    "cumsum": (lambda x: x.cumsum(1), [(6,)]),
    "flipped rows": (lambda x: x.flip(1), [(6,)]),
    "gather": (lambda x: x.gather(1, x.argsort(1)), [(6,)]),
    "two arguments": (lambda x, y: (x * y).sum(1), [(6,), (6,)]),
    "outer product": (lambda x, y: torch.einsum("ni,nj->nij", x, y), [(3,), (4,)]),
    "windows": (lambda x: x.unfold(1, 2, 1), [(6,)]),
    "padded": (lambda x: F.pad(x, (1, 2)), [(6,)]),
    "written": (_written, [(6,)]),
    "where": (lambda x: torch.where(x > 0, x, x.new_zeros(())), [(6,)]),
    "masked by a row's any": (lambda x: x * (x > 1).any(1, keepdim=True), [(6,)]),
    "cat": (lambda x: torch.cat([x, x * 2], 1), [(6,)]),
    "stacked": (lambda x: torch.stack([x, x.exp()], 2).flatten(1), [(6,)]),
    "inverse": (lambda x: torch.linalg.inv(x + 4 * torch.eye(3)), [(3, 3)]),
    "spectrum": (lambda x: torch.fft.rfft(x).abs(), [(6,)]),
    "losses of rows": (lambda x: F.cross_entropy(x, x.argmax(1), reduction="none"), [(6,)]),
    "no numbers of the batch": (lambda x: x + torch.arange(6), [(6,)]),
    "zeros of the batch": (lambda x: torch.zeros(x.shape[0], 3) + x[:, :3], [(6,)]),
}

# name: (model, shapes of one row, words of the reason)
DEPENDENT: dict[str, tuple[Any, list[tuple[int, ...]], str]] = {
    "centred": (lambda x: x - x.mean(0), [(6,)], "along dim 0, which holds the batch"),
    "mean of all": (lambda x: x - x.mean(), [(6,)], "holds the batch"),
    "softmax of the batch": (lambda x: x.softmax(0), [(6,)], "softmax goes along dim 0"),
    "batch_norm in training": (
        lambda x: F.batch_norm(x, None, None, training=True), [(6,)], "statistics over the batch"),
    "flipped": (lambda x: x.flip(0), [(6,)], "flip goes along dim 0"),
    "cumsum of the batch": (lambda x: x.cumsum(0), [(6,)], "cumsum goes along dim 0"),
    "sorted": (lambda x: x.sort(0)[0], [(6,)], "sort goes along dim 0"),
    "best of all": (lambda x: x.topk(2, 0)[0], [(6,)], "topk goes along dim 0"),
    "product of rows": (lambda x: x @ x.T, [(6,)], "rows"),
    "gram": (lambda x: x.T @ x, [(6,)], "sums over the batch"),
    "first row": (lambda x: x[0], [(6,)], "takes some of the rows"),
    "without the first": (lambda x: x[1:], [(6,)], "takes some of the rows"),
    "first row for all": (lambda x: x + x[:1], [(6,)], "takes some of the rows"),
    "every other": (lambda x: x[::2], [(6,)], "takes some of the rows"),
    "mixed by reshape": (lambda x: x.reshape(6, -1), [(6,)], "several rows together"),
    "mixed and put back": (
        lambda x: x.reshape(6, -1).T.reshape(-1, 6), [(6,)], "several rows together"),
    "transposed": (lambda x: x.T, [(6,)], "does not have its rows as they came in"),
    "split of rows": (lambda x: x.reshape(-1, 3), [(6,)], "does not have its rows"),
    "any of all": (
        lambda x: torch.where((x > 1).any(), x, -x), [(6,)], "holds the batch"),
    "as many as rows": (lambda x: x / x.shape[0], [(6,)], "size of the batch"),
    "numbers of rows": (
        lambda x: x + torch.arange(x.shape[0])[:, None], [(6,)], "numbers the rows"),
    "loss": (lambda x: F.mse_loss(x, x * 0), [(6,)], "holds the batch"),
    "rolled": (lambda x: torch.roll(x, 1, 0), [(6,)], "size of the batch"),
    "all with all": (lambda x: torch.cdist(x, x), [(6,)], ""),
    "argmax of the batch": (lambda x: x.argmax(0), [(6,)], "argmax goes along dim 0"),
    "padded batch": (lambda x: F.pad(x, (0, 0, 1, 0)), [(6,)], "pad goes along dim 0"),
    "doubled": (lambda x: torch.cat([x, x]), [(6,)], "concat goes along dim 0"),
    "looked up": (lambda x: x[x.argmax(1) % 2], [(6,)], ""),
    "attention over the batch": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0], [(6,)],
        "attention goes along dim 1"),
    "weights alone": (lambda x: (x, torch.ones(3) * 2), [(6,)], "has no rows"),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_proven_rows_hang_on_themselves_alone(name: str) -> None:
    model, shapes = INDEPENDENT[name]
    if model is None:
        model = nn.Embedding(3, 4).eval()
    exported, made = program(model, *shapes, ids=name == "embedding")
    assert reason(exported) == ""
    arrays = [x.numpy() for x in made]
    whole = results(exported, arrays)
    for chosen in ([0, 1], [3, 2], [4, 4]):
        some = results(exported, [array[chosen] for array in arrays])
        for have, want in zip(some, whole, strict=True):
            np.testing.assert_allclose(have, want[chosen], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_meet_are_not_proven(name: str) -> None:
    model, shapes, words = DEPENDENT[name]
    found = reason(program(model, *shapes)[0])
    assert found and words in found


def test_a_reason_names_the_line() -> None:
    def mixed(x: Any) -> Any:
        y = x.exp()
        return y / y.sum(0)

    assert "test_independence.py:" in reason(program(mixed, (6,))[0])


def test_arguments_without_rows() -> None:
    x, scale = torch.randn(4, 6), torch.randn(6)
    exported = export(lambda x, scale: x * scale, (x, scale), dynamic_shapes=({0: "batch"}, None))
    assert "the argument scale is f32[6]" in reason(exported)


def test_a_size_that_must_be_another() -> None:
    """Where a guard says that the batch is as large as something, names tell nothing apart."""
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    exported = export(lambda x, y: x + y, (x, y), dynamic_shapes=({0: "batch"}, {0: "other"}))
    assert "holds only where" in reason(exported)


# Graphs as text: what export does not make today.
def found(body: str, *shared: int) -> str:
    text = f"graph g(%0 x: f32[batch,4], %1 s: i64[626]) {{\n  dims batch=4\n{body}}}"
    return str(dependence(parse_graph(text), "batch", (1, *shared)) or "")


def test_a_draw_is_one_stream() -> None:
    assert "draws random numbers" in found("""
      %2 = rng_bernoulli %1, shape=(batch,4), p=0.5, dtype=bool : (bool[batch,4], i64[626])
      %3 = get %2, index=0 : bool[batch,4]
      %4 = cast %3, dtype=f32 : f32[batch,4]
      %5 = mul %0, %4 : f32[batch,4]
      return %5
    """)


def test_operators_without_a_rule_are_not_proven() -> None:
    assert "there is no rule for partial" in found("""
      %2 = partial %0, rows=1, kind="sum" : f32[batch,4]
      return %2
    """)


@pytest.mark.parametrize("stride, proven", [("(4,1)", True), ("(2,1)", False), ("(1,1)", False)])
def test_strides_inside_of_rows(stride: str, proven: bool) -> None:
    text = found(f"""
      %2 = slice %0, starts=(0,0), stops=(batch,4), steps=(1,1) : f32[batch,4]
      %3 = as_strided %2, size=(batch,4), stride={stride}, offset=0 : f32[batch,4]
      return %3
    """)
    assert text == "" if proven else "as_strided steps from row to row another way" in text


def test_rules_are_of_operators_that_there_are() -> None:
    families = {op.family for op in REGISTRY.values()} | {"pointwise"}
    assert RULES.keys() <= REGISTRY.keys() and FAMILIES.keys() <= families
    assert BODIES.keys() <= {op.name for op in REGISTRY.values() if op.family == "control"}
    assert all(attribute in REGISTRY[name].attrs for name, attribute in SIZES.items())
    drawn = [op.name for op in REGISTRY.values() if op.impure and op.name in RULES]
    assert not drawn
