"""The operator record: one per operator, holding everything the compiler knows of it.

A record is called on values of any kind (`ops.exp(x)`): graph expressions, eager Tensors and
traced Tensors all implement `Value`, so gradient rules and decompositions are written once.
Arrays are positional, metadata is keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .dim import DimEnv
from .rounding import Rounding, RoundingRule
from .types import TensorType, Type

Attrs: TypeAlias = dict[str, Any]  # str, number, DType, Size, tuples of them, ndarray, Graph


class Value(Protocol):
    """Anything an operator can be applied to. Operators + - * / and unary - are there too."""

    @property
    def type(self) -> TensorType: ...

    def _emit(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """Apply `op`; a tuple of values where the op has several results."""

    def _constant(self, value: float | int | bool, like: TensorType) -> Any:
        """A 0-d value of `like`'s dtype, in the same world as self."""

    def __add__(self, other: Any) -> Any: ...
    def __sub__(self, other: Any) -> Any: ...
    def __mul__(self, other: Any) -> Any: ...
    def __truediv__(self, other: Any) -> Any: ...
    def __neg__(self) -> Any: ...
    def __rmul__(self, other: Any) -> Any: ...
    def __radd__(self, other: Any) -> Any: ...
    def __rsub__(self, other: Any) -> Any: ...
    def __rtruediv__(self, other: Any) -> Any: ...


class OutOfRange(IndexError, RuntimeError):
    """An index that gather or scatter cannot take. torch raises the one class or the other, by
    operator; this is both."""


class LinAlgError(RuntimeError):
    """torch.linalg.LinAlgError: a matrix that an algorithm cannot take, such as a singular one."""

    __module__ = "graphc._C"  # torch._C._LinAlgError is what tracebacks call it


LinAlgError.__name__ = LinAlgError.__qualname__ = "_LinAlgError"


class OpError(Exception):
    """Bad operands for an operator. `kind` says which exception the user should see."""

    def __init__(self, message: str, kind: type[Exception] = RuntimeError) -> None:
        super().__init__(message)
        self.kind = kind


# (input types, attrs, env) -> result type; raises OpError. `env` decides about symbolic sizes.
TypeRule: TypeAlias = Callable[[tuple[TensorType, ...], Attrs, DimEnv], Type]
# (grads, inputs, outs, needs, **attrs) -> one gradient or None per input. grads and outs have one
# entry per result; a grad is None where no gradient flows. A gradient may have the broadcast
# shape of the result: the walk sums it down to the input's shape.
VjpRule: TypeAlias = Callable[..., Sequence[Any]]
# (what each sub-graph comes to, input types, attrs) -> what one run of the operator comes to
BodyRule: TypeAlias = Callable[[Sequence[Any], Sequence[Type], Mapping[str, Any]], Any]
# (*inputs, **attrs) -> the result(s) in more primitive operators
Decomposition: TypeAlias = Callable[..., Any]


# What one element costs, in additions: of a division, of a polynomial (exp), of two or a long one
# (pow), of a series.
LIGHT, QUOTIENT, FUNCTION, LONG, SERIES = 1, 4, 12, 20, 60


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operator.

    family: "unary" | "binary" | "compare" | "ternary" (elementwise, implicit broadcasting,
    inputs of one dtype), "cast", "reduce", "arg_reduce", "movement", "index", "contract",
    "window", "sort", "cumulative", "create", "random", "composite", "control", "structure",
    "routine" (a kernel of its own, written per backend: linalg, fft, special functions).

    cost, rounding and takes_complex have no defaults: a record says them, or there is none.
    """

    name: str
    family: str
    infer: TypeRule = field(repr=False)
    vjp: VjpRule | None = field(default=None, repr=False)
    decompose: Decomposition | None = field(default=None, repr=False)
    arity: int | None = None  # None: any number of inputs
    results: int = 1
    attrs: tuple[str, ...] = ()  # names of the metadata, in print order
    optional: frozenset[str] = frozenset()  # names of metadata that a node may lack
    view: bool = False  # eager result shares its first input's storage
    in_its_order: bool = False  # results lie in memory in the order of the first operand's dims
    # results have their channels last where operands do, "first", "any" or "all" (channels.py)
    keeps_channels: str = ""
    nondifferentiable: str = ""  # why there is no vjp (e.g. "integer result")
    adjoint: bool = False  # on complex numbers the vjp conjugates by itself: not holomorphic
    selects: bool = False  # gives an operand, or that in another dtype: no work that cost.py counts
    divides: bool = False  # by its second input: an integer 0 there raises
    domain: tuple[float, float] = (-10.0, 10.0)  # where samples of a float input are drawn
    doc: str = ""
    # of an operator with sub-graphs: how its work follows from theirs
    body_work: BodyRule | None = field(default=None, repr=False)
    # of one element, in additions; None: a kernel's worth of work, which is never done twice
    cost: int | None = field(kw_only=True)
    rounding: Rounding | RoundingRule = field(kw_only=True, repr=False)
    takes_complex: bool = field(kw_only=True)  # among its operands or results

    @property
    def elementwise(self) -> bool:
        return self.family in ELEMENTWISE

    @property
    def pointwise(self) -> bool:
        """Whether a result's element depends on one element of each input: an elementwise
        operator, or a composite of such."""
        return self.elementwise or (self.family == "composite" and self.cost is not None)

    @property
    def keeps_order(self) -> bool:
        """Whether a result's dims lie in memory in the order of the first operand of its shape;
        where not, they are row-major (or, of a routine, as it leaves them)."""
        return self.in_its_order or self.pointwise

    @property
    def heavy(self) -> bool:
        """Whether one element takes tens of instructions, such as an exp."""
        return self.cost is not None and self.cost >= FUNCTION

    @property
    def impure(self) -> bool:
        """Never merged, reordered or recomputed: it advances a generator."""
        return self.family == "random"

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        """Apply to values. Python numbers become 0-d constants of the first value's dtype."""
        for value in inputs:
            if hasattr(value, "_emit"):
                break
        else:
            raise TypeError(f"{self.name} needs a tensor value; use emit_like for creation ops")
        lifted = tuple(
            x if hasattr(x, "_emit") else value._constant(x, value.type) for x in inputs
        )
        return value._emit(self, lifted, attrs)

    def like(self, value: Any, /, **attrs: Any) -> Any:
        """Apply an operator without inputs (full, iota, const) in the world of `value`."""
        return value._emit(self, (), attrs)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (get, (self.name,))

    def __deepcopy__(self, memo: object) -> Op:
        return self


ELEMENTWISE = frozenset({"unary", "binary", "compare", "ternary", "cast"})

REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add a record. Raises ValueError where the name is taken."""
    if op.name in REGISTRY:
        raise ValueError(f"operator {op.name!r} is registered twice")
    REGISTRY[op.name] = op
    return op


def get(name: str) -> Op:
    """The record named `name`. Raises KeyError."""
    try:
        return REGISTRY[name]
    except KeyError:
        raise KeyError(f"unknown operator {name!r}") from None
