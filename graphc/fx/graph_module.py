"""torch.fx.graph_module: a Module whose forward is the code of a Graph."""

from __future__ import annotations

import copy
import functools
import linecache
import operator
from typing import Any

from .. import unsupported
from ..frontend.tensor import Tensor
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from .graph import Graph, PythonCode

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_CURE = "save its state_dict(), and trace the Module again before loading it"


class _CodeOnlyModule(Module):
    """A Module with the attributes of another."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give to_module the attribute at a path of from_module, with the Modules on the way."""
    *way, name = target.split(".")
    for part in way:
        if getattr(from_module, part) is getattr(to_module, part, None):
            return  # the whole submodule is there
        if not hasattr(to_module, part):
            setattr(to_module, part, Module())
        from_module, to_module = getattr(from_module, part), getattr(to_module, part)
    value = getattr(from_module, name)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(name, value)
    else:
        setattr(to_module, name, value)


class GraphModule(Module):
    """A Graph with the parameters and submodules of `root` that it reads. Each object has a class
    of its own, whose forward is the Graph's code."""

    _GENERATED = "_graphc_generated"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An object of a new class."""
        base = cls.__mro__[1] if cls._GENERATED in vars(cls) else cls
        made = type(base.__name__, (base,), {cls._GENERATED: True, "__module__": base.__module__})
        return super().__new__(made)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        read = [
            str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")
        ]
        if isinstance(root, Module):
            self.training = root.training
            for target in read:
                _copy_attr(root, self, target)
        else:
            missing = [target for target in read if target not in root]
            if missing:
                raise RuntimeError(
                    f"the Graph references target {missing[0]}, which is not among the attributes "
                    "that `root` has"
                )
            tree = Module()
            for target in sorted(read, key=lambda each: each.count(".")):
                *way, name = target.split(".")
                place = tree
                for part in way:
                    if not hasattr(place, part):
                        setattr(place, part, Module())
                    place = getattr(place, part)
                setattr(place, name, root[target])
                _copy_attr(tree, self, target)
        self.meta: dict[str, Any] = {}
        self._tracer_cls = None
        if graph._tracer_cls is not None and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The Graph; after a change of it, call recompile()."""
        found: Graph = self.__dict__["_graph"]
        return found

    @graph.setter
    def graph(self, g: Graph) -> None:
        object.__setattr__(self, "_graph", g)
        g.owning_module = self
        self.recompile()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "graph":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def code(self) -> str:
        """The text of forward."""
        found: str = self.__dict__["_code"]
        return found

    def recompile(self) -> PythonCode:
        """Make forward of the Graph as it is now."""
        code = self.graph.python_code()
        object.__setattr__(self, "_code", code.src)
        type(self).forward = _function(code)
        return code

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a Module at a path; False where something else is on the way."""
        *way, name = target.split(".")
        place: Any = self
        for part in way:
            if not hasattr(place, part):
                setattr(place, part, Module())
            place = getattr(place, part)
            if not isinstance(place, Module):
                return False
        place.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take away the Module at a path; False where there is none."""
        *way, name = target.split(".")
        try:
            place = functools.reduce(getattr, way, self)
            found = isinstance(getattr(place, name), Module)
        except AttributeError:
            return False
        if found:
            delattr(place, name)
        return found

    def delete_all_unused_submodules(self) -> None:
        """Take away the Modules that no Node reads."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("get_attr", "call_module"):
                parts = str(node.target).split(".")
                used |= {".".join(parts[: i + 1]) for i in range(len(parts))}
                if node.op == "call_module":
                    inner = self.get_submodule(str(node.target))
                    used |= {f"{node.target}.{name}" for name, _ in inner.named_modules()}
        for name in [name for name, _ in self.named_modules()]:
            if name and name not in used:
                self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The code of forward, which is printed, too."""
        body = "".join(f"    {line}\n" for line in self.code.strip().splitlines())
        text = f"class {type(self).__name__}(torch.nn.Module):\n{body}"
        if print_output:
            print(text)
        return text

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        type(made).__name__ = type(self).__name__
        made.graph = made.__dict__["_graph"]
        return made

    def __copy__(self) -> GraphModule:
        return GraphModule(self, self.graph, type(self).__name__)

    def __reduce__(self) -> Any:
        unsupported.refuse("the pickle of a torch.fx.GraphModule", _CURE)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.code}\n# To see more debug info, please use " \
            "`graph_module.print_readable()`"


_count = iter(range(1 << 62))


def _function(code: PythonCode) -> Any:
    """The function of a text, whose lines tracebacks show."""
    name = f"<eval_with_key>.{next(_count)}"
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(True), name)
    names = {**code.globals, "operator": operator}
    exec(compile(code.src, name, "exec", dont_inherit=True), names)
    return names["forward"]
