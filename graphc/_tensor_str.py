"""torch._tensor_str: the parts of a tensor's text, for classes that show tensors of their own."""

from __future__ import annotations

from collections.abc import Sequence

from .frontend.functions import printing
from .frontend.functions.printing import set_printoptions as set_printoptions
from .frontend.tensor import Tensor, concrete

PRINT_OPTS = printing.OPTIONS


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements in nested brackets, lines after the first indented."""
    values = concrete(self, "print(tensor)", "print it outside the compiled function")
    return printing.array_text(values, indent, self.dtype.is_float)


def _add_suffixes(
    tensor_str: str, suffixes: Sequence[str], indent: int, force_newline: bool
) -> str:
    """Suffixes behind an opened text, which is closed; the first on a line of its own if forced."""
    if force_newline and suffixes:
        tensor_str += f",\n{' ' * indent}{suffixes[0]}"
        suffixes = suffixes[1:]
    return printing._with_suffixes(tensor_str, list(suffixes), indent)


def _str(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """repr(tensor)."""
    return printing.tensor_text(self, tensor_contents=tensor_contents)
