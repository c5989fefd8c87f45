"""torch.jit.save and load: what trace() was given, as an archive of torch.export.

A file holds the graph that `torch.export` records of the traced model at its examples, with every
size free that the model leaves free; TorchScript's own files are neither written nor read.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

from ..export import Dim, ExportedModule, ExportedProgram, export
from ..export import load as load_program
from ..frontend.errors import located
from ..frontend.tensor import Tensor
from ..frontend.tree import flatten, unflatten
from . import ScriptModule, examples_of


class LoadedModule(ExportedModule, ScriptModule):
    """What load() gives: a Module with the traced one's state, which runs without its code and has
    no autograd. train() and eval() change nothing: what the model did when it was saved is kept."""

    def save(self, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
        """torch.jit.save of it."""
        save(self, f, _extra_files)


def save(m: Any, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
    """torch.jit.save."""
    extra = {name: _text(name, value) for name, value in (_extra_files or {}).items()}
    _program(m).save(f, extra_files=extra)


def _program(m: Any) -> ExportedProgram:
    if isinstance(m, LoadedModule):
        program, state = m._program[0], m.state_dict()
        for name, tensor in program.state_dict.items():
            if tensor is not state[name] and not tensor.equal(state[name]):
                tensor.copy_(state[name])
        return program
    traced = examples_of(m)
    if traced is None:
        raise NotImplementedError(located(
            f"graphc does not have torch.jit.save() of what was not traced: a file holds a graph, "
            f"which is recorded by calling {_name(m)} with examples. Cure: m = torch.jit.trace("
            "m, example_inputs) before, or torch.export.export(m, args).save('model.gcx')"
        ))
    leaves, structure = flatten(traced)
    args, kwargs = unflatten(  # a tensor that was given twice is two inputs, as in torch
        [each.detach().clone() if isinstance(each, Tensor) else each for each in leaves], structure
    )
    shapes = tuple(map(_free, (*args, *kwargs.values())))
    return export(m, args, kwargs, dynamic_shapes=shapes)


def _name(m: Any) -> str:
    return str(getattr(m, "__name__", type(m).__name__))


def _free(value: Any) -> Any:
    """Of the same structure: every size of each tensor free where the model leaves it so."""
    leaves, structure = flatten(value)
    sizes = [
        dict.fromkeys(range(leaf.ndim), Dim.AUTO) if isinstance(leaf, Tensor) else None
        for leaf in leaves
    ]
    return unflatten(sizes, structure)


def _text(name: str, value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(located(
                f"_extra_files[{name!r}] is bytes that are no UTF-8 text. Cure: encode it, for "
                "instance by base64"
            )) from None
    return value  # export's own check names what is no text


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None,
) -> LoadedModule:
    """torch.jit.load."""
    if isinstance(f, (str, os.PathLike)):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    _check_ours(f)
    texts: dict[str, Any] = dict.fromkeys(_extra_files or ())
    program = load_program(f, extra_files=texts or None)
    if not isinstance(program, ExportedProgram):
        raise NotImplementedError(located(
            "graphc does not have torch.jit.load() of a training step. Cure: torch.export.load()"
        ))
    for name in _extra_files or ():
        if texts[name] is not None:
            assert _extra_files is not None
            _extra_files[name] = texts[name].encode()
    loaded = LoadedModule(program)
    if map_location is not None:
        loaded.to(map_location)
    return loaded


def _check_ours(f: Any) -> None:
    """Raise NotImplementedError for TorchScript's archives: zip files with a folder of code."""
    at = f.tell() if hasattr(f, "tell") else None
    try:
        with zipfile.ZipFile(f) as archive:
            theirs = any(name.endswith("/constants.pkl") for name in archive.namelist())
    except zipfile.BadZipFile:
        theirs = False  # the reader of archives says what it is
    finally:
        if at is not None:
            f.seek(at)
    if theirs:
        raise NotImplementedError(located(
            "graphc does not have torch.jit.load() of TorchScript's files, which hold code for "
            "PyTorch's interpreter. Cure: load the weights into the model's class "
            "(model.load_state_dict(torch.load(path)) of a state_dict saved by torch), or save by "
            "graphc's torch.jit.save"
        ))
