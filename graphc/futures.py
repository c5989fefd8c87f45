"""torch.futures: a value that another thread will give."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """torch.futures.Future over the standard library's; Future[T] is for annotations."""

    def __init__(self, *, devices: Any = None) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether a result or an error is there."""
        return self._future.done()

    def wait(self) -> T:
        """The result, when it is there; raises the error that was set instead."""
        return self._future.result()

    def value(self) -> T:
        """The result. Raises RuntimeError before it is there."""
        if not self.done():
            raise RuntimeError("Future is not completed")
        return self._future.result()

    def set_result(self, result: T) -> None:
        """Give the result."""
        if self.done():
            raise RuntimeError("Attempting to mark a completed Future as complete again")
        self._future.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Give an error instead of a result."""
        self._future.set_exception(result)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A Future of callback(self), which runs when this one is done."""
        after: Future[Any] = Future()

        def run(_: Any) -> None:
            try:
                after.set_result(callback(self))
            except Exception as error:
                after.set_exception(error)

        self._future.add_done_callback(run)
        return after

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call callback(self) when this Future is done."""
        self._future.add_done_callback(lambda _: callback(self))


def collect_all(futures: list[Future[Any]]) -> Future[Any]:
    """A Future of the list of finished futures."""
    together: Future[Any] = Future()
    left = len(futures)
    if not left:
        together.set_result([])

    def finished(_: Future[Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            together.set_result(futures)

    for future in futures:
        future.add_done_callback(finished)
    return together


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all, in order."""
    return [future.wait() for future in futures]
