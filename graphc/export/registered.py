"""torch.export.register_dataclass: dataclasses as arguments and results of exported models."""

from __future__ import annotations

import dataclasses
from typing import Any

from graphc.export.errors import ExportError
from graphc.utils import _pytree_nodes


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Let instances of a dataclass be arguments and results of exported models.

    A file holds `serialized_type_name` in place of the class, so it has to be given for save(), and
    has to be registered where the file is loaded. Results are made by calling `cls` with the fields
    that its constructor takes. In `dynamic_shapes` an instance stands as the list of what is said
    of its fields that are not None. Raises ValueError for what is no dataclass.
    """
    _pytree_nodes.register_dataclass(cls, serialized_type_name=serialized_type_name)


def is_registered(cls: type[Any]) -> bool:
    """Whether it is a dataclass that register_dataclass() knows."""
    return cls in _pytree_nodes.SUPPORTED_NODES and dataclasses.is_dataclass(cls)


def is_instance(value: Any) -> bool:
    """Whether it is an instance of such a class."""
    return is_registered(type(value))


def field_names(cls: type[Any]) -> list[str]:
    """Of all fields, in order."""
    return [field.name for field in dataclasses.fields(cls)]


def made(cls: type[Any], values: dict[str, Any]) -> Any:
    """An instance with these values of all its fields."""
    fields = dataclasses.fields(cls)
    found = cls(**{field.name: values[field.name] for field in fields if field.init})
    for field in fields:
        if not field.init:  # what the model computed, not what the constructor has for it
            object.__setattr__(found, field.name, values[field.name])
    return found


def type_name(cls: type[Any]) -> str:
    """What a file says for the class. Raises NotImplementedError where it was given no name."""
    name = _pytree_nodes.SUPPORTED_NODES[cls].serialized_type_name
    if name is None:
        raise NotImplementedError(
            f"No registered serialization name for {cls} found. Please update your "
            "_register_pytree_node call with a `serialized_type_name` kwarg. Cure: "
            f"graphc.export.register_dataclass({cls.__name__}, serialized_type_name=...)"
        )
    return name


def type_of_name(name: Any, fields: list[str]) -> type[Any]:
    """The class for which a file says this. Raises ExportError where none is registered here, or
    one with other fields."""
    for cls, node in _pytree_nodes.SUPPORTED_NODES.items():
        if node.serialized_type_name == name and isinstance(name, str) and is_registered(cls):
            if field_names(cls) != fields:
                raise ExportError(
                    f"the dataclass {name!r} has the fields {fields} in the file, but {cls} has "
                    f"{field_names(cls)}. Cure: register the class that the file was made with"
                )
            found: type[Any] = cls
            return found
    raise ExportError(
        f"the program takes or gives the dataclass {name!r}, which is not registered here. Cure: "
        f"graphc.export.register_dataclass(cls, serialized_type_name={name!r}) before load()"
    )
