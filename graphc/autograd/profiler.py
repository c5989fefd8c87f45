"""torch.autograd.profiler: the older profiler, whose profile() has the table itself."""

from __future__ import annotations

from typing import Any

from .. import profiler
from ..profiler import EventList as EventList
from ..profiler import record_function as record_function
from ..profiler.recorder import recording as _profiler_enabled  # noqa: F401
from ..profiler.recorder import stop_all as _disable_profiler  # noqa: F401


class profile(profiler.profile):  # torch spells this class in lower case
    """A context that records; `table()` and `key_averages()` show."""

    def __init__(
        self, enabled: bool = True, *, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack,
            with_flops=with_flops, with_modules=with_modules,
        )
        self.enabled = enabled

    def start(self) -> None:
        """Begin, where enabled."""
        if self.enabled:
            super().start()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all together."""
        return self.events().self_cpu_time_total

    def total_average(self) -> Any:
        """The sum of all."""
        return self.events().total_average()

    def table(self, *args: Any, **options: Any) -> str:
        """The times as text, event by event."""
        return self.events().table(*args, **options)

    def __str__(self) -> str:
        return self.table()


class emit_nvtx:  # torch spells this class in lower case
    """A context that does nothing: there is no NVIDIA profiler to talk to."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None


emit_itt = emit_nvtx
