"""The import hook: `torch.x` is the module `graphc.x`, under both names.

Nothing falls through to an installed PyTorch: while the hook is in place it answers for every
name under `torch` and `torchvision`, and what graphc lacks is an error with torch's name. What
others have under these names is theirs (`others.py`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import multiprocessing.spawn
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, DistributionFinder
from types import FrameType, ModuleType
from typing import Any

import graphc

from ..on_demand import names_so_far
from ..version import __version__ as TORCH_VERSION
from . import extensions, others
from .distribution import distributions
from .missing import ROOTS, explain_missing, explain_no_more, own_name

VISION_VERSION = "0.28.0+graphc"
# modules with another name or place in graphc
PLACES = {
    "torch.random": "graphc.frontend.random_state",
    "torch.return_types": "graphc.frontend.functions.return_types",
}


@functools.cache
def is_own(name: str) -> bool:
    """Whether what stands at this torch name is a part of graphc that torch lacks: the docstring
    of one that torch has begins with its name there."""
    root, _, part = name.partition(".")
    if root != "torch" or not part or "." in part or name in PLACES:
        return False
    spec = importlib.util.find_spec(f"graphc.{part}")
    if spec is None or spec.origin is None:
        return False
    with open(spec.origin, encoding="utf-8") as source:
        return not source.readline().startswith('"""torch.')


def counterpart(name: str) -> str | None:
    """The name of the graphc module that answers to a torch name; None if there is none."""
    root, _, rest = name.partition(".")
    if root not in ROOTS or is_own(name):
        return None
    if name in PLACES:
        return PLACES[name]
    if not rest:
        return ROOTS[root]
    parent = sys.modules.get(name.rpartition(".")[0])
    if parent is None:
        return None
    leaf = name.rpartition(".")[2]
    attribute = names_so_far(parent).get(leaf)
    if isinstance(attribute, ModuleType) and attribute.__name__.split(".")[0] == "graphc":
        return attribute.__name__
    full = f"{own_name(parent)}.{leaf}"
    if full in sys.modules:
        return full
    # a name that a package makes at run time is no module: `find_spec` only reads folders
    is_package = hasattr(parent, "__path__")
    return full if is_package and importlib.util.find_spec(full) is not None else None


class MirrorLoader(importlib.machinery.SourceFileLoader):
    """Gives the existing graphc module for a torch name."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The graphc module; its own __spec__ is kept for `exec_module` to put back."""
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs again: the module is already there."""
        mine = module.__spec__
        assert mine is not None
        module.__spec__ = mine.loader_state
        _mirror(module, mine.name)


def _mirror(module: ModuleType, torch_name: str) -> None:
    """Put a module and the graphc modules among its attributes under their torch names."""
    work = [(module, torch_name)]
    while work:
        module, name = work.pop()
        if name in _undo:
            continue
        _undo[name] = None
        sys.modules[name] = module
        explain_missing(module, name)
        mine = own_name(module)
        if name in ROOTS:  # libraries ask a namespace for its name (pyro, array_api_compat)
            names_so_far(module)["__name__"] = name
        for leaf, value in list(names_so_far(module).items()):
            # true children alone: modules also name each other, in circles
            full = f"{name}.{leaf}"
            if isinstance(value, ModuleType) and not is_own(full) and (
                value.__name__ == f"{mine}.{leaf}" and sys.modules.get(value.__name__) is value
            ):
                work.append((value, full))


class MirrorFinder(DistributionFinder):
    """The meta-path finder, and the answer to `importlib.metadata.version("torch")`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a torch name; raises ModuleNotFoundError on importing what is missing."""
        root, _, part = fullname.partition(".")
        if root not in ROOTS:
            return None
        if not part:
            if others.found(root, self):
                return None
            name: str | None = ROOTS[root]
        elif others.has_parent(fullname):
            name = others.replaced(fullname)
            if name is None:
                return None
        else:
            name = counterpart(fullname)
        if name is None:
            self._missing(fullname)
            return None
        origin = importlib.util.find_spec(name)
        assert origin is not None
        loader = MirrorLoader(fullname, origin.origin or "")
        spec = importlib.machinery.ModuleSpec(
            fullname, loader, origin=origin.origin, loader_state=name,
            is_package=origin.submodule_search_locations is not None,
        )
        spec.submodule_search_locations = origin.submodule_search_locations
        return spec

    def _missing(self, fullname: str) -> None:
        # `importlib.util.find_spec` asks, and wants None; `import` needs the error. The import
        # system's own function is two frames up, above its `_find_spec`. Other finders would come
        # upon parts of graphc's own, in the same folder, and `python -m torch` run its commands.
        imported = sys._getframe(3).f_code.co_name == "_find_and_load_unlocked"
        if is_own(fullname):
            _give_own(fullname)
        if imported or is_own(fullname):
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: graphc does not have {fullname}", name=fullname
            )

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """torch and torchvision, with the versions that graphc follows; not an installed one."""
        wanted = None if context is None else context.name
        versions = {"torch": str(TORCH_VERSION)}
        if wanted in (None, "torchvision") and not others.found("torchvision", self):
            versions["torchvision"] = VISION_VERSION
        return distributions(versions, wanted)


def _give_own(fullname: str) -> None:
    """Load a part of graphc's own for `from .. import part` in graphc: the import system asks for
    it by the name that the package says, and takes the attribute where nothing is found."""
    frame: FrameType | None = sys._getframe(3)  # what called `find_spec`
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    package = "" if frame is None else frame.f_globals.get("__package__") or ""
    if package.partition(".")[0] == "graphc":
        leaf = fullname.partition(".")[2]
        names_so_far(graphc)[leaf] = importlib.import_module(f"graphc.{leaf}")


# libraries know a tensor by its type's name ("torch" in str(type(x))), without importing torch
NAMED = {"Tensor": "torch", "Parameter": "torch.nn.parameter"}

_finder: MirrorFinder | None = None
_undo: dict[str, None] = {}  # the torch names in sys.modules, in order of import
_before: dict[str, Any] = {}
_changing = threading.RLock()  # one thread may import torch, another one torchvision
STAND_IN = "\"\"\"graphc's stand-in for "  # how the files of the shim begin


def installed() -> bool:
    """Whether `import torch` finds graphc."""
    return _finder is not None


def install() -> None:
    """Let `import torch` and `import torchvision` find graphc. Twice is once.

    Raises ImportError where another torch is imported already: its classes are in use.
    """
    with _changing:
        _install()


def _install() -> None:
    global _finder
    if _finder is not None:
        return
    if "torch" in sys.modules and not _is_stand_in(sys.modules["torch"]):
        raise ImportError(
            f"torch is already imported from {getattr(sys.modules['torch'], '__file__', '?')}. "
            "Cure: call graphc.compat.install() before anything imports it"
        )
    _finder = MirrorFinder()
    sys.meta_path.insert(0, _finder)
    _before["version"] = graphc.__version__
    graphc.__version__ = TORCH_VERSION
    _before["kinds"] = [(kind, kind.__module__) for kind in (graphc.Tensor, graphc.nn.Parameter)]
    for kind, _ in _before["kinds"]:
        kind.__module__ = NAMED[kind.__name__]
    vars(graphc)["torch"] = graphc  # torch has itself among its names
    extensions.guard()
    _before["spawn"] = multiprocessing.spawn.get_preparation_data
    multiprocessing.spawn.get_preparation_data = _preparation


def _is_stand_in(module: ModuleType) -> bool:
    """Whether it is a package of the shim, which another thread is about to replace."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    if origin is None:
        return False
    with contextlib.suppress(OSError, ValueError), open(origin, encoding="utf-8") as source:
        return source.readline().startswith(STAND_IN)
    return False


def stand_in(name: str) -> None:
    """Put graphc in the place of the module that is being imported under this name: what the
    packages of the shim call (`python -m graphc shim`)."""
    if name not in ROOTS:
        raise ImportError(f"graphc stands in for {' and '.join(ROOTS)}, not for {name}")
    del sys.modules[name]  # what imports it then takes what is there
    install()
    importlib.import_module(name)


def uninstall() -> None:
    """Take the hook away again; modules that were imported through it keep working."""
    with _changing:
        _uninstall()


def _uninstall() -> None:
    global _finder
    if _finder is None:
        return
    sys.meta_path.remove(_finder)
    _finder = None
    # an installed torchvision has graphc's functions in its own
    theirs = [n for n in sys.modules if n.partition(".")[0] == "torchvision" and n not in _undo]
    for name in theirs if any(name in _undo for name in others.REPLACED) else ():
        del sys.modules[name]
    for name in _undo:
        module = sys.modules.pop(name, None)
        if module is not None:
            explain_no_more(module)
            names_so_far(module)["__name__"] = own_name(module)
    _undo.clear()
    graphc.__version__ = _before.pop("version")
    extensions.unguard()
    vars(graphc).pop("torch", None)
    for kind, module in _before.pop("kinds"):
        kind.__module__ = module
    multiprocessing.spawn.get_preparation_data = _before.pop("spawn")


class _Installed:
    """Pickles to a call of `install`."""

    def __reduce__(self) -> Any:
        return install, ()


def _preparation(name: str) -> dict[str, Any]:
    # A spawned process unpickles this before it imports the main module again, which imports
    # torch. Under fork the hook is there already.
    return {"graphc": _Installed(), **_before["spawn"](name)}
