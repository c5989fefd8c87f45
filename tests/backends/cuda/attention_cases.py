"""Kernels of attention, and their results on the emulator against the template's meaning in
float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.backends.cuda.emulator import Counts, Library, Schedule
from graphc.backends.cuda.source import Source, grid
from graphc.ir import dtypes, ops
from graphc.ir.dim import Size, evaluate
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Attention, Kernel
from graphc.ir.kernel.templates.attention import RESULTS
from graphc.ir.ops._counter import DRAW
from graphc.ir.record import replaced

from ...ir import kernel_cases as cases
from .emulated import EmulatedBackend

Array = np.ndarray[Any, Any]
# of results: relative to the largest of a result. Probabilities, and gradients of scores, are
# rounded to 16 bits before they are multiplied.
TOLERANCE = {"f32": 4e-6, "bf16": 1.6e-2, "f16": 2e-3}


@dataclass(frozen=True)
class Case:
    """A kernel of attention; `mask`: dtype and shape; `drop`: "", "kept" or "draw"."""

    kind: str = "attention"
    batch: tuple[Size, ...] = (2,)
    m: Size = 70
    n: Size = 100
    e: int = 24
    f: int = 20
    dtype: DType = dtypes.f32
    causal: bool = False
    mask: tuple[DType, tuple[Size, ...]] | None = None
    drop: str = ""
    scale: float = 0.0  # e ** -0.5
    results: tuple[str, ...] = ()
    dims: dict[str, int] = field(default_factory=dict)
    views: Any = None  # makes q, k, v (and g) of the inputs; `shapes` are then theirs
    shapes: tuple[tuple[Size, ...], ...] = ()

    def kernel(self) -> Kernel:
        """Through fusion and lowering."""
        b, m, n = self.batch, self.m, self.n
        shapes = list(self.shapes or ((*b, m, self.e), (*b, n, self.e), (*b, n, self.f)))
        wide = dtypes.f64 if self.dtype is dtypes.f64 else dtypes.f32
        inputs: list[Any] = [(self.dtype, shape) for shape in shapes]
        if self.kind == "attention_grad":
            if not self.shapes:
                inputs.append((self.dtype, (*b, m, self.f)))
            inputs += [(wide, (*b, m))] * 2
        if self.mask is not None:
            inputs.append(self.mask)
        attrs: dict[str, Any] = {
            "causal": self.causal, "scale": self.scale or self.e**-0.5,
        }
        if self.drop:
            attrs["dropout"] = 0.25
            drawn = self.drop == "draw"
            inputs.append((DRAW.dtype, DRAW.shape) if drawn else (dtypes.bool_, (*b, m, n)))
        names = list(RESULTS[self.kind])
        wanted = [names.index(name) for name in self.results or names]

        def function(*x: Any) -> Any:
            if self.views is not None:
                given = len(shapes)
                x = (*self.views(*x[:given]), *x[given:])
            found = getattr(ops, self.kind)(*x, **attrs)
            return tuple(found[number] for number in wanted)

        graph = cases.build(function, *inputs, dims=self.dims)
        (found,) = cases.kernels(cases.compiled(graph))
        assert isinstance(found.template, Attention)
        return found


def operands(kernel: Kernel, env: dict[str, int], seed: int = 0, size: float = 1.0) -> list[Array]:
    """Random; what the log-sum-exp is, is near it."""
    rng = np.random.default_rng(seed)
    assert isinstance(kernel.template, Attention)
    reads = {operand.buffer: name for name, operand in kernel.template.inputs}
    arrays: list[Array] = []
    for param in kernel.params:
        count = evaluate(param.size, env)
        if param.dtype is dtypes.i64:
            arrays.append(rng.integers(2**62, size=count) | 1)
            continue
        array = rng.standard_normal(count) * size
        if reads.get(param.name) == "lse":
            array = array + 4.0
        if param.dtype is dtypes.bool_:
            array = array > -0.7
        arrays.append(array.astype(param.dtype.numpy))
    return arrays


def meaning(kernel: Kernel, arrays: Sequence[Array], env: dict[str, int]) -> list[Array]:
    """The template's results, summed in float64."""
    t = kernel.template
    assert isinstance(t, Attention)
    exact = replaced(t, dtype=dtypes.f64)
    memory = {
        param.name: array.astype("f8") if param.dtype.is_float else array
        for param, array in zip(kernel.params, arrays, strict=True)
    }
    with np.errstate(all="ignore"):
        exact.run(memory, env)
    return [memory[param.name] for param in kernel.params]


def launched(
    backend: EmulatedBackend, kernel: Kernel, arrays: Sequence[Array], env: dict[str, int],
    schedule: Schedule | None = None,
) -> list[Array]:
    """The buffers behind a kernel, whose results were NaN before."""
    got = [
        np.full_like(array, np.nan) if param.access == "out" else array.copy()
        for param, array in zip(kernel.params, arrays, strict=True)
    ]
    backend.schedule = schedule or Schedule()
    backend.launch(kernel, got, [env[dim] for dim in kernel.dims])
    return got


def counted(
    library: Library, source: Source, kernel: Kernel, arrays: Sequence[Array], schedule: Schedule,
) -> tuple[list[Array], list[Counts]]:
    """The buffers behind a kernel without dims, each stage by no more than three blocks, which walk
    on; and what was counted of each stage."""
    got = [
        np.full_like(array, np.nan) if param.access == "out" else array.copy()
        for param, array in zip(kernel.params, arrays, strict=True)
    ]
    sizes = [evaluate(size, {}) for size in source.sizes]
    arguments = [*got, *sizes, np.zeros(4, np.int64)]
    if source.scratch:
        arguments.append(np.full(evaluate(source.scratch, {}), 0xFF, np.uint8))
    counts = [
        library.launch(
            stage.name, (min(3, grid(stage, ())),), (stage.threads,), arguments, stage.shared,
            schedule,
        )
        for stage in source.stages
    ]
    return got, counts


def agree(kernel: Kernel, got: Sequence[Array], want: Sequence[Array], factor: float = 1.0) -> None:
    """NaN and infinite at the same places, elsewhere within the dtype's tolerance."""
    for param, a, b in zip(kernel.params, got, want, strict=True):
        if param.access != "out":
            continue
        x, y = a.astype("f8"), b.astype("f8")
        finite = np.isfinite(y)
        np.testing.assert_array_equal(x[~finite], y[~finite], err_msg=param.name)
        assert isinstance(kernel.template, Attention)
        most = max(1.0, float(np.abs(y[finite]).max(initial=0)))
        tolerance = factor * TOLERANCE[kernel.template.dtype.name] * most
        np.testing.assert_allclose(x[finite], y[finite], rtol=0, atol=tolerance, err_msg=param.name)


def check(
    backend: EmulatedBackend, case: Case, schedules: Sequence[Schedule] = (Schedule(),),
    factor: float = 1.0,
) -> list[Array]:
    """A case's results, which are as meant and the same bits under every schedule."""
    kernel = case.kernel()
    env = {dim: case.dims[name] for dim, name in zip(kernel.dims, sorted(case.dims), strict=True)}
    arrays = operands(kernel, env)
    want = meaning(kernel, arrays, env)
    first: list[Array] = []
    for schedule in schedules:
        got = launched(backend, kernel, arrays, env, schedule)
        agree(kernel, got, want, factor)
        first = first or got
        for param, a, b in zip(kernel.params, first, got, strict=True):
            assert a.tobytes() == b.tobytes(), (param.name, schedule)
    return first


# --- views of operands ------------------------------------------------------------------------


def plain(x: Any) -> Any:
    """Heads that lie one behind the other: [B, H, L, W]."""
    return x


def in_the_middle(x: Any) -> Any:
    """From [B, L, H, W], as a projection leaves them."""
    return ops.permute(x, dims=(0, 2, 1, 3))


def turned(x: Any) -> Any:
    """From [B, H, W, L]: widths do not lie side by side."""
    return ops.permute(x, dims=(0, 1, 3, 2))


def cut(x: Any) -> Any:
    """From [B, H, L, W + 3]: rows begin anywhere."""
    shape = x.type.shape
    return ops.slice(x, starts=(0, 0, 0, 3), stops=shape, steps=(1, 1, 1, 1))


def shared(heads: int) -> Any:
    """A function: from [B, 1, L, W], one head for all."""

    def view(x: Any) -> Any:
        b, _, length, width = x.type.shape
        return ops.expand(x, shape=(b, heads, length, width))

    return view


def shape_under(view: Any, batch: int, heads: int, length: Size, width: int) -> tuple[Size, ...]:
    """What a view is taken of."""
    if view is in_the_middle:
        return batch, length, heads, width
    if view is turned:
        return batch, heads, width, length
    if view is cut:
        return batch, heads, length, width + 3
    return batch, (heads if view is plain else 1), length, width


def viewed(case: Case, views: Sequence[Any]) -> Case:
    """A case whose q, k, v (and g) are views."""
    batch, heads = case.batch
    assert isinstance(batch, int) and isinstance(heads, int)
    sizes = ((case.m, case.e), (case.n, case.e), (case.n, case.f), (case.m, case.f))
    shapes = tuple(
        shape_under(view, batch, heads, length, width)
        for view, (length, width) in zip(views, sizes, strict=False)
    )

    def made(*x: Any) -> tuple[Any, ...]:
        return tuple(view(each) for view, each in zip(views, x, strict=True))

    return replaced(case, views=made, shapes=shapes)
