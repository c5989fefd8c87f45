"""Operators by "namespace::name", as torch.ops has them; and torch.classes, which is empty.

`torch.ops.aten.add` is torch.add, with `.default`, `.Tensor`, ... for itself.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

REGISTERED: dict[str, Any] = {}  # "namespace::name" -> what to call
# operators that torch.NAME does not name: the modules they are in
_PLACES = {
    **{
        f"aten::{name}": "graphc.nn.functional.native"
        for name in """
            max_pool2d_with_indices_backward native_dropout_backward slice alias _to_copy
            _pin_memory index _sparse_addmm
        """.split()
    },
    # what an installed torchvision calls
    **{
        f"torchvision::{name}": "graphc.vision_operators.boxes"
        for name in ("ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool")
    },
    "torchvision::deform_conv2d": "graphc.vision_operators.deformable",
    "torchvision::nms": "graphc.vision_operators.suppression",
    **{
        f"image::{name}": "graphc.vision_operators.files"
        for name in """
            decode_gif decode_image decode_jpeg decode_png decode_webp encode_jpeg encode_png
            read_file write_file
        """.split()
    },
}


class OpPacket:
    """An operator of torch.ops; every overload is the operator itself."""

    def __init__(self, name: str, function: Any) -> None:
        self.__name__ = name
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("_"):
            raise AttributeError(overload)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpPacket) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __str__(self) -> str:
        return self.__name__.replace("::", ".")

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.__name__.replace('::', '.')}')>"


class OpNamespace(ModuleType):
    """torch.ops.namespace."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self._namespace = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._namespace}::{name}"
        function = REGISTERED.get(full)
        if function is None and full in _PLACES:
            function = getattr(importlib.import_module(_PLACES[full]), name)
        if function is None and self._namespace in ("aten", "prims"):
            function = getattr(importlib.import_module("graphc"), name, None)
            if function is None and name.endswith("_"):  # in place, which are methods alone
                function = getattr(importlib.import_module("graphc").Tensor, name, None)
        if function is None:
            raise AttributeError(
                f"'_OpNamespace' '{self._namespace}' object has no attribute '{name}': graphc does "
                f"not have torch.ops.{self._namespace}.{name}"
            )
        return OpPacket(full, function)


class Ops(ModuleType):
    """torch.ops, and torch.classes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = OpNamespace(name)
        setattr(self, name, made)
        return made

    def load_library(self, path: str) -> None:
        """Raises OSError: libraries of PyTorch operators are built for PyTorch."""
        raise OSError(f"{path}: graphc cannot load libraries of PyTorch operators")


ops = Ops("torch.ops")
classes = Ops("torch.classes")
