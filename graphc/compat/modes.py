"""What `python -m graphc run --eager` and `--compile` change."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import graphc

from .. import backends, config
from ..engine.twin import twin_of
from ..engine.version.refused import has_run
from ..frontend.context import callout, local
from ..frontend.errors import user_location
from ..frontend.joined import Joined
from ..frontend.tensor import Tensor, register_methods
from ..nn import functional
from ..nn.modules.linear import Linear
from ..nn.modules.loss import _Loss
from ..nn.modules.module import Module
from ..nn.modules.sparse import Embedding
from .debugged import debugged
from .often import watching

# Compiled Modules are kept alive, and so are their parameters: a script that makes a new model per
# fold or trial must not keep them all.
_KEPT = 64
MODES = ("as_written", "eager", "compile")


def enter(mode: str) -> None:
    """Put a mode into force, for the rest of the process. Raises ValueError."""
    if mode not in MODES:
        raise ValueError(f"no mode {mode!r}; there are {', '.join(MODES)}")
    # imported first: the import itself binds graphc.compile
    module = importlib.import_module("graphc.compile")
    if mode == "eager":
        vars(graphc)["compile"] = _uncompiled
    elif mode == "compile" and Module.__call__ is not _call:
        compile_calls(module.compile_module, module.compile)
        compile_losses(module.compile)
        compile_functions()
        if config.current().steps == "auto":
            config.set_default(steps="1")


def _uncompiled(model: Any = None, **options: Any) -> Any:
    """torch.compile under --eager: the function itself, or a Module that has _orig_mod, and saves
    under its name, as scripts expect it."""
    if model is None:
        return functools.partial(_uncompiled, **options)
    if not isinstance(model, Module) or options.get("disable"):
        return model
    return twin_of(model, model, (_uncompiled, (model,)), _uncompiled)


class _Inside(threading.local):
    """Whether the thread is in a Module's call."""

    value = False


# What the new Module.__call__ works with. Globals of this package, not cells of a closure: those
# are roots of what a traced call reaches, and guarded, and these change with every new Module.
_inside = _Inside()
_eager: Callable[..., Any] = Module.__call__
_compile: Callable[..., Any]
_compile_function: Callable[..., Any]
# Modules of one class that are made again and again (a loss at each step, a copy of a model for
# each task): while so many of them had fewer calls than this, another one is not compiled before
# it had as many.
_ALIKE, _FEW = 4, 8


class _Known:
    """What calls of a Module come to. It keeps the Module, so that its id stays its own."""

    __slots__ = "calls", "module", "plain", "run", "waits"

    def __init__(
        self, module: Module, run: Callable[..., Any] | None, plain: bool, waits: bool = False
    ) -> None:
        """`plain`: calls of the Module are Module's own; `waits`: whether to compile it is not
        decided."""
        self.module, self.run, self.plain, self.waits = module, run, plain, waits
        self.calls = 0


# by id. Those that are not compiled do not crowd out others; of these, the last called are kept
_known: OrderedDict[int, _Known] = OrderedDict()
_idle: OrderedDict[int, _Known] = OrderedDict()


def compile_calls(
    compile_module: Callable[..., Any], compile_function: Callable[..., Any]
) -> None:
    """From now on a call of a Module that has parameters, or is a loss, runs compiled where it is
    outside any other's.

    A Module that cannot be compiled runs as in eager mode from then on, and one line on stderr
    says which and why.
    """
    global _eager, _compile, _compile_function
    _eager, _compile, _compile_function = Module.__call__, compile_module, compile_function
    Module.__call__ = _call  # type: ignore[method-assign]


def _prepare(module: Module, plain: bool, waited: bool = False) -> _Known:
    run, waits = None, False
    if not _gains(module) or _compiles_itself(module):
        pass
    elif not waited and _comes_and_goes(type(module)):
        waits = True
    else:
        if plain:
            run = _compile(module, dynamic=None, backend=backends.DEFAULT)
        else:  # a __call__ of the user's has run, and is not to run again
            run = _compile_function(
                types.MethodType(_eager, module), dynamic=None, backend=backends.DEFAULT
            )
    return _keep(_Known(module, run, plain, waits))


def _keep(known: _Known) -> _Known:
    at = id(known.module)
    for place in (_known, _idle):
        place.pop(at, None)
    place = _idle if known.run is None else _known
    place[at] = known
    if len(place) > _KEPT:
        place.popitem(last=False)
    return known


def _comes_and_goes(kind: type[Module]) -> bool:
    """Whether several Modules of a class were compiled and had few calls so far."""
    alike = [known for known in list(_known.values()) if type(known.module) is kind]
    return sum(known.calls < _FEW for known in alike) >= _ALIKE


def _gains(module: Module) -> bool:
    """Whether its calls are worth compiling: not where it is one operator that NumPy runs as
    fast."""
    if type(module) in (Linear, Embedding):
        return False
    return isinstance(module, _Loss) or next(module.parameters(), None) is not None


def _call(self: Module, *args: Any, **kwargs: Any) -> Any:
    if _inside.value or local.trace is not None or local.saved_hooks:
        return callout(_eager)(self, *args, **kwargs)
    at, plain = id(self), type(self).__call__ is _call
    known = _known.get(at) or _idle.get(at)
    if known is None or known.plain is not plain:
        known = _prepare(self, plain)
    known.calls += 1
    if known.waits:
        if known.calls < _FEW:  # what it calls is compiled where it is called often
            return callout(_eager)(self, *args, **kwargs)
        known = _prepare(self, plain, waited=True)
    run = known.run
    if run is not None:
        try:  # noqa: SIM105 (suppress() takes as long as the rest)
            _known.move_to_end(at)
        except KeyError:  # other threads' Modules have taken its place
            pass
    watching.tick(self, run is not None)
    _inside.value = True
    try:
        if run is None:
            return _eager(self, *args, **kwargs)
        try:
            if local.counted is None:
                return run(*args, **kwargs)
            with watching.paused():
                return run(*args, **kwargs)
        except Exception as error:
            if has_run(error):  # the script's own
                raise
            reason = error
        # the call changed nothing
        result = _eager(self, *args, **kwargs)
        _keep(_Known(self, None, plain))
        _warn(type(self).__name__, reason)
        return result
    finally:
        _inside.value = False


# --- functions -----------------------------------------------------------------------------------

# Functions of nn.functional that are several operators, and whose Python needs no value.
_LOSSES = """
    binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy
    hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss
    multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss
""".split()


def compile_losses(compiler: Callable[..., Any]) -> None:
    """From now on a call of a loss function, outside any Module's, runs compiled."""
    for name in _LOSSES:
        setattr(functional, name, _joined(getattr(functional, name), compiler))
    Joined.wrap = functools.partial(_joined, compiler=compiler, ticks=False)


def _joined(
    function: Callable[..., Any], compiler: Callable[..., Any], ticks: bool = True
) -> Callable[..., Any]:
    """`ticks`: its calls tell of the program's steps."""
    run: Callable[..., Any] | None = compiler(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal run
        if run is None or _inside.value or local.trace is not None or local.saved_hooks:
            return function(*args, **kwargs)
        _inside.value = True
        if ticks:
            watching.tick()
        try:
            try:
                if local.counted is None:
                    return run(*args, **kwargs)
                with watching.paused():
                    return run(*args, **kwargs)
            except Exception as error:
                if has_run(error):
                    raise
                reason = error
            result = function(*args, **kwargs)
            run = None
            _warn(function.__name__, reason)
            return result
        finally:
            _inside.value = False

    return call


_backward: Callable[..., Any] = vars(Tensor)["backward"]


def compile_functions() -> None:
    """From now on functions that run operators at each call, and are called often, are compiled."""
    register_methods({"backward": _pass})
    debugged.listen()


def _pass(self: Tensor, *args: Any, **kwargs: Any) -> None:
    if local.trace is None:
        watching.passed()
    return callout(_backward)(self, *args, **kwargs)


def _compiles_itself(module: Module) -> bool:
    """Whether it is the result of torch.compile()."""
    return "_compiled_function" in vars(type(module))


def _warn(name: str, reason: Exception) -> None:
    text = " ".join(str(reason).split()) or type(reason).__name__
    print(
        f"graphc: {name}, called at {user_location()}, runs eager: "
        f"{type(reason).__name__}: {text[:400]}",
        file=sys.stderr,
    )
