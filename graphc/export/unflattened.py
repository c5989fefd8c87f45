"""torch.export.unflatten: an exported program as a Module with the tree of the model's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.export.module import ExportedModule
from graphc.export.program import ExportedProgram
from graphc.frontend.tensor import Tensor
from graphc.nn.modules.module import Module


class Part(Module):
    """A part of an unflattened module: it holds the tensors that the part of the model held."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"an exported program does not keep what its part {self._name!r} computes: its graph "
            "is that of the whole. Cure: call the unflattened module itself, or export the part of "
            "the model by itself"
        )


class UnflattenedModule(ExportedModule):
    """An exported program with the names of the model: state_dict(), named_parameters(),
    named_buffers(), and the parts that hold tensors.

    What a graph does not keep, and torch's has, is not there: parts are not called and not
    replaced, those without tensors (an activation) are missing, and there is no autograd.
    Constants of the model are no part of its state.
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program)
        self._held = {
            name: tensor.detach().clone() for name, tensor in program.constants.items()
            if name not in program.contents.weights.buffers
        }

    def _part(self, name: str) -> Module:
        return Part(name)

    def _constants(self, program: ExportedProgram) -> dict[str, Tensor]:
        return {name: program.constants[name] for name in program.contents.weights.buffers}

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        found = super()._apply(fn, *args, **kwargs)
        self._held = {name: fn(tensor) for name, tensor in self._held.items()}
        return found


def unflatten(module: ExportedProgram, flat_args_adapter: None = None) -> UnflattenedModule:
    """The program as a Module with the names and parts of the model (see UnflattenedModule), called
    with the arguments of the program. Its state is its own.

    Arguments of another structure are refused (TypeError): no `flat_args_adapter` is taken.
    """
    if not isinstance(module, ExportedProgram):
        raise TypeError(
            f"unflatten() takes an ExportedProgram, got {type(module).__name__}. Cure: "
            "unflatten(graphc.export.export(model, args))"
        )
    if flat_args_adapter is not None:
        raise NotImplementedError(
            "unflatten() takes no flat_args_adapter. Cure: bring the arguments into the structure "
            "of the example before the call"
        )
    return UnflattenedModule(module)
