"""The models of a server: by name and version, loaded, replaced and unloaded while it runs."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphc.export import ExportError
from graphc.ir.dim import evaluate
from graphc.serve.batcher import LOGGER, Batcher
from graphc.serve.errors import Refused, malformed, unavailable
from graphc.serve.metrics import Metrics
from graphc.serve.model import Model
from graphc.serve.settings import Settings

# nothing that a path or a header could read another way
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_SUFFIX = ".gcx"


@dataclass
class Served:
    """One version of a model: LOADING until it is compiled, then READY, then UNLOADING."""

    model: Model
    batcher: Batcher
    state: str = "LOADING"

    def warm(self) -> None:
        """Compile: run it on zeros, of the sizes of its example and of whole batches."""
        model = self.model
        hints = dict(model.program.graph.env.hints)
        sizes = [hints]
        if model.batch:
            usual = {1, self.batcher.settings.max_batch} if self.batcher.together else {1}
            sizes += [{**hints, model.batch: rows} for rows in sorted(usual) if model.takes(rows)]
        for dims in sizes:
            arrays = {
                number: np.zeros([evaluate(size, dims) for size in spec.shape], spec.dtype.numpy)
                for number, spec in enumerate(model.inputs)
            }
            try:
                model.run([model.arguments(arrays)])
            except Exception as error:  # zeros need not be values that it takes
                LOGGER.warning("model %s@%s on zeros: %s", model.name, model.version, error)


class Registry:
    """Names to versions to models. Changed under a lock, by whichever thread loads."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._models: dict[str, dict[str, Served]] = {}
        self._lock = threading.RLock()

    # --- finding -------------------------------------------------------------------------------

    def find(self, name: str, version: str = "") -> Served:
        """A version of a model: the newest that is ready where none is named. Raises Refused."""
        with self._lock:
            versions = dict(self._models.get(name, {}))
        if not versions:
            raise Refused(404, f"there is no model {name!r:.120}")
        if version:
            found = versions.get(version)
            if found is None:
                raise Refused(404, f"model {name!r} has no version {version!r:.120}; it has "
                                   f"{', '.join(sorted(versions, key=_order))}")
            return found
        ordered = sorted(versions.values(), key=lambda served: _order(served.model.version))
        ready = [served for served in ordered if served.state == "READY"]
        return (ready or ordered)[-1]

    def ready(self, name: str, version: str = "") -> Served:
        """The same, to be used now. Raises Refused where it is still being compiled."""
        found = self.find(name, version)
        if found.state != "READY":
            raise unavailable(f"model {name!r} is not ready: {found.state.lower()}", 2.0)
        return found

    def versions(self, name: str) -> list[str]:
        """The versions of a model, the oldest first."""
        with self._lock:
            return sorted(self._models.get(name, ()), key=_order)

    def all(self) -> list[Served]:
        """Every version of every model."""
        with self._lock:
            found = [each for versions in self._models.values() for each in versions.values()]
        return sorted(found, key=lambda each: (each.model.name, _order(each.model.version)))

    @property
    def all_ready(self) -> bool:
        return all(served.state == "READY" for served in self.all())

    # --- changing ------------------------------------------------------------------------------

    def add(self, path: Path, name: str, version: str) -> Served:
        """Read a file; `finish` makes it ready. Raises ExportError, OSError."""
        if not NAME.match(name) or not NAME.match(version):
            raise ExportError(
                f"{name}@{version} is no name of a model and version. Cure: use letters, digits, "
                "'_', '.' and '-'"
            )
        model = Model.of_file(path, name, version)
        served = Served(
            model, Batcher(model, self.settings, self.metrics.of(model.name, model.version))
        )
        with self._lock:
            versions = self._models.setdefault(name, {})
            before = versions.get(version)
            if before is None:
                versions[version] = served
        if before is not None:  # it goes on until the new one is ready
            self._replace(served, before)
        return served

    def finish(self, served: Served) -> None:
        """Compile a model and let it take requests."""
        if served.state != "LOADING":
            return
        served.warm()
        served.batcher.start()
        served.state = "READY"
        model = served.model
        LOGGER.log(
            logging.INFO if served.batcher.together or self.settings.exact else logging.WARNING,
            "model %s@%s is ready: requests are computed %s", model.name, model.version,
            f"together, up to {self.settings.max_batch} rows" if served.batcher.together
            else f"one by one: {model.reason or '--exact, or --max-batch 1'}",
        )

    def _replace(self, served: Served, before: Served) -> None:
        self.finish(served)
        with self._lock:
            self._models[served.model.name][served.model.version] = served
        _end(before, self.settings.drain)

    def remove(self, name: str, version: str = "") -> None:
        """Unload a version, or all; what they have accepted is computed first. Raises Refused."""
        with self._lock:
            self.find(name, version)
            gone = [version] if version else list(self._models[name])
            served = [self._models[name].pop(each) for each in gone]
            if not self._models[name]:
                del self._models[name]
        for each in served:
            _end(each, self.settings.drain)

    def close(self) -> None:
        """Let all models compute what they have accepted, and take no more."""
        for served in self.all():
            served.state = "UNLOADING"
            served.batcher.close()

    def abandon(self) -> None:
        """Refuse all that still waits."""
        for served in self.all():
            served.batcher.abandon()

    # --- the folder ----------------------------------------------------------------------------

    def in_folder(self) -> list[tuple[str, str, Path]]:
        """(name, version, file) of the models of the folder: name.gcx, or name@version.gcx."""
        if self.settings.folder is None:
            return []
        found: list[tuple[str, str, Path]] = []
        for path in sorted(self.settings.folder.glob(f"*{_SUFFIX}")):
            name, _, version = path.name.removesuffix(_SUFFIX).partition("@")
            inside = path.resolve().parent == self.settings.folder.resolve()
            if inside and path.is_file() and NAME.match(name) and NAME.match(version or "1"):
                found.append((name, version or "1", path))
        return found

    def load(self, name: str, version: str = "") -> list[Served]:
        """Load a model from the folder by its name: the named version, or all. Raises Refused."""
        if not NAME.match(name):
            raise malformed(f"{name!r:.120} is no name of a model")
        found = [entry for entry in self.in_folder() if entry[0] == name
                 and (not version or entry[1] == version)]
        if not found:
            raise Refused(404, f"the models' folder has no {name}{_SUFFIX}")
        loaded: list[Served] = []
        for _, each, path in found:
            try:
                loaded.append(self.add(path, name, each))
            except (ExportError, OSError) as error:
                raise malformed(f"{path.name} cannot be loaded: {_short(error)}") from None
            self.finish(loaded[-1])
        return loaded


def _end(served: Served, seconds: float) -> None:
    served.state = "UNLOADING"
    served.batcher.close()
    if not served.batcher.join(seconds):
        served.batcher.abandon()


def _short(error: Any) -> str:
    """A message without the folder that the file is in."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return " ".join(str(error).split()).split(" cannot be loaded: ")[-1]


def _order(version: str) -> list[tuple[int, int, str]]:
    """Versions in the order of their numbers: 2 before 10, 1.9 before 1.10."""
    parts = re.findall(r"\d+|\D+", version)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]
