"""Every switch, GRAPHC_* and CUDA's, in one table: the only reader of the environment.

The values travel as arguments from here: ir, frontend and backends take a Config (or a field of
one), they never ask for it.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from graphc.backends.host.cpus import available
from graphc.ir.late import late
from graphc.ir.named import NamedTuple

T = TypeVar("T")

_difflib = late("difflib")  # for who misspells a switch


class Switch(NamedTuple):
    """One environment variable, as `python -m graphc config` and the README show it."""

    variable: str
    default: str
    meaning: str


_switches: list[Switch] = []

TIMES, GRAPHS, PASSES, KERNELS, ASSEMBLY = 1, 2, 3, 4, 5  # levels of GRAPHC_DEBUG
VERIFY, VALUES, AGAIN = 1, 2, 3  # levels of GRAPHC_CHECK


def env(
    variable: str,
    default: T,
    meaning: str,
    parse: Callable[[str], T],
    *,
    shown: str | None = None,
) -> T:
    """The value of an environment variable, or its default when unset or empty.

    `shown` replaces a default that differs from machine to machine in the documentation.
    """
    _switches.append(Switch(variable, str(default) if shown is None else shown, meaning))
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{variable}={text!r}: {error}") from None


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return text

    return parse


def allowed_error(value: Any) -> float:
    """The limit that Winograd's algorithm has to keep to: of False 0, of True 0.01, or a number
    between 0 and 1. Raises TypeError and ValueError."""
    if not isinstance(value, (int, float)):
        raise TypeError(
            f"winograd={value!r}: expected True, False or a number, got {type(value).__name__}"
        )
    if not 0 <= value <= 1:
        raise ValueError(f"winograd={value!r}: expected True, False or a number between 0 and 1")
    return 0.01 if value == 1 else float(value)


def _allowed(text: str) -> float:
    try:
        return allowed_error(float(text))
    except ValueError:
        raise ValueError("expected 0, 1 or a number between") from None


def _folder(text: str) -> Path | None:
    if text.lower() == "off":
        return None
    try:
        return Path(text).expanduser().absolute()
    except OSError:
        raise ValueError("expected an absolute path, as the current folder is gone") from None


def _default_cache() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and to be ignored.
    if os.path.isabs(base):
        return Path(base, "graphc")
    try:
        return Path.home() / ".cache" / "graphc"
    except RuntimeError:  # no HOME and no entry in the password file: nothing can be kept
        return None


class Config(NamedTuple):
    """The switches' values. `Config()` is the environment's, read once when graphc is imported."""

    debug: int = env(
        "GRAPHC_DEBUG",
        0,
        "Print to stderr: 1 compile times, and why a function is compiled again, 2 graphs, "
        "3 the graph after each pass that changed it, 4 kernels and LLVM text, "
        "5 assembly. Each level includes those below it.",
        _whole(0, 5),
    )
    threads: int = env(
        "GRAPHC_THREADS",
        available(),
        "Threads of compiled code. Results do not depend on it.",
        _whole(1, 4096),
        shown="the CPUs this process may use, by affinity and cgroup quota",
    )
    cache_dir: Path | None = env(
        "GRAPHC_CACHE_DIR",
        _default_cache(),
        "Folder of compiled programs and kernels; `off` keeps none on disk.",
        _folder,
        shown="`graphc` in the user's cache folder",
    )
    check: int = env(
        "GRAPHC_CHECK",
        0,
        "1 verifies the graph after each pass, "
        "2 also runs it on NumPy before and after, and names the pass that changed a value, "
        "3 also compares every call with NumPy, and records it again to see that its version "
        "still is what the Python says (of functions in segments: values alone).",
        _whole(0, 3),
    )
    dump: Path | None = env(
        "GRAPHC_DUMP",
        None,
        "Folder for the graph after each pass, the kernels and their code, in numbered files.",
        _folder,
        shown="off",
    )
    keep_freed: int = env(
        "GRAPHC_KEEP_FREED",
        128,
        "MB of freed memory that the C library (glibc) keeps for the next tensors instead of "
        "giving it back to the system; 0 leaves its settings alone.",
        _whole(0, 1 << 20),
    )
    random: str = env(
        "GRAPHC_RANDOM",
        "auto",
        "Random numbers: `torch` its stream on the CPU, bit for bit; `counter` others, computed "
        "where they are used (dropout fuses, attention keeps no mask), from the same seed and "
        "state; `auto` the first on the CPU, the second on a GPU.",
        _one_of("auto", "torch", "counter"),
    )
    steps: str = env(
        "GRAPHC_STEPS",
        "auto",
        "optimizer.step() outside of compiled code as one native call, to the same bits: `1` from "
        "the second step on, `0` never, `auto` once eager steps have cost more than compiling "
        "does, or soon will have (with `run --compile` as `1`).",
        _one_of("auto", "0", "1"),
    )
    eager_kernels: str = env(
        "GRAPHC_EAGER_KERNELS",
        "1",
        "Eager mode on the CPU runs some operators on many numbers (softmax, gelu, sums, ..., and "
        "their gradients) as code compiled for any size; `0`: NumPy computes all.",
        _one_of("0", "1"),
    )
    amx: str = env(
        "GRAPHC_AMX",
        "1",
        "Products of bfloat16 and int8 go by the CPU's matrix unit (AMX) where there is one, the "
        "system gives leave and a trial product comes out right; `0`: by vector registers.",
        _one_of("0", "1"),
    )
    cuda_graphs: str = env(
        "GRAPHC_CUDA_GRAPHS",
        "auto",
        "On a GPU, launches that follow each other as one CUDA graph: `1` always, with what "
        "libraries begin, `0` never (one by one, to debug), `auto` where there are many of them, "
        "and the call has come before.",
        _one_of("auto", "0", "1"),
    )
    cuda_launch_blocking: int = env(
        "CUDA_LAUNCH_BLOCKING",
        0,
        "CUDA's own variable, by which each launch is waited for; with 1, graphc waits for each "
        "call, too, and what failed on the GPU is raised by the call that it is of.",
        _whole(0, 1),
    )
    cuda_libraries: str = env(
        "GRAPHC_CUDA_LIBRARIES",
        "auto",
        "On a GPU, what multiplies matrices: `0` graphc's own kernels, whose results are the same "
        "on every model of a device; `1` cuBLASLt where it can, and a kernel for what comes after; "
        "`auto` cuBLASLt where a table by architecture says so, and it is installed. "
        "`torch.use_deterministic_algorithms(True)` is `0`.",
        _one_of("auto", "0", "1"),
    )
    winograd: float = env(
        "GRAPHC_WINOGRAD",
        0.0,
        "Convolutions of 3x3 and 5x5 by Winograd's algorithm in compiled float32 code on the CPU, "
        "where that is faster: how far a result may be off, in the worst case, relative to the "
        "largest number that is read times the sum of its filter's, without signs (`1`: 0.01; "
        "`0`: never). `torch.compile(options={\"winograd\": True})` for everything.",
        _allowed,
        shown="0",
    )
    max_autotune: int = env(
        "GRAPHC_MAX_AUTOTUNE",
        0,
        "On a GPU, with 1, what compiled code multiplies, convolves and attends by is timed in all "
        "ways there are, and the quickest is kept: `torch.compile(mode=\"max-autotune\")` for "
        "everything. On the CPU nothing changes.",
        _whole(0, 1),
    )


_PREFIX = "GRAPHC_"


def _warn_of_unknown() -> None:
    """Name each GRAPHC_ variable that is no switch, and the switch that it may have meant."""
    known = [switch.variable.removeprefix(_PREFIX) for switch in _switches]
    for name in sorted(os.environ):
        word = name.removeprefix(_PREFIX)
        if word != name and word not in known:
            near = _difflib.get_close_matches(word, known, 1)
            some = f"{_PREFIX}{near[0]}" if near else " or ".join(_PREFIX + each for each in known)
            meant = f"Did you mean {some}?"
            warnings.warn(f"{name} is no switch of graphc and does nothing. {meant}", stacklevel=2)


_process = Config()
_warn_of_unknown()
_lock = threading.Lock()
_override: ContextVar[Config | None] = ContextVar("graphc_config", default=None)

# how many may be in force somewhere. What override() began counts for good: a task that copied its
# context has it after the block
overridden = 0


def current() -> Config:
    """The Config in force here: the innermost `override`, else the process's."""
    return _override.get() or _process


@contextmanager
def override(**values: Any) -> Iterator[Config]:
    """Other values inside a `with` block, for the calling thread (or asyncio task) only."""
    _count(1)
    with within(**values) as changed:
        yield changed


@contextmanager
def within(**values: Any) -> Iterator[Config]:
    """override() where nobody copies the context inside: calls after it are as quick as before."""
    changed = _replaced(current(), values)
    _count(1)
    token = _override.set(changed)
    try:
        yield changed
    finally:
        _override.reset(token)
        _count(-1)


def _count(more: int) -> None:
    global overridden
    with _lock:
        overridden += more


def set_default(**values: Any) -> None:
    """Change the process's values for good, for all threads (`graphc.set_num_threads`)."""
    global _process
    with _lock:
        _process = _replaced(_process, values)


def _replaced(config: Config, values: dict[str, Any]) -> Config:
    unknown = sorted(values.keys() - set(Config._fields))
    if unknown:
        raise TypeError(f"no switch {unknown[0]!r}; there are {', '.join(Config._fields)}")
    return config._replace(**values)


def table() -> str:
    """The switches as a Markdown table; README.md carries this text."""
    rows = [f"| `{s.variable}` | {s.default} | {s.meaning} |" for s in _switches]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def torch_home() -> Path:
    """The folder of torch.hub: $TORCH_HOME, else `torch` in the user's cache folder.

    PyTorch's own variables, shared with it, and so not among the GRAPHC_* switches.
    """
    home = os.environ.get("TORCH_HOME", "")
    if home:
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch").expanduser()


def github_token() -> str:
    """What torch.hub asks GitHub with, for more than a few questions an hour; "" for none."""
    return os.environ.get("GITHUB_TOKEN", "")
