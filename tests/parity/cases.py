"""All parity records. Importing the files fills the table."""

from tests.parity import (
    cases_creation,
    cases_database,
    cases_indexing,
    cases_linalg,
    cases_methods,
    cases_more,
    cases_older,
    cases_pointwise,
    cases_reduction,
    cases_shape,
    cases_sorting,
)
from tests.parity.records import CASES

__all__ = [
    "CASES", "cases_creation", "cases_database", "cases_indexing", "cases_linalg",
    "cases_methods", "cases_more", "cases_older", "cases_pointwise", "cases_reduction",
    "cases_shape", "cases_sorting",
]
