"""A model, its file with machine code, and its library, which the tests of this folder call."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import graphc as torch
import graphc.nn as nn
from graphc.export import Dim, ExportedProgram, aot, export
from graphc.frontend.tree import flatten


class Model(nn.Module):
    """Quick to compile; arguments and results in containers, a number of each."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Parameter(torch.randn(4))

    def forward(self, x: Any, *, pair: Any, times: int) -> Any:
        first, second = pair["first"], pair["second"]
        rows = (x * self.layer).tanh().sum(1) * times
        return {"rows": rows, "size": x.shape[0], "kind": "small", "others": (first + 1, -second)}


class File(NamedTuple):
    """`digest` of the code in it."""

    program: ExportedProgram
    path: Path
    digest: str


def arguments(n: int, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of a call with n rows."""
    chance = np.random.default_rng(seed)
    x = torch.from_numpy(chance.standard_normal((n, 4)).astype(np.float32))
    pair = {"first": torch.arange(3), "second": torch.from_numpy(chance.standard_normal(2))}
    return (x,), {"pair": pair, "times": 2}


@functools.cache
def exported() -> ExportedProgram:
    """The program."""
    torch.manual_seed(0)
    args, kwargs = arguments(3)
    free = {"x": {0: Dim("n", max=6)}, "pair": {"first": None, "second": None}, "times": None}
    return export(Model().eval(), args, kwargs, dynamic_shapes=free)


def file(folder: Path, name: str = "model.gcx", **options: Any) -> File:
    """The program's file, with code for this machine."""
    path = folder / name
    digests = exported().save(path, native=True, freeze=False, **options)
    (digest,) = digests.values()
    return File(exported(), path, digest)


def library(folder: Path, function: Any, *args: Any, name: str = "m", **options: Any) -> Path:
    """The library of a function, exported by these arguments."""
    free = options.pop("dynamic_shapes", None)
    program = export(function, args, dynamic_shapes=free, check=False)
    return aot(program, folder, name=name, freeze=False, **options).library


def same(found: Any, wanted: Any) -> None:
    """Equal containers of equal bits."""
    ours, theirs = flatten(found), flatten(wanted)
    assert ours[1] == theirs[1]
    for one, other in zip(ours[0], theirs[0], strict=True):
        if not isinstance(other, torch.Tensor):
            assert type(one) is type(other) and one == other
            continue
        a, b = one.detach()._graphc_array, other.detach()._graphc_array
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
