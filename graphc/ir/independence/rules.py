"""Rules of independence by operator: where the rows of a result lie, given those of the inputs.

A rule raises Mixed where an element of the result may hang on more rows than its own, or on where
its row lies in the batch. That the sizes fit is checked by who asks (`_Walk._checked`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dim import Size, floordiv, mod, product
from ..types import Shape
from .call import Call, Result, Rows, Rule, State, mentions, mixed

# --- one element of the result from one of each input ------------------------------------------


def _aligned(call: Call, numbers: Sequence[int], rank: int) -> State:
    """Where inputs that are broadcast to `rank` dims have their rows; None: nowhere."""
    found: State = None
    for number in numbers:
        state = call.states[number]
        if state is None:
            continue
        here = state.at(state.dim + rank - call.type(number).rank)
        if found is not None and here != found:
            mixed(f"{call.name} meets rows with rows of another dim")
        found = here
    if found is None:
        return None
    for number in numbers:
        shape = call.type(number).shape
        place = found.dim - (rank - len(shape))
        if call.states[number] is None and place >= 0 and shape[place] != 1:
            mixed(f"{call.name} has a value of its own for each place in the batch")
    return found


def _pointwise(call: Call) -> Result:
    return _aligned(call, range(len(call.states)), call.node.tensor_type.rank)


# --- along dims --------------------------------------------------------------------------------


def _dims_of(call: Call) -> tuple[int, ...]:
    return call.attrs["dims"] if "dims" in call.attrs else (call.attrs["dim"],)


def _along(call: Call) -> Result:
    """Operators of one input along some dims, which stay: softmax, sort, cumsum, flip, fft."""
    rows = call.rows()
    if rows.dim in _dims_of(call):
        call.across(rows.dim)
    return rows if call.node.op.results == 1 else (rows,) * call.node.op.results


def _reduce(call: Call) -> Result:
    """Operators of one input that take dims away, or keep them as size 1."""
    rows, dims = call.rows(), _dims_of(call)
    if rows.dim in dims:
        call.across(rows.dim)
    gone = 0 if call.attrs["keepdim"] else sum(d < rows.dim for d in dims)
    return rows.at(rows.dim - gone)


def _concat(call: Call) -> Result:
    rows = call.same_rows(*range(len(call.states)))
    return call.across(rows.dim) if rows.dim == call.attrs["dim"] else rows


def _layer_norm(call: Call) -> Result:
    rows = call.rows()
    call.shared(*range(1, len(call.states)))
    return call.across(rows.dim) if rows.dim in call.attrs["normalized_dims"] else rows


def _batch_norm(call: Call) -> Result:
    mixed("batch_norm takes its statistics over the batch; call model.eval() before export")


def _loss(call: Call) -> Result:
    if call.attrs["reduction"] != "none":
        mixed(f"{call.name} is one number for the whole batch")
    rows = call.same_rows(0, 1)
    call.shared(*range(2, len(call.states)))
    return rows if rows.dim == 0 and call.type().rank > 1 else call.across(rows.dim)


# --- movement ----------------------------------------------------------------------------------


def _split(shape: Shape, before: Size, after: Size, call: Call) -> Rows:
    """Where rows lie in `shape`, which has `before` elements before each choice of a row, and
    `after` behind it, in the flat order."""
    for dim, size in enumerate(shape):
        if not mentions(size, str(call.batch)):
            continue
        ahead, behind = product(shape[:dim]), product(shape[dim + 1 :])
        if mod(before, ahead) == 0 and mod(after, behind) == 0:
            rows = Rows(dim, floordiv(before, ahead), floordiv(after, behind))
            if product((rows.outer, call.batch, rows.inner)) == size:
                return rows
    mixed(f"{call.name} puts elements of several rows together")


def _reshape(call: Call) -> Result:
    rows, shape = call.rows(), call.type().shape
    before = product((*shape[: rows.dim], rows.outer))
    after = product((rows.inner, *shape[rows.dim + 1 :]))
    return _split(call.attrs["shape"], before, after, call)


def _permute(call: Call) -> Result:
    rows = call.rows()
    return rows.at(call.attrs["dims"].index(rows.dim))


def _filled(call: Call, shape: Shape) -> Rows:
    """Something that is the same in every row, of a shape that has rows."""
    places = [d for d, size in enumerate(shape) if mentions(size, str(call.batch))]
    if len(places) != 1 or mod(shape[places[0]], call.batch) != 0:
        mixed(f"{call.name} makes something of shape {list(map(str, shape))}")
    return Rows(places[0], 1, floordiv(shape[places[0]], call.batch))


def _expand(call: Call) -> Result:
    shape, rank = call.attrs["shape"], call.type().rank
    if call.states[0] is not None:
        return _aligned(call, (0,), len(shape))
    rows = _filled(call, shape)
    place = rows.dim - (len(shape) - rank)
    if place >= 0 and call.type().shape[place] != 1:
        mixed("expand has a value of its own for each place in the batch")
    return rows


def _full(call: Call) -> Result:
    return _filled(call, call.attrs["shape"])


def _iota(call: Call) -> Result:
    rows = _filled(call, call.attrs["shape"])
    if rows.dim == call.attrs["dim"]:
        mixed("iota numbers the rows of the batch")
    return rows


def _whole(call: Call, dim: int) -> None:
    """Raise Mixed unless a slice takes everything along a dim."""
    starts, stops, steps = (call.attrs[name][dim] for name in ("starts", "stops", "steps"))
    if starts != 0 or steps != 1 or stops != call.type().shape[dim]:
        mixed(f"{call.name} takes some of the rows")


def _slice(call: Call) -> Result:
    rows = call.same_rows(*range(len(call.states)))  # slice_update: of both
    _whole(call, rows.dim)
    return rows


def _as_strided(call: Call) -> Result:
    """Windows of a row (unfold): a step along the batch is a row, and no other leaves its row."""
    rows, row = call.rows(), product(call.type().shape[1:])
    size, stride = call.attrs["size"], call.attrs["stride"]
    places = [d for d, n in enumerate(size) if n == call.batch]
    last: Size = call.attrs["offset"]
    for d, (n, step) in enumerate(zip(size, stride, strict=True)):
        last = last + (0 if d in places else (n - 1) * step)
    known = isinstance(last, int) and isinstance(row, int) and last < row
    if rows != Rows(0) or len(places) != 1 or stride[places[0]] != row or not known:
        mixed("as_strided steps from row to row another way than the batch does")
    return Rows(places[0])


def _pad(call: Call) -> Result:
    rows = call.rows()
    if any(call.attrs[name][rows.dim] != 0 for name in ("low", "high", "interior")):
        call.across(rows.dim)
    return rows


# --- indexing ----------------------------------------------------------------------------------


def _gather(call: Call) -> Result:
    dim: int = call.attrs["dim"]
    if call.states[0] is None:  # each row looks up its own positions along `dim`
        rows = call.rows(1)
        return rows if rows.dim == dim else mixed("gather looks up another place for each row")
    rows = call.same_rows(0, 1)
    return call.across(dim) if rows.dim == dim else rows


def _scatter(call: Call) -> Result:
    rows = call.same_rows(0, 1, 2)
    return call.across(rows.dim) if rows.dim == call.attrs["dim"] else rows


def _index_ranks(call: Call, first: int) -> int:
    """The rank of what the index tensors, inputs from `first` on, are broadcast to."""
    return max(call.type(number).rank for number in range(first, len(call.states)))


def _index(call: Call) -> Result:
    dim: int = call.attrs["dim"]
    numbers = range(1, len(call.states))
    rank = _index_ranks(call, 1)
    if call.states[0] is None:  # an embedding
        rows = _aligned(call, numbers, rank)
        assert rows is not None
        return rows.at(dim + rows.dim)
    call.shared(*numbers)
    rows = call.rows()
    if dim <= rows.dim < dim + len(numbers):
        call.across(rows.dim)
    return rows if rows.dim < dim else rows.at(rows.dim - len(numbers) + rank)


def _index_put(call: Call) -> Result:
    dim: int = call.attrs["dim"]
    rows, count, rank = call.rows(), len(call.states) - 2, _index_ranks(call, 2)
    call.shared(*range(2, len(call.states)))
    if dim <= rows.dim < dim + count:
        call.across(rows.dim)
    place = rows.dim if rows.dim < dim else rows.dim - count + rank  # in what is written
    written = call.type().rank - count + rank
    source, shape = call.states[1], call.type(1).shape
    here = place - (written - len(shape))
    if source is None and here >= 0 and shape[here] != 1:
        mixed("index_put writes a value of its own to each place in the batch")
    if source is not None and source != rows.at(here):
        mixed("index_put meets rows with rows of another dim")
    return rows


# --- contractions and windows ------------------------------------------------------------------


def _dot_general(call: Call) -> Result:
    a, b = call.states
    sides = (("a", a, 0), ("b", b, 1))
    for side, state, _ in sides:
        if state is not None and state.dim in call.attrs[f"contract_{side}"]:
            mixed(f"dot_general sums over the batch, dim {state.dim} of its operand {side}")
    if a is not None and b is not None:
        pairs = list(zip(call.attrs["batch_a"], call.attrs["batch_b"], strict=True))
        if (a.dim, b.dim) not in pairs or a.at(0) != b.at(0):
            mixed("dot_general multiplies rows with other rows")
        return a.at(pairs.index((a.dim, b.dim)))
    first = len(call.attrs["batch_a"])
    for side, state, number in sides:
        taken = (*call.attrs[f"batch_{side}"], *call.attrs[f"contract_{side}"])
        free = [d for d in range(call.type(number).rank) if d not in taken]
        if state is not None:
            if state.dim not in free:
                mixed("dot_general has a matrix of its own for each place in the batch")
            return state.at(first + free.index(state.dim))
        first += len(free)
    return None


def _conv(call: Call) -> Result:
    """conv and conv_input_grad: images by themselves, one kernel for all."""
    rows = call.rows()
    call.shared(1)
    return rows if rows.dim == 0 else call.across(rows.dim)


def _window(call: Call) -> Result:
    """Pooling over the trailing dims."""
    rows = call.rows()
    if rows.dim >= call.type().rank - len(call.attrs["window"]):
        call.across(rows.dim)
    return rows if call.node.op.results == 1 else (rows,) * call.node.op.results


def _max_pool_grad(call: Call) -> Result:
    rows = call.same_rows(0, 1)
    if rows.dim >= call.type().rank - len(call.attrs["plane_shape"]):
        call.across(rows.dim)
    return rows


def _attention(call: Call) -> Result:
    if "dropout" in call.attrs:
        mixed("attention drops what one stream of random numbers says, for all rows")
    rows, rank = call.same_rows(0, 1, 2), call.type().rank
    if rows.dim >= rank - 2:
        call.across(rows.dim)
    if len(call.states) == 4:  # a mask, broadcast to [..., L, S]
        mask, shape = call.states[3], call.type(3).shape
        place = rows.dim - (rank - len(shape))
        if mask is None and place >= 0 and shape[place] != 1:
            mixed("attention has a mask of its own for each place in the batch")
        if mask is not None and mask != rows.at(place):
            mixed("attention meets rows with a mask of rows along another dim")
    return (rows, rows)


# --- matrices and complex numbers --------------------------------------------------------------


def _matrices(call: Call) -> Result:
    """Batches of matrices, all of the same leading dims."""
    rows = call.same_rows(*range(len(call.states)))
    trailing = 1 if call.name == "lu_permutation" else 2
    if rows.dim >= call.type().rank - trailing:
        call.across(rows.dim)
    return rows if call.node.op.results == 1 else (rows,) * call.node.op.results


def _as_real(call: Call) -> Result:
    return call.rows()


def _as_complex(call: Call) -> Result:
    rows = call.rows()
    return call.across(rows.dim) if rows.dim == call.type().rank - 1 else rows


# The attribute that may hold the size of the batch, because it is a shape.
SIZES = {
    "reshape": "shape", "expand": "shape", "full": "shape", "iota": "shape", "slice": "stops",
    "slice_update": "stops", "conv_input_grad": "input_shape", "as_strided": "size",
}

RULES: dict[str, Rule] = {
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice,
    "slice_update": _slice, "as_strided": _as_strided, "pad": _pad, "concat": _concat,
    "flip": _along, "full": _full, "iota": _iota, "gather": _gather, "scatter": _scatter,
    "index": _index, "index_put": _index_put, "dot_general": _dot_general, "conv": _conv,
    "conv_input_grad": _conv,
    "max_pool": _window, "window_sum": _window, "max_pool_grad": _max_pool_grad, "sort": _along,
    "topk": _along, "softmax": _along, "log_softmax": _along, "logsumexp": _reduce,
    "layer_norm": _layer_norm, "batch_norm": _batch_norm, "cross_entropy": _loss,
    "nll_loss": _loss, "attention": _attention, "fft_complex": _along, "fft_real": _along,
    "fft_inverse_real": _along, "view_as_real": _as_real, "view_as_complex": _as_complex,
    **dict.fromkeys((
        "i0", "i0e", "i1", "i1e", "erfcx", "ndtri", "log_ndtr", "bessel_j0", "bessel_j1",
        "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
        "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "airy_ai", "polygamma", "zeta",
        "gammainc", "gammaincc", "conj", "complex_abs", "complex_sign",
    ), _pointwise),
    **dict.fromkeys((
        "linalg_solve", "linalg_inv", "linalg_det", "linalg_cofactor", "linalg_slogdet",
        "linalg_cholesky", "linalg_lu", "lu_permutation", "linalg_ldl_factor", "solve_triangular",
        "linalg_qr", "linalg_geqrf", "linalg_svd", "linalg_eigh", "linalg_eig", "linalg_pinv",
        "matrix_exp",
    ), _matrices),
}

FAMILIES: dict[str, Rule] = {
    "pointwise": _pointwise, "reduce": _reduce, "arg_reduce": _reduce, "cumulative": _along,
}
