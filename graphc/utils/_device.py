"""torch.utils._device: a device for new tensors, as a mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..frontend.device import device as device_type
from ..overrides import TorchFunctionMode


class DeviceContext(TorchFunctionMode):
    """`with torch.device(...)`, for those who enter it by this name."""

    def __init__(self, device: Any) -> None:
        self.device = device_type(device)
        self._entered: list[Any] = []

    def __enter__(self) -> DeviceContext:
        self._entered.append(device_type(self.device))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        with device_type(self.device):
            return func(*args, **(kwargs or {}))


def set_device(device: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: inside, new tensors are made on the device."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def placed(*args: Any, **kwargs: Any) -> Any:
            with device_type(device):
                return function(*args, **kwargs)

        return placed

    return decorate
