"""Two stores side by side, as of the parts of complex numbers: whole registers, interleaved."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.llvm.emit_ask import Access
from graphc.backends.llvm.emit_scalar import Scalars
from graphc.backends.llvm.values import memory_type, suffix
from graphc.ir.kernel import Literal, Stmt, Store, Var


class Beside(Scalars):
    """Emits pairs of stores."""

    def store_beside(self, first: Store, following: Sequence[Stmt]) -> bool:
        """Emits both stores, where the one that follows fills what the first leaves out: every
        other place of a vector loop. False: nothing is emitted."""
        if self.lanes == 1 or len(following) != 1 or not isinstance(following[0], Store):
            return False
        second = following[0]
        if second.buffer != first.buffer or any(
            store.combine or store.mask is not None or not isinstance(store.value, Literal | Var)
            for store in (first, second)
        ):
            return False
        where, other = self.affine(first.index), self.affine(second.index)
        buffer = self.buffers[first.buffer]
        if not self._is_even(where, buffer.dtype) or other != where._replace(
            constant=where.constant + 1, level=other.level
        ):
            return False
        live = self.scopes[-1].mask
        if live is not None and self.target.vector_bytes < 64:
            return False
        access = Access(buffer, where, live, self.depth)
        self._store_interleaved(access, *map(self._value_in_lanes, (first, second)))
        if buffer.mutable:
            self.epoch += 1
        return True

    def _value_in_lanes(self, store: Store) -> str:
        text = self.splat(self.value(store.value), self.lanes)
        return self._to_memory(text, self.buffers[store.buffer].dtype, self.lanes)

    def _store_interleaved(self, access: Access, low: str, high: str) -> None:
        dtype, lanes = access.dtype, self.lanes
        kind, bits = memory_type(dtype, lanes), f"<{lanes} x i1>"
        address = self.address(access.buffer, access.where).value
        for part in (0, lanes):
            places = range(part, part + lanes)
            text = self._shuffled(kind, low, high, [at // 2 + lanes * (at % 2) for at in places])
            place = self.fn.let(
                f"getelementptr {memory_type(dtype)}, ptr {address}, i64 {part}", "p"
            )
            if access.mask is None:
                self.fn.store(text, kind, place, dtype.itemsize)
                continue
            mask = self._shuffled(bits, access.mask, "poison", [at // 2 for at in places])
            name = f"@llvm.masked.store.{suffix(dtype, lanes, memory=True)}.p0"
            self.module.declare(f"declare void {name}({kind}, ptr, i32, {bits})")
            self.fn.call("void", name, f"{kind} {text}", f"ptr {place}", f"i32 {dtype.itemsize}",
                         f"{bits} {mask}")
