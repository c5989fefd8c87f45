"""A call whose native code refused: an index out of range, an integer divided by zero.

Native code checks before its first visible write, so nothing has happened yet. What happens now is
for Python to say: the function may catch the error, or count it in a `finally`. It runs once in
eager mode; if it raises, the tensors are as they were before the call, and its Python state as it
left it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...frontend.captured import TensorInput
from ...frontend.errors import locate
from ...frontend.tensor import Tensor
from .sources import owner_of, tensor_of, written_to

if TYPE_CHECKING:
    from .version import Specialisation

ERRORS = (IndexError, RuntimeError, ValueError, ZeroDivisionError)


def is_refusal(error: BaseException) -> bool:
    """Whether native code raised an error, before it wrote anything."""
    return getattr(error, "by_native_code", False)


def mark(error: Any) -> None:
    """Note that native code raised it."""
    error.by_native_code = True


def run_python(
    version: Specialisation, arguments: list[Any], function: Callable[[], Any]
) -> Any:
    """Run a function that native code refused."""
    kept = _Tensors(version, arguments)
    places = [(place, place.get()) for place in version.stored]
    try:
        return function()
    except BaseException as error:
        for place, value in places:
            if isinstance(place.get(), Tensor):
                place.put(value)
        kept.restore()
        if isinstance(error, ERRORS):
            locate(error)
        raise


class _Tensors:
    """The tensors that a version writes, as they are now."""

    def __init__(self, version: Specialisation, arguments: list[Any]) -> None:
        traced = version.traced

        def has_grad(source: TensorInput) -> bool:
            tensor: Any = source.tensor
            owner = owner_of(tensor, source.index, arguments, version.moved)
            return owner._grad is not None

        inputs = {
            i.number: tensor_of(i, arguments, version.moved) for i in version.inputs
            if isinstance(i, TensorInput) and (i.kind != "grad" or has_grad(i))
        }
        owners = [*inputs.values()]
        records: list[Any] = [*traced.rebinds, *traced.grads]
        for record in records:
            owners.append(written_to(record, arguments, version.moved))
        gradients = [t._grad for t in owners if isinstance(t._grad, Tensor)]
        written = {id(t): t for t in (*owners, *gradients)}
        numbers = {m.input for m in traced.mutations}
        changed = [t for number, t in inputs.items() if number in numbers] + gradients
        self._data = [(t._array, t._array.copy(), t._storage, t._storage.version) for t in changed]
        self._state = [
            (t, {name: getattr(t, name) for name in _STATE}) for t in written.values()
        ]

    def restore(self) -> None:
        for tensor, state in self._state:
            for name, value in state.items():
                if getattr(tensor, name) is not value:
                    setattr(tensor, name, value)
        for array, values, storage, version in self._data:
            array[...] = values
            storage.version = version


_STATE = ("_array", "_storage", "_grad", "_node", "_output", "_requires_grad")
