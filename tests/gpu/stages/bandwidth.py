"""Pointwise, row, column and optimizer kernels: the share of the copy's bandwidth that each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import graphc
from graphc.nn import functional as F

from ..bed import Bed
from ..results import Record, tried
from ..timing import Timed, peers

Maker = Callable[[Any, Any], Callable[..., Any]]


def run(bed: Bed, record: Record) -> None:
    """A line for each kernel: of graphc, and of PyTorch where it sees the device."""
    rows, columns = (16384, 4096) if bed.large else (8, 64)
    with bed.device():
        timed = Timed(bed)
        copy = timed.median(lambda x: x * 1, (_random(graphc, rows, columns),))
        for dtype in ("float32", "bfloat16"):
            for name, (function, moved) in CASES.items():
                with tried(record, f"{name} {dtype}"):
                    fields = _measured(bed, timed, function, moved, (rows, columns), dtype)
                    record(f"{name} {dtype}", moved=moved, copy_ms=copy, **fields)


def _measured(
    bed: Bed, timed: Timed, function: Maker, moved: float, shape: tuple[int, int], dtype: str
) -> dict[str, Any]:
    rows, columns = shape
    size = rows * columns * (4 if dtype == "float32" else 2)
    fields: dict[str, Any] = {}
    for peer, torch in peers(bed).items():
        x, g = (_random(torch, rows, columns).to(getattr(torch, dtype)) for _ in "xg")
        weight = torch.ones(columns, device="cuda", dtype=x.dtype)
        call = function(torch, F if torch is graphc else torch.nn.functional)
        ms = timed.of(peer).median(call, (x, g, weight))
        fields[f"{peer} ms"] = ms
        fields[f"{peer} TB/s"] = moved * size / ms / 1e9 if ms else 0.0
    return fields


def _random(torch: Any, rows: int, columns: int) -> Any:
    return torch.randn(rows, columns, device="cuda")


def _gradients(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Of x and the weight, by autograd inside the compiled function."""
    def function(torch: Any, F: Any) -> Callable[..., Any]:
        def call(x: Any, g: Any, weight: Any) -> Any:
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            y = forward(torch, F, x, weight)
            return torch.autograd.grad(y, (x, weight), g)

        return call

    return function


def _norm(torch: Any, F: Any, x: Any, weight: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], weight, weight)


def _rms(torch: Any, F: Any, x: Any, weight: Any) -> Any:
    return F.rms_norm(x, x.shape[-1:], weight)


# name: (what is called with x, g and a weight, how many times x's bytes are moved at the least)
CASES: dict[str, tuple[Maker, float]] = {
    "add": (lambda torch, F: lambda x, g, w: x + g, 3),
    "gelu": (lambda torch, F: lambda x, g, w: F.gelu(x * w), 2),
    "softmax": (lambda torch, F: lambda x, g, w: torch.softmax(x, -1), 2),
    "layer norm": (lambda torch, F: lambda x, g, w: _norm(torch, F, x, w), 2),
    "rms norm": (lambda torch, F: lambda x, g, w: _rms(torch, F, x, w), 2),
    "layer norm backward": (_gradients(_norm), 3),
    "rms norm backward": (_gradients(_rms), 3),
    "row sums": (lambda torch, F: lambda x, g, w: x.sum(1), 1),
    "column sums": (lambda torch, F: lambda x, g, w: x.sum(0), 1),
    "transpose": (lambda torch, F: lambda x, g, w: x.t().contiguous(), 2),
    "sum of all": (lambda torch, F: lambda x, g, w: (x * g).sum(), 2),
    "cumsum": (lambda torch, F: lambda x, g, w: x.cumsum(1), 2),
}
