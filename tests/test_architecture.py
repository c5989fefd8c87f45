"""The house rules of the design that a machine can check. All lists are data, at the top."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from graphc.backends.llvm import cache

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "graphc").rglob("*.py"))

# Who may import whom: a part of the house to the other parts it may see.
HOUSES = {
    "ir": {"ir"},
    "frontend": {"frontend", "ir"},
    "backends": {"backends", "ir"},
    "graphc": {"graphc", "frontend", "backends", "ir"},
}
# Inside backends: these two never see each other.
STRANGERS = ("graphc.backends.llvm", "graphc.backends.cuda")

# Other distributions, and the folders (or files) that may import them.
DISTRIBUTIONS = {
    "numpy": ("graphc/",),
    "ml_dtypes": ("graphc/",),
    "networkx": ("graphc/ir/", "graphc/inspect/"),
    "llvmlite": ("graphc/backends/llvm/",),
    "cupy": ("graphc/backends/cuda/",),
    "cupyx": ("graphc/backends/cuda/",),
    "cuda": ("graphc/backends/cuda/libraries.py",),
    "tqdm": ("graphc/progress.py",),
    "matplotlib": ("graphc/demo.py", "graphc/utils/tensorboard/"),
    "PIL": ("graphc/vision/", "graphc/utils/tensorboard/"),
    "moviepy": ("graphc/utils/tensorboard/",),
    "onnx": ("graphc/utils/tensorboard/", "graphc/onnx/package.py"),
    "onnxruntime": ("graphc/onnx/package.py",),
    "packaging": ("graphc/shim/requirements.py",),
    "starlette": ("graphc/serve/",),
    "uvicorn": ("graphc/serve/server.py",),
    "prometheus_client": ("graphc/serve/metrics.py",),
    "orjson": ("graphc/serve/documents.py",),
}

# Imports inside functions: each at first use, in one named place, because it is slow to load
# (llvmlite 0.18 s, networkx 0.11 s) or optional. (file, module)
LATE_IMPORTS = {
    ("graphc/backends/cuda/libraries.py", "cuda"),
    ("graphc/backends/cuda/routines/library.py", "cupy"),
    ("graphc/backends/cuda/routines/library.py", "cupyx"),
    ("graphc/backends/llvm/binding.py", "llvmlite"),
    ("graphc/ir/passes/partition.py", "networkx"),
    ("graphc/progress.py", "tqdm"),
    ("graphc/demo.py", "matplotlib"),
    ("graphc/vision/datasets/folder.py", "PIL"),
    ("graphc/vision/datasets/vision.py", "PIL"),
    ("graphc/vision/io.py", "PIL"),
    ("graphc/vision/transforms/functional/colour.py", "PIL"),
    ("graphc/vision/transforms/functional/geometry.py", "PIL"),
    ("graphc/vision/transforms/functional/image.py", "PIL"),
    ("graphc/vision/utils.py", "PIL"),
    ("graphc/utils/tensorboard/_embedding.py", "PIL"),
    ("graphc/utils/tensorboard/_onnx_graph.py", "onnx"),
    ("graphc/onnx/package.py", "onnx"),
    ("graphc/onnx/package.py", "onnxruntime"),
    ("graphc/utils/tensorboard/_utils.py", "matplotlib"),
    ("graphc/utils/tensorboard/summary.py", "PIL"),
    ("graphc/utils/tensorboard/summary.py", "moviepy"),
    ("graphc/shim/requirements.py", "packaging"),
    ("graphc/serve/documents.py", "orjson"),
    # what only compiling needs, of our own: code that is kept of an earlier process runs without it
    ("graphc/backends/host/entry.py", "graphc"),
    ("graphc/backends/llvm/backend.py", "graphc"),
    ("graphc/backends/llvm/executable.py", "graphc"),
    ("graphc/backends/llvm/kept.py", "graphc"),
    ("graphc/backends/llvm/library.py", "graphc"),
    ("graphc/backends/llvm/linked.py", "graphc"),
    ("graphc/backends/llvm/pool.py", "graphc"),
    ("graphc/backends/llvm/stream.py", "graphc"),
    ("graphc/engine/built.py", "graphc"),
    ("graphc/engine/pipeline.py", "graphc"),
    ("graphc/engine/version/frozen.py", "graphc"),
}
# What `import graphc` must not load.
HEAVY = (
    "networkx", "llvmlite", "tqdm", "cupy", "cuda", "matplotlib", "torch", "starlette", "uvicorn",
    "prometheus_client", "fractions", "onnx", "onnxruntime",
)

MAX_LINES = 500
# Files that may be longer: {"graphc/...": "why splitting would make it worse"}.
LONG_FILES: dict[str, str] = {}


class Import(NamedTuple):
    """One imported module: absolute name, where, and whether it runs at import time."""

    file: str
    line: int
    module: str
    late: bool
    runs: bool  # False under `if TYPE_CHECKING:`

    @property
    def top(self) -> str:
        return self.module.split(".", 1)[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def house(module: str) -> str:
    """The part of the house a graphc module belongs to."""
    part = module.split(".")[1] if module.count(".") else "graphc"
    return part if part in HOUSES else "graphc"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a statement and may hold other statements; expressions hold none."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        yield from getattr(node, name, ())


@functools.cache
def is_submodule(module: str) -> bool:
    place = ROOT.joinpath(*module.split("."))
    return place.with_suffix(".py").is_file() or place.is_dir()


def imports_of(path: Path) -> Iterator[Import]:
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]

    def visit(node: ast.AST, late: bool, runs: bool) -> Iterator[Import]:
        for child in statements(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(name_of(path), child.lineno, alias.name, late, runs)
            elif isinstance(child, ast.ImportFrom):
                near = package[: len(package) - child.level + 1] if child.level else []
                base = ".".join([*near, *([child.module] if child.module else [])])
                for alias in child.names:
                    full = f"{base}.{alias.name}"
                    # `from graphc import ir` imports a part; `from graphc.ir import Graph` a name.
                    module = full if base.startswith("graphc") and is_submodule(full) else base
                    yield Import(name_of(path), child.lineno, module, late, runs)
            else:
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from visit(child, late or function, runs and not checking)

    yield from visit(ast.parse(path.read_text(), str(path)), False, True)


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return [each for path in SOURCES for each in imports_of(path)]


def test_imports_flow_one_way(imports: list[Import]) -> None:
    wrong = [
        f"{each}: {house(source)} may see {', '.join(sorted(HOUSES[house(source)]))}"
        for each in imports
        if each.top == "graphc"
        and house(each.module) not in HOUSES[house(source := module_of(ROOT / each.file))]
    ]
    assert not wrong, "\n".join(wrong)


def test_native_backends_are_strangers(imports: list[Import]) -> None:
    wrong = [
        str(each)
        for each in imports
        for here, there in (STRANGERS, STRANGERS[::-1])
        if module_of(ROOT / each.file).startswith(here) and each.module.startswith(there)
    ]
    assert not wrong, "\n".join(wrong)


def test_backends_are_asked_by_name(imports: list[Import]) -> None:
    """A native backend's modules are seen by its own folder alone: the registry loads them."""
    wrong = [
        str(each)
        for each in imports
        for folder in STRANGERS
        if each.module.startswith(folder) and not module_of(ROOT / each.file).startswith(folder)
    ]
    assert not wrong, "\n".join(wrong)
    named = [
        name_of(path) for path in SOURCES
        if not name_of(path).startswith("graphc/backends/llvm/")
        and "backends.llvm" in path.read_text()
    ]
    assert not named, f"names backends.llvm: {named}"


def test_distributions_stay_in_their_place(imports: list[Import]) -> None:
    known = sys.stdlib_module_names | {"graphc"}
    wrong = [
        f"{each}, allowed in {DISTRIBUTIONS.get(each.top, 'no file')}"
        for each in imports
        if each.top not in known and not each.file.startswith(DISTRIBUTIONS.get(each.top, ()))
    ]
    assert not wrong, "\n".join(wrong)


def test_late_imports_are_listed(imports: list[Import]) -> None:
    late = {(each.file, each.top): each for each in imports if each.late and each.runs}
    wrong = [str(each) for key, each in late.items() if key not in LATE_IMPORTS]
    stale = sorted(LATE_IMPORTS - late.keys())
    assert not wrong, "\n".join(wrong)
    assert not stale, f"listed in LATE_IMPORTS, but not there: {stale}"


def test_late_distributions_are_never_early(imports: list[Import]) -> None:
    late = {module for _, module in LATE_IMPORTS} - {"graphc"}
    wrong = [str(each) for each in imports if each.top in late and each.runs and not each.late]
    assert not wrong, "\n".join(wrong)


def test_only_config_reads_the_environment() -> None:
    environment = ("environ", "environb", "getenv", "putenv")

    def readings(path: Path) -> Iterator[int]:
        text = path.read_text()
        if not any(name in text for name in environment):  # parsing all takes seconds
            return
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in environment:
                yield node.lineno
            elif isinstance(node, ast.ImportFrom) and node.module == "os":
                yield from (node.lineno for alias in node.names if alias.name in environment)

    wrong = [
        f"{name_of(path)}:{line}"
        for path in SOURCES
        if name_of(path) != "graphc/config.py"
        for line in readings(path)
    ]
    assert not wrong, "reads the environment: " + ", ".join(wrong)


def test_configuration_is_passed_down(imports: list[Import]) -> None:
    wrong = [
        str(each)
        for each in imports
        if each.module.startswith("graphc.config")
        and house(module_of(ROOT / each.file)) != "graphc"
    ]
    assert not wrong, "\n".join(wrong)


def test_the_code_cache_digests_what_shapes_code(imports: list[Import]) -> None:
    """Code that is kept between processes is found by a digest of these files, too."""
    files = {name_of(path) for path in cache.sources()}
    parts = ("graphc/ir/", "graphc/backends/host/", "graphc/backends/llvm/")
    assert files == {name for name in map(name_of, SOURCES) if name.startswith(parts)}

    def is_digested(module: str) -> bool:
        path = module.replace(".", "/")
        return bool(files & {f"{path}.py", f"{path}/__init__.py"})

    wrong = [
        f"{each}, which graphc/backends/llvm/cache.py does not digest"
        for each in imports
        if each.file in files and each.top == "graphc" and each.runs
        and not is_digested(each.module)
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    long = {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
    wrong = [f"{name}: {lines} lines" for name, lines in long.items() if name not in LONG_FILES]
    stale = sorted(LONG_FILES.keys() - long.keys())
    assert not wrong, f"more than {MAX_LINES} lines:\n" + "\n".join(wrong)
    assert not stale, f"listed in LONG_FILES, but short: {stale}"


def test_shared_passes_take_a_machines_numbers_not_its_name() -> None:
    """What was measured with one kind of CPU is a number of its Machine (backends/*/machine.py)."""
    marks = "vector_bytes ==", "vector_bytes !=", ".kind == " '"cpu"', ".kind == " '"gpu"'
    wrong = [name_of(path) for path in (ROOT / "graphc/ir").rglob("*.py")
             if any(mark in path.read_text() for mark in marks)]
    assert not wrong, wrong


def test_no_comments_for_formatters() -> None:
    """The house uses none: ruff's lint rules alone."""
    marks = ("# fmt" ":", "# yapf" ":")
    wrong = [name_of(path) for folder in ("graphc", "tests", "benchmarks", "examples")
             for path in (ROOT / folder).rglob("*.py") if any(m in path.read_text() for m in marks)]
    assert not wrong, ", ".join(wrong)


def test_import_is_light() -> None:
    script = f"import graphc, sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [], f"import graphc loads {result.stdout.strip()}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from graphc.backends import numpy", "graphc.backends.numpy"),
        ("from ...ir import dim", "graphc.ir.dim"),
        ("from . import x", "graphc.frontend.sub"),
        ("import llvmlite.binding as llvm", "llvmlite.binding"),
    ],
)
def test_the_reader_of_imports(
    source: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("graphc/backends/numpy", "graphc/ir/dim", "graphc/frontend/sub"):
        (tmp_path / module).mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "graphc/frontend/sub/here.py"
    file.write_text(f"def f():\n    {source}\n")
    (found,) = imports_of(file)
    assert (found.module, found.late, found.runs) == (expected, True, True)
