"""The layout of memory: what Python may ask of it, and what results have of it."""

from __future__ import annotations

import itertools
from typing import Any

from tests.graphc.stale_scenario import Box, attempt, stale, whole


def _asked(x: Any) -> Any:
    return (
        x.is_contiguous(), tuple(x.stride()), x.contiguous() is x, tuple((x * 2).stride()),
        x.reshape(-1), attempt(lambda: tuple(x.view(-1).shape)),
    )


def _layouts(torch: Any, rows: int) -> list[Any]:
    """Tensors of rows x 3, differently laid out."""
    n = torch.arange(6.0 * rows)
    return [
        n[: 3 * rows].view(rows, 3), n[: 3 * rows].view(3, rows).t(), n.view(rows, 6)[:, ::2],
        n.view(rows, 6)[:, :3], n[:3].expand(rows, 3),
    ]


@stale
def layout_of_arguments(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Each after each other, for one size and for sizes that vary."""
    out = []
    for rows in ((4,), (4, 5, 7)):
        given = [x for count in rows for x in _layouts(torch, count)]
        for one, other in itertools.permutations(given, 2):
            c = compile(_asked)
            out += [c(one), c(other), c(one)]
            whole(c, 2)
    return out


@stale
def layout_of_what_is_held(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    box = Box(w=torch.arange(6.0).view(2, 3))

    def f(x):
        return box.w.is_contiguous(), tuple(box.w.stride()), tuple((box.w + 1).stride()), x @ box.w

    c, out = compile(f), []
    for k in range(3):
        for w in (torch.arange(6.0).view(2, 3), torch.arange(6.0).view(3, 2).t()):
            if k < 2:
                box.w = w
            else:
                box.w.data = w
            out += [c(torch.ones(2, 2 + k)[:, :1].expand(2, 2)), c(torch.ones(2, 2))]
    return out


@stale
def slices_of_growing_rows(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Inputs and targets cut from one batch: the gap between rows grows with the sizes."""
    def f(x, y):
        return x * 2, y.reshape(-1) + 1

    c, out = compile(f), []
    for length in (8, 6, 5, 12, 9):
        batch = torch.arange(3.0 * (length + 1)).view(3, length + 1)
        out += [c(batch[:, :-1], batch[:, 1:])]
    whole(c, 2)
    return out
