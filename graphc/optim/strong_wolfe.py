"""Line search for the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..frontend.tensor import Tensor

ARMIJO, CURVATURE, LEAST_CHANGE = 1e-4, 0.9, 1e-9


class Point(NamedTuple):
    """A step length t with the loss, the flat gradient and its product with the direction."""

    t: Any
    loss: Any
    grad: Tensor
    slope: Any


def cubic_minimum(a: Point, b: Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """The minimum of the cubic through two points with their slopes, kept in the bounds."""
    low, high = bounds if bounds is not None else (min(a.t, b.t), max(a.t, b.t))
    middle = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = middle**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    root = square.sqrt()
    left, right = (a, b) if a.t <= b.t else (b, a)
    share = (right.slope + root - middle) / (right.slope - left.slope + 2 * root)
    return min(max(right.t - (right.t - left.t) * share, low), high)


def strong_wolfe(
    evaluate: Callable[[Any], tuple[float, Tensor]], t: Any, direction: Tensor, loss: float,
    grad: Tensor, slope: Any, most: int,
) -> tuple[Point, int]:
    """The accepted point and how often the function was evaluated; at most about `most`."""

    def at(length: Any) -> Point:
        value, gradient = evaluate(length)
        return Point(length, value, gradient.clone(), gradient.dot(direction))

    start = Point(0, loss, grad.clone(), slope)
    bracket, done, rounds, evaluations = _bracket(at, start, t, most)
    if not done:
        bracket, more = _zoom(at, start, bracket, direction.abs().max(), most - rounds)
        evaluations += more
    return min(bracket, key=lambda point: point.loss), evaluations


def _bracket(
    at: Callable[[Any], Point], start: Point, t: Any, most: int
) -> tuple[list[Point], bool, int, int]:
    """Points round a good one (or that one, and True), rounds and evaluations used."""
    before, now = start, at(t)
    for rounds in range(most):
        too_high = now.loss > start.loss + ARMIJO * now.t * start.slope
        if too_high or (rounds > 1 and now.loss >= before.loss):
            return [before, now], False, rounds, rounds + 1
        if abs(now.slope) <= -CURVATURE * start.slope:
            return [now], True, rounds, rounds + 1
        if now.slope >= 0:
            return [before, now], False, rounds, rounds + 1
        bounds = now.t + 0.01 * (now.t - before.t), now.t * 10
        before, now = now, at(cubic_minimum(before, now, bounds))
    return [start, now], False, most, most + 1


def _zoom(
    at: Callable[[Any], Point], start: Point, bracket: list[Point], longest: Tensor, rounds: int
) -> tuple[list[Point], int]:
    """The bracket made smaller until an end fulfils the conditions; evaluations used."""
    low, high = (0, 1) if bracket[0].loss <= bracket[-1].loss else (1, 0)
    stalled = False
    for number in range(rounds):
        first, second = bracket[0].t, bracket[1].t
        if abs(second - first) * longest < LEAST_CHANGE:
            return bracket, number
        least, most = min(first, second), max(first, second)
        t, stalled = _away_from_ends(cubic_minimum(bracket[0], bracket[1]), least, most, stalled)
        now = at(t)
        too_high = now.loss > start.loss + ARMIJO * t * start.slope
        if too_high or now.loss >= bracket[low].loss:
            bracket[high] = now
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        if abs(now.slope) <= -CURVATURE * start.slope:
            bracket[low] = now
            return bracket, number + 1
        if now.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = now
    return bracket, rounds


def _away_from_ends(t: Any, least: Any, most: Any, stalled: bool) -> tuple[Any, bool]:
    """The trial length, moved a tenth inside where it stays near an end; whether it was near."""
    margin = 0.1 * (most - least)
    if min(most - t, t - least) >= margin:
        return t, False
    if not (stalled or t >= most or t <= least):
        return t, True
    return (most - margin if abs(t - most) < abs(t - least) else least + margin), False
