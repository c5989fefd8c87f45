"""Calls of compiled functions take shortcuts from their second call on, so that tests that call
twice see them, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from graphc import config
from graphc.engine.version import shortcut, versions, whole_call


@pytest.fixture(autouse=True)
def shortcuts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "is_time", lambda calls: True)


@pytest.fixture
def nothing_before(unread: None) -> Iterator[None]:
    """As in a process that has used no config.override() and no graph that waits for a backward."""
    used, config.overridden = config.overridden, 0
    yield
    config.overridden = used


@pytest.fixture
def shortcut_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """(arguments, result) of calls that took a shortcut, or that native code made as a whole, of
    functions that are compiled from here on."""
    found: list[tuple[Any, Any]] = []
    inside = threading.local()
    run, init = shortcut.Shortcut.run, whole_call.WholeCall.__init__

    def noting(self: Any, args: Any, kwargs: Any) -> Any:
        inside.python = True
        try:
            result = run(self, args, kwargs)
        finally:
            inside.python = False
        if result is not shortcut.MISSED:
            found.append((args, result))
        return result

    def made(self: Any, *given: Any) -> None:
        init(self, *given)
        right = self.call

        def call(args: Any, *numbers: Any) -> Any:
            result = right(args, *numbers)
            if type(result) is not int and not getattr(inside, "python", False):
                found.append((args, result))
            return result

        self.call = call

    monkeypatch.setattr(shortcut.Shortcut, "run", noting)
    monkeypatch.setattr(whole_call.WholeCall, "__init__", made)
    return found
