"""The Module that a loaded ONNX model is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...frontend.tensor import Tensor
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from .compute.call import Input, called, checked

_DEEPEST = 32  # Modules in each other, made of a name with dots


class OnnxModule(Module):
    """An ONNX graph: called with its inputs, in their order or by their names, it gives its output,
    or a tuple of them.

    Floating-point initializers are parameters under their own names (those without dimensions, and
    those that describe, such as a batch norm's running moments, are buffers); others are buffers,
    or constants where they are small. Whether dropout and batch norm are those of training, the
    file says, until train() or eval() is called: after that they are as in torch.nn, and running
    moments follow the batches that are trained on.
    """

    def __init__(
        self, program: Any, inputs: Sequence[Input], outputs: Sequence[str], name: str
    ) -> None:
        super().__init__()
        self._graphc_program = program
        self._graphc_inputs = tuple(inputs)
        self._graphc_paths: tuple[tuple[str, ...], ...] = ()
        self._graphc_names: dict[str, str] = {}
        self._graphc_name = name
        self._graphc_told: bool | None = None  # what train() or eval() said
        self.training = False
        self.input_names = tuple(each.name for each in inputs)
        self.output_names = tuple(outputs)

    @property
    def initializer_names(self) -> dict[str, str]:
        """Of each initializer that the Module holds, its key in state_dict()."""
        return dict(self._graphc_names)

    def _graphc_hold(self, name: str, tensor: Tensor, kept: bool) -> None:
        """Register a tensor: a Parameter, or a buffer."""
        path = self._graphc_path(name)
        place: Module = self
        for part in path[:-1]:
            if part not in place._modules:
                place.add_module(part, Module())
            place = place._modules[part]
        if isinstance(tensor, Parameter):
            place.register_parameter(path[-1], tensor)
        else:
            place.register_buffer(path[-1], tensor, persistent=kept)
        self._graphc_paths += (path,)
        if kept:
            self._graphc_names[name] = ".".join(path)

    def _graphc_path(self, name: str) -> tuple[str, ...]:
        """Where a tensor of this name is: below Modules for the parts of its name, or, where these
        are taken, or no names, here under a name like it."""
        parts = tuple(name.split("."))
        if len(parts) <= _DEEPEST and self._graphc_is_free(parts):
            return parts
        flat = name.replace(".", "_") or "unnamed"
        found, number = flat, 1
        while hasattr(self, found):
            found, number = f"{flat}_{number}", number + 1
        return (found,)

    def _graphc_is_free(self, parts: tuple[str, ...]) -> bool:
        place: Module | None = self
        for part in parts[:-1]:
            if not part:
                return False
            if place is None:
                if hasattr(Module, part):
                    return False
            elif part in place._modules:
                place = place._modules[part]
            elif hasattr(place, part):
                return False
            else:
                place = None  # a Module that is made for it
        last = parts[-1]
        return bool(last) and not hasattr(Module if place is None else place, last)

    def train(self, mode: bool = True) -> Module:
        """Dropout and batch norm of training, or of inference, whatever the file says."""
        self._graphc_told = mode
        return super().train(mode)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        tensors = []
        for path in self._graphc_paths:
            found: Any = self
            for part in path:
                found = getattr(found, part)
            tensors.append(found)
        given = checked(self._graphc_name, self._graphc_inputs, inputs, named)
        return called(self._graphc_program, tensors, given, self._graphc_told)

    def extra_repr(self) -> str:
        return f"{self._graphc_name!r}, {', '.join(self.input_names)}"
