"""Calls of compiled functions take shortcuts from their second call on, so that tests that call
twice see them, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import graphc
from graphc.engine.version import versions
from graphc.frontend import device, placement
from graphc.frontend.storage import readers
from graphc.frontend.values import Eager


@pytest.fixture(autouse=True)
def shortcuts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "is_time", lambda calls: True)


@pytest.fixture
def beside_meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where another device has been used, which tests behind do not see."""
    monkeypatch.setattr(placement, "_places", dict(placement._places))
    monkeypatch.setattr(device, "registered", set(device.registered))
    monkeypatch.setattr(placement, "registered", device.registered)
    monkeypatch.setattr(Eager, "elsewhere", None)
    placement._places.pop("meta", None)
    graphc.empty(2, device="meta")
    assert Eager.elsewhere is not None
    outer = dict(readers)  # backwards of other tests that have not run: writes ask them
    readers.clear()
    yield
    readers.update(outer)
