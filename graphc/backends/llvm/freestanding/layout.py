"""How a freestanding library lays out what it keeps: a context, its pool, the records that describe
a model. Those that C sees are declared in export/aot/header.py."""

from __future__ import annotations

import enum

from graphc.backends.host.interface import Place

# what C declares, as LLVM types
ENTRY = "{ ptr, i32, i32, ptr }"  # name, dtype, rank, shape
SIZE = "{ ptr, i64, i64 }"  # name, least, most
TENSOR = "{ ptr, i64, i32, i32, ptr }"  # data, bytes, dtype, rank, shape
OPTIONS = "{ i32, i32, ptr, ptr, ptr, i64, ptr, i64, ptr, ptr, i64 }"


class Option(enum.IntEnum):
    """The fields of OPTIONS."""

    ABI = 0
    THREADS = enum.auto()
    SIZES = enum.auto()
    WEIGHTS_PATH = enum.auto()
    WEIGHTS = enum.auto()
    WEIGHTS_BYTES = enum.auto()
    MEMORY = enum.auto()
    MEMORY_BYTES = enum.auto()
    CPU = enum.auto()
    MESSAGE = enum.auto()
    MESSAGE_BYTES = enum.auto()


class Tensor(enum.IntEnum):
    """The fields of TENSOR."""

    DATA = 0
    BYTES = enum.auto()
    DTYPE = enum.auto()
    RANK = enum.auto()
    SHAPE = enum.auto()


class Word(enum.IntEnum):
    """Words of a context, of 8 bytes each; addresses are words, too. The first two are what a text
    is written to (messages.py): an address and how many bytes are there."""

    MESSAGE = 0
    MESSAGE_BYTES = enum.auto()
    MAGIC = enum.auto()  # the address of something of this library's own
    BUSY = enum.auto()
    THREADS = enum.auto()
    LEVEL = enum.auto()  # the number of the level whose code runs
    MEMORY = enum.auto()  # what malloc gave; 0: the caller's
    MAPPED = enum.auto()  # the weights' file, where create has mapped it,
    MAPPED_BYTES = enum.auto()
    ARENA = enum.auto()
    ARENA_BYTES = enum.auto()
    ROOM = enum.auto()  # scratch, and what the pool has for each thread
    ROOM_BYTES = enum.auto()
    LARGER = enum.auto()  # what malloc gave for a larger room; 0: nothing
    SCRATCH = enum.auto()
    BASE = enum.auto()  # where the weights' file lies in memory
    STATE = enum.auto()  # of a training step: what it changes


# variants of a level: which named sizes are 1 (a bit each), functions, where the words of the
# driver's block are, and what they are to hold
VARIANT = (
    "{ i64, ptr, ptr, ptr, i64, i64, i64, i64, i64, ptr, i64, ptr, i64, ptr, i64, ptr, ptr }"
)


class Variant(enum.IntEnum):
    """The fields of VARIANT."""

    ONES = 0
    RUN = enum.auto()  # i64 (ptr block): the driver's
    ARENA = enum.auto()  # i64 (ptr dims): bytes
    GUARDS = enum.auto()  # i32 (ptr messenger, ptr dims), or null
    BLOCK = enum.auto()  # where in a context its block begins, bytes
    INPUTS = enum.auto()  # words of the block
    OUTPUTS = enum.auto()
    DIMS = enum.auto()
    DIMS_COUNT = enum.auto()
    DIMS_FROM = enum.auto()  # i64 for each of the program's dims: which named size
    INPUTS_COUNT = enum.auto()
    INPUTS_FROM = enum.auto()  # i64 for each program input: the library's input, or -1
    OUTPUTS_COUNT = enum.auto()
    OUTPUTS_FROM = enum.auto()  # i64 for each program output: the library's output
    DATA_COUNT = enum.auto()
    DATA = enum.auto()  # { i64 word, i64 place } each
    CHECKS = enum.auto()  # for each leaf a table of templates, or null


LEVEL = "{ ptr, ptr, i64, ptr }"  # name, variants, how many, scratch by threads
ALIGN = 64
HEAD = 256  # bytes: the words; behind them the pool, and what emit_create lays out
POOL_BYTES = 1024
TEXT_BYTES = 1024
SLOTS = 64  # threads from which on scratch grows no more (ir/kernel/blocking.py: MOST_SLOTS)
THREAD_BYTES = 128 + 32  # of the pool for each thread: a counter of its own, and a record

WHERE = ("library", "file", "context")


def encoded(place: Place) -> int:
    """A place as a word: which of WHERE in its last two bits, and the offset."""
    return place.offset << 2 | WHERE.index(place.where)
