"""What a vector loop carries, combined over the threads of a group: within a warp by shuffles,
lanes in a fixed tree; then the warps of a block in their order, through shared memory.

Partial results of a block lie in one of two slots, which take turns: between two uses of a slot
all threads wait once for each other, at the use of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.backends.cuda.scalar import c_type, combine
from graphc.ir.kernel import Carry
from graphc.ir.kernel.combine import ARGUMENTS

_WARP = 32
_PLACE = 8 * _WARP  # bytes: a value of each warp


class Reductions:
    """Those of one kernel: the device functions that its stages call."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}

    def lines(self, carries: Sequence[Carry], group: int, slot: int) -> Iterator[str]:
        """What combines carries over a group; a slot has so many bytes."""
        if group == 1 or not carries:
            return
        inside = min(group, _WARP)
        mask = "mask_" if group < _WARP else "~0u"
        for value, index in _pairs(carries):
            yield f"{self._lanes(value, index)}<{inside}>({_refer(value, index)}, {mask});"
        if group <= _WARP:
            return
        yield f"unsigned char* const slot_ = shared + {slot} * turn_;"
        yield "turn_ ^= 1;"
        warp = "threadIdx.x / 32"
        for number, carry in enumerate(carries):
            place = f"{_slot(carry, number)}[{warp}]"
            yield f"if (threadIdx.x % 32 == 0) {place} = {carry.name};"
        yield "__syncthreads();"
        number = 0
        for value, index in _pairs(carries):
            slots = [_slot(value, number)] + ([_slot(index, number + 1)] if index else [])
            number += len(slots)
            call = f"{self._warps(value, index)}<{group // _WARP}>"
            yield f"{call}({_refer(value, index)}, {', '.join(slots)});"

    def _lanes(self, carry: Carry, index: Carry | None) -> str:
        name = _name("lanes", carry, index)
        if index is not None:
            self.functions[name] = _lanes_argument(name, carry, index)
            return name
        # the first lane's: of 0 and -0 the maximum may be either one, lane by lane
        first = carry.combine in ("max", "min") and carry.dtype.is_float
        last = "  *x = shuffle(mask, *x, threadIdx.x & 31 & ~(G - 1));\n" if first else ""
        self.functions[name] = f"""\
template <int G> __device__ inline void {name}({c_type(carry.dtype)}* x, unsigned mask) {{
  #pragma unroll
  for (int by = G / 2; by > 0; by /= 2) {{
    const {c_type(carry.dtype)} other = shuffle_xor(mask, *x, by);
    *x = {combine(carry.combine, carry.dtype, "*x", "other")};
  }}
{last}}}
"""
        return name

    def _warps(self, carry: Carry, index: Carry | None) -> str:
        name = _name("warps", carry, index)
        t = c_type(carry.dtype)
        if index is not None:
            i = c_type(index.dtype)
            self.functions[name] = f"""\
template <int WARPS> __device__ inline void {name}(
    {t}* x, {i}* index, const {t}* s, const {i}* at) {{
  *x = s[0];
  *index = at[0];
  #pragma unroll
  for (int w = 1; w < WARPS; w++) {{
{_choice(carry, "s[w]", "at[w]")}  }}
}}
"""
        else:
            self.functions[name] = f"""\
template <int WARPS> __device__ inline void {name}({t}* x, const {t}* s) {{
  *x = s[0];
  #pragma unroll
  for (int w = 1; w < WARPS; w++) *x = {combine(carry.combine, carry.dtype, "*x", "s[w]")};
}}
"""
        return name


def slot_bytes(carries: Sequence[Carry]) -> int:
    """Of one of the two slots."""
    return _PLACE * len(carries)


def _slot(carry: Carry, number: int) -> str:
    return f"(({c_type(carry.dtype)}*)(slot_ + {_PLACE * number}))"


def _pairs(carries: Sequence[Carry]) -> Iterator[tuple[Carry, Carry | None]]:
    """Each carry, one of an argument with its index."""
    for number, carry in enumerate(carries):
        if carry.combine in ARGUMENTS:
            yield carry, carries[number + 1]
        elif carry.combine != "index":
            yield carry, None


def _refer(value: Carry, index: Carry | None) -> str:
    return f"&{value.name}" + (f", &{index.name}" if index is not None else "")


def _name(what: str, carry: Carry, index: Carry | None) -> str:
    return f"{what}_{carry.combine}_{carry.dtype.name}" + (f"_{index.dtype.name}" if index else "")


def _lanes_argument(name: str, carry: Carry, index: Carry) -> str:
    t, i = c_type(carry.dtype), c_type(index.dtype)
    return f"""\
template <int G> __device__ inline void {name}({t}* x, {i}* index, unsigned mask) {{
  #pragma unroll
  for (int by = G / 2; by > 0; by /= 2) {{
    const {t} other = shuffle_xor(mask, *x, by);
    const {i} place = shuffle_xor(mask, *index, by);
{_choice(carry, "other", "place")}  }}
}}
"""


def _choice(carry: Carry, other: str, place: str) -> str:
    """Of equal values the lower index wins."""
    better = f"better_{carry.combine[3:]}"
    return (
        f"    const bool tie = !{better}(*x, {other}) && {place} < *index;\n"
        f"    if ({better}({other}, *x) || tie) {{ *x = {other}; *index = {place}; }}\n"
    )
