"""Where CPython keeps the fields of a Tensor. Native code reads them there."""

from __future__ import annotations


def lie_together(kind: type) -> None:
    """Have CPython keep these attributes of a class's instances side by side, where native code
    reads them: there is less room for further names with each instance that is made."""
    first: object = object.__new__(kind)
    for name in (
        "_graphc_array", "_graphc_storage", "_graphc_requires_grad", "_graphc_node",
        "_graphc_hooks", "_graphc_post_hooks", "_graphc_accumulator", "_base", "_grad",
        "_graphc_seen", "_graphc_output", "_graphc_chain", "_graphc_no_grad_view",
    ):
        object.__setattr__(first, name, None)
