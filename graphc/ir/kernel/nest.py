"""The kernel IR: loops over index expressions, loads, scalar maths and stores.

    kernel  := params, dims, and stages (a barrier between two) or one template
    stage   := statements
    stmt    := Let | Store | Loop | Check | Local
    loop    := parallel | vector | serial, with carried values where it reduces or scans

Buffers are flat, contiguous memory; an index is an element offset, a `Dim` expression over loop
variables, named dims and integer Lets. Loop kinds say what is allowed, not what is done:
- parallel: iterations are independent and may run on different threads, `chunk` at a time
  (chunks are cut by shape, never by thread count). Only the outermost loop of a stage, and then
  the only one: what comes after it has a stage of its own.
- vector: iterations are independent; lanes of one vector. A vector loop with carries reduces
  across lanes at its end, in a fixed order. Inside a vector loop there may be serial loops
  (each lane runs its own), but no vector loop.
- serial: iterations in order. Carries see the previous iteration's value.
In a template's epilogue alone there are Partials, which reduce what it computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ..dim import Size
from ..dtypes import DType
from ..record import record
from ..shown import Shown

if TYPE_CHECKING:
    from .templates import Template

# --- scalar expressions: trees, shared by name through Let ----------------------------------


@record
class Literal:
    value: float | int | bool
    dtype: DType


@record
class Var:
    """A Let-bound scalar or a carried value."""

    name: str
    dtype: DType


@record
class IndexValue:
    """An index expression as an i64 scalar."""

    index: Size
    dtype: DType  # always i64


@record
class Load:
    """buffer[index], or `other` where `mask` is false (memory is then not touched)."""

    buffer: str
    index: Size
    dtype: DType
    mask: Scalar | None = None
    other: Scalar | None = None


@record
class Apply:
    """An elementwise operator by its graph name (add, exp, where, lt, cast, ...).

    Arguments have the dtypes of the operator's record; `dtype` is the result's. `fma` (a*b+c)
    is the one operator that only kernels have.
    """

    op: str
    args: tuple[Scalar, ...]
    dtype: DType


Scalar: TypeAlias = Literal | Var | IndexValue | Load | Apply


# --- statements -----------------------------------------------------------------------------


@record
class Let:
    """Bind a scalar. An i64 Let may be used in index expressions as Dim.var(name)."""

    name: str
    value: Scalar


@record
class Store:
    """buffer[index] = value, or combined with what is there: "add" | "mul" | "max" | "min"."""

    buffer: str
    index: Size
    value: Scalar
    mask: Scalar | None = None
    combine: str = ""


@record
class Partial:
    """In the epilogue of a template whose sums lie in rows and columns (`SumTemplate.as_rows`): of
    `rows` rows at a time, for each column, the "sum" or the "mean" of `value`, or the sum of its
    "squares" around that mean; to buffer[block * columns + column]. The last block may have fewer.
    """

    buffer: str
    value: Scalar
    rows: int
    kind: str


@record
class Check:
    """If `ok` is false in any iteration, the whole call fails with `message`; `value` (i64) is
    reported. Statements after a failed check in the same iteration must not touch memory with
    the bad value: the emitter skips the iteration or clamps, as it likes."""

    ok: Scalar
    message: str
    value: Scalar


@record
class Local:
    """Scratch memory of one iteration of the enclosing parallel loop (a stack tile)."""

    name: str
    dtype: DType
    size: int


@record
class Carry:
    """A value that a loop carries. After the loop, `name` is bound to the final value.

    combine: "add" | "mul" | "max" | "min" | "or" | "and": name = combine(name, next), which a
    vector loop may do lane-wise (max and min propagate NaN, as torch's do). "set": name = next
    (serial loops only; `next` may read name). "argmax" | "argmin": this carry is the value and
    the following carry (combine "index") its i64 index; the first of equals wins, NaN wins.
    "argmax_last" (serial loops only): the same, but of several NaNs the last wins.
    """

    name: str
    dtype: DType
    init: Scalar
    combine: str
    next: Scalar


@record
class Loop:
    """for var in 0..extent. Stores in the body come before the carries' update."""

    kind: str  # "parallel" | "vector" | "serial"
    var: str
    extent: Size
    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...] = ()
    chunk: Size = 1  # parallel only: iterations per chunk


Stmt: TypeAlias = Let | Store | Partial | Check | Local | Loop


# --- kernels --------------------------------------------------------------------------------


@record
class Param:
    """A buffer argument; `size` in elements. access: "in" | "out" | "inout" | "scratch"."""

    name: str
    dtype: DType
    size: Size
    access: str


@record
class Kernel:
    """One native function: buffers in order of `params`, then the named dims as i64.

    Loops are in `stages`, each finished by all threads before the next starts; or the kernel is
    one `template`. `name` has no meaning: two kernels with equal bodies are one kernel.
    """

    name: str
    params: tuple[Param, ...]
    dims: tuple[str, ...]
    stages: tuple[tuple[Stmt, ...], ...] = ()
    template: Template | None = None

    def _repr_html_(self) -> str | None:
        return Shown.html(self)
