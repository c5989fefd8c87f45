"""Functions whose calls go elsewhere, while they stay the objects that they are.

Whoever holds such a function (a class, another module, a bound method) holds it still: it has
another code object, of the same name, place and parameters, that hands its arguments on. What looks
at a function's code to know what it does asks original().
"""

from __future__ import annotations

import functools
import inspect
import keyword
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from ..ir.record import record

_TARGET = "graphc.engine.detour: what is called"
_STARRED, _KEYWORDS = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
_UNFIT = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@record
class _Way:
    """The last constant of such code: what the function was."""

    code: CodeType


def original(code: CodeType) -> CodeType:
    """The code that a user wrote."""
    constants = code.co_consts
    way = constants[-1] if constants else None
    return way.code if type(way) is _Way else code


def twin_of(function: FunctionType) -> FunctionType:
    """A function with the same code, parameters and variables."""
    twin = FunctionType(
        original(function.__code__), function.__globals__, function.__name__,
        function.__defaults__, function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
    twin.__doc__ = function.__doc__
    return twin


def redirect(function: FunctionType, target: Callable[..., Any]) -> bool:
    """Let calls of a function go to `target`, from the next one on; whether that can be."""
    code = original(function.__code__)
    if code.co_flags & _UNFIT:
        return False
    made = _code(code)
    if made is None or made.co_freevars != code.co_freevars:
        return False
    constants = [target if value == _TARGET else value for value in made.co_consts]
    function.__code__ = made.replace(
        co_consts=(*constants, _Way(code)), co_name=code.co_name, co_qualname=code.co_qualname,
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_flags=code.co_flags,
    )
    return True


def interpose(
    function: FunctionType, asked: Callable[..., Any], handed: Any, plain: set[type]
) -> Callable[[], None] | None:
    """What has a function ask, from then on: calls with arguments of other types than `plain`, with
    none, or with keywords, go to asked(handed, twin, args, kwargs), the others to the twin, which
    has the function's own code. None where that cannot be."""
    code = original(function.__code__)
    if code.co_flags & _UNFIT:
        return None
    twin = twin_of(function)
    twin.__annotations__ = function.__annotations__
    twin.__dict__.update(function.__dict__)
    own = {_KIND: type, _PLAIN: plain, _TWIN: twin, _ASKED: asked, _HANDED: handed}
    made = _asking(code.co_freevars)
    constants = [own.get(value, value) if type(value) is str else value for value in made.co_consts]
    changed = made.replace(
        co_consts=(*constants, _Way(code)), co_name=code.co_name, co_qualname=code.co_qualname,
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno,
    )

    def change() -> None:
        function.__dict__.setdefault("__wrapped__", twin)  # its parameters, for inspect
        function.__code__ = changed

    return change


_KIND, _PLAIN, _TWIN, _ASKED, _HANDED = (
    f"graphc.engine.detour: {name}" for name in "type plain twin asked handed".split()
)


@functools.lru_cache(64)
def _asking(free: tuple[str, ...]) -> CodeType:
    """Code of any parameters that looks at the types of what it is given."""
    text = f"""def call(*args, **kwargs):
 for value in args:
  if ({_KIND!r} if 1 else 0)(value) not in ({_PLAIN!r} if 1 else 0): break
 else:
  if args and not kwargs: return ({_TWIN!r} if 1 else 0)(*args)
 return ({_ASKED!r} if 1 else 0)(({_HANDED!r} if 1 else 0), ({_TWIN!r} if 1 else 0), args, kwargs)
"""
    if free:
        inner = textwrap.indent(text, " ") + f"  {'; '.join(free)}"
        text = f"def make({', '.join(free)}):\n{inner}"
    found: Any = compile(text, "<graphc>", "exec", dont_inherit=True)
    for _ in range(1 + bool(free)):
        found = next(value for value in found.co_consts if isinstance(value, CodeType))
    made: CodeType = found
    return made


def restore(function: FunctionType) -> None:
    """Let calls of a function run its own code again."""
    function.__code__ = original(function.__code__)


def _code(code: CodeType) -> CodeType | None:
    """Code with the parameters and the variables of another, all on one line."""
    names = code.co_varnames
    count, only, named = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    plain, keywords = names[:count], names[count : count + named]
    rest = list(names[count + named :])
    taken = [*plain[:only], *["/"][: bool(only)], *plain[only:]]
    given = list(plain)
    if code.co_flags & _STARRED:
        star = f"*{rest.pop(0)}"
        taken.append(star)
        given.append(star)
    elif keywords:
        taken.append("*")
    taken += keywords
    given += [f"{name}={name}" for name in keywords]
    if code.co_flags & _KEYWORDS:
        star = f"**{rest.pop(0)}"
        taken.append(star)
        given.append(star)
    free = code.co_freevars
    if any(not n.isidentifier() or keyword.iskeyword(n) for n in (*names[: len(given)], *free)):
        return None
    # the variables stand behind the end: they are named, and nobody reads them
    text = f"def call({', '.join(taken)}): return ({_TARGET!r} if 1 else 0)({', '.join(given)})"
    if free:
        text = f"def make({', '.join(free)}):\n {text}; {'; '.join(free)}"
    inner: Any = compile(text, "<graphc>", "exec", dont_inherit=True)
    for _ in range(1 + bool(free)):
        inner = next(value for value in inner.co_consts if isinstance(value, CodeType))
    made: CodeType = inner
    return made
