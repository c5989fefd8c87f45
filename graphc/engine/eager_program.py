"""Eager mode: what a replayed function comes to on few numbers, without history, as one call of
native code: a program of NumPy's own loops and of moves (program_writer.py).

The bits are NumPy's: the first results are held against it, so when a program takes over does not
matter. The code is loaded once it has been asked for by so many operators that this pays: a
function of sixty asks after some dozens of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..frontend.storage import Storage
from ..frontend.tensor import Tensor
from .eager_rows import MOST, native
from .program_code import Code
from .program_writer import Unwritten, Writer, write

Array = np.ndarray[Any, Any]
Run = Callable[[list[Tensor]], list[Tensor]]
# a step, what makes the view that it may be, the value that this is of, all operands' arrays
Codes = Sequence[tuple[Any, Any, int, Callable[[list[Any]], Any]]]
_KINDS = frozenset("?bBhilqfd")
_HELD = 2  # results


def program(
    codes: Codes, results: Sequence[int], ready: Run, install: Callable[..., None]
) -> Run:
    """See Eager.program."""
    work = sum(view is None for _, view, _, _ in codes)

    def waiting(tensors: list[Tensor]) -> list[Tensor]:
        found = ready(tensors)
        code = native.program(work)
        if code is not None:
            made = _made(code, codes, results, tensors)
            install(ready if made is None else _held(made, ready, install))
        return found

    return waiting


# the results, or the only one; what it is given says them of tensors that are not for the program
Made = Callable[[Callable[[list[Tensor]], Any]], Callable[[list[Tensor]], Any]]


def _held(made: Made, ready: Run, install: Callable[..., None]) -> Run:
    """Both, until the program was right so often; what serves from then on is installed."""
    right, tried = 0, made(lambda tensors: None)

    def early(tensors: list[Tensor]) -> list[Tensor]:
        nonlocal right
        expected, mine = ready(tensors), tried(tensors)
        if mine is not None:
            single = type(mine) is not list
            if not all(map(_same, [mine] if single else mine, expected)):
                install(ready)
                return expected
            right += 1
            if right >= _HELD and single:
                alone = made(lambda tensors: ready(tensors)[0])
                install(lambda tensors: [alone(tensors)], alone)
            elif right >= _HELD:
                install(made(ready))
        return expected

    return early


def _same(mine: Tensor, theirs: Tensor) -> bool:
    a, b = mine._graphc_array, theirs._graphc_array
    return a.strides == b.strides and a.tobytes() == b.tobytes()


def _made(
    code: Code, codes: Codes, results: Sequence[int], tensors: list[Tensor]
) -> Made | None:
    """The program, written for row-major tensors like these; None: there is none."""
    try:
        return _written(code, codes, results, tensors)
    except Unwritten:
        return None


def _fit(array: Any) -> Array:
    if type(array) is not np.ndarray or array.dtype.char not in _KINDS or not (
        0 < array.size <= MOST
    ):
        raise Unwritten
    return array


def _written(
    code: Code, codes: Codes, results: Sequence[int], tensors: list[Tensor]
) -> Made:
    values: list[Array] = [_fit(t._graphc_array).copy("C") for t in tensors]
    w, roots = Writer(code, values), list(range(len(values)))
    for step, view, source, operands in codes:
        if view is not None:
            array = view(values[source])
            if array is not None:
                values.append(_fit(array))
                roots.append(roots[source])
                continue
        given = list(operands(values))
        w.constants += [s._graphc_array for s in step.sources if type(s) is not int]
        out = _fit(step.signature.ready(*map(_fit, given)))
        mine = np.empty_like(out)
        np.copyto(mine, out)
        if mine.strides != out.strides:
            raise Unwritten
        if any(type(s) is int for s in step.sources):
            write(w, step.op, step.attrs, given, mine)
        else:
            w.constants.append(mine)
        roots.append(len(values))
        values.append(mine)
    made, parts = [], []
    for i in results:
        value, root = values[i], values[roots[i]]
        if not root.flags.c_contiguous or roots[i] < len(tensors):
            raise Unwritten
        off = value.ctypes.data - root.ctypes.data
        if w.is_constant(root) or any(root is x for x in w.filled):
            stays, root = root, np.empty_like(root)
            w.move(stays, root)
        whole = off == 0 and value.size == root.size and value.flags.c_contiguous
        made.append(root.reshape(value.shape) if whole else root)
        parts.append(None if whole else (value.shape, value.dtype, off, value.strides))
    found = _running(*w.finish(made), [(r.shape, r.dtype) for r in made], parts)
    odd = [(i, a.strides) for i, a in enumerate(values[: len(tensors)]) if 1 in a.shape]
    return _of_strides(found, odd) if odd else found


def _of_strides(made: Made, wanted: Sequence[tuple[int, Any]]) -> Made:
    """Of tensors with these strides: dims of one number may have others, which show in results,
    and by which an image counts as one with its channels last."""

    def make(otherwise: Callable[[list[Tensor]], Any]) -> Callable[[list[Tensor]], Any]:
        run = made(otherwise)

        def checked(tensors: list[Tensor]) -> Any:
            for i, strides in wanted:
                if tensors[i]._graphc_array.strides != strides:
                    return otherwise(tensors)
            return run(tensors)

        return checked

    return make


def _running(
    fill: Callable[..., Any], keep: Any, made: Sequence[tuple[Any, Any]], parts: Sequence[Any]
) -> Made:
    """`keep`: what the native code reads, which must live as long as what is made here."""
    new: Any = object.__new__
    empty = np.empty

    def one(otherwise: Callable[[list[Tensor]], Any]) -> Callable[[list[Tensor]], Any]:
        ((shape, dtype),) = made

        def alone(tensors: list[Tensor], _keep: Any = keep) -> Any:
            out = fill(*[t._graphc_array for t in tensors], empty(shape, dtype))
            if out is None:
                return otherwise(tensors)
            result: Tensor = new(Tensor)
            result._graphc_array = out
            result._graphc_storage = Storage(out)
            return result

        return alone

    def some(otherwise: Callable[[list[Tensor]], Any]) -> Callable[[list[Tensor]], Any]:
        def several(tensors: list[Tensor], _keep: Any = keep) -> Any:
            memory = [empty(shape, dtype) for shape, dtype in made]
            if fill(*[t._graphc_array for t in tensors], *memory) is None:
                return otherwise(tensors)
            found = []
            for array, part in zip(memory, parts, strict=True):
                result: Tensor = new(Tensor)
                result._graphc_storage = Storage(array)
                if part is not None:
                    shape, dtype, off, strides = part
                    array = np.ndarray(shape, dtype, array, off, strides)
                result._graphc_array = array
                found.append(result)
            return found

        return several

    return one if len(made) == 1 and parts[0] is None else some
