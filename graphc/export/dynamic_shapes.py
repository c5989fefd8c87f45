"""torch.export.dynamic_shapes: Dim, a free size of an exported model, and what follows from it."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import flatten, unflatten
from graphc.ir import dim, dtypes
from graphc.ir.dim import Size

_RESERVED = {d.name for d in (*dtypes.ALL, *dtypes.COMPLEX)} | {
    "nan", "inf", "None", "True", "False", "min", "max"
}


@dataclass(frozen=True)
class Range:
    """Smallest and largest allowed size of a named dim; `most` None: no bound."""

    least: int
    most: int | None

    @property
    def lower(self) -> int:
        """torch's name for `least`."""
        return self.least

    @property
    def upper(self) -> float:
        """torch's name for `most`; inf where there is no bound."""
        return float("inf") if self.most is None else self.most

    def __contains__(self, size: int) -> bool:
        return self.least <= size and (self.most is None or size <= self.most)

    def __str__(self) -> str:
        return f"{self.least} to {'any size' if self.most is None else self.most}"


@dataclass(frozen=True)
class Hint:
    """An unnamed free size: `Dim.AUTO`, `Dim.DYNAMIC`, or one of them with bounds; `Dim.STATIC`."""

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> Hint:
        """The same with bounds: Dim.AUTO(min=2, max=64)."""
        if self.kind == "STATIC":
            raise TypeError("Dim.STATIC is a fixed size, which has no bounds")
        return Hint(self.kind, min, max)

    def __repr__(self) -> str:
        bounds = [f"{k}={v}" for k, v in (("min", self.min), ("max", self.max)) if v is not None]
        return f"Dim.{self.kind}" + (f"({', '.join(bounds)})" if bounds else "")


class Dim:
    """A named free size (torch.export.Dim). Sizes with one name are equal.

    `min` and `max` bound it; size 0 is never free. A `min` that is given is held to: export raises
    where the model cannot take it. Without one the range begins with 1, or with 2 where the model
    cannot take 1 (ExportedProgram.range_constraints says which). `2 * batch + 1` is a size that
    follows from `batch`. Dim.AUTO and Dim.DYNAMIC are unnamed free sizes (AUTO becomes fixed where
    the model fixes it, DYNAMIC is then an error), Dim.STATIC is a fixed one.
    """

    AUTO: ClassVar[Hint] = Hint("AUTO")
    DYNAMIC: ClassVar[Hint] = Hint("DYNAMIC")
    STATIC: ClassVar[Hint] = Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier() or name in _RESERVED:
            raise ValueError(f"a Dim's name must be an identifier that is no dtype, got {name!r}")
        self.name = self.__name__ = name
        self.asked = min is not None
        self.min = 1 if min is None or min < 1 else min
        self.max = max
        if max is not None and max < builtins.max(self.min, 2):
            raise ValueError(f"Dim {name!r} has no size: min is {self.min}, max is {max}")
        self.root, self._scale, self._offset = self, 1, 0

    @property
    def size(self) -> Size:
        """As the IR spells it."""
        return dim.Dim.var(self.root.name) * self._scale + self._offset

    def root_size(self, size: int) -> int | None:
        """The size of `root` for which this one is `size`; None where there is none."""
        found, rest = divmod(size - self._offset, self._scale)
        return None if rest else found

    def __add__(self, other: int) -> Dim:
        return self._derived(1, _integer("add", other))

    def __sub__(self, other: int) -> Dim:
        return self._derived(1, -_integer("subtract", other))

    def __mul__(self, other: int) -> Dim:
        if _integer("multiply by", other) <= 0:
            raise NotImplementedError(f"cannot multiply a Dim by {other}, which is not positive")
        return self._derived(other, 0)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Dim:
        raise NotImplementedError(
            f"cannot negate the Dim {self.name!r}: a size that follows grows with it"
        )

    def _derived(self, scale: int, offset: int) -> Dim:
        made = object.__new__(Dim)
        made.root = self.root
        made._scale, made._offset = self._scale * scale, self._offset * scale + offset
        made.name = made.__name__ = str(made.size)
        made.asked = self.asked
        made.min = self.root.min * made._scale + made._offset
        most = self.root.max
        made.max = None if most is None else most * made._scale + made._offset
        return made

    def __repr__(self) -> str:
        if self.root is not self:
            return self.name
        return f"Dim({self.name!r}, min={self.min}, max={self.max})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A Dim of each name, with the same bounds."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def _integer(what: str, other: Any) -> int:
    if type(other) is not int:
        raise NotImplementedError(
            f"cannot {what} {other!r}: sizes that follow from a Dim are a*dim + b with integers"
        )
    return other


class ShapesCollection:
    """dynamic_shapes by tensor (torch.export.ShapesCollection): shapes[x] = {0: batch}."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[Tensor, Any]] = {}

    def __setitem__(self, tensor: Tensor, shape: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"a shape is given to a Tensor, got {type(tensor).__name__}")
        known = self._given.setdefault(id(tensor), (tensor, shape))[1]
        if known != shape:
            raise ValueError(f"one tensor is given two shapes, {known} and {shape}")

    def __getitem__(self, tensor: Tensor) -> Any:
        return self._given.setdefault(id(tensor), (tensor, {}))[1]

    def __len__(self) -> int:
        return len(self._given)

    def dynamic_shapes(
        self, m: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> tuple[Any, ...]:
        """What export(dynamic_shapes=...) takes. Raises ValueError for a tensor that is not among
        the arguments."""
        leaves, structure = flatten((args, dict(kwargs or {})))
        missing = set(self._given) - {id(leaf) for leaf in leaves}
        if missing:
            raise ValueError(
                f"{len(missing)} tensors that were given shapes are not among the arguments. Cure: "
                "pass the same objects to export"
            )
        specs = [self._given[id(leaf)][1] if id(leaf) in self._given else None for leaf in leaves]
        return _in_order(unflatten(specs, structure))


class AdditionalInputs:
    """Further examples (torch.export.AdditionalInputs): sizes that differ among them are free."""

    def __init__(self) -> None:
        self.examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> None:
        """One more example."""
        if not isinstance(args, tuple):
            raise TypeError(f"args must be a tuple, got {type(args).__name__}")
        self.examples.append((args, dict(kwargs or {})))

    def dynamic_shapes(
        self, m: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> tuple[Any, ...]:
        """What export(dynamic_shapes=...) takes. Raises ValueError for examples that differ in more
        than sizes."""
        leaves, structure = flatten((args, dict(kwargs or {})))
        others = []
        for example in self.examples:
            found, form = flatten(example)
            if form != structure:
                raise ValueError("an additional input has other containers than the example")
            others.append(found)
        specs = [_free_where(leaf, [o[i] for o in others]) for i, leaf in enumerate(leaves)]
        return _in_order(unflatten(specs, structure))


def _free_where(leaf: Any, others: Sequence[Any]) -> Any:
    """What is free of a leaf."""
    if not isinstance(leaf, Tensor):
        if any(type(other) is not type(leaf) or other != leaf for other in others):
            raise ValueError(f"additional inputs give {leaf!r} and {list(others)}: only sizes of "
                             "tensors can be free")
        return None
    if any(not isinstance(o, Tensor) or o.dtype != leaf.dtype or o.ndim != leaf.ndim
           for o in others):
        raise ValueError(f"additional inputs differ from a {leaf.ndim}-dimensional {leaf.dtype}")
    return {
        d: Dim.DYNAMIC for d in range(leaf.ndim)
        if any(other.shape[d] != leaf.shape[d] for other in others)
    } or None


def _in_order(specs: Any) -> tuple[Any, ...]:
    args, kwargs = specs
    return (*args, *kwargs.values())
