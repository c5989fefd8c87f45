"""Names that the user declares safe to load with weights_only=True (torch.serialization)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_safe: dict[str, Any] = {}


def _named(entry: Any) -> tuple[list[str], Any]:
    """The spellings of a class or function in files, and it; torch's names stand for graphc's."""
    if isinstance(entry, tuple):
        found, name = entry
        if not isinstance(name, str):
            raise ValueError(
                f"Each item in the tuple of safe globals is (object, str), got {entry!r}"
            )
        return [name], found
    if not callable(entry):
        raise TypeError(f"a class or a function can be declared safe, got {entry!r}")
    full = f"{entry.__module__}.{entry.__qualname__}"
    if full.startswith("graphc."):
        return [full, "torch." + full.removeprefix("graphc.")], entry
    return [full], entry


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let load(weights_only=True) call these classes and functions; or (object, name) pairs."""
    for entry in safe_globals:
        names, found = _named(entry)
        for name in names:
            _safe[name] = found


def get_safe_globals() -> list[Any]:
    """What was declared safe."""
    return list({id(v): v for v in _safe.values()}.values())


def clear_safe_globals() -> None:
    """Nothing is declared safe any more."""
    _safe.clear()


def safe_names() -> dict[str, Any]:
    """By the name in a file."""
    return _safe


class safe_globals:
    """add_safe_globals for a `with` block."""

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self.safe_globals = list(safe_globals)
        self._saved: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._saved = dict(_safe)
        add_safe_globals(self.safe_globals)

    def __exit__(self, *exc: object) -> None:
        _safe.clear()
        _safe.update(self._saved)
