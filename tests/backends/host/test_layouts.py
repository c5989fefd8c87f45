"""Where objects keep what native code reads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from graphc.backends.host import layouts
from graphc.backends.host.layouts import attribute_index, dict_place, layout, shared_keys, word
from graphc.frontend.tensor import Parameter, Tensor

known = pytest.mark.skipif(layout() is None, reason="not a Python whose objects are known")


class Plain:
    first: Any = None


class Slotted:
    __slots__ = ("first",)


@known
def test_attributes_that_lie_together() -> None:
    indices = [attribute_index(Plain, name) for name in ("first", "second", "first")]
    assert indices[0] == indices[2] != indices[1] and -1 not in indices


@known
def test_attributes_that_are_elsewhere() -> None:
    assert attribute_index(Slotted, "first") is None


@known
def test_a_class_without_room() -> None:
    class Full:
        pass

    for i in range(40):
        setattr(Full(), f"name{i}", i)
    assert attribute_index(Full, "late") == -1 or attribute_index(Full, "later") == -1


@known
def test_the_dict_of_an_object() -> None:
    one = Plain()
    place = dict_place(one)
    assert place is not None and word(place) == id(vars(one))
    one.__dict__ = {"first": 3}
    assert word(place) == id(vars(one))


@known
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="an object keeps its values")
@pytest.mark.parametrize("kind", [Tensor, Parameter])
def test_a_dict_that_shares_keys(kind: type) -> None:
    keys = shared_keys(kind, "_graphc_array")
    one: Any = object.__new__(kind)
    one._graphc_array, one._graphc_storage = 3, 4
    assert keys and word(id(vars(one)) + 32) == keys
    # as `one.__dict__ = ...` does, which Tensors do otherwise once there are subclasses of theirs
    set_dict = ctypes.pythonapi.PyObject_GenericSetDict
    assert set_dict(ctypes.py_object(one), ctypes.py_object(dict(vars(one))), None) == 0
    assert word(id(vars(one)) + 32) != keys


@known
def test_keys_that_are_not_shared() -> None:
    assert shared_keys(Slotted, "first") == 0


@pytest.mark.parametrize("name, value", [("DATA", 24), ("REFERENT", 24), ("_DICT_AT", -8)])
def test_what_is_not_as_expected(name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, name, value)
    assert layout.__wrapped__() is None


def test_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    assert layout.__wrapped__() is None


def test_without_it_calls_stay_with_python() -> None:
    code = (
        "import sys; sys.modules  # before graphc looks\n"
        "from graphc.backends.host import layouts; layouts.DATA = 24\n"
        "import graphc as torch\n"
        "f = torch.compile(lambda x: x + 1)\n"
        "for _ in range(4): assert f(torch.ones(2)).tolist() == [2, 2]\n"
        "assert not f._versions.shortcuts\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
