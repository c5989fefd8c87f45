"""A few of test_suites.py in every run."""

from ...apart.test_compile import (
    test_a_check_in_compiled_code_appears_when_the_host_waits,
    test_a_write_to_an_argument_and_to_its_view,
    test_gradients_of_a_compiled_function,
)
from ...apart.test_eager import (
    test_gradients_stay_on_the_device,
    test_in_place_writes_are_seen_through_views,
    test_what_is_queued_behind_a_failure_writes_nothing,
)

__all__ = [
    "test_a_check_in_compiled_code_appears_when_the_host_waits",
    "test_a_write_to_an_argument_and_to_its_view",
    "test_gradients_of_a_compiled_function",
    "test_gradients_stay_on_the_device",
    "test_in_place_writes_are_seen_through_views",
    "test_what_is_queued_behind_a_failure_writes_nothing",
]
