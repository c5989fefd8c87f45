"""Errors for names that a mirrored module lacks: they say torch's name.

A module's `__getattr__` runs only after the ordinary lookup failed, so names that exist cost
nothing.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import sys
from types import FrameType, ModuleType
from typing import Any

from ..on_demand import names_so_far

# the mirrored packages: torch's name -> graphc's
ROOTS = {"torch": "graphc", "torchvision": "graphc.vision"}
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
_LAZY = "_graphc_lazy_names"  # a module's own __getattr__, which is asked first


def own_name(module: ModuleType) -> str:
    """The name of graphc's module: a mirrored package says torch's."""
    return ROOTS.get(module.__name__, module.__name__)


def explain_missing(module: ModuleType, torch_name: str) -> None:
    """From now on a name that `module` lacks is reported as `torch_name`.name."""
    names = names_so_far(module)
    if _LAZY in names:
        return
    own, mine = names.get("__getattr__"), own_name(module)

    def __getattr__(name: str) -> Any:
        if own is not None:
            try:
                found = own(name)
            except AttributeError:
                pass
            else:
                if getattr(found, "__name__", "") == f"{mine}.{name}":
                    with contextlib.suppress(ImportError):  # a module loaded at first use
                        importlib.import_module(f"{torch_name}.{name}")
                return found
        full = f"{torch_name}.{name}"
        if _imports_from(sys._getframe(1)):
            raise ImportError(
                f"cannot import name {name!r} from {torch_name!r}: graphc does not have {full}",
                name=torch_name,
            )
        raise AttributeError(
            f"module {torch_name!r} has no attribute {name!r}: graphc does not have {full}",
            name=name, obj=module,
        )

    names[_LAZY] = own
    names["__getattr__"] = __getattr__


def explain_no_more(module: ModuleType) -> None:
    """Undo `explain_missing`."""
    names = names_so_far(module)
    if _LAZY not in names:
        return
    own = names.pop(_LAZY)
    if own is None:
        del names["__getattr__"]
    else:
        names["__getattr__"] = own


def _imports_from(frame: FrameType) -> bool:
    """Whether the frame stands at `from module import name`.

    The interpreter would turn an AttributeError into an ImportError with the module's __name__,
    which is graphc's.
    """
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
