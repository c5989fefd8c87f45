"""Reading pickles safely: an interpreter of the opcodes that build plain data, and no others.

Names in the file are looked up in tables given by the caller; nothing is ever imported, and only
the functions in those tables are called. What `pickle.loads` would do with a hostile file is
therefore out of reach here.
"""

from __future__ import annotations

import pickle
import pickletools
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any, NoReturn


class UnpicklingError(pickle.UnpicklingError, RuntimeError):
    """A pickle that is damaged, or that names something which is not allowed: pickle's error, as
    programs catch it that try again with weights_only=False."""


class Name:
    """An allowed name: `make` is called on REDUCE and NEWOBJ; None for a name that is data. One
    that the user declared safe may be both."""

    __slots__ = ("make", "text", "value")

    def __init__(self, text: str, make: Callable[..., Any] | None, value: Any = None) -> None:
        self.text, self.make, self.value = text, make, value


def _encode(text: str, encoding: str = "utf-8") -> bytes:
    """_codecs.encode, which protocol 2 uses for bytes."""
    if encoding not in ("latin1", "utf-8", "ascii"):
        raise UnpicklingError(f"the file encodes bytes with {encoding!r}")
    return text.encode(encoding)


def _bytearray(content: Any = b"", encoding: str = "latin1") -> bytearray:
    """Only of contents: a bare size would be memory without data in the file."""
    if isinstance(content, str):
        content = _encode(content, encoding)
    if not isinstance(content, bytes):
        raise UnpicklingError(f"a bytearray of {type(content).__name__}")
    return bytearray(content)


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict([(item[0], item[1]) for item in items])


# What plain containers need; protocol 2 spells the module of builtins "__builtin__".
_PLAIN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "collections.Counter": Counter,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.bytearray": _bytearray,
    "builtins.complex": complex,
    "_codecs.encode": _encode,
}

# which another one is handed: the tensor that becomes one of a user's class
_HANDED_ON = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")

_CONSTANTS = {
    "NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (),
}
_CONTAINERS: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set,
}
_LITERALS = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
    "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE "
    "BINUNICODE8".split()
)
_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


class Reader:
    """One pickle's stack machine.

    `calls` maps "module.name" to the function that stands for it, `values` to the datum that it
    means; `persistent` resolves persistent ids (storages).
    """

    def __init__(
        self, calls: Mapping[str, Callable[..., Any]], values: Mapping[str, Any],
        persistent: Callable[[Any], Any], safe: Mapping[str, Any] | None = None,
    ) -> None:
        self.calls, self.values, self.persistent = calls, values, persistent
        self.safe = safe or {}  # what the user declared safe, by "module.name"
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def load(self, data: bytes | IO[bytes]) -> Any:
        """The object in `data` (a file is left behind its end). Raises UnpicklingError."""
        try:
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name == "STOP":
                    return self._plain(self.stack.pop())
                self._step(opcode.name, argument)
        except UnpicklingError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError,
                UnicodeError, MemoryError, OverflowError) as error:
            raise UnpicklingError(f"the pickle is damaged: {error!r}") from error
        raise UnpicklingError("the pickle has no end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _CONTAINERS:
            stack.append(_CONTAINERS[name]())
        elif name in _PUT:
            self.memo[int(argument)] = stack[-1]
        elif name in _GET:
            stack.append(self.memo[int(argument)])
        elif name in _TUPLES:
            items = stack[-_TUPLES[name]:]
            del stack[-_TUPLES[name]:]
            stack.append(tuple([self._plain(item) for item in items]))
        else:
            action = _ACTIONS.get(name)
            if action is None:
                raise UnpicklingError(f"the pickle uses the operation {name}, which is not allowed")
            action(self, argument)

    # --- names --------------------------------------------------------------------------

    def _name(self, module: str, name: str) -> Name:
        full = f"{module.replace('__builtin__', 'builtins')}.{name}"
        if full in self.values:
            return Name(full, None, self.values[full])
        make = self.calls.get(full) or _PLAIN.get(full)
        if make is not None:
            return Name(full, make)
        if full not in self.safe:
            self._refuse(full)
        return Name(full, self.safe[full], self.safe[full])

    def allows(self, full: str) -> bool:
        """Whether a file may name it."""
        return any(full in known for known in (self.values, self.calls, _PLAIN, self.safe))

    def _refuse(self, full: str) -> NoReturn:
        raise UnpicklingError(
            f"Weights only load failed: the file names {full}, which is not among what weights "
            "may hold (tensors, numbers, strings and plain containers). If you trust the file, "
            "load it with weights_only=False, which runs whatever code it asks for"
        )

    def _plain(self, value: Any, handed: bool = False) -> Any:
        """A datum; a bare name of a function is none, but among arguments (`handed`) what makes
        tensors."""
        if isinstance(value, Name):
            if value.make is not None and value.value is None:
                if handed and value.text in _HANDED_ON:
                    return value.make
                self._refuse(value.text)
            return value.value
        if value is _MARK:
            raise UnpicklingError("the pickle is damaged: a mark where a value should be")
        return value

    def _pop(self) -> Any:
        return self._plain(self.stack.pop())

    def _since_mark(self, handed: bool = False) -> list[Any]:
        stack = self.stack
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                items = [self._plain(item, handed) for item in stack[i + 1 :]]
                del stack[i:]
                return items
        raise UnpicklingError("the pickle is damaged: no mark")

    # --- operations ---------------------------------------------------------------------

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(self._name(module, name))

    def _stack_global(self, argument: None) -> None:
        name, module = self._pop(), self._pop()
        self.stack.append(self._name(str(module), str(name)))

    def _reduce(self, argument: None) -> None:
        arguments, function = self._pop(), self.stack.pop()
        if not isinstance(function, Name) or function.make is None:
            raise UnpicklingError("the pickle is damaged: it calls what is not a function")
        self.stack.append(function.make(*arguments))

    def _new(self, argument: None) -> None:
        """NEWOBJ: of a class that the user declared safe, an object without its __init__."""
        made = self.stack[-2]
        if not isinstance(made, Name) or not isinstance(made.value, type):
            self._reduce(argument)
            return
        arguments = self._pop()
        self.stack[-1] = made.value.__new__(made.value, *arguments)

    def _build(self, argument: None) -> None:
        state, target = self._pop(), self.stack[-1]
        if any(type(target) is kind for kind in self.safe.values()):
            set_state(target, state)
            return
        if isinstance(target, OrderedDict) and isinstance(state, dict):
            for name, value in state.items():
                if not isinstance(name, str) or name.startswith("__"):
                    raise UnpicklingError(f"the pickle sets {name!r} on a dictionary")
                target.__dict__[name] = value
        elif state is not None:
            raise UnpicklingError(
                f"the pickle sets the state of a {type(target).__name__}, which is not allowed"
            )

    def _append(self, argument: None) -> None:
        value = self._pop()
        _list(self.stack[-1]).append(value)

    def _appends(self, argument: None) -> None:
        items = self._since_mark()
        _list(self.stack[-1]).extend(items)

    def _add_items(self, argument: None) -> None:
        items, target = self._since_mark(), self.stack[-1]
        if type(target) is not set:
            raise UnpicklingError("the pickle is damaged: it adds to what is not a set")
        target.update(items)

    def _set_item(self, argument: None) -> None:
        value, key = self._pop(), self._pop()
        _dict(self.stack[-1])[key] = value

    def _set_items(self, argument: None) -> None:
        items = self._since_mark()
        _dict(self.stack[-1]).update(zip(items[::2], items[1::2], strict=True))

    def _from_mark(self, make: Callable[[list[Any]], Any]) -> None:
        self.stack.append(make(self._since_mark()))

    def _persistent(self, argument: None) -> None:
        self.stack.append(self.persistent(self._pop()))


def named_globals(data: bytes) -> set[str]:
    """Every "module.name" that a pickle names."""
    found: set[str] = set()
    texts: list[str] = []
    memo: dict[int, str] = {}
    for opcode, given, _ in pickletools.genops(data):
        argument: Any = given
        if opcode.name == "GLOBAL":
            found.add(argument.replace(" ", ".", 1).replace("__builtin__", "builtins"))
        elif opcode.name == "STACK_GLOBAL":
            found.add(".".join(texts[-2:]))
        elif opcode.name in _PUT and texts:
            memo[int(argument)] = texts[-1]
        elif opcode.name == "MEMOIZE" and texts:
            memo[len(memo)] = texts[-1]
        elif opcode.name in _GET:
            texts.append(memo.get(int(argument), ""))
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def set_state(target: Any, state: Any) -> None:
    """What BUILD does to an object of a class that the user declared safe."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    slots: Any = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    target.__dict__.update(state or {})
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise UnpicklingError(f"the pickle appends to a {type(value).__name__}")
    return value


def _dict(value: Any) -> dict[Any, Any]:
    if type(value) not in (dict, OrderedDict, Counter):
        raise UnpicklingError(f"the pickle sets items of a {type(value).__name__}")
    return value


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


_ACTIONS: dict[str, Callable[[Reader, Any], Any]] = {
    "PROTO": lambda reader, argument: None,
    "FRAME": lambda reader, argument: None,
    "MARK": lambda reader, argument: reader.stack.append(_MARK),
    "POP": lambda reader, argument: reader.stack.pop(),
    "POP_MARK": lambda reader, argument: reader._since_mark(),
    "DUP": lambda reader, argument: reader.stack.append(reader.stack[-1]),
    "MEMOIZE": lambda reader, argument: reader.memo.__setitem__(
        len(reader.memo), reader.stack[-1]
    ),
    "TUPLE": lambda reader, argument: reader.stack.append(tuple(reader._since_mark(handed=True))),
    "LIST": lambda reader, argument: reader._from_mark(list),
    "DICT": lambda reader, argument: reader._from_mark(_pairs),
    "FROZENSET": lambda reader, argument: reader._from_mark(frozenset),
    "GLOBAL": Reader._global,
    "STACK_GLOBAL": Reader._stack_global,
    "REDUCE": Reader._reduce,
    "NEWOBJ": Reader._new,
    "BUILD": Reader._build,
    "APPEND": Reader._append,
    "APPENDS": Reader._appends,
    "ADDITEMS": Reader._add_items,
    "SETITEM": Reader._set_item,
    "SETITEMS": Reader._set_items,
    "BINPERSID": Reader._persistent,
}
