"""torch.func: composable transforms of functions: grad, vmap, vjp, jvp, Jacobians."""

from __future__ import annotations

import functools
from typing import Any

from ..frontend.vmap import vmap as vmap
from .gradients import grad as grad
from .gradients import grad_and_value as grad_and_value
from .gradients import jvp as jvp
from .gradients import linearize as linearize
from .gradients import vjp as vjp
from .jacobians import hessian as hessian
from .jacobians import jacfwd as jacfwd
from .jacobians import jacrev as jacrev
from .modules import functional_call as functional_call
from .modules import replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_
from .modules import stack_module_state as stack_module_state
from .tape import Function


def functionalize(func: Function, *, remove: str = "mutations") -> Function:
    """torch.func.functionalize: `func` itself, whose traces never hold mutations or views."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): Valid options for argument \"remove\" are:"
            f" [\"mutations\", \"mutations_and_views\"], got remove={remove}"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """torch.func.debug_unwrap: the tensor itself; transforms here do not wrap."""
    return tensor

# what torch's module of this name gives to `import *`
__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]
