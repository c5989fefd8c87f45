"""Replayed functions that are called often run as one Python function, with or without a history
as one node: to the bit what their operators give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_rows
from graphc.frontend import replayed, replayed_steps
from graphc.nn import functional as F

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "var": lambda x, y: x.var(1), "std of rows": lambda x, y: x.std(1, keepdim=True),
    "both": lambda x, y: torch.std_mean(x, 0), "max": lambda x, y: x.max(1),
    "norm": lambda x, y: x.norm(dim=1), "cubes": lambda x, y: x.norm(3, dim=0),
    "normalize": lambda x, y: F.normalize(x), "cosine": lambda x, y: F.cosine_similarity(x, y),
    "distance": lambda x, y: F.pairwise_distance(x, y), "rms": lambda x, y: F.rms_norm(x, (4,)),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, y * 2),
    "huber": lambda x, y: F.huber_loss(x, y), "smooth": lambda x, y: F.smooth_l1_loss(x, y),
    "logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "kl": lambda x, y: F.kl_div(x, y.exp()), "mish": lambda x, y: F.mish(x),
    "elu": lambda x, y: F.elu(x), "hardswish": lambda x, y: F.hardswish(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x), "spread": lambda x, y: torch.lerp(x, y[:1], 0.3),
    "the same": lambda x, y: F.mse_loss(x, x), "median": lambda x, y: x.median(1),
    "stacked": lambda x, y: torch.stack([x, y], 1), "padded": lambda x, y: F.pad(x, (1, 1)),
    "unfold": lambda x, y: F.unfold(x[None, None], 2), "diag": lambda x, y: x.diag(),
    "attention": lambda x, y: F.scaled_dot_product_attention(x, y, x),
    "causal": lambda x, y: F.scaled_dot_product_attention(x, y, x, is_causal=True),
    "masked": lambda x, y: F.scaled_dot_product_attention(x, y, x, y > 0),
    "reflected": lambda x, y: F.pad(x[None], (1, 2), mode="reflect"),
    "replicated": lambda x, y: F.pad(x[None], (1, 2, 3, 0), mode="replicate"),
    "around": lambda x, y: F.pad(x[None], (1, 2, 0, 1), mode="circular"),
    "batch norm": lambda x, y: F.batch_norm(x, y[0], y[1].exp(), y[2], y[3]),
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda v: v, "turned": lambda v: v.t(), "steps": lambda v: v.repeat(2, 2)[::2, ::2],
    "none": lambda v: v[:, :0],
}
DTYPES = {"f32": torch.float32, "f16": torch.float16}


def operands(layout: str, dtype: Any, recorded: bool, special: bool) -> list[Any]:
    numbers = np.random.default_rng(3).standard_normal((2, 4, 4)) * 2
    numbers[0, 0] = [0, 3, -3, 1]
    if special:
        numbers[0, 1, :3] = [np.nan, np.inf, -np.inf]
    return [
        LAYOUTS[layout](torch.tensor(v, dtype=dtype)).detach().requires_grad_(recorded)
        for v in numbers
    ]


def bits(array: Any) -> bytes:
    """But for the sign of what is no number: that of the operand that code reads first."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    found: bytes = array.tobytes()
    return found


def outcome(call: Callable[[Any, Any], Any], *given: Any) -> Any:
    """Bits, strides, the names of nodes, gradients; or what is raised."""
    x, y = operands(*given)
    try:
        result = call(x, y)
    except (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError) as error:
        return type(error)
    found: list[Any] = []
    for part in result if isinstance(result, tuple) else (result,):
        array = part.detach().numpy()
        found += [bits(array), array.strides, part.grad_fn and part.grad_fn.name()]
        if part.requires_grad:
            part.backward(torch.ones_like(part) * 0.7, retain_graph=True)
    return [*found, *[w.grad if w.grad is None else bits(w.grad.numpy()) for w in (x, y)]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_bits(name, layout, dtype, recorded, monkeypatch):
    given = layout, DTYPES[dtype], recorded, dtype == "f32"
    monkeypatch.setattr(replayed_steps, "_OFTEN", 2)
    monkeypatch.setattr(replayed, "_known", {})
    often = [outcome(CALLS[name], *given) for _ in range(4)]
    monkeypatch.setattr(replayed_steps, "_OFTEN", -1)
    monkeypatch.setattr(eager_rows, "linked", lambda *_: None)
    monkeypatch.setattr(replayed, "_known", {})
    one_by_one = [outcome(CALLS[name], *given) for _ in range(2)]
    assert often == [one_by_one[0]] * 4 == one_by_one * 2


@pytest.mark.usefixtures("only_the_cpu")
def test_often_called_functions_are_one(monkeypatch):
    made = []
    straight = replayed_steps.straight
    monkeypatch.setattr(
        replayed_steps, "straight", lambda *given: made.append(len(given[0])) or straight(*given)
    )
    monkeypatch.setattr(replayed, "_known", {})
    x = torch.rand(3, 5)
    for _ in range(29):
        x.var(1)
    assert not made
    for _ in range(9):
        x.var(1)
    assert made == [13]


@pytest.mark.usefixtures("only_the_cpu")
@pytest.mark.parametrize("name", [
    "var", "std of rows", "norm", "distance", "huber", "smooth", "logits",
    "mish", "elu", "hardswish", "spread", "triplet",
])
def test_a_history_is_one_node(name, monkeypatch):
    monkeypatch.setattr(replayed, "_known", {})
    x, y = operands("rows", torch.float32, True, False)
    for _ in range(2):
        result = CALLS[name](x, y)
    nodes, seen = [result.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [edge[0] for edge in node.edges if edge is not None]
    ours = {node for node in seen if "chain" in getattr(getattr(node, "op", None), "name", "")}
    assert len(ours) == 1


def calls_of(t: Any, x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    functional = t.nn.functional
    return {
        "var": lambda: x.var(1), "norm": lambda: x.norm(dim=1),
        "huber": lambda: functional.huber_loss(x, y), "mish": lambda: functional.mish(x),
        "logits": lambda: functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
        "cosine": lambda: functional.cosine_similarity(x, y), "elu": lambda: functional.elu(x),
    }


@pytest.mark.parametrize("name", ["var", "norm", "huber", "mish", "logits", "cosine", "elu"])
def test_gradients_of_gradients(name):
    reference = pytest.importorskip("torch")
    numbers = np.random.default_rng(7).standard_normal((2, 4, 4))
    for _ in range(3):
        found = []
        for t in (torch, reference):
            x, y = (t.tensor(v).requires_grad_() for v in numbers)
            calls = calls_of(t, x, y)
            first, = t.autograd.grad((calls[name]() ** 2).sum(), x, create_graph=True)
            second, = t.autograd.grad((first * y).sum(), x)
            found.append((first.detach().numpy(), second.numpy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_what_is_saved_notices_writes():
    for again in range(3):
        z = torch.rand(4, 4, requires_grad=True) * 1
        loss = F.mish(z).sum()
        z.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        z = torch.rand(4, 4, requires_grad=True) * 1
        total = torch.addcmul(z, torch.ones(4, 4), torch.ones(4, 4), value=0.5)
        z.add_(again)
        total.sum().backward()  # it reads none of it


def test_what_no_operator_has_kept_may_be_written_to():
    target = torch.arange(16.0).reshape(4, 4)
    found = []
    for _ in range(3):
        w = (target * 1.5 - 3).requires_grad_()
        z = w * 1
        loss = F.huber_loss(z, target)
        z.zero_()
        loss.backward()
        found.append(w.grad.tolist())
    assert found[0] == found[1] == found[2] and max(map(max, found[0])) > 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["reflect", "replicate", "circular"])
def test_padding_again_is_torchs(name, turned):
    reference = pytest.importorskip("torch")
    numbers = np.random.default_rng(1).standard_normal((2, 3, 4, 5))
    for pad in ((1, 2), (1, 0, 2, 1), (0, -1, 1, 1), (3, 0), (4, 4, 3, 3), (9, 9)):
        for again in range(4):
            found = []
            for t in (torch, reference):
                x = t.tensor(numbers)[: 2 - again % 2]
                x = (x if len(pad) > 2 else x[0]).transpose(-1, -2) if turned else (
                    x if len(pad) > 2 else x[0])
                try:
                    found.append(t.nn.functional.pad(x, pad, mode=name).numpy())
                except (RuntimeError, IndexError) as error:
                    found.append(np.zeros(0) if error else None)
            np.testing.assert_array_equal(*found)


def test_views_are_of_memory_that_is_made():
    x = torch.rand(6, 6)
    for _ in range(40):
        y = torch.stack([x, x * 2], 1)
        assert y._base is None
        y.add_(1)
        assert y._version == 1 and y._graphc_storage.flat().size == y.numel()
