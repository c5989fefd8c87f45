"""torch.return_types: the named tuples of functions with several results."""

from __future__ import annotations

import operator
from typing import Any


def _struct(name: str, *fields: str) -> Any:
    def new(cls: Any, *values: Any) -> Any:
        one = len(values) == 1 and (
            isinstance(values[0], (tuple, list)) or hasattr(values[0], "__next__")
        )
        given = tuple(values[0]) if one else values
        if len(given) != len(fields):
            raise TypeError(f"torch.return_types.{name}() takes a {len(fields)}-sequence")
        return tuple.__new__(cls, given)

    def text(self: Any) -> str:
        rows = ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{rows})"

    body: dict[str, Any] = {
        "__slots__": (), "__new__": new, "__repr__": text, "_fields": fields,
        "__module__": "torch.return_types", "__doc__": f"What torch.{name} gives: {fields}.",
        "__reduce__": lambda self: (_make, (name, tuple(self))),
        "__match_args__": fields, "n_fields": len(fields),
        "_make": classmethod(lambda cls, values: cls(tuple(values))),
    }
    for i, field in enumerate(fields):
        body[field] = property(operator.itemgetter(i))
    return type(name, (tuple,), body)


def _make(name: str, values: tuple[Any, ...]) -> Any:
    return globals()[name](values)


_PAIR = ("values", "indices")

max = _struct("max", *_PAIR)
min = _struct("min", *_PAIR)
sort = _struct("sort", *_PAIR)
topk = _struct("topk", *_PAIR)
kthvalue = _struct("kthvalue", *_PAIR)
median = _struct("median", *_PAIR)
nanmedian = _struct("nanmedian", *_PAIR)
mode = _struct("mode", *_PAIR)
cummax = _struct("cummax", *_PAIR)
cummin = _struct("cummin", *_PAIR)
aminmax = _struct("aminmax", "min", "max")
frexp = _struct("frexp", "mantissa", "exponent")
histogram = _struct("histogram", "hist", "bin_edges")
histogramdd = _struct("histogramdd", "hist", "bin_edges")
