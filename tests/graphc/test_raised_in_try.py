"""A matrix that cannot be taken, inside of a try statement of a function that runs in segments."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.frontend import caught

BAD = [[1.0, 2.0], [2.0, 1.0]]


def first_positive(matrix: Any) -> tuple[Any, int]:
    """The factor of the matrix with as much on its diagonal as is needed."""
    for i in range(6):
        try:
            return graphc.linalg.cholesky(matrix + 1.5e-3 * 10**i * graphc.eye(2)), i
        except RuntimeError:
            continue
    raise ValueError("none is positive")


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__


def step(x: Any, matrix: Any) -> Any:
    factor, tries = first_positive(matrix)
    number = float(x.sum())  # a segment ends
    try:
        solved = graphc.linalg.solve(matrix * 0, x)
    except graphc.linalg.LinAlgError:
        solved = x * 3
    return factor * number, tries, attempt(graphc.linalg.inv, matrix * 0), solved


@pytest.mark.parametrize("resumed", [False, True])
def test_what_a_segment_raises_is_caught_where_eager_mode_does(resumed: bool) -> None:
    def call(x: Any, matrix: Any) -> Any:
        if resumed:
            float(x[0])
        return step(x, matrix)

    compiled = graphc.compile(call)
    x = graphc.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphc.PerformanceWarning)
        for values in (BAD, BAD, [[1.0, 0.0], [0.0, 1.0]], BAD):
            matrix = graphc.tensor(values)
            have, want = compiled(x, matrix), call(x, matrix)
            assert have[1:3] == want[1:3]
            assert graphc.allclose(have[0], want[0]) and graphc.equal(have[3], want[3])


def found_at(x: Any, place: Any) -> Any:
    number = float(x.sum())  # a segment ends
    try:
        found = x[place] * number
    except IndexError:
        found = x[:1] * 0
    try:
        row = graphc.nn.functional.embedding(place, x[:, None])
    except (KeyError, graphc.cuda.OutOfMemoryError, Exception):
        row = None
    return found, row


def test_a_position_out_of_range_is_caught() -> None:
    compiled = graphc.compile(found_at)
    x = graphc.arange(3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphc.PerformanceWarning)
        for places in ([0], [7], [2], [9], [1]):
            have, want = compiled(x, graphc.tensor(places)), found_at(x, graphc.tensor(places))
            assert have[0].tolist() == want[0].tolist()
            assert (have[1] is None) == (want[1] is None)


def test_which_functions_catch() -> None:
    def asked() -> bool:
        return caught.is_caught(IndexError)

    def in_with() -> bool:
        with contextlib.nullcontext():
            return asked()

    def in_finally() -> bool:
        try:
            return asked()
        finally:
            print(end="")

    def in_except() -> bool:
        try:
            return in_finally()
        except (ValueError, LookupError):
            return False

    def in_another() -> bool:
        try:
            return in_finally()
        except (ValueError, graphc.cuda.OutOfMemoryError):
            return False
        except RuntimeError as error:
            raise ValueError from error

    def in_second() -> bool:
        try:
            return in_another()
        except ValueError:
            return False
        except Exception:
            return False

    def in_bare() -> bool:
        try:
            with contextlib.nullcontext():
                return asked()
        except:  # noqa: E722
            return False

    def behind() -> bool:
        try:
            raise ValueError
        except ValueError:
            return asked()

    tried = (asked, in_with, in_finally, in_another, behind, in_except, in_second, in_bare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caught, "entries", {test_which_functions_catch.__code__})
        found = [each() for each in tried]
    assert found == [False] * 5 + [True] * 3


def test_solve_ex_does_not_raise() -> None:
    singular = graphc.tensor([[[0.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 4.0]]])
    found, info = graphc.linalg.solve_ex(singular, graphc.ones(2, 2, 1))
    assert (info != 0).tolist() == [True, False]
    assert found[1, :, 0].tolist() == [0.5, 0.25]
    with pytest.raises(graphc.linalg.LinAlgError):
        graphc.linalg.solve_ex(singular, graphc.ones(2, 2, 1), check_errors=True)
    assert graphc.linalg.solve_ex(singular[1], graphc.ones(2))[0].tolist() == [0.5, 0.25]
