"""Objects of WebAssembly, read and changed."""

from __future__ import annotations

import pytest

from graphc.backends.host import wasm
from graphc.backends.llvm.freestanding.levels import target_named
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.wasm import lowered
from graphc.export.aot.linking import LinkError, link_wasm, webassembly

_CALLS = """
@numbers = external hidden constant i8
declare i32 @other(ptr)
define i32 @shown(ptr %x) {
  %a = call i32 @other(ptr %x)
  %b = load i8, ptr @numbers
  %c = zext i8 %b to i32
  %d = add i32 %a, %c
  ret i32 %d
}
define internal void @inside() {
  ret void
}
"""
_OTHER = "define i32 @other(ptr %x) {\n  ret i32 5\n}\n"


def made(text: str) -> bytes:
    return compile_object(text, target_named("wasm32"))


def test_names() -> None:
    data = made(_CALLS)
    assert wasm.global_names(data) == ({"shown"}, {"other", "numbers"})
    assert wasm.global_names(b"\x7fELF") is None
    names = {"other": "a.other", "shown": "a.shown", "numbers": "a.numbers" * 40}
    changed = wasm.renamed(data, names)
    assert wasm.global_names(changed) == ({"a.shown"}, {"a.other", "a.numbers" * 40})
    same = wasm.renamed(data, {})  # numbers without LLVM's padding
    assert wasm.renamed(same, {}) == same and len(same) < len(data)
    back = wasm.renamed(changed, {new: old for old, new in names.items()})
    assert wasm.global_names(back) == wasm.global_names(data)


def test_data() -> None:
    data = wasm.data_object(bytes(range(200)), "numbers", 64)
    assert wasm.global_names(data) == ({"numbers"}, set())


def test_links() -> None:
    if not webassembly.available():
        pytest.skip("there is no linker for WebAssembly")
    data = wasm.data_object(bytes([7]), "numbers", 64)
    linked = link_wasm([made(_CALLS), made(_OTHER), data], ["shown"])
    assert linked.startswith(wasm.MAGIC)
    with pytest.raises(LinkError, match="the code calls numbers, other of the C library"):
        link_wasm([made(_CALLS)], ["shown"])
    with pytest.raises(LinkError, match="objects 0 and 1 both define other"):
        link_wasm([made(_OTHER), made(_OTHER)], ["other"])
    with pytest.raises(LinkError, match="object 0 is no WebAssembly object"):
        link_wasm([b"nothing"], [])
    with pytest.raises(LinkError, match="cannot link"):  # another type than the caller's
        link_wasm([made(_CALLS), made(_OTHER.replace("i32", "i64")), data], ["shown"])


@pytest.mark.parametrize("text, found", [
    ("  store ptr %a, ptr %b, align 8", (
        "  %word.of.address.1 = ptrtoint ptr %a to i64\n"
        "  store i64 %word.of.address.1, ptr %b, align 8"
    )),
    ("@t = constant [2 x ptr] [ptr @a, ptr null]", (
        "@t = constant [2 x { ptr, i32 }] "
        "[{ ptr, i32 } { ptr @a, i32 0 }, { ptr, i32 } { ptr null, i32 0 }]"
    )),
    ("  %p = getelementptr inbounds ptr, ptr %a, i64 2",
     "  %p = getelementptr inbounds i64, ptr %a, i64 2"),
    ("  %p = getelementptr ptr, ptr %a, i64 2", "  %p = getelementptr i64, ptr %a, i64 2"),
    ("  %a = alloca ptr, i64 2, align 16", "  %a = alloca i64, i64 2, align 16"),
    ("  %p = alloca [4 x ptr], align 8", "  %p = alloca [4 x { ptr, i32 }], align 8"),
    ('  %t = call i64 asm "", "=r,0"(i64 %x)', "  %t = freeze i64 %x"),
    ("call ptr @memcpy(ptr %a, ptr %b, i64 4)", "call ptr @graphc_copy(ptr %a, ptr %b, i64 4)"),
    ("  %x = load ptr, ptr %a, align 8", "  %x = load ptr, ptr %a, align 8"),
])
def test_addresses_take_eight_bytes(text: str, found: str) -> None:
    assert lowered(text) == found
