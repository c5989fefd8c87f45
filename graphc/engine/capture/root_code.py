"""What the code in reach of a function names, and which of it is the user's."""

from __future__ import annotations

import dis
import functools
import sys
import types
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parents[2])
_NAMED = frozenset(dis.hasname)


def code_names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.extend(code_names(constant))
    return names


@functools.lru_cache(maxsize=4096)
def loaded_names(code: types.CodeType) -> frozenset[str]:
    """Names that code reads or calls; not those of attributes that it only sets."""
    stored = {"STORE_ATTR", "STORE_NAME", "STORE_GLOBAL"}
    found = {
        str(step.argval) for step in dis.get_instructions(code)
        if step.opcode in _NAMED and step.opname not in stored
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= loaded_names(constant)
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def stored_globals(code: types.CodeType) -> frozenset[str]:
    """The globals that code sets."""
    found = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname == "STORE_GLOBAL"
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= stored_globals(constant)
    return frozenset(found)


def is_user_code(function: types.FunctionType) -> bool:
    return not function.__code__.co_filename.startswith((_PACKAGE, "<frozen"))


def code_of(member: Any) -> Any:
    """The function inside a method, property or cached property; other members as they are."""
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return getattr(member, "func", member) if type(member) is functools.cached_property else member


@functools.lru_cache(maxsize=4096)
def is_user_class(kind: Any) -> bool:
    if kind.__module__ == "__main__":
        return True
    module = sys.modules.get(kind.__module__)
    return module is not None and is_user_module(module)


@functools.lru_cache(maxsize=4096)
def library_names(kind: Any) -> frozenset[str] | None:
    """Attributes that library code reads of instances of a user's class; None: any."""
    if not is_user_class(kind):
        return None
    names: set[str] = set()
    for base in kind.__mro__:
        if not is_user_class(base) and base is not object:
            for member in vars(base).values():
                code = code_of(member)
                if isinstance(code, types.FunctionType):
                    names.update(code_names(code.__code__))
                    names.update(c for c in code.__code__.co_consts if isinstance(c, str))
    return frozenset(names)


def is_user_module(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    return bool(file) and not file.startswith(_PACKAGE) and "site-packages" not in file and (
        "/lib/python" not in file
    )
