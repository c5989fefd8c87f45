"""The functions, methods and properties that `__torch_function__` answers for, and their code.

They are graphc's as they are written, and ask nobody, until frontend/overriding.py says that there
is somebody to ask. Then each gets other code (engine/detour.py) that looks at the types of its
arguments first, and stays the object that users hold, compare with, and have imported. Properties
of plain tensors ask while there is a mode. Compiled functions that are given such arguments, or are
called in a mode, run as they are written.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

from . import late_names
from .collecting import IMPORTING
from .engine.capture.survey import NoGraph
from .engine.detour import interpose, restore
from .frontend import functions as T
from .frontend.context import Suspended, local
from .frontend.errors import TraceError, located
from .frontend.functions.subclasses import PRIVATE
from .frontend.overriding import ALL, NAMES, PLAIN, UNWRAPPED, answers, ask, those_asked
from .frontend.tensor import Tensor
from .frontend.tree import flatten

# torch's names of the modules that hold them
MODULES = {
    "torch": "graphc", "torch.functional": "graphc.functional",
    "torch.nn.functional": "graphc.nn.functional", "torch.nn.init": "graphc.nn.init",
    "torch.linalg": "graphc.linalg", "torch.fft": "graphc.fft", "torch.special": "graphc.special",
    "torch.autograd": "graphc.autograd",
}
# of these modules, which
_ONLY = {
    "torch.nn.init": frozenset("uniform_ normal_ constant_ kaiming_uniform_".split()),
    "torch.autograd": frozenset("backward grad".split()),
}
# that ask nobody, in torch either
UNASKED = frozenset("""
    typename is_tensor is_storage set_default_tensor_type set_default_device get_default_device
    set_default_dtype get_default_dtype set_rng_state get_rng_state manual_seed initial_seed seed
    save load set_printoptions get_num_threads set_num_threads get_num_interop_threads
    set_num_interop_threads is_anomaly_enabled is_anomaly_check_nan_enabled set_anomaly_enabled
    is_grad_enabled set_grad_enabled is_inference_mode_enabled set_flush_denormal compile explain
    compare vmap cond while_loop get_device_module set_float32_matmul_precision
    get_float32_matmul_precision use_deterministic_algorithms are_deterministic_algorithms_enabled
    is_deterministic_algorithms_warn_only_enabled set_deterministic_debug_mode
    get_deterministic_debug_mode is_warn_always_enabled set_warn_always can_cast promote_types
    broadcast_shapes from_numpy frombuffer from_dlpack
""".split())
_UNASKED_ELSEWHERE = frozenset(
    "upsample upsample_bilinear upsample_nearest all_listed tensors_only calculate_gain".split()
)
UNASKED_METHODS = frozenset("""
    __new__ __init__ __init_subclass__ __subclasshook__ __class__ __hash__ __iter__ __getattribute__
    __setattr__ __delattr__ __torch_function__ __torch_dispatch__ __getattr__ __getstate__
    __reduce__ __sizeof__ __str__ as_subclass new reinforce
""".split())
# whose data is no operand: modes alone are asked, and of methods the tensor itself
_OF_DATA = frozenset("tensor as_tensor asarray scalar_tensor sparse_coo_tensor".split())
_OF_DATA |= {"sparse_csr_tensor"}
_OF_ITSELF = frozenset("new_tensor new_empty new_zeros new_ones new_full".split())
# what Python's operators are to a handler, where it is not the method of that name
OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div",
    "__div__": "div", "__itruediv__": "div_", "__mod__": "remainder", "__imod__": "remainder_",
    "__matmul__": "matmul", "__ne__": "ne", "__lt__": "lt", "__le__": "le",
    "__gt__": "gt", "__ge__": "ge", "__neg__": "neg", "__abs__": "abs", "__pos__": "positive",
    "nelement": "numel",
}
_TRIED = frozenset("""
    __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__
    __rtruediv__ __itruediv__ __div__ __rdiv__ __idiv__ __mod__ __rmod__ __imod__ __matmul__
    __rmatmul__ __imatmul__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __pow__ __rpow__ __ipow__
    __floordiv__ __rfloordiv__ __ifloordiv__ __lshift__ __rlshift__ __ilshift__ __rshift__
    __rrshift__ __irshift__ __and__ __rand__ __iand__ __or__ __ror__ __ior__ __xor__ __rxor__
    __ixor__
""".split())
# of nn.functional, in torch a method by another name
_METHODS_OF = {"sigmoid": "sigmoid", "tanh": "tanh"}


class Overridable(NamedTuple):
    """A function that asks: under which name, and what a handler gets for it."""

    path: str
    function: Any  # a FunctionType
    handed: Any
    asked: Callable[..., Any] = ask

    @property
    def name(self) -> str:
        """What handlers find as the function's `__name__`: of a method, torch's."""
        is_method = self.path.startswith("torch.Tensor.") and self.handed is self.function
        return self.path.rpartition(".")[2] if is_method else self.function.__name__


class _Table(NamedTuple):
    functions: list[Overridable]
    getters: list[Overridable]  # of properties


# --- how they ask ---------------------------------------------------------------------------------


def _ask_modes(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return ask(handed, own, args, kwargs, ())


def _ask_itself(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return ask(handed, own, args, kwargs, args[:1])


def _ask_item(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """x[i] and x[i] = value: the indices answer, too."""
    index = args[1] if type(args[1]) is tuple else args[1:2]
    return ask(handed, own, args, kwargs, (args[0], *index, *args[2:]))


def _ask_einsum(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """einsum(equation, [x, y]) is einsum(equation, x, y) to whom it concerns; modes see a list."""
    if not local.function_modes and len(args) == 2 and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])
    return ask(handed, own, args, kwargs)


def _ask_operator(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Python tries the other operand's method where a handler raises TypeError."""
    if not local.function_modes and (local.overriding_off or not those_asked(args)):
        return own(*args, **kwargs)
    try:
        return ask(handed, own, args, kwargs)
    except TypeError:
        return NotImplemented


def _ask_compiled(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call of a compiled function runs as it is written where somebody is to see what it does."""
    compiled, *given = args
    why = _seen_by(compiled.name, given, kwargs)
    if why is None:
        return own(*args, **kwargs)
    if compiled.fullgraph:
        raise TraceError(located(why))
    return compiled.function(*given, **kwargs)


def _ask_look(handed: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What compile() would make of a call (explain())."""
    compiled, given, named = args
    why = _seen_by(compiled.name, given, named)
    return own(*args, **kwargs) if why is None else NoGraph([], TraceError(located(why)))


def _seen_by(name: str, args: Any, kwargs: Any) -> str | None:
    """Who answers calls in a function, which is therefore not compiled; None: nobody."""
    if local.overriding_off == ALL:
        return None
    who, cure = "", "call it outside of the mode"
    if local.function_modes:
        who = f"the mode {type(local.function_modes[-1]).__name__}"
    else:
        found = next((x for x in flatten((args, kwargs))[0] if answers(x)), None)
        if found is not None:
            who = f"{type(found).__name__}.__torch_function__ (an argument)"
            cure = "hand over x.as_subclass(torch.Tensor), or detach() what needs no gradient"
        elif local.overriding_off:
            who, cure = "the handler that calls it", "call it outside of __torch_function__"
    if not who:
        return None
    return f"compiled {name}() runs as eager code: {who} answers its calls. Cure: {cure}"


# --- what there is --------------------------------------------------------------------------------


def _names(module: str) -> Iterable[str]:
    found = importlib.import_module(MODULES[module])
    if module in _ONLY:
        return _ONLY[module]
    if module != "torch":
        listed = getattr(found, "__all__", ())
        return listed if module == "torch.nn.functional" else [
            name for name in dir(found) if name in listed or name[0] != "_"
        ]
    lists = (T.NAMES, late_names.PLACES, found._NN_FUNCTIONS, ("_assert",))
    return dict.fromkeys(name for names in lists for name in names)


def _is_ours(value: Any) -> bool:
    return isinstance(value, FunctionType) and (
        str(value.__globals__.get("__name__")).startswith("graphc")
    )


def public(module: str) -> Iterator[tuple[str, Any]]:
    """The functions of one of torch's modules that ask, by name."""
    home = importlib.import_module(MODULES[module])
    without = UNASKED if module == "torch" else _UNASKED_ELSEWHERE
    for name in _names(module):
        value = getattr(home, name, None)
        if _is_ours(value) and name not in without and not name.startswith("_check"):
            yield name, value


def methods() -> Iterator[tuple[str, FunctionType]]:
    """Tensor's methods that ask, by name; not those that a program has put there."""
    for name, value in vars(Tensor).items():
        if _is_ours(value) and UNASKED_METHODS.isdisjoint((name, value.__name__)) and (
            not name.startswith("_graphc_")
        ):
            yield name, value


def properties() -> Iterator[tuple[str, property]]:
    """Tensor's properties that ask, by name."""
    for name, value in vars(Tensor).items():
        if isinstance(value, property) and (name[0] != "_" or name in PRIVATE):
            yield name, value


def _functions() -> Iterator[Overridable]:
    for module in MODULES:
        for name, function in public(module):
            method = _METHODS_OF.get(name) if module == "torch.nn.functional" else None
            handed = function if method is None else getattr(Tensor, method)
            asked = (
                _ask_modes if name in _OF_DATA else _ask_einsum if name == "einsum" else ask
            )
            yield Overridable(f"{module}.{name}", function, handed, asked)
    # an operator's function may be the method's: which is listed first
    for name, function in sorted(methods(), key=lambda item: item[0] in OPERATORS):
        handed = getattr(Tensor, OPERATORS.get(name, name), function)
        asked = (
            _ask_operator if name in _TRIED else _ask_itself if name in _OF_ITSELF else
            _ask_item if name in ("__getitem__", "__setitem__") else ask
        )
        yield Overridable(f"torch.Tensor.{name}", function, handed, asked)


def _getters() -> Iterator[Overridable]:
    for name, own in properties():
        for part, function, handed in (
            ("__get__", own.fget, own.__get__), ("__set__", own.fset, own.__set__),
            ("__delete__", own.fdel, own.__delete__),
        ):
            if isinstance(function, FunctionType):
                yield Overridable(f"torch.Tensor.{name}.{part}", function, handed)


@functools.cache
def table() -> _Table:
    """All that ask; each function once."""
    with IMPORTING, Suspended():
        functions = {id(each.function): each for each in reversed([*_functions()])}
        getters = {id(each.function): each for each in _getters()}
    own = [each for number, each in getters.items() if number not in functions]
    return _Table([*reversed(functions.values())], own)


@functools.cache
def _changes(getters: bool) -> list[tuple[FunctionType, Callable[[], None]]]:
    found = table().getters if getters else table().functions
    if not getters:
        compiled: Any = importlib.import_module("graphc.compile").CompiledFunction
        found = [*found, Overridable("", compiled.__call__, None, _ask_compiled)]
        found.append(Overridable("", compiled.look_at, None, _ask_look))
    changes = []
    for each in found:
        each.function.__name__ = each.name
        changes.append((each.function, interpose(each.function, each.asked, each.handed, PLAIN)))
    return [(function, change) for function, change in changes if change is not None]


def change(functions: bool, getters: bool) -> None:
    """Have the functions ask, or no longer, and the properties."""
    if not NAMES:
        UNWRAPPED.add(vars(Tensor)["grad"].__get__)
        for each in (*table().functions, *table().getters):
            NAMES.setdefault(each.handed, each.path)
    for of_properties, wanted in ((False, functions), (True, getters)):
        if wanted == (of_properties in _asking):
            continue
        for function, begin in _changes(of_properties):
            if wanted:
                begin()
            else:
                restore(function)
        _asking.symmetric_difference_update((of_properties,))


_asking: set[bool] = set()  # which of the two do
