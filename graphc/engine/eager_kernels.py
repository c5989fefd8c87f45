"""Eager mode on many numbers: compiled code for one operator, or its gradient rule, of any size.

The code is made at the first call that asks for it, or found where an earlier process has kept it.
eager_mode.py says what is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import backends, config
from ..backends.host import allocator
from ..ir import forks
from ..ir.autodiff import vjp_program
from ..ir.chain import is_chain, without_reshapes
from ..ir.channels import last_order
from ..ir.dim import DimEnv, Guard, Size
from ..ir.graph import Builder, Graph, attrs_key
from ..ir.memory import contiguous, inverse
from ..ir.op import Attrs, Op, get
from ..ir.passes.freeze.panels import FEW, lay_out
from ..ir.types import TensorType
from . import pipeline
from .built import Allocate, Engine, concrete_shape
from .capture.observer import running
from .eager_form import LONG, WIDE, Form, Shape, Types
from .eager_forms import form_of
from .eager_products import layer_of
from .native_run import is_small

Rule = Callable[[Any, Any, Any], list[Any]]

_codes: dict[Any, Any] = {}  # the Code by what it computes; None: there is none
_lock = forks.rlock()


class _Code(NamedTuple):
    """An Engine for all sizes of which some facts hold (an image is no smaller than a window)."""

    engine: Engine
    guards: tuple[Guard, ...]


def _dims(form: Form) -> dict[str, int]:
    """The sizes that the code leaves open."""
    shapes = form.inputs if form.image is None else (*form.inputs, form.image)
    return {name: size for shape in shapes for name, size in shape if name and size > 1}


def _memory_for(engine: Engine, shape: Sequence[int], type_: TensorType) -> Allocate:
    """What makes memory for a result."""
    if is_small(shape, type_):
        return np.empty
    size = math.prod(shape) * type_.dtype.numpy.itemsize
    if size < allocator.LARGE and config.current().keep_freed and (
        engine.allocate is allocator.empty
    ):
        return allocator.of_heap
    return engine.allocate


class Sized:
    """An Engine for all sizes, the sizes of one signature, and the shapes that its results are
    known by, which may be others than the code's."""

    def __init__(self, engine: Engine, form: Form, shapes: Sequence[Any]) -> None:
        self.engine = engine
        self.dims = _dims(form)
        self.shapes = list(shapes)
        self._sizes = tuple([self.dims[name] for name in engine.dims])
        # of each result; the last is the input in whose memory it is to lie, or -1
        self._memory = [
            (shape, type_.dtype.numpy, _memory_for(engine, shape, type_), engine.mutated.get(i, -1))
            for i, (shape, type_) in enumerate(zip(self.shapes, engine.output_types, strict=True))
        ]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """On row-major arrays, of which the code sees the numbers alone."""
        runner = self.engine.runner(arrays)
        if runner is None:
            _, results = self.engine.call(self.given(arrays), self.dims)
            return [a.reshape(shape) for a, shape in zip(results, self.shapes, strict=True)]
        found = [
            empty(shape, dtype) if target < 0 else arrays[target]
            for shape, dtype, empty, target in self._memory
        ]
        runner([*arrays, *found], self._sizes)
        return found

    def given(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays in the shapes that the code is spelled in."""
        return [
            a.reshape(concrete_shape(node.tensor_type, self.dims))
            for a, node in zip(arrays, self.engine.built.graph.inputs, strict=True)
        ]


class Operator(Sized):
    """An operator on inputs of known types."""

    def __init__(self, engine: Engine, form: Form, results: Types) -> None:
        super().__init__(engine, form, [t.shape for t in results])
        # how the result is made, where there is one, in memory of its own
        self._single = self._memory[0][:3] if len(results) == 1 and not engine.mutated else None

    @classmethod
    def of(cls, op: Op, types: Types, attrs: Attrs, results: Types) -> Operator | None:
        """None: NumPy does it."""
        form = form_of(op, types, attrs)
        if form is None:
            return None
        engine = code_for(_key(op, form, types), form, lambda: _forward(op, form, types))
        return None if engine is None else cls(engine, form, results)

    def call(self, arrays: Sequence[np.ndarray]) -> Any:
        """Of row-major arrays, an array or a tuple of them."""
        if self._single is not None:
            runner = self.engine.runner(arrays)
            if runner is not None:
                shape, dtype, empty = self._single
                made: np.ndarray = empty(shape, dtype)
                runner((*arrays, made), self._sizes)
                return made
        found = self.run(arrays)
        return found[0] if len(found) == 1 else tuple(found)


def in_place(op: Op, types: Types, attrs: Attrs) -> Callable[..., None] | None:
    """What writes an operator's result to the memory of its first operand, of the operands and an
    array of that memory, without a copy of it (`in_memory`); None: there is no code for it."""
    form = form_of(op, types, attrs)
    if form is None:
        return None
    key = (*_key(op, form, types), "in place")
    engine = code_for(key, form, lambda: _forward(op, form, types), {0: 0})
    if engine is None:
        return None
    code = Sized(engine, form, [types[0].shape])

    def run(x: np.ndarray, *others: np.ndarray) -> None:
        code.run([x, *map(contiguous, others[:-1])])

    run.__dict__["in_memory"] = True
    return run


def convolution_last(
    op: Op, types: Types, attrs: Attrs, results: Types
) -> Callable[..., Any] | None:
    """A convolution of an image with its channels last, into one that has; the weight may have its
    own last, too. None: there is no code for it."""
    form, channels = form_of(op, types, attrs), types[1].shape[1]
    # of few, what is read of a tap is too short
    if form is None or (attrs["groups"] == 1 and channels <= FEW):  # type: ignore[operator]
        return None
    order = last_order(len(types[0].shape))
    back = inverse(order)
    shape = tuple([results[0].shape[d] for d in order])

    def made(turned: bool) -> Sized | None:
        engine = code_for(
            (*_key(op, form, types), "last", turned), form,
            lambda: _last_graph(op, form, types, order, turned),
        )
        return None if engine is None else Sized(engine, form, [shape])

    codes = made(False), made(True)
    if None in codes:
        return None

    def run(x: np.ndarray, w: np.ndarray) -> Any:
        turned = w.transpose(order)
        in_memory = turned.flags.c_contiguous and not w.flags.c_contiguous
        code = codes[in_memory]
        assert code is not None
        found = code.run([contiguous(x.transpose(order)), turned if in_memory else contiguous(w)])
        return found[0].transpose(back)

    return run


def _last_graph(op: Op, form: Form, types: Types, order: Sequence[int], turned: bool) -> Graph:
    env, (image, weight), attrs = sized(form, types)
    builder = Builder(env)
    permute, back = get("permute"), inverse(order)

    def read(type_: TensorType) -> Any:
        moved = TensorType(type_.dtype, tuple([type_.shape[d] for d in order]))
        return builder.emit(permute, builder.input(moved), dims=back)

    x = read(image)
    w = read(weight) if turned else builder.input(weight)
    graph = builder.build(
        (builder.emit(permute, builder.emit(op, x, w, **attrs), dims=order),), op.name
    )
    machine = pipeline.machine(config.current(), backends.get(backends.DEFAULT))
    return lay_out(graph, {w}, machine)


def rule(
    op: Op, types: Types, attrs: Attrs, needs: tuple[bool, ...], given: tuple[bool, ...]
) -> Rule | None:
    """The gradient rule of an operator on inputs of known types, as a function of the gradients of
    its results, and of what was saved of its inputs and results; None: NumPy does it."""
    layer, spelled = None, types
    if is_chain(op):
        layer = layer_of(op, types)
        if layer is None:
            op, spelled = without_reshapes(op, types)
    op, form = layer or (op, form_of(op, spelled, attrs))
    if form is None:
        return None
    found: list[Any] = []

    def make() -> Graph:
        env, inputs, sized_attrs = sized(form, types)
        found.append(vjp_program(op, inputs, sized_attrs, needs, given, env))
        graph: Graph = found[0].graph
        return graph

    engine = code_for((*_key(op, form, types), needs, given), form, make)
    if engine is None:
        return None
    if not found:
        make()
    program = found[0]
    code = Sized(engine, form, [types[i].shape for i in program.results])

    def run_rule(grads: Any, saved_in: Any, saved_out: Any) -> list[Any]:
        arrays = [grads[i] for i in program.grads]
        arrays += [saved_in[i] for i in program.inputs]
        arrays += [saved_out[i] for i in program.outs]
        gradients: list[Any] = [None] * len(types)
        for i, array in zip(program.results, code.run(list(map(contiguous, arrays))), strict=True):
            gradients[i] = array
        return gradients

    return run_rule


# --- graphs --------------------------------------------------------------------------------------


def _key(op: Op, form: Form, types: Types) -> tuple[Any, ...]:
    """Of what is computed, without the sizes that the code leaves open."""
    attrs, shapes = form.attrs, form.inputs
    if form.image is not None:
        attrs = {name: value for name, value in attrs.items() if name != "input_shape"}
        shapes = (form.image, *shapes[1:])
    return op.name, pattern_of(shapes), tuple([t.dtype for t in types]), attrs_key(attrs)


def pattern_of(shapes: Sequence[Shape]) -> Any:
    """Shapes without the sizes that the code leaves open."""
    return tuple([
        tuple([name if name and size > 1 else size for name, size in shape]) for shape in shapes
    ])


_WIDE_HINT = 1001
LONG_HINT = 10_000_001
_HINT = 7  # and odd numbers behind it: examples of sizes, of which nothing is assumed


def _first_hint(form: Form) -> int:
    """An image that a window fits into is no smaller than it."""
    if "dilation" not in form.attrs:
        return _HINT
    windows = [size for shape in form.inputs for name, size in shape[2:] if not name]
    span = max([*windows, *form.attrs.get("weight_shape", ())[2:]], default=1)
    return max(_HINT, 2 * span * max(form.attrs["dilation"]) + 1)


def sized(form: Form, types: Types) -> tuple[DimEnv, tuple[TensorType, ...], Attrs]:
    """The inputs' types and the attributes with the open sizes as named dims."""
    env = DimEnv()
    known: dict[str, Size] = {}
    first = _first_hint(form)

    def named(shape: Shape) -> tuple[Size, ...]:
        sizes: list[Size] = []
        for name, size in shape:
            if not name or size == 1:
                sizes.append(size)
                continue
            if name not in known:
                least = _WIDE_HINT if name.startswith(WIDE) else first
                least = LONG_HINT if name.startswith(LONG) else least
                known[name] = env.new(name, least + 4 * len(known))
            sizes.append(known[name])
        return tuple(sizes)

    if form.image is None:
        found = [TensorType(t.dtype, named(s)) for s, t in zip(form.inputs, types, strict=True)]
        return env, tuple(found), form.attrs
    image, weight = TensorType(types[0].dtype, named(form.image)), types[1]
    window = {name: value for name, value in form.attrs.items() if name != "input_shape"}
    given = get("conv").infer((image, weight), window, env)
    return env, (given, weight), {**form.attrs, "input_shape": image.shape}  # type: ignore[return-value]


def _forward(op: Op, form: Form, types: Types) -> Graph:
    env, inputs, attrs = sized(form, types)
    builder = Builder(env)
    node = builder.emit(op, *[builder.input(t) for t in inputs], **attrs)
    single = isinstance(node.type, TensorType)
    return builder.build((node,) if single else builder.results(node), op.name)


def code_for(
    key: Any, form: Form, make: Callable[[], Graph], mutated: Mapping[int, int] | None = None
) -> Any:
    """The Engine of a graph; None where there is none that serves such sizes. `mutated`: which
    output is written to which input."""
    found = _codes.get(key, _codes)
    if found is _codes:
        with _lock:
            if key not in _codes:
                _codes[key] = _built(make, mutated)
            found = _codes[key]
    if found is None or not all(guard.check(_dims(form)) for guard in found.guards):
        return None
    return found.engine


def _built(make: Callable[[], Graph], mutated: Mapping[int, int] | None) -> _Code | None:
    observer = running.observer
    with nullcontext() if observer is None else observer.unobserved():
        graph = make()
        try:
            built = pipeline.build(
                graph, config=config.current()._replace(winograd=0.0),
                name=f"eager_{graph.name}", any_size=True,
                mutated=mutated,
            )
        except (ImportError, OSError):  # no compiler for this machine
            return None
    if built.assumed:
        return None
    return _Code(Engine.of(built, mutated), tuple(graph.env.guards))
