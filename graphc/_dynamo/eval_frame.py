"""torch._dynamo.eval_frame: the class by which programs know a compiled Module."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import unsupported


class _OfCompiled(type):
    """A compiled Module is an instance of its own class, and counts as an OptimizedModule."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return "_orig_mod" in vars(type(instance))


class OptimizedModule(metaclass=_OfCompiled):
    """What `isinstance` finds torch.compile(model) to be; torch.compile() makes them."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        unsupported.refuse("torch._dynamo.OptimizedModule", "torch.compile(model)")
