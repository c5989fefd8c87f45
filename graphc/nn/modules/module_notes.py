"""Which module of a model an exception came from, as a note on it (PEP 678)."""

from __future__ import annotations

from typing import Any


class ModuleNote(str):
    """The note's text, and the outermost module that the exception has passed so far."""

    outer: Any
    inner: Any
    path: str

    def __reduce__(self) -> Any:
        return str, (str(self),)  # a pickled exception leaves the model behind


def note_module(module: Any, error: BaseException) -> None:
    """Let `error`, on its way out of `module`, say the path of the innermost module in it."""
    notes = getattr(error, "__notes__", None) or []
    found = next((i for i, note in enumerate(notes) if isinstance(note, ModuleNote)), None)
    if found is None:
        error.add_note(_note(module, module, ""))
        return
    note = notes[found]
    name = next((name for name, m in module.named_modules() if m is note.outer), "")
    if name:
        notes[found] = _note(module, note.inner, f"{name}.{note.path}".rstrip("."))


def _note(outer: Any, inner: Any, path: str) -> ModuleNote:
    # of a module of modules the whole tree would be shown
    shown = type(inner).__name__ if inner._modules else repr(inner)
    note = ModuleNote(f"  in module {path} ({shown})" if path else f"  in module {shown}")
    note.outer, note.inner, note.path = outer, inner, path
    return note
