"""x[index] = value of another dtype: what PyTorch casts, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import graphc

torch = pytest.importorskip("torch")

INDICES: dict[str, Any] = {
    "int": lambda t: 1,
    "slice": lambda t: slice(0, 2),
    "all": lambda t: Ellipsis,
    "ints": lambda t: (1, 1),
    "mask": lambda t: t.tensor([True, False, True]),
    "mask of all": lambda t: t.tensor([[True, False], [True, True], [False, False]]),
    "mask behind": lambda t: (slice(None), t.tensor([True, False])),
    "mask and int": lambda t: (t.tensor([True, False, True]), 0),
    "masks": lambda t: (t.tensor([True, False, False]), t.tensor([True, False])),
    "positions": lambda t: t.tensor([0, 2]),
    "list": lambda t: [0, 2],
    "positions behind": lambda t: (slice(None), t.tensor([0, 1])),
    "no positions": lambda t: t.tensor([], dtype=t.int64),
    "one position": lambda t: t.tensor(1),
    "True": lambda t: True,
    "mask of one": lambda t: t.tensor(True),
}
VALUES: dict[str, Any] = {
    "0-d": lambda t, dtype: t.ones((), dtype=dtype),
    "one": lambda t, dtype: t.ones(1, dtype=dtype),
    "a matrix of one": lambda t, dtype: t.ones(1, 1, dtype=dtype),
    "half": lambda t, dtype: (t.ones(()) * 2.5).to(dtype),
    "nan": lambda t, dtype: (t.ones(()) * float("nan")).to(dtype),
    "large": lambda t, dtype: (t.ones((), dtype=t.float64) * 1e20).to(dtype),
}
DTYPES = [
    ("float32", "float64"), ("float64", "float32"), ("int64", "float32"), ("float32", "int64"),
    ("bool", "float32"), ("float16", "float64"), ("float32", "complex64"), ("int32", "int64"),
]


def written(t: Any, index: str, value: str, dtypes: tuple[str, str], compiled: bool) -> Any:
    x = t.zeros(3, 2, dtype=getattr(t, dtypes[0]))
    given = VALUES[value](t, getattr(t, dtypes[1]))

    def write(x: Any, given: Any) -> Any:
        x[INDICES[index](t)] = given
        return x

    try:
        return str((t.compile(write) if compiled else write)(x, given).tolist())
    except RuntimeError as error:
        return str(error).splitlines()[0].rstrip(".")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.filterwarnings("ignore")
def test_values_of_other_dtypes(index: str, compiled: bool) -> None:
    for value in VALUES:
        if compiled and value not in ("0-d", "a matrix of one"):
            continue  # whether a number fits is not asked there
        for dtypes in DTYPES[:3] if compiled else DTYPES:
            wanted = written(torch, index, value, dtypes, False)
            found = written(graphc, index, value, dtypes, compiled)
            assert found.startswith(wanted), (value, dtypes, found, wanted)


PUTS: dict[str, Any] = {
    "a mask": lambda t: t.zeros(3).index_put_((t.tensor([True, False, True]),), number(t)),
    "adding at a mask": lambda t: t.zeros(3).index_put_(
        (t.tensor([True, False, True]),), number(t), accumulate=True),
    "positions": lambda t: t.zeros(3).index_put((t.tensor([0]),), number(t)),
    "one position": lambda t: t.zeros(3).index_put((t.tensor(0),), number(t)),
    "what does not fit": lambda t: t.zeros(3, dtype=t.half).index_put(
        (t.tensor([True, False, True]),), number(t) * 1e10),
}


def number(t: Any) -> Any:
    return t.ones((), dtype=t.float64)


@pytest.mark.parametrize("name", PUTS)
def test_index_put(name: str) -> None:
    found = []
    for t in (torch, graphc):
        try:
            found.append(str(PUTS[name](t).tolist()))
        except RuntimeError as error:
            found.append(str(error).splitlines()[0].rstrip("."))
    assert found[1].startswith(found[0])


@pytest.mark.parametrize("name", ["mask", "mask of all", "mask behind", "mask and int"])
@pytest.mark.usefixtures("beside_meta")
def test_numbers_that_do_not_fit_where_another_device_was_used(name: str) -> None:
    for value in ("nan", "large"):
        wanted = written(torch, name, value, ("int64", "float32"), False)
        assert "overflow" in wanted
        assert written(graphc, name, value, ("int64", "float32"), False).startswith(wanted)


AT_POSITIONS: dict[str, Any] = {
    "index_select": lambda t, x, i: x.index_select(0, i),
    "index_add": lambda t, x, i: x.index_add(0, i, t.ones(2, 2)),
    "index_copy": lambda t, x, i: x.index_copy(0, i, t.ones(2, 2)),
    "index_add_": lambda t, x, i: (x * 1).index_add_(0, i, t.ones(2, 2)),
    "index_fill": lambda t, x, i: x.index_fill(0, i, 1.0),
    "index_select of columns": lambda t, x, i: x.index_select(1, i % 2 + i),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", AT_POSITIONS)
def test_positions_before_the_first(name: str, compiled: bool) -> None:
    """Compiled for indices that are right, then called with one that counts from the end."""
    for places in ([0, 1], [1, 0], [0, -1], [0, 3]):
        found = []
        for t in (torch, graphc):
            function = lambda x, i, t=t: AT_POSITIONS[name](t, x, i)  # noqa: E731
            run = graphc.compile(function) if compiled and t is graphc else function
            if run is not function:
                run(t.ones(3, 2), t.tensor([0, 0]))
            try:
                found.append(run(t.arange(6.0).reshape(3, 2), t.tensor(places)).tolist())
            except (IndexError, RuntimeError):
                found.append("refused")
        assert found[0] == found[1], places


def test_positions_among_symbolic_sizes() -> None:
    """One graph serves all sizes, and refuses an index that counts from the end in each."""
    select = graphc.compile(lambda x, i: x.index_select(0, i).index_add(0, i, x[:2]))
    for size in (3, 5, 6, 9):
        x = graphc.arange(2.0 * size).reshape(size, 2)
        i = graphc.tensor([0, 1])
        assert graphc.equal(select(x, i), 2 * x[:2])
        with pytest.raises((IndexError, RuntimeError)):
            select(x, graphc.tensor([0, -1]))
    assert select.compile_count == 2 and select.segments is None
