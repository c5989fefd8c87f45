"""Worker processes of a DataLoader: one pipe each, tasks down, results up, in order."""

from __future__ import annotations

import multiprocessing
import pickle
import queue
import random
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any, NoReturn

import numpy as np

from ...frontend.random_state import manual_seed
from . import transfer
from .fetch import Fetcher


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process, its WorkerInfo; None in the main process."""
    return _info


class Stopped:
    """A worker's answer when its stream has ended."""


@dataclass(frozen=True)
class Job:
    """All that a worker process needs."""

    dataset: Any
    iterable: bool
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], Any] | None
    id: int
    num_workers: int

    def fetcher(self) -> Fetcher:
        """A fetcher at the start of the dataset."""
        return Fetcher(
            self.dataset, self.iterable, self.batched, self.collate_fn, self.drop_last
        )


class _Lines(str):
    """A text of several lines that a KeyError, which shows its argument's repr, shows as lines."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Failure:
    """An exception of a worker: what to raise again in the main process."""

    error: BaseException | None
    kind: str
    message: str

    @staticmethod
    def caught(error: BaseException, worker: int) -> Failure:
        """The exception being handled, with its traceback as text."""
        text = (
            f"Caught {type(error).__name__} in DataLoader worker process {worker}.\n"
            f"Original {''.join(traceback.format_exception(error))}"
        )
        try:
            again = type(error)(_Lines(text))
            pickle.loads(pickle.dumps(again))
        except Exception:
            again = None
        return Failure(again, type(error).__name__, text)

    def throw(self) -> None:
        """Raise it: of the same type where that can be made from a message."""
        raise self.error if self.error is not None else RuntimeError(self.message)


RESET, STOP = "reset", None


def _main(job: Job, connection: Connection) -> None:
    """A worker's life: answer each task (index,) in the order given, until STOP."""
    global _info
    seed = job.base_seed + job.id
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(numpy_seed(job.base_seed, job.id))
    _info = WorkerInfo(job.id, job.num_workers, seed, job.dataset)
    # tasks are taken in at once, so that the main process never waits to send one
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    fetcher: Fetcher | None = None
    broken: Failure | None = None
    try:
        if job.init_fn is not None:
            job.init_fn(job.id)
        fetcher = job.fetcher()
    except Exception as error:
        broken = Failure.caught(error, job.id)
    try:
        while (task := tasks.get()) is not STOP:
            if task == RESET:
                fetcher = job.fetcher()
                continue
            _send(connection, broken or _answer(fetcher, task[0], job.id), job.id)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        pass


def _answer(fetcher: Fetcher | None, index: Any, worker: int) -> Any:
    assert fetcher is not None
    try:
        return fetcher.fetch(index)
    except StopIteration as error:
        return Stopped() if fetcher.stream is not None else Failure.caught(error, worker)
    except Exception as error:
        return Failure.caught(error, worker)


def _send(connection: Connection, answer: Any, worker: int) -> None:
    try:
        transfer.send(connection, answer)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        transfer.send(connection, Failure.caught(error, worker))


def _receive(connection: Connection, tasks: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            task = connection.recv()
            tasks.put(task)
            if task is STOP:
                return
    except (EOFError, OSError):
        tasks.put(STOP)  # the main process is gone


def numpy_seed(base_seed: int, worker: int) -> list[int]:
    """The seed of numpy.random in a worker, as torch makes it."""
    entropy = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    seeds: list[int] = np.random.SeedSequence(entropy).generate_state(4).tolist()
    return seeds


class Worker:
    """The main process's side of one worker process."""

    def __init__(self, job: Job, context: Any) -> None:
        self.id = job.id
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_main, args=(job, other), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork beside threads; workers run no native graph code
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        other.close()

    def send(self, task: Any) -> None:
        """Queue a task."""
        with suppress(BrokenPipeError, ConnectionResetError):  # receive() tells
            self.connection.send_bytes(pickle.dumps(task))  # send() would share its tensors

    def receive(self, timeout: float) -> Any:
        """The next answer; waits without end if timeout is 0. Raises RuntimeError if the worker
        died or took longer."""
        ready = wait([self.connection, self.process.sentinel], timeout or None)
        if not ready:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        try:
            if self.connection.poll():
                return transfer.receive(self.connection)
        except EOFError:
            pass
        except OSError as error:
            self.process.join(0.1)
            if self.process.is_alive():  # else it died in the middle of a message
                raise RuntimeError(
                    f"DataLoader could not take a batch from a worker: {error}. Cure: allow more "
                    "open files or memory maps, or use num_workers=0"
                ) from error
        self._died()

    def _died(self) -> NoReturn:
        self.process.join(1)
        raise RuntimeError(
            f"DataLoader worker (pid {self.process.pid}) exited unexpectedly with exit code "
            f"{self.process.exitcode}. Cure: run with num_workers=0 to see the error"
        )

    def stop(self) -> None:
        """End the process."""
        with suppress(OSError):
            self.connection.send(STOP)
        self.connection.close()
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()


def context_of(given: Any) -> BaseContext:
    """A multiprocessing context, or that of a start method's name."""
    if isinstance(given, str):
        known = multiprocessing.get_all_start_methods()
        if given not in known:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{known!r}, but got multiprocessing_context={given!r}"
            )
        return multiprocessing.get_context(given)
    if not isinstance(given, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={given}"
        )
    return given


def default_context() -> BaseContext:
    """That of the start method that the program has set; else fork, where the system has it."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    if chosen is None and "fork" in multiprocessing.get_all_start_methods():
        chosen = "fork"
    return multiprocessing.get_context(chosen)
