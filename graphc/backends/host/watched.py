"""Who watches the steps of compiled code on the CPU: a profiler, as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from graphc.ir.kernel import Leaf

# of a step and the values of its program's dims: what is entered before it, and left after it
Watch: TypeAlias = Callable[["Leaf", Mapping[str, int]], AbstractContextManager[object]]


class Steps:
    """`watch`: None as nearly always; then a call is one native call."""

    watch: Watch | None = None
