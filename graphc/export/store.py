"""The tensors that the recordings of one model read, by the names that a file has for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.frontend.captured import TensorInput
from graphc.frontend.random_state import default_generator
from graphc.frontend.tensor import Tensor
from graphc.ir.memory import on_host
from graphc.nn.modules.module import Module


class Store:
    """Copies of arrays, made once: a tensor that several recordings read has one name in all."""

    def __init__(self, model: Any) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.names: dict[int, str] = {}  # of the model's own tensors, by id
        self._known: dict[tuple[str, int], str] = {}
        self._kept: list[Any] = []  # so that ids stay taken
        if isinstance(model, Module):
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                self.names.setdefault(id(tensor), name)
        self.generator = "generator"
        while self.generator in self.names.values():
            self.generator += "_"
        self.names[id(default_generator.state)] = self.generator

    def source(self, source: TensorInput) -> str:
        """The name of what an input reads that is no argument."""
        assert source.tensor is not None
        if source.kind == "storage":
            root = source.tensor._graphc_storage.root
            return self._copied("storage", root, root.flat)
        return self.tensor(source.tensor)

    def tensor(self, tensor: Tensor) -> str:
        """The name of a tensor."""
        name = self.names.get(id(tensor))
        if name is None:
            return self._copied("constant", tensor, lambda: tensor._graphc_array)
        if name not in self.arrays:
            self.arrays[name] = np.array(on_host(tensor._graphc_array), order="C")
        return name

    def large(self, array: np.ndarray) -> str:
        """The name of a constant of a graph's text that is too large for it."""
        for name, known in self.arrays.items():
            if name.startswith("large.") and known.shape == array.shape and (
                known.dtype == array.dtype and known.tobytes() == array.tobytes()
            ):
                return name
        name = self._free("large")
        self.arrays[name] = array
        return name

    def _copied(self, kind: str, owner: Any, array: Any) -> str:
        key = kind, id(owner)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = self._free(kind)
            self._kept.append(owner)
            self.arrays[name] = np.array(on_host(array()), order="C")
        return name

    def _free(self, kind: str) -> str:
        taken = {*self.arrays, *self.names.values()}
        number = 0
        while f"{kind}.{number}" in taken:
            number += 1
        return f"{kind}.{number}"
