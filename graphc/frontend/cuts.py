"""Where a trace may be cut into segments, as a trace that is never cut sees it.

segment_trace.py has the other answers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import TraceError, located, unsupported_in_trace
from .outside_history import Passed, goes_on, passed

if TYPE_CHECKING:
    from types import CodeType, FrameType

    import numpy as np

    from .nodes import Node
    from .tensor import Tensor


class OneGraph:
    """A trace of the whole function: a value that Python needs is an error."""

    whole = True  # False once it runs in segments
    passing = False  # what ended it is done once: a later call may be one graph
    refused: TraceError | None = None  # the demand that was an error
    passed: tuple[Passed, ...] = ()  # backward passes that came to histories from before
    otherwise = ", or leave out fullgraph=True"  # what cures say besides

    def demand(self, tensor: Tensor, what: str, cure: str) -> np.ndarray:
        """The array of a tensor whose value Python needs now. Raises TraceError."""
        self.refuse(what, cure)

    def end_segment(self, what: str, cure: str = "") -> None:
        """Run what was recorded. Raises TraceError."""
        self.refused = TraceError(located(
            f"{what} inside a function that is compiled as one graph. Cure: {cure}"
        ))
        raise self.refused

    def opened(self, what: str, cure: str, owner: Any = None) -> None:
        """Python that is not understood is about to run, a method of `owner` perhaps."""
        self.end_segment(what, cure)

    def starts_unseen(self, code: CodeType, caller: FrameType | None) -> bool:
        """Whether Python that starts unseen is a finding."""
        return True

    def pending_item(self, tensor: Tensor) -> Any:
        """What stands for `tensor.item()` where it is only returned; None elsewhere."""
        return None

    def pending_array(self, tensor: Tensor) -> Any:
        """What stands for `tensor.numpy()` where it is only kept; None elsewhere."""
        return None

    def exposed(self, tensor: Tensor) -> None:
        """NumPy's code has got an array on the tensor's memory."""

    def is_mixed(self, tensor: Tensor, write: bool = False) -> bool:
        """Whether a tensor's memory is captured as another dtype, and written to, which ends a
        segment."""
        return False

    def refuse(self, what: str, cure: str) -> NoReturn:
        """Raise TraceError; the trace remembers it, should the user's code catch it."""
        self.refused = unsupported_in_trace(what, cure)
        raise self.refused

    def flush(self) -> None:
        """Run what was recorded (in segments)."""

    def adopt(self, tensor: Tensor) -> None:
        """Note a traced tensor that may be handed out."""

    def runs_eagerly(self, what: str) -> bool:
        """Whether `what` (a hook, a custom Function) is to be run eagerly, in `eager()`."""
        return False

    def hooks_at_once(self, node: Node, what: str) -> bool:
        """Whether a hook on the results of `node` is to be registered while nothing is recorded,
        as what was recorded so far has run: it stays there."""
        if node.outside is None and not self.runs_eagerly(what):
            return False
        self.end_segment(what, "do it outside")
        return True

    def crosses(self, roots: list[Node], wanted: set[Node]) -> bool:
        """Whether a backward pass from `roots` is to be run eagerly, in `eager()`. Raises
        TraceError where it is, and cannot be."""
        if goes_on(roots, wanted):
            self.end_segment(
                "a backward pass through history from before the call",
                "compute the loss from leaves inside the function, detach() what comes from "
                "outside, or leave out fullgraph=True",
            )
        self.note_pass(roots, wanted)
        return False

    def note_pass(self, roots: list[Node], wanted: set[Node]) -> None:
        """A pass stays inside; whether it does may hang on what is behind tensors from before."""
        found = passed(roots, wanted)
        if found is not None:
            self.passed = (*self.passed, found)

    def writes_outside(self, target: Tensor) -> bool:
        """Whether an in-place write with a history is to be done eagerly, in `eager()`."""
        return False

    def eager(self, what: str, cure: str = "") -> AbstractContextManager[None]:
        """Run what is inside without recording, after everything that was recorded."""
        return nullcontext()
