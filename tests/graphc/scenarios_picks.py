"""x[i], where i is a tensor without dimensions: a view of x, whose place a graph does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.graphc.scenario import scenario


def tried(torch: Any, compile: Any, functions: list[Callable[..., Any]], learns: bool) -> Any:
    """Each function of (x, w, i) at three places, with gradients."""
    results = []
    for function in functions:
        run = compile(function)
        for k in range(3):
            x = (torch.arange(12.0).reshape(4, 3) / 5 + k).requires_grad_(learns)
            w = torch.linspace(-1, 1, 3).requires_grad_(learns)
            found = run(x, w, torch.tensor(k))
            if learns:
                (found * torch.arange(float(found.numel())).view(found.shape)).sum().backward()
            results.append((found, x.detach().clone(), x.grad, w.grad))
    return results


@scenario
def a_row_follows_what_it_is_of(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def later_write(x, w, i):
        y = x * 1
        row = y[i]
        y.mul_(2)
        return row * w

    def its_part(x, w, i):
        y = x * 1
        part = y[i][1:]
        y[i] = w
        part.mul_(3)
        return y * part.sum()

    def column(x, w, i):
        y = x * 1
        r, one = y[:, i], y[i, i]
        y[2:] = w
        r.exp_()
        return y + one

    def row_of_a_row(x, w, i):
        y = x.t().contiguous()
        row = y[i]
        one = row[i]
        y.add_(1)
        one.mul_(5)
        return y * one

    def without_gradients(x, w, i):
        y = x * 1
        row = y[i]
        with torch.no_grad():
            y.mul_(2)
        return row * w

    functions = [later_write, its_part, column, row_of_a_row, without_gradients]
    return tried(torch, compile, functions, True), tried(torch, compile, functions, False)


@scenario
def what_is_written_to_a_row_is_in_the_whole(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def scaled(x, w, i):
        y = x * 1
        y[i].mul_(w)
        y[i] += w
        y[i + 1][1] = 7.0
        return y.sin()

    def both(x, w, i):
        y = x * 1
        row = y[i]
        row.add_(w)
        y[i + 1] = row * 2
        y[0, i] = 7.0
        return y * row.sum()

    def over_rows(x, w, i):
        y = torch.zeros(4, 3)
        for j in torch.arange(3):
            y[j] = w * (j + 1)
            y[j + 1] = y[j] + x[j]
        return y

    return tried(torch, compile, [scaled, both, over_rows], True)


@scenario
def rows_of_arguments_and_of_state(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    state = torch.zeros(4, 3)

    def given(x, w, i):
        x[i].add_(w)
        x[i, i] = 9.0
        x[..., i].neg_()
        return x[i] * 2

    def largest(x, w, i):
        k = x[i].argmax()
        x[i][k] = 0.0
        row = x[i]
        x.clamp_(max=1)
        row[k] = -1.0
        return row + 0

    def kept(x, w, i):
        state[i] += x[i]
        row = state[i]
        state.add_(1)
        return row * state

    def in_parts(x, w, i):
        row = x[i]
        x[i] += 1
        if float(x.sum()) > 1e9:
            return x
        return row * 1

    return tried(torch, compile, [given, largest, kept, in_parts], False), state
