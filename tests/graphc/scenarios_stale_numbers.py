"""(3) Numbers and sizes that vary between calls, in all that Python does with them."""

from __future__ import annotations

import fractions
import json
import math
from typing import Any

from tests.graphc.stale_scenario import Box, attempt, stale, whole

INTEGERS = (1, 2, 3, 7, 2, 300, -5)
MIXED = (1, 2, 2.5, 3.5, True, 2, 0.5)


def over(torch: Any, compile: Any, function: Any, numbers: Any) -> list[Any]:
    """The function of a tensor and each number, twice, with the results' types."""
    c = compile(function)
    out = []
    for n in (*numbers, *numbers):
        found = attempt(c, torch.ones(3), n)
        parts = found if isinstance(found, tuple) else (found,)
        out.append([[part, type(part).__name__] for part in parts])
    return out


@stale
def number_types(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        y = x * n if isinstance(n, float) else x + n
        return y, type(n) is int, isinstance(n, bool), type(n).__name__

    return over(torch, compile, f, MIXED)


@stale
def number_match(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        match n:
            case 1:
                return x + 1
            case int(k):
                return x * k
            case float():
                return x - n
        return x

    return over(torch, compile, f, MIXED)


@stale
def number_division(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        q, r = divmod(n, 3)
        return x * q + r, q, r, n // 2, n % -3, n / 4

    return over(torch, compile, f, (*INTEGERS, 7.5, -2.5))


@stale
def number_bits(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        return x * (n << 2), n >> 1, n & 6, n | 9, n ^ 3, ~n, n.bit_length()

    return over(torch, compile, f, INTEGERS)


@stale
def number_power(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        return x * pow(n, 3, 7), n**2, 2 ** abs(n) % 11, pow(n, 2)

    return over(torch, compile, f, INTEGERS)


@stale
def number_beyond_64_bits(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        return x + n % 5, n * n * n, n << 40, n // 7

    return over(torch, compile, f, (1, 2**40, 2**62, 2**63, 2**70, -(2**65)))


@stale
def number_as_key(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    table = {1: 2.0, 2: 3.0, 2.5: 4.0}

    def f(x, n):
        return x * table.get(n, 0.5), n in {1, 7}, hash(n), len({n, 2})

    return over(torch, compile, f, MIXED)


@stale
def number_as_text(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        return x, str(n), f"{n:>6}", f"{n!r}", "%s" % n, "{}".format(n), json.dumps([n])  # noqa: UP031, UP032

    return over(torch, compile, f, MIXED)


@stale
def number_rounded(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        return x * round(n), int(n), float(n), math.floor(n), math.ceil(n), round(n, 1), abs(n)

    return over(torch, compile, f, (1.5, 2.5, -2.5, 3, 2.25, -0.5))


@stale
def number_fractions(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        return x * float(fractions.Fraction(n) / 3), str(fractions.Fraction(n))

    return over(torch, compile, f, MIXED)


@stale
def number_compared(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        y = x + 1 if n > 2 else x * 2
        return y, n == 2, n != n, 1 < n <= 3, max(n, 2), min(1.5, n), not n, bool(n)

    return over(torch, compile, f, (*MIXED, 0, 1e30, -0.0))


@stale
def number_in_range_and_slice(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, n):
        for i in range(n):
            x = x + i
        return x, x[:n], len([1, 2, 3][n:]), torch.arange(n), "ab" * n

    return over(torch, compile, f, (0, 1, 2, 3, 1, 2))


@stale
def number_of_a_string(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x, s):
        return x * len(s), s.upper(), s == "a", float(s) if s.isdigit() else None

    return over(torch, compile, f, ("a", "bb", "", "3", "12", "a"))


@stale
def number_as_default(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def scaled(x, k=2.0):
        return x * k

    c = compile(lambda x: scaled(x))
    out = [c(torch.ones(3))]
    for k in (3.0, 4, True, 0.5):
        scaled.__defaults__ = (k,)
        out.append(c(torch.ones(3)))
    return out


def sizes(torch: Any, compile: Any, function: Any) -> list[Any]:
    """The function of batches of several sizes."""
    c = compile(function)
    out = []
    for rows in (3, 3, 4, 5, 1, 4, 2, 6, 3):
        found = attempt(c, torch.arange(rows * 2.0).reshape(rows, 2))
        parts = found if type(found) is tuple else (found,)
        out.append([[part, type(part).__name__] for part in parts])
    return out


@stale
def size_as_key(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    table = {3: 2.0, 4: 3.0}
    met: set[int] = set()

    def f(x):
        met.add(x.shape[0])
        return x * table.get(x.shape[0], 1.0), len(met), x.shape[0] in (4, 5)

    return sizes(torch, compile, f)


@stale
def size_as_text(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return sizes(torch, compile, lambda x: (x + 1, f"{x.shape[0]}", str(x.shape), repr(len(x))))


@stale
def size_arithmetic(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        n = x.shape[0]
        return x * n, n * 2 + 1, n / 2, n // 2, n % 3, divmod(n, 2)[1], n**3, -n, n * 10**18 * 50

    return sizes(torch, compile, f)


@stale
def size_bits(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        n = x.shape[0]
        return x + (n & 1), n << 3, n | 4, n ^ 1, ~n, n.bit_length(), float(n), int(n)

    return sizes(torch, compile, f)


@stale
def size_returned(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        return x, x.shape, x.size(), x.size(0), len(x), x.numel(), tuple(x.shape), [x.shape[0]]

    return sizes(torch, compile, f)


@stale
def size_of_a_reshape(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        n = x.shape[0]
        return x.reshape(2, n), x.view(n * 2), torch.zeros(n), torch.arange(n), x[: n // 2]

    return sizes(torch, compile, f)


@stale
def size_in_control_flow(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x.sum(0)
        for i in range(x.shape[0]):
            y = y + x[i] * i
        if x.shape[0] > 3:
            y = -y
        return y, [row.sum() for row in x], max(x.shape)

    return sizes(torch, compile, f)


@stale
def size_remembered(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    seen: list[Any] = [None]

    def f(x):
        new = seen[0] != x.shape
        seen[0] = x.shape
        return x, new

    return sizes(torch, compile, f)


@stale
def size_summed_up(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    total = [0, 0.0]

    def f(x):
        total[0] += x.shape[0]
        total[1] = total[1] * 0.5 + len(x)
        return x * total[0], total[0], total[1]

    return sizes(torch, compile, f)


@stale
def tensors_of_constants_as_numbers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Their values are known while the graph is recorded: sizes, slice bounds, conditions."""
    box = Box(span=3)

    def f(x):
        span = torch.tensor(min(x.size(0), box.span))
        half = torch.div(x.size(1), 2, rounding_mode="trunc")
        table = torch.full((2,), 2.0)
        before = table.tolist()
        table[0] = 5.0
        table.mul_(span)
        cut = x[span - 2 : span].reshape(2, half, 2) * before[0] * table[0].item()
        return cut + 1 if (table > 5).all() else cut

    c = compile(f)
    found = [c(torch.arange(24.0).reshape(6, 4) + i) for i in range(2)]
    whole(c, 1)
    box.span = 5  # a run-time number now, and so is what is made of it
    found.append(c(torch.arange(24.0).reshape(6, 4)))
    return [*found, c(torch.arange(48.0).reshape(8, 6)), c(torch.arange(8.0).reshape(2, 4))]
