"""View operators: reshape, permute, expand, slice, as_strided, view_as_real, view_as_complex.

Four readings of each: on arrays (eager), on strides (`stride()` under trace), on values
(replaying a chain of views on a base), and backwards (a write to a view, as an update of its
base). A *chain* is the tuple of (op, attrs) that leads from a base to a view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from graphc.ir.dim import Dim, DimEnv, Size, evaluate, is_static, product
from graphc.ir.memory import as_strided
from graphc.ir.op import Attrs, Op
from graphc.ir.op import get as get_op
from graphc.ir.types import Shape

from .storage import contiguous_strides, strides_of

Step: TypeAlias = tuple[Op, Attrs]
Chain: TypeAlias = tuple[Step, ...]
Geometry: TypeAlias = tuple[Shape, Shape, Size]  # size, strides, offset; in elements

OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)

# --- on arrays -----------------------------------------------------------------------------


def _reshape_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    shape = attrs["shape"]
    if array.flags.c_contiguous:
        return array.reshape(shape)
    steps = _reshape_steps(array.shape, array.strides, shape, array.itemsize)
    if steps is None:
        return None
    if type(array) is np.ndarray:
        found: np.ndarray = array.reshape(shape)  # a view; dims of one place may have other steps
        if found.strides == steps:
            return found
    found = as_strided(array, tuple(shape), steps)
    return found


def _reshape_steps(
    shape: tuple[int, ...], steps: tuple[int, ...], new: Shape, size: int
) -> tuple[int, ...] | None:
    """reshape_strides() of plain numbers, in bytes, an element having `size` of them."""
    new = cast("tuple[int, ...]", new)
    if shape == new:
        return steps
    if 0 in shape:
        return tuple([cast(int, s) * size for s in contiguous_strides(new)])
    out = [0] * len(new)
    at, last = len(new) - 1, len(shape) - 1
    step, old_count, new_count = steps[last], 1, 1
    for i in range(last, -1, -1):
        old_count *= shape[i]
        if i and (shape[i - 1] == 1 or steps[i - 1] == old_count * step):
            continue
        while at >= 0 and (old_count > new_count or new[at] == 1):
            out[at] = new_count * step
            new_count *= new[at]
            at -= 1
        if new_count != old_count:
            return None
        if i:
            step, old_count, new_count = steps[i - 1], 1, 1
    return tuple(out) if at == -1 else None


def _permute_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    return array.transpose(attrs["dims"])


def _expand_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    shape = attrs["shape"]
    strides = [0] * (len(shape) - array.ndim)
    skip = len(strides)
    for i, (size, step) in enumerate(zip(array.shape, strides_of(array), strict=True)):
        strides.append(step if shape[skip + i] == size else 0)
    return strided(array, shape, tuple(strides))


def _slice_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    if array.ndim == 0:
        return array[...]
    found: np.ndarray = array[tuple(map(slice, attrs["starts"], attrs["stops"], attrs["steps"]))]
    return found


def _as_strided_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    """Raises RuntimeError where an element would lie outside the array."""
    size, stride, offset = attrs["size"], attrs["stride"], attrs["offset"]
    check_bounds(size, stride, offset, array.size)
    if not array.flags.c_contiguous:
        found = through_layout(array.shape, strides_of(array), size, stride, offset)
        if found is None:
            return None
        first = tuple(slice(d, None) for d in _digits(offset, array.shape))
        return strided(array[first], size, found[0])
    flat = array.reshape(-1)
    if 0 in size:
        return flat[:0].reshape(size)
    return strided(flat[offset:], size, stride)


_PARTS: dict[str, Any] = {"F": np.dtype(np.float32), "D": np.dtype(np.float64)}


def _parts_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    if array.ndim and array.flags.c_contiguous and 1 not in array.shape and (
        array.dtype.char in _PARTS
    ):
        numbers: np.ndarray = array.view(_PARTS[array.dtype.char])
        return numbers.reshape((*array.shape, 2))
    part = array.real  # strided by whole complex numbers: the imaginary parts lie between
    found: np.ndarray = as_strided(
        part, (*array.shape, 2), (*array.strides, part.itemsize)
    )
    return found


def _complex_array(array: np.ndarray, attrs: Attrs) -> np.ndarray | None:
    """Raises RuntimeError where the pairs of numbers are not adjacent."""
    kind = np.dtype(np.complex64 if array.itemsize == 4 else np.complex128)
    if array.size == 0:
        flat = array.reshape(-1).view(kind)
        return strided(flat, array.shape[:-1], contiguous_strides(array.shape[:-1]))
    if array.flags.c_contiguous and 1 not in array.shape:
        pairs: np.ndarray = array.view(kind)[..., 0]
        return pairs
    if array.shape[-1] and array.strides[-1] != array.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    steps = zip(array.shape[:-1], array.strides, strict=False)
    if any(step % kind.itemsize for size, step in steps if size > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    found: np.ndarray = array.view(kind)[..., 0]
    return found


ARRAYS: dict[str, Callable[[np.ndarray, Attrs], np.ndarray | None]] = {
    "reshape": _reshape_array,
    "permute": _permute_array,
    "expand": _expand_array,
    "slice": _slice_array,
    "as_strided": _as_strided_array,
    "view_as_real": _parts_array,
    "view_as_complex": _complex_array,
}


def strided(array: np.ndarray, size: Shape, strides: Shape) -> np.ndarray:
    """A view from array's first element. The caller answers for the bounds."""
    step = array.itemsize
    found: np.ndarray = as_strided(
        array, tuple(size), tuple(int(s) * step for s in strides)  # type: ignore[arg-type]
    )
    return found


def _digits(flat: int, shape: Shape) -> list[int]:
    """The index of a row-major position; more than the size in the first dim if it is beyond."""
    found = []
    for n, step in zip(shape, contiguous_strides(shape), strict=True):
        digit, flat = (0, flat) if n == 1 else divmod(flat, int(step))  # type: ignore[arg-type]
        found.append(digit)
    return found


def through_layout(
    shape: Shape, strides: Shape, size: Shape, stride: Shape, offset: Size
) -> tuple[Shape, Size] | None:
    """Strides and offset in memory of an as_strided of a tensor that is not row-major.

    Each step must move along dims without a carry (a diagonal, windows); None otherwise, for
    symbolic sizes and where there is no element.
    """
    if not is_static((*shape, *strides, *size, *stride, offset)) or 0 in (*size, *shape):
        return None
    reach = _digits(int(offset), shape)  # type: ignore[arg-type]
    start = sum(d * s for d, s in zip(reach, strides, strict=True))
    steps: list[Size] = []
    for n, flat in zip(size, stride, strict=True):
        digits = _digits(int(flat), shape)  # type: ignore[arg-type]
        reach = [r + (int(n) - 1) * d for r, d in zip(reach, digits, strict=True)]  # type: ignore[arg-type]
        steps.append(sum(d * s for d, s in zip(digits, strides, strict=True)))
    if any(r >= n for r, n in zip(reach, shape, strict=True)):  # type: ignore[operator]
        return None
    return tuple(steps), start


_FAR = 1_000_003  # sizes as large as no step of a few elements


def _through_symbols(
    shape: Shape, strides: Shape, size: Shape, stride: Shape, offset: Size, env: DimEnv
) -> tuple[Shape, Size] | None:
    """through_layout() of symbolic sizes: the digits at sizes that are far apart, where they are
    those of all sizes."""
    sizes = [n for n in (*shape, *stride, offset) if isinstance(n, Dim)]
    names = sorted({name for n in sizes for name in n.variables()})
    if not names or 0 in (*size, *shape):
        return None
    far = {name: _FAR * (i + 1) + i for i, name in enumerate(names)}
    example = tuple(evaluate(n, far) for n in shape)
    rows = contiguous_strides(shape)

    def steps(flat: Size) -> list[int] | None:
        found = _digits(evaluate(flat, far), example)
        return found if sum_of(found, rows) == flat else None

    first, moved = steps(offset), [steps(each) for each in stride]
    if first is None or any(each is None for each in moved):
        return None
    digits = [each for each in moved if each is not None]
    for d, have in enumerate(shape):
        last = first[d] + sum_of([each[d] for each in digits], [n - 1 for n in size])
        if not env.at_most(last + 1, have):
            return None
    return tuple(sum_of(each, strides) for each in digits), sum_of(first, strides)


def sum_of(counts: Sequence[int], steps: Sequence[Size]) -> Size:
    """The steps, each so many times."""
    total: Size = 0
    for count, step in zip(counts, steps, strict=True):
        total = total + count * step
    return total


def check_bounds(size: Shape, stride: Shape, offset: Size, elements: Size) -> None:
    """Raise RuntimeError unless every element lies within `elements`. Static sizes only."""
    known: Any = (*size, *stride, offset, elements)
    if not is_static(known) or 0 in size:
        return
    last = known[-2] + sum((n - 1) * s for n, s in zip(known, stride, strict=False))
    if min(known) < 0 or last >= known[-1]:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} "
            f"require a storage of {last + 1} elements, but it has {elements}"
        )


# --- on strides ----------------------------------------------------------------------------


def reshape_strides(shape: Shape, strides: Shape, new: Shape, env: DimEnv) -> Shape | None:
    """The strides of a reshaped view; None where a copy is needed (torch's computeStride)."""
    if shape == new:
        return strides
    if strides == contiguous_strides(shape) or 0 in shape:
        return contiguous_strides(new)
    if not shape:
        return (1,) * len(new)
    out: list[Size] = [0] * len(new)
    chunk_stride = strides[-1]
    position = len(new) - 1
    old_count: Size = 1
    new_count: Size = 1
    for i in reversed(range(len(shape))):
        old_count = old_count * shape[i]
        if i > 0 and (
            env.equal(shape[i - 1], 1) or env.equal(strides[i - 1], old_count * chunk_stride)
        ):
            continue
        while position >= 0 and (
            not env.at_most(old_count, new_count) or env.equal(new[position], 1)
        ):
            out[position] = new_count * chunk_stride
            new_count = new_count * new[position]
            position -= 1
        if not env.equal(new_count, old_count):
            return None
        if i > 0:
            chunk_stride = strides[i - 1]
            old_count = new_count = 1
    return tuple(out) if position == -1 else None


def view_geometry(
    op: Op, attrs: Attrs, geometry: Geometry, new: Shape, env: DimEnv
) -> Geometry | None:
    """Where the view `op` of a tensor at `geometry` lies; None where a reshape must copy."""
    shape, strides, offset = geometry
    name = op.name
    if name == "reshape":
        found = reshape_strides(shape, strides, new, env)
        return None if found is None else (new, found, offset)
    if name == "permute":
        return new, tuple(strides[d] for d in attrs["dims"]), offset
    if name == "expand":
        skip = len(new) - len(shape)
        kept = tuple(
            step if size == new[skip + i] else 0
            for i, (size, step) in enumerate(zip(shape, strides, strict=True))
        )
        return new, (0,) * skip + kept, offset
    if name == "slice":
        for start, step in zip(attrs["starts"], strides, strict=True):
            offset = offset + start * step
        return new, tuple(s * k for s, k in zip(strides, attrs["steps"], strict=True)), offset
    if name == "as_strided":
        if strides == contiguous_strides(shape):
            return attrs["size"], attrs["stride"], offset + attrs["offset"]
        wanted = attrs["size"], attrs["stride"], attrs["offset"]
        moved = through_layout(shape, strides, *wanted) or (
            _through_symbols(shape, strides, *wanted, env)
        )
        return None if moved is None else (attrs["size"], moved[0], offset + moved[1])
    if name == "view_as_real":
        return new, (*(2 * step for step in strides), 1), 2 * offset
    if name == "view_as_complex":
        return new, tuple(step // 2 for step in strides[:-1]), offset // 2
    raise AssertionError(f"{name} is not a view operator")


def may_overlap(size: Shape, strides: Shape, env: DimEnv) -> bool:
    """True if two indices may name one element."""
    dims = [(env.hint(s), env.hint(n)) for n, s in zip(size, strides, strict=True)]
    if any(count == 0 for _, count in dims):
        return False
    reach = 0
    for step, count in sorted(d for d in dims if d[1] > 1):
        if step <= reach:
            return True
        reach += step * (count - 1)
    return False


def base_of(view: Any) -> Any:
    """The tensor whose history a view follows; None for a tensor that is no view.

    A base that has changed its own shape is a view of what it was, which its views follow.
    """
    base = view._base
    while base is not None and base._base is not None:
        base = view._base = base._base
    return base


# --- on values -----------------------------------------------------------------------------


def replay(chain: Chain, base: Any) -> Any:
    """The view that `chain` makes of a base value (anything with `type` and `_emit`)."""
    for op, attrs in chain:
        base = op(base, **attrs)
    return base


def write_back(chain: Chain, base: Any, value: Any, env: DimEnv) -> Any:
    """The base value after `value` was written to the view of it that `chain` makes.

    Raises RuntimeError where elements of the view share memory.
    """
    if not chain:
        return value
    if any(_repeats(op, attrs, env) for op, attrs in chain):
        chain = _one_stride(chain, base, env)
    bases = [base]
    for op, attrs in chain[:-1]:
        bases.append(op(bases[-1], **attrs))
    for (op, attrs), under in zip(reversed(chain), reversed(bases), strict=True):
        value = _inverse(op, attrs, under, value, env)
    return value


def _repeats(op: Op, attrs: Attrs, env: DimEnv) -> bool:
    """Whether elements may share memory, of which a later view may take each but once."""
    if op.name == "as_strided":
        return may_overlap(attrs["size"], attrs["stride"], env)
    return op.name == "expand" and bool(product(attrs["shape"]) != 1)


def _inverse(op: Op, attrs: Attrs, base: Any, value: Any, env: DimEnv) -> Any:
    name = op.name
    if name in ("reshape", "expand"):
        return _respell(value, base.type.shape)
    if name == "permute":
        dims = attrs["dims"]
        inverse = [0] * len(dims)
        for i, d in enumerate(dims):
            inverse[d] = i
        return op(value, dims=tuple(inverse))
    if name == "slice":
        if value.type.shape == base.type.shape and all(s == 1 for s in attrs["steps"]):
            return value
        return get_op("slice_update")(base, value, **attrs)
    if name == "view_as_real":
        return get_op("view_as_complex")(value)
    if name == "view_as_complex":
        return get_op("view_as_real")(value)
    if may_overlap(attrs["size"], attrs["stride"], env):
        raise RuntimeError(OVERLAP)
    flat = _respell(base, (base.type.elements,))
    flat = get_op("as_strided_update")(flat, value, **attrs)
    return _respell(flat, base.type.shape)


def _respell(value: Any, shape: Shape) -> Any:
    return value if value.type.shape == shape else get_op("reshape")(value, shape=shape)


def _one_stride(chain: Chain, base: Any, env: DimEnv) -> Chain:
    """A chain with an expand, or overlapping windows, as one as_strided of the base."""
    shape = base.type.shape
    geometry: Geometry = (shape, contiguous_strides(shape), 0)
    value = base
    for op, attrs in chain:
        value = op(value, **attrs)
        found = view_geometry(op, attrs, geometry, value.type.shape, env)
        if found is None:
            raise RuntimeError(OVERLAP)
        geometry = found
    size, stride, offset = geometry
    return ((get_op("as_strided"), {"size": size, "stride": stride, "offset": offset}),)
