"""torch.save and torch.load: PyTorch's zip format, written so that torch reads it, and read back
without ever unpickling unless the caller asks for it (weights_only=False).

    archive/data.pkl      the objects; tensors name their storage by a persistent id
    archive/data/<key>    one storage's raw elements, little-endian, at a multiple of 64 bytes
"""

from __future__ import annotations

import io
import os
import pickle
import secrets
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from .frontend.device import CPU, device
from .frontend.functions.deep_copies import own_state
from .frontend.functions.storages import UntypedStorage
from .frontend.layouts import get_layout, layout, strided
from .frontend.numbers import Size
from .frontend.overriding import DisableTorchFunction
from .frontend.placement import Place, device_of, place_of
from .frontend.storage import Storage, offset_of, strides_of
from .frontend.tensor import Parameter, Tensor, alias, held, rebuild
from .ir import dtypes
from .ir.dtypes import DType
from .ir.memory import on_host
from .serialization_bits import refusing_bits, resolved
from .serialization_legacy import Legacy, is_legacy
from .serialization_legacy import write as write_legacy
from .serialization_safe import add_safe_globals as add_safe_globals
from .serialization_safe import clear_safe_globals as clear_safe_globals
from .serialization_safe import get_safe_globals as get_safe_globals
from .serialization_safe import safe_globals as safe_globals
from .serialization_safe import safe_names
from .serialization_sparse import rebuild_sparse_tensor, refuse_sparse_tensor
from .unpickle import Reader, UnpicklingError, named_globals, set_state

# what load() takes as map_location
MAP_LOCATION: TypeAlias = (
    Callable[[Storage, str], Storage] | device | str | dict[str, str] | None
)

_STORAGE_TYPES = {
    dtypes.f64: "DoubleStorage", dtypes.f32: "FloatStorage", dtypes.f16: "HalfStorage",
    dtypes.bf16: "BFloat16Storage", dtypes.i64: "LongStorage", dtypes.i32: "IntStorage",
    dtypes.i16: "ShortStorage", dtypes.i8: "CharStorage", dtypes.u8: "ByteStorage",
    dtypes.bool_: "BoolStorage", dtypes.c64: "ComplexFloatStorage",
    dtypes.c128: "ComplexDoubleStorage",
}
_ALIGNMENT = 64
_FILE_HEADER = 30  # bytes of a zip file header before the name
_PATHS = (str, os.PathLike)


# --- writing -----------------------------------------------------------------------------------


class _Name:
    """A global by name: the writer spells torch's names without importing torch."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        """Never called; pickle checks that what it reduces to is callable."""


DEFAULT_PROTOCOL = 2  # of pickles

_TENSOR = _Name("torch._utils\n_rebuild_tensor_v2")
_PARAMETER = _Name("torch._utils\n_rebuild_parameter")
_FROM_TYPE = _Name("torch._tensor\n_rebuild_from_type_v2")
_SPARSE = _Name("torch._utils\n_rebuild_sparse_tensor")
_LAYOUT = _Name("torch.serialization\n_get_layout")
_SIZE = _Name("torch\nSize")
_DEVICE = _Name("torch\ndevice")
_DTYPE_NAMES = {
    dtype: _Name(f"torch\n{dtype.torch_name}") for dtype in (*dtypes.ALL, *dtypes.COMPLEX)
}
_STORAGE_NAMES = {dtype: _Name(f"torch\n{name}") for dtype, name in _STORAGE_TYPES.items()}


# pickle._Pickler is pickle.Pickler in Python, whose steps can be overridden
_Pickler: Any = pickle._Pickler


class _Writer(_Pickler):
    """Pickles with torch's names for tensors, sizes, dtypes and devices; collects storages."""

    dispatch = _Pickler.dispatch.copy()

    def __init__(self, file: IO[bytes], protocol: int, legacy: bool = False) -> None:
        super().__init__(file, protocol)
        self.view: tuple[None, ...] = (None,) if legacy else ()  # what a storage is a view of
        self.storages: dict[int, tuple[str, Storage, DType]] = {}

    def _save_name(self, obj: _Name) -> None:
        self.write(pickle.GLOBAL + obj.name.encode() + b"\n")
        self.memoize(obj)

    dispatch[_Name] = _save_name

    def _save_dtype(self, obj: DType) -> None:
        self.save(_DTYPE_NAMES[obj])

    dispatch[DType] = _save_dtype

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not _StorageRef:
            return None
        count = obj.storage.flat(obj.dtype.numpy).size
        location = str(device_of(obj.storage.array))
        return ("storage", _STORAGE_NAMES[obj.dtype], obj.key, location, count, *self.view)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            with DisableTorchFunction():
                if obj.layout is not strided:
                    return _SPARSE, obj.__reduce_ex__(2)[1]
                return self._reduce_kind(obj)
        if isinstance(obj, layout):
            return _LAYOUT, (repr(obj),)
        if isinstance(obj, Size):
            return _SIZE, (tuple(int(size) for size in obj),)
        if isinstance(obj, device):
            return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)
        return NotImplemented

    def _reduce_kind(self, tensor: Tensor) -> Any:
        kind = type(tensor)
        if issubclass(kind, Parameter):
            return _PARAMETER, (alias(tensor), tensor.requires_grad, OrderedDict())
        if kind is Tensor or kind.__module__.startswith("graphc."):
            return self._reduce_tensor(tensor)
        if kind.__reduce_ex__ is not Tensor.__reduce_ex__:
            return NotImplemented  # the class has its own way
        own, slots = own_state(tensor)
        place = self._reduce_tensor(tensor)[1]
        return _FROM_TYPE, (_TENSOR, kind, place, (own, slots) if slots else own)

    def _reduce_tensor(self, tensor: Tensor) -> Any:
        array = held(tensor, "save()", "save it outside the compiled function")
        storage: Storage = tensor._graphc_storage.root
        found = self.storages.get(id(storage))
        if found is None:
            found = (str(len(self.storages)), storage, tensor.dtype)
            self.storages[id(storage)] = found
        key, _, dtype = found
        if dtype is not tensor.dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types ({dtype} and {tensor.dtype}); clone() one of them first"
            )
        parts = (offset_of(array, storage), tuple(array.shape), strides_of(array))
        requires_grad = tensor.requires_grad
        return _TENSOR, (_StorageRef(key, storage, dtype), *parts, requires_grad, OrderedDict())


class _StorageRef:
    __slots__ = ("dtype", "key", "storage")

    def __init__(self, key: str, storage: Storage, dtype: DType) -> None:
        self.key, self.storage, self.dtype = key, storage, dtype


def save(
    obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False,
) -> None:
    """Write an object to a path (atomically: the old file stays until the new one is whole) or a
    file open for writing. Tensors that share memory share it again when loaded; torch.load reads
    the file. Raises RuntimeError for a missing folder."""
    if not isinstance(f, _PATHS) and not hasattr(f, "write"):
        raise TypeError(f"expected a path or a file open for writing, got {type(f).__name__}")
    pickled = io.BytesIO()
    writer = _Writer(pickled, pickle_protocol, not _use_new_zipfile_serialization)
    writer.dump(obj)
    with _replacing(Path(f)) if isinstance(f, _PATHS) else nullcontext(f) as file:
        if not _use_new_zipfile_serialization:
            write_legacy(file, pickled.getvalue(), writer.storages.values())
            return
        root = (Path(f).stem if isinstance(f, _PATHS) else "") or "archive"
        _write_zip(file, pickled.getvalue(), writer, root, not _disable_byteorder_record)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` once it is complete and on the disk."""
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise RuntimeError(f"Parent directory {real.parent} does not exist.")
    if real.exists() and not real.is_file():  # a pipe or a device: nothing to replace
        with open(real, "wb") as file:
            yield file
        return
    temporary = real.with_name(f".{real.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if real.exists():
            temporary.chmod(real.stat().st_mode & 0o7777)
        os.replace(temporary, real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_zip(
    file: IO[bytes], pickled: bytes, writer: _Writer, root: str, byteorder: bool
) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        _add(archive, f"{root}/data.pkl", pickled)
        _add(archive, f"{root}/.format_version", b"1")
        _add(archive, f"{root}/.storage_alignment", b"64")
        if byteorder:
            _add(archive, f"{root}/byteorder", b"little")
        for key, storage, dtype in writer.storages.values():
            flat = on_host(storage.flat(dtype.numpy))
            if sys.byteorder == "big":
                flat = flat.byteswap()
            _add(archive, f"{root}/data/{key}", flat.view(np.uint8).data)
        _add(archive, f"{root}/version", b"3\n")


def _add(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    """Append a record whose data starts at a multiple of 64 bytes, so that it can be mapped."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.file_size = len(data)
    start = archive.start_dir + _FILE_HEADER + len(name.encode())
    # an extra field of 4 bytes of header and zeros; zip64 sizes of huge records shift it, no harm
    padding = -(start + 4) % _ALIGNMENT
    info.extra = struct.pack("<HH", 0x4246, padding) + b"\0" * padding
    with archive.open(info, "w") as record:
        view = memoryview(data)
        for i in range(0, len(view), 1 << 24):
            record.write(view[i : i + (1 << 24)])


# --- reading -----------------------------------------------------------------------------------


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *,
    weights_only: bool | None = None, mmap: bool | None = None, **pickle_load_args: Any,
) -> Any:
    """The object that save (graphc's or torch's) wrote to a path or a file open for reading.

    Only tensors, numbers, strings and plain containers are read. weights_only=False unpickles,
    which runs whatever code the file asks for: only for files you trust. Raises FileNotFoundError,
    RuntimeError for a damaged file, UnpicklingError for what is not allowed.
    """
    safely = pickle_module is None if weights_only is None else weights_only
    if safely and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if isinstance(f, _PATHS):
        with open(f, "rb") as file:
            return _load(file, str(f), map_location, safely)
    if not hasattr(f, "read"):
        raise TypeError(f"expected a path or a file open for reading, got {type(f).__name__}")
    seekable = hasattr(f, "seek") and (not hasattr(f, "seekable") or f.seekable())
    return _load(f if seekable else io.BytesIO(f.read()), "file", map_location, safely)


def _load(file: IO[bytes], name: str, map_location: Any, weights_only: bool) -> Any:
    if is_legacy(file):
        return _load_legacy(file, name, map_location, weights_only)
    try:
        with zipfile.ZipFile(file) as archive:
            return _Archive(archive, name, map_location).read(weights_only)
    except zipfile.BadZipFile as error:
        file.seek(0)
        if not (start := file.read(4)):
            raise EOFError(f"Ran out of input: {name} is empty") from error
        kind = RuntimeError if start == b"PK\3\4" else UnpicklingError
        raise kind(f"{name} is not a file of save(), or damaged or truncated: {error}") from error
    except (EOFError, OSError, NotImplementedError, struct.error) as error:
        raise RuntimeError(f"{name} is damaged: {error}") from error


class _Archive:
    """An open zip file: its storages, and the objects made on them."""

    def __init__(self, archive: zipfile.ZipFile, name: str, map_location: Any) -> None:
        self.archive, self.name, self.map_location = archive, name, map_location
        names = [each for each in archive.namelist() if each.endswith("data.pkl")]
        if not names:
            raise RuntimeError(f"{name} has no data.pkl: it was not written by save()")
        self.root = min(names, key=len)[: -len("data.pkl")]
        self.members = set(archive.namelist())
        self.storages: dict[str, tuple[Storage, DType]] = {}
        order = self.root + "byteorder"
        self.swapped = order in self.members and (
            archive.read(order).decode("ascii", "replace") != sys.byteorder
        )

    def read(self, weights_only: bool) -> Any:
        """The object in data.pkl."""
        data = self.archive.read(self.root + "data.pkl")
        if weights_only:
            return Reader(_CALLS, _VALUES, self.storage, safe_names()).load(data)
        return _Trusting(io.BytesIO(data), self.storage).load()

    def storage(self, saved_id: Any) -> _Loaded:
        """The storage of a persistent id ("storage", type, key, location, count)."""
        if not isinstance(saved_id, tuple) or len(saved_id) != 5 or saved_id[0] != "storage":
            raise UnpicklingError(f"unknown persistent id {saved_id!r}")
        _, dtype, key, location, count = saved_id
        if not isinstance(dtype, DType) or not isinstance(key, str) or not isinstance(count, int):
            raise UnpicklingError(f"unknown kind of storage {saved_id!r}")
        found = self.storages.get(key)
        if found is None:
            found = (Storage(self._elements(key, dtype, count)), dtype)
            self.storages[key] = found
            place = location_of(self.map_location, str(location), found[0])
            if place is not None:
                found = (Storage(place.put(found[0].array)), dtype)
                self.storages[key] = found
        if found[1] is not dtype:
            raise UnpicklingError(f"storage {key} is both {found[1]} and {dtype}")
        return _Loaded(*found)

    def _elements(self, key: str, dtype: DType, count: int) -> np.ndarray:
        record = f"{self.root}data/{key}"
        if record not in self.members:
            raise RuntimeError(f"{self.name} is damaged: it has no record {record}")
        info = self.archive.getinfo(record)
        if count < 0 or info.file_size != count * dtype.itemsize:
            raise RuntimeError(
                f"{self.name} is damaged: record {record} has {info.file_size} bytes, "
                f"{count} elements of {dtype} need {count * dtype.itemsize}"
            )
        array = np.empty(count, dtype.numpy)
        target = memoryview(array.view(np.uint8).data)
        done = 0
        with self.archive.open(info) as file:
            # read to the end of the record, where its checksum is compared
            while piece := file.read(1 << 24):
                target[done : done + len(piece)] = piece
                done += len(piece)
        return array.byteswap() if self.swapped and dtype.itemsize > 1 else array


def location_of(mapped: Any, location: str, storage: Storage) -> Place | None:
    """Where map_location puts a storage; None: on the CPU. Raises RuntimeError for a device that
    is not there."""
    if isinstance(mapped, dict):
        location = str(mapped.get(location, location))
    elif callable(mapped):
        chosen = mapped(UntypedStorage(storage), location)
        if chosen is not None:
            return place_of(getattr(chosen, "device", "cpu"))
    elif mapped is not None:
        location = str(mapped)
    try:
        return place_of(location)
    except RuntimeError:
        raise RuntimeError(
            f"Attempting to deserialize object on a {location.split(':')[0].upper()} device, "
            "which this machine does not have. Please use load with "
            "map_location=torch.device('cpu') to map your storages to the CPU."
        ) from None


def _check_legacy(mapped: Any, location: str, storage: Storage) -> None:
    if location_of(mapped, location, storage) is not None:
        raise NotImplementedError(
            "files of the old format are read on the CPU. Cure: load with map_location='cpu', then "
            "move what was loaded"
        )


def _load_legacy(file: IO[bytes], name: str, map_location: Any, weights_only: bool) -> Any:
    def unpickle(file: IO[bytes], storage: Callable[[Any], Any]) -> Any:
        if weights_only:
            return Reader(_LEGACY_CALLS, _VALUES, storage, safe_names()).load(file)
        return _Trusting(file, storage, _LEGACY_CALLS).load()

    legacy = Legacy(
        file, _Loaded, lambda location, storage: _check_legacy(map_location, location, storage)
    )
    try:
        return legacy.read(unpickle)
    except (EOFError, OSError, AttributeError) as error:
        raise RuntimeError(f"{name} is damaged: {error}") from error


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file of save() that load(weights_only=True) would refuse."""
    with zipfile.ZipFile(f) as archive:
        member = min((n for n in archive.namelist() if n.endswith("data.pkl")), key=len)
        names = named_globals(archive.read(member))
    known = Reader(_CALLS, _VALUES, lambda saved_id: None, safe_names())
    return sorted(name for name in names if not known.allows(name))


class _Loaded:
    __slots__ = ("dtype", "storage")

    def __init__(self, storage: Storage, dtype: DType) -> None:
        self.storage, self.dtype = storage, dtype


def _rebuild_tensor(
    storage: _Loaded, offset: int, size: Any, stride: Any, requires_grad: bool = False,
    hooks: Any = None, metadata: Any = None,
) -> Tensor:
    if not isinstance(storage, _Loaded):
        raise UnpicklingError("a tensor without a storage")
    sizes, strides = tuple(size), tuple(stride)
    if len(sizes) != len(strides) or not all(
        isinstance(n, int) and n >= 0 for n in (*sizes, *strides, offset)
    ):
        raise UnpicklingError(f"a tensor of size {size}, stride {stride} and offset {offset}")
    made = rebuild(Tensor, storage.storage, offset, sizes, strides, bool(requires_grad))
    return resolved(made, metadata) if metadata else made


def _rebuild_parameter(
    data: Tensor, requires_grad: bool = True, hooks: Any = None, state: Any = None
) -> Parameter:
    made: Parameter = Parameter(data.detach(), bool(requires_grad))
    return made


def _rebuild_from_type(make: Callable[..., Tensor], kind: Any, args: Any, state: Any) -> Any:
    """A tensor of a user's subclass."""
    plain = make(*args)
    if not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise UnpicklingError(f"a tensor of the class {kind!r}")
    made: Any = alias(plain, kind)
    with DisableTorchFunction():
        made.requires_grad_(plain.requires_grad)
    set_state(made, state)
    return made


def _rebuild_size(sizes: Any = ()) -> Size:
    return Size(tuple(sizes))


def _rebuild_device(kind: str = "cpu", index: int | None = None) -> device:
    return device(kind, index) if kind != "cpu" else CPU


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch._utils._rebuild_sparse_tensor": rebuild_sparse_tensor,
    "torch.serialization._get_layout": get_layout,
    "torch.Size": _rebuild_size,
    "torch.device": _rebuild_device,
}
_LEGACY_CALLS = {
    **_CALLS, "torch._utils._rebuild_sparse_tensor": refuse_sparse_tensor,
    "torch._utils._rebuild_tensor_v2": refusing_bits(_rebuild_tensor),
}
_VALUES: dict[str, Any] = {
    **{f"torch.{dtype.torch_name}": dtype for dtype in (*dtypes.ALL, *dtypes.COMPLEX)},
    **{f"torch.{name}": dtype for dtype, name in _STORAGE_TYPES.items()},
}


class _Trusting(pickle.Unpickler):
    """A real unpickler (weights_only=False) that reads torch's names as graphc's."""

    def __init__(
        self, file: IO[bytes], storage: Callable[[Any], _Loaded],
        calls: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__(file)
        self.calls = _CALLS if calls is None else calls
        self.persistent_load = storage  # type: ignore[method-assign]

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in self.calls:
            return self.calls[full]
        if full in _VALUES:
            return _VALUES[full]
        if module.partition(".")[0] == "torch":
            # graphc's module of the same name; its classes keep torch's attributes
            module = "graphc" + module.removeprefix("torch")
        return super().find_class(module, name)
