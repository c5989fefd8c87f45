"""Reading JSON without a library: what a safetensors file's header is made of, as LLVM text.

A cursor is words: where the next byte lies, and where the text ends. What is read moves it on.
"""

from __future__ import annotations

from graphc.backends.llvm.text import Function, Module

CURSOR = 2  # words
_TEXT = """
; The next byte that is no space, which stays; -1: there is none.
define internal i64 @graphc_json_peek(ptr %c) nounwind {
entry:
  %end.at = getelementptr i64, ptr %c, i64 1
  %end = load i64, ptr %end.at, align 8
  br label %head
head:
  %at = load i64, ptr %c, align 8
  %some = icmp ult i64 %at, %end
  br i1 %some, label %look, label %nothing
look:
  %place = inttoptr i64 %at to ptr
  %byte = load i8, ptr %place, align 1
  switch i8 %byte, label %found [
    i8 32, label %skip
    i8 9, label %skip
    i8 10, label %skip
    i8 13, label %skip
  ]
skip:
  %next = add i64 %at, 1
  store i64 %next, ptr %c, align 8
  br label %head
found:
  %wide = zext i8 %byte to i64
  ret i64 %wide
nothing:
  ret i64 -1
}
; The next byte; -1: there is none.
define internal i64 @graphc_json_byte(ptr %c) nounwind {
entry:
  %end.at = getelementptr i64, ptr %c, i64 1
  %end = load i64, ptr %end.at, align 8
  %at = load i64, ptr %c, align 8
  %some = icmp ult i64 %at, %end
  br i1 %some, label %look, label %nothing
look:
  %place = inttoptr i64 %at to ptr
  %byte = load i8, ptr %place, align 1
  %next = add i64 %at, 1
  store i64 %next, ptr %c, align 8
  %wide = zext i8 %byte to i64
  ret i64 %wide
nothing:
  ret i64 -1
}
; Whether the next byte that is no space is this one, which then is taken.
define internal i1 @graphc_json_take(ptr %c, i64 %byte) nounwind {
entry:
  %found = call i64 @graphc_json_peek(ptr %c)
  %same = icmp eq i64 %found, %byte
  br i1 %same, label %take, label %other
take:
  %again = call i64 @graphc_json_byte(ptr %c)
  ret i1 true
other:
  ret i1 false
}
; A number of digits alone, below 2^57; -1: it is none.
define internal i64 @graphc_json_number(ptr %c) nounwind {
entry:
  %first = call i64 @graphc_json_peek(ptr %c)
  %end.at = getelementptr i64, ptr %c, i64 1
  %end = load i64, ptr %end.at, align 8
  %low = icmp sge i64 %first, 48
  %high = icmp sle i64 %first, 57
  %digit = and i1 %low, %high
  br i1 %digit, label %head, label %none
head:
  %value = phi i64 [ 0, %entry ], [ %more, %body ]
  %at = load i64, ptr %c, align 8
  %some = icmp ult i64 %at, %end
  br i1 %some, label %look, label %done
look:
  %place = inttoptr i64 %at to ptr
  %byte = load i8, ptr %place, align 1
  %wide = zext i8 %byte to i64
  %number = sub i64 %wide, 48
  %is = icmp ult i64 %number, 10
  br i1 %is, label %body, label %done
body:
  %tens = mul i64 %value, 10
  %more = add i64 %tens, %number
  %next = add i64 %at, 1
  store i64 %next, ptr %c, align 8
  %large = icmp ugt i64 %more, 144115188075855871
  br i1 %large, label %none, label %head
done:
  ret i64 %value
none:
  ret i64 -1
}
; Four hexadecimal digits; -1: they are none.
define internal i64 @graphc_json_hex(ptr %c) nounwind {
entry:
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %count, %next ]
  %value = phi i64 [ 0, %entry ], [ %more, %next ]
  %whole = icmp eq i64 %n, 4
  br i1 %whole, label %done, label %body
body:
  %byte = call i64 @graphc_json_byte(ptr %c)
  %number = sub i64 %byte, 48
  %is = icmp ult i64 %number, 10
  br i1 %is, label %next, label %letter
letter:
  %small = or i64 %byte, 32
  %place = sub i64 %small, 97
  %ten = add i64 %place, 10
  %may = icmp ult i64 %place, 6
  br i1 %may, label %next, label %none
next:
  %digit = phi i64 [ %number, %body ], [ %ten, %letter ]
  %up = shl i64 %value, 4
  %more = or i64 %up, %digit
  %count = add i64 %n, 1
  br label %head
done:
  ret i64 %value
none:
  ret i64 -1
}
"""
_QUOTE, _BACKSLASH = 34, 92
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def emit_json(module: Module) -> None:
    """Defines @graphc_json_peek, _byte, _take, _number, and i1 @graphc_json_string(ptr cursor, ptr
    messenger), which writes a string with a zero behind it, as far as there is room. Wants
    @graphc_put of messages.py."""
    module.globals.append(_TEXT)
    _emit_point(module)
    _emit_escape(module)
    f = module.function("i1 @graphc_json_string(ptr %c, ptr %m)", "internal")
    at = f.alloca("i64", 1, 8)
    f.store(0, "i64", at, 8)
    head, close, one = f.label("head"), f.label("close"), f.label("one")
    escape, plain, wrong = f.label("escape"), f.label("plain"), f.label("wrong")
    f.cond_br(f.call("i1", "@graphc_json_take", "ptr %c", f"i64 {_QUOTE}"), head, wrong)
    f.block(head)
    byte = f.call("i64", "@graphc_json_byte", "ptr %c")
    f.cond_br(f.cmp("slt", byte, 32), wrong, one)
    f.block(one)
    f.emit(
        f"switch i64 {byte}, label %{plain} [ i64 {_QUOTE}, label %{close} "
        f"i64 {_BACKSLASH}, label %{escape} ]"
    )
    f.block(plain)
    _put(f, at, byte)
    f.br(head)
    f.block(escape)
    f.cond_br(f.call("i1", "@graphc_json_escape", "ptr %c", "ptr %m", f"ptr {at}"), head, wrong)
    f.block(close)
    memory = f.let(f"inttoptr i64 {f.load('%m', 'i64', 8)} to ptr")
    f.store(0, "i8", f.let(f"getelementptr i8, ptr {memory}, i64 {f.load(at, 'i64', 8)}"), 1)
    f.ret("i1 true")
    f.block(wrong)
    f.ret("i1 false")


def _put(f: Function, at: str, byte: str) -> None:
    """A byte behind those that are there."""
    narrow = f.let(f"trunc i64 {byte} to i8")
    before = f.load(at, "i64", 8)
    f.store(f.call("i64", "@graphc_put", "ptr %m", f"i64 {before}", f"i8 {narrow}"), "i64", at, 8)


def _emit_escape(module: Module) -> None:
    """What stands behind a backslash; whether it may."""
    f = module.function("i1 @graphc_json_escape(ptr %c, ptr %m, ptr %at)", "internal")
    byte = f.call("i64", "@graphc_json_byte", "ptr %c")
    wrong, four = f.label("wrong"), f.label("four")
    labels = {letter: f.label("letter") for letter in _ESCAPES}
    cases = [f"i64 {ord(letter)}, label %{label}" for letter, label in labels.items()]
    cases.append(f"i64 {ord('u')}, label %{four}")
    f.emit(f"switch i64 {byte}, label %{wrong} [ {' '.join(cases)} ]")
    for letter, label in labels.items():
        f.block(label)
        _put(f, "%at", str(ord(_ESCAPES[letter])))
        f.ret("i1 true")
    f.block(four)
    first = f.call("i64", "@graphc_json_hex", "ptr %c")
    single, pair, backslash = f.label("single"), f.label("pair"), f.label("backslash")
    plane = f.let(f"and i64 {first}, {0xF800}")
    f.cond_br(f.cmp("slt", first, 1), wrong, single)  # a zero would end the text
    f.block(single)
    done = f.label("done")
    f.cond_br(f.cmp("eq", plane, 0xD800), backslash, done)
    f.block(done)
    f.call("void", "@graphc_json_point", "ptr %m", "ptr %at", f"i64 {first}")
    f.ret("i1 true")
    f.block(backslash)  # the first half of a pair, and then the second
    begins = f.cmp("slt", first, 0xDC00)
    slash = f.cmp("eq", f.call("i64", "@graphc_json_byte", "ptr %c"), _BACKSLASH)
    letter_u = f.cmp("eq", f.call("i64", "@graphc_json_byte", "ptr %c"), ord("u"))
    second = f.call("i64", "@graphc_json_hex", "ptr %c")
    low = f.let(f"sub i64 {second}, {0xDC00}")
    ends = f.let(f"icmp ult i64 {low}, {0x400}")
    right = begins
    for each in (slash, letter_u, ends):
        right = f.let(f"and i1 {right}, {each}")
    f.cond_br(right, pair, wrong)
    f.block(pair)
    high = f.let(f"shl i64 {f.sub(first, 0xD800)}, 10")
    point = f.add(f.let(f"or i64 {high}, {low}"), 0x10000)
    f.call("void", "@graphc_json_point", "ptr %m", "ptr %at", f"i64 {point}")
    f.ret("i1 true")
    f.block(wrong)
    f.ret("i1 false")


def _emit_point(module: Module) -> None:
    """A code point as UTF-8."""
    f = module.function("void @graphc_json_point(ptr %m, ptr %at, i64 %point)", "internal")
    for bits, lead in ((7, 0), (11, 0xC0), (16, 0xE0), (21, 0xF0)):
        fits, on = f.label("fits"), f.label("on")
        f.cond_br(f.let(f"icmp ult i64 %point, {1 << bits}"), fits, on)
        f.block(fits)
        behind = (bits - 1) // 5 - 1 if bits > 7 else 0  # bytes of six bits
        high = f.let(f"lshr i64 %point, {6 * behind}")
        _put(f, "%at", f.let(f"or i64 {high}, {lead}"))
        for place in reversed(range(behind)):
            part = f.let(f"and i64 {f.let(f'lshr i64 %point, {6 * place}')}, 63")
            _put(f, "%at", f.let(f"or i64 {part}, 128"))
        f.ret()
        f.block(on)
    f.ret()
