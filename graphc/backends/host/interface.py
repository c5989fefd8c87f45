"""What a freestanding library is to its callers, and what of a model's code it holds: plain values,
which whoever exports makes, and a backend turns into objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from graphc.ir.dim import Guard, Size

if TYPE_CHECKING:
    from graphc.ir.dtypes import DType
    from graphc.ir.kernel import Program

ABI = 1  # of the C interface: docs and headers name it
# dtypes as numbers, for callers
DTYPES = ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
# what calls answer
CODES = (
    "OK", "ARGUMENT", "DTYPE", "RANK", "SHAPE", "RANGE", "BYTES", "OVERLAP", "MEMORY", "FILE",
    "VALUE", "CPU", "BUSY", "THREADS",
)
CODE = {name: number for number, name in enumerate(CODES)}
MOST_THREADS = 1024


class Entry(NamedTuple):
    """A tensor that goes in or comes out. A size of an input is a number, a named size, or a named
    size times a number plus a number."""

    name: str
    dtype: DType
    shape: tuple[Size, ...]


class NamedSize(NamedTuple):
    """A size that each call may have another value of, and which."""

    name: str
    least: int
    most: int


class Place(NamedTuple):
    """Where data lies: in the "library", in the "file" beside it, or in the "context", of what a
    training step changes; bytes from the beginning."""

    where: str
    offset: int


class Result(NamedTuple):
    """What an output is: "output" `number` of the main program, a copy of input `number` or of
    output `number` ("input", "again"), of data at `place`, or a `size`."""

    kind: str
    number: int = 0
    place: Place | None = None
    size: Size = 0


class Number(NamedTuple):
    """What Python computes of numbers, to be computed to its bits. `kind`: "bool", "int" (of 64
    bits) or "float". `op` is "constant" (`value`; of a float, its bits as an integer), "held" (a
    Place), "given" (the number of an input), "dim" (a Size), "row" (of a table: its Place and how
    many rows; the operand says which), "item" (of a tuple of such constants), or an operation."""

    op: str
    kind: str
    operands: tuple[Number, ...] = ()
    value: Any = None


class Stored(NamedTuple):
    """A number that a call computes before all else, and keeps in the context. `said`: as people
    read it."""

    number: Number
    dtype: DType
    offset: int
    said: str


class Decided(NamedTuple):
    """A number that has to be what it was when the step was recorded, and what is said where it is
    not."""

    number: Number
    wanted: Number
    text: str


class State(NamedTuple):
    """A part of a step's state, and where in the context it lies."""

    entry: Entry
    offset: int


class Step(NamedTuple):
    """What a training step has besides its program: `memory` bytes in each context, and numbers.

    `first` is copied there as a context is made: to an offset, from a Place, so many bytes; `after`
    within it when a call went well: to, from, bytes. A file of the state is `head`, and then the
    states that `order` numbers; to be read, it wants a word for each state at `found`.
    `generators`: where the states of those lie that it draws from."""

    memory: int
    states: tuple[State, ...]
    first: tuple[tuple[int, Place, int], ...]
    after: tuple[tuple[int, int, int], ...]
    decided: tuple[Decided, ...]
    numbers: tuple[Stored, ...]
    head: bytes
    order: tuple[int, ...]
    found: int
    generators: tuple[int, ...] = ()


class Interface(NamedTuple):
    """What callers see. `file` is what the weights' file begins with, and `file_bytes` its size: 0
    where there is none. `step`: of a training step."""

    name: str
    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    results: tuple[Result, ...]  # one for each output
    sizes: tuple[NamedSize, ...]
    file: bytes = b""
    file_bytes: int = 0
    step: Step | None = None


class Code(NamedTuple):
    """A program for calls where the sizes named in `ones` are 1, and no other that may be. `inputs`
    has for each of the program's the library's input, or where it lies; None: nobody reads it.
    `outputs` has the library's output, or where in the context it goes. `scratch`: bytes of the
    templates for 1 to 64 threads. `guards`: what has to hold of the sizes."""

    ones: frozenset[str]
    program: Program
    inputs: tuple[int | Place | None, ...]
    constants: tuple[Place, ...]
    outputs: tuple[int | Place, ...]
    scratch: tuple[int, ...]
    guards: tuple[Guard, ...] = ()


class Level(NamedTuple):
    """The codes for one kind of CPU, by its name."""

    name: str
    codes: tuple[Code, ...]


class LibraryObjects(NamedTuple):
    """A library's code as relocatable objects; they want `data`, a name that begins where embedded
    Places are counted from."""

    objects: list[bytes]
    exports: list[str]
    data: str
    triple: str
    arch: str
