"""What torch.compiler has said of functions, and how compiled functions are to behave."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, MutableSet
from typing import Any

from .. import backends
from ..frontend.errors import located
from ..ir import forks
from ..ir.record import record


class Mark(enum.Enum):
    """What a recording does where it meets a marked function."""

    DISABLED = "runs outside of graphs"
    ALLOWED = "its operations are recorded, its Python is not looked at"
    CONSTANT = "its result is a constant of each version"
    SUBSTITUTED = "another function is recorded in its place"


@record
class Marked:
    """The mark of one function. `detail`: a reason, or the substitute."""

    mark: Mark
    detail: Any = None


class _Marks:
    """Marks by a function's identity, for as long as it lives."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Marked]] = {}

    def add(self, function: Any, mark: Mark, detail: Any = None) -> None:
        """Mark a function."""
        number = id(function)
        reference = weakref.ref(function, lambda _: self._found.pop(number, None))
        self._found[number] = reference, Marked(mark, detail)

    def of(self, function: Any) -> Marked | None:
        """The mark of a function; None if it has none."""
        found = self._found.get(id(function))
        return found[1] if found is not None and found[0]() is function else None


marks = _Marks()

STANCES = (
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile",
    "aot_eager_then_compile",
)


@record
class Stance:
    """How calls of compiled functions behave: torch.compiler.set_stance."""

    name: str = "default"
    force_backend: str | Callable[..., Any] | None = None

    @property
    def eager(self) -> bool:
        """Whether nothing is compiled."""
        return self.name == "force_eager" or self.force_backend == "eager"

    @property
    def first_eager(self) -> bool:
        """Whether the first call of each function runs eagerly."""
        return self.name in ("eager_then_compile", "aot_eager_then_compile")

    def recompiles(self, name: str, reasons: list[str]) -> bool:
        """Whether a call that no version fits compiles one. Raises RuntimeError where it may not:
        `name` is the function's, `reasons` say why no version fits."""
        if self.name == "fail_on_recompile":
            raise RuntimeError(located(
                "Detected recompile when torch.compile stance is 'fail_on_recompile': no version "
                f"of {name}() fits{': ' if reasons else ''}{'; '.join(reasons)}"
            ))
        return self.name != "eager_on_recompile"


DEFAULT = Stance()


class Compilers:
    """What holds for all compiled functions of the process."""

    stance = DEFAULT
    backend: str = backends.DEFAULT
    functions: MutableSet[Any] = weakref.WeakSet()
    lock = forks.lock()
