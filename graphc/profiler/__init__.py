"""torch.profiler: what ran how often and for how long (profiler.py)."""

from . import itt as itt
from . import profiler as profiler
from .events import DeviceType as DeviceType
from .events import Event as Event
from .events import EventList as EventList
from .profiler import ProfilerAction as ProfilerAction
from .profiler import ProfilerActivity as ProfilerActivity
from .profiler import profile as profile
from .profiler import schedule as schedule
from .profiler import supported_activities as supported_activities
from .profiler import tensorboard_trace_handler as tensorboard_trace_handler
from .recorder import record_function as record_function

__all__ = [
    "DeviceType", "Event", "ProfilerAction", "ProfilerActivity", "profile", "record_function",
    "schedule", "supported_activities", "tensorboard_trace_handler",
]


def kineto_available() -> bool:
    """Whether profile() is here; what records is graphc's own."""
    return True
