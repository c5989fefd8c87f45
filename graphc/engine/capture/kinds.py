"""The kinds of objects whose state graphc understands, as data.

`kind_of(type)` says how objects of a type are read, guarded and put back; a type that no row names
is OPEN: code that looks into such an object runs in segments. Types of other distributions are
named as text, so that nothing is imported for them. version/recipes.py is no second table of this:
it says what of a call's results can be made anew, which asks for constructors and not for guards,
and of instances of Python classes, which are one kind here, it asks what is in their bases.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from array import array
from collections import OrderedDict, defaultdict, deque
from enum import Enum, EnumMeta, auto
from pathlib import Path
from typing import Any, Generic

import numpy as np

from ...frontend.numbers import TracedNumber
from ...frontend.tensor import Parameter, Tensor
from ...frontend.texts import TracedText
from ...frontend.watched import Watched, WatchedDefault, WatchedOrdered


class Kind(Enum):
    """How objects of a type are understood."""

    __hash__ = object.__hash__  # Enum's is written in Python

    VALUE = auto()  # immutable, compared by value
    FIXED = auto()  # immutable, compared by identity; nothing to look into
    TUPLE = auto()  # immutable, holds others
    LIST = auto()
    DICT = auto()
    SET = auto()
    QUEUE = auto()
    ARRAY = auto()  # NumPy
    BUFFER = auto()  # bytearray, array.array: numbers, whole
    VIEW = auto()  # of a dict, or a mapping proxy
    ITERATOR = auto()
    FUNCTION = auto()
    METHOD = auto()
    BUILTIN = auto()
    PARTIAL = auto()
    CLASS = auto()
    MODULE = auto()
    TENSOR = auto()
    NUMBER = auto()  # a lifted number or a symbolic size
    TEXT = auto()  # that says such a number
    OWN = auto()  # an object of graphc's own machinery
    FIELDS = auto()  # of C code, read and written attribute by attribute
    INSTANCE = auto()  # of a class written in Python
    OPEN = auto()


# immutable types whose instances are compared by value
VALUES = frozenset("""
    builtins.bool builtins.int builtins.float builtins.complex builtins.str builtins.bytes
    builtins.NoneType builtins.ellipsis builtins.NotImplementedType builtins.range builtins.slice
    decimal.Decimal fractions.Fraction datetime.date datetime.datetime datetime.time
    datetime.timedelta datetime.timezone uuid.UUID pathlib.PosixPath pathlib.PurePosixPath
    pathlib._local.PosixPath pathlib._local.PurePosixPath
    graphc.ir.dtypes.dtype graphc.frontend.device.device
""".split())
# immutable types whose instances are compared by identity
FIXEDS = frozenset("""
    builtins.code re.Pattern re.Match types.GenericAlias
    types.UnionType typing._SpecialForm typing.TypeVar typing._SpecialGenericAlias
    typing._TupleType typing._CallableType
    builtins.property builtins.classmethod builtins.staticmethod builtins.super
    builtins.member_descriptor builtins.getset_descriptor builtins.traceback
    operator.itemgetter operator.attrgetter operator.methodcaller
    weakref.ReferenceType _contextvars.ContextVar
    functools._lru_cache_wrapper functools.KeyWrapper numpy.ufunc
""".split())
# containers; a class written in Python may derive from all but arrays and buffers
_CONTAINERS: dict[type, Kind] = {
    tuple: Kind.TUPLE, frozenset: Kind.TUPLE, list: Kind.LIST, dict: Kind.DICT,
    OrderedDict: Kind.DICT, defaultdict: Kind.DICT, set: Kind.SET, deque: Kind.QUEUE,
    np.ndarray: Kind.ARRAY, bytearray: Kind.BUFFER, array: Kind.BUFFER,
}
_EXACT: dict[type, Kind] = {
    types.FunctionType: Kind.FUNCTION, types.MethodType: Kind.METHOD,
    types.BuiltinFunctionType: Kind.BUILTIN, types.MethodDescriptorType: Kind.BUILTIN,
    types.WrapperDescriptorType: Kind.BUILTIN, types.MethodWrapperType: Kind.BUILTIN,
    types.ClassMethodDescriptorType: Kind.BUILTIN, functools.partial: Kind.PARTIAL,
    Watched: Kind.DICT, WatchedDefault: Kind.DICT, WatchedOrdered: Kind.DICT,
    types.SimpleNamespace: Kind.INSTANCE,
    types.GeneratorType: Kind.ITERATOR, types.MappingProxyType: Kind.VIEW,
    threading.local: Kind.FIELDS,
    type({}.keys()): Kind.VIEW, type({}.values()): Kind.VIEW, type({}.items()): Kind.VIEW,
    type(OrderedDict().keys()): Kind.VIEW, type(OrderedDict().values()): Kind.VIEW,
    type(OrderedDict().items()): Kind.VIEW,
}
# C iterators that are closed when the call itself made them
_ITERATORS = frozenset("""
    builtins.zip builtins.map builtins.filter builtins.enumerate builtins.reversed
    builtins.list_iterator builtins.list_reverseiterator builtins.tuple_iterator
    builtins.range_iterator builtins.longrange_iterator builtins.str_iterator
    builtins.str_ascii_iterator builtins.set_iterator builtins.dict_keyiterator
    builtins.dict_valueiterator builtins.dict_itemiterator builtins.dict_reversekeyiterator
    builtins.dict_reversevalueiterator builtins.dict_reverseitemiterator builtins.odict_iterator
    builtins.bytes_iterator builtins.formatteriterator builtins.fieldnameiterator
    builtins.callable_iterator builtins.iterator
    collections._deque_iterator collections._deque_reverse_iterator _collections._deque_iterator
    _collections._deque_reverse_iterator
    itertools.chain itertools.islice itertools.product itertools.combinations
    itertools.permutations itertools.combinations_with_replacement itertools.repeat
    itertools.cycle itertools.count itertools.accumulate itertools.starmap itertools.takewhile
    itertools.dropwhile itertools.filterfalse itertools.compress itertools.zip_longest
    itertools.groupby itertools._grouper itertools.pairwise itertools._tee itertools.batched
""".split())
# modules of graphc that users do not subclass or look into; their code is not rewritten
OWN_CODE = (
    "graphc.frontend", "graphc.ir", "graphc.backends", "graphc.engine", "graphc.config",
    "graphc.compile", "graphc.inspect", "graphc.doubt", "graphc.nn.functional",
    "graphc.linalg", "graphc.fft", "graphc.special", "graphc.signal", "graphc.autograd",
    "graphc.compiler", "graphc._C", "graphc.late_names", "graphc.compat", "graphc.export",
    "graphc.unsupported", "graphc.library", "graphc.profiler", "graphc.amp.autocast_mode",
    "graphc.overrides", "graphc.overridable",
    "graphc.nn.modules.module_notes", "graphc.nn.utils.packing", "graphc.onnx.reading.compute",
)
# modules among them that call the user's functions, or hold flags: these are rewritten, too
_PASSING_ON = ("graphc.frontend.decorated", *(f"graphc.backends.{name}" for name in (
    "flags", "cpu", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized",
)))
PACKAGE = str(Path(__file__).parents[2])


def _path(module: str) -> str:
    return str(Path(PACKAGE, *module.split(".")[1:]))


_MACHINERY = tuple(map(_path, OWN_CODE))
_BACKENDS: set[str] = set()  # files of backends that others have registered
_FOLLOWED = frozenset(f"{_path(name)}.py" for name in _PASSING_ON)
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE


def is_own_name(module: Any) -> bool:
    """Whether a module's name is one of graphc's own machinery."""
    return isinstance(module, str) and _is_own(module)


@functools.lru_cache(maxsize=4096)
def _is_own(module: str) -> bool:
    return module not in _PASSING_ON and any(
        module == name or module.startswith(name + ".") for name in OWN_CODE
    )


@functools.lru_cache(maxsize=4096)
def is_machinery(file: str) -> bool:
    """Whether a file is one of graphc's own machinery."""
    return file in _BACKENDS or (file not in _FOLLOWED and any(
        file == f"{name}.py" or file.startswith(f"{name}/") for name in _MACHINERY
    ))


def is_part_of_machinery(*parts: Any) -> None:
    """Note that the code of these objects' classes is machinery: a device's backend, its memory."""
    for kind in {kind for part in parts for kind in type(part).__mro__}:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file is not None:
            _BACKENDS.add(file)
    is_machinery.cache_clear()


@functools.lru_cache(maxsize=4096)
def is_standard(module: Any) -> bool:
    """Whether a module is of Python's own library, whose classes and functions stay as they are.
    (A user's file may have the name of one: profile.py, statistics.py.)"""
    if not isinstance(module, str) or module == "__main__":
        return False
    top = module.partition(".")[0]
    if top not in sys.stdlib_module_names or top not in sys.modules:
        return False
    file = getattr(sys.modules[top], "__file__", None)
    return file is None or (file.startswith(_LIBRARY) and "-packages" not in file)


_LIBRARY = os.path.dirname(os.__file__)


def is_standard_class(kind: Any) -> bool:
    """Whether a class is of Python's own library. One made by exec() in a bare namespace says that
    it is of builtins, too, whose own classes cannot be changed."""
    module = getattr(kind, "__module__", "")
    return is_standard(module) and (
        module != "builtins" or bool(kind.__flags__ & _IMMUTABLE)
    )


def is_ours(kind: type) -> bool:
    """Whether a class is graphc's own. (Tensor and Parameter say that they are torch's where
    `import torch` finds graphc.)"""
    return kind is Tensor or kind is Parameter or kind.__module__.startswith("graphc.")


def full_name(kind: type) -> str:
    """A type's name with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


_found: dict[Any, Kind] = {}
_LIMIT = 20_000


def kind_of(kind: Any) -> Kind:
    """How objects of this type are understood."""
    found = _found.get(kind)
    if found is None:
        if len(_found) > _LIMIT:  # of types that come and go
            _found.clear()
        found = _found[kind] = _kind_of(kind)
    return found


def _kind_of(kind: Any) -> Kind:
    for table in (_CONTAINERS, _EXACT):
        if kind in table:
            return table[kind]
    name = full_name(kind)
    if name in VALUES or (issubclass(kind, np.generic) and not issubclass(kind, np.void)):
        return Kind.VALUE
    if name in FIXEDS or issubclass(kind, np.dtype):
        return Kind.FIXED
    if name in _ITERATORS:
        return Kind.ITERATOR
    if issubclass(kind, Tensor):
        return Kind.TENSOR
    if issubclass(kind, TracedNumber):
        return Kind.NUMBER
    if kind is TracedText:
        return Kind.TEXT
    if issubclass(kind, type):
        return Kind.CLASS
    if isinstance(kind, EnumMeta):
        return Kind.FIXED
    if issubclass(kind, types.ModuleType):
        return Kind.MODULE
    if is_own_name(kind.__module__):
        return Kind.TUPLE if issubclass(kind, tuple) else Kind.OWN
    return _instance(kind)


_C_MEMBERS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def has_field(kind: type, name: str) -> bool:
    """Whether an object of Kind.FIELDS has an attribute that stands for itself."""
    return name == "value" if kind is not threading.local else not name.startswith("__")


def _instance(kind: type) -> Kind:
    if any(full_name(base) == "_ctypes._SimpleCData" for base in kind.__bases__):
        return Kind.FIELDS if is_standard(kind.__module__) else Kind.OPEN
    for base in kind.__mro__:
        known = base in (object, Generic) or issubclass(base, BaseException)
        known = known or _CONTAINERS.get(base) not in (None, Kind.ARRAY, Kind.BUFFER)
        if not known and _from_c(base) and full_name(base) not in VALUES:
            return Kind.OPEN
    return Kind.INSTANCE


def _from_c(kind: type) -> bool:
    """Whether a type comes from an extension module."""
    if not kind.__flags__ & _HEAP or kind.__flags__ & _IMMUTABLE:
        return True
    return any(
        # `__getattr__ = dict.get` of a class of Python's is called as it is; other such members
        # would do what nobody sees
        (isinstance(member, _C_MEMBERS) and (
            member.__objclass__ is kind or name != "__getattr__"
        ))
        or (isinstance(member, types.GetSetDescriptorType)
            and name not in ("__dict__", "__weakref__"))
        or (isinstance(member, types.BuiltinFunctionType) and name == "__new__")
        for name, member in vars(kind).items()
    )


def content_of(kind: type) -> Kind | None:
    """The container that a class is or derives from; None if it is none."""
    return next((_CONTAINERS[base] for base in kind.__mro__ if base in _CONTAINERS), None)


def is_plain(value: Any) -> bool:
    """Whether a value is compared by value: immutable to its last item."""
    kind = kind_of(type(value))
    if kind is Kind.VALUE:
        return type(value) is not slice or is_plain((value.start, value.stop, value.step))
    return type(value) in (tuple, frozenset) and all(map(is_plain, value))
