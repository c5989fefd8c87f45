"""torch.compile's `mode` and `options`, as what they change in a Config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import config as configuration
from .._inductor import MODES
from .._inductor import config as inductor
from ..config import Config, allowed_error
from ..ir.named import NamedTuple


class Mode(NamedTuple):
    """How a function is compiled. `autotune`: contractions are timed on a GPU; `graphs`: launches
    may become CUDA graphs; `max_memory`: bytes that a call may need at most (limit.py); `winograd`:
    the errors that convolutions may have (None: those of the Config)."""

    autotune: bool = False
    graphs: bool = True
    max_memory: int | None = None
    winograd: float | None = None

    def config(self) -> Config:
        """The Config in force, as this mode has it; what the environment says comes first."""
        found = configuration.current()
        if self.autotune or inductor.max_autotune or inductor.max_autotune_gemm:
            found = found._replace(max_autotune=1)
        if self.winograd is not None:
            found = found._replace(winograd=self.winograd)
        if not self.graphs and found.cuda_graphs == "auto":
            found = found._replace(cuda_graphs="0")
        return found


USUAL = Mode()


def mode_of(mode: str | None, options: Mapping[str, Any] | None) -> Mode:
    """What compile() was asked for. Of torch's options those count that say what a mode does;
    `winograd` is one that torch lacks. Raises RuntimeError as torch does, and for a `winograd` that
    is none TypeError or ValueError."""
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if mode is not None and mode not in MODES:
        raise RuntimeError(
            f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}"
        )
    asked = {key.replace("-", "_"): value for key, value in (options or {}).items()}
    asked = MODES[mode] if mode is not None else asked
    tuned = asked.get("max_autotune", False) or asked.get("max_autotune_gemm", False)
    allowed = allowed_error(asked["winograd"]) if "winograd" in asked else None
    return Mode(bool(tuned), bool(asked.get("triton.cudagraphs", True)), winograd=allowed)
