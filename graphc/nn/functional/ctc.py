"""Connectionist temporal classification."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend.ahead import made_ahead
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.control import scan
from ...frontend.replayed import replayed
from ...frontend.tensor import Tensor
from ..as_one import AsOne, may_be_one

# log of an impossible path: finite, so that gradients are too
_NEVER = -1e30


@listed
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability of the labels under all alignments (Graves et al. 2006).

    log_probs [T, N, C] (or [T, C]); targets [N, S] or all in one row; lengths [N].
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    batched = log_probs.dim() == 3
    x = log_probs if batched else log_probs.unsqueeze(1)
    _, batch, classes = map(int, x.shape)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    # torch's are on any device
    given, lengths = (_numbers(each, x) for each in (input_lengths, target_lengths))
    for name, each in (("input", given), ("target", lengths)):
        if int(each.shape[0]) != batch:
            raise RuntimeError(f"{name}_lengths must be of size batch_size")
    sizes = [x.shape[0], targets.shape[-1], targets.dim() == 2]
    if may_be_one(x, given, lengths):
        _checked_lengths(given._graphc_array, lengths._graphc_array, *map(int, sizes))
    else:
        given, lengths = made_ahead(
            _checked_lengths, [given, lengths], sizes, [[batch], [batch]]
        )
    labels = _rows(targets.long(), lengths, batch)
    if not _gains(x, labels, given, lengths):
        return _by_steps(
            x, labels, given, lengths, blank, reduction, bool(zero_infinity), batched
        )
    losses = _whole(blank, classes, x.dtype)(x, labels, given, lengths)
    return _reduced(losses, x, given, lengths, reduction, zero_infinity, batched)


@replayed
def _by_steps(
    x: Tensor, labels: Tensor, given: Tensor, lengths: Tensor, blank: int, reduction: str,
    zero_infinity: bool, batched: bool,
) -> Tensor:
    losses = _losses(x, labels, given, lengths, blank)
    return _reduced(losses, x, given, lengths, reduction, zero_infinity, batched)


def _reduced(
    losses: Tensor, x: Tensor, given: Tensor, lengths: Tensor, reduction: str,
    zero_infinity: bool, batched: bool,
) -> Tensor:
    """Losses of the paths there are, as they are asked for."""
    nothing = _normalizer(x, given)
    losses = losses + nothing
    # without any input only an empty target is possible
    no_input = T.where(lengths > 0, T.full_like(losses, -_NEVER), T.zeros_like(losses))
    losses = T.where(given > 0, losses, no_input)
    impossible = losses.detach() > -_NEVER / 2
    if zero_infinity:
        losses = T.where(impossible, T.zeros_like(losses), losses)
    else:
        losses = T.where(impossible, _infinite(nothing, impossible), losses)
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return (losses / lengths.clamp_min(1).to(losses.dtype)).mean()
    return losses if batched else losses.squeeze(0)


def _checked_lengths(
    given: np.ndarray, lengths: np.ndarray, steps: int, most: int, in_rows: int
) -> tuple[np.ndarray, ...]:
    """The lengths of inputs and targets. Raises RuntimeError where there is not so much."""
    of_inputs, of_targets = given.tolist(), lengths.tolist()
    for name, each, bound in (("input", of_inputs, steps), ("target", of_targets, None)):
        wrong = [n for n in each if n < 0]
        wrong += [n for n in each if bound is not None and n > bound]
        if wrong:
            limit = "at least 0" if wrong[0] < 0 else f"at most {bound}"
            raise RuntimeError(
                f"Expected {name}_lengths to have value {limit}, but got value {wrong[0]}"
            )
    longest, total = max(of_targets, default=0), sum(of_targets)
    if in_rows and longest > most:
        raise RuntimeError(
            f"Expected tensor to have size at least {longest} at dimension 1, but got size {most} "
            "for argument #2 'targets'"
        )
    if not in_rows and total != most:
        raise RuntimeError(
            f"Expected tensor to have size {total} at dimension 0, but got size {most} for "
            "argument #2 'targets'"
        )
    return given, lengths


def _numbers(lengths: Any, x: Tensor) -> Tensor:
    """Lengths given as a tensor, a number or several, where x is."""
    if type(lengths) is Tensor and lengths.dim() == 1 and lengths.dtype is T.int64 and (
        may_be_one(lengths, x)
    ):
        return lengths
    if not isinstance(lengths, Tensor):
        several = lengths if isinstance(lengths, (tuple, list)) else [lengths]
        lengths = T.tensor([int(length) for length in several])
    return lengths.reshape(-1).long().to(x.device)


def _rows(targets: Tensor, lengths: Tensor, batch: int) -> Tensor:
    """Targets as [N, S]; what is beyond a row's length is some label."""
    if targets.dim() == 2:
        return targets
    count = int(targets.shape[0])
    if batch == 1 or count == 0:
        return targets.reshape(1, -1).expand(batch, count)
    starts = (lengths.cumsum(0) - lengths).unsqueeze(1)
    return targets[(starts + T.arange(count)).clamp(0, count - 1)]


def _logsumexp(parts: list[Tensor]) -> Tensor:
    """Element by element; of finite parts, so that their greatest is a constant of the gradient."""
    greatest = functools.reduce(T.maximum, [part.detach() for part in parts])
    terms = [(part - greatest).exp() for part in parts]
    return functools.reduce(T.add, terms).log() + greatest


_LEAST = 1 << 14  # numbers of all steps: each meets several operators
_KEPT = 64  # graphs


def _gains(x: Tensor, labels: Tensor, *lengths: Tensor) -> bool:
    """Whether it is done as one graph: types alone say."""
    return local.trace is None and (
        x._graphc_array.shape[0] > 1
        and x._graphc_array.shape[0] * labels._graphc_array.size >= _LEAST
        and x.dtype in (T.float32, T.float64) and may_be_one(x, labels, *lengths)
    )


@functools.lru_cache(maxsize=_KEPT)
def _whole(blank: int, classes: int, dtype: Any) -> AsOne:
    def losses(x: Tensor, labels: Tensor, given: Tensor, lengths: Tensor) -> Tensor:
        return _losses(x, labels, given, lengths, blank)

    return AsOne(losses, {0: {0: "T", 1: "N"}, 1: {0: "N", 1: "S"}, 2: {0: "N"}, 3: {0: "N"}}, 7)


def _losses(
    x: Tensor, labels: Tensor, given: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    steps, batch, count = x.shape[0], x.shape[1], labels.shape[1]
    # blank, label, blank, ..., label, blank
    blanks = T.full([batch, count + 1], blank, dtype=T.int64)
    paths = T.stack([blanks[:, :count], labels], 2).reshape(batch, 2 * count)
    paths = T.cat([paths, blanks[:, count:]], 1)
    width = 2 * count + 1
    before = T.cat([T.full([batch, min(2, width)], blank, dtype=T.int64), paths], 1)[:, :width]
    may_skip = (paths != blank) & (paths != before)
    scores = x.gather(2, paths.unsqueeze(0).expand(steps, batch, width)).clamp_min(_NEVER)
    never = T.full([batch, 2], _NEVER, dtype=x.dtype)
    first = T.arange(width) < min(2, width)
    reached = T.where(first, scores[0], T.full_like(scores[0], _NEVER))

    def step(reached: Tensor, at: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        now, lasts = at
        moved = T.cat([never[:, :1], reached], 1)[:, :width]
        skipped = T.cat([never, reached], 1)[:, :width]
        skipped = T.where(may_skip, skipped, T.full_like(skipped, _NEVER))
        on = (_logsumexp([reached, moved, skipped]) + now).clamp_min(_NEVER)
        return T.where(lasts.unsqueeze(1), on, reached), lasts

    if steps > 1:  # one loop in a graph, not a copy of its body for each step
        lasts = T.arange(steps)[1:].unsqueeze(1) < given
        reached = scan(step, reached, (scores[1:], lasts))[0]
    last = (2 * lengths).unsqueeze(1)
    end = reached.gather(1, last).squeeze(1)
    other = reached.gather(1, (last - 1).clamp_min(0)).squeeze(1)
    other = T.where(lengths > 0, other, T.full_like(other, _NEVER))
    return -_logsumexp([end, other])


def _infinite(nothing: Tensor, impossible: Tensor) -> Tensor:
    """inf, whose gradient is torch's: nan for every input that counts, by way of `nothing`."""
    apart = T.where(impossible, nothing, T.ones_like(nothing))
    return (apart * apart).sqrt() + float("inf")


def _normalizer(x: Tensor, given: Tensor) -> Tensor:
    """0, with exp(x) as its gradient: torch's gradient is that of unnormalised log_probs."""
    used = T.arange(int(x.shape[0])).unsqueeze(1) < given
    mass = T.exp(x)
    shown = T.where(used.unsqueeze(2), mass - mass.detach(), T.zeros_like(mass))
    return shown.sum((0, 2))
