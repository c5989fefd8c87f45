"""Texts of errors, written without libc's printf: templates whose bytes 1 to 5 stand for what is
put in their place."""

from __future__ import annotations

from collections.abc import Iterable

from graphc.backends.llvm.text import Function, Module, Value

# in a template: a string, another one, and three numbers
STRING, OTHER, A, B, C = map(chr, range(1, 6))
FAIL = "@graphc_fail"

# A messenger is two words: where a text goes, and how many bytes are there.
_TEXT = """
define internal i64 @graphc_put(ptr %m, i64 %at, i8 %byte) nounwind {
entry:
  %room = getelementptr i64, ptr %m, i64 1
  %bytes = load i64, ptr %room, align 8
  %next = add i64 %at, 1
  %fits = icmp slt i64 %next, %bytes
  br i1 %fits, label %put, label %full
put:
  %address = load i64, ptr %m, align 8
  %text = inttoptr i64 %address to ptr
  %place = getelementptr i8, ptr %text, i64 %at
  store i8 %byte, ptr %place, align 1
  ret i64 %next
full:
  ret i64 %at
}
define internal i64 @graphc_put_string(ptr %m, i64 %at, ptr %string) nounwind {
entry:
  br label %head
head:
  %place = phi i64 [ %at, %entry ], [ %after, %body ]
  %n = phi i64 [ 0, %entry ], [ %more, %body ]
  %from = getelementptr i8, ptr %string, i64 %n
  %byte = load i8, ptr %from, align 1
  %end = icmp eq i8 %byte, 0
  br i1 %end, label %exit, label %body
body:
  %after = call i64 @graphc_put(ptr %m, i64 %place, i8 %byte)
  %more = add i64 %n, 1
  br label %head
exit:
  ret i64 %place
}
define internal i64 @graphc_put_number(ptr %m, i64 %at, i64 %number) nounwind {
entry:
  %digits = alloca [24 x i8], align 8
  %last = getelementptr i8, ptr %digits, i64 23
  store i8 0, ptr %last, align 1
  %below = icmp slt i64 %number, 0
  %minus = sub i64 0, %number
  %positive = select i1 %below, i64 %minus, i64 %number
  br label %body
body:
  %left = phi i64 [ %positive, %entry ], [ %quotient, %body ]
  %p = phi ptr [ %last, %entry ], [ %before, %body ]
  %quotient = udiv i64 %left, 10
  %tens = mul i64 %quotient, 10
  %digit = sub i64 %left, %tens
  %small = trunc i64 %digit to i8
  %byte = add i8 %small, 48
  %before = getelementptr i8, ptr %p, i64 -1
  store i8 %byte, ptr %before, align 1
  %again = icmp ne i64 %quotient, 0
  br i1 %again, label %body, label %sign
sign:
  %start = getelementptr i8, ptr %before, i64 -1
  store i8 45, ptr %start, align 1
  %first = select i1 %below, ptr %start, ptr %before
  %end = call i64 @graphc_put_string(ptr %m, i64 %at, ptr %first)
  ret i64 %end
}
; Writes a text, as far as there is room, and returns the code. No room (an address of 0): no text.
define internal i32 @graphc_fail(ptr %m, i32 %code, ptr %template, ptr %string, ptr %other,
    i64 %a, i64 %b, i64 %c) nounwind noinline cold {
entry:
  %where = load i64, ptr %m, align 8
  %room = getelementptr i64, ptr %m, i64 1
  %bytes = load i64, ptr %room, align 8
  %there = icmp ne i64 %where, 0
  %some = icmp sgt i64 %bytes, 0
  %both = and i1 %there, %some
  br i1 %both, label %head, label %exit
head:
  %at = phi i64 [ 0, %entry ], [ %then, %next ]
  %n = phi i64 [ 0, %entry ], [ %more, %next ]
  %from = getelementptr i8, ptr %template, i64 %n
  %byte = load i8, ptr %from, align 1
  switch i8 %byte, label %plain [
    i8 0, label %done
    i8 1, label %strings
    i8 2, label %others
    i8 3, label %as
    i8 4, label %bs
    i8 5, label %cs
  ]
plain:
  %p0 = call i64 @graphc_put(ptr %m, i64 %at, i8 %byte)
  br label %next
strings:
  %p1 = call i64 @graphc_put_string(ptr %m, i64 %at, ptr %string)
  br label %next
others:
  %p2 = call i64 @graphc_put_string(ptr %m, i64 %at, ptr %other)
  br label %next
as:
  %p3 = call i64 @graphc_put_number(ptr %m, i64 %at, i64 %a)
  br label %next
bs:
  %p4 = call i64 @graphc_put_number(ptr %m, i64 %at, i64 %b)
  br label %next
cs:
  %p5 = call i64 @graphc_put_number(ptr %m, i64 %at, i64 %c)
  br label %next
next:
  %then = phi i64 [ %p0, %plain ], [ %p1, %strings ], [ %p2, %others ], [ %p3, %as ],
    [ %p4, %bs ], [ %p5, %cs ]
  %more = add i64 %n, 1
  br label %head
done:
  %text = inttoptr i64 %where to ptr
  %end = getelementptr i8, ptr %text, i64 %at
  store i8 0, ptr %end, align 1
  br label %exit
exit:
  ret i32 %code
}
"""


def emit_messages(module: Module) -> None:
    """Defines FAIL: i32 (ptr messenger, i32 code, ptr template, ptr, ptr, i64, i64, i64)."""
    module.globals.append(_TEXT)


class Texts:
    """Constant strings of a module, each once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._names: dict[bytes, str] = {}

    def __call__(self, text: str) -> str:
        """The name of a string that ends with a zero."""
        data = text.encode().replace(b"\0", b"?")
        name = self._names.get(data)
        if name is None:
            name = self._names[data] = f"@text.{len(self._names)}"
            self._module.globals.append(
                f'{name} = private unnamed_addr constant [{len(data) + 1} x i8] '
                f'c"{escaped(data)}\\00", align 1'
            )
        return name


def plain(text: str) -> str:
    """A text that may stand in a template: none of the bytes that mean something there."""
    return "".join("?" if ord(each) < 6 else each for each in text)


def escaped(data: Iterable[int]) -> str:
    """Bytes as LLVM spells them between quotes."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data
    )


def fail(
    f: Function, messenger: str, code: int, template: str, string: str = "null",
    other: str = "null", a: Value = 0, b: Value = 0, c: Value = 0,
) -> str:
    """The code, its text being written."""
    return f.call(
        "i32", FAIL, f"ptr {messenger}", f"i32 {code}", f"ptr {template}", f"ptr {string}",
        f"ptr {other}", f"i64 {a}", f"i64 {b}", f"i64 {c}",
    )
