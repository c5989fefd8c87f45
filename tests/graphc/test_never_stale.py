"""Compiled functions are never stale and never silent: whatever changes between their calls."""

from __future__ import annotations

import pytest

import graphc
from tests.graphc import (
    scenarios_stale_code,
    scenarios_stale_numbers,
    scenarios_stale_opaque,
    scenarios_stale_results,
    scenarios_stale_state,
)
from tests.graphc.scenario import compare, identity, run
from tests.graphc.stale_scenario import STALE

__all__ = [
    "scenarios_stale_code", "scenarios_stale_numbers", "scenarios_stale_opaque",
    "scenarios_stale_results", "scenarios_stale_state",
]  # fmt: skip

# What is known to be wrong; an entry that passes fails the suite, and goes.
KNOWN: set[str] = set(
    """
    arguments_are_freed arguments_come_back arrays_large_and_of_objects arrays_written
    attributes_of_tensors attributes_that_compute average_of_weights backward_of_a_kept_loss
    backward_of_an_argument backward_of_part_outside backward_twice backward_with_retained_graph
    betas_written_inside buffers_of_bytes containers_of_the_state context_and_thread_variables
    counters_in_finally defaults_replaced environment eps_written_inside function_replaced
    generators_and_iterators globals_by_name grad_mode_set_by_a_call grad_of_outside_history
    hidden_state_with_history history_of_two kv_cache lazy_modules lbfgs
    learning_rate_written_inside library_function_replaced library_method_replaced mappings
    mappings_written methodcaller_and_getters methods_replaced model_output
    momentum_switched_inside names_that_are_only_shared namespace_and_object none_becomes_tensor
    number_as_default number_as_text number_beyond_64_bits number_bits number_division
    number_fractions number_match number_power number_types operators_replaced queue_and_sets
    resized_out returned_lambdas rotated_list rotated_tensors size_arithmetic size_as_text
    size_bits size_returned slots_read slots_written swapped_tensors truncated_backpropagation
    views_of_a_dict weak_references weight_decay_written_inside zero_becomes_tensor
    """.split()
)

OPEN = pytest.mark.xfail(reason="not guarded or not seen yet", strict=True)


@pytest.mark.parametrize("name", [pytest.param(n, marks=OPEN) if n in KNOWN else n for n in STALE])
def test_same_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    function, tolerance = STALE[name]
    expected = run(function, torch, identity)
    compare(expected, run(function, graphc, identity), tolerance)
    compare(expected, run(function, graphc, graphc.compile), tolerance)


def test_the_known_ones_exist() -> None:
    assert not KNOWN - STALE.keys()
