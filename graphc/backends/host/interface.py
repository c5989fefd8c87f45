"""What a freestanding library is to its callers, and what of a model's code it holds: plain values,
which whoever exports makes, and a backend turns into objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    """Where data lies: in the library, or in the file beside it; bytes from its beginning."""

    embedded: bool
    offset: int


class Result(NamedTuple):
    """What an output is: "output" `number` of the main program, a copy of input `number` or of
    output `number` ("input", "again"), of data at `place`, or a `size`."""

    kind: str
    number: int = 0
    place: Place | None = None
    size: Size = 0


class Interface(NamedTuple):
    """What callers see. `file` is what the weights' file begins with, and `file_bytes` its size: 0
    where there is none."""

    name: str
    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    results: tuple[Result, ...]  # one for each output
    sizes: tuple[NamedSize, ...]
    file: bytes = b""
    file_bytes: int = 0


class Code(NamedTuple):
    """A program for calls where the sizes named in `ones` are 1, and no other that may be. `inputs`
    has for each of the program's the library's input, or where a weight lies; None: nobody reads
    it. `outputs` has the library's output. `scratch`: bytes of the templates for 1 to 64 threads.
    `guards`: what has to hold of the sizes."""

    ones: frozenset[str]
    program: Program
    inputs: tuple[int | Place | None, ...]
    constants: tuple[Place, ...]
    outputs: tuple[int, ...]
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
