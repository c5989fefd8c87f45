"""C functions by their prototypes, written as the header has them, so that a C compiler can hold
the text against the header, and ctypes passes what is declared."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

CType: TypeAlias = Any  # a class of ctypes

TYPES: dict[str, CType] = {
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "unsigned long long": ctypes.c_ulonglong,
    "unsigned char": ctypes.c_ubyte,
    "unsigned short": ctypes.c_ushort,
    "size_t": ctypes.c_size_t,
    "void": None,
}
_PROTOTYPE = re.compile(r"(?P<result>[\w ]+?[ *]+)(?P<name>\w+)\((?P<parameters>.*)\)")


class Prototype(NamedTuple):
    """A function's result, name and parameters, as C spells their types."""

    result: str
    name: str
    parameters: tuple[str, ...]


def parse(text: str) -> dict[str, Prototype]:
    """One prototype a line: `int f(size_t, void *)`; parameters have no names."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _PROTOTYPE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a prototype: {line}")
        parameters = tuple(part.strip() for part in match["parameters"].split(","))
        name = match["name"]
        found[name] = Prototype(
            match["result"].strip(), name, () if parameters == ("void",) else parameters
        )
    return found


def bind(
    library: ctypes.CDLL, prototypes: Mapping[str, Prototype], types: Mapping[str, CType]
) -> dict[str, Callable[..., Any]]:
    """The functions of a library. `types` are its own, beside TYPES; a name that ends in * is a
    pointer. Raises AttributeError, with the name, for one that the library lacks."""
    known = {**TYPES, **types}
    bound: dict[str, Callable[..., Any]] = {}
    for name, prototype in prototypes.items():
        function = library[name]  # an object of our own: library.name is everybody's
        function.restype = _ctype(prototype.result, known)
        function.argtypes = [_ctype(parameter, known) for parameter in prototype.parameters]
        bound[name] = function
    return bound


def _ctype(name: str, known: Mapping[str, CType]) -> CType:
    if name.endswith("*"):
        return ctypes.c_char_p if name == "const char *" else ctypes.c_void_p
    return known[name]
