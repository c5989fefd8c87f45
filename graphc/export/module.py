"""An exported program as a Module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.export import containers
from graphc.export.errors import ExportError
from graphc.export.signature import outside_graphs, type_text
from graphc.frontend.tensor import Parameter, Tensor
from graphc.nn.modules.module import Module

if TYPE_CHECKING:
    from graphc.export.program import ExportedProgram


class ExportedModule(Module):
    """An exported program as a Module: its parameters and buffers have the model's names, `to()`
    moves them, and what is called is the program with this state. It has no autograd."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self._program = [program]  # in a list: not one of the Module's own fields to copy
        self._held: dict[str, Tensor] = {}  # what the program reads that is no part of the state
        weights = program.contents.weights
        for name, tensor in program.state_dict.items():
            if name in program.tied:
                owner, attribute = self._new(name)
                setattr(owner, attribute, self._find(program.tied[name]))
            else:
                self._place(name, tensor, "parameter" if name in weights.parameters else "buffer")
        for name, tensor in self._constants(program).items():
            self._place(name, tensor, "constant")
        self._read = {
            name for variant in program.variants for name in _read(variant.signature)
        }

    def _constants(self, program: ExportedProgram) -> dict[str, Tensor]:
        """The tensors outside of the state_dict that are to be buffers."""
        return program.constants

    def _part(self, name: str) -> Module:
        """One that holds what has names below this one."""
        return Module()

    def _owner(self, name: str) -> tuple[Module, str]:
        """The module that holds a dotted name; made where it is missing."""
        *folders, attribute = name.split(".")
        owner: Module = self
        for depth, folder in enumerate(folders, 1):
            child = owner._modules.get(folder)
            if child is None:
                child = self._part(".".join(folders[:depth]))
                owner.add_module(folder, child)
            owner = child
        return owner, attribute

    def _new(self, name: str) -> tuple[Module, str]:
        """The module that is to hold a dotted name. Raises ExportError for a name that stands for
        something else there: files may hold any."""
        try:
            owner, attribute = self._owner(name)
        except (KeyError, TypeError) as error:
            raise ExportError(f"the weight {name!r} cannot be part of a Module: {error}") from None
        if not attribute or attribute.startswith("__") or hasattr(owner, attribute):
            raise ExportError(f"the weight {name!r} cannot be part of a Module: it has that name")
        return owner, attribute

    def _place(self, name: str, tensor: Tensor, kind: str) -> None:
        owner, attribute = self._new(name)
        value = tensor.detach().clone()
        try:
            if kind == "parameter":
                owner.register_parameter(attribute, Parameter(value, requires_grad=False))
            else:
                owner.register_buffer(attribute, value, persistent=kind == "buffer")
        except (KeyError, TypeError) as error:
            raise ExportError(f"the weight {name!r} cannot be part of a Module: {error}") from None

    def _find(self, name: str) -> Tensor:
        if name in self._held:
            return self._held[name]
        owner, attribute = self._owner(name)
        found: Tensor = getattr(owner, attribute)
        return found

    @outside_graphs
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The exported model's results with this Module's state."""
        program = self._program[0]
        weights = {name: self._find(name) for name in self._read}
        for name, tensor in weights.items():
            wanted = program._weights[name]
            if (
                tensor._graphc_array.shape != wanted._graphc_array.shape
                or tensor.dtype is not wanted.dtype
            ):
                raise ValueError(
                    f"the weight {name!r} must be {type_text(wanted._graphc_array)}, "
                    f"is {type_text(tensor._graphc_array)}"
                )
        return program.live(weights, args, kwargs)


def _read(signature: Any) -> set[str]:
    """The weights that a graph reads, writes or gives back."""
    names = {name for name in signature.weights if name is not None}
    names |= {write["weight"] for write in signature.writes if "weight" in write}
    return names | {
        leaf["weight"] for leaf in containers.leaves_of(signature.results) if "weight" in leaf
    }
