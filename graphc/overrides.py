"""torch.overrides: __torch_function__ is not asked, so nothing overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .frontend.errors import located
from .frontend.tensor import Tensor


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """False."""
    return False


def has_torch_function_unary(obj: Any) -> bool:
    """False."""
    return False


def has_torch_function_variadic(*args: Any) -> bool:
    """False."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor, or would pass for one by `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """The function itself."""
    return public_api(*args, **kwargs)


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether it belongs to Tensor."""
    return func in vars(Tensor).values()


class TorchFunctionMode:
    """A base class for modes. Entering one raises NotImplementedError: no call would reach it."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """What a mode answers to a call. Raises NotImplementedError."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        raise NotImplementedError(located(
            f"{type(self).__name__}: graphc asks no __torch_function__, so this mode would see no "
            "call. Cure: forward hooks of the Modules, or graphc.explain() for what runs"
        ))

    def __exit__(self, *exc: object) -> None:
        """Nothing to leave."""
