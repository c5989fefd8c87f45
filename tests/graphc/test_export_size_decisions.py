"""Numbers that Python computes of free sizes and takes the value of: none is left as it was in the
example, also where the file is not compared with eager mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch
from graphc.export import Dim, ExportError, export

TAKEN: dict[str, Callable[[Any], Any]] = {
    "a part": lambda x: x[: int(x.shape[0] * 0.3)],
    "a quotient": lambda x: x[: math.ceil(x.shape[0] / 4)],
    "a root": lambda x: x[: math.isqrt(x.shape[0])],
    "a comparison": lambda x: x * 2 if x.shape[0] * 0.5 > 4 else x * 3,
    "a text": lambda x: x * len(str(x.shape[0])),
    "a larger number": lambda x: x * max(x.shape[0], 12.5),
}
KEPT: dict[str, Callable[[Any], Any]] = {
    "computed on": lambda x: x * float(x.shape[0]) ** 0.5 / (x.shape[0] - 1),
    "integers": lambda x: x[: -(-x.shape[0] // 4)] * (x.shape[0] & 3),
    "alike at all sizes": lambda x: x * 2 if x.shape[0] * 0.5 < 40 else x,
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_is_refused(name: str) -> None:
    example = (torch.rand(10),)
    for size in (Dim("n", min=4, max=50), Dim("n")):
        with pytest.raises(ExportError, match=r"free size 'n', as a number \(.*decisions\.py:\d+"):
            export(TAKEN[name], example, dynamic_shapes=({0: size},), check=False)
    fixed = export(TAKEN[name], example, dynamic_shapes=({0: Dim.AUTO},))
    with pytest.raises(ValueError, match=r"f32\[10\]"):
        fixed(torch.rand(11))


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept(name: str) -> None:
    free = ({0: Dim("n", min=4, max=50)},)
    program = export(KEPT[name], (torch.rand(10),), dynamic_shapes=free)
    for size in (4, 9, 10, 50):
        x = torch.rand(size)
        assert torch.allclose(program(x), KEPT[name](x))


def test_what_python_alone_computes_is_refused_by_its_name() -> None:
    with pytest.raises(ExportError, match=r"computes math\.log2 of a free size"):
        export(lambda x: x * math.log2(x.shape[0]), (torch.rand(10),), dynamic_shapes=({0: "n"},))
