"""Every operator and dtype in WebAssembly, under Node, against eager mode: the records' samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.export import ExportedProgram, ExportError, aot, export
from graphc.frontend.dispatch import create
from graphc.frontend.eager import apply
from graphc.ir import dtypes
from graphc.ir.op import get
from tests import opinfo
from tests.export.aot.libraries import expected

from .node import ask, call, node, results

pytestmark = pytest.mark.slow
# what no library computes: routines, and random numbers of halves
BY_NUMPY = frozenset("""
as_strided_update box_argmax rng_binomial rng_gamma rng_poisson rng_randint rng_uniform_where
""".split())
OF_HALVES = frozenset("rng_exponential rng_normal rng_uniform".split())
# no operators of eager mode
INSIDE = frozenset(("fusion", "winograd_input", "winograd_output"))
NAMES = sorted(opinfo.OPINFOS.keys() - INSIDE)
# beside the bits of integers: relative to the number, or to the largest of its tensor
CLOSE = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}
OTHERS = ("bool", "u8", "i8", "i16", "i32", "i64")
A_MODULE = 12  # operators


def tensors(arrays: list[np.ndarray]) -> list[Any]:
    return [torch.from_numpy(array).clone() for array in arrays]


def exported(
    names: list[str], dtype: dtypes.DType
) -> tuple[ExportedProgram, list[np.ndarray], list[str]]:
    """A program of all samples of these operators, its arguments, and whose each result is."""
    todo = [
        (name, sample) for name in names
        for sample in opinfo.samples(opinfo.OPINFOS[name], dtype)[:3]
        if not any(np.iscomplexobj(array) for array in sample.arrays)
    ]

    def computed(arguments: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        left = iter(arguments)
        for name, sample in todo:
            own = [next(left) for _ in sample.arrays]
            made = apply(get(name), *own, **sample.attrs) if own else create(
                get(name), **sample.attrs
            )
            yield from ((name, each) for each in (made if isinstance(made, tuple) else (made,)))

    given = [np.array(array, order="C") for _, sample in todo for array in sample.arrays]
    arguments = tensors(given)
    owners = [name for name, _ in computed(arguments)]
    program = export(  # others check
        lambda *given: [each for _, each in computed(given)], tuple(arguments), check=False
    )
    return program, given, owners


def parts() -> list[Any]:
    """Operators of a dtype, some at a time."""
    found = []
    for name in (*CLOSE, *OTHERS):
        dtype = dtypes.by_name(name)
        none = BY_NUMPY | (OF_HALVES if name in ("f16", "bf16") else frozenset())
        own = [each for each in NAMES if dtype in opinfo.OPINFOS[each].dtypes and each not in none]
        found += [
            pytest.param(dtype, own[at : at + A_MODULE], id=f"{name}-{own[at]}")
            for at in range(0, len(own), A_MODULE)
        ]
    return found


@pytest.mark.parametrize("dtype, names", parts())
def test_operators(dtype: dtypes.DType, names: list[str], tmp_path: Path) -> None:
    node()
    program, given, owners = exported(names, dtype)
    made = aot(program, tmp_path, name="some", targets=["wasm32"]).header
    found = results(ask(made, [call(*given)])[0])
    wanted = expected(program(*tensors(given)))
    assert set(owners) == set(names)
    for name, one, other in zip(owners, found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype, name
        close = CLOSE.get(dtypes.from_numpy(other.dtype).name)
        if close is None:
            np.testing.assert_array_equal(one, other, name)
            continue
        wide = one.astype(np.float64), other.astype(np.float64)
        largest = np.abs(wide[1][np.isfinite(wide[1])]).max(initial=1)
        np.testing.assert_allclose(*wide, close, close * largest, err_msg=name)


@pytest.mark.parametrize("name", sorted(BY_NUMPY | OF_HALVES))
def test_what_computes_by_numpy_is_refused(name: str, tmp_path: Path) -> None:
    node()
    of = opinfo.OPINFOS[name].dtypes
    dtype = dtypes.f16 if name in OF_HALVES else dtypes.f32 if dtypes.f32 in of else of[-1]
    program, _, _ = exported([name], dtype)
    with pytest.raises(ExportError, match=f"computes by NumPy, .*: {name}"):
        aot(program, tmp_path, name="one", targets=["wasm32"])
