"""torch.utils.module_tracker: which Modules are running, forward or backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ..autograd.graph import register_multi_grad_hook
from ..frontend.autograd import passing
from ..frontend.tensor import Tensor
from ..frontend.tree import flatten
from ..nn.modules.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..nn.modules.module import Module

GLOBAL = "Global"


class ModuleTracker:
    """Inside the block, `parents` are the names of the Modules that are running, and "Global".

    The outermost is called by its class, others by the way to them: "Net.layer.0". In a backward
    pass a Module runs from the gradients of its results to those of its arguments; one whose
    arguments need none runs to the end of the pass.
    """

    def __init__(self) -> None:
        self._running = {GLOBAL}
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._open = 0  # forward calls that are running
        self._pass: Any = None  # the backward pass that was last
        self._handles: list[Any] = []

    def __enter__(self) -> ModuleTracker:
        self._handles = [
            register_module_forward_pre_hook(self._begins),
            register_module_forward_hook(self._ends, always_call=True),
        ]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def parents(self) -> set[str]:
        """The names of the Modules that are running, and "Global"."""
        return self._running if self._open or passing.by is not None else {GLOBAL}

    def _name(self, module: Module) -> str:
        if module not in self._names:
            name = type(module).__name__
            for path, inner in module.named_modules():
                self._names[inner] = f"{name}.{path}" if path else name
        return self._names[module]

    def _begins(self, module: Module, args: Any) -> None:
        name = self._name(module)
        if not self._open:
            self._running = {GLOBAL}
        self._open += 1
        self._running.add(name)
        self._when_known(args, lambda: self._running.discard(name))

    def _ends(self, module: Module, args: Any, output: Any) -> None:
        name = self._name(module)
        self._open -= 1
        self._running.discard(name)

        def enters() -> None:
            if passing.by is not self._pass:
                self._pass, self._running = passing.by, {GLOBAL}
            self._running.add(name)

        self._when_known(output, enters)

    def _when_known(self, value: Any, action: Callable[[], None]) -> None:
        tensors = [x for x in flatten(value)[0] if isinstance(x, Tensor) and x.requires_grad]
        if tensors:
            self._handles.append(register_multi_grad_hook(tensors, lambda gradients: action()))


__all__ = ["ModuleTracker"]
