"""torch.autograd.grad_mode."""

from __future__ import annotations

from ..frontend.grad_mode import enable_grad as enable_grad
from ..frontend.grad_mode import inference_mode as inference_mode
from ..frontend.grad_mode import no_grad as no_grad
from ..frontend.grad_mode import set_grad_enabled as set_grad_enabled


class _Switches:
    """Switches that change nothing here: backward() runs in the calling thread, and views of
    written memory are always differentiated as views."""

    multithreading = True
    view_replay = False


class _Switch:
    name = ""

    def __init__(self, mode: bool) -> None:
        self.prev = getattr(_Switches, self.name)
        self.mode = bool(mode)
        setattr(_Switches, self.name, self.mode)

    def __enter__(self) -> None:
        setattr(_Switches, self.name, self.mode)

    def __exit__(self, *exc: object) -> None:
        setattr(_Switches, self.name, self.prev)


class set_multithreading_enabled(_Switch):
    """Accepted: backward() runs in one thread."""

    name = "multithreading"


class _force_original_view_tracking(_Switch):
    """Accepted: views are tracked as views."""

    name = "view_replay"


def is_multithreading_enabled() -> bool:
    """What set_multithreading_enabled says."""
    return _Switches.multithreading


def is_view_replay_enabled() -> bool:
    """Whether views are replayed rather than strided."""
    return _Switches.view_replay
