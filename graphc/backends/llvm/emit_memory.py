"""Loads and stores: scalar, contiguous, reversed, gathered and scattered, each with masks.

A scalar access under a false mask goes to a dummy address instead of a branch, so that every
load is straight-line code and can be hoisted.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.backends.llvm import around
from graphc.backends.llvm.emit_ask import Access, Asking
from graphc.backends.llvm.emit_context import Buffer
from graphc.backends.llvm.emit_index import Affine
from graphc.backends.llvm.prefetch import Key
from graphc.backends.llvm.values import (
    Value,
    constant,
    lane_numbers,
    memory_type,
    register_type,
    shuffle_mask,
    suffix,
)
from graphc.ir import dtypes
from graphc.ir.dim import Dim, Size
from graphc.ir.dtypes import DType
from graphc.ir.kernel.combine import COMBINES


class Memory(Asking):
    """Emits memory accesses. `turned`: what the iteration has loaded already."""

    turned: Mapping[Key, str] = {}


    def _lane_addresses(self, access: Access) -> str:
        """A vector of pointers, one a lane."""
        where, kind = access.where, memory_type(access.dtype)
        base = self.address(access.buffer, where).value
        offsets, element = where.general, where.general_type
        if where.stride:
            fits = abs(where.stride) * self.lanes < (1 << 31)
            element = element or ("i32" if fits else "i64")
            steps = lane_numbers(self.lanes, element, where.stride)
            if offsets is None:
                offsets = steps
            else:
                offsets = self.fn.let(f"add <{self.lanes} x {element}> {offsets}, {steps}")
        elif offsets is None:
            element, offsets = "i32", "zeroinitializer"
        index = f"<{self.lanes} x {element}> {offsets}"
        return self.fn.let(f"getelementptr {kind}, ptr {base}, {index}", "p")

    def _guarded(self, address: str, mask: str | None, other: str = "") -> str:
        """The address, or a harmless one where a scalar mask is false."""
        if mask is None:
            return address
        return self.fn.let(f"select i1 {mask}, ptr {address}, ptr {other or self.fn.spare()}", "p")

    # Registers and memory hold bool differently

    def _to_register(self, text: str, dtype: DType, lanes: int) -> str:
        if dtype is not dtypes.bool_:
            return text
        return self.fn.let(
            f"trunc {memory_type(dtype, lanes)} {text} to {register_type(dtype, lanes)}"
        )

    def _to_memory(self, text: str, dtype: DType, lanes: int) -> str:
        if dtype is not dtypes.bool_:
            return text
        return self.fn.let(
            f"zext {register_type(dtype, lanes)} {text} to {memory_type(dtype, lanes)}"
        )

    # Loads

    def load(self, name: str, size: Size, mask: Value | None, other: Value | None) -> Value:
        """buffer[index], or `other` where the mask is false."""
        buffer = self.buffers[name]
        if mask is None and (name, size) in self.turned:
            return Value(self.turned[name, size], buffer.dtype, self.lanes, self.depth)
        where = self.affine(size)
        level = max(
            [self.check_level(), where.level, *(p.level for p in where.parts)]
            + [v.level for v in (mask, other) if v is not None]
        )
        if buffer.mutable:
            level = self.depth
        if not where.uniform:
            level = max(level, self.vector_level)
        version = self.epoch if buffer.mutable else 0
        texts = tuple(v.text for v in (mask, other) if v is not None)
        key = ("load", name, where, version, texts, self.lanes)
        access = Access(buffer, where, None, level, self._padded(buffer, size))
        if where.uniform and (mask is None or mask.lanes == 1):
            text = self.compute(level, key, lambda: self._load_scalar(access, mask, other))
            lanes = 1 if other is None else other.lanes
        else:
            text = self.compute(level, key, lambda: self._load_lanes(access, mask, other))
            lanes = self.lanes
            further: Size | None
            further = (self.again.get(self.vector_loop) or self.ahead).get((name, size))
            if self.all_masked and self.depth == self.vector_level and where.general is None:
                further = self.along.get(name)
            if further is not None and where.stride == 1:
                self._ask_ahead(access, further, self._cache(buffer, further))
        return Value(text, buffer.dtype, lanes, level, not buffer.mutable)

    def _load_scalar(self, access: Access, mask: Value | None, other: Value | None) -> str:
        dtype = access.dtype
        address = str(self.address(access.buffer, access.where).value)
        address = self._guarded(address, mask.text if mask else None)
        text = self.fn.load(address, memory_type(dtype), dtype.itemsize)
        text = self._to_register(text, dtype, 1)
        if mask is None or other is None:
            return text
        lanes = other.lanes
        text = self.splat_now(text, dtype, lanes)
        return self.operations(lanes).select(
            mask.text if lanes == 1 else self.splat(mask, lanes), dtype, text, other.text
        )

    def splat_now(self, text: str, dtype: DType, lanes: int) -> str:
        """A scalar in every lane, emitted here and not remembered."""
        if lanes == 1:
            return text
        kind = register_type(dtype, lanes)
        first = self.fn.let(f"insertelement {kind} poison, {register_type(dtype)} {text}, i64 0")
        zero = f"<{lanes} x i32> zeroinitializer"
        return self.fn.let(f"shufflevector {kind} {first}, {kind} poison, {zero}")

    def _load_lanes(self, access: Access, mask: Value | None, other: Value | None) -> str:
        dtype, lanes = access.dtype, self.lanes
        wanted = self.splat(mask, lanes) if mask is not None else None
        live = self.both((self.scopes[access.level].mask, wanted), lanes)
        if other is None:
            fill = constant(0, dtype, lanes)
        else:
            fill = self.splat(other, lanes)
        where = access.where
        if where.uniform:
            return self._load_broadcast(access, live, fill)
        if where.stride == 1 and where.general is None:
            alike = mask.text if mask is not None and mask.lanes == 1 else None
            return self._load_contiguous(access, live, fill, alike)
        if where.stride == -1 and where.general is None and live is None:
            return self._load_reversed(access)
        if self._is_even(where, dtype):
            return self._load_even(access, live, fill)
        pointers = self._lane_addresses(access)
        return self._gather(dtype, pointers, live, fill)

    def _load_broadcast(self, access: Access, live: str | None, fill: str) -> str:
        """One address for all lanes, read if any lane wants it."""
        dtype, lanes = access.dtype, self.lanes
        address = str(self.address(access.buffer, access.where).value)
        if live is not None:
            address = self._guarded(address, self.any_lane(live, lanes))
        text = self.fn.load(address, memory_type(dtype), dtype.itemsize)
        splat = self.splat_now(self._to_register(text, dtype, 1), dtype, lanes)
        return splat if live is None else self.operations(lanes).select(live, dtype, splat, fill)

    def _load_contiguous(self, access: Access, live: str | None, fill: str, alike: str | None
                         ) -> str:
        """`alike`: all lanes' mask. A load of no lane takes 300 ns where there is no memory."""
        dtype, lanes = access.dtype, self.lanes
        kind, align = memory_type(dtype, lanes), dtype.itemsize
        address = str(self.address(access.buffer, access.where).value)
        address = self._guarded(address, alike, access.buffer.pointer())
        if live is None:
            return self._to_register(self.fn.load(address, kind, align), dtype, lanes)
        first = self._first(live)
        if first:
            first = lanes if access.whole else first
            text = self._first_loaded(address, dtype, [*range(first)], first)
            return self._or_fill(self._to_register(text, dtype, lanes), live, dtype, fill)
        fill = self._fill_in_memory(fill, dtype)
        name = f"@llvm.masked.load.{suffix(dtype, lanes, memory=True)}.p0"
        self.module.declare(f"declare {kind} {name}(ptr, i32, <{lanes} x i1>, {kind})")
        arguments = f"ptr {address}, i32 {align}, <{lanes} x i1> {live}, {kind} {fill}"
        return self._to_register(self.fn.let(f"call {kind} {name}({arguments})"), dtype, lanes)

    def _first(self, live: str | None) -> int:
        """Of a mask that is known and holds in the first lanes alone: in how many; 0: of another.
        Where registers have no masks (AVX2's masked stores take a dozen cycles each on AMD's
        cores), such an access is one of a shorter vector, which LLVM makes of halves."""
        if live is None or not live.startswith("<") or self.target.vector_bytes == 64:
            return 0
        return live.count("true")

    def _padded(self, buffer: Buffer, size: Size) -> bool:
        """Whether a vector loop goes along a Local to its end: vectors are then written and read
        as a whole, because a core forwards no store of two lanes to a load of four."""
        if not buffer.padded or not self.vector_var:
            return False
        ends = self.upper.get(self.vector_var) == buffer.padded - 1
        return ends and size == Dim.var(self.vector_var)

    def _first_loaded(self, address: str, dtype: DType, order: list[int], count: int) -> str:
        """The elements of that order among the next `count`, in the first lanes."""
        text = self.fn.load(address, memory_type(dtype, count), dtype.itemsize)
        kind, none = memory_type(dtype, count), ["i32 poison"] * (self.lanes - len(order))
        if count == 1:
            first = f"insertelement {memory_type(dtype, self.lanes)} poison, {kind} {text}, i64 0"
            return self.fn.let(first)
        places = ", ".join([*(f"i32 {place}" for place in order), *none])
        return self.fn.let(
            f"shufflevector {kind} {text}, {kind} poison, <{self.lanes} x i32> <{places}>"
        )

    def _or_fill(self, text: str, live: str, dtype: DType, fill: str) -> str:
        return self.operations(self.lanes).select(live, dtype, text, fill)

    def _is_even(self, where: Affine, dtype: DType) -> bool:
        """Whether lanes lie two apart, in pairs of registers."""
        apart = where.stride == 2 and where.general is None
        return apart and self.lanes % 2 == 0 and dtype.itemsize in (4, 8)

    def _load_even(self, access: Access, live: str | None, fill: str) -> str:
        """Every other element: two registers, which meet in the odd element that nobody wants, so
        that nothing behind the last lane is read. A gather would take a lane at a time."""
        dtype, lanes = access.dtype, self.lanes
        kind, bits = memory_type(dtype, lanes), f"<{lanes} x i1>"
        first = str(self.address(access.buffer, access.where).value)
        count = self._first(live)
        if live is not None and count:
            order = [2 * lane for lane in range(count)]
            text = self._first_loaded(first, dtype, order, 2 * count - 1)
            return self._or_fill(text, live, dtype, fill)
        half = lanes // 2
        element, last = memory_type(dtype), lanes - 1
        second = self.fn.let(f"getelementptr {element}, ptr {first}, i64 {last}", "p")
        # lane i is element 2 * i: of the second register, which begins at the last of the first,
        # its odd ones
        found = []
        for address, odd in ((first, 0), (second, 1)):
            if live is None:
                found.append(self.fn.load(address, kind, dtype.itemsize))
                continue
            spread = [
                half * odd + at // 2 if at % 2 == odd else lanes for at in range(lanes)
            ]
            mask = self._shuffled(bits, live, "zeroinitializer", spread)
            name = f"@llvm.masked.load.{suffix(dtype, lanes, memory=True)}.p0"
            self.module.declare(f"declare {kind} {name}(ptr, i32, {bits}, {kind})")
            arguments = f"ptr {address}, i32 {dtype.itemsize}, {bits} {mask}, {kind} poison"
            found.append(self.fn.let(f"call {kind} {name}({arguments})"))
        order = [2 * lane for lane in range(half)]
        order += [lanes + 2 * lane + 1 for lane in range(half)]
        low, high = found
        text = self._shuffled(kind, low, high, order)
        if live is None:
            return text
        return self.operations(lanes).select(live, dtype, text, fill)

    def _shuffled(self, kind: str, a: str, b: str, order: list[int]) -> str:
        lanes = ", ".join(f"i32 {lane}" for lane in order)
        return self.fn.let(
            f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> <{lanes}>"
        )

    def _load_reversed(self, access: Access) -> str:
        dtype, lanes = access.dtype, self.lanes
        kind = memory_type(dtype, lanes)
        last = self.address(access.buffer, access.where).value
        first = self.fn.let(f"getelementptr {memory_type(dtype)}, ptr {last}, i64 {1 - lanes}", "p")
        text = self.fn.load(first, kind, dtype.itemsize)
        backwards = ", ".join(f"i32 {lanes - 1 - lane}" for lane in range(lanes))
        mask = f"<{lanes} x i32> <{backwards}>"
        text = self.fn.let(f"shufflevector {kind} {text}, {kind} poison, {mask}")
        return self._to_register(text, dtype, lanes)

    def _gather(self, dtype: DType, pointers: str, live: str | None, fill: str) -> str:
        lanes = self.lanes
        kind = memory_type(dtype, lanes)
        fill = self._fill_in_memory(fill, dtype)
        name = f"@llvm.masked.gather.{suffix(dtype, lanes, memory=True)}.v{lanes}p0"
        self.module.declare(f"declare {kind} {name}(<{lanes} x ptr>, i32, <{lanes} x i1>, {kind})")
        mask = live if live is not None else "splat (i1 true)"
        arguments = (
            f"<{lanes} x ptr> {pointers}, i32 {dtype.itemsize}, <{lanes} x i1> {mask}, "
            f"{kind} {fill}"
        )
        return self._to_register(self.fn.let(f"call {kind} {name}({arguments})"), dtype, lanes)

    def _fill_in_memory(self, fill: str, dtype: DType) -> str:
        if dtype is dtypes.bool_ and not fill.startswith("%"):
            return "splat (i8 1)" if "true" in fill else "splat (i8 0)"
        return self._to_memory(fill, dtype, self.lanes)

    # Stores

    def store(self, name: str, size: Size, value: Value, mask: Value | None, combine: str) -> None:
        """buffer[index] = value (or combined with it) where the mask holds."""
        buffer = self.buffers[name]
        where = self.affine(size)
        live_lanes = self.scopes[-1].mask
        if self.lanes > 1:
            wanted = self.splat(mask, self.lanes) if mask is not None else None
            live = self.both((live_lanes, wanted), self.lanes)
            access = Access(buffer, where, live, self.depth, self._padded(buffer, size))
            text = self.splat(value, self.lanes)
            if where.uniform and (value.lanes > 1 or combine):
                self._store_serially(access, text, combine)
            elif where.uniform:
                once = None if live is None else self.any_lane(live, self.lanes)
                self._store_scalar(access, value.text, once, "")
            else:
                self._store_lanes(access, text, combine)
                if (further := self.ahead.get((name, size))) is not None:
                    self._ask_ahead(access, further, "i32 1, i32 3")
        else:
            access = Access(buffer, where, None, self.depth)
            self._store_scalar(access, value.text, mask.text if mask else None, combine)
        if buffer.mutable:
            self.epoch += 1

    def _store_scalar(self, access: Access, text: str, mask: str | None, combine: str) -> None:
        address = str(self.address(access.buffer, access.where).value)
        self._store_at(self._guarded(address, mask), access.dtype, text, combine)

    def _store_at(self, address: str, dtype: DType, text: str, combine: str) -> None:
        """A scalar store, or read, combine and write."""
        kind, align = memory_type(dtype), dtype.itemsize
        if combine:
            old = self._to_register(self.fn.load(address, kind, align), dtype, 1)
            text = self.combine_lanes(combine, dtype, old, text, 1)
        self.fn.store(self._to_memory(text, dtype, 1), kind, address, align)

    def combine_lanes(self, combine: str, dtype: DType, old: str, new: str, lanes: int) -> str:
        """combine(old, new) in every lane."""
        operations = self.operations(lanes)
        if combine in ("or", "and"):
            return operations.binary(combine, dtype, old, new)
        return operations.apply(COMBINES[combine].operator, dtype, [dtype, dtype], [new, old])

    def _store_lanes(self, access: Access, text: str, combine: str) -> None:
        dtype, lanes, where = access.dtype, self.lanes, access.where
        if combine and where.general is not None:  # lanes may meet in one place
            self._store_serially(access, text, combine)
            return
        kind, align = memory_type(dtype, lanes), dtype.itemsize
        fill = constant(0, dtype, lanes)
        if where.stride == 1 and where.general is None:
            if combine:
                old = self._load_contiguous(access, access.mask, fill, None)
                text = self.combine_lanes(combine, dtype, old, text, lanes)
            text = self._to_memory(text, dtype, lanes)
            address = str(self.address(access.buffer, where).value)
            if access.mask is None:
                around.store(self, access, text, address)
                return
            first = self._first(access.mask)
            if first and access.whole:
                self.fn.store(text, kind, address, align)
                return
            if first:
                self._store_first(text, address, dtype, first)
                return
            one_lane = access.mask.startswith("<") and access.mask.count("true") == 1
            if dtype.itemsize < 4 and one_lane:
                self._store_one_lane(access.mask, text, address, dtype)
                return
            name = f"@llvm.masked.store.{suffix(dtype, lanes, memory=True)}.p0"
            self.module.declare(f"declare void {name}({kind}, ptr, i32, <{lanes} x i1>)")
            mask = f"<{lanes} x i1> {access.mask}"
            self.fn.call("void", name, f"{kind} {text}", f"ptr {address}", f"i32 {align}", mask)
            return
        if self._is_even(where, dtype) and not combine and self.target.vector_bytes == 64:
            self._store_even(access, self._to_memory(text, dtype, lanes))
            return
        pointers = self._lane_addresses(access)
        if combine:
            old = self._gather(dtype, pointers, access.mask, fill)
            text = self.combine_lanes(combine, dtype, old, text, lanes)
        text = self._to_memory(text, dtype, lanes)
        name = f"@llvm.masked.scatter.{suffix(dtype, lanes, memory=True)}.v{lanes}p0"
        places = f"<{lanes} x ptr>"
        self.module.declare(f"declare void {name}({kind}, {places}, i32, <{lanes} x i1>)")
        mask = f"<{lanes} x i1> {access.mask or 'splat (i1 true)'}"
        arguments = f"{kind} {text}", f"{places} {pointers}", f"i32 {align}", mask
        self.fn.call("void", name, *arguments)

    def _store_even(self, access: Access, text: str) -> None:
        """Every other element: two registers under masks. A scatter takes a lane at a time."""
        dtype, lanes = access.dtype, self.lanes
        kind, bits = memory_type(dtype, lanes), f"<{lanes} x i1>"
        first = self.address(access.buffer, access.where).value
        name = f"@llvm.masked.store.{suffix(dtype, lanes, memory=True)}.p0"
        self.module.declare(f"declare void {name}({kind}, ptr, i32, {bits})")
        for part in (0, lanes):
            spread = [(part + at) // 2 if at % 2 == 0 else lanes for at in range(lanes)]
            live = "splat (i1 true)" if access.mask is None else access.mask
            mask = self._shuffled(bits, live, "zeroinitializer", spread)
            apart = self._shuffled(kind, text, "poison", spread)
            place = self.fn.let(
                f"getelementptr {memory_type(dtype)}, ptr {first}, i64 {part}", "p"
            )
            self.fn.call("void", name, f"{kind} {apart}", f"ptr {place}",
                         f"i32 {dtype.itemsize}", f"{bits} {mask}")

    def _store_first(self, text: str, address: str, dtype: DType, count: int) -> None:
        """The first lanes, as a vector of so many."""
        kind = memory_type(dtype, self.lanes)
        if count == 1:
            part = self.fn.let(f"extractelement {kind} {text}, i64 0")
        else:
            part = self.fn.let(
                f"shufflevector {kind} {text}, {kind} poison, {shuffle_mask(0, count)}"
            )
        self.fn.store(part, memory_type(dtype, count), address, dtype.itemsize)

    def _store_one_lane(self, mask: str, text: str, address: str, dtype: DType) -> None:
        """The one lane of a constant mask: LLVM 22 makes a 4-byte store of a masked one of less."""
        lane = mask.split(",").index(next(part for part in mask.split(",") if "true" in part))
        kind = memory_type(dtype)
        value = self.fn.let(
            f"extractelement {memory_type(dtype, self.lanes)} {text}, i64 {lane}"
        )
        place = self.fn.let(f"getelementptr {kind}, ptr {address}, i64 {lane}", "p")
        self.fn.store(value, kind, place, dtype.itemsize)

    def _store_serially(self, access: Access, text: str, combine: str) -> None:
        """Lane after lane, in order: places may repeat."""
        fn, dtype, lanes = self.fn, access.dtype, self.lanes
        kind = register_type(dtype, lanes)
        pointers = self._lane_addresses(access)
        mask = access.mask or "splat (i1 true)"
        with fn.loop(0, lanes) as lane:
            wanted = fn.let(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")
            with fn.when(wanted):
                address = fn.let(f"extractelement <{lanes} x ptr> {pointers}, i64 {lane}", "p")
                value = fn.let(f"extractelement {kind} {text}, i64 {lane}")
                self._store_at(address, dtype, value, combine)
