"""Eager mode on many numbers: compiled code for one operator, or its gradient rule, of any size.

The code is made at the first call that asks for it, or found where an earlier process has kept it.
eager_mode.py says what is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from .. import config
from ..ir.autodiff import vjp_program
from ..ir.dim import DimEnv, Guard, Size
from ..ir.graph import Builder, Graph, attrs_key
from ..ir.op import Attrs, Op, get
from ..ir.types import TensorType
from . import pipeline
from .built import Engine
from .capture.observer import running
from .eager_form import Form, Shape, Types
from .eager_forms import form_of

Rule = Callable[[Any, Any, Any], list[Any]]

_codes: dict[Any, Any] = {}  # the Code by what it computes; None: there is none
_lock = threading.RLock()


class _Code(NamedTuple):
    """An Engine for all sizes of which some facts hold (an image is no smaller than a window)."""

    engine: Engine
    guards: tuple[Guard, ...]


def _dims(form: Form) -> dict[str, int]:
    """The sizes that the code leaves open."""
    shapes = form.inputs if form.image is None else (*form.inputs, form.image)
    return {name: size for shape in shapes for name, size in shape if name and size > 1}


class Sized:
    """An Engine for all sizes, and the sizes of one signature."""

    def __init__(self, engine: Any, form: Form) -> None:
        self.engine = engine
        self.dims = _dims(form)

    def run(self, arrays: list[Any]) -> list[np.ndarray]:
        _, results = self.engine.call(arrays, self.dims)
        found: list[np.ndarray] = results
        return found


class Operator(Sized):
    """An operator on inputs of known types."""

    def __init__(self, engine: Any, form: Form, results: Types) -> None:
        super().__init__(engine, form)
        self.inputs = [_sizes(shape) for shape in form.inputs]
        self.results: list[Any] = [t.shape for t in results]

    @classmethod
    def of(cls, op: Op, types: Types, attrs: Attrs, results: Types) -> Operator | None:
        """None: NumPy does it."""
        form = form_of(op, types, attrs)
        if form is None:
            return None
        engine = code_for(_key(op, form, types), form, lambda: _forward(op, form, types))
        return None if engine is None else cls(engine, form, results)

    def call(self, arrays: Sequence[np.ndarray]) -> Any:
        """An array, or a tuple of them."""
        inputs = [a.reshape(sizes) for a, sizes in zip(arrays, self.inputs, strict=True)]
        found = [
            a.reshape(shape) for a, shape in zip(self.run(inputs), self.results, strict=True)
        ]
        return found[0] if len(found) == 1 else tuple(found)


def rule(
    op: Op, types: Types, attrs: Attrs, needs: tuple[bool, ...], given: tuple[bool, ...]
) -> Rule | None:
    """The gradient rule of an operator on inputs of known types, as a function of the gradients of
    its results, and of what was saved of its inputs and results; None: NumPy does it."""
    form = form_of(op, types, attrs)
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
    code = Sized(engine, form)
    result_shapes = [_sizes(shape) for shape in _result_shapes(op, form, types)]
    input_shapes = [_sizes(shape) for shape in form.inputs]
    wanted: list[Any] = [types[i].shape for i in program.results]

    def run_rule(grads: Any, saved_in: Any, saved_out: Any) -> list[Any]:
        arrays = [grads[i].reshape(result_shapes[i]) for i in program.grads]
        arrays += [saved_in[i].reshape(input_shapes[i]) for i in program.inputs]
        arrays += [saved_out[i].reshape(result_shapes[i]) for i in program.outs]
        gradients: list[Any] = [None] * len(types)
        for i, shape, array in zip(program.results, wanted, code.run(arrays), strict=True):
            gradients[i] = array.reshape(shape)
        return gradients

    return run_rule


# --- graphs --------------------------------------------------------------------------------------


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple([size for _, size in shape])


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
                known[name] = env.new(name, first + 4 * len(known))
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


def _result_shapes(op: Op, form: Form, types: Types) -> list[Shape]:
    """The shapes of the results that the form has, for these sizes."""
    plain = [
        TensorType(t.dtype, _sizes(shape)) for t, shape in zip(types, form.inputs, strict=True)
    ]
    result = op.infer(tuple(plain), form.attrs, DimEnv())
    results = (result,) if isinstance(result, TensorType) else result.elements
    return [tuple([("", size) for size in t.shape]) for t in results]  # type: ignore[misc]


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
