"""A recording is of one device: what is on another is done between recordings."""

from __future__ import annotations

from typing import Literal

from .context import local
from .cuts import OneGraph
from .errors import TraceError, located
from .layouts import NotDense
from .placement import LOOSELY, TWO_DEVICES, Place, is_loose, place_at
from .tensor import Tensor
from .values import Eager


class OneDevice(OneGraph):
    """What a trace knows of devices."""

    # where its tensors lie (None: on the CPU); False: it has met none
    place: Place | Literal[False] | None = False
    home: Place | None = None  # of the trace of a part: where the values that the part is given lie
    stepping = 0  # optimizer steps that are running
    beside = False  # what is captured now the host alone reads, ahead of each call

    def lies(self) -> Place | None:
        """Where its tensors lie; None: on the CPU, or it has met none."""
        return self.place or self.home

    def joins(self, place: Place | None) -> bool:
        """Whether tensors of a device can be part of this recording."""
        if self.place is False:
            self.place = place
        return self.place is place

    def settles(self) -> None:
        """Something is made of no tensor: the recording is of the device where that is to lie."""
        making = local.making
        if Eager.elsewhere is None or making is None or making is LOOSELY:
            return
        if not self.joins(making[0]):
            self.end_segment(TWO_DEVICES)
            self.joins(making[0])

    def apart(self, inputs: tuple[Tensor, ...]) -> bool:
        """Whether an operation's tensors, or this recording, are on several devices. A tensor on
        the CPU without dimensions joins others; an optimizer's counts of steps do by themselves."""
        if not inputs:
            self.settles()
        for tensor in inputs:
            if tensor._graphc_trace is None and self.is_foreign(tensor):
                return True
        return bool(self.place) and bool(inputs) and not self.stepping and all(
            tensor._graphc_trace is None and place_at(tensor) is None for tensor in inputs
        )

    def is_foreign(self, tensor: Tensor) -> bool:
        """Whether a concrete tensor lies on another device than this recording's."""
        return Eager.elsewhere is not None and not self.beside and not _follows(tensor) and (
            not self.joins(place_at(tensor))
        )

    def enters(self, tensor: Tensor) -> None:
        """A concrete tensor is about to be an input. Raises TraceError for one of another device.
        """
        if self.is_foreign(tensor):
            raise TraceError(located(f"{TWO_DEVICES} in one graph"))


def _follows(tensor: Tensor) -> bool:
    if place_at(tensor) is not None:
        return False
    try:
        return tensor._graphc_array.ndim == 0 or is_loose(tensor)
    except NotDense:  # who reads it next comes to what is done instead
        return True
