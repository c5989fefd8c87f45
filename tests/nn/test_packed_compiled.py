"""Packed sequences in compiled functions, against PyTorch: one version for lengths that change."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
from graphc.inspect.explain import explain
from tests.nn.both import close, leaves

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM": ("LSTM", {"num_layers": 2}),
    "LSTM both ways, projected": ("LSTM", {"bidirectional": True, "proj_size": 3}),
    "LSTM with dropout": ("LSTM", {"num_layers": 3, "dropout": 0.4, "bidirectional": True}),
    "GRU": ("GRU", {"bidirectional": True, "num_layers": 2, "bias": False}),
    "RNN": ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
}
# longest first where they must be sorted; also all equal, and shorter than the padded batch
LENGTHS = ([3, 6, 1, 4], [6, 2, 2, 5], [1, 2, 1, 3], [5, 5, 5, 5], [2, 6, 6, 3])


def twins(kind: str, **options: Any) -> tuple[Any, Any]:
    """A layer of PyTorch's and graphc's on the same weights, float64."""
    theirs = getattr(torch.nn, kind)(4, 5, **options).double()
    ours = getattr(graphc.nn, kind)(4, 5, **options).double()
    state = {k: graphc.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    return theirs, ours


def states(layer: Any, count: int) -> Any:
    """Initial states as arrays."""
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    rng = np.random.default_rng(count)
    hidden = rng.standard_normal((rows, count, layer.proj_size or 5))
    return (hidden, rng.standard_normal((rows, count, 5))) if layer.mode == "LSTM" else hidden


def step_of(package: Any, layer: Any, batch_first: bool, **options: Any) -> Any:
    """Pack, run, pad, differentiate: everything that comes out of it."""
    tools = package.nn.utils.rnn

    def step(x: Any, lengths: Any, given: Any) -> Any:
        packed = tools.pack_padded_sequence(x, lengths, batch_first, **options)
        out, last = layer(packed, given)
        padded, counts = tools.pad_packed_sequence(out, batch_first, -1.5)
        ends = list(last) if isinstance(last, tuple) else [last]
        loss = sum((end * end.cos()).sum() for end in [padded, *ends])
        loss.backward()
        return [loss, *ends, padded, counts, *out]

    return step


def differentiated(
    package: Any, layer: Any, step: Any, lengths: Sequence[int], batch_first: bool,
    as_list: bool = False, given: Any = None,
) -> list[Any]:
    """What a call of the step gives, and the gradients that it leaves."""
    rng = np.random.default_rng(sum(lengths))
    shape = (len(lengths), 6) if batch_first else (6, len(lengths))
    x = package.from_numpy(rng.standard_normal((*shape, 4))).requires_grad_()
    if isinstance(given, tuple):
        given = tuple(package.from_numpy(part).requires_grad_() for part in given)
    elif given is not None:
        given = package.from_numpy(given).requires_grad_()
    numbers: Any = list(lengths) if as_list else package.tensor(lengths)
    layer.zero_grad()
    package.manual_seed(3)
    found = step(x, numbers, given)
    return [*found, *[t.grad for t in leaves([x, given], package)],
            *[p.grad for p in layer.parameters()]]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_lengths_that_change(name: str, batch_first: bool) -> None:
    kind, options = LAYERS[name]
    theirs, ours = twins(kind, **options)
    given = states(theirs, 4) if batch_first else None
    eager = step_of(torch, theirs, batch_first, enforce_sorted=False)
    step = graphc.compile(
        step_of(graphc, ours, batch_first, enforce_sorted=False), fullgraph=True
    )
    for lengths in LENGTHS:
        want = differentiated(torch, theirs, eager, lengths, batch_first, given=given)
        have = differentiated(graphc, ours, step, lengths, batch_first, given=given)
        close(have, want, 1e-9, f"{name}, lengths {lengths}")
    assert step.compile_count == 1
    with pytest.raises(RuntimeError, match="has to be greater than 0"):
        differentiated(graphc, ours, step, [3, 0, 1, 2], batch_first, given=given)


@pytest.mark.parametrize("as_list", [False, True])
def test_sorted_lengths(as_list: bool) -> None:
    """A list becomes run-time numbers at its second values."""
    theirs, ours = twins("GRU", num_layers=2)
    eager = step_of(torch, theirs, False)
    step = graphc.compile(step_of(graphc, ours, False))
    for lengths in LENGTHS:
        longest_first = sorted(lengths, reverse=True)
        want = differentiated(torch, theirs, eager, longest_first, False, as_list)
        close(differentiated(graphc, ours, step, longest_first, False, as_list), want, 1e-9)
    # an item of a list is run-time from its own second value on
    assert step.segments is None and step.compile_count <= (4 if as_list else 1)


def test_segments_record_packed_sequences_as_loops() -> None:
    """Where Python needs values, the lengths are values, too; sizes become symbolic."""
    theirs, ours = twins("LSTM", num_layers=2, bidirectional=True, dropout=0.3)
    steps = [step_of(torch, theirs, True, enforce_sorted=False),
             step_of(graphc, ours, True, enforce_sorted=False)]

    def logged(x: Any, lengths: Any, given: Any) -> Any:
        found = steps[1](x, lengths, given)
        log.append(max(found[0].item(), -1e9))  # a comparison needs the value
        return found

    log: list[float] = []
    compiled = graphc.compile(logged)
    compiled.always_compiled = True
    for lengths in LENGTHS * 2:
        want = differentiated(torch, theirs, steps[0], lengths, True)
        close(differentiated(graphc, ours, compiled, lengths, True), want, 1e-9)
        assert abs(log[-1] - want[0].item()) < 1e-9
    assert compiled.segments is not None
    # one segment for all that is before the value, and one for what is behind it
    assert len(compiled.segments.ends) == 1 and compiled.segments.compile_count < 12


def test_padding_reaches_no_gradient() -> None:
    theirs, ours = twins("LSTM")
    found = []
    for package, layer in ((torch, theirs), (graphc, ours)):
        step = step_of(package, layer, False, enforce_sorted=False)
        values = np.full((6, 2, 4), np.nan)
        values[:2, 0], values[:5, 1] = 1, 2
        x = package.from_numpy(values).requires_grad_()
        step = graphc.compile(step) if package is graphc else step
        found.append([step(x, package.tensor([2, 5]), None), x.grad,
                      *[p.grad for p in layer.parameters()]])
    close(found[1], found[0], 1e-9)
    assert np.isfinite(found[1][1].numpy()).all()


def test_code_that_looks_into_packed_sequences() -> None:
    """Its tensors are tensors: by name, by position, taken apart, stored, made by hand."""

    def function(package: Any) -> Any:
        tools = package.nn.utils.rnn

        def run(x: Any, lengths: Any) -> Any:
            packed = tools.pack_padded_sequence(x, lengths, enforce_sorted=False)
            data, sizes, order, back = packed
            again = tools.PackedSequence(data * 2, sizes, order)
            by_hand = tools.PackedSequence(packed[0].tanh(), packed.batch_sizes)
            scaled = packed._replace(data=packed.data * sizes.sum())
            inverse = tools.invert_permutation(order)
            return [packed, again, tools.pad_packed_sequence(by_hand)[0], sizes.cumsum(0),
                    tools.pad_packed_sequence(scaled, total_length=9), back - inverse, order.sum()]

        return run

    compiled = graphc.compile(function(graphc), fullgraph=True)
    for lengths in LENGTHS:
        x = np.random.default_rng(0).standard_normal((6, 4, 3))
        want = function(torch)(torch.from_numpy(x), torch.tensor(lengths))
        have = compiled(graphc.from_numpy(x), graphc.tensor(lengths))
        assert type(have[0]) is graphc.nn.utils.rnn.PackedSequence
        close(have, want, 1e-12)
    assert compiled.compile_count == 1


def test_a_module_that_takes_a_packed_sequence() -> None:
    theirs, ours = twins("LSTM", num_layers=2)
    compiled = graphc.compile(copy.deepcopy(ours))
    for lengths in LENGTHS:
        lengths = sorted(lengths, reverse=True)
        x = np.random.default_rng(0).standard_normal((6, 4, 4))
        found = []
        for package, layer in ((torch, theirs), (graphc, compiled)):
            packed = package.nn.utils.rnn.pack_padded_sequence(package.from_numpy(x), lengths)
            layer.zero_grad()
            out, last = layer(packed)
            (out.data.square().sum() + last[1].sum()).backward()
            found.append([out, last, [p.grad for p in layer.parameters()]])
        close(found[1], found[0], 1e-9)


def test_lengths_that_are_computed_in_the_call() -> None:
    """They follow from the arguments alone, so that Python finds them before the native code."""

    def function(package: Any) -> Any:
        tools = package.nn.utils.rnn

        def run(x: Any, mask: Any) -> Any:
            packed = tools.pack_padded_sequence(x, mask.sum(0).cpu(), enforce_sorted=False)
            return tools.pad_packed_sequence(packed)

        return run

    compiled = graphc.compile(function(graphc), fullgraph=True)
    for lengths in LENGTHS:
        mask = np.arange(6)[:, None] < np.array(lengths)
        x = np.random.default_rng(1).standard_normal((6, 4, 3))
        want = function(torch)(torch.from_numpy(x), torch.from_numpy(mask))
        close(compiled(graphc.from_numpy(x), graphc.from_numpy(mask)), want, 0)
    assert compiled.compile_count == 1


def test_a_version_says_what_it_computes_ahead() -> None:
    def pack(x: Any, lengths: Any) -> Any:
        return graphc.nn.utils.rnn.pack_padded_sequence(x, lengths).data

    compiled = graphc.compile(pack)
    arguments = graphc.ones(4, 2, 3), graphc.tensor([4, 2])
    compiled(*arguments)
    assert "packed_in_order() of inputs 0 is computed ahead of each call" in str(
        explain(compiled, *arguments)
    )


BAD: dict[str, tuple[tuple[int, ...], Any, dict[str, Any]]] = {
    "a length of 0": ((5, 3, 2), [4, 2, 0], {}),
    "a length below 0": ((5, 3, 2), [4, -2, 1], {"enforce_sorted": False}),
    "not sorted": ((5, 3, 2), [2, 4, 1], {}),
    "too few": ((5, 3, 2), [4, 2], {}),
    "too many": ((5, 3, 2), [4, 2, 1, 1], {"enforce_sorted": False}),
    "no sequences": ((5, 0, 2), [], {}),
    "no features": ((5, 3, 0), [2, 2, 1], {}),
    "two dimensions": ((5, 3, 2), [[4, 2, 1]], {}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lengths(name: str) -> None:
    """The same error, at first and where a version is there already, which stays right."""
    shape, lengths, options = BAD[name]

    def function(package: Any) -> Any:
        def run(x: Any, lengths: Any) -> Any:
            return package.nn.utils.rnn.pack_padded_sequence(x, lengths, **options)

        return run

    numbers = torch.tensor(lengths, dtype=torch.int64)
    with pytest.raises(RuntimeError) as wanted:
        function(torch)(torch.ones(shape), numbers)
    compiled = graphc.compile(function(graphc))
    for _ in range(2):
        for run in (function(graphc), compiled):
            with pytest.raises(RuntimeError) as found:
                run(graphc.ones(shape), graphc.from_numpy(numbers.numpy()))
            if name != "too many":  # PyTorch has no words of its own for it
                assert str(wanted.value) in str(found.value)
        good = graphc.tensor([3, 2, 1])
        x = graphc.randn(5, 3, 2)
        close(list(compiled(x, good))[:2], list(function(torch)(
            torch.from_numpy(x.numpy()), torch.from_numpy(good.numpy())
        ))[:2], 0)


def test_code_that_catches_what_is_wrong_with_lengths() -> None:
    """It has decided upon values: no version may take the same way for others."""

    def function(package: Any) -> Any:
        def run(x: Any, lengths: Any) -> Any:
            try:
                return package.nn.utils.rnn.pack_padded_sequence(x, lengths).data
            except RuntimeError:
                return x * 2

        return run

    compiled = graphc.compile(function(graphc))
    x = np.random.default_rng(0).standard_normal((5, 3, 2))
    for lengths in ([2, 3, 1], [3, 2, 1], [1, 1, 2], [4, 2, 2], [2, 3, 1]):
        want = function(torch)(torch.from_numpy(x), torch.tensor(lengths))
        close(compiled(graphc.from_numpy(x), graphc.tensor(lengths)), want, 0)


@pytest.mark.parametrize("lengths", [[7, 3, 2], [6, 6, 1], [5, 5, 5]])
def test_lengths_beyond_the_padded_size(lengths: list[int]) -> None:
    """PyTorch counts the steps, and has no rows for them."""
    compiled = graphc.compile(graphc.nn.utils.rnn.pack_padded_sequence)
    for given in ([4, 2, 1], lengths, [5, 2, 2]):
        x = np.random.default_rng(0).standard_normal((5, 3, 2))
        want = torch.nn.utils.rnn.pack_padded_sequence(torch.from_numpy(x), torch.tensor(given))
        have = compiled(graphc.from_numpy(x), graphc.tensor(given))
        close(list(have)[:2], list(want)[:2], 0)


def test_batch_sizes_that_say_more_rows_than_there_are() -> None:
    layer = graphc.nn.LSTM(2, 4)
    packed = graphc.nn.utils.rnn.PackedSequence(graphc.ones(9, 2), graphc.tensor([3, 3, 2, 2]))
    for run in (layer, graphc.compile(layer)):
        with pytest.raises(RuntimeError, match=r"start \(8\) . length \(2\)"):
            run(packed)
