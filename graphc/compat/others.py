"""Packages of others under mirrored names: graphc leaves them alone.

A `torch` or `torchvision` folder (or file) that the program itself has, a module that it has put
into sys.modules, and an installed torchvision: its Python runs on graphc, and of its compiled half,
which is linked to PyTorch's libraries and never loaded, graphc has the operators
(`vision_operators/`). An installed PyTorch is what graphc stands in for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..on_demand import names_so_far

# modules of an installed torchvision that are about its compiled half -> what graphc has for them
REPLACED = {
    "torchvision.extension": "graphc.compat.torchvision_extension",
    "torchvision._meta_registrations": "graphc.compat.torchvision_registrations",
    "torchvision._autograd_registrations": "graphc.compat.torchvision_registrations",
    "torchvision.ops._register_onnx_ops": "graphc.compat.torchvision_registrations",
}
_STAND_IN = "+graphc"  # ends the version of a package that `graphc shim` has made


def is_ours(module: ModuleType) -> bool:
    """Whether a module is a part of graphc."""
    names: Any = names_so_far(module) if isinstance(module, ModuleType) else {}
    return any(
        isinstance(name, str) and name.partition(".")[0] == "graphc"
        for name in (names.get("__name__"), names.get("__package__"))  # a mirrored one has torch's
    )


def has_parent(fullname: str) -> bool:
    """Whether a name is one inside a package that is somebody else's."""
    parent = sys.modules.get(fullname.rpartition(".")[0])
    return parent is not None and not is_ours(parent)


def replaced(fullname: str) -> str | None:
    """The module of graphc that an installed torchvision gets for one of its own, or None."""
    if fullname not in REPLACED:
        return None
    package = sys.modules.get("torchvision")
    spec = None if package is None else names_so_far(package).get("__spec__")
    return REPLACED[fullname] if isinstance(spec, ModuleSpec) and _is_torchvision(spec) else None


def found(root: str, finder: Any) -> bool:
    """Whether `import root` should find another's package: what the import system would find
    without `finder`, which is graphc's."""
    for other in sys.meta_path:
        find = getattr(other, "find_spec", None)
        spec = None if other is finder or find is None else find(root, None)
        if spec is not None:
            # a folder without Python files: data that happens to have the name
            return spec.origin is not None and not _is_stood_in_for(spec)
    return False


def _is_stood_in_for(spec: ModuleSpec) -> bool:
    """Whether graphc answers in a package's place: PyTorch, and graphc's own stand-ins."""
    if any(_STAND_IN in place.name for place in _metadata(spec)):
        return True
    if spec.name != "torch":
        return False
    return _holds(spec, "_C") or any(True for _ in _metadata(spec))


def _is_torchvision(spec: ModuleSpec) -> bool:
    return _holds(spec, "_internally_replaced_utils") and _holds(spec, "extension")


def _holds(spec: ModuleSpec, name: str) -> bool:
    """Whether a package has files of that name: a module, in Python or compiled."""
    places = spec.submodule_search_locations or ()
    return any(True for place in places for _ in Path(place).glob(f"{name}*"))


def _metadata(spec: ModuleSpec) -> Iterator[Path]:
    """The folders beside a package in which an installer describes it."""
    if spec.origin is None or not spec.submodule_search_locations:
        return
    beside = Path(spec.origin).parent.parent
    for kind in ("dist-info", "egg-info"):
        yield from beside.glob(f"{spec.name}-*.{kind}")
