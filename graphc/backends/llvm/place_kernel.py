"""Kernels "place": tiles whose right operand is read under masks (see conv_places.py)."""

from graphc.backends.llvm.microkernel import (
    Tile,
    ask_for,
    emit_result,
    kernel_parameters,
    multiply_step,
    result_rows,
    row_addresses,
    tile_symbol,
)
from graphc.backends.llvm.text import Function, Module

OUTSIDE = 1  # added to the address of a register of which memory beside the operand may not be read


def emit_place_kernel(module: Module, tile: Tile, rows: int, width: int) -> None:
    """Defines one.

    A core waits for each load under a mask that misses the first cache before it begins another. So
    whole registers are loaded, and lanes cleared then, wherever that is allowed.
    """
    f = module.function(f"void {tile_symbol(tile, rows, width, 'place')}({kernel_parameters()})")
    places = row_addresses(f, rows)
    with f.when(f.cmp("ne", "%pitch", width * tile.lanes)):
        ask_for(f, result_rows(f, tile, rows, "%c"), width * tile.lanes * tile.bytes)
    table = f.let("inttoptr i64 %b_step to ptr")
    addresses, marks = [], "0"
    for index in range(width):
        word = f.load(f.gep("%b", index * tile.lanes, "i64"), "i64", 8)
        marks = f.let(f"or i64 {marks}, {word}")
        addresses.append(f.let(f"inttoptr i64 {f.let(f'and i64 {word}, {~OUTSIDE}')} to ptr"))
    outside, inside = f.label("outside"), f.label("inside")
    f.cond_br(f.cmp("ne", f.let(f"and i64 {marks}, {OUTSIDE}"), 0), outside, inside)
    for label in (outside, inside):
        f.block(label)
        begin = [(tile.vector, tile.zero())] * (rows * width)
        loop = f.carry_loop(0, "%steps", 1, [("i64", "0"), *begin])
        offset, *sums = loop.values
        step = f.gep(table, f.mul(loop.index, 2), "i64")
        columns = _columns(f, tile, addresses, step, label == outside)
        sums = multiply_step(f, tile, (places, offset), columns, sums)
        sums = loop.close([f.let(f"add i64 {offset}, %a_step"), *sums])[1:]
        # opaque, or the rows' addresses take registers from the loop
        c = f.let('call ptr asm "", "=r,0"(ptr %c)')
        emit_result(f, tile, result_rows(f, tile, rows, c), sums)


def _columns(
    f: Function, tile: Tile, addresses: list[str], step: str, masked: bool
) -> list[str]:
    """The registers of a step."""
    kind, bits = tile.vector, f"<{tile.lanes} x i1>"
    callee = f"@llvm.masked.load.v{tile.lanes}{tile.accumulator}.p0"
    f.module.declare(f"declare {kind} {callee}(ptr, i32, {bits}, {kind})")
    shift, at = (f.load(f.gep(step, word, "i64"), "i64", 8) for word in (0, 1))
    masks, columns = f.gep("%b", at, "i8"), []
    for index, address in enumerate(addresses):
        mask = f.load(f.gep(masks, index * tile.lanes, "i64"), f"i{tile.lanes}", 1)
        mask = f.let(f"bitcast i{tile.lanes} {mask} to {bits}")
        place = f.let(f"getelementptr i8, ptr {address}, i64 {shift}")
        if masked:
            arguments = (f"ptr {place}", f"i32 {tile.bytes}", f"{bits} {mask}")
            columns.append(f.call(kind, callee, *arguments, f"{kind} zeroinitializer"))
            continue
        value = f.load(place, kind, tile.bytes)
        # opaque, or it would be a load under a mask again
        value = f.let(f'call {kind} asm "", "=v,0"({kind} {value})')
        columns.append(f.let(f"select {bits} {mask}, {kind} {value}, {kind} zeroinitializer"))
    return columns
