"""Nothing that a recording understands, and no kind of guard, can go without being noticed."""

from __future__ import annotations

import pytest

from tests.programs.mutate import Mutant, guard_kinds, judge, measured

pytestmark = pytest.mark.filterwarnings("ignore")

# A program for each kind of guard that is wrong without it.
NOTICES = {
    "Entry": "scenario function_replaced",
    "Items": "list_delete",
    "Kind": "replaced_class",
    "Code": "scenario defaults_replaced",
    "Result": "scenario cache_filled_by_the_first_call",
    "Referent": "weakly_alive",
    "Array": "numpy_element",
    "flags": "backward",
    "pairs": "an_argument_of_before",
    "identities": "scenario one_tensor_twice",
    "guards": "scenario cache_filled_by_the_first_call",
    "grad_reads": "backward_accumulates",
    "lodgers": "arguments_that_overlap",
    "numbers": "a_number_decided_upon",
    "_check_overlap": "arguments_that_come_to_overlap",
}


@pytest.mark.parametrize("kind", [str(mutant.row) for mutant in guard_kinds()])
def test_a_guard_that_always_holds_is_noticed(kind: str) -> None:
    before = measured([NOTICES[kind]])
    (verdict,) = judge([Mutant("guard", kind)], before)
    assert verdict.how == "wrong"
