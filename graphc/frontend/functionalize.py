"""In-place writes without memory: what stands for storages and views under a trace.

A `TracedStorage` stands for memory: a graph node with the value of its base *now*. A traced
tensor is the base or a chain of views (`TracedState.path`) of it; reading replays the chain on
the current node, writing rebuilds the base by the inverse updates and rebinds the node. Nodes
never change. `Memory` decides which concrete tensors share a storage, by address.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.dim import Dim, DimEnv, evaluate, is_static
from graphc.ir.dim import Size as DimSize
from graphc.ir.graph import Builder, Expr, Node
from graphc.ir.named import NamedTuple
from graphc.ir.op import get as get_op
from graphc.ir.types import Shape, TensorType

from .context import local
from .errors import TraceError, located
from .numbers import Size, SymInt
from .storage import Storage, address, contiguous_strides, strides_of
from .views import Chain, replay

if TYPE_CHECKING:
    from .captured import TensorInput
    from .tensor import Tensor
    from .trace import Trace


class TracedStorage:
    """Memory under a trace. `source` is the graph input it came from, None if made in the trace.

    Two captured regions that turn out to overlap are both forwarded to one flat storage
    (`parent`, and the path from its base to this one's).

    `inference`: made in inference mode; `layout`: strides of the base, None: row-major.
    """

    __slots__ = (
        "_version", "_writes", "inference", "layout", "node", "parent", "path", "source",
    )

    def __init__(self, node: Node, source: TensorInput | None = None) -> None:
        self.node, self.source = node, source
        self.inference: bool = (
            local.inference if source is None else source.owner._graphc_storage.inference
        )
        self.layout: Shape | None = None
        self.parent: TracedStorage | None = None
        self.path: Chain = ()
        self._version = self._writes = 0

    def resolve(self, path: Chain) -> tuple[TracedStorage, Chain]:
        """The storage that holds the value, and the views from its base."""
        storage = self
        while storage.parent is not None:
            path = storage.path + path
            storage = storage.parent
        return storage, path

    def forward(self, parent: TracedStorage, path: Chain) -> None:
        """From now on be a view of `parent`."""
        self._version -= parent.version
        root = parent.root
        # values read here, or there, up to now are stale: their stamps shall not come again
        root._writes = max(root._writes, self._writes) + 1
        self.parent, self.path = parent, path

    @property
    def root(self) -> TracedStorage:
        """The storage by which aliasing is decided."""
        return self.resolve(())[0]

    @property
    def version(self) -> int:
        """In-place writes that autograd must see."""
        parent = self.parent
        return self._version if parent is None else self._version + parent.version

    @property
    def writes(self) -> int:
        """All writes; a value read earlier is stale when it has grown."""
        return self._writes if self.parent is None else self.resolve(())[0]._writes

    def rebind(self, node: Node, tracked: bool) -> None:
        """A write: the base's value is `node` from now on. Only for a root."""
        self.node = node
        self._writes += 1
        if tracked:
            self._version += 1


class TracedState:
    """Where a traced tensor's value is found: views from its storage's base, and a cached value.

    `strides` and `offset` are torch's logical ones, in elements of the storage. `tracked` is False
    for .data: autograd does not see its writes. Tensors may share one, and so may recordings
    (`trace` is None where no size is symbolic): a tensor whose value changes gets another.
    """

    __slots__ = (
        "_rows", "_size", "_strides", "offset", "path", "stamp", "trace", "tracked", "type",
        "value",
    )

    def __init__(
        self,
        type_: TensorType,
        value: Node,
        stamp: int,
        trace: Trace | None,
        path: Chain = (),
        strides: Shape | None = None,
        offset: DimSize = 0,
    ) -> None:
        self.type = type_
        self.value = value
        self.stamp = stamp  # storage.writes when `value` was right
        self.trace = trace
        self.path = path
        self._rows = strides is None  # known to be row-major without gaps
        self._strides, self.offset = strides, offset
        self.tracked = True
        self._size: Size | None = None

    def copy(self) -> TracedState:
        """The same place, for a tensor of its own."""
        return self.now(self.value, self.stamp)

    def now(self, value: Node, stamp: int) -> TracedState:
        """The same place with the value that it has after `stamp` writes."""
        strides = None if self._rows else self._strides
        twin = TracedState(
            self.type, value, stamp, self.trace, self.path, strides, self.offset
        )
        twin.tracked = self.tracked
        return twin

    @property
    def strides(self) -> Shape:
        """Steps between neighbours along each dimension."""
        if self._strides is None:
            self._strides = contiguous_strides(self.type.shape)
        return self._strides

    def torch_size(self) -> Size:
        """The shape, with SymInts where it is symbolic."""
        if self._size is None:
            self._size = Size(self._symbols(self.type.shape))
        return self._size

    def torch_strides(self) -> tuple[Any, ...]:
        return self._symbols(self.strides)

    def torch_offset(self) -> Any:
        return self._symbols((self.offset,))[0]

    def _symbols(self, sizes: Shape) -> tuple[Any, ...]:
        trace = self.trace
        if trace is None:
            return sizes
        return tuple([SymInt(s, trace) if isinstance(s, Dim) else s for s in sizes])

    def is_contiguous(self) -> bool:
        """Row-major without gaps; dimensions of size 1 do not count."""
        return self._rows or is_contiguous(self.type.shape, self.strides)


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Row-major without gaps; dimensions of size 1 do not count. Sizes may be symbolic."""
    if 0 in shape:
        return True
    return all(
        n == 1 or have == want
        for n, have, want in zip(shape, strides, contiguous_strides(shape), strict=True)
    )


def named_size(env: DimEnv, name: str | Dim, size: int) -> Dim:
    """A size of an input that is to be symbolic: a name, or a size a*name + b that follows."""
    wanted = Dim.var(name) if isinstance(name, str) else name
    (root,) = wanted.variables()
    known = env.hints.get(root)
    if known is None:
        zero, one = (evaluate(wanted, {root: value}) for value in (0, 1))
        known = (size - zero) // (one - zero)
        env.new(root, known)
    if evaluate(wanted, {root: known}) != size:
        raise TraceError(f"dim {name} is both {evaluate(wanted, {root: known})} and {size}")
    return wanted


def symbolic_strides(array: np.ndarray, shape: Shape, gap: Callable[[int], DimSize]) -> Shape:
    """The strides of an array some of whose sizes are symbolic in `shape`; `gap` makes the step of
    a dimension that does not follow from the sizes inside it."""
    strides = strides_of(array)
    if shape == array.shape:
        return strides
    if array.flags.c_contiguous:
        return contiguous_strides(shape)
    found: list[DimSize] = list(strides)
    dense = 1
    step: DimSize = 1
    for i in sorted(range(array.ndim), key=lambda i: (strides[i], -i)):
        if strides[i] == dense:
            found[i] = step
        elif strides[i] > 1:
            found[i] = gap(strides[i])
        dense, step = strides[i] * array.shape[i], found[i] * shape[i]
    return tuple(found)


def dense_order(shape: Shape, strides: Shape, env: DimEnv) -> tuple[int, ...] | None:
    """The order of dimensions, outermost first, in which memory has no gaps; None if it has."""
    order = sorted(range(len(shape)), key=lambda i: (-env.hint(strides[i]), i))
    permuted = tuple(shape[i] for i in order)
    found = tuple(strides[i] for i in order)
    return tuple(order) if is_contiguous(permuted, found) else None


def saved_place(node: Node, tensor: Tensor) -> tuple[Any, ...]:
    """What the tape keeps of a traced tensor: its value, and where it is (Trace.saved_node)."""
    storage = tensor._graphc_storage
    return node, storage, storage.writes, tensor._graphc_traced.path


def saved_value(builder: Builder, saved: tuple[Any, ...]) -> Node:
    """The value at a saved place as it is now: `.data` writes, which autograd does not see, show
    through as they do in memory."""
    node: Node = saved[0]
    if len(saved) > 1 and saved[1].writes != saved[2]:
        root, path = saved[1].resolve(saved[3])
        node = replay(path, Expr(builder, root.node)).node
    return node


# --- which concrete tensors share memory -----------------------------------------------------


class Region(NamedTuple):
    """Memory of a captured tensor: addresses [low, high), and its TracedStorage."""

    low: int
    high: int
    array: np.ndarray
    storage: TracedStorage
    tensor: Tensor


class Memory:
    """Concrete memory that a trace has captured.

    A captured tensor is one graph input, whatever it is a slice of (so that `data[i : i + 32]`
    is one input of 32 rows). Tensors that overlap are inputs of their own as long as none is
    written to; from the first write on they are views of one of them, or of one flat input of
    the whole storage.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.regions: list[Region] = []
        self._sorted: list[tuple[int, int]] = []  # where each begins, and its number
        self._longest = 0  # bytes
        self.settled: set[int] = set()  # ids of storages without overlaps to care for
        # tensors read through another's input: their offset in its memory is part of the graph
        self.input_aliases: list[tuple[Tensor, TracedStorage]] = []

    def place(self, tensor: Tensor) -> tuple[TracedStorage, Chain]:
        """The traced storage of a concrete tensor, and the views that lead to it."""
        array = tensor._graphc_array
        low = address(array)
        high = low + span(array)
        overlapping = self._over(low, high)
        for region in overlapping:
            if _same_place(region.array, array):
                self.input_aliases.append((tensor, region.storage))
                return region.storage, ()
        if array.size == 0 or not any(_written(r.storage) for r in overlapping):
            storage = self.trace.new_input(tensor)
            if array.size:
                self._add(Region(low, high, array, storage, tensor))
                self.settled.clear()
            return storage, ()
        for region in overlapping:
            if region.low <= low and high <= region.high and region.array.flags.c_contiguous:
                offset = (low - region.low) // array.itemsize
                self.input_aliases.append((tensor, region.storage))
                return region.storage, self._path(region, array, offset)
        whole = self._flatten(tensor, overlapping)
        self.input_aliases.append((tensor, whole.storage))
        return whole.storage, self._path(whole, array, (low - whole.low) // array.itemsize)

    def is_mixed(self, tensor: Tensor, write: bool) -> bool:
        """Whether a concrete tensor shares memory with captured ones of another dtype, to which
        the trace has written, or writes now."""
        array = getattr(tensor, "_graphc_array", None)
        if array is None:  # sparse: its entries are asked about where they are read
            return False
        low = address(array)
        return any(
            region.array.dtype != array.dtype and (write or _written(region.storage))
            for region in self._over(low, low + span(array))
        )

    def _add(self, region: Region) -> None:
        bisect.insort(self._sorted, (region.low, len(self.regions)))
        self._longest = max(self._longest, region.high - region.low)
        self.regions.append(region)

    def _over(self, low: int, high: int) -> list[Region]:
        """The regions that share memory with this one, oldest first."""
        begin = bisect.bisect_left(self._sorted, (low - self._longest, -1))
        end = bisect.bisect_left(self._sorted, (high, -1))
        near = sorted([number for _, number in self._sorted[begin:end]])
        return [self.regions[i] for i in near if low < self.regions[i].high]

    def settle(self, storage: TracedStorage) -> None:
        """To be called before a write: what overlaps this memory becomes views of one storage."""
        if id(storage) in self.settled:
            return
        for own in [r for r in self.regions if r.storage is storage]:
            overlapping = [
                r for r in self._over(own.low, own.high) if r.storage.root is not storage
            ]
            if _repeats(own.array):
                self._flatten(own.tensor, overlapping)
            elif overlapping:
                self._join(own, overlapping)
        self.settled.add(id(storage))
        self.settled.add(id(storage.root))

    def _join(self, own: Region, overlapping: list[Region]) -> None:
        for base in (own, *overlapping):
            others = [r for r in (own, *overlapping) if r.storage is not base.storage]
            if base.array.flags.c_contiguous and all(
                base.low <= r.low and r.high <= base.high for r in others
            ):
                for region in others:
                    offset = (region.low - base.low) // base.array.itemsize
                    path = self._path(base, region.array, offset)
                    self.trace.forward(region.storage, base.storage, path)
                    self.input_aliases.append((region.tensor, base.storage))
                return
        self._flatten(own.tensor, overlapping)

    def _path(self, region: Region, array: np.ndarray, offset: int) -> Chain:
        if region.array.dtype != array.dtype:
            raise TraceError(located(
                "tensors of different dtypes share memory here; clone() one of them"
            ))
        env = self.trace.builder.env
        base = tuple(env.specialise(s) for s in region.storage.node.shape)
        return path_to(base, array.shape, strides_of(array), offset)

    def _flatten(self, tensor: Tensor, overlapping: list[Region]) -> Region:
        """Make the whole storage one input, and forward what was captured of it so far."""
        root = _root_over(tensor, overlapping)
        flat = root.flat()
        start = address(flat)
        storage = self.trace.new_flat_input(tensor, flat)
        whole = Region(start, start + flat.nbytes, flat, storage, tensor)
        inside = [
            r for r in self.regions
            if r.low < whole.high and whole.low < r.high and r.storage.parent is None
        ]
        for region in inside:
            offset = (region.low - start) // flat.itemsize
            self.trace.forward(region.storage, storage, self._path(whole, region.array, offset))
            self.input_aliases.append((region.tensor, storage))
        self._add(whole)
        return whole


def _written(storage: TracedStorage) -> bool:
    """Whether the trace has written to captured memory."""
    return storage.parent is not None or (
        storage.source is not None and storage.node is not storage.source.node
    )


def _root_over(tensor: Tensor, overlapping: list[Region]) -> Storage:
    """A storage whose memory holds the tensor and all that it overlaps."""
    candidates = [
        tensor._graphc_storage.root,
        *(r.tensor._graphc_storage.root for r in overlapping),
    ]
    arrays = [tensor._graphc_array, *(r.array for r in overlapping)]
    for candidate in candidates:
        root: Storage = candidate
        flat = root.flat()
        low = address(flat)
        high = low + flat.nbytes
        if all(
            low <= address(a) and address(a) + span(a) <= high and a.dtype == flat.dtype
            for a in arrays
        ):
            return root
    raise TraceError(located(
        "tensors made from overlapping NumPy arrays meet in this compiled function; "
        "clone() one of them"
    ))


def span(array: np.ndarray) -> int:
    """Bytes from the first element to the end of the last."""
    if array.flags.c_contiguous or array.size == 0:
        return array.nbytes
    reach: int = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return reach + array.itemsize


def _repeats(array: np.ndarray) -> bool:
    """Whether it is an expanded array, whose elements are less memory than they seem."""
    return array.size > 0 and any(
        n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)
    )


def _same_place(a: np.ndarray, b: np.ndarray) -> bool:
    return (
        address(a) == address(b) and a.shape == b.shape and a.strides == b.strides
        and a.dtype == b.dtype
    )


def path_to(base: Shape, size: Shape, strides: Shape, offset: int) -> Chain:
    """The plainest views from a contiguous base to a place in it (static sizes)."""
    reshape, permute, cut = get_op("reshape"), get_op("permute"), get_op("slice")
    if size == base and offset == 0 and is_contiguous(size, strides):
        return ()
    count = 1
    for n in base:
        count *= int(n)  # type: ignore[arg-type]
    order = dense_order(size, strides, DimEnv())
    if order is not None and is_static(size):
        steps: list[Any] = []
        elements = 1
        for n in size:
            elements *= int(n)  # type: ignore[arg-type]
        physical = tuple(size[i] for i in order)
        if elements != count or offset:
            steps.append((reshape, {"shape": (count,)}))
            steps.append(
                (cut, {"starts": (offset,), "stops": (offset + elements,), "steps": (1,)})
            )
            steps.append((reshape, {"shape": physical}))
        elif physical != base:
            steps.append((reshape, {"shape": physical}))
        if order != tuple(range(len(order))):
            inverse = tuple(order.index(i) for i in range(len(order)))
            steps.append((permute, {"dims": inverse}))
        return tuple(steps)
    attrs = {"size": size, "stride": strides, "offset": offset}
    return ((get_op("as_strided"), attrs),)
