"""torch.backends, whose cudnn, mps, ... are flags that scripts set; and, by the name's accident,
what runs a graph: the Backend protocol, and the registry that finds one by its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graphc.backends.host.finding import Finding as Finding
from graphc.backends.host.finding import KeptProgram as KeptProgram
from graphc.ir.named import NamedTuple

if TYPE_CHECKING:
    from graphc.ir.graph import Node
    from graphc.ir.interpret import Table
    from graphc.ir.kernel import Kernel, Program, Template
    from graphc.ir.kernel.program import Visit
    from graphc.ir.machine import Machine
    from graphc.ir.memory import Buffer, Memory

# torch.backends.fp32_precision: of what has no setting of its own
fp32_precision = "none"

if __name__ != "graphc.backends":  # reached through the link at the repository's root
    right = "import graphc.backends"
    raise ImportError(f"{right}, not {__name__}: the link is for people", name=__name__)


class Host(NamedTuple):
    """What a backend may use of the process that it runs in: so many threads for all kernels
    together, a directory for compiled code (None: keep it in memory), NumPy's function of each
    operator, for what the backend has no code for, whether launches on a GPU become graphs, and
    what multiplies matrices there: "0" generated code, "1" CUDA's libraries, "auto" who is known to
    be faster. `max_autotune`: what may be done in several ways is timed, where the backend can."""

    threads: int
    cache_dir: Path | None
    table: Table
    cuda_graphs: str = "auto"
    cuda_libraries: str = "0"
    max_autotune: bool = False


class KernelStats(Protocol):
    """One kernel of an Executable."""

    @property
    def symbol(self) -> str: ...
    @property
    def cached(self) -> bool: ...


class Stats(Protocol):
    """What building took: seconds by stage, in order, and the distinct kernels; and what explain()
    is to say of how the program runs, a line each."""

    @property
    def seconds(self) -> Mapping[str, float]: ...
    @property
    def kernels(self) -> Sequence[KernelStats]: ...
    @property
    def remarks(self) -> Sequence[str]: ...


class Executable(Protocol):
    """A Program that can be called, from several threads and from inside itself."""

    @property
    def stats(self) -> Stats: ...

    def run(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], dims: Sequence[int] = ()
    ) -> None:
        """One call on buffers of the backend's memory, of the program's types; `outputs` are
        written, `dims` are the values of its dims. Raises what a Check names, or a routine; then
        nothing that the caller sees was written."""

    def trace(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], before: Visit, after: Visit,
        dims: Sequence[int] = (),
    ) -> None:
        """Like run, one step at a time, with `before` and `after` called around each."""

    def texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """(file suffix, text) of a kernel's code, from what is emitted to what the machine runs,
        each made when it is asked for."""


class Keeper(Protocol):
    """Keeps code of whole programs for other processes, which then need no compiler.

    What a key stands for is the caller's: the graph, and all else that the Program follows from.
    The keeper adds what the code hangs on besides: the machine, the compiler, its own sources.
    """

    def find(self, key: bytes, name: str, program: Callable[[], Program]) -> Executable | None:
        """What was kept. `program` makes the Program anew, to be looked at, or traced."""

    def keep(self, key: bytes, executable: Executable) -> None:
        """Keep it, if it can be kept; a full disk is no error."""

    def programs(self) -> Iterator[KeptProgram]:
        """All that is kept, stale ones too."""


class Backend(Protocol):
    """All that the rest of the house knows of a machine, and of the code that runs on it.

    A node of a graph goes one of four ways: the backend claims it, and runs it whole; a composite
    that it does not claim is decomposed; what kernels compute is fused into them; the rest the
    host runs with NumPy, on what it reads from the backend's memory.

    One that keeps programs has a method `keeper(host)` besides, which gives a Keeper, or None; one
    that knows what its machine does at most, `ceilings(host)`: bytes and operations a second.
    """

    @property
    def machine(self) -> Machine: ...
    @property
    def memory(self) -> Memory: ...

    def claims(self, node: Node, machine: Machine) -> bool:
        """Whether a routine of the backend runs a node whole. Its dtypes, shapes, attributes and
        number of inputs (a mask) may be asked."""

    def computes(self, node: Node) -> bool:
        """Whether the code of kernels has a node's operator, for its dtypes."""

    def renders(self, template: Template) -> bool:
        """Whether there is code for a template as it stands; if not, it becomes loops. An
        attention is asked about before its operator would be decomposed."""

    def emit(self, kernel: Kernel) -> str:
        """A kernel's source text, for this backend's target: nothing is compiled or run, and no
        other state is read."""

    def build(self, program: Program, host: Host) -> Executable:
        """Code for a program, from a cache where it is known."""

    def adapt(self, host: Host) -> None:
        """What is built already has these threads from now on."""

    def draws(self, host: Host) -> Mapping[str, Callable[..., Any]]:
        """Random operators of the host that it has faster code for, as functions of NumPy's arrays
        like those of the NumPy backend, and with the same bits. Raises where it cannot compile."""

    def findings(self, host: Host) -> Sequence[Finding]:
        """What it needs of this machine, and what of it is there; nothing missing raises."""


# --- the registry -----------------------------------------------------------------------------


class InvalidBackend(RuntimeError):
    """torch._dynamo.exc.InvalidBackend: nothing is registered under this name."""


class _Entry(NamedTuple):
    load: Callable[[], Backend]
    tags: frozenset[str]


_entries: dict[str, _Entry] = {}
_loaded: dict[str, Backend] = {}
DEFAULT = "llvm"  # where nobody names one
# torch's names for what there is
_ALIASES = {"inductor": "llvm", "aot_eager": "eager"}


def register(name: str, load: Callable[[], Backend], tags: Iterable[str] = ()) -> None:
    """Make a backend known; `load` makes it, once, when its name is first asked for.

    `tags`, as torch has them: "debug" for one that is there to look at, "experimental".
    Raises ValueError where the name is taken.
    """
    if name in _entries or name in _ALIASES:
        raise ValueError(f"a backend {name!r} is registered already")
    _entries[name] = _Entry(load, frozenset(tags))


def canonical(name: object) -> str:
    """The name under which a backend is registered; torch's name gives ours. Raises
    InvalidBackend."""
    found = _ALIASES.get(name, name) if isinstance(name, str) else name
    if isinstance(found, str) and found in _entries:
        return found
    raise InvalidBackend(f"Invalid backend: {name!r}; there are {', '.join(names())}")


def get(name: str) -> Backend:
    """The backend of a name. Raises InvalidBackend, naming those there are."""
    name = canonical(name)
    found = _loaded.get(name)
    if found is None:
        found = _loaded.setdefault(name, _entries[name].load())
    return found


def loaded() -> list[Backend]:
    """Those that were asked for."""
    return list(_loaded.values())


def name_of(backend: Backend) -> str:
    """The name by which a backend was asked for."""
    return next(name for name, found in _loaded.items() if found is backend)


def names(exclude: Collection[str] = ()) -> list[str]:
    """What backends are called, torch's names for them included; none with a tag in `exclude`."""
    ours = {name for name, entry in _entries.items() if not entry.tags & set(exclude)}
    return sorted(ours | {alias for alias, name in _ALIASES.items() if name in ours})


def _own(module: str) -> Callable[[], Backend]:
    """Loads a backend of this folder: llvmlite and the like wait until then."""
    return lambda: importlib.import_module(f".{module}", __name__).BACKEND


register("llvm", _own("llvm.backend"))
register("numpy", _own("numpy.backend"), tags=("debug",))
register("eager", _own("numpy.eager"), tags=("debug",))
register("cuda", _own("cuda.backend"), tags=("experimental",))

# --- torch.backends ---------------------------------------------------------------------------

_FLAGS = frozenset({
    "cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized",
})


def flags_frozen() -> bool:
    """False: flags may be set at any time, in and out of `with` blocks."""
    return False


# what libraries set flags in (MONAI): in PyTorch they may be frozen, here they never are
__allow_nonbracketed_mutation = nullcontext


def __getattr__(name: str) -> Any:
    if name in _FLAGS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
