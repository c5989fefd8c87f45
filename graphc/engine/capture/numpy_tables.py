"""NumPy's functions, by what they do; one that no row names is open, or recorded if it is Python.

Functions are known as objects, so that nobody's own function passes for NumPy's by its name. Names
that the installed NumPy lacks are left out. What a function does beside its result:

FUNCTIONS read their arguments, and the error state. They may write to arrays among them, which are
compared before and after the call. PRINTED read the print options, too. SETTINGS and TOLD change
and tell a setting of NumPy's. All others that a user meets read or write more: files (save, load,
memmap), memory (frombuffer, as_strided), the clock (datetime64("now")), generators (numpy.random),
or call functions that nobody records (vectorize, frompyfunc, nditer).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

_FUNCTIONS = {
    "numpy": """
        all allclose alltrue amax amin angle any append arange argmax argmin argpartition argsort
        argwhere around array array_equal array_equiv array_split asanyarray asarray
        asarray_chkfinite ascontiguousarray asfortranarray astype atleast_1d atleast_2d atleast_3d
        average bartlett base_repr binary_repr bincount blackman block broadcast_arrays
        broadcast_shapes broadcast_to busday_count busday_offset can_cast choose clip column_stack
        common_type compress concat concatenate convolve copy copyto corrcoef correlate
        count_nonzero cov cross cumprod cumsum cumulative_prod cumulative_sum datetime_as_string
        datetime_data delete diag diag_indices diag_indices_from diagflat diagonal diff digitize dot
        dsplit dstack ediff1d einsum einsum_path empty empty_like expand_dims extract eye
        fill_diagonal fix flatnonzero flip fliplr flipud fromiter full full_like geomspace gradient
        hamming hanning histogram histogram2d histogram_bin_edges histogramdd hsplit hstack i0
        identity imag in1d indices inner insert interp intersect1d is_busday isclose iscomplex
        iscomplexobj isdtype isfortran isin isneginf isposinf isreal isrealobj isscalar issubdtype
        iterable ix_ kaiser kron lexsort linspace logspace matrix_transpose max mean median meshgrid
        min min_scalar_type mintypecode moveaxis nan_to_num nanargmax nanargmin nancumprod nancumsum
        nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar ndim
        nonzero ones ones_like outer packbits pad partition percentile permute_dims place poly
        polyadd polyder polydiv polyfit polyint polymul polysub polyval prod promote_types ptp put
        put_along_axis putmask quantile ravel ravel_multi_index real real_if_close repeat require
        reshape resize result_type roll rollaxis roots rot90 round row_stack searchsorted select
        setdiff1d setxor1d shape sinc size sort sort_complex split squeeze stack std sum swapaxes
        take take_along_axis tensordot tile trace transpose trapezoid trapz tri tril tril_indices
        tril_indices_from trim_zeros triu triu_indices triu_indices_from typename union1d unique
        unique_all unique_counts unique_inverse unique_values unpackbits unravel_index unstack
        unwrap vander var vdot vsplit vstack where zeros zeros_like
    """,
    "numpy.linalg": """
        cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm
        matrix_power matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve svd
        svdvals tensordot tensorinv tensorsolve trace vecdot vector_norm
    """,
    "numpy.fft": """
        fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn
        rfft rfft2 rfftfreq rfftn
    """,
    "numpy.char": """
        add capitalize center count decode encode endswith equal expandtabs find greater
        greater_equal index isalnum isalpha isdecimal isdigit islower isnumeric isspace istitle
        isupper join less less_equal ljust lower lstrip mod multiply not_equal partition replace
        rfind rindex rjust rpartition rsplit rstrip split splitlines startswith str_len strip
        swapcase title translate upper zfill
    """,
    "numpy.strings": """
        capitalize center decode encode expandtabs ljust lower lstrip mod multiply partition replace
        rjust rpartition rstrip slice strip swapcase title translate upper zfill
    """,
    "numpy.lib.stride_tricks": "sliding_window_view",
    "numpy.finfo": "__new__", "numpy.iinfo": "__init__",
    # r_ and c_, mgrid and ogrid, s_ and index_exp
    "numpy.r_": "__getitem__", "numpy.mgrid": "__getitem__", "numpy.s_": "__getitem__",
}
_PRINTED = {"numpy": """
    array2string array_repr array_str format_float_positional format_float_scientific
"""}
# by the setting that they change, and that they tell
_SETTINGS = {
    "seterr": {"numpy": "seterr", "numpy.errstate": "__enter__ __exit__"},
    "setbufsize": {"numpy": "setbufsize"}, "set_printoptions": {"numpy": "set_printoptions"},
}
_TOLD = {
    "seterr": {"numpy": "geterr"}, "setbufsize": {"numpy": "getbufsize"},
    "set_printoptions": {"numpy": "get_printoptions"},
}
# methods in Python that change nothing but their object, and read what it was made of
_OF_NEW = {"numpy.errstate": "__init__", "numpy.ndenumerate": "__init__ __next__"}


# modules that NumPy imports when they are first asked for: until then nobody has their functions
_waiting = {"numpy.fft": None, "numpy.char": None, "numpy.strings": None}


def _found(path: str) -> Any:
    """A module, or a class or an object in one; None where there is none."""
    if path in sys.modules:
        return sys.modules[path]
    holder, _, name = path.rpartition(".")
    return getattr(sys.modules[holder], name, None) if holder in sys.modules else None


def _named(names: dict[str, str]) -> Iterator[tuple[int, Any]]:
    """Functions by their id, which the table keeps taken."""
    for path, text in names.items():
        owner = _found(path)
        if not isinstance(owner, (types.ModuleType, type)):
            owner = type(owner)
        for name in text.split():
            found = getattr(owner, name, None)
            if found is not None:
                yield id(found), found


def _ufuncs(path: str) -> Iterator[tuple[int, Any]]:
    """A module's own: C functions of the elements of their arguments."""
    for found in list(vars(_found(path)).values()):
        if type(found) is np.ufunc:
            yield id(found), found


_functions: dict[int, Any] = dict(_ufuncs("numpy")) | dict(
    _named({path: names for path, names in _FUNCTIONS.items() if path not in _waiting})
)


def functions() -> dict[int, Any]:
    """FUNCTIONS by their id, of the modules that there are."""
    for path in [path for path in _waiting if path in sys.modules]:
        _functions.update(_ufuncs(path))
        _functions.update(_named({path: _FUNCTIONS[path]}))
        _waiting.pop(path, None)
    return _functions


PRINTED: dict[int, Any] = dict(_named(_PRINTED))
OF_NEW: dict[int, Any] = dict(_named(_OF_NEW))
SETTINGS: dict[int, str] = {
    i: setting for setting, names in _SETTINGS.items() for i, _ in _named(names)
}
TOLD: dict[int, str] = {i: setting for setting, names in _TOLD.items() for i, _ in _named(names)}


def is_late(module: Any, name: str) -> bool:
    """Whether an attribute of NumPy is a module that is imported when it is asked for."""
    return module is np and f"numpy.{name}" in _waiting


# methods of ufuncs
OF_UFUNCS = frozenset("reduce accumulate outer reduceat at resolve_dtypes".split())
# methods of arrays and of NumPy's scalars: they read their arguments, and may write to the array
OF_ARRAYS = frozenset("""
    all any argmax argmin argpartition argsort as_integer_ratio astype bit_count byteswap choose
    clip compress conj conjugate copy cumprod cumsum diagonal dot fill flatten getfield hex
    is_integer item itemset max mean min newbyteorder nonzero partition prod ptp put ravel repeat
    reshape round searchsorted setfield sort squeeze std sum swapaxes take to_device tobytes tolist
    tostring trace transpose var view
    __abs__ __add__ __and__ __array__ __bool__ __ceil__ __complex__ __contains__ __copy__
    __deepcopy__ __divmod__ __eq__ __float__ __floor__ __floordiv__ __format__ __ge__ __getitem__
    __gt__ __hash__ __iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__
    __index__ __int__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __iter__ __itruediv__
    __ixor__ __le__ __len__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__
    __pos__ __pow__ __radd__ __rand__ __rdivmod__ __repr__ __rfloordiv__ __rlshift__ __rmatmul__
    __rmod__ __rmul__ __ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__
    __rxor__ __setitem__ __str__ __sub__ __truediv__ __trunc__ __xor__
""".split())
# texts that NumPy takes for the time it is
CLOCK = frozenset(("now", "today"))
