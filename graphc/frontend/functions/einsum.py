"""torch.einsum: pairs of operands contracted from left to right."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes, ops

from .. import promote
from ..dispatch import apply
from ..errors import kind_name, located
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import environment, recorded_as, shape
from .linalg_basic import dot_general

Labels = tuple[str, ...]


@replayed
@recorded_as("ViewBackward0")
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products named by labels: einsum("bij,bjk->bik", x, y)."""
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    given: list[Tensor] = list(operands[0]) if (
        len(operands) == 1 and isinstance(operands[0], (list, tuple))
    ) else list(operands)
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(located(
                f"expected Tensor as element {i} in argument 1, but got {kind_name(x)}"
            ))
    inputs, output = _parse(equation.replace(" ", ""), [x.ndim for x in given])
    _check_sizes(inputs, given)
    rank = _ranks(inputs, output)
    terms = [_diagonal(x, labels) for x, labels in zip(given, inputs, strict=True)]
    if len(terms) == 1:  # what is summed is last, so that the result is row-major, as torch's
        terms = [_ordered(*terms[0], output)]
    value, labels = _drop_unused(*terms[0], _needed(inputs[1:], output))
    for i, (other, other_labels) in enumerate(terms[1:], 1):
        needed = _needed(inputs[i + 1 :], output)
        other, other_labels = _drop_unused(other, other_labels, needed | set(labels))
        value, labels = _contract(value, labels, other, other_labels, needed, rank)
    missing = [label for label in output if label not in labels]
    assert not missing
    order = tuple(labels.index(label) for label in output)
    if value is not given[0] and order == tuple(range(len(order))):
        return value
    moved: Tensor = apply(ops.permute, value, dims=order)  # of one operand: a view, as in torch
    return moved


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]) as an equation."""

    def letters(numbers: Any) -> str:
        return "".join(
            "..." if n is Ellipsis else chr(ord("A") + n) if n < 26 else chr(ord("a") + n - 26)
            for n in numbers
        )

    pairs, rest = args[: len(args) // 2 * 2], args[len(args) // 2 * 2 :]
    equation = ",".join(letters(numbers) for numbers in pairs[1::2])
    if rest:
        equation += "->" + letters(rest[0])
    return equation, pairs[::2]


def _parse(equation: str, ranks: list[int]) -> tuple[list[Labels], Labels]:
    """Labels per operand, ellipsis dims named "0", "1", ... from the right; and the output's."""
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise RuntimeError(located(
            f"einsum(): {'more' if len(parts) < len(ranks) else 'fewer'} operands were provided "
            f"than specified in the equation: {equation!r} names {len(parts)}, got {len(ranks)}"
        ))
    inputs = []
    widest = 0
    for i, (part, rank) in enumerate(zip(parts, ranks, strict=True)):
        named = part.replace("...", "")
        if not named.isalpha() and named:
            raise RuntimeError(located(
                "einsum(): invalid subscript given at index 0 in the equation string, subscripts "
                f"must be in [a-zA-Z]: {part!r}"
            ))
        hidden = rank - len(named) if "..." in part else 0
        if hidden < 0 or ("..." not in part and len(named) != rank):
            raise RuntimeError(located(
                f"einsum(): the number of subscripts in the equation ({len(named)}) does not "
                f"match the number of dimensions ({rank}) for operand {i}"
                + ("" if "..." in part else " and no ellipsis was given")
            ))
        widest = max(widest, hidden)
        inputs.append(_spell(part, hidden))
    if arrow:
        output = _spell(right, widest)
    else:
        counts = [label for labels in inputs for label in labels if label.isalpha()]
        hidden_labels = tuple(str(i) for i in reversed(range(widest)))
        output = hidden_labels + tuple(sorted(c for c in set(counts) if counts.count(c) == 1))
    known = {label for labels in inputs for label in labels}
    for label in output:
        if label not in known:
            raise RuntimeError(located(
                f"einsum(): output subscript {label} does not appear in the equation for any "
                "input operand"
            ))
        if output.count(label) > 1:
            raise RuntimeError(located(
                f"einsum(): output subscript {label} appears more than once in the output"
            ))
    return inputs, output


def _spell(part: str, hidden: int) -> Labels:
    before, dots, after = part.partition("...")
    middle = tuple(str(i) for i in reversed(range(hidden))) if dots else ()
    return (*before, *middle, *after)


def _check_sizes(inputs: list[Labels], operands: list[Tensor]) -> None:
    env = environment()
    seen: dict[str, Any] = {}
    for i, (labels, x) in enumerate(zip(inputs, operands, strict=True)):
        for label, size in zip(labels, shape(x), strict=True):
            if env.equal(size, 1):
                continue
            if label in seen and not env.equal(seen[label], size):
                raise RuntimeError(located(
                    f"einsum(): subscript {label} has size {size} for operand {i} which does not "
                    f"broadcast with previously seen size {seen[label]}"
                ))
            seen[label] = size


def _ranks(inputs: list[Labels], output: Labels) -> dict[str, int]:
    """The place of each label among the output's, and behind those what is summed; products lie
    in memory in this order, as torch's do."""
    others = {label for labels in inputs for label in labels}.difference(output)
    hidden = sorted((label for label in others if label.isdigit()), key=int, reverse=True)
    named = sorted(label for label in others if label.isalpha())
    return {label: i for i, label in enumerate((*output, *hidden, *named))}


def _needed(later: list[Labels], output: Labels) -> set[str]:
    return set(output).union(*later)


def _diagonal(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """A label that occurs twice in one operand: its diagonal."""
    names = list(labels)
    for label in dict.fromkeys(labels):
        while names.count(label) > 1:
            i = names.index(label)
            j = names.index(label, i + 1)
            x = x.diagonal(dim1=i, dim2=j)
            names = [n for k, n in enumerate(names) if k not in (i, j)] + [label]
    return x, tuple(names)


def _ordered(x: Tensor, labels: Labels, output: Labels) -> tuple[Tensor, Labels]:
    """The dims as the output has them, if others go. Otherwise the result is a view of x."""
    if len(labels) == len(output):
        return x, labels
    order = (*output, *(label for label in labels if label not in output))
    if order == labels:
        return x, labels
    return apply(ops.permute, x, dims=tuple(map(labels.index, order))), order


def _drop_unused(x: Tensor, labels: Labels, needed: set[str]) -> tuple[Tensor, Labels]:
    dims = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not dims:
        return x, labels
    if not x.dtype.differentiable:  # as sum() has it
        x = promote.cast(x, dtypes.i64)
    total: Tensor = apply(ops.sum, x, dims=dims, keepdim=False)
    return total, tuple(label for label in labels if label in needed)


def _contract(
    a: Tensor, left: Labels, b: Tensor, right: Labels, needed: set[str], rank: dict[str, int]
) -> tuple[Tensor, Labels]:
    a, left, b, right = _summed_alone(a, left, b, right, needed)
    a, b = _match_sizes(a, left, b, right)
    both = [label for label in left if label in right]
    summed = [label for label in both if label not in needed]
    if not summed:
        return _multiply(a, left, b, right, tuple(sorted({*left, *right}, key=rank.__getitem__)))
    batch, free_a, free_b = (sorted(labels, key=rank.__getitem__) for labels in (
        needed.intersection(both), set(left).difference(both), set(right).difference(both),
    ))
    if free_a and free_b and rank[free_b[-1]] < rank[free_a[0]]:  # so that no dims are moved after
        a, left, free_a, b, right, free_b = b, right, free_b, a, left, free_a
    a, left = _arranged(a, left, rank)
    b, right = _arranged(b, right, rank)
    if not (a.dtype.differentiable or b.dtype.differentiable):
        a, b = promote.operands(a, b)
    if a.dtype is not b.dtype:
        raise RuntimeError(located(
            f"expected scalar type {promote._name(a.dtype)} but found {promote._name(b.dtype)}: "
            f"einsum()'s operands. Cure: x.to({a.dtype})"
        ))

    def places(labels: Labels, names: list[str]) -> tuple[int, ...]:
        return tuple(labels.index(name) for name in names)

    value = dot_general(
        a, b, places(left, summed), places(right, summed), places(left, batch),
        places(right, batch),
    )
    return value, (*batch, *free_a, *free_b)


def _summed_alone(
    a: Tensor, left: Labels, b: Tensor, right: Labels, needed: set[str]
) -> tuple[Tensor, Labels, Tensor, Labels]:
    """Without the labels whose size in one operand is 1: the other is summed along them before the
    product, as in torch, where operands of other dtypes may then meet."""
    env = environment()
    sizes = [dict(zip(labels, shape(x), strict=True)) for x, labels in ((a, left), (b, right))]
    alone = {
        label for label in set(left) & set(right) - needed
        if any(env.equal(known[label], 1) for known in sizes)
    }
    if not alone:
        return a, left, b, right
    found: list[Any] = []
    for x, labels in ((a, left), (b, right)):
        ones = {n for n in alone if env.equal(shape(x)[labels.index(n)], 1)}
        x, labels = _drop_unused(x, labels, set(labels) - (alone - ones))
        kept = tuple(n for n in labels if n not in ones)
        places = tuple(shape(x)[labels.index(n)] for n in kept)
        found += [apply(ops.reshape, x, shape=places) if ones else x, kept]
    return found[0], found[1], found[2], found[3]


def _arranged(x: Tensor, labels: Labels, rank: dict[str, int]) -> tuple[Tensor, Labels]:
    """With its dims in the order of their labels' ranks."""
    order = tuple(sorted(range(len(labels)), key=lambda i: rank[labels[i]]))
    if order == tuple(range(len(order))):
        return x, labels
    moved: Tensor = apply(ops.permute, x, dims=order)
    return moved, tuple(labels[i] for i in order)


def _match_sizes(a: Tensor, left: Labels, b: Tensor, right: Labels) -> tuple[Tensor, Tensor]:
    """Expand a dim of size 1 that meets the same label with another size."""
    env = environment()
    sizes = [list(shape(a)), list(shape(b))]
    for i, label in enumerate(left):
        if label in right:
            j = right.index(label)
            m, n = sizes[0][i], sizes[1][j]
            if env.equal(m, n):
                continue
            sizes[0][i] = sizes[1][j] = n if env.equal(m, 1) else m
    if tuple(sizes[0]) != shape(a):
        a = apply(ops.expand, a, shape=tuple(sizes[0]))
    if tuple(sizes[1]) != shape(b):
        b = apply(ops.expand, b, shape=tuple(sizes[1]))
    return a, b


def _multiply(
    a: Tensor, left: Labels, b: Tensor, right: Labels, output: Labels
) -> tuple[Tensor, Labels]:
    """A product without a sum: elementwise."""

    def aligned(x: Tensor, labels: Labels) -> Tensor:
        present = [label for label in output if label in labels]
        order = tuple(labels.index(label) for label in present)
        if order != tuple(range(len(order))):
            x = apply(ops.permute, x, dims=order)
        sizes = dict(zip(present, shape(x), strict=True))
        spread: Tensor = apply(
            ops.reshape, x, shape=tuple(sizes.get(label, 1) for label in output)
        )
        return spread

    return P.mul(aligned(a, left), aligned(b, right)), output
