"""Objects linked to images: every kind of reference, wherever the image is mapped."""

import ctypes
import platform
import sys
from pathlib import Path

import pytest

from graphc.backends.llvm.image import Image, UnlinkableError, link
from graphc.backends.llvm.jit import LLVMError, compile_object
from graphc.backends.llvm.library import Library
from graphc.backends.llvm.mapped import Mapped
from graphc.backends.llvm.target import host_target, make_target

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="images are made for Linux, x86-64",
)
INTEGER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

# a table of functions of two objects, a constant, a counter, zeros, a libc function by call and by
# address, an aligned vector constant
ONE = """
@table = constant [3 x ptr] [ptr @twice, ptr @bump, ptr @labs]
@zeros = global [100 x i64] zeroinitializer, align 128
@counter = external global i64
declare i64 @twice(i64)
declare i64 @labs(i64)
define i64 @bump(i64 %n) {
  %c = load i64, ptr @counter
  %s = add i64 %c, %n
  store i64 %s, ptr @counter
  %at = getelementptr i64, ptr @zeros, i64 99
  %z = load i64, ptr %at
  %r = add i64 %s, %z
  ret i64 %r
}
define i64 @pick(i64 %i) {
  %at = getelementptr ptr, ptr @table, i64 %i
  %f = load ptr, ptr %at
  %v = call i64 %f(i64 -21)
  ret i64 %v
}
define i64 @size(i64 %n) {
  %r = call i64 @labs(i64 %n)
  ret i64 %r
}
"""
TWO = """
@counter = global i64 40
@wide = internal constant [8 x i64] [i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8],
  align 64
define i64 @twice(i64 %n) {
  %at = getelementptr i64, ptr @wide, i64 1
  %two = load i64, ptr %at
  %r = mul i64 %n, %two
  ret i64 %r
}
"""


def objects() -> list[bytes]:
    return [compile_object(text, host_target()) for text in (ONE, TWO)]


def check(library: Library | Mapped) -> None:
    call = {name: INTEGER(library.address(name)) for name in ("bump", "pick", "size", "twice")}
    assert [call["pick"](i) for i in range(3)] == [-42, 19, 21]
    assert (call["bump"](1), call["size"](-9), call["twice"](8)) == (20, 9, 16)


def test_every_kind_of_reference() -> None:
    image = link(objects()[1:] + objects()[:1])
    assert image.imports.keys() == {"labs"}
    read = Image.decode(image.encode())
    assert read == image
    several = [Mapped(read, {}) for _ in range(3)]
    for mapped in several:  # each has a counter of its own, and an address
        check(mapped)
    assert len({mapped.address("bump") for mapped in several}) == 3


def test_a_library_is_an_image() -> None:
    library = Library(objects())
    assert library.image is not None
    check(library)
    check(Library.of(library.image))
    with pytest.raises(KeyError, match="no object of this library defines 'nothing'"):
        library.address("nothing")


def test_no_page_is_writable_and_executable() -> None:
    library = Library(objects())
    start = library.address("bump")
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights = line.split()[:2]
        low, high = (int(place, 16) for place in places.split("-"))
        if low <= start < high:
            assert rights == "r-xp"
        if low <= library.address("counter") < high:
            assert rights == "rw-p"
        if low <= library.address("table") < high:
            assert rights == "r--p"


def test_what_the_process_lacks() -> None:
    text = """
declare i64 @nowhere(i64)
define i64 @f(i64 %n) {
  %r = call i64 @nowhere(i64 %n)
  ret i64 %r
}"""
    image = link([compile_object(text, host_target())])
    with pytest.raises(LLVMError, match="undefined symbols: nowhere"):
        Library.of(image)
    given = INTEGER(lambda n: n + 1)
    address = ctypes.cast(given, ctypes.c_void_p).value or 0
    assert INTEGER(Library.of(image, {"nowhere": address}).address("f"))(4) == 5


@pytest.mark.parametrize("text", [
    "@t = thread_local global i64 3\n",
    "@c = common global i64 0\n",
])
def test_what_images_do_not_hold(text: str) -> None:
    with pytest.raises(UnlinkableError):
        link([compile_object(
            text + "define ptr @f() {\n  ret ptr @" + text[1] + "\n}", host_target()
        )])


def test_objects_of_other_machines() -> None:
    other = make_target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
    with pytest.raises(UnlinkableError, match="not x86-64 ELF"):
        link([compile_object("define i64 @f() {\n  ret i64 7\n}", other)])
