"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...frontend.tensor import Parameter, Tensor
from .module import Module, _indent


def _index(container: Any, index: Any) -> int:
    length = len(container)
    position = operator.index(index)
    if not -length <= position < length:
        raise IndexError(f"index {index} is out of range")
    return position % length if length else 0


class Sequential(Module):
    """Modules called one after another; from modules or one OrderedDict of them."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[index]))
        return list(self._modules.values())[_index(self, index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[_index(self, index)], module)

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)
        chosen = names[index] if isinstance(index, slice) else [names[_index(self, index)]]
        for name in chosen:
            delattr(self, name)
        kept = list(self._modules.values())
        self._modules.clear()
        self._modules.update({str(i): module for i, module in enumerate(kept)})

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def append(self, module: Module) -> Sequential:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Sequential:
        """Insert a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._modules.clear()
        for i, item in enumerate(modules):
            self.add_module(str(i), item)
        return self

    def extend(self, modules: Iterable[Module]) -> Sequential:
        """Append each module."""
        for module in modules:
            self.append(module)
        return self

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Module):
    """A list of modules whose parameters are registered."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__class__(list(self._modules.values())[index])
        return self._modules[str(_index(self, index))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, str(_index(self, index)), module)

    def __delitem__(self, index: Any) -> None:
        modules = list(self)
        del modules[index]
        self._replace(modules)

    def _replace(self, modules: list[Module]) -> None:
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Insert a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._replace(modules)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Append each module."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        for module in modules:
            self.append(module)
        return self

    def pop(self, key: int) -> Module:
        """Remove and return one module."""
        module: Module = self[key]
        del self[key]
        return module

    def __repr__(self) -> str:
        reprs = [repr(module) for module in self]
        if not reprs:
            return self._get_name() + "()"
        lines: list[str] = []
        start = 0
        for i in range(1, len(reprs) + 1):
            if i < len(reprs) and reprs[i] == reprs[start]:
                continue
            count = i - start
            label = f"({start})" if count == 1 else f"({start}-{i - 1})"
            times = "" if count == 1 else f"{count} x "
            lines.append(f"{label}: {times}{_indent(reprs[start])}")
            start = i
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dict of modules whose parameters are registered."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove every module."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return one module."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Pairs of name and module."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules from a mapping or pairs."""
        pairs = modules.items() if isinstance(modules, Mapping | ModuleDict) else modules
        for key, module in pairs:
            self[key] = module


def _parameter_line(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        size = "x".join(str(size) for size in value.shape)
        name = str(value.dtype)
        return f"{kind} containing: [{name} of size {size}]"
    return f"Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list of parameters; tensors given become Parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__class__(getattr(self, str(i)) for i in range(len(self))[index])
        return getattr(self, str(_index(self, index)))

    def __setitem__(self, index: int, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(_index(self, index)), value)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Append each value."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                + type(values).__name__
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_parameter_line(value)}" for i, value in enumerate(self))

    def __repr__(self) -> str:
        lines = [f"  ({i}): {_parameter_line(value)}" for i, value in enumerate(self)]
        return f"{self._get_name()}(\n" + "\n".join(lines) + "\n)" if lines else "ParameterList()"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters; tensors given become Parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        self._keys[key] = None
        setattr(self, key, value)

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Any:
        """Pairs of name and parameter."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Any:
        """The parameters."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add parameters from a mapping or pairs."""
        mapping = isinstance(parameters, Mapping | ParameterDict)
        for key, value in parameters.items() if mapping else parameters:
            self[key] = value

    def __repr__(self) -> str:
        lines = [f"  ({key}): {_parameter_line(value)}" for key, value in self.items()]
        return f"{self._get_name()}(\n" + "\n".join(lines) + "\n)" if lines else "ParameterDict()"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")
