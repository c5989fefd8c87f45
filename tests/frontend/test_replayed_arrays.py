"""What replayed functions give without a history: tensors like those of their first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.frontend import eager, replayed
from graphc.nn import functional as F

CALLS: dict[str, Callable[[Any], Any]] = {
    "stack": lambda x: torch.stack([x, x * 2], 1), "cat": lambda x: torch.cat([x, x * 2], -1),
    "max": lambda x: x.max(1), "min": lambda x: x.min(0, keepdim=True), "sum": lambda x: x.sum(),
    "all max": lambda x: x.max(), "mean": lambda x: x.mean(-1), "std": lambda x: x.std(0),
    "norm": lambda x: x.norm(), "softmax": lambda x: F.softmax(x, 0), "flip": lambda x: x.flip(0),
    "argmin": lambda x: x.argmin(0, keepdim=True), "argmax": lambda x: x.argmax(),
    "gelu": lambda x: F.gelu(x), "linear": lambda x: F.linear(x, x), "roll": lambda x: x.roll(1, 0),
    "median": lambda x: x.median(1), "median of all": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(0, keepdim=True),
    "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1), "diag": lambda x: x.diag(),
    "pad": lambda x: F.pad(x, (1, 2)), "crop": lambda x: F.pad(x, [1, -1, 0, 1], value=2.0),
    "pdist": lambda x: torch.pdist(torch.cat([x, x])),
    "pdist 1": lambda x: torch.pdist(torch.cat([x, x]), 1.0),
    "fft": lambda x: torch.fft.fft(x), "rfft": lambda x: torch.fft.rfft(x, dim=0),
    "fft2": lambda x: torch.fft.fft2(x, (2, 3)), "irfft": lambda x: torch.fft.irfft(x, 5),
}
SOURCES = {
    "rows": lambda: torch.rand(4, 4), "turned": lambda: torch.rand(4, 4).t(),
    "steps": lambda: torch.rand(8, 8)[::2, ::2], "repeated": lambda: torch.rand(1, 4).expand(4, 4),
    "ones": lambda: torch.rand(1, 1),
}


def tensors(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_again_is_the_first(name: str, source: str) -> None:
    call, x = CALLS[name], SOURCES[source]()
    replayed._known.clear()
    first, again = call(x), call(x)
    assert type(first) is type(again)
    for one, other in zip(tensors(first), tensors(again), strict=True):
        assert other.dtype == one.dtype and other.stride() == one.stride()
        assert one._graphc_array.tobytes() == other._graphc_array.tobytes()
        assert other._base is None and other._version == 0 and other.storage_offset() == 0
        assert other._graphc_storage.flat().size == one._graphc_storage.flat().size == other.numel()
        other.add_(1)  # it is nobody else's memory
        assert other._version == 1 and not torch.equal(one, other)
    assert tensors(call(x))[0]._graphc_array.tobytes() == tensors(first)[0]._graphc_array.tobytes()


@pytest.mark.usefixtures("only_the_cpu")
def test_the_steps_run_on_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, m = torch.rand(3), torch.rand(3, requires_grad=True), torch.rand(2, 3)
    for one in (x, w):
        F.linear(one, m)
    seen: list[str] = []
    right = eager.apply_known
    monkeypatch.setattr(
        replayed, "apply_known", lambda op, *rest: seen.append(op.name) or right(op, *rest)
    )
    F.linear(x, m)
    assert not seen
    assert F.linear(w, m).grad_fn is not None and not seen  # nor with a history


def test_without_gradients_and_in_inference_mode() -> None:
    w = torch.rand(2, 3, requires_grad=True)
    for _ in range(3):
        with torch.no_grad():
            assert torch.stack([w, w * 2]).grad_fn is None
        with torch.inference_mode():
            assert torch.stack([w, w * 2]).is_inference()
            assert all(each.is_inference() for each in w.max(1))
        assert torch.stack([w, w * 2]).grad_fn is not None
        values, places = w.max(1)
        assert values.requires_grad and not places.requires_grad


def test_views_stay_views() -> None:
    x = torch.zeros(4, 2)
    for _ in range(3):
        first, second = x.chunk(2)
        first.add_(1)
        assert first._base is x and second._base is x
    assert x.sum() == 12


REAL = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "lt", "eq"])
def test_operators_of_two_dtypes(name: str) -> None:
    """As the functions, which promote step by step."""
    functions = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.div,
                 "lt": torch.lt, "eq": torch.eq}
    for one in REAL:
        for other in REAL:
            if name == "sub" and "bool" in (one, other):
                continue
            for shape in ((3,), ()):
                a = torch.tensor([1, 0, 3]).to(getattr(torch, one))
                b = torch.full(shape, 2).to(getattr(torch, other))
                for x, y in ((a, b), (b, a)):
                    found, right = getattr(x, f"__{name}__")(y), functions[name](x, y)
                    assert found.dtype == right.dtype and torch.equal(found, right)


def test_statistics_of_batches_are_written_as_before() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((3, 2, 4), np.float32) * 5)
    norm = torch.nn.BatchNorm1d(2, momentum=0.3)
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    for _ in range(3):
        norm(x)
        mean.mul_(1 - 0.3).add_(x.mean((0, 2)) * 0.3)
        variance.mul_(1 - 0.3).add_(x.var((0, 2), unbiased=False) * (12 / 11) * 0.3)
    assert norm.running_mean._version == norm.running_var._version == 6
    assert torch.allclose(norm.running_mean, mean) and torch.allclose(norm.running_var, variance)
    for momentum in (0.3, None):
        for kind in (torch.float64, torch.float16):
            other = torch.nn.BatchNorm1d(2, momentum=momentum).to(kind)
            other(x.to(kind))
            assert other.running_mean.dtype == kind and other.running_mean.abs().sum() > 0
    with pytest.raises(RuntimeError, match="should contain 2 elements not 3"):
        F.batch_norm(x, torch.zeros(3), torch.ones(2), training=True)


def test_what_hangs_on_nothing_given_stays_and_is_nobody_elses(only_the_cpu: None) -> None:
    @replayed.replayed
    def triangle(x: Any) -> Any:
        return torch.where(torch.arange(3).unsqueeze(0) > torch.arange(3).unsqueeze(1), x, -1.0)

    @replayed.replayed
    def spread(count: int) -> Any:
        return torch.arange(count).float() * 2 + 1

    replayed._known.clear()
    x = torch.rand(3, 3)
    for _ in range(3):
        found, line = triangle(x), spread(4)
        assert torch.equal(found, torch.where(torch.ones(3, 3).triu(1) > 0, x, -1.0))
        assert line.tolist() == [1, 3, 5, 7]
        found.zero_()
        line.zero_()
