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
        if float(x.detach().sum()) > 1e9:
            return x
        return row * 1

    return tried(torch, compile, [given, largest, kept, in_parts], False), state


@scenario
def a_row_that_is_given_back_is_a_view(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    kept = nn.Module()

    def row(x, i, j):
        return x[i]

    def several(x, i, j):
        r = x[i]
        r.mul_(2)
        return r, r[1:], r[j], x[:, j], x[i, j], x[..., j], x.t()[j][i]

    def of_a_result(x, i, j):
        y = x * 2
        r = y[i]
        y.add_(1)
        return y, r, r[j]

    def twice(x, i, j):
        y = x.t().contiguous()
        return y[j], y[j]

    def of_a_row(x, i, j):
        return x[i][j]

    def moved_place(x, i, j):
        r = x[i]
        i.add_(1)
        return r, i

    def stored(x, i, j):
        kept.row = x[i - 1]
        return x[-i].numpy()

    def in_parts(x, i, j):
        y = x * 3
        r, s = x[i], y[j]
        s.add_(1)
        if float(x.detach().sum()) > 1e9:
            return x
        return r, s, y, r[1:]

    def parts_of_one(x, i, j):
        r = x[i]
        float(x.detach().sum())
        x.add_(1)
        return r

    results = []
    for function in (row, several, of_a_result, twice, of_a_row, moved_place, stored, in_parts,
                     parts_of_one):
        run = compile(function)
        for k in range(4):
            x = torch.arange(12.0).reshape(4, 3)
            found = run(x, torch.tensor(k % 3), torch.tensor(k % 2))
            found = [found] if isinstance(found, torch.Tensor) else list(found)
            if function is stored:
                found = [kept.row, torch.as_tensor(found)]
            for n, part in enumerate(found):
                part += n + 1
            results.append(([f.clone() for f in found], x.clone()))
            x *= 2
            results.append(([f.clone() for f in found], [f.stride() for f in found]))
    return results


@scenario
def a_row_that_is_given_back_has_the_history_of_a_view(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    def row(x, w, i):
        return x[i]

    def of_a_result(x, w, i):
        y = x * w
        return y, y[i]

    def written(x, w, i):
        r = x[i]
        r.mul_(w)
        return r, r[1:]

    def in_no_grad(x, w, i):
        with torch.no_grad():
            r = x[i]
        return r, x[i].detach()

    def in_parts(x, w, i):
        y = x * w
        r, s = x[i], y[i][1:]
        if float(x.detach().sum()) > 1e9:
            return x
        return r, s

    def both(x, w, i):
        r = x[i]
        return r, (r * w).sum() + (x * x).sum()

    results = []
    for function in (row, of_a_result, written, in_no_grad, in_parts, both):
        for after in ("nothing", "write", "hidden write", "write to all"):
            if after == "write to all" and function is in_no_grad:
                continue
            if after != "nothing" and function is both:  # the gradient reads the row as it was
                continue
            run = compile(function)
            for k in range(3):
                leaf = (torch.arange(12.0).reshape(4, 3) / 7).requires_grad_()
                w = torch.linspace(1, 2, 3).requires_grad_()
                x = leaf * 1
                found = run(x, w, torch.tensor(k))
                found = [found] if isinstance(found, torch.Tensor) else list(found)
                flags = [(f.requires_grad, f.is_leaf, f._base is not None) for f in found]
                if after == "write" and function is not in_no_grad:
                    found[-1].mul_(3)
                if after == "hidden write":
                    with torch.no_grad():
                        x.data.add_(1)
                if after == "write to all":
                    with torch.no_grad():
                        x.add_(1)
                total = x.sum()
                for part in found:
                    total = total + (part * 2).sum()
                try:
                    total.backward()
                    results.append((flags, total, leaf.grad, w.grad))
                except RuntimeError as error:
                    results.append((flags, type(error).__name__, leaf.grad, w.grad))
    return results
