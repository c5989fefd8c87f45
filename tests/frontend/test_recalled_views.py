"""What a view is made of is noted from the second call on: most indices of a data set come once."""

import pytest

import graphc
from graphc.frontend import recalled


def test_an_index_is_noted_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalled, "_known", {})
    monkeypatch.setattr(recalled, "_seen", {}, raising=False)
    rows = graphc.arange(600.0).reshape(200, 3)
    first = [rows[i].tolist() for i in range(200)]
    once = [key for key in recalled._known if 150 in key]
    assert first == [[3.0 * i, 3.0 * i + 1, 3.0 * i + 2] for i in range(200)]
    assert not once
    again = [[rows[i].tolist() for i in range(200)] for _ in range(2)]
    assert again == [first, first]
    assert recalled._known
    assert not set(recalled._known) & set(recalled._seen)
