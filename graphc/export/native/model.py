"""A library's model as a callable: anybody's arrays in, Tensors out, from any number of threads."""

from __future__ import annotations

import ctypes
import os
import re
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.export.errors import ExportError
from graphc.export.native import arrays
from graphc.export.native.functions import Functions, NamedSize, Options, Port
from graphc.export.native.functions import Tensor as CTensor
from graphc.export.native.image import Image
from graphc.frontend.tensor import Tensor, from_array

_FILE = re.compile(r"lib([a-zA-Z]\w*)\.so", re.ASCII)
_MOST_SHAPES = 4096  # of inputs, for which is known what outputs they give


class NativeModel:
    """Machine code that a call runs: `model(x)`, with arguments by position or by name.

    Arguments are anything with `__dlpack__` on the CPU (of NumPy, PyTorch, JAX...), arrays, or
    Tensors, read where they lie (a copy is made of what does not lie row by row). Results are
    Tensors, which have `__dlpack__` and `__array__`: one, or a tuple of several. `run` writes into
    memory that is given. `inputs`, `outputs` and `sizes` tell names, dtypes and shapes; `cpu` the
    level whose code runs here. Calls of several threads run at the same time, each in memory of its
    own, which later calls use again.
    """

    def __init__(self, functions: Functions, options: Mapping[str, Any]) -> None:
        self._functions, self._options = functions, dict(options)
        self.name = functions.name
        self.inputs: tuple[Port, ...] = functions.inputs
        self.outputs: tuple[Port, ...] = functions.outputs
        self.sizes: tuple[NamedSize, ...] = functions.sizes
        self._free: deque[_Context] = deque()
        self._shapes: dict[tuple[Any, ...], list[tuple[int, ...]]] = {}
        first = _Context(functions, self._options)  # what is wrong with the options shows here
        self.cpu: str = functions.cpu(first.pointer).decode()
        self._free.append(first)

    def __repr__(self) -> str:
        given = ", ".join(f"{port.name}: {port}" for port in self.inputs)
        return f"NativeModel({self.name}({given}), {self.cpu})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for these arguments. Raises TypeError for other arguments than the model's,
        ValueError for a wrong dtype, shape or device, and what the model's own checks say."""
        found = self.compute(self._ordered(args, kwargs))
        return found[0] if len(found) == 1 else tuple(found)

    def compute(self, inputs: Sequence[Any]) -> list[Tensor]:
        """All results, for all inputs in order."""
        given = self._given(inputs)
        context = self._context()
        try:
            made = [
                np.empty(shape, port.dtype.numpy) for shape, port in
                zip(self._made(context, given), self.outputs, strict=True)
            ]
            context.run(given, made)
        finally:
            self._free.append(context)
        return [from_array(each) for each in made]

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Compute into the memory of `outputs`, which is written in place: arrays, Tensors, or what
        says by DLPack (1.0 and later) that it may be written. Raises as a call does; then what
        `outputs` hold is no result."""
        given = self._given(inputs)
        _count(outputs, self.outputs, "results")
        rooms = [
            arrays.room(each, port) for each, port in zip(outputs, self.outputs, strict=True)
        ]
        context = self._context()
        try:
            shapes = self._made(context, given)
            for room, shape, port in zip(rooms, shapes, self.outputs, strict=True):
                if room.shape != shape:
                    raise ValueError(
                        f"{port.name} has the shape {room.shape}, and the result is {shape}"
                    )
            context.run(given, rooms)
        finally:
            self._free.append(context)

    def _made(self, context: _Context, given: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """The shapes of the results."""
        shapes = tuple([each.shape for each in given])
        known = self._shapes.get(shapes)
        if known is None:
            known = context.shapes(given)
            if len(self._shapes) < _MOST_SHAPES:
                self._shapes[shapes] = known
        return known

    def _given(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        _count(inputs, self.inputs, "arguments")
        return [arrays.given(each, port) for each, port in zip(inputs, self.inputs, strict=True)]

    def _context(self) -> _Context:
        try:
            return self._free.pop()
        except IndexError:  # all are in use
            return _Context(self._functions, self._options)

    def _ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if not kwargs:
            return args
        names = [port.name for port in self.inputs]
        if len(args) > len(names):
            _count(args, self.inputs, "arguments")
        found = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in found:
                problem = "twice" if name in found else "and it takes none of that name"
                raise TypeError(f"argument {name!r} of {self.name} is given {problem}; it takes "
                                f"{', '.join(names) or 'no arguments'}")
            found[name] = value
        missing = [name for name in names if name not in found]
        if missing:
            raise TypeError(f"{self.name} needs {', '.join(missing)}")
        return [found[name] for name in names]


def _count(given: Sequence[Any], wanted: Sequence[Port], what: str) -> None:
    if len(given) != len(wanted):
        names = ", ".join(port.name for port in wanted)
        raise TypeError(f"{len(given)} {what} are given, the model has {len(wanted)}: {names}")


class _Context:
    """A context of the library, and the structures of its calls. One call runs in it at a time."""

    def __init__(self, functions: Functions, options: Mapping[str, Any]) -> None:
        self._functions = functions
        self.pointer = functions.made(_options(functions, options))
        # the library stays open until this has been called
        leaving = weakref.finalize(self, _destroy, functions, self.pointer)
        leaving.atexit = False
        self._given, self._inputs = _tensors(functions.inputs)
        self._made, self._outputs = _tensors(functions.outputs)

    def shapes(self, inputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """The outputs' shapes for such inputs."""
        _fill(self._inputs, inputs)
        code = self._functions.shapes(self.pointer, self._given, self._made)
        self._functions.check(code, self.pointer)
        return [tuple(sizes[: tensor.rank]) for tensor, sizes in self._outputs]

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Fills the outputs. Other threads run meanwhile: ctypes lets go of the interpreter."""
        _fill(self._inputs, inputs)
        _fill(self._outputs, outputs)
        code = self._functions.run(self.pointer, self._given, self._made)
        self._functions.check(code, self.pointer)


def _destroy(functions: Functions, pointer: ctypes.c_void_p) -> None:
    functions.destroy(pointer)


def _options(functions: Functions, given: Mapping[str, Any]) -> Options:
    options = Options(threads=given["threads"])
    if given["cpu"] is not None:
        options.cpu = given["cpu"].encode()
    if given["weights"] is not None:
        options.weights_path = os.fsencode(given["weights"])
    sizes = given["sizes"]
    if sizes:
        names = [size.name for size in functions.sizes]
        unknown = [name for name in sizes if name not in names]
        if unknown:
            raise ValueError(f"sizes names {unknown[0]!r}, which is no free size of the model. "
                             f"Cure: one of {', '.join(names) or '(there are none)'}")
        most = [sizes.get(size.name, size.most) for size in functions.sizes]
        options.sizes = (ctypes.c_int64 * len(most))(*most)
    return options


_Slots = list[tuple[CTensor, Any]]  # a tensor of a call, and the sizes that its shape points to


def _tensors(ports: Sequence[Port]) -> tuple[Any, _Slots]:
    """Tensors for a call, of these dtypes and ranks."""
    table = (CTensor * max(len(ports), 1))()
    slots: _Slots = []
    for number, port in enumerate(ports):
        tensor, sizes = table[number], (ctypes.c_int64 * max(len(port.shape), 1))()
        tensor.dtype, tensor.rank = port.number, len(port.shape)
        tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
        slots.append((tensor, sizes))
    return table, slots


def _fill(slots: _Slots, given: Sequence[np.ndarray]) -> None:
    for (tensor, sizes), array in zip(slots, given, strict=True):
        tensor.data, tensor.bytes = array.ctypes.data, array.nbytes
        for place, size in enumerate(array.shape):
            sizes[place] = size


def load_library(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int = 1,
    cpu: str | None = None,
) -> NativeModel:
    """The model in a library that aot() has made: libNAME.so, or the folder that holds one. Its
    code runs in this process: it has to be yours, or of somebody whom you trust.

    `name`: what its functions begin with, if its file has another name now. `weights`: their file,
    where they are not embedded; NAME.safetensors beside the library if it is left out. `sizes`: the
    largest that calls will have of named sizes, which saves memory; `threads` of each call; `cpu`:
    a level by name, not the best one that this machine runs. Needs neither LLVM nor a compiler.
    Raises OSError where there is no file, ExportError for what is no such library.
    """
    found = _library(Path(path))
    if name is None:
        fits = _FILE.fullmatch(found.name)
        if fits is None:
            raise ExportError(f"{found} is not called libNAME.so. Cure: name= what its functions "
                              "begin with")
        name = fits[1]
    functions = Functions(Image.of_file(found), name)
    beside = found.parent / f"{name}.safetensors"
    if (weights is not None or beside.exists()) and functions.wants_file():
        weights = weights or beside
    elif weights is not None:
        raise ExportError(f"{found} holds its weights itself, and takes no others. Cure: leave out "
                          "weights=, or make the library with weights=\"file\"")
    options = {"threads": threads, "cpu": cpu, "weights": weights, "sizes": sizes}
    return NativeModel(functions, options)


def _library(path: Path) -> Path:
    """The library itself."""
    if not path.is_dir():
        return path
    found = sorted(each for each in path.glob("lib*.so") if _FILE.fullmatch(each.name))
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise ExportError(f"{path} holds {names}, and one libNAME.so is wanted. Cure: its path")
    return found[0]
