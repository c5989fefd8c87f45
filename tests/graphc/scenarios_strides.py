"""Scenarios: views by strides, of tensors whose memory is not in the order of their dims."""

from __future__ import annotations

from typing import Any

from tests.graphc.stale_scenario import stale


@stale
def as_strided_follows_the_memory(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def of_argument(x):
        return x.as_strided((2, 2), (1, 4)) * 1, x.as_strided((2, 2), (1, 4), 1) * 1

    def of_view(x):
        return x.view(2, -1).as_strided((2, 2), (1, 4)) * 1

    def written(x):
        x.as_strided((2, 2), (1, 4)).mul_(2)
        return x * 1

    def of_result(x):
        return (x * 2).t().as_strided((2, 2), (1, 4))

    whole = torch.arange(16.0).reshape(4, 4)
    return [
        compile(f)(x) for f in (of_argument, written, of_result)
        for x in (whole.clone(), whole.clone().t())
    ] + [compile(of_view)(whole.clone()), compile(of_argument)(whole.clone().t()[:, ::2])]


@stale
def as_strided_in_another_segment(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def rows(x, cut):
        y = cut(x * 2)
        if y.sum() > 1e9:
            y = y + 1
        return y.as_strided((2, 2), (1, 2)) * 1, y.as_strided((2, 2), (1, 2), 1) * 1

    c = compile(rows)
    cuts = [
        lambda y: y, lambda y: y.t(), lambda y: y[1:], lambda y: y[:, ::2],
        lambda y: y.t().reshape(2, 2, 4), lambda y: y.view(2, 8).t(),
    ]
    return [c(torch.arange(16.0).reshape(4, 4) + i, cut) for cut in cuts for i in range(2)]


@stale
def a_size_that_is_a_tensor(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    """Overlapping chunks, as sliding window attention makes them."""
    def chunks(x):
        h = (x.transpose(0, 1) * 2).view(4, 3, 2, 2).transpose(0, 1).transpose(1, 2)
        h = h.reshape(6, 4, 2)
        h = h.view(6, torch.div(h.size(1), 2, rounding_mode="trunc"), 2, 2)
        strides = list(h.stride())
        strides[1] //= 2
        return h.as_strided(size=(6, 3, 2, 2), stride=strides) * 1

    c = compile(chunks)
    return [c(torch.arange(48.0).reshape(3, 4, 4) + i) for i in range(3)]


@stale
def a_reshape_that_copies_lives_on(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    def f(x):
        y = x.transpose(1, 2).reshape(8, 4)
        if y.sum() > 0:
            y = y + 1
        return y * 2

    c = compile(f)
    return [c(torch.arange(32.0).reshape(2, 4, 4) - 40 * i) for i in range(3)]


@stale
def one_of_overlapping_windows_is_written(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    functions = [
        lambda x: x.unfold(0, 2, 1)[0].zero_(),
        lambda x: x.unfold(-1, 2, 1)[:, ::2].mul_(2),
        lambda x: (x * 2).unfold(0, 3, 1)[1, :, :2].add_(1),
        lambda x: x.as_strided((3, 2), (1, 1))[0].fill_(7),
    ]
    out = []
    for function in functions:
        c = compile(lambda x, function=function: function(x) * 1)
        for k in range(3):
            x = torch.arange(16.0).reshape(4, 4) + k
            out += [c(x), x]
    return out
