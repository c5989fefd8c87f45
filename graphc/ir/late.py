"""Modules that are imported when something of them is first asked for: what only compiling needs,
or looking at what was compiled, costs a program nothing that runs code it finds compiled."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    """Stands for a module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def late(name: str) -> Any:
    """The module of this name, or what stands for it until it is used.

    Beside `if TYPE_CHECKING:` and the import itself, which type checkers read.
    """
    return sys.modules.get(name) or _Late(name)
