"""Eager calls on a few numbers: the way that they go, counted, and what goes the short ways."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.numpy.ops import TABLE
from graphc.frontend import replayed
from graphc.nn import functional as F

ROOT = Path(__file__).parents[2]

# counted in a process of its own: what other tests leave behind is asked about writes, too
COUNTED = """
import json, sys
import graphc as torch
from graphc.nn import functional as F

X = torch.rand(4)
W, ONE = torch.rand(4, requires_grad=True), torch.tensor(1)
A, B = torch.rand(4, 4), torch.rand(4, 4)
MASK = A > 0.5

def functions_of(text):
    call = eval("lambda: " + text)
    for _ in range(3):
        call()
    seen = []
    sys.setprofile(lambda frame, event, given: seen.append(event))
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen.count("call") - 1  # `call` itself

exec(sys.argv[2])  # after the tensors were made
print(json.dumps({text: functions_of(text) for text in json.loads(sys.argv[1])}))
"""


def too_many(most: dict[str, int], setup: str = "") -> dict[str, int]:
    """The calls that come to more functions than they may."""
    command = [sys.executable, "-c", COUNTED, json.dumps(list(most)), setup]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return {text: n for text, n in json.loads(done.stdout).items() if n > most[text]}


def test_a_call_is_few_functions() -> None:
    assert too_many({
        "-X": 6, "X.exp()": 6, "torch.tanh(X)": 7, "torch.abs(X)": 7, "F.relu(X)": 7, "X + X": 5,
        "torch.stack([X, X])": 13, "torch.where(MASK, A, B)": 15, "torch.zeros(4)": 8,
        "ONE.add_(1)": 5, "W + X": 10, "F.relu(W)": 14,
    }) == {}


def test_functions_of_several_operators_are_few_functions() -> None:
    """Distances, transforms, steps of recurrent layers, losses."""
    setup = "S = torch.rand(4, 1, 4); " + "; ".join(
        f"{name} = torch.nn.{name}(4, 4).requires_grad_(False)" for name in ("RNN", "LSTM", "GRU")
    )
    assert too_many({
        "torch.pdist(A)": 60, "torch.fft.fft(X)": 40, "torch.fft.rfft(X)": 32,
        "torch.fft.irfft(X)": 42, "RNN(S)": 250, "LSTM(S)": 480, "GRU(S)": 430,
        "torch.equal(X, X * 1)": 16, "torch.isclose(X, X)": 50, "torch.special.entr(X)": 66,
        "A.median(1)": 110, "A.kthvalue(2)": 110, "A.topk(2)": 60, "F.nll_loss(A, C)": 16,
        "F.binary_cross_entropy(X, X)": 140, "F.pad(A, (1, 1))": 24, "A.tril()": 21,
    }, setup + "; C = torch.arange(4)") == {}


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nll_loss_has_the_tables_bits(dtype: Any, reduction: str) -> None:
    for rows, classes in ((1, 1), (4, 5), (37, 10), (300, 3)):
        x, target = torch.randn(rows, classes, dtype=dtype), torch.randint(0, classes, (rows,))
        x[0, 0] = 0.0
        for turned in (x, x.t().contiguous().t()):
            found = F.nll_loss(turned, target, reduction=reduction)
            right = TABLE["nll_loss"](
                x.numpy(), target.numpy(), ignore_index=-100, reduction=reduction
            )
            assert found._graphc_array.tobytes() == right.tobytes() and found.dtype is dtype
        target[0] = -100
        assert F.nll_loss(x, target, reduction="none")[0] == 0
        target[0] = classes
        with pytest.raises(IndexError, match=f"Target {classes} is out of bounds"):
            F.nll_loss(x, target, reduction=reduction)


def test_equal_of_tensors_of_each_kind() -> None:
    x, nan = torch.tensor([1.0, 2.0]), torch.tensor([float("nan")])
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1) and not torch.equal(nan, nan)
    assert not torch.equal(x, x[:1]) and torch.equal(x[:0], torch.rand(0))
    assert torch.equal(x.bfloat16(), x.bfloat16()) and torch.equal(x > 1, x.int() == 2)
    assert torch.equal(torch.rand(3, 2).t() * 0, torch.zeros(2, 3))
    assert torch.equal(torch.complex(x, x), torch.complex(x, x + 0))
    assert torch.compile(lambda a, b: torch.equal(a, b))(x, x.clone()) is True


ONE = torch.tensor(1)
A, B = torch.rand(4, 4), torch.rand(4, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("name", ["exp", "tanh", "abs", "square", "sigmoid", "erf", "sqrt"])
def test_functions_of_one_tensor_are_their_methods(name: str, dtype: str) -> None:
    """The function, the method, with `out=` and with its keyword: bits, dtypes and histories."""
    for x in (torch.rand(3, 2), torch.rand(4, 3).t()[::2], torch.rand(()), torch.rand(0, 2)):
        if dtype == "bool" and name == "abs":  # which torch refuses
            continue
        x = (x * 4 - 1).to(getattr(torch, dtype))
        function = getattr(torch, name)
        first = function(input=x)
        for found in (function(x), getattr(x, name)(), function(x, out=torch.empty_like(first))):
            assert found.dtype == first.dtype and found.shape == first.shape
            assert found.stride() == first.stride()
            assert found._graphc_array.tobytes() == first._graphc_array.tobytes()
        if x.dtype.is_floating_point:
            wanted = x.detach().requires_grad_()
            for _ in range(2):
                assert function(wanted).grad_fn.name() == getattr(wanted, name)().grad_fn.name()
            with torch.no_grad():
                assert not function(wanted).requires_grad


def test_functions_under_autocast_and_for_what_is_no_tensor() -> None:
    assert torch.exp(torch.rand(3).bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.exp(torch.rand(3)).dtype == torch.float32
        assert torch.matmul(A, B).dtype == torch.bfloat16
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        torch.tanh([1.0])
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        torch.exp(1.0)
    with pytest.raises(TypeError):
        torch.tanh(A, B)


def test_positions_out_of_range_and_from_the_end() -> None:
    for count in (2, 200):
        x, table = torch.rand(5, 3), torch.nn.Embedding(5, 3)
        places = torch.zeros(count, dtype=torch.int64)
        places[1] = -1
        assert torch.equal(x[places][1], x[4])
        for wrong in (5, -6):
            places[1] = wrong
            with pytest.raises(IndexError, match=f"index {wrong} is out of bounds"):
                x[places]
            with pytest.raises(IndexError, match="index out of range in self"):
                table(places)
        along = torch.zeros(5, count, dtype=torch.int64)
        for wrong in (3, -1):
            along[4, 1] = wrong
            with pytest.raises((IndexError, RuntimeError), match=f"index {wrong} is out of"):
                x.gather(1, along)
        along[4, 1] = 2
        found = x.t().contiguous().t().gather(1, along)  # rows of what is not row-major
        assert found[4, 1] == x[4, 2] and torch.equal(found[:, 0], x[:, 0])
        assert found.is_contiguous()


def test_a_count_without_dims_is_written_in_place() -> None:
    count = torch.tensor(3)
    shared, view = count.numpy(), count.view(1)
    for _ in range(3):
        assert count.add_(2) is count
    assert shared == 9 and view[0] == 9 and count._version == 3
    with torch.inference_mode():
        inside = torch.tensor(1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        inside.add_(1)


def test_in_place_of_memory_that_overlaps() -> None:
    base = np.arange(6.0, dtype=np.float32)
    x, y = torch.from_numpy(base[:4]), torch.from_numpy(base[2:])
    for _ in range(2):
        before = base.copy()
        x.add_(y)
        assert np.array_equal(base[:4], before[:4] + before[2:])


@pytest.mark.parametrize("make", [
    lambda: torch.zeros(3), lambda: torch.ones(2, 2), lambda: torch.full((2,), 7),
    lambda: torch.full((2,), 6e4, dtype=torch.float16), lambda: torch.arange(3),
    lambda: torch.zeros(0), lambda: torch.full((), -0.0), lambda: torch.eye(2),
])
def test_makers_beside_another_device(make: Callable[[], Any], beside_meta: None) -> None:
    """They are replayed there, too, and what they make is where a user has placed it."""
    first = make()
    replayed_before = len(replayed._known)
    again = make()
    assert (
        again._graphc_array.tobytes() == first._graphc_array.tobytes()
        and again.dtype == first.dtype
    )
    assert first.device.type == again.device.type == "cpu" and again._graphc_storage.away == 0
    assert len(replayed._known) == replayed_before
    again.fill_(1)  # nobody else's memory
    assert make()._graphc_array.tobytes() == first._graphc_array.tobytes()
    with torch.device("meta"):
        assert make().device.type == "meta"
    if again.ndim:
        with pytest.raises(RuntimeError):
            again.float() + torch.ones(again.shape, device="meta")


def test_calls_beside_another_device_are_few_functions() -> None:
    assert too_many({
        "torch.zeros(4)": 9, "ONE.add_(1)": 5, "COUNT.add_(1)": 5, "X.mean()": 22,
        "F.mse_loss(X, X * 1)": 36,
    }, "torch.ones(1, device='meta'); COUNT = ONE.clone()") == {}


def test_what_is_done_again_lies_where_it_did(beside_meta: None) -> None:
    x = torch.rand(4)
    calls: list[Callable[[], Any]] = [
        lambda: x.mean(), lambda: x.sum(), lambda: F.mse_loss(x, x), lambda: torch.stack([x, x]),
        lambda: x.std(0), lambda: x.reshape(2, 2).max(1),
    ]
    for call in calls:
        seen = []
        for _ in range(4):
            found = call()
            parts = found if isinstance(found, tuple) else (found,)
            seen.append([(part._graphc_storage.away, part.device.type) for part in parts])
        assert seen == seen[:1] * 4
    for _ in range(3):  # neither do sums of numbers stay where they were made
        assert (torch.ones(2, device="meta") + x.mean()).device.type == "meta"
        with pytest.raises(RuntimeError, match="meta"):
            torch.ones(4, device="meta") + x
        with pytest.raises((RuntimeError, NotImplementedError)):
            ONE.clone().reshape(1).add_(torch.ones(1, device="meta")).item()


def test_error_function_of_every_shape_and_number() -> None:
    odd = [0.0, -0.0, 4.0, -4.0, 5.0, np.inf, -np.inf, np.nan, 1e-40]
    x = torch.tensor(odd)
    found = torch.erf(x)
    assert torch.isnan(found[7]) and torch.equal(found[2:7].sign(), x[2:7].sign())
    assert np.signbit(found[1].item()) and not np.signbit(found[0].item())
    for i, number in enumerate(odd):
        one = torch.erf(torch.tensor(number))
        assert (
            one.ndim == 0
            and one._graphc_array.tobytes() == found[i : i + 1]._graphc_array.tobytes()
        )


@pytest.mark.parametrize("write", [
    lambda x, one: x.copy_(one), lambda x, one: x.add_(one), lambda x, one: x.mul_(one),
    lambda x, one: x.lerp_(one, 0.5), lambda x, one: x.clamp_(min=one), lambda x, one: x.pow_(one),
    lambda x, one: x.masked_fill_(one > 0, 1.0),
])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_values_of_more_dims_are_not_written(
    write: Callable[[Any, Any], Any], shape: tuple[int, ...]
) -> None:
    """Not even where these are of size 1, which x[...] = value drops, as in torch."""
    one = torch.ones((1, *shape))
    for call in (write, torch.compile(write)):
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            call(torch.zeros(shape), one)
    target = torch.zeros(shape)
    target[...] = one
    assert target.sum() == one.sum()
