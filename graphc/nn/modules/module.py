"""nn.Module: registration, traversal, state dicts, hooks and conversion, as in torch."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import graphc
from graphc.ir.late import late

from ...frontend import functions as T
from ...frontend import state_version
from ...frontend.clear_grad import clear_grad
from ...frontend.context import local
from ...frontend.grad_mode import no_grad
from ...frontend.shared_memory import share_tensors
from ...frontend.tensor import Parameter, Tensor
from ...frontend.watched import Watched, WatchedOrdered
from ..parameter import Buffer, is_lazy
from .conversion import parse_to
from .hooks import EVERYWHERE, HookHandle, call_with_hooks, run_registration_hooks
from .module_notes import note_module
from .state import _EXTRA_STATE_KEY_SUFFIX as _EXTRA_STATE_KEY_SUFFIX
from .state import (
    StateDictMixin,
    _IncompatibleKeys,  # noqa: F401 (torch's place of it)
)
from .traversal import TraversalMixin

_REGISTRIES = ("_parameters", "_buffers", "_modules")


# what users of other frameworks, and of torch.jit, ask of a model
_CURES = {
    "save": ". Cure: torch.save(model.state_dict(), path), or torch.jit.trace(model, args)"
            ".save(path), which runs without the model's code",
}
_jit = late("graphc.jit")


def _indent(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *("  " + line for line in rest)])


def _no_forward(self: Module, *input: Any) -> Any:
    """The computation, which every subclass defines."""
    raise NotImplementedError(
        f'Module [{type(self).__name__}] is missing the required "forward" function'
    )


class Module(TraversalMixin, StateDictMixin):
    """Base class of all neural network modules (torch.nn.Module)."""

    training: bool
    _version: int = 1
    call_super_init: bool = False
    dump_patches: bool = False
    _compiled_call_impl: Callable[..., Any] | None = None
    forward: Callable[..., Any] = _no_forward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                f"'{next(iter(kwargs))}'"
            )
        if args:
            raise TypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but "
                f"{len(args) + 1} were given"
            )
        write = object.__setattr__
        write(self, "training", True)
        for registry in _REGISTRIES:
            write(self, registry, Watched())
        write(self, "_non_persistent_buffers_set", set())
        for hooks in (
            "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks",
            "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called",
            "_backward_hooks", "_backward_pre_hooks",
            "_state_dict_hooks", "_state_dict_pre_hooks",
            "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
        ):
            write(self, hooks, WatchedOrdered())

    # --- attributes ---------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for registry in _REGISTRIES:
            entries = fields.get(registry)
            if entries is not None and name in entries:
                return entries[name]
        if name == "save" and _jit.examples_of(self) is not None:
            return partial(_jit.save, self)
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'{_CURES.get(name, '')}",
            name=name, obj=self,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        state_version.bump()
        fields = self.__dict__
        parameters, buffers, modules = (fields.get(registry) for registry in _REGISTRIES)
        if isinstance(value, Tensor) and isinstance(value, Parameter):  # the first check is quick
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._graphc_forget(name, "_parameters")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            parameters[name] = None
        elif isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._graphc_forget(name, "_modules")
            if EVERYWHERE["module"]:
                value = run_registration_hooks("module", self, name, value)
            modules[name] = value
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            modules[name] = None
        elif isinstance(value, Buffer) and buffers is not None:
            self._graphc_forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif buffers is not None and name in buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as buffer '{name}' "
                    "(torch.Tensor or None expected)"
                )
            buffers[name] = value
        else:
            object.__setattr__(self, name, value)
            state_version.bump()  # another thread may have looked since

    def _graphc_forget(self, name: str, keep: str) -> None:
        self.__dict__.pop(name, None)
        for registry in _REGISTRIES:
            if registry != keep:
                self.__dict__[registry].pop(name, None)
        self.__dict__["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        state_version.bump()
        for registry in _REGISTRIES:
            if name in self.__dict__[registry]:
                del self.__dict__[registry][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = set(dir(type(self))) | set(self.__dict__)
        for registry in _REGISTRIES:
            names |= set(self.__dict__[registry])
        return sorted(name for name in names if not name[:1].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for registry in _REGISTRIES:
            if not isinstance(entries := self.__dict__.get(registry), Watched | None):
                self.__dict__[registry] = Watched(entries)
        for name, value in state.items():
            if name.endswith("_hooks") and type(value) is OrderedDict:
                self.__dict__[name] = WatchedOrdered(value)

    # --- registration -------------------------------------------------------------------

    def _graphc_check_name(self, name: Any, kind: str, registry: str) -> None:
        if registry not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[registry]:
            raise KeyError(f"attribute '{name}' already exists")
        state_version.bump()

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not a parameter; in state_dict if persistent."""
        self._graphc_check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        if EVERYWHERE["buffer"]:
            tensor = run_registration_hooks("buffer", self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter. Raises TypeError for a Tensor that is not a Parameter."""
        self._graphc_check_name(name, "parameter", "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly. To express '" + name + "' as a function of another Tensor, "
                "compute the value in the forward() method."
            )
        if EVERYWHERE["parameter"]:
            param = run_registration_hooks("parameter", self, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        self._graphc_check_name(name, "module", "_modules")
        if EVERYWHERE["module"]:
            module = run_registration_hooks("module", self, name, module)
        self._modules[name] = module

    register_module = add_module

    # --- calling ------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self._compiled_call_impl
        if compiled is not None:
            return compiled(*args, **kwargs)
        if local.nested is not None:
            return local.nested(Module._graphc_call_named, self, args, kwargs)
        if local.trace is None:
            return self._call_impl(*args, **kwargs)
        return self._graphc_call_named(*args, **kwargs)

    def _graphc_call_named(self, *args: Any, **kwargs: Any) -> Any:
        """The call; what a trace records in it carries the path of this Module."""
        if local.trace is not None:
            with local.trace.inside(self):
                return self._call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        fields = self.__dict__
        try:
            if not (
                fields["_forward_hooks"] or fields["_forward_pre_hooks"]
                or fields["_backward_hooks"] or fields["_backward_pre_hooks"]
                or EVERYWHERE["calls"]
            ):
                return self.forward(*args, **kwargs)
            return call_with_hooks(self, args, kwargs)
        except Exception as error:
            note_module(self, error)
            raise

    _wrapped_call_impl = _call_impl

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """From now on calls run a compiled forward; takes the arguments of graphc.compile."""

        def call(*inputs: Any, **named: Any) -> Any:
            return self._call_impl(*inputs, **named)

        # as the user would: the compiler is loaded when first asked for, and may be switched off
        object.__setattr__(self, "_compiled_call_impl", graphc.compile(call, *args, **kwargs))

    def __getstate__(self) -> dict[str, Any]:
        # a file names plain containers only, as weights_only=True wants
        return {
            k: dict(v) if k in _REGISTRIES else (
                # one with hooks is copied as it is: their handles hold it, too
                OrderedDict() if isinstance(v, WatchedOrdered) and not v else v
            ) for k, v in self.__dict__.items() if k != "_compiled_call_impl"
        }

    def _graphc_hook(
        self, registry: str, hook: Callable[..., Any], prepend: bool = False
    ) -> HookHandle:
        state_version.bump()
        return HookHandle.register(self.__dict__[registry], hook, prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """hook(module, args, output) -> None or a new output, after each forward."""
        handle = self._graphc_hook("_forward_hooks", hook, prepend)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """hook(module, args) -> None or new args, before each forward."""
        handle = self._graphc_hook("_forward_pre_hooks", hook, prepend)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> HookHandle:
        """hook(module, grad_input, grad_output) -> None or a new grad_input."""
        return self._graphc_hook("_backward_hooks", hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> HookHandle:
        """hook(module, grad_output) -> None or a new grad_output."""
        return self._graphc_hook("_backward_pre_hooks", hook, prepend)

    # --- modes and conversion -----------------------------------------------------------

    def train(self, mode: bool = True) -> Module:
        """Set training mode for self and every submodule, by the train() of each child."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        """Set evaluation mode: train(False)."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Set requires_grad of every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of every parameter."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            else:
                clear_grad(parameter)

    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Call fn on every submodule, children first, then self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        for module in self.children() if recurse else ():
            module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            grad = parameter.grad
            with no_grad():
                before = parameter.data
                after = fn(before)
                if after is not before:
                    parameter.grad = None  # its dtype may not fit from here on
                    parameter.data = after
                if grad is not None:
                    parameter.grad = fn(grad)
        for name, buffer in self._buffers.items():
            if buffer is None:
                continue
            if is_lazy(buffer):  # which stays one
                buffer.data = fn(buffer.data)
            else:
                self._buffers[name] = fn(buffer)
        state_version.bump()
        return self

    def to(self, *args: Any, **kwargs: Any) -> Module:
        """Convert parameters and buffers: a device, a dtype (floating point only), a tensor."""
        device, dtype, layout = parse_to(*args, **kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got "
                f"desired dtype={dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            cast = dtype if tensor.is_floating_point() else None
            order = layout if tensor.dim() in (4, 5) else None
            return tensor.to(device=device, dtype=cast, memory_format=order)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """State of the same shapes whose values do not matter."""
        return self._apply(lambda tensor: T.empty_like(tensor, device=device), recurse)

    def type(self, dst_type: Any) -> Module:
        """Cast every parameter and buffer."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def _graphc_cast(self, method: str) -> Module:
        return self._apply(
            lambda tensor: getattr(tensor, method)() if tensor.is_floating_point() else tensor
        )

    def float(self) -> Module:
        """Cast floating-point state to float32."""
        return self._graphc_cast("float")

    def double(self) -> Module:
        """Cast floating-point state to float64."""
        return self._graphc_cast("double")

    def half(self) -> Module:
        """Cast floating-point state to float16."""
        return self._graphc_cast("half")

    def bfloat16(self) -> Module:
        """Cast floating-point state to bfloat16."""
        return self._graphc_cast("bfloat16")

    def cpu(self) -> Module:
        """Move state to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def share_memory(self) -> Module:
        """Put parameters, their gradients and buffers into memory that processes share."""
        tensors = [*self.parameters(), *self.buffers()]
        tensors += [p.grad for p in self.parameters() if p.grad is not None]
        share_tensors(tensors)  # at once: one file for all of them
        return self

    def cuda(self, device: Any = None) -> Module:
        """Move state to a GPU."""
        return self._apply(lambda tensor: tensor.cuda(device))

    # --- text ---------------------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """What repr shows between the parentheses; override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [
            f"({name}): {_indent(repr(module))}" for name, module in self._modules.items()
        ]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join(itertools.chain(lines, children))
        return f"{self._get_name()}(\n  {body}\n)"


from .hooks import (  # noqa: E402, I001 (torch's place of these)
    register_module_backward_hook as register_module_backward_hook,
    register_module_buffer_registration_hook as register_module_buffer_registration_hook,
    register_module_forward_hook as register_module_forward_hook,
    register_module_forward_pre_hook as register_module_forward_pre_hook,
    register_module_full_backward_hook as register_module_full_backward_hook,
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
    register_module_module_registration_hook as register_module_module_registration_hook,
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
)


def _type_name(value: Any) -> str:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return str(value.type())
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
