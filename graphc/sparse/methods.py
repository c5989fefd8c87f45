"""The methods of a sparse tensor, by torch's names.

One that is neither here nor among `_INHERITED` is refused by its name: nothing of a dense tensor's
is ever tried on entries.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any, NoReturn

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.functions import conversion, indexing
from ..frontend.functions.arguments import check_dtype, wrap_dim
from ..frontend.layouts import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from ..frontend.promote import is_number
from ..frontend.tensor import Tensor, alias, from_array
from ..ir import dtypes
from . import arithmetic, conversions, creation, printing
from .arithmetic import OPERATORS
from .conversions import coalesced, entries_at, to_coo
from .creation import check_place
from .functions import (
    FUNCTIONS,
    GO_ON,
    Table,
    clone,
    own_places,
    refusal,
    without_entries,
    zeros_like,
)
from .patterns import Pattern
from .products import recorded_dot_general
from .tensor import SparseTensor, assign, bare, entries, outside, relabelled, sparse


def _error(message: str) -> RuntimeError:
    return RuntimeError(located(message))


# --- what it is made of --------------------------------------------------------------------------


def _coo(x: SparseTensor, name: str) -> Pattern:
    pattern = x._graphc_pattern
    if not isinstance(pattern, Pattern):
        raise _error(
            f"{name} expected sparse coordinate tensor layout but got {x.layout}. "
            "Cure: x.to_sparse()"
        )
    return pattern


def _require_coalesced(x: SparseTensor, what: str) -> None:
    if not x._graphc_pattern.coalesced:
        raise _error(
            f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
        )


def unwritable(places: Tensor) -> Tensor:
    """Places for the user: a pattern is what others rely on."""
    array = places._graphc_array.view()
    array.flags.writeable = False
    return from_array(array)


def indices(self: SparseTensor) -> Tensor:
    """The places [sparse dims, entries] of a coalesced tensor."""
    pattern = _coo(self, "indices")
    _require_coalesced(self, "indices")
    return unwritable(pattern.indices)


def values(self: SparseTensor) -> Tensor:
    """The entries [entries, *dense sizes] of a coalesced tensor."""
    _require_coalesced(self, "values")
    return entries(self)


def _starts(self: SparseTensor, kinds: Any, name: str) -> Tensor:
    if self.layout not in kinds:
        raise _error(
            f"{name}() expected layout {' or '.join(map(repr, kinds))} but got {self.layout}"
        )
    found = self._graphc_pattern.starts if name[0] == "c" and name[1] != "o" else (
        self._graphc_pattern.plain
    )
    return unwritable(found)


_ROWS, _COLUMNS = (sparse_csr, sparse_bsr), (sparse_csc, sparse_bsc)


def nnz(self: SparseTensor) -> int:
    """How many entries there are."""
    count: int = self._graphc_pattern.count
    return count


def is_coalesced(self: SparseTensor) -> bool:
    """Whether each place has one entry, in row-major order, as far as that is known."""
    return _coo(self, "is_coalesced").coalesced


def coalesce(self: SparseTensor) -> SparseTensor:
    """The tensor with one entry for each place; itself, if it is known to be so."""
    _coo(self, "coalesce")
    return coalesced(self)


def _set_coalesced(self: SparseTensor, flag: bool) -> SparseTensor:
    pattern = _coo(self, "_coalesced_")
    self._graphc_pattern = Pattern(pattern.indices, pattern.size, bool(flag))
    return self


# --- copies, dtypes, history ----------------------------------------------------------------------



def detach_(self: SparseTensor) -> SparseTensor:
    """Without history from here on."""
    self._graphc_node, self._graphc_output, self._graphc_requires_grad = None, 0, False
    return self


def requires_grad_(self: SparseTensor, requires_grad: bool = True) -> SparseTensor:
    """Start or stop recording operations on this leaf. Raises RuntimeError for others."""
    if requires_grad and not self.dtype.differentiable:
        raise _error(
            f"only Tensors of floating point dtype can require gradients, got {self.dtype}"
        )
    if self._graphc_node is not None:
        if not requires_grad:
            raise _error(
                "you can only change requires_grad flags of leaf variables. Cure: detach() it"
            )
        return self
    self._graphc_requires_grad = bool(requires_grad)
    return self


def to(self: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
    """to(dtype), to("cpu"), to(other): the tensor itself where nothing changes."""
    dtype, wanted = kwargs.get("dtype"), kwargs.get("copy", False)
    for value in (*args, kwargs.get("device"), kwargs.get("other")):
        if isinstance(value, Tensor):
            dtype = value.dtype
        elif isinstance(value, (dtypes.DType, type)):
            dtype = value
        elif value is not None and not isinstance(value, bool):
            check_place(value)
    kind = check_dtype(dtype)
    if kind is not None and kind is not self.dtype:
        return arithmetic.cast(self, kind)
    return clone(self) if wanted else self


def _as(dtype: dtypes.DType) -> Callable[..., Tensor]:
    return lambda self, memory_format=None: to(self, dtype)


def type_(self: SparseTensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The type's name ("torch.sparse.FloatTensor"), or the tensor as another dtype."""
    if dtype is None:
        from_dense: str = T.empty(0, dtype=self.dtype).type()
        return from_dense.replace("torch.", "torch.sparse.", 1)
    probe = conversion.type_(T.empty(0, dtype=self.dtype), dtype)
    return to(self, probe.dtype)


def deepcopied(self: SparseTensor, memo: dict[int, Any]) -> Any:
    """What copy.deepcopy() gives. Raises RuntimeError for a tensor with history."""
    if id(self) in memo:
        return memo[id(self)]
    if self._graphc_node is not None:
        raise _error(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment. Cure: detach() it first"
        )
    found = bare(own_places(self._graphc_pattern), self._graphc_values.clone())
    found._graphc_requires_grad = self._graphc_requires_grad
    if getattr(self, "_is_param", False):
        found._is_param = True  # type: ignore[attr-defined]
    memo[id(self)] = found
    found._grad = copy.deepcopy(self._grad, memo)
    return found


def _reduced(self: SparseTensor, protocol: Any) -> Any:
    return creation.rebuild_sparse_tensor, creation.parts_of(self)


def backward(
    self: SparseTensor, gradient: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, inputs: Any = None,
) -> None:
    """Add the gradients of this tensor to the leaves' `.grad`."""
    if gradient is None:
        raise _error(
            "grad can be implicitly created only for scalar outputs, but this one is sparse. "
            "Cure: reduce it (torch.sparse.sum(x)) or pass gradient="
        )
    given = entries_at(gradient, self._graphc_pattern)
    entries(self).backward(given, retain_graph, create_graph, inputs)


# --- sizes ---------------------------------------------------------------------------------------


def size(self: SparseTensor, dim: int | None = None) -> Any:
    """The shape, or one size of it."""
    return self.shape if dim is None else self.shape[wrap_dim(dim, self.ndim)]



def _new(self: SparseTensor, *sizes: Any, **options: Any) -> SparseTensor:
    given = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return without_entries(tuple(int(n) for n in given), self, options)


# --- in place ------------------------------------------------------------------------------------


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        found = _function(name)(self, *args, **kwargs)
        if not isinstance(found, SparseTensor) or found.dtype is not self.dtype:
            raise _error(
                f"result type {found.dtype} can't be cast to the desired output type {self.dtype}"
            )
        return assign(self, found)

    method.__name__ = f"{name}_"
    return method


def _function(name: str) -> Callable[..., Any]:
    found = FUNCTIONS.get(name)
    return getattr(T, name) if found is None else found


def getitem(self: SparseTensor, index: Any) -> Tensor:
    """x[index], of numbers, slices, None, and one vector of positions or mask."""
    selection = indexing.read_index(self, index)
    if selection.tensors:
        x, tensors, dim = selection.arranged()
        return indexing.take(x, tensors, dim)
    found: Tensor = selection.view
    return found


def _comparison(name: str) -> Callable[..., Any]:
    def method(self: SparseTensor, other: Any) -> Any:
        if isinstance(other, Tensor) or is_number(other):
            raise refusal(name, self)
        return NotImplemented

    return method


def zero_(self: SparseTensor) -> SparseTensor:
    """Without entries."""
    return assign(self, zeros_like(self))


def copy_(self: SparseTensor, src: Any, non_blocking: bool = False) -> SparseTensor:
    """The entries of another sparse tensor, cast."""
    if not isinstance(src, SparseTensor):
        raise NotImplementedError(located(
            "copy_() between dense and sparse Tensors is not implemented! Cure: "
            "x.copy_(source.to_sparse())"
        ))
    if tuple(src.shape) != tuple(self.shape):
        raise _error(
            f"copy_(): a sparse tensor of size {list(src.shape)} into one of {list(self.shape)}"
        )
    found = clone(to(src, self.dtype))  # type: ignore[arg-type]
    return assign(self, found if found.layout is self.layout else found.to_sparse(self.layout))


def resize_and_clear_(
    self: SparseTensor, sizes: Any, sparse_dim: int, dense_dim: int
) -> SparseTensor:
    """Other sizes, no entries."""
    sizes = tuple(int(n) for n in sizes)
    if sparse_dim + dense_dim != len(sizes):
        raise _error(
            f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), "
            f"but got {len(sizes)}"
        )
    pattern = Pattern.at(T.zeros((sparse_dim, 0), dtype=T.int64)._graphc_array, sizes, True)
    return assign(self, sparse(pattern, T.zeros((0, *sizes[sparse_dim:]), dtype=self.dtype)))


_IN_PLACE = """
    abs absolute add asin arcsin asinh arcsinh atan arctan atanh arctanh ceil div divide erf erfinv
    expm1 floor floor_divide log1p mul multiply neg negative pow relu round sign sin sinh sqrt
    square sub subtract tan tanh true_divide trunc deg2rad rad2deg addmm
""".split()

METHODS: Table = {
    **{name: function for name, function in FUNCTIONS.items() if hasattr(Tensor, name)},
    "smm": FUNCTIONS["smm"], "sspaddmm": FUNCTIONS["sspaddmm"],
    **{f"{name}_": _in_place(name) for name in _IN_PLACE},
    **{
        name: _as(dtype) for name, dtype in {
            "float": dtypes.f32, "double": dtypes.f64, "half": dtypes.f16, "bfloat16": dtypes.bf16,
            "long": dtypes.i64, "int": dtypes.i32, "short": dtypes.i16, "char": dtypes.i8,
            "byte": dtypes.u8, "bool": dtypes.bool_, "cfloat": dtypes.c64, "cdouble": dtypes.c128,
        }.items()
    },
    "__iadd__": _in_place("add"), "__isub__": _in_place("sub"), "__imul__": _in_place("mul"),
    "__itruediv__": _in_place("div"),
    "indices": indices, "values": values, "coalesce": coalesce, "is_coalesced": is_coalesced,
    "_indices": lambda self: unwritable(_coo(self, "_indices").indices),
    "_values": lambda self: alias(self._graphc_values),
    "_nnz": nnz, "_coalesced_": _set_coalesced,
    "sparse_dim": lambda self: self._graphc_pattern.sparse_dim,
    "dense_dim": lambda self: self._graphc_pattern.dense_dim,
    "_dimI": lambda self: self._graphc_pattern.sparse_dim,
    "_dimV": lambda self: self._graphc_pattern.dense_dim,
    "crow_indices": lambda self: _starts(self, _ROWS, "crow_indices"),
    "col_indices": lambda self: _starts(self, _ROWS, "col_indices"),
    "ccol_indices": lambda self: _starts(self, _COLUMNS, "ccol_indices"),
    "row_indices": lambda self: _starts(self, _COLUMNS, "row_indices"),
    "to_sparse": conversions.to_sparse, "to_sparse_coo": to_coo,
    "to_sparse_csr": lambda self, dense_dim=None: conversions.to_compressed(self, sparse_csr),
    "to_sparse_csc": lambda self, dense_dim=None: conversions.to_compressed(self, sparse_csc),
    "to_sparse_bsr": lambda self, blocksize, dense_dim=None: conversions.to_compressed(
        self, sparse_bsr, blocksize
    ),
    "to_sparse_bsc": lambda self, blocksize, dense_dim=None: conversions.to_compressed(
        self, sparse_bsc, blocksize
    ),
    "detach_": detach_, "requires_grad_": requires_grad_, "backward": backward,
    "to": to, "type": type_, "type_as": lambda self, other: to(self, other.dtype),
    "cpu": lambda self, memory_format=None: self,
    "cuda": lambda self, *args, **kwargs: check_place("cuda"),
    "size": size, "new": _new, "new_zeros": _new, "new_empty": _new,
    "zero_": zero_, "copy_": copy_,
    "sparse_resize_and_clear_": resize_and_clear_,
    "contiguous": lambda self, memory_format=None: self,
    "is_contiguous": lambda self, memory_format=None: True,
    "share_memory_": lambda self: _shared(self),
    "is_shared": lambda self: self._graphc_values.is_shared(),
    "__deepcopy__": deepcopied, "__reduce_ex__": _reduced, "__repr__": printing.text,
    "__matmul__": lambda self, other: (
        T.matmul(self, other) if isinstance(other, Tensor) else NotImplemented
    ),
    "__rmatmul__": lambda self, other: T.matmul(other, self),
    "__getitem__": getitem,
    **{f"__{name}__": _comparison(name) for name in "eq ne lt le gt ge".split()},
    "__iter__": lambda self: iter([self[i] for i in range(len(self))]),
    "__abs__": FUNCTIONS["abs"], "__neg__": FUNCTIONS["neg"],
}
# methods and properties of every Tensor that look at sizes, dtypes and history alone, or that say
# what they do in operators
_INHERITED = frozenset("""
    __class__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __div__ __pow__
    __floordiv__ __pos__ __len__ __hash__ __init__ __new__ __setattr__ __getattribute__
    __delattr__ __dir__ __doc__ __format__ __init_subclass__ __module__ __reduce__ __sizeof__
    __str__ __subclasshook__ __dict__ __weakref__ __annotations__ __array_priority__ __getstate__
    T mT H mH shape dtype device ndim layout names name data grad grad_fn is_leaf requires_grad
    retains_grad output_nr is_cpu is_cuda is_mps is_meta is_vulkan is_ipu is_mkldnn is_xla is_xpu
    is_quantized is_nested is_sparse is_sparse_csr itemsize nbytes dim ndimension element_size
    get_device nelement is_inference is_conj is_neg register_hook retain_grad
    register_post_accumulate_grad_hook _version _is_view is_same_size is_pinned
    __torch_function__ __class_getitem__ __static_attributes__ __firstlineno__
""".split())


def _shared(self: SparseTensor) -> SparseTensor:
    pattern = self._graphc_pattern
    for name in ("indices",) if isinstance(pattern, Pattern) else ("starts", "plain"):
        getattr(pattern, name).share_memory_()
    self._graphc_values.share_memory_()
    return self


def _refused(name: str) -> Callable[..., NoReturn]:
    def missing(self: SparseTensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise refusal(name, self)

    missing.__name__ = name
    missing.__doc__ = "Raises NotImplementedError."
    return missing




def _no_strides(self: SparseTensor, *args: Any) -> NoReturn:
    raise _error("sparse tensors do not have strides. Cure: x.to_dense()")


def _no_storage(self: SparseTensor) -> NoReturn:
    raise NotImplementedError(located(
        "Cannot access storage of SparseTensorImpl. Cure: x.values(), or x.to_dense()"
    ))


def _numpy(self: SparseTensor, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(located(
        f"can't convert {self.layout} layout tensor to numpy. Use Tensor.to_dense() first."
    ))


METHODS |= {
    "stride": _no_strides, "storage": _no_storage, "untyped_storage": _no_storage,
    "data_ptr": _no_storage, "storage_offset": lambda self: 0,
    "numpy": _numpy, "__array__": _numpy,
}


def _suspended(value: property) -> property:
    """A property of every Tensor, read as it is outside of a trace."""
    assert value.fget is not None
    setter = None if value.fset is None else outside(value.fset)
    return property(outside(value.fget), setter, value.fdel)


def attach() -> None:
    """Give SparseTensor its methods, and refuse those of dense tensors that it does not have."""
    for name in dir(Tensor):
        value = inspect.getattr_static(Tensor, name)
        if name in _INHERITED or (name.startswith(("_graphc_", "__")) and not callable(value)):
            continue
        if callable(value) and (not name.startswith("_") or name.startswith("__")) and (
            value is not object.__dict__.get(name)
        ):
            setattr(SparseTensor, name, _refused(name))
    for name in ("grad", "grad_fn", "is_leaf", "requires_grad", "retains_grad", "output_nr"):
        setattr(SparseTensor, name, _suspended(inspect.getattr_static(Tensor, name)))
    for name in ("register_hook", "retain_grad", "register_post_accumulate_grad_hook"):
        setattr(SparseTensor, name, outside(getattr(Tensor, name)))
    setattr(SparseTensor, "data", property(outside(METHODS["detach"]), outside(_set_data)))  # noqa: B010
    for name, method in METHODS.items():
        made = GO_ON.get(name, outside)(method)
        made.__name__ = name
        setattr(SparseTensor, name, made)
    setattr(SparseTensor, "is_sparse", property(lambda self: self.layout is sparse_coo))  # noqa: B010
    setattr(SparseTensor, "is_sparse_csr", property(lambda self: self.layout is sparse_csr))  # noqa: B010
    setattr(SparseTensor, "nbytes", property(_bytes))  # noqa: B010
    SparseTensor._graphc_functions = FUNCTIONS
    SparseTensor._graphc_operators = {
        name: outside(rule) for name, rule in OPERATORS.items()
    } | {"dot_general": recorded_dot_general, "permute": relabelled(arithmetic.permute)}
    SparseTensor._graphc_refusal = staticmethod(refusal)  # type: ignore[attr-defined]


def _set_data(self: SparseTensor, value: Any) -> None:
    if not isinstance(value, SparseTensor) or value.layout is not self.layout:
        raise _error(
            "assigning .data of a sparse tensor: the value has another layout. Cure: "
            "x.to_sparse()"
        )
    self._graphc_pattern, self._graphc_values = value._graphc_pattern, value._graphc_values


def _bytes(self: SparseTensor) -> int:
    return math.prod(self.shape) * self.dtype.itemsize

