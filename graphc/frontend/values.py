"""What gradient rules compute on besides graph expressions: arrays, Tensors, and types alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.graph import Expr
from graphc.ir.named import NamedTuple
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

Runner = Callable[[Op, list[Any], Attrs], Any]  # on NumPy arrays, or on DeviceArrays
# (operator, types of its inputs, attributes, types of its results) -> what runs it, on the inputs
Prepare = Callable[[Op, Sequence[TensorType], Attrs, Sequence[TensorType]], Callable[..., Any]]


# (operator, types of its inputs, attributes, which inputs need a gradient, which results have one)
# -> what its gradient rule comes to, of gradients, saved inputs and saved results; None: no such
PrepareRule = Callable[
    [Op, Sequence[TensorType], Attrs, tuple[bool, ...], tuple[bool, ...]],
    Callable[[Any, Any, Any], Any] | None,
]


class Link(NamedTuple):
    """An operator of a chain; `sources` are numbers of the chain's inputs, its constants, and
    earlier links' results."""

    op: Op
    attrs: Attrs
    sources: tuple[int, ...]
    result: TensorType


# (types of the inputs, constants without dims, links, whether in place, whether with a history) ->
# the last link's result, as a function of row-major arrays (None of others), in place in the memory
# of the first; None: one operator after the other is as good
PrepareChain = Callable[
    [Sequence[TensorType], Sequence[np.ndarray], Sequence[Link], bool, bool],
    Callable[[Sequence[np.ndarray]], Any] | None,
]


# (a function of tensors, names of dims of its arguments: {argument: {dim: name}}) -> the function
# as one graph for all sizes of those dims
PrepareWhole = Callable[[Callable[..., Any], dict[int, dict[int, str]]], Callable[..., Any]]


class _Unset:
    """Stands for the runner until graphc/__init__.py injects one."""

    def __call__(self, op: Op, arrays: list[np.ndarray], attrs: Attrs) -> Any:
        raise RuntimeError("eager mode has no runner; call dispatch.set_runner(run) first")


class Eager:
    """The injected backend function `run(op, arrays, attrs) -> array | tuple of arrays`."""

    run: Runner = _Unset()
    # what `run` does for inputs of known types, as a function of arrays; None: `run` alone will do,
    # as while somebody watches operators
    prepare: Prepare | None = None
    rule: PrepareRule | None = None
    chain: PrepareChain | None = None
    whole: PrepareWhole | None = None
    # the same for arrays that may lie on other devices; None: there is no other device
    elsewhere: Runner | None = None
    # of a state and a count: what fills memory, `(state, f32 memory, width, low) -> state` behind
    # it, with u * width + low of the uniform numbers that rng_uniform draws; None: nothing does
    between: Callable[[Any, int], Callable[..., Any] | None] = staticmethod(lambda *_: None)
    # of the name of a random operator and its attributes: what fills row-major memory, `(state,
    # memory)`, and moves the state on in place; it gives None where it did nothing. None: no such
    drawer: Callable[[str, Attrs], Callable[[Any, Any], Any] | None] = staticmethod(lambda *_: None)
    # of how many parts, numbers of a part and bytes of a number: what writes row-major arrays of as
    # many side by side, `(*arrays, result)`; it gives None where it did nothing
    join: Callable[[int, int, int], Callable[..., Any] | None] = staticmethod(lambda *_: None)
    # of steps on arrays, their results, what runs them on tensors and what installs another such
    # function in its place (of one result, the same without a list around it, too): what runs them
    # until something better is installed (replayed_steps.py); None: nothing will be
    program: Callable[..., Any] = staticmethod(lambda *_: None)
    # of a gradient rule (programs.py): what runs it as native code, once that is right; None:
    # nothing will
    gradient: Callable[[Any], Any] = staticmethod(lambda _: None)
    # whether an operator on inputs of such types, with these attributes, is code of its own
    # (sequenced.py)
    apart: Callable[[Op, Sequence[TensorType], Attrs], bool] = staticmethod(lambda *_: False)
    # whether random numbers come from a counter, by none of these
    by_counter: Callable[[], bool] = staticmethod(lambda: False)


class ArrayValue(Expr):
    """An array as a `Value`: operators run at once, without a tape."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def type(self) -> TensorType:
        return TensorType(dtypes.from_numpy(self.array.dtype), self.array.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> dtypes.DType:
        return dtypes.from_numpy(self.array.dtype)

    def _emit(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        run = Eager.elsewhere or Eager.run
        out = run(op, [x.array for x in inputs], attrs)
        if type(out) is tuple:
            return tuple([ArrayValue(a) for a in out])
        return ArrayValue(out)

    def _constant(self, value: float | int | bool, like: TensorType) -> ArrayValue:
        return ArrayValue(np.asarray(value, like.dtype.numpy))


class TypeValue(Expr):
    """A value of which only the type was kept: what a rule does not read is not saved."""

    __slots__ = ("_like", "_type")

    def __init__(self, type_: TensorType, like: Expr) -> None:
        self._type = type_
        self._like = like

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def shape(self) -> Any:
        return self._type.shape

    @property
    def dtype(self) -> dtypes.DType:
        return self._type.dtype

    def _emit(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        if any(isinstance(x, TypeValue) for x in inputs):
            raise AssertionError(f"a gradient rule applied {op.name} to a value it did not save")
        return self._like._emit(op, inputs, attrs)

    def _constant(self, value: float | int | bool, like: TensorType) -> Expr:
        constant: Expr = self._like._constant(value, like)
        return constant
