"""The C interface of a library (export/aot/header.py declares it), by ctypes."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, NoReturn

from graphc.backends.host.interface import ABI, CODE, CODES, DTYPES
from graphc.export.errors import ExportError
from graphc.export.native.image import Image
from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.op import OutOfRange

COMPUTED = -(1 << 63)  # a size that follows from others
_MESSAGE = 1024
_BY_NUMBER = tuple(dtypes.by_name(name) for name in DTYPES)
_VALUE_ERRORS = frozenset({"DTYPE", "RANK", "SHAPE", "RANGE", "BYTES", "OVERLAP", "ARGUMENT"})


class Size(ctypes.Structure):
    """graphc_size."""

    _fields_ = (("name", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64))


class Entry(ctypes.Structure):
    """graphc_entry."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class Tensor(ctypes.Structure):
    """graphc_tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


class Options(ctypes.Structure):
    """graphc_options."""

    _fields_ = (
        ("abi", ctypes.c_int32), ("threads", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("weights_path", ctypes.c_char_p),
        ("weights", ctypes.c_void_p), ("weights_bytes", ctypes.c_int64),
        ("memory", ctypes.c_void_p), ("memory_bytes", ctypes.c_int64), ("cpu", ctypes.c_char_p),
        ("message", ctypes.c_char_p), ("message_bytes", ctypes.c_int64),
    )


class Port(NamedTuple):
    """An input or an output. A size is a number, a named size, or None: one that follows."""

    name: str
    dtype: DType
    shape: tuple[int | str | None, ...]

    @property
    def number(self) -> int:
        """Of the dtype, as C has it."""
        return DTYPES.index(self.dtype.name)

    def __str__(self) -> str:
        sizes = ",".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype.name}[{sizes}]"


class NamedSize(NamedTuple):
    """A size that each call may have another value of."""

    name: str
    least: int
    most: int


_POINTER, _NUMBER, _TEXT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
_TYPES: dict[str, tuple[Any, list[Any]]] = {
    "text": (_TEXT, [_NUMBER]), "inputs": (_NUMBER, []), "outputs": (_NUMBER, []),
    "sizes": (_NUMBER, []), "input": (ctypes.POINTER(Entry), [_NUMBER]),
    "output": (ctypes.POINTER(Entry), [_NUMBER]), "size": (ctypes.POINTER(Size), [_NUMBER]),
    "create": (_NUMBER, [_POINTER, _POINTER]), "destroy": (None, [_POINTER]),
    "cpu": (_TEXT, [_POINTER]), "shapes": (_NUMBER, [_POINTER] * 3),
    "run": (_NUMBER, [_POINTER] * 3), "message": (_TEXT, [_POINTER]),
}


class Functions:
    """The functions of a library, whose names begin with `name`. They keep it open."""

    def __init__(self, image: Image, name: str) -> None:
        self.image, self.name = image, name
        abi = self._typed("abi", _NUMBER, [])()
        if abi != ABI:
            raise ExportError(
                f"{image.where} has version {abi} of the C interface, and this graphc calls {ABI}. "
                "Cure: make the library again with this graphc"
            )
        if image.has(f"{name}_step"):
            raise ExportError(
                f"{image.where} is a training step, and load_library is for models that answer. "
                "Cure: graphc.export.load(the .gcx file), which trains here; or call it by ctypes, "
                "as examples/clients/python/train.py does"
            )
        if not image.has(f"{name}_run"):
            raise ExportError(
                f"{image.where} has no {name}_run: it is no library of a model that answers. Cure: "
                "call its functions as its header says"
            )
        found = {each: self._typed(each, *types) for each, types in _TYPES.items()}
        self.create, self.destroy = found["create"], found["destroy"]
        self.shapes, self.run = found["shapes"], found["run"]
        self.message, self.cpu = found["message"], found["cpu"]
        self.sizes = tuple(
            NamedSize(each.name.decode(), each.least, each.most)
            for each in (found["size"](i).contents for i in range(found["sizes"]()))
        )
        self.inputs = self._ports(found["inputs"](), found["input"])
        self.outputs = self._ports(found["outputs"](), found["output"])

    def _typed(self, name: str, result: Any, arguments: list[Any]) -> Any:
        try:
            function = getattr(self.image.code, f"{self.name}_{name}")
        except AttributeError:
            raise ExportError(
                f"{self.image.where} has no function {self.name}_{name}. Cure: name= what its "
                "functions begin with, of a library that graphc.export.aot made"
            ) from None
        function.restype, function.argtypes = result, arguments
        return function

    def _ports(self, count: int, entry: Any) -> tuple[Port, ...]:
        return tuple(self._port(entry(number).contents) for number in range(count))

    def _port(self, entry: Entry) -> Port:
        sizes = [int(entry.shape[at]) for at in range(entry.rank)]
        shape = tuple(
            None if size == COMPUTED else self.sizes[-1 - size].name if size < 0 else size
            for size in sizes
        )
        return Port(entry.name.decode(), _BY_NUMBER[entry.dtype], shape)

    def made(self, options: Options) -> ctypes.c_void_p:
        """A new context. Raises as `refuse` does."""
        message = ctypes.create_string_buffer(_MESSAGE)
        options.abi = ABI
        options.message = ctypes.cast(message, ctypes.c_char_p)
        options.message_bytes = _MESSAGE
        context = ctypes.c_void_p()
        code = self.create(ctypes.byref(options), ctypes.byref(context))
        if code:
            refuse(code, message.value.decode(errors="replace"), self.image.where)
        return context

    def wants_file(self) -> bool:
        """Whether its weights lie in a file of their own."""
        context = ctypes.c_void_p()
        code = self.create(None, ctypes.byref(context))
        if not code:
            self.destroy(context)
        return bool(code == CODE["FILE"])

    def check(self, code: int, context: ctypes.c_void_p) -> None:
        """Raises as `refuse` does, unless a call went well."""
        if code:
            refuse(code, self.message(context).decode(errors="replace"), self.image.where)


def refuse(code: int, text: str, where: str) -> NoReturn:
    """Raise what a code stands for: ValueError for arguments that a model cannot take, MemoryError,
    OutOfRange (an IndexError and a RuntimeError) for a wrong index, else ExportError, which is a
    RuntimeError."""
    kind = CODES[code] if 0 <= code < len(CODES) else str(code)
    if kind in _VALUE_ERRORS:
        raise ValueError(text)
    if kind == "MEMORY":
        raise MemoryError(text)
    if kind == "VALUE":
        raise (OutOfRange if text.startswith("index") else RuntimeError)(text)
    cure = ". Cure: load_library(path, weights=...)" if kind == "FILE" else ""
    raise ExportError(f"{where}: {text}{cure}")
