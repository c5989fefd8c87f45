"""A rewritten copy of a code object, in which every read, write, call and iteration is an event.

For each event `make(kind, detail, where)` gives a site, once, while rewriting. The site goes into
the constants of the copy, and `site[operands]` does at run time what the instruction did. A
subscript is the one way to run Python code that needs no NULL on the stack and is the same in all
versions: LOAD_CONST site; SWAP 2; BINARY_SUBSCR. A call's site does not call: it gives back what
the copy then calls natively, so that super(), locals() and tracebacks see the user's own frame.

Kinds, their details and what the site is subscripted with:

    attribute name: object                    store_attribute name: (object, value)
    super_attribute name: (super, cls, self)  delete_attribute name: object
    global name: None                         store_global name: value
    free name: cell                           store_free name: (cell, value)
    delete_global name: None                  delete_free name: cell
    subscript: (container, key)               store_subscript: (container, key, value)
    slice: (container, start, stop)           store_slice: (container, start, stop, value)
    delete_subscript: (container, key)        contains "in"/"not in": (item, container)
    binary "+", "+=" ...: (a, b)              unary "-" "+" "~" "not": value
    compare "<" ...: (a, b)                   identity "is"/"is not": (a, b)
    truth: value, gives a bool                is_none: value, gives what is tested in its place
    iterate None/"yield from": iterable       unpack n or (before, after): iterable
    spread opcode: iterable or mapping        format: (value, None/"s"/"r"/"a", format spec)
    convert "s"/"r"/"a": value                call: (callable, args, kwargs or None), gives the same
    with: manager, gives (exit, entered)      import name: (level, fromlist)
    import_from name: module                  match "MATCH_KEYS": (subject, keys)
    match "MATCH_CLASS": (subject, class, names, count of positional patterns)

Sites of `iterate` must give real iterators, those of `identity` and `contains` real bools: the
interpreter does not look.
"""

from __future__ import annotations

from types import CodeType

from .assembly import Jump, assemble, exception_table, location_table, one
from .events import EVENTS
from .opcodes import JUMPS, KNOWN_PYTHON, Uninstrumentable, table
from .rewriting import Make, Rewriting, Where

__all__ = ["Make", "Uninstrumentable", "Where", "instrumented", "is_rewritten"]

_NOP = one("NOP")
_MARK = object()  # the last constant of rewritten code
_EXTRA_STACK = 6  # no replacement needs more than that above what it finds


def instrumented(code: CodeType, make: Make) -> CodeType:
    """A copy of `code` with sites in the place of what they stand for.

    An instruction whose `make` gives None stays as it is. Code objects among the constants stay the
    originals: the site of a call sees the function before it runs.

    Raises:
        Uninstrumentable: an opcode that the tables of this Python do not list; async code, class
            bodies and `import *`.
    """
    if not KNOWN_PYTHON:
        raise Uninstrumentable("graphc has no table of this Python's opcodes")
    return _rewritten(Rewriting(code, make))


def is_rewritten(code: CodeType) -> bool:
    """Whether a code object is such a copy."""
    constants = code.co_consts
    return bool(constants) and constants[-1] is _MARK


def _rewritten(it: Rewriting) -> CodeType:
    raw = it.code.co_code
    chunks: list[bytes] = []
    for at, instruction in enumerate(it.instructions):
        op = instruction.op
        event = EVENTS[op]
        chunk = None
        if event is not None and it.states[at] is not None:
            chunk = event(it, at, instruction)
            if chunk and table.CALL_HIDES_LINE and it.is_jump_target(at + 1):
                chunk += _NOP
        if JUMPS[op]:
            if at not in it.jumps:
                it.jumps[at] = Jump(chunk or b"", op, b"", instruction.target)
            chunk = b""
        elif chunk is None:
            chunk = raw[instruction.start : instruction.end]
        chunks.append(chunk)
    changed, positions = assemble(it.code, chunks, it.jumps)
    return it.code.replace(
        co_code=changed,
        co_consts=(*it.constants, _MARK),
        co_stacksize=it.code.co_stacksize + _EXTRA_STACK,
        co_linetable=location_table(it.locations, it.instructions, positions),
        co_exceptiontable=exception_table(it.handlers, positions),
    )
