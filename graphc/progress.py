"""Progress bars: the one door to tqdm, which is imported when the first bar is drawn."""

from collections.abc import Iterable
from typing import Any


def progress(iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """A tqdm bar over an iterable (or none: call `.update(n)`); options are tqdm's."""
    from tqdm import tqdm

    return tqdm(iterable, **options)
