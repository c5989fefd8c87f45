"""The functions of a freestanding library that its callers see, as an LLVM module in text.

They are made for the plainest CPU of the library's kind: they run before anybody knows which code
this one can run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphc.backends.host.interface import (
    ABI,
    CODE,
    CODES,
    MOST_THREADS,
    Code,
    Interface,
    Level,
    Place,
    Step,
)
from graphc.backends.llvm.emit import kernel_checks
from graphc.backends.llvm.frame import Frame
from graphc.backends.llvm.freestanding import state, state_files
from graphc.backends.llvm.freestanding.checks import emit_checks
from graphc.backends.llvm.freestanding.create import (
    FIRST_BLOCK,
    PLAN_WORDS,
    TOTAL,
    emit_create,
)
from graphc.backends.llvm.freestanding.execute import emit_execute
from graphc.backends.llvm.freestanding.layout import (
    ALIGN,
    ENTRY,
    LEVEL,
    OPTIONS,
    SIZE,
    VARIANT,
    Option,
    Variant,
    Word,
    encoded,
)
from graphc.backends.llvm.freestanding.messages import A, B, Texts, emit_messages, escaped, plain
from graphc.backends.llvm.freestanding.numbers import emit_numbers
from graphc.backends.llvm.freestanding.tables import Tables, array
from graphc.backends.llvm.freestanding.writer import Writer
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module
from graphc.backends.llvm.wasm import is_wasm
from graphc.ir.failure import check_error
from graphc.ir.kernel import Routine, leaves

# what callers see, each behind the library's name
_EVERY = (
    "abi", "text", "inputs", "outputs", "sizes", "states", "input", "output", "size", "state",
    "bytes", "create", "destroy", "set_threads", "cpu", "shapes", "message",
)
FUNCTIONS = (*_EVERY, "run")
STEP_FUNCTIONS = (*_EVERY, "step", *state.FUNCTIONS, *state_files.FUNCTIONS)


class Compiled(NamedTuple):
    """A Code's frame, and the name of its driver."""

    code: Code
    frame: Frame
    run: str


def public(interface: Interface, target: Target) -> list[str]:
    """The names that a library shows."""
    names: tuple[str, ...] = FUNCTIONS if interface.step is None else STEP_FUNCTIONS
    if is_wasm(target):
        names = tuple(name for name in names if name not in state_files.FUNCTIONS)
    return [f"{interface.name}_{name}" for name in names]


def emit_entry(
    interface: Interface, levels: Sequence[tuple[Level, Sequence[Compiled]]], target: Target
) -> str:
    """LLVM assembly that defines public(interface, target). Wants @graphc_data, the drivers by
    their names, @graphc_cpu_level and the functions of workers.py."""
    module, files = Module(), not is_wasm(target)
    texts = Texts(module)
    emit_messages(module)
    module.globals.append("@graphc_data = external hidden constant i8, align 64")
    for text in (
        "void @graphc_pool_place(ptr, ptr, ptr)", "i32 @graphc_pool_resize(ptr, i32)",
        "void @graphc_pool_enter(ptr)", "void @graphc_pool_leave()",
        "void @graphc_pool_list(ptr)", "void @graphc_pool_forget(ptr)",
    ):
        module.declare(f"declare {text}")
    if interface.file_bytes:
        module.globals.append(
            f"@graphc_file = internal constant [{len(interface.file)} x i8] "
            f'c"{escaped(interface.file)}", align 8'
        )
    tables = Tables(module, texts, target, interface)
    tables.emit()
    ones = tuple(sorted({name for _, codes in levels for each in codes for name in each.code.ones}))
    blocks = _Levels(module, texts, tables, ones).emit(levels)
    emit_checks(module, texts, interface)
    emit_execute(module, texts, interface, tables, ones)
    names = [level.name for level, _ in levels]
    emit_create(module, texts, interface, names, blocks, files)
    if interface.step is not None:
        emit_numbers(module, texts, interface, tables)
        state.emit_state(module, texts, interface)
        if files:
            state_files.emit_state_files(module, texts, interface.step)
    _Public(module, texts, interface, tables, files).emit()
    return module.text()


class _Levels:
    """The table of levels, and those of their variants."""

    def __init__(
        self, module: Module, texts: Texts, tables: Tables, ones: tuple[str, ...]
    ) -> None:
        self.module, self.texts, self.tables, self.ones = module, texts, tables, ones

    def emit(self, levels: Sequence[tuple[Level, Sequence[Compiled]]]) -> int:
        """How many bytes a level's blocks have at most."""
        records: list[str] = []
        most = 0
        for number, (level, codes) in enumerate(levels):
            variants: list[str] = []
            at = FIRST_BLOCK
            for k, each in enumerate(codes):
                variants.append(self._variant(f"{number}.{k}", each, at))
                at += -(-8 * each.frame.layout.words // ALIGN) * ALIGN
            most = max(most, at - FIRST_BLOCK)
            table = array(self.module, f"@variants.{number}", VARIANT, variants)
            scratch = [max(some) for some in zip(*(c.code.scratch for c in codes), strict=True)]
            room = array(self.module, f"@scratch.{number}", "i64", scratch)
            records.append(
                f"{{ ptr {self.texts(level.name)}, ptr {table}, i64 {len(variants)}, ptr {room} }}"
            )
        array(self.module, "@levels", LEVEL, records)
        return most

    def _variant(self, name: str, each: Compiled, at: int) -> str:
        code, frame = each.code, each.frame
        module, layout = self.module, frame.layout
        dims = [self.tables.names.index(each) for each in frame.dims]
        module.declare(f"declare hidden i64 @{each.run}(ptr)")
        f = module.function(f"i64 @arena.{name}(ptr %dims)", "internal")
        f.ret(f"i64 {self.tables.expressions(f).index(frame.arena)}")
        guards = "null"
        if code.guards:
            guards = f"@guards.{name}"
            self.tables.guards(guards, code.guards)
        inputs, outputs = (
            [each if isinstance(each, int) else -1 for each in some]
            for some in (code.inputs, code.outputs)
        )
        data = [
            f"{{ i64 {layout.inputs + i}, i64 {encoded(source)} }}"
            for i, source in enumerate(code.inputs) if isinstance(source, Place)
        ]
        data += [
            f"{{ i64 {layout.outputs + i}, i64 {encoded(place)} }}"
            for i, place in enumerate(code.outputs) if isinstance(place, Place)
        ]
        data += [
            f"{{ i64 {layout.constants + i}, i64 {encoded(place)} }}"
            for i, place in enumerate(code.constants)
        ]
        ones = sum(1 << self.ones.index(one) for one in code.ones)
        fields: list[tuple[str, object]] = [
            ("i64", ones), ("ptr", f"@{each.run}"), ("ptr", f"@arena.{name}"), ("ptr", guards),
            ("i64", at), ("i64", layout.inputs), ("i64", layout.outputs), ("i64", layout.dims),
            ("i64", len(dims)), ("ptr", array(module, f"@dims.{name}", "i64", dims)),
            ("i64", len(inputs)), ("ptr", array(module, f"@inputs.{name}", "i64", inputs)),
            ("i64", frame.outputs),
            ("ptr", array(module, f"@outputs.{name}", "i64", outputs)), ("i64", len(data)),
            ("ptr", array(module, f"@data.{name}", "{ i64, i64 }", data)),
            ("ptr", self._checks(name, code)),
        ]
        return f"{{ {', '.join(f'{kind} {value}' for kind, value in fields)} }}"

    def _checks(self, name: str, code: Code) -> str:
        """For each leaf the texts of its Checks."""
        tables: list[str] = []
        for number, leaf in enumerate(leaves(code.program.steps)):
            # a draw that is native fails never
            found = [] if isinstance(leaf, Routine) else kernel_checks(leaf.kernel)
            messages = [
                str(check_error(check.message.replace("{value}", "\x00"), leaf.locs))
                for check in found
            ]
            # the value's mark is put in last: no text of the user's may stand for one
            known = [self.texts(plain(text.replace("\0", "\ue000")).replace("\ue000", A))
                     for text in messages]
            table = array(self.module, f"@checks.{name}.{number}", "ptr", known) if known else ""
            tables.append(table or "null")
        return array(self.module, f"@checks.{name}", "ptr", tables)


class _Public:
    """The functions."""

    def __init__(
        self, module: Module, texts: Texts, interface: Interface, tables: Tables, files: bool
    ) -> None:
        self.module, self.texts, self.interface, self.tables = module, texts, interface, tables
        self.files = files

    def emit(self) -> None:
        """All of `public`."""
        interface = self.interface
        states = () if interface.step is None else interface.step.states
        for name, value in (
            ("abi", ABI), ("inputs", len(interface.inputs)), ("outputs", len(interface.outputs)),
            ("sizes", len(interface.sizes)), ("states", len(states)),
        ):
            f = self._function(f"i32 @NAME_{name}()").f
            f.ret(f"i32 {value}")
        array(self.module, "@codes", "ptr", [self.texts(f"GRAPHC_{name}") for name in CODES])
        self._looked_up("text", "@codes", "ptr", len(CODES), of_pointers=True)
        self._looked_up("input", "@inputs", ENTRY, len(interface.inputs))
        self._looked_up("output", "@outputs", ENTRY, len(interface.outputs))
        self._looked_up("size", "@sizes", SIZE, len(interface.sizes))
        self._looked_up("state", "@states" if states else "@inputs", ENTRY, len(states))
        self._bytes()
        self._create()
        self._destroy()
        self._set_threads()
        self._told()
        self._shapes()
        self._run()
        if interface.step is not None:
            self._state(interface.step)

    def _function(self, signature: str) -> Writer:
        signature = signature.replace("NAME", self.interface.name)
        return Writer(self.module, self.texts, signature, "")

    def _looked_up(
        self, name: str, table: str, kind: str, count: int, of_pointers: bool = False
    ) -> None:
        """A record of a table by its number; null, or a text, beyond it."""
        w = self._function(f"ptr @NAME_{name}(i32 %number)")
        f = w.f
        number = f.let("sext i32 %number to i64")
        beyond = w.either(f.cmp("slt", number, 0), f.cmp("sge", number, count))
        w.end_if(beyond, f"ptr {self.texts('GRAPHC_UNKNOWN') if of_pointers else 'null'}")
        place = w.table(table, number, kind)
        f.ret(f"ptr {f.load(place, 'ptr', 8) if of_pointers else place}")

    def _messenger(self, w: Writer) -> str:
        """Where options, which may be null, want texts."""
        f = w.f
        m = f.alloca("i64", 2, 8)
        f.store(0, "i64", m, 8)
        f.store(0, "i64", f.gep(m, 1, "i64"), 8)
        with f.when(f.let("icmp ne ptr %options, null")):
            abi = w.field("%options", OPTIONS, Option.ABI)
            with f.when(f.cmp("eq", abi, ABI)):  # else nobody knows what lies there
                for i, option in enumerate((Option.MESSAGE, Option.MESSAGE_BYTES)):
                    value = w.field("%options", OPTIONS, option)
                    word = w.address(value) if option is Option.MESSAGE else value
                    f.store(word, "i64", f.gep(m, i, "i64"), 8)
        return m

    def _bytes(self) -> None:
        w = self._function("i64 @NAME_bytes(ptr %options)")
        f = w.f
        plan, m = f.alloca("i64", PLAN_WORDS, 8), self._messenger(w)
        code = f.call("i32", "@graphc_plan", f"ptr {m}", "ptr %options", f"ptr {plan}")
        wide = f.let(f"sext i32 {code} to i64")
        w.end_if(f.cmp("ne", wide, 0), f"i64 {f.let(f'sub i64 0, {wide}')}")
        f.ret(f"i64 {f.load(f.gep(plan, TOTAL, 'i64'), 'i64', 8)}")

    def _create(self) -> None:
        w = self._function("i32 @NAME_create(ptr %options, ptr %context)")
        f = w.f
        plan, m = f.alloca("i64", PLAN_WORDS, 8), self._messenger(w)
        w.refuse_if(w.is_null("%context"), m, CODE["ARGUMENT"], "context is NULL")
        f.store("null", "ptr", "%context", 8)
        w.end_unless_well(
            f.call("i32", "@graphc_plan", f"ptr {m}", "ptr %options", f"ptr {plan}")
        )
        total = f.load(f.gep(plan, TOTAL, "i64"), "i64", 8)
        memory, own = f.alloca("ptr", 1, 8), f.alloca("ptr", 1, 8)
        for place in (memory, own):
            f.store("null", "ptr", place, 8)
        with f.when(f.let("icmp ne ptr %options, null")):
            given = w.field("%options", OPTIONS, Option.MEMORY)
            f.store(given, "ptr", memory, 8)
            with f.when(f.let(f"icmp ne ptr {given}, null")):
                have = w.field("%options", OPTIONS, Option.MEMORY_BYTES)
                w.refuse_if(
                    f.cmp("slt", have, total), m, CODE["MEMORY"],
                    f"options.memory_bytes is {A}, and the context needs {B}",
                    numbers=(have, total),
                )
                off = f.let(f"and i64 {w.address(given)}, {ALIGN - 1}")
                w.refuse_if(
                    f.cmp("ne", off, 0), m, CODE["ARGUMENT"],
                    f"options.memory is not aligned to {A} bytes", numbers=(ALIGN,),
                )
        with f.when(f.let(f"icmp eq ptr {f.load(memory, 'ptr', 8)}, null")):
            found = f.call("ptr", "@malloc", f"i64 {f.add(total, ALIGN)}")
            w.refuse_if(
                w.is_null(found), m, CODE["MEMORY"], f"no memory for {A} bytes", numbers=(total,)
            )
            f.store(found, "ptr", own, 8)
            start = f.let(f"and i64 {f.add(w.address(found), ALIGN - 1)}, {-ALIGN}")
            f.store(f.let(f"inttoptr i64 {start} to ptr"), "ptr", memory, 8)
        context = f.load(memory, "ptr", 8)
        taken = f.load(own, "ptr", 8)
        code = f.call(
            "i32", "@graphc_made", f"ptr {m}", "ptr %options", f"ptr {plan}", f"ptr {context}",
            f"ptr {taken}",
        )
        with f.when(f.let(f"icmp ne i32 {code}, 0")):
            f.call("void", "@free", f"ptr {taken}")
            f.ret(f"i32 {code}")
            f.block(f.label("never"))
        f.store(context, "ptr", "%context", 8)
        f.ret("i32 0")

    def _destroy(self) -> None:
        w = self._function("void @NAME_destroy(ptr %context)")
        w.end_if(self._foreign(w), "")
        f = w.f
        own = w.pointer("%context", Word.MEMORY)
        f.call("void", "@graphc_gone", "ptr %context")
        f.call("void", "@free", f"ptr {own}")
        f.ret()

    def _foreign(self, w: Writer) -> str:
        """An i1: %context is none of this library's, or none any more."""
        f = w.f
        self_ = f.alloca("i1", 1, 1)
        f.store("true", "i1", self_, 1)
        with f.when(f.let("icmp ne ptr %context, null")):
            magic = w.get("%context", Word.MAGIC)
            f.store(f.cmp("ne", magic, w.address("@levels")), "i1", self_, 1)
        return f.load(self_, "i1", 1)

    def _enter(self, w: Writer) -> None:
        """Ends the function where the context is none, or another thread is in it."""
        f = w.f
        w.end_if(self._foreign(w), f"i32 {CODE['ARGUMENT']}")
        busy = f.gep("%context", int(Word.BUSY), "i64")
        pair = f.let(f"cmpxchg ptr {busy}, i64 0, i64 1 acquire monotonic")
        held = f.let(f"extractvalue {{ i64, i1 }} {pair}, 1")
        w.end_if(f.let(f"xor i1 {held}, true"), f"i32 {CODE['BUSY']}")
        f.store(0, "i8", w.pointer("%context", Word.MESSAGE), 1)

    def _leave(self, w: Writer, code: str) -> None:
        busy = w.f.gep("%context", int(Word.BUSY), "i64")
        w.f.emit(f"store atomic i64 0, ptr {busy} release, align 8")
        w.f.ret(f"i32 {code}")

    def _guarded(self, name: str, inner: str, *parameters: str) -> None:
        """A function of a context that is one, and free, and of more: what the inner one does."""
        given = "ptr %context", *parameters
        w = self._function(f"i32 @NAME_{name}({', '.join(given)})")
        self._enter(w)
        self._leave(w, w.f.call("i32", f"@graphc_{inner}", *given))

    def _set_threads(self) -> None:
        w = self._function("i32 @NAME_set_threads(ptr %context, i32 %threads)")
        f = w.f
        self._enter(w)
        threads = f.let("sext i32 %threads to i64")
        inner = Writer(
            self.module, self.texts, "i32 @graphc_set_threads(ptr %context, i64 %threads)"
        )
        g = inner.f
        inner.refuse_if(
            inner.either(g.cmp("slt", "%threads", 1), g.cmp("sgt", "%threads", MOST_THREADS)),
            "%context", CODE["THREADS"], f"threads is {A}: 1 to {B}",
            numbers=("%threads", MOST_THREADS),
        )
        g.ret("i32 " + g.call(
            "i32", "@graphc_threads", "ptr %context", "ptr %context", "i64 %threads"
        ))
        self._leave(w, f.call("i32", "@graphc_set_threads", "ptr %context", f"i64 {threads}"))

    def _told(self) -> None:
        w = self._function("ptr @NAME_message(ptr %context)")
        w.end_if(self._foreign(w), f"ptr {self.texts('this is no context')}")
        w.f.ret(f"ptr {w.pointer('%context', Word.MESSAGE)}")
        w = self._function("ptr @NAME_cpu(ptr %context)")
        w.end_if(self._foreign(w), "ptr null")
        level = w.table("@levels", w.get("%context", Word.LEVEL), LEVEL)
        w.f.ret(f"ptr {w.f.load(level, 'ptr', 8)}")

    def _shapes(self) -> None:
        self._guarded("shapes", "shapes", "ptr %inputs", "ptr %outputs")
        w = Writer(
            self.module, self.texts,
            "i32 @graphc_shapes(ptr %context, ptr %inputs, ptr %outputs)",
        )
        _, _, computed = self._bound(w, "null")
        w.f.ret("i32 " + w.f.call(
            "i32", "@graphc_tell", "ptr %context", "ptr %outputs", f"ptr {computed}"
        ))

    def _bound(self, w: Writer, needs: str) -> tuple[str, str, str]:
        """The code for a call, its named sizes, and what follows from them."""
        f = w.f
        dims = f.alloca("i64", max(len(self.interface.sizes), 1), 8)
        computed = f.alloca("i64", max(len(self.tables.computed), 1), 8)
        w.end_unless_well(f.call(
            "i32", "@graphc_bind", "ptr %context", "ptr %inputs", f"ptr {dims}", f"ptr {needs}"
        ))
        variant = f.call("ptr", "@graphc_find", "ptr %context", f"ptr {dims}")
        w.refuse_if(
            w.is_null(variant), "%context", CODE["RANGE"], "the library has no code for these sizes"
        )
        guards = w.field(variant, VARIANT, Variant.GUARDS)
        with f.when(f.let(f"icmp ne ptr {guards}, null")):
            w.end_unless_well(f.call("i32", guards, "ptr %context", f"ptr {dims}"))
        f.call("void", "@graphc_computed", f"ptr {dims}", f"ptr {computed}")
        return variant, dims, computed

    def _run(self) -> None:
        shown = "run" if self.interface.step is None else "step"
        self._guarded(shown, "run", "ptr %inputs", "ptr %outputs")
        w = Writer(
            self.module, self.texts, "i32 @graphc_run(ptr %context, ptr %inputs, ptr %outputs)"
        )
        f = w.f
        count = len(self.interface.inputs) + len(self.interface.outputs)
        needs = f.alloca("i64", max(count, 1), 8)
        variant, dims, computed = self._bound(w, needs)
        w.end_unless_well(f.call(
            "i32", "@graphc_take", "ptr %context", "ptr %inputs", "ptr %outputs",
            f"ptr {computed}", f"ptr {needs}",
        ))
        if self.interface.step is not None:
            w.end_unless_well(f.call(
                "i32", "@graphc_outside", "ptr %context", "ptr %inputs", "ptr %outputs",
                f"ptr {needs}",
            ))
            w.end_unless_well(f.call(
                "i32", "@graphc_numbers", "ptr %context", "ptr %inputs", f"ptr {dims}"
            ))
        f.ret("i32 " + f.call(
            "i32", "@graphc_execute", "ptr %context", f"ptr {variant}", "ptr %inputs",
            "ptr %outputs", f"ptr {dims}", f"ptr {computed}", f"ptr {needs}",
        ))

    def _state(self, step: Step) -> None:
        """What gives out the state of a training step, and takes another."""
        f = self._function("i64 @NAME_state_bytes()").f
        f.ret(f"i64 {state.file_bytes(step)}")
        for name, parameters in (
            ("state_save", ("ptr %file", "i64 %bytes")),
            ("state_load", ("ptr %file", "i64 %bytes")),
            *((name, ("ptr %path",)) for name in state_files.FUNCTIONS if self.files),
            ("seed", ("i64 %seed",)),
        ):
            self._guarded(name, name, *parameters)
        w = self._function("ptr @NAME_state_data(ptr %context, i32 %number)")
        w.end_if(self._foreign(w), "ptr null")
        f = w.f
        number = f.let("sext i32 %number to i64")
        w.end_if(f.let(f"icmp uge i64 {number}, {len(step.states)}"), "ptr null")
        offset = f.load(f.gep("@state_offsets", number, "i64"), "i64", 8)
        f.ret(f"ptr {w.bytes_behind(w.pointer('%context', Word.STATE), offset)}")
