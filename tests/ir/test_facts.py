"""The facts of operator records: none is left out, and what they say is so."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import run
from graphc.ir import dtypes
from graphc.ir.dim import DimEnv
from graphc.ir.op import REGISTRY, Op, OpError
from graphc.ir.rounding import EXACT, ROUNDED, rounding_of
from graphc.ir.types import TensorType, TupleType
from tests import opinfo
from tests.opinfo import OPINFOS

FACTS = {"cost": 1, "rounding": ROUNDED, "takes_complex": False}

# attributes with which the type rules of routines take square matrices, and the like
ROUTINE = {
    "check": False, "pivot": True, "upper": False, "unit": False, "full": False, "size": 3,
    "complete": False, "hermitian": False, "atol": 0.0, "rtol": 0.0, "order": 1, "dims": (0,),
    "inverse": False, "scale": 1.0,
}
BY_OTHERS = ("control", "structure")  # what they take and do is what their graphs do
INTEGERS = {"linalg_ldl_solve": (1,), "lu_permutation": (0,)}  # operands that are pivots


@pytest.mark.parametrize("fact", FACTS)
def test_a_record_that_leaves_a_fact_out_is_refused(fact: str) -> None:
    said: dict[str, Any] = {name: value for name, value in FACTS.items() if name != fact}
    with pytest.raises(TypeError, match=fact):
        Op("frac", "unary", REGISTRY["abs"].infer, arity=1, **said)


def test_these_are_all_facts_without_a_default() -> None:
    assert {field.name for field in fields(Op) if field.kw_only} == set(FACTS)


@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.name)
def test_an_operator_with_a_cost_is_one_of_cheap_elements(op: Op) -> None:
    elements = op.elementwise or op.family in ("movement", "create")
    composite = op.family == "composite" and op.pointwise
    assert (op.cost is not None) == (elements or composite or op.name in ("const", "get"))


def test_four_operators_divide() -> None:
    names = {"floor_divide", "trunc_divide", "remainder", "fmod"}
    assert {op.name for op in REGISTRY.values() if op.divides} == names


def typed(op: Op, kind: dtypes.DType) -> list[tuple[tuple[TensorType, ...], dict[str, Any]]]:
    """Operand types, with attributes, in which floats are of this dtype."""
    if op.name in OPINFOS:
        found = []
        for dtype in OPINFOS[op.name].dtypes:
            for sample in opinfo.samples(OPINFOS[op.name], dtype):
                kinds = [dtypes.from_numpy(a.dtype) for a in sample.arrays]
                kinds = [kind if each.is_float else each for each in kinds]
                shapes = (a.shape for a in sample.arrays)
                types = tuple(map(TensorType, kinds, shapes))
                if kind in kinds and sample.attrs.get("dtype", kind) is not dtypes.bool_:
                    found.append((types, sample.attrs))
        return found
    attrs = {name: ROUTINE[name] for name in op.attrs}
    shape = {"view_as_complex": (3, 2), "lu_permutation": (3,), "linalg_ldl_solve": (3, 3)}
    types = tuple(
        TensorType(
            dtypes.i32 if i in INTEGERS.get(op.name, ()) else kind,
            (3,) if op.name == "linalg_ldl_solve" and i == 1 else shape.get(op.name, (3, 3)),
        )
        for i in range(op.arity or 0)
    )
    return [(types, attrs)]


def complex_calls(op: Op) -> int:
    """How many calls with complex operands or results its type rule takes."""
    count = 0
    for kind in (dtypes.f32, dtypes.c64):
        for types, attrs in typed(op, kind):
            try:
                result = op.infer(types, attrs, DimEnv())
            except OpError:
                continue
            results = result.elements if isinstance(result, TupleType) else (result,)
            count += any(t.dtype.is_complex for t in (*types, *results))
    return count


TYPED = [op for op in REGISTRY.values() if op.arity != 0 and op.family not in BY_OTHERS]


@pytest.mark.parametrize("op", TYPED, ids=lambda op: op.name)
def test_complex_numbers_are_taken_where_the_record_says_so(op: Op) -> None:
    assert bool(complex_calls(op)) == op.takes_complex


EXACTLY = [
    (name, sample) for name in OPINFOS
    if REGISTRY[name].family not in ("random", *BY_OTHERS)
    for sample in opinfo.samples(OPINFOS[name], dtypes.f32)
    if dtypes.f32 in OPINFOS[name].dtypes
]


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in EXACTLY))
def test_exact_results_do_not_depend_on_the_precision_of_the_arithmetic(name: str) -> None:
    """In float64 on the same numbers, rounded once, they have the same bits."""
    op = REGISTRY[name]
    for each, sample in EXACTLY:
        if each != name:
            continue
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in sample.arrays]
        results = opinfo.as_tuple(run(op, sample.arrays, sample.attrs))
        sources = [dtypes.from_numpy(a.dtype) for a in sample.arrays]
        kinds = [dtypes.from_numpy(r.dtype) for r in results]
        if rounding_of(op.rounding, sample.attrs, sources, kinds) is EXACT:
            exact = opinfo.as_tuple(run(op, wide, sample.attrs))
            for narrow, again in zip(results, exact, strict=True):
                np.testing.assert_array_equal(narrow, again.astype(narrow.dtype))


@pytest.mark.parametrize("op", [op for op in REGISTRY.values() if op.selects], ids=lambda o: o.name)
def test_what_selects_gives_its_operands_numbers(op: Op) -> None:
    """Each element of the result is one of an operand's, perhaps in another dtype."""
    for sample in opinfo.samples(OPINFOS[op.name], dtypes.f32):
        (result,) = opinfo.as_tuple(run(op, sample.arrays, sample.attrs))
        if result.dtype.kind in "iu" and not all(np.isfinite(a).all() for a in sample.arrays):
            continue  # an integer for a number that it cannot hold
        with np.errstate(over="ignore"):
            same = [np.broadcast_to(a, result.shape).astype(result.dtype) for a in sample.arrays]
        assert np.any([_equal(result, array) for array in same], axis=0).all()


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | ((a != a) & (b != b))
