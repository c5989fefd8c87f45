"""torch._dynamo: the few names that scripts touch."""

from __future__ import annotations

from typing import Any

from ..compiler import allow_in_graph as allow_in_graph
from ..compiler import assume_constant_result as assume_constant_result
from ..compiler import disable as disable
from ..compiler import list_backends as list_backends
from ..compiler import nonstrict_trace as nonstrict_trace
from ..compiler import reset as reset
from ..compiler import set_stance as set_stance
from ..compiler import substitute_in_graph as substitute_in_graph
from . import config as config
from . import eval_frame as eval_frame
from . import exc as exc
from . import utils as utils
from .eval_frame import OptimizedModule as OptimizedModule
from .explained import explain as explain


def is_compiling() -> bool:
    """Whether the code runs in a trace."""
    return utils.is_compiling()


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Nothing to do: captured tensors are read where they are."""


def mark_dynamic(t: Any, index: Any = None, **options: Any) -> None:
    """Nothing to do: a size that varies becomes symbolic at its second value."""


maybe_mark_dynamic = mark_static = mark_dynamic


def graph_break(msg: str = "") -> None:
    """Nothing to do."""


def optimize(backend: Any = "inductor", **options: Any) -> Any:
    """A decorator: torch.compile with this backend."""
    return lambda model: utils.compiled(model, backend)
