"""What a library's weights, constants and initial values are put into: its own data, or the file
beside it."""

from __future__ import annotations

import numpy as np

from graphc.backends.host.interface import Interface, Level, Place
from graphc.export.aot.data import Data, WeightsFile


class Stock:
    """Where a weight lies: in the data, or, at first by number, in the file, whose places are known
    when all are."""

    def __init__(self, in_file: bool) -> None:
        self.data = Data()
        self._in_file = in_file
        self._numbers: dict[bytes, int] = {}
        self._file: dict[str, np.ndarray] = {}

    def stored(self, name: str, array: np.ndarray) -> Place:
        """Where a weight lies; in the file, equal ones lie once, under the first one's name."""
        if not self._in_file:
            return self.data.add(array)
        key = repr((array.dtype, array.shape)).encode() + array.tobytes()
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._file):
            taken = name in self._file
            self._file[f"{name}.{number}" if taken else name] = array
        return Place("file", number)

    def file(self) -> WeightsFile | None:
        """All that was stored there."""
        return WeightsFile(self._file) if self._in_file else None

    def interface(self, interface: Interface, file: WeightsFile) -> Interface:
        """With the file's places."""
        results = tuple(
            each._replace(place=self._real(each.place, file)) for each in interface.results
        )
        step = interface.step
        if step is not None:
            step = step._replace(first=tuple(
                (to, self._real(place, file) or place, size) for to, place, size in step.first
            ))
        return interface._replace(
            results=results, file=file.head, file_bytes=len(file.content), step=step
        )

    def level(self, level: Level, file: WeightsFile) -> Level:
        """With the file's places."""
        codes = [
            each._replace(inputs=tuple(
                self._real(source, file) if isinstance(source, Place) else source
                for source in each.inputs
            )) for each in level.codes
        ]
        return level._replace(codes=tuple(codes))

    def _real(self, place: Place | None, file: WeightsFile) -> Place | None:
        """A place by its number as one by bytes."""
        if place is None or place.where != "file":
            return place
        return file.places[list(self._file)[place.offset]]
