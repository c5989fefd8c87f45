"""Nothing that a recording understands, and no kind of guard, can go without being noticed."""

from __future__ import annotations

import pytest

from tests.programs.generate import CONSTRUCTS, OPEN, alone
from tests.programs.mutants import EXCUSED, Mutant, guard_kinds, mutants, rows, steps
from tests.programs.mutate import judge, measured, programs, unlisted
from tests.programs.run import check

pytestmark = pytest.mark.filterwarnings("ignore")

# A program for each kind of guard that is wrong without it.
NOTICES = {
    "Entry": "scenario function_replaced",
    "Items": "list_delete",
    "Type": "replaced_class",
    "Code": "scenario defaults_replaced",
    "Result": "scenario cache_filled_by_the_first_call",
    "Cached": "scenario cache_filled_by_the_first_call",
    "Referent": "weakly_alive",
    "OfArgument": "an_argument_with_a_mark",
    "Array": "numpy_element",
    "Fields": "a_forward_in_the_dict_itself",
    "Differentiable": "backward",
    "Identity": "an_argument_of_before",
    "SameArgument": "scenario one_tensor_twice",
    "Sizes": "scenario cache_filled_by_the_first_call",
    "GradIsThere": "backward_accumulates",
    "Aliases": "arguments_that_overlap",
    "Decided": "a_number_decided_upon",
    "Apart": "scenario a_container_that_is_elsewhere",
    "Renewed": "scenario hidden_state_with_history",
    "NoOverlap": "arguments_that_come_to_overlap",
    "WholeMemory": "scenario places_in_the_memory_of_an_argument",
    "HooksOf": "scenario hooks_of_arguments",
    "NoView": "scenario values_with_a_history_in_a_buffer",
    "OwnHistories": "scenario arguments_that_are_computed_from_each_other",
}


@pytest.mark.parametrize("kind", [str(mutant.row) for mutant in guard_kinds()])
def test_a_guard_that_always_holds_is_noticed(kind: str) -> None:
    before = measured([NOTICES[kind]])
    (verdict,) = judge([Mutant("guard", kind)], before)
    assert verdict.how == "wrong"


# --- the tables ------------------------------------------------------------------------------

USES = [construct.name for construct in CONSTRUCTS.values() if construct.family == "tables"]
# What reads or changes the outside of the program, or an array.
IN_SEGMENTS = set(
    """
    a_file_that_is_there a_filter_that_makes_errors anomaly_set attributes_taken_from_classes
    autocast_cache_set autocast_dtype_set autocast_left_off autocast_left_on autocast_switched
    numpy_buffer_read numpy_error_calls numpy_files numpy_mapped_files numpy_raw_files numpy_saves
    numpy_saves_several numpy_saves_text numpy_shuffle numpy_text_files print_options_set
    threads_set
    """.split()
)


@pytest.mark.parametrize("name", USES)
def test_what_the_tables_name_is_one_graph(name: str) -> None:
    failure, seen = check(alone(name))
    assert failure is None
    assert seen.whole == (name not in IN_SEGMENTS)


@pytest.mark.parametrize("name", OPEN)
def test_what_is_open_runs_in_segments(name: str) -> None:
    failure, seen = check(alone(name))
    assert failure is None
    assert seen.ends and not seen.whole


# A few rows in every run, all of them in the slow one.
SAMPLE = {
    "PURE": ("functions_of_one_number", "math.tanh"),
    "OPERATORS": ("operator_arithmetic", "_operator.floordiv"),
    "HIGHER_ORDER": ("tuples_of_itertools", "itertools.pairwise"),
    "READS": ("reads_of_sets", "issubset"),
    "WRITES": ("writes_to_lists", "extend"),
    "_ITERATORS": ("stepped_iterators", "builtins.zip"),
    "FIXEDS": ("patterns", "re.Pattern"),
    "SWITCHES": ("precision_set", "set_float32_matmul_precision"),
}


@pytest.mark.parametrize("table", SAMPLE)
def test_a_row_that_is_gone_is_noticed(table: str) -> None:
    name, row = SAMPLE[table]
    mutant = Mutant(table, row)
    before = measured([name])
    assert mutant in rows() and mutant in before[name][1]
    (verdict,) = judge([mutant], before)
    assert verdict.how


@pytest.mark.slow
def test_whatever_is_gone_is_noticed() -> None:
    before = measured(programs())
    assert not unlisted(before)
    judged = judge(mutants(), before)
    assert not [str(verdict.mutant) for verdict in judged if not verdict.how]


@pytest.mark.slow
def test_a_step_that_is_left_out_is_noticed_or_excused() -> None:
    judged = judge(steps(), measured(programs()))
    assert {verdict.mutant.row for verdict in judged if not verdict.how} == set(EXCUSED)


def test_what_is_excused_is_a_step() -> None:
    assert set(EXCUSED) <= {mutant.row for mutant in steps()}
