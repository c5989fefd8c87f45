"""NumPy inside a compiled function: every public function, listed or not, is open or right.

Each is called with the first of a few arguments that it takes, one of them an array from before the
call, in eager mode and compiled, over calls between which the array changes.
"""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.capture import numpy_tables
from graphc.engine.capture.numpy_calls import is_listed

# they run tests, print pages, stop the process or close files by number; and what they give differs
# from call to call
_LEFT_OUT = frozenset("""
    test info show_config show_runtime get_include abort empty empty_like ndarray set_bit_generator
    ids clear_and_catch_warnings fromfile memmap load loadtxt genfromtxt fromregex
    jiffies memusage rundocs
""".split())
_MODULES = (
    np, np.linalg, np.fft, np.char, np.strings, np.random, np.ma, np.lib.stride_tricks, np.testing,
    np.polynomial.polynomial, np.rec,
)
_OF_C = (np.ufunc, type(np.sum), type(np.array))
_LOG: list[Any] = []
_TEXTS = np.array(["ab", "c"])
# what functions are called with: h is the array
ARGUMENTS: tuple[Callable[[Any], tuple[Any, ...]], ...] = (
    lambda h: (h,), lambda h: (h, h), lambda h: (h[0],), lambda h: (h[0], h[1]), lambda h: (h, 1),
    lambda h: (1, h), lambda h: (h, 0, 1), lambda h: (h @ h.T,), lambda h: (h[0], [0, 1, 2], h[1]),
    lambda h: (h.astype(int),), lambda h: (h.astype(int), 1), lambda h: (h > 1,), lambda h: (3,),
    lambda h: (h > 1, h), lambda h: (h, h > 1, [7.0]), lambda h: (h, [0], 7.0), lambda h: ((2, 2),),
    lambda h: (h, [[0]], 7.0, 1), lambda h: ([h[0], h[1]],), lambda h: (1, 2), lambda h: (2, 2, 1),
    lambda h: ("ij->i", h), lambda h: ([h > 1], [h]), lambda h: (_LOG.append, h), lambda h: (),
    lambda h: (_LOG.append, 0, h), lambda h: (_LOG.append, 1, 1), lambda h: (_TEXTS,),
    lambda h: (_TEXTS, "a"), lambda h: (_TEXTS, 4), lambda h: (_TEXTS, "a", "b"),
    lambda h: ("f4", "f8"), lambda h: ("2020-01-01", "2020-02-01"), lambda h: ("file.npy", h),
)


def functions() -> Iterator[Any]:
    """(name, function) of everything public that can be called."""
    for module in _MODULES:
        for name in dir(module):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of names that NumPy drops
                found = getattr(module, name)
            if name.startswith("_") or name in _LEFT_OUT or isinstance(found, types.ModuleType):
                continue
            if callable(found) and not (isinstance(found, type) and issubclass(found, Exception)):
                yield pytest.param(found, id=f"{module.__name__}.{name}")


def start() -> np.ndarray:
    np.random.seed(0)
    _LOG.clear()
    for name in os.listdir("."):
        Path(name).unlink()
    return np.arange(1.0, 7).reshape(2, 3)


def taken(function: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """Arguments that a function takes; None if it takes none of these."""
    for arguments in ARGUMENTS:
        try:
            function(*arguments(start()))
        except Exception:
            continue
        return arguments
    return None


def seen(function: Callable[..., Any], array: np.ndarray) -> list[Any]:
    """What calls give and leave, as texts."""
    found = []
    for i in range(5):
        try:
            result = function(graphc.ones(2), array)
        except Exception as error:
            result = type(error).__name__
        found.append((repr(result), repr(array), len(_LOG), os.listdir(".")))
        if i % 2 and array.flags.writeable:
            array[0, 0] += 1.5
    return [text if " at 0x" not in text[0] else text[1:] for text in found]


@pytest.mark.parametrize("function", list(functions()))
def test_open_or_right(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = np.geterr(), np.get_printoptions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = taken(function)
        if arguments is None:
            pytest.skip("it takes none of these arguments")

        def call(x: Any, array: np.ndarray) -> Any:
            return x * 2, function(*arguments(array))

        compiled = graphc.compile(call)
        try:
            assert seen(compiled, start()) == seen(call, start())
        finally:
            np.seterr(**settings[0])
            np.set_printoptions(**settings[1])
    if type(function) in _OF_C and not is_listed(function):
        assert compiled.segments is not None


def test_rows_name_what_there_is() -> None:
    """A name that NumPy does not have is one of another version."""
    renamed = frozenset("""
        alltrue row_stack in1d trapz unstack cumulative_prod cumulative_sum slice vecdot unique_all
    """.split())
    for rows in (numpy_tables._FUNCTIONS, numpy_tables._PRINTED, numpy_tables._OF_NEW):
        for path, text in rows.items():
            owner = numpy_tables._found(path)
            lost = [name for name in text.split() if not hasattr(owner, name)]
            assert set(lost) <= renamed, (path, lost)


ORDINARY: dict[str, Callable[[np.ndarray], Any]] = {
    "make": lambda h: np.zeros(3, "f4") + np.ones(3) + np.full(3, 2) + np.arange(3) + np.eye(3)[0],
    "scale": lambda h: (h - h.mean(axis=0)) / (h.std(axis=0) + 1e-8),
    "clip": lambda h: np.clip(h, 0, 2).astype(np.float32) / np.float32(255),
    "one hot": lambda h: np.eye(8)[h.astype(int).ravel() % 8],
    "order": lambda h: h[np.argsort(-h[:, 0])][::-1].copy(),
    "stack": lambda h: np.stack([h, np.flip(h, 1)]).transpose(0, 2, 1).flatten(),
    "pad": lambda h: np.pad(np.expand_dims(h, 0), ((0, 0), (1, 1), (0, 0)), constant_values=1),
    "mask": lambda h: np.where(h > h.mean(), h, np.nan_to_num(np.nanmax(h))),
    "positions": lambda h: np.concatenate([np.sin(np.outer(h[0], h[1])), np.cos(h)], axis=0),
    "grid": lambda h: np.stack(np.meshgrid(h[0], h[1]), -1) + np.mgrid[0:3, 0:3].T,
    "statistics": lambda h: [float(np.percentile(h, 30)), np.median(h).item(), int(h.argmax())],
    "products": lambda h: np.einsum("ij,kj->ik", h, h) @ np.linalg.inv(np.eye(2)) + np.dot(h, h.T),
    "errors": lambda h: _quiet(h),
    "facts": lambda h: np.finfo(np.float32).eps + np.iinfo(np.int8).max + np.dtype("f4").itemsize,
    "count": lambda h: np.unique(np.digitize(h, [2, 4]), return_counts=True)[1],
    "reduce": lambda h: np.add.reduce(h) + np.maximum.accumulate(h[0]) + np.cumsum(h[1]),
    "in place": lambda h: _in_place(h),
    "list": lambda h: [list(map(float, row)) for row in h.tolist()],
    "random": lambda h: np.random.rand() * h[0, 0],
    "bytes": lambda h: len(h.tobytes()) + h.nbytes + h.size,
}


def _quiet(h: np.ndarray) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(h - 1)


def _in_place(h: np.ndarray) -> Any:
    h += 1
    h[h > 9] = 0
    np.multiply(h, 2, out=h)
    return h.sum()


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_use_is_one_graph(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    use = ORDINARY[name]

    def call(x: Any, array: np.ndarray) -> Any:
        return x * 2, use(array)

    compiled = graphc.compile(call)
    assert seen(compiled, start()) == seen(call, start())
    assert compiled.segments is None
