"""Few random numbers straight into an array, the state moving on in place, as functions for Python:
what they cost beside the numbers is a call. The bits are those of stream.py and of NumPy's.

A function's record: the code that makes numbers, the words that it takes (none: it is given the
state), the numbers it makes, two integers that it is given, and None.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from graphc.backends.host.layouts import DATA, layout
from graphc.backends.host.methods import address_of, bound, method
from graphc.backends.llvm.library import Library
from graphc.ir.normal_numbers import PI

ROOM = 1024  # words at most
# (code of stream_text.py, words for each number, integers)
Spelled = tuple[str, int, tuple[int, ...]]
Into = Callable[[Any, Any], Any]  # (state, memory): None where the state is not as it should be
SCALED = "normals_scaled"  # normal numbers times `std` plus `mean`, which are float32's
KEPT = "kept_scaled"  # `scale` where rng_bernoulli has 1
_BLOCK = 16  # fewer normal numbers than that come by pairs
_NORMAL = {"f32": "normals32", "f64": "normals64"}


def addresses() -> dict[str, int]:
    """Of what DRAW calls."""
    return {name: address_of(name) for name in ("Py_IncRef", "PyLong_AsVoidPtr")}


def drawer(
    library: Library, address: Callable[[str], int], name: str, attrs: Mapping[str, Any],
    spelled: Spelled | None,
) -> Into | None:
    """What an operator with these attributes draws, into row-major memory of its dtype and size;
    None: it is not for few numbers. `library`: has DRAW; `address`: of code by its name, which
    somebody keeps; `spelled`: all but normal numbers."""
    if layout() is None:
        return None
    if name == "rng_permutation":
        n = attrs["n"]
        if not 0 < n <= ROOM:
            return None
        return _Drawing(library, address("order"), n - 1, n, ()).draw
    if "shape" not in attrs:
        return None
    if name == "rng_normal" and attrs["dtype"].name in _NORMAL:
        spelled = _NORMAL[attrs["dtype"].name], 1 + (attrs["dtype"].name == "f64"), ()
    count = math.prod(attrs["shape"])
    if name == SCALED and attrs["dtype"].name == "f32" and (
        count >= _BLOCK or attrs["mean"] == 0  # by pairs: in one rounding, which is not this
    ):
        scale = struct.pack("<2d", attrs["std"], attrs["mean"])
        spelled = "scaled32", 1, struct.unpack("<2q", scale)
    if spelled is None or spelled[1] * count > ROOM:
        return None
    code, each, numbers = spelled
    words = 0 if name in ("rng_normal", SCALED) else each * count
    return _Drawing(library, address(code), words, count, numbers).draw


class _Drawing:
    """Keeps what a function reads."""

    def __init__(
        self, library: Library, code: int, words: int, count: int, numbers: tuple[int, ...]
    ) -> None:
        both = (*numbers, 0, 0)[:2]
        self._record = (ctypes.c_int64 * 6)(code, words, count, *both, id(None))
        self._method = method("draw", library.address("graphc_stream_draw"))
        self._library = library
        self._draw: Into = bound(self._method, ctypes.addressof(self._record))

    def draw(self, state: Any, memory: Any) -> Any:
        """The memory; None where nothing was drawn."""
        return self._draw(state, memory)


# --- text ----------------------------------------------------------------------------------------


def _bits(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


# what joins a module that has graphc_stream_words
DRAW = f"""
declare void @Py_IncRef(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
define ptr @graphc_stream_draw(ptr %self, ptr %args, i64 %n) {{
  %words = alloca [{ROOM} x i32], align 16
  %record = call ptr @PyLong_AsVoidPtr(ptr %self)
  %state.of = load ptr, ptr %args
  %state.at = getelementptr i8, ptr %state.of, i64 {DATA}
  %state = load ptr, ptr %state.at
  %memory.in = getelementptr ptr, ptr %args, i64 1
  %memory = load ptr, ptr %memory.in
  %out.at = getelementptr i8, ptr %memory, i64 {DATA}
  %out = load ptr, ptr %out.at
  %place.at = getelementptr i64, ptr %state, i64 624
  %place = load i64, ptr %place.at
  %right = icmp ule i64 %place, 624
  br i1 %right, label %begin, label %nothing
begin:
  %code = load ptr, ptr %record
  %needed.at = getelementptr i64, ptr %record, i64 1
  %needed = load i64, ptr %needed.at
  %count.at = getelementptr i64, ptr %record, i64 2
  %count = load i64, ptr %count.at
  %one.at = getelementptr i64, ptr %record, i64 3
  %one = load i64, ptr %one.at
  %other.at = getelementptr i64, ptr %record, i64 4
  %other = load i64, ptr %other.at
  %wants = icmp sgt i64 %needed, 0
  br i1 %wants, label %draw, label %make
draw:
  call void @graphc_stream_words(ptr %state, ptr %words, i64 %needed)
  br label %make
make:
  %from = phi ptr [ %state, %begin ], [ %words, %draw ]
  call void %code(ptr %from, ptr %out, i64 %count, i64 %one, i64 %other)
  br label %end
nothing:
  %none.at = getelementptr i64, ptr %record, i64 5
  %none = load ptr, ptr %none.at
  br label %end
end:
  %found = phi ptr [ %memory, %make ], [ %none, %nothing ]
  call void @Py_IncRef(ptr %found)
  ret ptr %found
}}
"""

# 0 to count - 1 in an order that takes a word for each but one; see stream_text.py
_ORDER = """
define void @graphc_stream_order(ptr %words, ptr %out, i64 %count, i64 %u, i64 %v) {
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %next, label %end
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %next ]
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %i, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %swap
swap:
  %swaps = sub i64 %count, 1
  call void @graphc_stream_permute(ptr %words, ptr %out, i64 0, i64 %swaps, i64 %count)
  br label %end
end:
  ret void
}
"""

# a number where 53 bits of two words are below a limit, else 0
_KEPT = """
define void @graphc_stream_kept{bits}(
    ptr %words, ptr %out, i64 %count, i64 %limit, i64 %number.bits) {{
  %given = bitcast i64 %number.bits to double
  %kept = {rounded}
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %next, label %end
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %next ]
  %at = getelementptr i64, ptr %words, i64 %i
  %pair = load i64, ptr %at, align 4
  %up = shl i64 %pair, 32
  %down = lshr i64 %pair, 32
  %number = or i64 %up, %down
  %low = and i64 %number, 9007199254740991
  %less = icmp ult i64 %low, %limit
  %value = select i1 %less, {kind} %kept, {kind} 0.0
  %to = getelementptr {kind}, ptr %out, i64 %i
  store {kind} %value, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""

# the f64 numbers of stream_text.py, rounded
_EXPONENTIALS = f"""
define void @graphc_stream_exponential32(ptr %words, ptr %out, i64 %count, i64 %u, i64 %v) {{
  %wide = alloca [{ROOM // 2} x double], align 16
  call void @graphc_stream_exponential(ptr %words, ptr %wide, i64 %count)
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %next, label %end
next:
  %i = phi i64 [ 0, %0 ], [ %i.next, %next ]
  %at = getelementptr double, ptr %wide, i64 %i
  %double = load double, ptr %at
  %value = fptrunc double %double to float
  %to = getelementptr float, ptr %out, i64 %i
  store float %value, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""

# fewer than 16, one after the other; goes on at `blocks` where there are more
_FEW = """\
  %few = icmp slt i64 %count, 16
  br i1 %few, label %pairs, label %blocks
pairs:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %next, label %end
next:
  %i = phi i64 [ 0, %pairs ], [ %i.next, %next ]
  %double = call double @graphc_stream_normal(ptr %state)
  {made}
  %to = getelementptr {kind}, ptr %out, i64 %i
  store {kind} %value, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %end
blocks:
"""

# fewer than 16 come by pairs, of which the state keeps the second; more by blocks of 16, the last
# of which are drawn again where the count is no multiple
_NORMALS = """
define void @graphc_stream_normals{bits}(ptr %state, ptr %out, i64 %count, i64 %u, i64 %v) {{
  %words = alloca [{room} x i32], align 16
  %again = alloca [16 x {kind}], align 16
{few}  %all = mul i64 %count, {each}
  call void @graphc_stream_words(ptr %state, ptr %words, i64 %all)
  call void @graphc_stream_unit{bits}(ptr %words, ptr %out, i64 %count)
  %whole = and i64 %count, -16
  call void @graphc_stream_normal{bits}(ptr %out, i64 %whole)
  %even = icmp eq i64 %whole, %count
  br i1 %even, label %end, label %rest
rest:
  call void @graphc_stream_words(ptr %state, ptr %words, i64 {last})
  call void @graphc_stream_unit{bits}(ptr %words, ptr %again, i64 16)
  call void @graphc_stream_normal{bits}(ptr %again, i64 16)
  %first = sub i64 %count, 16
  %behind = getelementptr {kind}, ptr %out, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %behind, ptr %again, i64 {bytes}, i1 false)
  br label %end
end:
  ret void
}}
"""

# few are scaled in float64; more in float32, or, where a mean is added, in nearly one rounding
_SCALED = """
define void @graphc_stream_scaled32(
    ptr %state, ptr %out, i64 %count, i64 %std.bits, i64 %mean.bits) {{
  %std = bitcast i64 %std.bits to double
  %mean = bitcast i64 %mean.bits to double
  %std.single = fptrunc double %std to float
  %mean.single = fptrunc double %mean to float
  %std.wide = fpext float %std.single to double
  %mean.wide = fpext float %mean.single to double
  %centred = fcmp oeq double %mean, 0.0
{few}  call void @graphc_stream_normals32(ptr %state, ptr %out, i64 %count, i64 0, i64 0)
  br label %each
each:
  %j = phi i64 [ 0, %blocks ], [ %j.next, %each ]
  %at = getelementptr float, ptr %out, i64 %j
  %one = load float, ptr %at
  %alone = fmul float %one, %std.single
  %wide = fpext float %one to double
  %product = fmul double %wide, %std.wide
  %sum = fadd double %product, %mean.wide
  %moved = fptrunc double %sum to float
  %found = select i1 %centred, float %alone, float %moved
  store float %found, ptr %at
  %j.next = add i64 %j, 1
  %rest = icmp slt i64 %j.next, %count
  br i1 %rest, label %each, label %end
end:
  ret void
}}
"""

PAIR = f"""
declare double @sin(double)
declare double @cos(double)
declare double @log1p(double)
declare double @llvm.sqrt.f64(double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define internal double @graphc_stream_normal(ptr %state) {{
  %words = alloca [4 x i32], align 16
  %u = alloca [2 x double], align 16
  %spare.at = getelementptr i64, ptr %state, i64 625
  %spare = load i64, ptr %spare.at
  %some = icmp ne i64 %spare, -1
  br i1 %some, label %kept, label %new
kept:
  store i64 -1, ptr %spare.at
  %given = bitcast i64 %spare to double
  ret double %given
new:
  call void @graphc_stream_words(ptr %state, ptr %words, i64 4)
  call void @graphc_stream_unit64(ptr %words, ptr %u, i64 2)
  %u.1 = load double, ptr %u
  %u.2.at = getelementptr double, ptr %u, i64 1
  %u.2 = load double, ptr %u.2.at
  %negative = fneg double %u.2
  %log = call double @log1p(double %negative)
  %inner = fmul double %log, {_bits(-2.0)}
  %radius = call double @llvm.sqrt.f64(double %inner)
  %theta = fmul double %u.1, {_bits(2.0 * PI)}
  %sine = call double @sin(double %theta)
  %second = fmul double %radius, %sine
  %bits = bitcast double %second to i64
  store i64 %bits, ptr %spare.at
  %cosine = call double @cos(double %theta)
  %first = fmul double %radius, %cosine
  ret double %first
}}
"""


# what joins each library of stream.py, and what that calls of others
FUNCTIONS = {
    "normal": ("normals32", "normals64", "scaled32"), "chances": ("kept32", "kept64"),
    "integers": ("order",), "exponential": ("exponential32",),
}
CALLED = {"normal": ("words", "unit32", "unit64")}
_KINDS = (
    (32, "float", 1, "fptrunc double %double to float"),
    (64, "double", 2, "fadd double %double, -0.0"),
)


def text(library: str, declared: str) -> str:
    """What joins a library of stream.py whose text so far is `declared`."""
    parts: dict[str, Callable[[], list[str]]] = {
        "normal": _normal_text, "chances": _kept_text, "integers": lambda: [_ORDER],
        "exponential": lambda: [_EXPONENTIALS],
    }
    lines = "\n".join(parts[library]()).splitlines() if library in parts else []
    return "\n".join(
        line for line in lines if not (line.startswith("declare") and line in declared)
    )


def _kept_text() -> list[str]:
    return [
        _KEPT.format(bits=bits, kind=kind, rounded=rounded.replace("%double", "%given"))
        for bits, kind, _, rounded in _KINDS
    ]


def _normal_text() -> list[str]:
    blocks = [
        _NORMALS.format(
            bits=bits, kind=kind, each=each, last=16 * each, bytes=2 * bits, room=ROOM,
            few=_FEW.format(kind=kind, made=f"%value = {rounded}"),
        )
        for bits, kind, each, rounded in _KINDS
    ]
    scaled = "%scaled = fmul double %double, %std\n  %value = fptrunc double %scaled to float"
    return [PAIR, *blocks, _SCALED.format(few=_FEW.format(kind="float", made=scaled))]
