"""What happens beside the recorded code: NumPy's views and settings, seeds, finalizers, errors."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from tests.graphc.stale_scenario import Box, stale, whole

# views on an array's memory, got in every way
VIEWS: tuple[Any, ...] = (
    lambda a: a.T[0], lambda a: a.real[0], lambda a: a.view()[1], lambda a: a.flat,
    lambda a: a[:, 1], lambda a: np.swapaxes(a, 0, 1)[0], lambda a: np.asarray(a)[0],
    lambda a: a.reshape(-1),
)


@stale
def views_of_arrays(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """What is read and written through a view is the array's."""
    out: list[Any] = []
    for view in VIEWS:
        array = np.arange(6.0).reshape(2, 3)

        def f(x, array=array, view=view):
            part = view(array)
            part[0] = part[0] + 1
            return x * float(part[0])

        c = compile(f)
        for i in range(4):
            out += [c(torch.ones(2)), array.tolist()]
            array += i
    return out


@stale
def settings_of_numpy(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    zeros, thirds = np.zeros(2), np.ones(1) / 3

    def f(x):
        try:
            1 / zeros
        except FloatingPointError:
            x = x * 2
        return x, f"{np.array([1 / 3])}", repr(thirds)

    c, out = compile(f), []
    for divide, precision in (("ignore", 8), ("raise", 8), ("ignore", 2), ("ignore", 8)):
        with np.errstate(divide=divide), np.printoptions(precision=precision):
            out += [c(torch.ones(2)), c(torch.ones(2))]
    whole(c, 3)
    return out


@stale
def arrays_shape_only(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """An array's shape is read: its values may change, and be many."""
    array = np.zeros((1 << 18, 2))

    def f(x):
        return x * array.shape[0] + array.ndim

    c = compile(f)
    out = [c(torch.ones(2))]
    array += 1
    out += [c(torch.ones(2))]
    whole(c, 1)
    with warnings.catch_warnings():  # NumPy 2.5 would have another array made
        warnings.simplefilter("ignore", DeprecationWarning)
        array.shape = (1 << 17, 4)
    return [*out, c(torch.ones(2))]


@stale
def seed_of_a_generator(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """The seed is read between the calls, in them, and is set by them."""
    own = torch.Generator().manual_seed(4)
    read = compile(lambda x: x * own.initial_seed() + torch.initial_seed())

    def seeded(x, seed):
        torch.manual_seed(seed)
        return torch.rand(2) + x

    c, out = compile(seeded), []
    for seed in (1, 2, 1, 2, 1):
        out += [c(torch.ones(2), seed), torch.initial_seed(), read(torch.ones(2))]
        own.manual_seed(seed + 7)
    return out


@stale
def finalizers(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """An object that the call makes dies in it, or after it."""
    log: list[Any] = []

    class Scope:
        def __init__(self, n: Any) -> None:
            self.n = n

        def __del__(self) -> None:
            log.append(self.n)

    def f(x, n):
        scope = Scope(n)
        y = x * scope.n
        del scope
        return y + len(log)

    c = compile(f)
    return [v for n in (1, 1, 2, 3) for v in (c(torch.ones(2), n), list(log))]


@stale
def errors_with_tensors(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Who catches an error finds tensors in it, or in what it came from, and may go backward."""
    class Found(Exception):
        def __init__(self, loss: Any, step: Any) -> None:
            self.loss, self.step = loss, step

    w, state = torch.ones(3, requires_grad=True), Box(n=0)

    def f(x, k):
        state.n += 1
        if k % 3 == 1:
            raise Found((w * x).sum() * k, k)
        if k % 3 == 2:
            try:
                raise KeyError(w * x)
            except KeyError as error:
                raise ValueError("again") from error
        return x * k

    c, out = compile(f), []
    for k in range(7):
        try:
            out += [c(torch.ones(3) * k, k)]
        except Found as error:
            error.loss.backward()
            out += [error.loss.detach(), error.step, w.grad.clone()]
        except ValueError as error:
            assert error.__cause__ is not None
            out += [error.__cause__.args[0].detach()]
        out += [state.n]
    return out


@stale
def a_slice_that_holds_a_list(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    cut = slice([1, 2], None)
    run, out = compile(lambda x: x * cut.start[0]), []
    for _ in range(3):
        out.append(run(torch.ones(2)))
        cut.start[0] += 1
    return out


@stale
def where_a_tensor_begins(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    base = torch.arange(12.0)
    run = compile(lambda x: (x * x.storage_offset(), x[2:].storage_offset()))
    made = compile(lambda x: (x * 2).view(2, 2)[1:, 1].storage_offset())
    return [[run(base[k : k + 4]), made(base[k : k + 4])] for k in (0, 3, 5, 0)]


@stale
def what_a_cache_counts(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    @functools.lru_cache(maxsize=2)
    def double(n):
        return n * 2

    run, out = compile(lambda x, k: x * double(3) + double(k)), []
    for k in (1, 1, 2, 1, 3):
        out += [run(torch.ones(1), k), *double.cache_info()]
    return out
