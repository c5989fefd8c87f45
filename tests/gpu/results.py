"""What a run on a GPU finds: JSON lines, appended to a file that is committed as each is found, so
that a run that ends early has said what it saw."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from graphc.backends.cuda.errors import CudaContextLost

Record = Callable[..., None]  # record("copy", unit="TB/s", value=4.3)


class Results(NamedTuple):
    """A file of lines. Each has the run's number (seconds since 1970), the stage and a name."""

    path: Path
    run: int

    def recorder(self, stage: str, device: str) -> Record:
        """Appends and prints a line per call."""
        def record(name: str, **fields: Any) -> None:
            line = {"run": self.run, "stage": stage, "name": name, "device": device, **fields}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(said(line), flush=True)

        return record

    def lines(self) -> Iterator[Mapping[str, Any]]:
        """Those of this run."""
        if self.path.exists():
            for text in self.path.read_text().splitlines():
                line = json.loads(text)
                if line["run"] == self.run:
                    yield line


RAISED = "raised"  # the name of a line


@contextmanager
def tried(record: Record, item: str) -> Iterator[None]:
    """One of the things that a stage does. What it raises is a line, and the next one has its turn:
    but where the process cannot use the device any more."""
    try:
        yield
    except CudaContextLost:
        record(RAISED, item=item, error="the context is lost")
        raise
    except Exception as error:
        traceback.print_exc()
        record(RAISED, item=item, error=f"{type(error).__name__}: {error}"[:500])


def new_run(path: Path) -> Results:
    """The next run's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Results(path, int(time.time()))


def said(line: Mapping[str, Any]) -> str:
    """A line as a person reads it."""
    rest = {k: v for k, v in line.items() if k not in ("run", "stage", "name", "device")}
    return f"{line['stage']:12} {line['name']:40} " + ", ".join(
        f"{key} {_short(value)}" for key, value in rest.items()
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
