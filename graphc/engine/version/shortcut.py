"""A version, for calls like one that it has run: guards and memory are asked by native code.

A Shortcut is made of a call that a version has just run. It stands for arguments of the same
classes, shapes and values, in the same modes; where anything is not exactly as it was, it says
MISSED before it has done anything, and the call goes the long way, which decides. So it can be
wrong in one direction only: what it does ask, it asks for identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import config as configuration
from ...backends.host import entry_words as bits
from ...backends.host.entry import Conditions, Entry, Gradient, TensorFacts
from ...backends.host.watched import Steps
from ...frontend import promote, state_version
from ...frontend.captured import NumberInput, TensorInput
from ...frontend.context import _Local, local
from ...frontend.history import gradient_kind
from ...frontend.number_expr import is_late
from ...frontend.random_state import turns_of
from ...frontend.storage import readers
from ...frontend.tensor import Parameter, Tensor
from ...frontend.tree import LEAVES, Structure, flatten_call
from ...frontend.values import Eager
from ...ir.named import NamedTuple
from ..built import Built, before_write, concrete_shape, kept_for_backward
from ..capture.streams import Draw
from ..marks import Compilers
from ..native_run import SMALL, can_be_borrowed, native_code
from .call import Call
from .gradients_left import former_memory, found_natively, overwriting
from .guard_list import ask
from .guards import Guard
from .guards_of_calls import Differentiable, GradIsThere, HooksOf, Identity, SameArgument
from .native_guards import ask_natively, is_known
from .number_policy import decided_upon
from .plain_history import finished, plain_history
from .plain_results import plain_results
from .refused import ERRORS, is_refusal, mark, run_python
from .sources import Stale, number_array, source_value
from .version import Specialisation
from .whole_call import WholeCall, whole_of

if TYPE_CHECKING:
    from .versions import Versions

MISSED = object()
UNASKED = -2
_NOT_ALIKE = -1  # the least number of a condition: that of how many arguments there are
_RENEWED = 4  # times that native code was wrong to ask what is counted
_UNSPARED = 4  # calls that found gradients in use, before no more are kept
# of a thread: what a version's key, and the way to it, ask
_MODES = ("trace", "counted", "instead", "grad", "inference", "place", "autocast", "saved_hooks")


class Counted(NamedTuple):
    """The guards of a version that can only break when the count of writes grows: those that native
    code asks, and those that Python is asked."""

    entry: Entry
    asked: list[Guard]


class Shortcut:
    """One way into a version."""

    def __init__(
        self, version: Specialisation, structure: Structure, leaves: list[Any], call: Call,
        entry: Entry, asked: list[Guard], owners: list[Any], gradients: list[Gradient],
        overwritten: list[Gradient],
    ) -> None:
        """`call`: like the one that was run; `asked`: guards that Python asks; `owners`: the guard
        of each condition; `gradients`: all that it leaves, where native code may find memory for
        them; `overwritten`: those that are written in the place of those before."""
        self.version, self.structure = version, structure
        positional, named = structure.children
        self.flat = all(type(leaf) in LEAVES for leaf in leaves) and all(
            part.kind is None for part in (*positional.children, *named.children)
        )
        self.names = named.keys
        self.check, self._run, self.done, self.entry = entry.check, entry.run, entry.done, entry
        self.asked, self.owners = asked, owners
        self.guards = version.guards
        engine = version.engine
        self.executable = engine.built.executable
        self.dims = call.dims
        self.sizes = tuple([call.dims[name] for name in engine.dims])
        types = [(concrete_shape(t, call.dims), t.dtype.numpy) for t in engine.output_types]
        turned = {gradient.output for gradient in gradients if gradient.order is not None}
        # those that get new memory: number, whether it is NumPy who gives such memory
        self.outputs = [
            (i, i not in turned and math.prod(shape) * dtype.itemsize <= SMALL, shape, dtype)
            for i, (shape, dtype) in enumerate(types) if i not in engine.mutated
        ]
        self.gradients, self.overwritten = gradients, overwritten
        at = {gradient.output for gradient in gradients}
        self.other_outputs = [output for output in self.outputs if output[0] not in at]
        self.counted, self.renewed = _counted_of(version), 0
        plain = plain_results(version, call.dims) if gradients or not version.traced.grads else None
        self.plain, self.results = plain, plain if version.plan is None else None
        self.history = plain_history(version, plain, call.dims)
        self.makes = None if version.rebuild.gives_its_leaf else version.rebuild.make
        # as engine.states: (number of the argument or -1, tensor)
        self.states: list[tuple[int, Any]] = [
            (source.index, source.tensor) for source in [version.inputs[i] for i in engine.states]
            if type(source) is TensorInput
        ]
        self.unspared = 0  # calls in a row that found gradients in use
        self.allocate = engine.allocate
        self.config, self.stance = configuration.current(), Compilers.stance
        self.dtype = promote.Defaults.dtype
        self.has_numbers = bool(version.computed or version.traced.numbers)
        self.numbers: tuple[list[Any], dict[Any, Any], list[tuple[int, Any]]] | None = None
        self.missed: int | None = None  # the condition that did not hold last
        self.native = native = whole_of(self)
        direct = native is not None and native.alone and self.flat and not self.names
        self.direct = native if direct and version.constants is None else None

    def owner(self, condition: int) -> Guard | None:
        """The guard on state that a condition stands for."""
        found: Guard | None = self.owners[condition] if 0 <= condition < len(self.owners) else None
        return found

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call's result, or MISSED."""
        version = self.version
        if self.flat:
            if tuple(kwargs) != self.names:
                return MISSED
            leaves: Any = (*args, *kwargs.values()) if kwargs else args
        else:
            found, structure = flatten_call(args, kwargs)
            if structure != self.structure:
                return MISSED
            leaves = tuple(found)
        if version.constants is not None and not version.constants.renew():
            return MISSED  # asked before memory is fetched
        native = self.native
        if native is not None:
            result = native.run(self, leaves)
            if type(result) is not int:
                return result
            if result >= _NOT_ALIKE:
                self.missed = result
                return MISSED
        if (
            Compilers.stance is not self.stance or promote.Defaults.dtype is not self.dtype
            or configuration.current() is not self.config or Steps.watch is not None
            or (Eager.elsewhere is not None and local.place is not None)
        ):
            return MISSED
        executable = self.executable
        lease = executable.borrow(self.sizes)
        ran = False
        try:
            answer = self.check(leaves, lease.address)
            if answer is not None and answer is not True:
                self.missed = answer
                return MISSED
            call = Call(leaves, (args, kwargs))
            call.dims, call.graded = self.dims, answer is True
            if not self._holds(call, lease):
                return MISSED
            if self.states:
                with turns_of([
                    (call.arguments[index] if index >= 0 else tensor)._graphc_array
                    for index, tensor in self.states
                ]):
                    self._call(call, lease)
            else:
                self._call(call, lease)
            ran = True
        finally:
            self.done(lease.address, ran)
            executable.give_back(lease)
        if self.gradients and not call.graded:
            return self._with_new_gradients(call)
        if self.history is not None:
            made = self.history.of(call)
        elif self.results is not None:
            made = [each.of(call.results[each.output]) for each in self.results]
        else:
            return finished(self, call)
        return made[0] if self.makes is None else self.makes(made)[0]

    def _with_new_gradients(self, call: Call) -> Any:
        """The end of a call that found no spares: the gradients from before it are the next."""
        found = [gradient.tensor._grad for gradient in self.gradients]
        result = self.version.finish(call)
        self.unspared += 1
        if self.unspared < _UNSPARED and all(type(grad) is Tensor for grad in found):
            self.entry.keep(*found)
        return result

    def _holds(self, call: Call, lease: Any) -> bool:
        """Whether what Python is asked holds, too; run-time numbers are fetched."""
        guards = self.guards
        if state_version.current() != guards.version and not self._counted_hold(lease):
            return False
        for guard in self.asked:
            if not guard.holds_for(call):
                return False
        if self.has_numbers:
            try:
                call.numbers = self.number_arrays(call)
            except Stale:
                return False
            for number, array in call.numbers:
                self.executable.point(lease, number, array)
        return guards.last_broken() is None

    def _counted_hold(self, lease: Any) -> bool:
        """Whether guards hold that can only break when the count of writes grows; it has."""
        version, counted = state_version.current(), self.counted
        if counted is not None and counted.entry.check((), lease.address) is None and all(
            guard.holds() for guard in counted.asked
        ):
            self.guards.version = version
            return True
        self.counted = None
        if self.guards.counted_broken() is not None:
            return False
        self.renewed += 1
        if self.renewed < _RENEWED:  # others that are equal may come with every call
            self.counted = _counted_of(self.version)
        return True

    def number_arrays(self, call: Call) -> list[tuple[int, Any]]:
        """Run-time numbers as arrays: those of the last call, where nothing has changed."""
        version = self.version
        values = [source_value(source, was, call.arguments) for source, was in version.sources]
        last = self.numbers
        if last is None or any(a is not b for a, b in zip(values, last[0], strict=True)):
            sources = dict(zip((source for source, _ in version.sources), values, strict=True))
            call.sources = sources
            ask(self.guards.of_numbers, call)
            arrays = [
                (source.number, number_array(source, sources, call.dims))
                for source in version.computed
            ]
            self.numbers = last = values, sources, arrays
        call.sources = last[1]
        return last[2]

    def _call(self, call: Call, lease: Any) -> None:
        """The native run, and the history of its results."""
        version, executable = self.version, self.executable
        plan, mutated = version.plan, version.engine.mutated
        if readers and version.traced.mutations:
            before_write(version.written(call.arguments))
        results: list[Any] = [None] * len(version.engine.output_types)
        if plan is not None and (self.history is None or self.history.copies):
            call.arrays = version.arrays_of_tensors(call.arguments)
            for number, array in call.numbers:
                call.arrays[number] = array
            call.before = kept_for_backward(plan.read, call.arrays, mutated)
            for i, target in mutated.items():
                results[i] = call.arrays[target]
        made: list[Any] = []
        overwritten = self.overwritten if not call.graded else []
        former = former_memory(overwritten) if overwritten else {}
        for i, small, shape, dtype in self.other_outputs if call.graded else self.outputs:
            if i in former:
                array = former[i]
            else:
                array = np.empty(shape, dtype) if small else self.allocate(shape, dtype)
            results[i] = array
            made.append(array)
        call.results = results
        if call.graded:
            self.unspared = 0
        if self._run(lease.address, *made):
            error = executable.failure(lease)
            if isinstance(error, ERRORS):
                mark(error)
            raise error
        version.python_calls += 1
        if plan is not None and self.history is None:
            version.begin_flags(call.arguments)
            call.history = plan.history(version, call, call.before)


def take(
    versions: Versions, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    direct: WholeCall | None, asked: int,
) -> Any:
    """The result of a call by the first shortcut that fits, which the next call tries first, or
    MISSED; a call that native code refuses runs in eager mode. `asked`: the number that `direct`
    has given for this call, or UNASKED."""
    shortcuts = versions.shortcuts
    for shortcut in shortcuts:
        if asked >= _NOT_ALIKE and shortcut.direct is direct:
            shortcut.missed = asked
            continue
        try:
            result = shortcut.run(args, kwargs)
        except ERRORS as error:
            if not is_refusal(error):
                raise
            break
        if result is not MISSED:
            if shortcut is not shortcuts[0] and versions.shortcuts is shortcuts:
                versions.shortcuts = (shortcut, *[s for s in shortcuts if s is not shortcut])
            return result
    else:
        return MISSED
    return run_python(function, args, kwargs)


# --- making one -----------------------------------------------------------------------------------


def shortcut_of(
    version: Specialisation, structure: Structure, leaves: list[Any], given: Any
) -> Shortcut | None:
    """A way for calls like the one that a version has just run; None where Python is to decide."""
    code = native_code() if _can_be_asked(version) else None
    if code is None:
        return None
    call = Call(leaves, given)
    try:
        known = filter(is_known, version.guards.on_state())
        if not all(guard.holds() for guard in known):  # others are asked when a call takes it
            return None
        call.arrays = version.arrays_of_tensors(leaves)
        ask(version.guards.of_calls, call)
        ask(version.guards.of_memory, call)
        ask(version.guards.of_fetched, call)
    except Stale:
        return None
    conditions, asked, owners = Conditions(), list[Guard](), list[Any]()
    modes = [(name, getattr(_Local, name), getattr(local, name)) for name in _MODES]
    conditions.modes(code, local, modes)
    if not _of_arguments(version, leaves, conditions):
        return None
    tensors = _tensors(version, call)
    if tensors is None:
        return None
    # those of arguments first: they tell a call for another shortcut
    for facts in tensors:
        if facts.argument >= 0:
            conditions.tensor(facts)
    for guard in version.guards.of_calls:
        if isinstance(guard, GradIsThere):
            if not _gradient(guard, leaves, conditions):
                return None
        elif isinstance(guard, SameArgument):
            conditions.same(guard.index, guard.other, True)
        elif isinstance(guard, Identity) and type(guard.a) is int and (
            isinstance(guard.b, (int, Tensor))
        ):
            conditions.same(guard.a, guard.b, guard.same)
        elif not isinstance(guard, Differentiable) and not (
            isinstance(guard, HooksOf) and not guard.hooks
        ):
            asked.append(guard)
    owners += [None] * (len(conditions.words) - len(owners))
    first = len(owners)
    for guard in version.guards.loose:
        if guard in version.asked_by_python or not ask_natively(guard, conditions):
            asked.append(guard)
        owners += [guard] * (len(conditions.words) - len(owners))
    conditions.gather(first, owners)
    for facts in tensors:
        if facts.argument < 0:
            conditions.tensor(facts)
    overwritten = overwriting(version, call.dims)
    conditions.gradients += found_natively(version, call.dims, overwritten)
    executable = version.engine.built.executable
    entry = Entry(
        code, conditions, len(version.inputs), len(leaves), executable.first_input,
        executable.first_held, bool(version.traced.mutations), len(version.engine.output_types),
        version.engine.mutated, executable.code, executable.releases,
    )
    return Shortcut(
        version, structure, leaves, call, entry, asked, owners, conditions.gradients, overwritten
    )


def _counted_of(version: Specialisation) -> Counted | None:
    """They hold now."""
    code, conditions, asked, owners = native_code(), Conditions(), list[Guard](), list[Any]()
    if code is None:
        return None
    for guard in version.guards.counted:
        if guard in version.asked_by_python or not ask_natively(guard, conditions):
            asked.append(guard)
        owners += [guard] * (len(conditions.words) - len(owners))
    conditions.gather(0, owners)
    return Counted(Entry(code, conditions, 0, 0, 0, 0, False, 0, {}, 0, False), asked)


def _can_be_asked(version: Specialisation) -> bool:
    """Whether what a version fetches and leaves is of the usual kinds."""
    traced, built = version.traced, version.engine.built
    return (
        type(built) is Built and can_be_borrowed(built.executable)
        and version.engine.place is None and (Eager.elsewhere is None or local.place is None)
        and not (version.made or version.forwarded or version.places or version.said)
        and not (version.draws or traced.deferred or traced.input_aliases)
        and not any(type(s) is Draw or is_late(s) for s, _ in version.sources)
        and all(
            type(source) is NumberInput
            or (type(source) is TensorInput and source.kind in ("argument", "tensor", "grad"))
            for source in version.inputs
        )
    )


def _of_arguments(version: Specialisation, leaves: list[Any], conditions: Conditions) -> bool:
    """What a version is found by, of arguments that are no tensors."""
    # of these any value fits, also where the graph reads none of them
    lifted = {s[1] for s, _ in version.sources if type(s) is tuple} | (
        version.terms.arguments - decided_upon(version.traced.numbers)
    )
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            if type(leaf) not in (Tensor, Parameter):
                return False
        elif i in lifted:
            conditions.argument_class(i, type(leaf))
        else:
            if type(leaf) in LEAVES:
                conditions.keep.append(leaf)
            conditions.argument(i, leaf)
    return True


def _gradient(guard: GradIsThere, leaves: list[Any], conditions: Conditions) -> bool:
    read = guard.read
    tensor = read.tensor if read.argument < 0 else None
    kind = type(leaves[read.argument] if tensor is None else tensor)
    conditions.gradient(read.argument, tensor, kind, read.present)
    return kind in (Tensor, Parameter)


def _tensors(version: Specialisation, call: Call) -> list[TensorFacts] | None:
    """What tensors are like, those that the graph reads; None: not for native code to ask."""
    found: list[TensorFacts] = []
    writes = {m.input: m.versions for m in version.traced.mutations}
    differentiable = {
        id(guard.tensor): guard for guard in version.guards.of_calls
        if isinstance(guard, Differentiable)
    }
    hookless = {g.index for g in version.guards.of_calls if isinstance(g, HooksOf) and not g.hooks}
    fetched: set[int] = set()
    for source in version.inputs:
        if type(source) is not TensorInput:
            continue
        index = source.index
        tensor: Any = call.arguments[index] if index >= 0 else source.tensor
        array = call.arrays[source.number]
        steps = array.strides if source.number in version.engine.orders else None
        if type(tensor) not in (Tensor, Parameter) or (
            steps is None and not array.flags.c_contiguous
        ):
            return None
        asks = bits.WRITTEN if source.number in writes else 0
        if source.kind == "grad":
            asks |= bits.OF_GRAD
        elif index >= 0:
            fetched.add(index)
            asks |= _as_found(tensor) | bits.ASK_HOOKS * (index in hookless)
        elif id(tensor) in differentiable:
            guard = differentiable.pop(id(tensor))
            if guard.flag is None or guard.hooks:
                return None
            asks |= bits.ASK_GRADIENT | bits.REQUIRES * guard.flag | bits.ASK_HOOKS
            if guard.flag:
                asks |= bits.ASK_LEAF | bits.LEAF * guard.leaf
        found.append(TensorFacts(
            index, None if index >= 0 else tensor, type(tensor), source.number, array.dtype,
            array.shape, asks, writes.get(source.number, 0), steps,
        ))
        if gradient_kind(tensor) is None:
            return None
    fetched |= {  # they are asked to be another argument, of which the same is asked
        guard.index for guard in version.guards.of_calls
        if isinstance(guard, SameArgument) and type(guard.other) is int and guard.other in fetched
    }
    unread = [
        i for i, leaf in enumerate(call.arguments) if isinstance(leaf, Tensor) and i not in fetched
    ]
    return None if unread or differentiable else found


def _as_found(tensor: Tensor) -> int:
    """The bits of an argument: a version's key has them."""
    return (
        bits.ASK_GRADIENT | bits.REQUIRES * bool(gradient_kind(tensor))
        | bits.ASK_LEAF | bits.LEAF * (tensor._graphc_node is None)
        | bits.ASK_INFERENCE | bits.INFERENCE * bool(tensor._graphc_storage.inference)
    )
