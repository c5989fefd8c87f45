"""Names that transformers imports; used under torch's own vmap-based masks."""

from __future__ import annotations

from types import TracebackType


class TransformGetItemToIndex:
    """A context that does nothing: indexing by a 0-d tensor works as it is."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None
