"""Once inline, then by call: how an elementary function is emitted when a module repeats it."""

import functools
from collections.abc import Callable
from typing import TypeVar, cast

from graphc.backends.llvm.lanes import Dtype, Lanes
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module

Method = TypeVar("Method", bound=Callable[..., str])


class SharedLanes(Lanes):
    """Lanes whose `@shared` methods are emitted inline `inline_limit` times per module.

    Later uses call one module-level function that takes and returns vectors by value.
    """

    def __init__(
        self,
        fn: Function,
        module: Module,
        target: Target,
        dtype: Dtype,
        width: int,
        inline_limit: int | None = 3,
    ) -> None:
        super().__init__(fn, module, target, dtype, width)
        self.inline_limit = inline_limit  # None: always inline
        self._nested = False

    def emit(self, method: Callable[..., str], args: tuple[str, ...]) -> str:
        """Emits a shared method's body here, or a call to its helper."""
        if self._nested or self.inline_limit is None:
            return method(self, *args)
        name = f"@graphc.{method.__name__}.{self.suffix}"
        if self.module.count_use(name) <= self.inline_limit:
            return self._emit_body(method, args)
        if self.module.count_use(name + ".helper") == 1:
            self._define_helper(name, method, len(args))
        return self.fn.call(self.vtype, name, *(f"{self.vtype} {arg}" for arg in args))

    def _emit_body(self, method: Callable[..., str], args: tuple[str, ...]) -> str:
        """Inline; what the body itself uses is not counted as the caller's uses."""
        self._nested = True
        try:
            return method(self, *args)
        finally:
            self._nested = False

    def _define_helper(self, name: str, method: Callable[..., str], arity: int) -> None:
        parameters = ", ".join(f"{self.vtype} %x{index}" for index in range(arity))
        fn = self.module.function(f"{self.vtype} {name}({parameters})", "internal")
        body = type(self)(fn, self.module, self.target, self.dtype, self.width, None)
        fn.ret(f"{self.vtype} {method(body, *(f'%x{index}' for index in range(arity)))}")


def shared(method: Method) -> Method:
    """Marks a method of SharedLanes that takes and returns lanes only."""

    @functools.wraps(method)
    def emit(self: SharedLanes, *args: str) -> str:
        return self.emit(method, args)

    return cast(Method, emit)
