"""torch.utils.checkpoint: keep the inputs of a part of a model, and compute it again in backward.

Without reentrance, what the part's operations save is dropped; when backward first asks for one of
these values, the part runs once more and all of them are there again (hooks on saved tensors).
With it (eager only), the part is one custom Function. Under a trace of one graph the second run
reads its inputs through a choice that depends on the arriving gradient: it cannot be merged with
the first. Between segments the part runs eagerly: its Python is due in each backward pass.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..autograd.graph import saved_tensors_hooks
from ..frontend import autograd as _autograd
from ..frontend.context import local
from ..frontend.dispatch import apply
from ..frontend.function import Function
from ..frontend.grad_mode import enable_grad, no_grad
from ..frontend.random_state import States, drawing_places, fork_rng
from ..frontend.saved_hooks import hooks, unpacking
from ..frontend.tensor import Tensor
from ..frontend.tree import flatten, unflatten
from ..ir import ops

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class CheckpointError(RuntimeError):
    """The second run of a checkpointed function did something else than the first."""


class _Options:
    early_stop = True
    debug = False


class _Setting:
    name = ""

    def __init__(self, enable: bool) -> None:
        self._before = getattr(_Options, self.name)
        self._wanted = enable

    def __enter__(self) -> None:
        setattr(_Options, self.name, self._wanted)

    def __exit__(self, *exc: object) -> None:
        setattr(_Options, self.name, self._before)


class set_checkpoint_early_stop(_Setting):
    """Within the block: whether the second run stops once every saved value is there."""

    name = "early_stop"


class set_checkpoint_debug_enabled(_Setting):
    """Accepted; messages name the saved tensors anyway."""

    name = "debug"


def noop_context_fn() -> Contexts:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs as leaves that require gradients as they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: ",
            type(inputs).__name__,
        )
    found: list[Any] = []
    for value in inputs:
        if isinstance(value, Tensor):
            flag = value.requires_grad
            value = value.detach()
            value.requires_grad_(flag)
        found.append(value)
    return tuple(found)


def check_backward_validity(inputs: Sequence[Any]) -> None:
    """Warn where no input requires a gradient."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=4
        )


@contextlib.contextmanager
def _autocast(modes: Any) -> Iterator[None]:
    """Under the autocast modes of the first run: a backward pass is outside of them."""
    before, local.autocast = local.autocast, modes
    try:
        yield
    finally:
        local.autocast = before


class CheckpointFunction(Function):
    """A part of a model as one operation, whose backward runs it again."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """Run without a tape; keep the arguments and where the generators stand."""
        check_backward_validity(args)
        ctx.run_function, ctx.autocast = run_function, local.autocast
        ctx.preserve_rng_state = preserve_rng_state
        ctx.state = States(drawing_places()) if preserve_rng_state else None
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.others = [None if isinstance(x, Tensor) else x for x in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run again with a tape, and go back through that."""
        if unpacking.limited:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the `inputs` "
                "argument."
            )
        values = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            values[place] = tensor
        inputs = detach_variable(tuple(values))
        with fork_rng(enabled=ctx.preserve_rng_state):
            if ctx.preserve_rng_state:
                ctx.state.restore()
            with enable_grad(), _autocast(ctx.autocast):
                outputs = ctx.run_function(*inputs)
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (out, g) for out, g in zip(results, grads, strict=True)
            if isinstance(out, Tensor) and out.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        _autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in inputs))


class _Stop(Exception):
    """Every value that the first run saved is there again."""


class _Frame:
    """One checkpointed call."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, preserve: bool,
        context: AbstractContextManager[Any], check: bool, early_stop: bool,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.autocast = local.autocast
        tensors = [x for x in flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        self.state = States(drawing_places(), tensors) if preserve else None
        self.context = context
        self.check = check
        self.early_stop = early_stop
        self.types: list[Any] = []  # of what the first run saved
        self.values: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> int:
        self.types.append(tensor._graphc_type)
        return len(self.types) - 1

    def unpack(self, index: int) -> Tensor:
        if index not in self.values:
            self.recompute()
        return self.values.pop(index)

    def recompute(self) -> None:
        """Run again, keeping what is saved."""
        found: list[Tensor] = []
        traced = local.trace is not None
        args, kwargs = self._inputs() if traced else (self.args, self.kwargs)

        def collect(tensor: Tensor) -> None:
            found.append(tensor.detach())
            if self.early_stop and len(found) == len(self.types):
                raise _Stop

        def spent(packed: Any) -> Tensor:
            raise RuntimeError("backward() inside the second run of a checkpointed function")

        outer, hooks.busy = hooks.busy, False
        again, unpacking.again = unpacking.again, True
        try:
            with enable_grad(), fork_rng(enabled=self.state is not None):
                if self.state is not None:
                    self.state.restore()
                with (
                    saved_tensors_hooks(collect, spent), _autocast(self.autocast), self.context,
                    contextlib.suppress(_Stop),
                ):
                    self.function(*args, **kwargs)
        finally:
            hooks.busy, unpacking.again = outer, again
        self._verify(found)
        self.values = dict(enumerate(found))

    def _verify(self, found: list[Tensor]) -> None:
        if len(found) != len(self.types):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.types)}\n"
                f"Number of tensors saved during recomputation: {len(found)}."
            )
        if not self.check:
            return
        for i, (tensor, want) in enumerate(zip(found, self.types, strict=True)):
            if tensor._graphc_type != want:
                raise CheckpointError(
                    "torch.utils.checkpoint: Recomputed values for the following tensors have "
                    "different metadata than during the forward pass.\n"
                    f"tensor at position {i}:\nsaved metadata: {want}\n"
                    f"recomputed metadata: {tensor._graphc_type}"
                )

    def _inputs(self) -> tuple[Any, Any]:
        """The inputs, as values that are known only once the gradient is."""
        gradient = unpacking.gradient
        if gradient is None or gradient._graphc_type.elements == 0:
            return self.args, self.kwargs
        one = gradient.detach().reshape(-1)[0]
        # true for every number and for NaN, which no pass may assume
        known = (one == one) | (one != one)
        leaves, structure = flatten((self.args, self.kwargs))
        held = [_hold(known, x) if isinstance(x, Tensor) else x for x in leaves]
        args, kwargs = unflatten(held, structure)
        return args, kwargs


def _hold(known: Tensor, tensor: Tensor) -> Tensor:
    type_ = tensor._graphc_type
    value: float | int = 0.0 if type_.dtype.is_float else 0
    with enable_grad():
        zeros = apply(ops.full, shape=type_.shape, value=value, dtype=type_.dtype)
        held: Tensor = apply(ops.where, known, tensor, zeros)
    return held


_SECOND_RUN = "the second run of a checkpoint()"


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn, determinism_check: str = "default",
    debug: bool = False, early_stop: bool = True, **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose intermediate values are computed again in backward().

    `preserve_rng_state` (a keyword, default True): the second run draws the same numbers.
    Raises CheckpointError where the second run saves other tensors than the first.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "use_reentrant=False is recommended, but if you need to preserve the current default "
            "behavior, you can pass use_reentrant=True.", stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs and use_reentrant:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if determinism_check not in ("default", "none"):
        raise ValueError("determinism_check should be one of ['default', 'none'], got "
                         f"{determinism_check}")
    if use_reentrant and (context_fn is not noop_context_fn or debug is not False):
        raise ValueError("Passing `context_fn` or `debug` is only supported when "
                         "use_reentrant=False.")
    trace = local.trace
    if trace is not None and local.grad and trace.runs_eagerly(_SECOND_RUN):
        # a segment's backward is recorded at its end; the second run is due in each pass
        with trace.eager(_SECOND_RUN):
            return checkpoint(
                function, *args, use_reentrant=use_reentrant, context_fn=context_fn,
                determinism_check=determinism_check, debug=debug, early_stop=early_stop,
                preserve_rng_state=preserve, **kwargs,
            )
    if use_reentrant and trace is None:
        return CheckpointFunction.apply(function, preserve, *args)
    first, second = context_fn()
    if not local.grad:
        with first:
            return function(*args, **kwargs)
    frame = _Frame(
        function, args, kwargs, preserve, second, determinism_check == "default",
        early_stop and _Options.early_stop and not use_reentrant,
    )
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """A Sequential (or list of functions) run in `segments` parts, all but the last of which are
    checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly.", stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def part(start: int, stop: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            return functools.reduce(lambda x, step: step(x), steps[start:stop], value)

        return run

    size = len(steps) // segments
    start = 0
    for start in range(0, size * (segments - 1), size or 1):
        input = checkpoint(
            part(start, start + size), input, use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return part(size * (segments - 1), len(steps))(input)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Generator states of the devices that tensors are on, besides the CPU: there are none."""
    return [], []


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """The inverse of get_device_states."""


__all__ = [
    "CheckpointError", "CheckpointFunction", "check_backward_validity", "checkpoint",
    "checkpoint_sequential", "detach_variable", "get_device_states", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]
