"""Tensors in memory shared between processes: moving them there, and passing them on."""

from __future__ import annotations

import gc
import importlib
import pickle
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable
from sys import getrefcount
from typing import Any

import numpy as np

from . import shared_segment, state_version
from .history import requires_grad
from .placement import place_at
from .shared_segment import AVAILABLE, SharedMemory, attach, reserve
from .storage import Shared, Storage, address
from .tensor import Parameter, Tensor, held

_SETTLE = 0.001  # seconds in which an operation that makes a view is over


class _Moves:
    """Ranges of addresses and where their bytes are now."""

    def __init__(self, moves: list[tuple[int, int, SharedMemory, int]]) -> None:
        self.moves = sorted(moves, key=lambda move: move[0])  # (from, bytes, segment, start)
        self.starts = [move[0] for move in self.moves]

    def find(self, array: np.ndarray) -> tuple[SharedMemory, int] | None:
        """Where the array's first element is now; None if it is not all in one range."""
        first = address(array)
        index = bisect_right(self.starts, first) - 1
        if index < 0 or array.size == 0:
            return None
        start, count, segment, place = self.moves[index]
        reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
        if first + reach + array.itemsize > start + count:
            return None
        return segment, place + first - start

    def moved(self, array: np.ndarray) -> np.ndarray | None:
        """The same view of the new memory; None for other memory."""
        found = self.find(array)
        if found is None:
            return None
        result = found[0].array(found[1], array)
        result.flags.writeable = array.flags.writeable
        return result


def share(storages: Iterable[Storage], owners: list[Tensor] | None = None) -> None:
    """Move memory to where processes share it, and all tensors on it along.

    NumPy arrays on the memory stay with the old values, as in torch. `owners`: the only tensors
    on the storages, where that is known; others are looked for among all objects, which takes
    some 10 ms.
    """
    if not AVAILABLE:
        raise RuntimeError(
            "memory shared between processes needs a system that passes file descriptors. "
            "Cure: send tensors through a queue"
        )
    register()
    with shared_segment.lock:
        roots = list({
            id(s.root): s.root for s in storages if s.root.segment is None
        }.values())
        if not roots:
            return
        old = [root.flat() for root in roots]  # kept: addresses stay theirs until the end
        places = reserve([array.nbytes for array in old])
        moves = []
        for array, (segment, start) in zip(old, places, strict=True):
            np.copyto(segment.array(start, array), array)
            moves.append((address(array), array.nbytes, segment, start))
        found = _Moves([move for move in moves if move[1]])
        for each in _everything() if owners is None else _with_storages(owners):
            _move(each, found)
        if owners is None and threading.current_thread() is not threading.main_thread():
            # a queue's thread: a view that the program was making then is on the old memory
            time.sleep(_SETTLE)
            for each in _everything():
                _move(each, found)
        for root, array, (segment, start) in zip(roots, old, places, strict=True):
            root.segment = segment
            Shared.changes += 1
            if array.nbytes:
                segment.storages[start, array.nbytes] = root
        state_version.bump()


def share_tensors(tensors: Iterable[Tensor]) -> None:
    """Move the memory of tensors. Raises TraceError under a trace."""
    tensors = list(tensors)
    for tensor in tensors:
        held(tensor, "sharing memory", "call it outside the compiled function")
    # memory of other devices stays where it is, as in torch
    tensors = [t for t in tensors if not is_shared(t) and place_at(t) is None]
    alone = all(_is_alone(tensor) for tensor in tensors)
    share([tensor._graphc_storage for tensor in tensors], tensors if alone else None)


def _own_references() -> int:
    """What getrefcount() says of an object that one local name alone holds."""
    held = object()
    return getrefcount(held)


_OWN = _own_references()


def _is_alone(tensor: Tensor) -> bool:
    """Whether certainly nothing but this tensor and its storage refers to the memory."""
    array, storage = tensor._graphc_array, tensor._graphc_storage
    if array is not storage.array or storage.root is not storage:
        return False
    if getrefcount(storage) > _OWN + 1 or getrefcount(array) > _OWN + 2:
        return False
    base = array.base
    while base is not None:
        if type(base) is not np.ndarray or getrefcount(base) > _OWN + 1:
            return False
        base = base.base
    return True


def _with_storages(tensors: list[Tensor]) -> list[Any]:
    return [*tensors, *(tensor._graphc_storage for tensor in tensors)]


def _everything() -> list[Any]:
    """All tensors and storages that there are."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()  # get_objects() leaves out what is frozen
    try:
        everything = gc.get_objects()
    finally:
        if frozen:
            gc.freeze()
    kinds = {
        kind for kind in set(map(type, everything)) if kind is Storage or issubclass(kind, Tensor)
    }
    return [each for each in everything if type(each) in kinds]


def _move(each: Any, moves: _Moves) -> None:
    """Turn a tensor or storage on old memory to the new one."""
    if type(each) is Storage:
        _move_storage(each, moves)
        return
    array = vars(each).get("_graphc_array")
    moved = None if array is None else moves.moved(array)
    if moved is not None:
        each._graphc_array = moved


def _move_storage(storage: Storage, moves: _Moves) -> None:
    array = getattr(storage, "array", None)  # None: another thread is making it
    found = None if array is None else moves.find(array)
    if found is None:
        return
    storage.before_write()  # a compiled backward keeps the values that it has seen
    moved = moves.moved(storage.array)
    assert moved is not None
    storage.array = moved
    if storage.root is storage:
        storage.segment = found[0]
        Shared.changes += 1


def is_shared(self: Tensor) -> bool:
    """Whether other processes can see the memory: after share_memory_()."""
    storage: Any = self._graphc_storage
    return isinstance(storage, Storage) and storage.root.segment is not None


# --- between processes -------------------------------------------------------------------------


def _rebuild_segment(handle: Any, size: int) -> SharedMemory:
    try:
        descriptor = handle.detach()
    except (OSError, EOFError) as error:
        raise type(error)(
            f"the process that sent a tensor has ended, and its memory with it ({error}). Cure: "
            "let it live until the tensor has been received, or send tensor.tolist() or .numpy()"
        ) from error
    return attach(descriptor, size)


def _reduce_segment(segment: SharedMemory) -> Any:
    reduction: Any = importlib.import_module("multiprocessing.reduction")
    return _rebuild_segment, (reduction.DupFd(segment.fd), segment.size)


def _rebuild_storage(segment: SharedMemory, start: int, size: int, dtype: np.dtype) -> Storage:
    """The storage of a place: the one that this process has already, or a new one."""
    with shared_segment.lock:
        found = segment.storages.get((start, size))
        if found is None:
            found = Storage(segment.buffer[start : start + size].view(dtype))
            found.segment = segment
            segment.storages[start, size] = found
    return found


def _reduce_storage(storage: Storage) -> Any:
    if storage.root is not storage:
        return Storage.sibling, (storage.root,)
    flat = storage.flat()
    if flat.nbytes == 0:
        return Storage, (flat.copy(),)
    share([storage])
    segment = storage.segment
    assert segment is not None
    flat = storage.flat()
    start = address(flat) - address(segment.buffer)
    return _rebuild_storage, (segment, start, flat.nbytes, flat.dtype)


def _reduce_tensor(tensor: Tensor) -> Any:
    if requires_grad(tensor) and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    share_tensors([tensor])
    return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


_registered = False


def register() -> None:
    """Let multiprocessing pass tensors on by their memory; plain pickle goes on copying."""
    global _registered
    if _registered or not AVAILABLE:
        return
    # at first use: 12 ms of `import graphc` otherwise
    reduction: Any = importlib.import_module("multiprocessing.reduction")
    reduction.ForkingPickler.register(SharedMemory, _reduce_segment)
    reduction.ForkingPickler.register(Storage, _reduce_storage)
    for kind in (Tensor, Parameter):  # others reach _reduce_storage()
        reduction.ForkingPickler.register(kind, _reduce_tensor)
    _registered = True
