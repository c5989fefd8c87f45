"""Operators on many numbers, in the shapes that code for all sizes is made of.

What an elementwise operator does to tensors of one shape, it does to flat ones; softmax along a
dim sees what is before, along and behind it. So one kernel serves all shapes of a kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.chain import is_chain, links_of
from ..ir.op import Attrs, Op
from ..ir.types import TensorType
from .eager_form import WIDE, Form, Shape, Types, elements, is_large, with_long_sums
from .eager_indexing import INDEXING
from .eager_moves import MOVES
from .eager_products import form as product


def form_of(op: Op, types: Types, attrs: Attrs) -> Form | None:
    """How an operator is spelled for all sizes; None where NumPy does it."""
    make = _flat_chain(op) if is_chain(op) else FORMS.get(op.name)
    if make is None or not is_large(op, types, attrs):
        return None
    if any(0 in t.shape or not _computed(t) for t in types):
        return None
    return make(types, attrs)


def _flat_chain(op: Op) -> Any:
    """Not of one that sums over some dims, which only few numbers have, or takes views."""
    sums = [link for link in links_of(op) if link.op.name == "sum"]
    if any(link.op.view for link in links_of(op)) or any(link.attrs for link in sums):
        return None
    return _flat_with_sums if sums else _flat


def _flat_with_sums(types: Types, attrs: Attrs) -> Form | None:
    form = _flat(types, attrs)
    if form is None:
        return None
    inputs = [with_long_sums(shape, range(len(shape))) for shape in form.inputs]
    return form._replace(inputs=tuple(inputs))


def _computed(type_: TensorType) -> bool:
    return not type_.dtype.is_complex


def _floats(types: Types) -> bool:
    return all(t.dtype.is_float for t in types)


def _halves(types: Types) -> bool:
    return any(t.dtype.is_float and t.dtype.bits == 16 for t in types)


def _dims(**sizes: Any) -> Shape:
    return tuple(sizes.items())


def _flat(types: Types, attrs: Attrs, numbers: bool = False) -> Form | None:
    """All of one shape, or numbers. `numbers`: integers as well as floats."""
    computed = [t for t in types if t.dtype.name != "bool"]
    if not computed or not (numbers or _floats(computed)):
        return None
    shape = max((t.shape for t in types), key=len)
    if any(t.shape not in (shape, ()) for t in types):
        return spread(types, attrs)
    line = _dims(n=elements(TensorType(types[0].dtype, shape)))
    return Form(tuple([line if t.shape else () for t in types]), attrs)


def _cast(types: Types, attrs: Attrs) -> Form | None:
    """NumPy is as fast where no half precision is about, but from floats to integers, and from
    bytes and bools to wide numbers."""
    to, given = attrs["dtype"], types[0].dtype
    if to.is_complex or not (
        _halves(types) or (to.is_float and to.bits == 16) or (given.is_float and to.is_integer)
        or (given.is_integer and given.bits == 8 and to.is_float)
        or (given.name in ("bool", "u8", "i8") and to.name in ("i32", "i64"))
    ):
        return None
    return Form((_dims(n=elements(types[0])),), attrs)


def _exact(types: Types, attrs: Attrs) -> Form | None:
    """NumPy is as fast where no half precision is about."""
    return _flat(types, attrs) if _halves(types) else None


def _clamp(types: Types, attrs: Attrs) -> Form | None:
    """Of integers, too: NumPy makes a copy for each bound."""
    if any(t.dtype.name == "bool" for t in types):
        return None
    return _flat(types, attrs, numbers=True)


def _divided(types: Types, attrs: Attrs) -> Form | None:
    """Of integers, too: NumPy divides and multiplies back."""
    if any(t.dtype.name == "bool" for t in types):
        return None
    return _flat(types, attrs, numbers=True)


def _compared(types: Types, attrs: Attrs) -> Form | None:
    """Integers, too, where one is repeated: NumPy has fast loops for whole tensors and numbers."""
    if types[0].dtype.is_integer and all(t.shape for t in types):
        return None if types[0].shape == types[1].shape else spread(types, attrs)
    return _flat(types, attrs)


_MOST_DIMS = 4


def spread(types: Types, attrs: Attrs) -> Form | None:
    """Of different shapes: neighbouring dims along which each is whole, or repeated, are one."""
    rank = max(len(t.shape) for t in types)
    wide: list[Any] = [(1,) * (rank - len(t.shape)) + tuple(t.shape) for t in types]
    whole = [max(sizes) for sizes in zip(*wide, strict=True)]
    groups: list[tuple[tuple[bool, ...], int]] = []  # (who is repeated, how many elements)
    for d, size in enumerate(whole):
        if size == 1:
            continue
        repeated = tuple([sizes[d] == 1 for sizes in wide])
        if groups and groups[-1][0] == repeated:
            groups[-1] = repeated, groups[-1][1] * size
        else:
            groups.append((repeated, size))
    if len(groups) > _MOST_DIMS or any(any(r) and all(r) for r, _ in groups):
        return None
    inputs = [
        tuple([("", 1) if repeated[i] else (f"n{at}", size)
               for at, (repeated, size) in enumerate(groups)])
        for i in range(len(types))
    ]
    return Form(tuple(inputs), attrs)


def _around(shape: Any, dims: Sequence[int]) -> Shape | None:
    """A shape as what is before neighbouring dims, they, and what is behind."""
    if not dims or list(dims) != list(range(dims[0], dims[-1] + 1)):
        return None
    first, behind = dims[0], dims[-1] + 1
    return _dims(
        o=math.prod(shape[:first]), m=math.prod(shape[first:behind]), i=math.prod(shape[behind:])
    )


def _along(types: Types, attrs: Attrs) -> Form | None:
    """softmax and the like, and what runs along a dim."""
    shape = _around(types[0].shape, (attrs["dim"],))
    if shape is None or types[0].dtype.name == "bool":
        return None
    return Form((shape,), {**attrs, "dim": 1})


COLUMNS, ROWS = 64, 16  # from which on sums over rows go along them


def _summed(types: Types, attrs: Attrs) -> Form | None:
    """Of integers, too, which wrap in whatever order."""
    form = _reduced(types, attrs, types[0].dtype.name == "i64")
    if form is None or not _floats(types):
        return form
    return form._replace(inputs=(with_long_sums(form.inputs[0], form.attrs["dims"]),))


def _reduced(types: Types, attrs: Attrs, numbers: bool = False) -> Form | None:
    """Neighbouring dims that are all reduced, or all kept, are one. `numbers`: integers as well as
    floats."""
    groups: list[tuple[bool, int]] = []  # (whether it is reduced, how many elements)
    sizes: Any = types[0].shape
    for d, size in enumerate(sizes):
        if size == 1:
            continue
        reduced = d in attrs["dims"]
        if groups and groups[-1][0] == reduced:
            groups[-1] = reduced, groups[-1][1] * size
        else:
            groups.append((reduced, size))
    dims = tuple([at for at, (reduced, _) in enumerate(groups) if reduced])
    if not dims or len(groups) > _MOST_DIMS or not (numbers or _floats(types)):
        return None
    shape = [(f"n{at}", size) for at, (_, size) in enumerate(groups)]
    last, columns = shape[-1]
    if not groups[-1][0] and columns >= COLUMNS and groups[-2][1] >= ROWS:
        shape[-1] = f"{WIDE}{last}", columns
    return Form((tuple(shape),), {"dims": dims, "keepdim": False})


def _layer_norm(types: Types, attrs: Attrs) -> Form | None:
    dims = attrs["normalized_dims"]
    shape = _around(types[0].shape, dims)
    if shape is None or not _floats(types) or any(t.dtype is not types[0].dtype for t in types):
        return None
    (outer, (name, columns)) = shape[:2]
    if columns >= COLUMNS and outer[1] >= ROWS:  # the weight's gradient is a sum over rows
        name = f"{WIDE}{name}"
    rows, line = (outer, (name, columns)), ((name, columns),)
    return Form((rows, *[line] * (len(types) - 1)), {**attrs, "normalized_dims": (1,)})


def _batch_norm(types: Types, attrs: Attrs) -> Form | None:
    shape: Any = types[0].shape
    if not _floats(types) or any(t.dtype is not types[0].dtype for t in types):
        return None
    whole = with_long_sums(_dims(n=shape[0], c=shape[1], m=math.prod(shape[2:])), (0, 2))
    return Form((whole, *[whole[1:2]] * (len(types) - 1)), attrs)


def _cross_entropy(types: Types, attrs: Attrs) -> Form | None:
    """Classes in rows, or each place of an image with its own; class weights are as many."""
    shape: Any = types[0].shape
    if len(shape) < 2 or not _floats([types[0], *types[2:]]):
        return None
    whole = _dims(n=shape[0], m=shape[1])
    if len(shape) > 2:
        whole = (*whole, ("i", math.prod(shape[2:])))
    whole = with_long_sums(whole, (0, 2))
    return Form((whole, (whole[0], *whole[2:]), *[whole[1:2]] * (len(types) - 2)), attrs)


def _attention(types: Types, attrs: Attrs) -> Form | None:
    """Neighbouring dims before the rows are one; how long a row is, is known. A mask is of the
    scores' shape, or the same for all."""
    q, k, v, *rest = types
    q_shape, k_shape, v_shape = ([*t.shape] for t in (q, k, v))
    lead: Any = q_shape[:-2]
    if lead != k_shape[:-2] or lead != v_shape[:-2] or len(rest) > 1 or "dropout" in attrs:
        return None
    if not _floats((q, k, v)) or any(t.dtype is not q.dtype for t in (k, v)):
        return None
    many = ("b", math.prod(lead))
    rows, keys = ("l", q_shape[-2]), ("s", k_shape[-2])
    inputs: list[Any] = [
        (many, rows, ("", q_shape[-1])), (many, keys, ("", k_shape[-1])),
        (many, keys, ("", v_shape[-1])),
    ]
    for mask in rest:
        scores = [q_shape[-2], k_shape[-2]]
        if [*mask.shape] == scores:
            inputs.append((rows, keys))
        elif [*mask.shape] == [*lead, *scores]:
            inputs.append((many, rows, keys))
        else:
            return None
    return Form(tuple(inputs), attrs)


def _max_pool(types: Types, attrs: Attrs) -> Form | None:
    shape: Any = types[0].shape
    rank = len(attrs["window"])
    if not _floats(types):
        return None
    planes = math.prod(shape[:-rank])
    # the size of a plane decides how many windows there are: it is known
    return Form(((("n", planes), *_known(shape[-rank:])),), attrs)


def _image(sizes: Sequence[Any]) -> Shape:
    """Its channels are known; how many images there are, and how large, is not."""
    space = [(f"s{at}", size) for at, size in enumerate(sizes[2:])]
    return (("n", sizes[0]), ("", sizes[1]), *space)


def _known(sizes: Sequence[Any]) -> Shape:
    return tuple([("", size) for size in sizes])


def _conv(types: Types, attrs: Attrs) -> Form | None:
    x, w = types
    if not _floats(types):
        return None
    return Form((_image(x.shape), _known(w.shape)), attrs)


def _conv_input_grad(types: Types, attrs: Attrs) -> Form | None:
    g, w = types
    if not _floats(types):
        return None
    return Form((_known(g.shape), _known(w.shape)), attrs, _image(attrs["input_shape"]))


FORMS: dict[str, Callable[[Types, Attrs], Form | None]] = {
    **dict.fromkeys(
        "neg abs sign square relu exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal "
        "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid "
        "gelu silu softplus add sub mul div pow maximum minimum atan2 "
        "fmax fmin copysign hypot erfinv lgamma digamma "
        "where".split(),
        _flat,
    ),
    **dict.fromkeys("eq ne lt le gt ge".split(), _compared),
    **dict.fromkeys("floor ceil round trunc isnan isinf isfinite logical_not".split(), _exact),
    **dict.fromkeys("fmod remainder floor_divide trunc_divide".split(), _divided),
    "cast": _cast, "clamp": _clamp,
    **dict.fromkeys("softmax log_softmax cumsum cumprod cummax cummin".split(), _along),
    **dict.fromkeys("prod amax amin".split(), _reduced), "sum": _summed,
    "layer_norm": _layer_norm, "batch_norm": _batch_norm, "cross_entropy": _cross_entropy,
    "nll_loss": _cross_entropy, "attention": _attention,
    "max_pool": _max_pool, "conv": _conv, "conv_input_grad": _conv_input_grad,
    "dot_general": product,
    **INDEXING, **MOVES,
}
