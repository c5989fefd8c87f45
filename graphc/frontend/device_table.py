"""What a graph's operators do to buffers, wherever they lie (ir/interpret.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from graphc.ir.device_array import DeviceArray
from graphc.ir.memory import on_host
from graphc.ir.op import REGISTRY, Attrs, Op
from graphc.ir.op import get as get_op

from . import meta
from .placement import anywhere
from .values import Eager


class DeviceTable(Mapping[str, Callable[..., Any]]):
    """Functions of buffers by the operators' names."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        op = get_op(name)
        run = _drawn if op.family == "random" else anywhere
        return lambda *buffers, **attrs: run(op, list(buffers), attrs)

    def __iter__(self) -> Iterator[str]:
        return iter(REGISTRY)

    def __len__(self) -> int:
        return len(REGISTRY)


def _drawn(op: Op, buffers: list[Any], attrs: Attrs) -> Any:
    """Random numbers, on the host as in eager mode: a device may lack what the algorithms need."""
    if any(isinstance(b, DeviceArray) and b.memory is meta.MEMORY for b in buffers):
        return anywhere(op, buffers, attrs)  # nothing is drawn there
    return Eager.run(op, list(map(on_host, buffers)), attrs)


def table_for(buffers: Iterable[Any], table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table to run a graph by, whose inputs these are: `table` for arrays on the host."""
    if Eager.elsewhere is not None and any(isinstance(b, DeviceArray) for b in buffers):
        return DeviceTable()
    return table
