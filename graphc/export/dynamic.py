"""dynamic_shapes: which sizes of which arguments are free, as torch.export spells it."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from graphc.export.errors import ExportError
from graphc.frontend.tensor import Tensor
from graphc.ir import dtypes

_RESERVED = {d.name for d in (*dtypes.ALL, *dtypes.COMPLEX)} | {
    "nan", "inf", "None", "True", "False", "min", "max"
}


class _Hint:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A named free size (torch.export.Dim). Sizes with one name are equal.

    `min` and `max` bound it; size 0 is never free, and size 1 is where the model computes the same
    as for other sizes, as far as `min` allows (ones.py). Dim.AUTO and Dim.DYNAMIC make an
    unnamed free size, Dim.STATIC a fixed one.
    """

    AUTO: ClassVar[Any] = _Hint("AUTO")
    DYNAMIC: ClassVar[Any] = _Hint("DYNAMIC")
    STATIC: ClassVar[Any] = _Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier() or name in _RESERVED:
            raise ValueError(f"a Dim's name must be an identifier that is no dtype, got {name!r}")
        self.name = self.__name__ = name
        self.min = 1 if min is None or min < 1 else min
        self.max = max
        if max is not None and max < builtins.max(self.min, 2):
            raise ValueError(f"Dim {name!r} has no size: min is {self.min}, max is {max}")

    def __repr__(self) -> str:
        return f"Dim({self.name!r}, min={self.min}, max={self.max})"


@dataclass(frozen=True)
class Range:
    """Smallest and largest allowed size of a named dim; `most` None: no bound. Until the model was
    recorded, 1 as the smallest says that it may be."""

    least: int
    most: int | None


@dataclass
class DynamicShapes:
    """The free dims by leaf number, and the range of each name."""

    names: dict[int, dict[int, str]]
    ranges: dict[str, Range]


def read(
    dynamic_shapes: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: list[str]
) -> DynamicShapes:
    """Match `dynamic_shapes` with the arguments. Raises ExportError naming what does not fit."""
    found = DynamicShapes({}, {})
    if dynamic_shapes is None:
        return found
    named = list(zip(parameters, args, strict=False)) + list(kwargs.items())
    if isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(named):
            raise ExportError(
                f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(named)} arguments. "
                "Cure: give one for each (None where nothing is free), or a dict by name"
            )
        specs = [(n, v, s) for (n, v), s in zip(named, dynamic_shapes, strict=True)]
    elif isinstance(dynamic_shapes, Mapping):
        unknown = [name for name in dynamic_shapes if name not in dict(named)]
        if unknown:
            raise ExportError(
                f"dynamic_shapes names {unknown[0]!r}, which is no argument of this call. "
                f"Cure: use {', '.join(repr(n) for n, _ in named) or 'none'}"
            )
        specs = [(name, value, dynamic_shapes.get(name)) for name, value in named]
    else:
        raise ExportError(f"dynamic_shapes must be a dict or a tuple, got {dynamic_shapes!r}")
    reader = _Reader(found)
    for name, value, spec in specs:
        reader.walk(value, spec, name)
    return found


class _Reader:
    def __init__(self, found: DynamicShapes) -> None:
        self.found = found
        self.leaf = itertools.count()
        self.free = itertools.count()

    def walk(self, value: Any, spec: Any, path: str) -> None:
        """Visit leaves in the order of tree.flatten."""
        if not isinstance(value, (list, tuple, dict)):
            number = next(self.leaf)
            if spec is not None:
                self._tensor(value, spec, path, number)
            return
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in pairs:
            self.walk(child, _part(spec, key, path), f"{path}[{key!r}]")

    def _tensor(self, value: Any, spec: Any, path: str, number: int) -> None:
        if not isinstance(value, Tensor):
            raise ExportError(f"dynamic_shapes gives sizes for {path}, which is no Tensor")
        entries = spec if isinstance(spec, Mapping) else dict(enumerate(spec))
        names: dict[int, str] = {}
        for dim, entry in entries.items():
            if entry is None or entry is Dim.STATIC or isinstance(entry, int):
                continue
            if not isinstance(dim, int) or not -value.ndim <= dim < value.ndim:
                raise ExportError(f"dynamic_shapes names dim {dim} of {path}, which is "
                                  f"{value.ndim}-dimensional")
            dim %= value.ndim
            names[dim] = self._name(entry)
            size = value.shape[dim]
            bounds = self.found.ranges[names[dim]]
            if size < bounds.least or (bounds.most is not None and size > bounds.most):
                raise ExportError(
                    f"dim {dim} of {path} is to be free as {names[dim]!r} but has size {size} in "
                    f"the example. Cure: give an example of size {bounds.least}"
                    + (" or more" if bounds.most is None else f" to {bounds.most}")
                    + (" (size 0 is always fixed)" if size == 0 else "")
                )
        if names:
            self.found.names[number] = names

    def _name(self, entry: Any) -> str:
        if entry in (Dim.AUTO, Dim.DYNAMIC):
            entry = Dim(f"free{next(self.free)}")
        elif isinstance(entry, str):
            entry = Dim(entry)
        elif not isinstance(entry, Dim):
            raise ExportError(f"a free size is a name or a Dim, got {entry!r}")
        bounds = Range(entry.min, entry.max)
        known = self.found.ranges.setdefault(entry.name, bounds)
        if known != bounds:
            raise ExportError(f"Dim {entry.name!r} is given with two ranges, {known} and {bounds}")
        return str(entry.name)


def _part(spec: Any, key: Any, path: str) -> Any:
    """What dynamic_shapes says of one part of a container."""
    if spec is None:
        return None
    try:
        return spec.get(key) if isinstance(spec, Mapping) else spec[key]
    except (IndexError, TypeError):
        raise ExportError(
            f"dynamic_shapes gives {spec!r} for {path}, which is a container. Cure: give its "
            "parts in a container of the same form"
        ) from None
