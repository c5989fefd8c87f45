"""torch.multiprocessing.spawn: the same function in several processes."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FAILED = 1


class ProcessException(Exception):
    """A process of spawn() failed; `error_index` is its rank."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process raised; the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """A process ended with another status than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], rank: int, args: tuple[Any, ...], report: str) -> None:
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        Path(report).write_text(traceback.format_exc())
        sys.exit(_FAILED)


class ProcessContext:
    """The running processes of spawn(join=False)."""

    def __init__(self, processes: list[Any], reports: list[str]) -> None:
        self.processes, self.reports = processes, reports
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait; True when all have ended. The first failure ends the others and is raised."""
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout)
        failed: int | None = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(grace_period)
        return self._raise(failed)

    def _raise(self, index: int) -> bool:
        process, report = self.processes[index], Path(self.reports[index])
        if report.exists() and report.stat().st_size:
            message = f"\n\n-- Process {index} terminated with the following error:\n"
            message += report.read_text()
            raise ProcessRaisedException(message, index, process.pid)
        code = process.exitcode
        name = signal.Signals(-code).name if code < 0 else None
        how = f"signal {name}" if name else f"exit code {code}"
        raise ProcessExitedException(
            f"process {index} terminated with {how}", index, process.pid, code, name
        )


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
    daemon: bool = False, start_method: str = "spawn",
) -> ProcessContext | None:
    """fn(rank, *args) in `nprocs` processes; waits for all of them unless join is False."""
    context = multiprocessing.get_context(start_method)
    processes, reports = [], []
    folder = tempfile.mkdtemp(prefix="graphc-spawn-")
    for rank in range(nprocs):
        report = f"{folder}/{rank}"
        process = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(fn, rank, args, report), daemon=daemon
        )
        process.start()
        processes.append(process)
        reports.append(report)
    running = ProcessContext(processes, reports)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
    daemon: bool = False, start_method: str = "spawn",
) -> ProcessContext | None:
    """fn(rank, *args) in `nprocs` fresh processes."""
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
