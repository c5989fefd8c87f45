"""Every operator in WebAssembly, under Node, against eager mode: the records' samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import ExportError, aot, export
from graphc.frontend.dispatch import create
from graphc.frontend.eager import apply
from graphc.ir import dtypes
from graphc.ir.op import get
from tests import opinfo
from tests.export.aot.libraries import expected

from .node import ask, call, node, results

pytestmark = pytest.mark.slow
# what no library computes: routines
BY_NUMPY = frozenset("""
as_strided_update box_argmax rng_binomial rng_gamma rng_poisson rng_randint rng_uniform_where sort
topk
""".split())
# no operators of eager mode
INSIDE = frozenset(("fusion", "winograd_input", "winograd_output"))


@pytest.mark.parametrize("name", sorted(opinfo.OPINFOS.keys() - INSIDE))
def test_operator(name: str, tmp_path: Path) -> None:
    node()
    info, op = opinfo.OPINFOS[name], get(name)
    dtype = dtypes.f32 if dtypes.f32 in info.dtypes else info.dtypes[-1]
    samples = [
        sample for sample in opinfo.samples(info, dtype)[:4]
        if not any(np.iscomplexobj(array) for array in sample.arrays)
    ]
    given = [np.array(array, order="C") for sample in samples for array in sample.arrays]

    def every(*arguments: Any) -> list[Any]:
        found, left = [], list(arguments)
        for sample in samples:
            own = [left.pop(0) for _ in sample.arrays]
            found.append(apply(op, *own, **sample.attrs) if own else create(op, **sample.attrs))
        return found

    arguments = tuple(torch.from_numpy(array).clone() for array in given)
    program = export(every, arguments, check=False)  # others do
    if name in BY_NUMPY:
        with pytest.raises(ExportError, match=f"computes by NumPy, .*: {name}"):
            aot(program, tmp_path, name="one", targets=["wasm32"])
        return
    made = aot(program, tmp_path, name="one", targets=["wasm32"]).header
    found = results(ask(made, [call(*given)])[0])
    wanted = expected(program(*arguments))
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        largest = np.abs(other[np.isfinite(other)]).max(initial=1) if one.dtype.kind == "f" else 0
        np.testing.assert_allclose(one, other, 1e-5, 1e-6 * largest)
