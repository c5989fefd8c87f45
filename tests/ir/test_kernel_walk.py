"""The walk sees every scalar of every statement, in order, and rewriting reaches them all."""

import pytest

from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.kernel import (
    Apply,
    Carry,
    Check,
    Kernel,
    Let,
    Literal,
    Load,
    Local,
    Loop,
    Param,
    Scalar,
    Stmt,
    Store,
    Var,
    walk,
)
from graphc.ir.kernel.combine import COMBINES, identity
from graphc.ir.kernel.text import print_kernel
from graphc.ir.passes.plan.in_place import merged, safe_in_place
from graphc.ir.record import replaced

from . import kernel_cases as cases
from .random_graphs import random_graph

f32, i64 = dtypes.f32, dtypes.i64
I = Dim.var("i")  # noqa: E741


def load(buffer: str, mask: Scalar | None = None) -> Load:
    dtype = dtypes.bool_ if buffer.startswith("m") else i64 if buffer == "n" else f32
    return Load(buffer, I, dtype, mask, None if mask is None else load("other"))


def everywhere() -> tuple[Stmt, ...]:
    """A load of a buffer of its own in each place where a scalar can stand."""
    body: tuple[Stmt, ...] = (
        Local("tile", f32, 4),
        Let("x", Apply("add", (load("let"), load("masked", load("m_load"))), f32)),
        Check(load("m_check"), "wrong", load("n")),
        Store("o", I, load("store"), load("m_store"), "add"),
    )
    carry = Carry("c", f32, load("init"), "add", load("next"))
    return (Loop("serial", "i", 4, body, (carry,)),)


ORDER = ["init", "let", "masked", "m_load", "other", "m_check", "n", "store", "m_store", "next"]


def test_every_scalar_is_seen_in_the_order_of_evaluation() -> None:
    seen = [s.buffer for _, s in walk.evaluated(everywhere()) if isinstance(s, Load)]
    assert seen == ORDER
    kinds = [type(stmt) for stmt in walk.statements(everywhere())]
    assert kinds == [Loop, Local, Let, Check, Store]


def test_rewriting_reaches_every_scalar() -> None:
    def marked(scalar: Scalar) -> Scalar:
        return replaced(scalar, buffer=f"{scalar.buffer}!") if isinstance(scalar, Load) else scalar

    body = walk.rewrite(everywhere(), marked)
    seen = [s.buffer for _, s in walk.evaluated(body) if isinstance(s, Load)]
    assert seen == [f"{name}!" for name in ORDER]


def test_a_shared_scalar_comes_once() -> None:
    shared = load("x")
    root = Apply("mul", (shared, Apply("neg", (shared,), f32)), f32)
    assert [s for s in walk.parts((root,)) if isinstance(s, Load)] == [shared]


@pytest.mark.parametrize("seed", range(20))
def test_rewriting_by_nothing_changes_nothing(seed: int) -> None:
    for kernel in cases.kernels(cases.compiled(random_graph(seed).graph())):
        for body in walk.bodies(kernel):
            assert walk.rewrite(body, lambda scalar: scalar) == body


def _with_input(stmt: Stmt) -> Kernel:
    """A kernel that computes o0 from a0 element by element, with one more statement behind."""
    store = Store("o0", I, Apply("neg", (Load("a0", I, f32),), f32))
    params = (Param("a0", f32, 8, "in"), Param("o0", f32, 8, "out"), Param("o1", f32, 8, "out"))
    return Kernel("k", params, (), ((Loop("serial", "i", 8, (store, stmt)),),))


POSITIVE = Apply("gt", (Load("a0", I, f32), Literal(0.0, f32)), dtypes.bool_)
LATER = {
    "the mask of a store": Store("o1", I, Literal(1.0, f32), POSITIVE),
    "what a load takes for masked lanes": Let(
        "x", Load("o0", I, f32, Literal(False, dtypes.bool_), Load("a0", I, f32))
    ),
    "what a carry starts from": Loop(
        "serial", "j", 2, (), (Carry("c", f32, Load("a0", I, f32), "add", Literal(1.0, f32)),)
    ),
    "a check": Check(POSITIVE, "wrong", Literal(0, i64)),
}


@pytest.mark.parametrize("name", LATER)
def test_an_input_that_is_read_later_is_not_written_over(name: str) -> None:
    assert not safe_in_place(_with_input(LATER[name]), "a0", "o0")


@pytest.mark.parametrize("name", LATER)
def test_a_merged_kernel_reads_the_result_everywhere(name: str) -> None:
    kernel = merged(_with_input(LATER[name]), (("a0", "o0"),))
    assert "a0" not in print_kernel(kernel)


def test_an_input_that_is_read_at_the_element_alone_may_be_written_over() -> None:
    assert safe_in_place(_with_input(Let("x", Var("i", i64))), "a0", "o0")


@pytest.mark.parametrize(
    ("combine", "dtype"),
    [(c, d) for c in COMBINES for d in dtypes.ALL if c not in ("or", "and") or d is dtypes.bool_],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_an_identity_changes_nothing(combine: str, dtype: dtypes.DType) -> None:
    neutral = dtype.numpy.type(identity(combine, dtype))
    for value in (0, 1):
        number = dtype.numpy.type(value)
        assert COMBINES[combine].ufunc(neutral, number) == number
