"""What the functions of a freestanding library are written with: fields, words, conditions that end
a function."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.llvm.freestanding.layout import ENTRY, OPTIONS, TENSOR, VARIANT, Word
from graphc.backends.llvm.freestanding.messages import Texts, fail
from graphc.backends.llvm.text import Module, Value

_FIELDS = {
    kind: [each.strip() for each in kind.strip("{ }").split(",")]
    for kind in (ENTRY, TENSOR, OPTIONS, VARIANT)
}


class Writer:
    """A function under construction."""

    def __init__(
        self, module: Module, texts: Texts, signature: str, linkage: str = "internal"
    ) -> None:
        self.texts = texts
        self.f = module.function(signature, linkage)

    def field(self, record: str, kind: str, number: int) -> str:
        """What a field of a record holds; 32 bits become 64."""
        f, found = self.f, _FIELDS[kind][number]
        place = self.place(record, kind, number)
        value = f.load(place, found, 4 if found == "i32" else 8)
        return f.let(f"sext i32 {value} to i64") if found == "i32" else value

    def place(self, record: str, kind: str, number: int) -> str:
        """The address of a field."""
        return self.f.let(f"getelementptr {kind}, ptr {record}, i32 0, i32 {int(number)}", "p")

    def get(self, context: str, word: Word) -> str:
        """A word of a context."""
        return self.f.load(self.f.gep(context, int(word), "i64"), "i64", 8)

    def pointer(self, context: str, word: Word) -> str:
        """An address that a word of a context holds."""
        return self.f.let(f"inttoptr i64 {self.get(context, word)} to ptr")

    def set(self, context: str, word: Word, value: Value) -> None:
        """Stores a word of a context."""
        self.f.store(value, "i64", self.f.gep(context, int(word), "i64"), 8)

    def address(self, pointer: str) -> str:
        """A pointer as a word."""
        return self.f.let(f"ptrtoint ptr {pointer} to i64")

    def bytes_behind(self, pointer: str, offset: Value) -> str:
        """A pointer so many bytes on."""
        return self.f.let(f"getelementptr i8, ptr {pointer}, i64 {offset}", "p")

    def is_null(self, pointer: str) -> str:
        """An i1."""
        return self.f.let(f"icmp eq ptr {pointer}, null")

    def both(self, *conditions: str) -> str:
        """An i1: all hold."""
        found = conditions[0]
        for each in conditions[1:]:
            found = self.f.let(f"and i1 {found}, {each}")
        return found

    def either(self, *conditions: str) -> str:
        """An i1: one holds."""
        found = conditions[0]
        for each in conditions[1:]:
            found = self.f.let(f"or i1 {found}, {each}")
        return found

    def refuse_if(
        self, condition: str, messenger: str, code: int, text: str, string: str = "null",
        other: str = "null", numbers: Sequence[Value] = (),
    ) -> None:
        """Where the i1 holds, the function ends with the code."""
        f = self.f
        bad, good = f.label("bad"), f.label("good")
        f.cond_br(condition, bad, good)
        f.block(bad)
        a, b, c = (*numbers, 0, 0, 0)[:3]
        f.ret(f"i32 {fail(f, messenger, code, self.texts(text), string, other, a, b, c)}")
        f.block(good)

    def end_if(self, condition: str, value: str) -> None:
        """Where the i1 holds, the function ends with a typed value, or none."""
        f = self.f
        bad, good = f.label("end"), f.label("on")
        f.cond_br(condition, bad, good)
        f.block(bad)
        f.ret(value or None)
        f.block(good)

    def end_unless_well(self, code: str) -> None:
        """Ends the function with an i32 that is not 0."""
        self.end_if(self.f.let(f"icmp ne i32 {code}, 0"), f"i32 {code}")

    def table(self, base: str, index: Value, kind: str) -> str:
        """The address of a record in a table."""
        return self.f.let(f"getelementptr {kind}, ptr {base}, i64 {index}", "p")
