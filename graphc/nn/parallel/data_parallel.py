"""DataParallel: on one device it is the Module itself, under the name `module`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import _check, gather, scatter_kwargs


class DataParallel(Module):
    """The Module, called as it is; state_dict keys begin with "module.", as in torch."""

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        # as torch without a GPU: ids are ignored, and no device is left
        self.device_ids: list[Any] = []
        self.output_device: Any = None

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The Module's result."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module, inputs: Any, device_ids: Sequence[Any] | None = None,
    output_device: Any = None, dim: int = 0, module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """module(*inputs) in one part per device; `device_ids` may name the CPU several times."""
    given = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    if not device_ids:
        return module(*given, **(module_kwargs or {}))
    for device in device_ids:
        _check(device)
    parts, keywords = scatter_kwargs(given, module_kwargs, device_ids, dim)
    if len(parts) <= 1:
        return module(*(parts[0] if parts else ()), **(keywords[0] if keywords else {}))
    copies = replicate(module, device_ids[: len(parts)])
    results = parallel_apply(copies, parts, keywords)
    return gather(results, device_ids[0] if output_device is None else output_device, dim)
