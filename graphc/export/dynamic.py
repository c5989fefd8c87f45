"""dynamic_shapes: which sizes of which arguments are free, as torch.export spells it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphc.export import registered
from graphc.export.dynamic_shapes import Dim, Hint, Range
from graphc.export.errors import ExportError
from graphc.frontend.functions.ranges import arange
from graphc.frontend.tensor import Tensor
from graphc.ir import dim
from graphc.ir.dim import Size

__all__ = ["Dim", "DynamicShapes", "Range", "read", "resized"]


@dataclass
class DynamicShapes:
    """The free sizes by leaf number and dim, the range of each name, and its size in the example.

    `asked` are the names whose range is to begin where it says, `unnamed` the kind of those that
    have a made-up name; `narrowed` says why a range does not begin with 1.
    """

    names: dict[int, dict[int, Size]] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    example: dict[str, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    unnamed: dict[str, str] = field(default_factory=dict)
    narrowed: dict[str, str] = field(default_factory=dict)

    def raised(self, name: str, least: int, why: str) -> None:
        """Let the range of a name begin later. Raises ExportError where that is not allowed."""
        bounds = self.ranges[name]
        if name in self.asked:
            raise ExportError(
                f"{name!r} is to be {bounds}, but {why}. Cure: Dim({name!r}, min={least}), or "
                f"change the model so that it takes {bounds.least}"
            )
        if bounds.most is not None and bounds.most < least:
            raise ExportError(f"no size of {name!r}, which is {bounds}, can be exported: {why}")
        self.ranges[name] = Range(least, bounds.most)
        self.narrowed[name] = why

    def dropped(self, name: str) -> None:
        """Let a name be fixed at its size in the example."""
        for free in self.names.values():
            for each in [d for d, size in free.items() if size == dim.Dim.var(name)]:
                del free[each]
        for parts in (self.ranges, self.example, self.unnamed, self.narrowed):
            parts.pop(name, None)

    def joined(self, name: str, other: str) -> None:
        """Let two names be one, which are equal in the model. The first goes."""
        to = dim.Dim.var(other)
        for free in self.names.values():
            for each, size in free.items():
                free[each] = dim.substitute(size, {name: to})
        first, second = self.ranges[name], self.ranges[other]
        most = [m for m in (first.most, second.most) if m is not None]
        self.ranges[other] = Range(max(first.least, second.least), min(most, default=None))
        for parts in (self.ranges, self.example, self.unnamed, self.narrowed):
            parts.pop(name, None)


def read(
    dynamic_shapes: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: list[str]
) -> DynamicShapes:
    """Match `dynamic_shapes` with the arguments. Raises ExportError naming what does not fit."""
    found = DynamicShapes()
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
        by_name = _collected(dynamic_shapes, dict(named))
        unknown = [name for name in by_name if name not in dict(named)]
        if unknown:
            raise ExportError(
                f"dynamic_shapes names {unknown[0]!r}, which is no argument of this call. "
                f"Cure: use {', '.join(repr(n) for n, _ in named) or 'none'}"
            )
        specs = [(name, value, by_name.get(name)) for name, value in named]
    else:
        raise ExportError(f"dynamic_shapes must be a dict or a tuple, got {dynamic_shapes!r}")
    reader = _Reader(found)
    for name, value, spec in specs:
        reader.walk(value, spec, name)
    reader.check_followers()
    return found


def _collected(shapes: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """By the argument's name what is given for all of *args or of **kwargs together."""
    found: dict[str, Any] = {}
    for name, spec in shapes.items():
        if name not in named and isinstance(spec, (tuple, list)) and f"{name}_0" in named:
            found |= {f"{name}_{i}": each for i, each in enumerate(spec)}
        elif name not in named and isinstance(spec, Mapping) and spec and all(
            key in named for key in spec
        ):
            found |= spec
        else:
            found[name] = spec
    return found


class _Reader:
    def __init__(self, found: DynamicShapes) -> None:
        self.found = found
        self.leaf = itertools.count()
        self.free = itertools.count()
        self.followers: list[Dim] = []

    def walk(self, value: Any, spec: Any, path: str) -> None:
        """Visit leaves in the order of tree.flatten."""
        if registered.is_instance(value):
            for name, child, part in _fields(value, spec, path):
                self.walk(child, part, f"{path}.{name}")
            return
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
        free: dict[int, Size] = {}
        for each, entry in entries.items():
            if entry is None or (isinstance(entry, Hint) and entry.kind == "STATIC"):
                continue
            if not isinstance(each, int) or not -value.ndim <= each < value.ndim:
                raise ExportError(f"dynamic_shapes names dim {each} of {path}, which is "
                                  f"{value.ndim}-dimensional")
            where, size = f"dim {each % value.ndim} of {path}", value.shape[each]
            if isinstance(entry, int):
                if entry != size:
                    raise ExportError(f"{where} is {size}, but dynamic_shapes fixes it to {entry}")
            elif not (isinstance(entry, Hint) and entry.kind == "AUTO" and size == 0):
                free[each % value.ndim] = self._size(entry, size, where)
        if free:
            self.found.names[number] = free

    def _size(self, entry: Any, size: int, where: str) -> Size:
        """Of one free dim, whose name is known from now on."""
        named = self._named(entry)
        name, root = named.root.name, named.root_size(size)
        bounds = self.found.ranges[name]
        if root is None or root not in bounds:
            least = dim.evaluate(named.size, {name: bounds.least})
            most = None if bounds.most is None else dim.evaluate(named.size, {name: bounds.most})
            raise ExportError(
                f"{where} is to be free as {named.name!r} but has size {size} in the example. "
                f"Cure: give an example of size {least}"
                + (" or more" if most is None else f" to {most}")
                + (" (size 0 is always fixed)" if size == 0 else "")
            )
        if self.found.example.setdefault(name, root) != root:
            raise ExportError(
                f"{where} is {size} in the example, where {name!r} is {root}; before, {name!r} is "
                f"{self.found.example[name]}. Cure: two names, or an example of equal sizes"
            )
        if named.root is not named:
            self.followers.append(named)
        return named.size

    def _named(self, entry: Any) -> Dim:
        """The Dim that an entry stands for, its range kept."""
        if isinstance(entry, Hint):
            found = Dim(f"free{next(self.free)}", min=entry.min, max=entry.max)
            self.found.unnamed[found.name] = entry.kind
        elif isinstance(entry, str):
            found = Dim(entry)
        elif isinstance(entry, Dim):
            found = entry
        else:
            raise ExportError(f"a free size is a name or a Dim, got {entry!r}")
        root = found.root
        bounds = Range(root.min, root.max)
        known = self.found.ranges.setdefault(root.name, bounds)
        if known != bounds:
            raise ExportError(f"Dim {root.name!r} is given with two ranges, {known} and {bounds}")
        if root.asked:
            self.found.asked.add(root.name)
        return found

    def check_followers(self) -> None:
        """A size that follows from a name is 2 or more: 0 and 1 are other things to a graph."""
        for follower in self.followers:
            name = follower.root.name
            least = self.found.ranges[name].least
            while dim.evaluate(follower.size, {name: least}) < 2:
                least += 1
            if least > self.found.ranges[name].least:
                self.found.raised(name, least, f"{follower.name} is then below 2")


def _fields(value: Any, spec: Any, path: str) -> list[tuple[str, Any, Any]]:
    """(name, value, what dynamic_shapes says of it) of each field of a dataclass. What is said is a
    list by the fields that are not None, as in torch, or by name, or an instance."""
    pairs = [(name, getattr(value, name)) for name in registered.field_names(type(value))]
    if isinstance(spec, (list, tuple)):
        names = [name for name, child in pairs if child is not None]
        if len(spec) != len(names):
            raise ExportError(
                f"dynamic_shapes gives {len(spec)} parts for {path}, whose fields that are not "
                f"None are {len(names)}: {', '.join(names)}. Cure: give a list with one for each"
            )
        spec = dict(zip(names, spec, strict=True))
    elif isinstance(spec, type(value)):
        spec = {name: getattr(spec, name) for name, _ in pairs}
    elif spec is not None and not (
        isinstance(spec, Mapping) and spec.keys() <= dict(pairs).keys()
    ):
        raise ExportError(
            f"dynamic_shapes gives {spec!r} for {path}, which is a {type(value).__name__}. Cure: "
            "give a list with one part for each field that is not None"
        )
    return [(name, child, (spec or {}).get(name)) for name, child in pairs]


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


# --- examples of other sizes -----------------------------------------------------------------


def at_one(shapes: DynamicShapes, names: Collection[str]) -> tuple[dict[str, int], DynamicShapes]:
    """The sizes of an example where these are 1, and what is then free."""
    sizes = {
        name: 1 if name in names else max(2, size) for name, size in shapes.example.items()
    }
    free = {
        number: {d: size for d, size in own.items() if not _variables(size) & set(names)}
        for number, own in shapes.names.items()
    }
    return sizes, DynamicShapes(free, {k: v for k, v in shapes.ranges.items() if k not in names})


def _variables(size: Size) -> frozenset[str]:
    return size.variables() if isinstance(size, dim.Dim) else frozenset()


def resized(
    leaves: list[Any], names: Mapping[int, Mapping[int, Size]], sizes: Mapping[str, int]
) -> list[Any]:
    """The leaves with free dims of these sizes: rows are left out, or come again."""
    found = list(leaves)
    for number, dims in names.items():
        for each, size in dims.items():
            wanted, has = dim.evaluate(size, sizes), found[number].shape[each]
            if wanted == has:
                continue
            tensor = found[number].detach()
            rows = arange(wanted, device=tensor.device) % has
            found[number] = tensor.index_select(each, rows)
    return found
