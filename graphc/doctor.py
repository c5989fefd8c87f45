"""What graphc finds on this machine, and what it misses, each with its cure:
`python -m graphc doctor`."""

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import NamedTuple

import graphc
from graphc import backends, config
from graphc.backends import Finding
from graphc.compat.distribution import is_stand_in
from graphc.engine import pipeline
from graphc.shim import constraint

_PYTHONS = ((3, 11), (3, 13))  # the first and the last that pyproject.toml takes
_DISTRIBUTIONS = ("numpy", "ml_dtypes", "networkx", "tqdm")  # what every use of graphc needs


class Section(NamedTuple):
    """Findings under a title."""

    title: str
    findings: Sequence[Finding]


def examine() -> list[Section]:
    """All that is to be said, as data. Nothing missing raises."""
    asked = dict.fromkeys(map(backends.canonical, backends.names(exclude=("debug",))))
    asked = dict.fromkeys((backends.DEFAULT, *asked))
    sections = [Section("Python", tuple(_python()))]
    for name in asked:
        found = tuple(_said_by(name))
        if name == backends.DEFAULT:
            found = (*found, _compiled_code())
        else:
            if name == "cuda":
                found = (*found, *_on_gpus())
            found = tuple(finding._replace(needed=False) for finding in found)
        sections.append(Section(f"backend {name}", found))
    return sections


def _said_by(name: str) -> Sequence[Finding]:
    """What a backend finds; one that cannot even say it is a finding of its own."""
    try:
        return backends.get(name).findings(pipeline.host(config.current()))
    except Exception as error:
        return (Finding(name, None, f"{type(error).__name__}: {error}", needed=True),)


def works(sections: Sequence[Section]) -> bool:
    """Whether nothing that is needed is missing: the CPU path works."""
    return not missing(sections)


def missing(sections: Sequence[Section]) -> list[Finding]:
    """What is needed and is not there."""
    return [
        finding for section in sections for finding in section.findings
        if finding.needed and finding.found is None
    ]


def render(sections: Sequence[Section]) -> str:
    """The findings as text, a line each and a line for its cure."""
    lines: list[str] = []
    for section in sections:
        lines.append(section.title)
        width = max((len(finding.subject) for finding in section.findings), default=0)
        for finding in section.findings:
            mark = "missing" if finding.found is None else "mend" if finding.cure else "ok"
            said = f"  {mark:8}{finding.subject:{width}}  {finding.found or ''}"
            lines.append(said.rstrip())
            if finding.cure:
                lines.append(f"          cure: {finding.cure}")
        lines.append("")
    lost = ", ".join(finding.subject for finding in missing(sections))
    lines.append(f"The CPU path does not work: {lost}" if lost else "The CPU path works.")
    return "\n".join(lines)


def main() -> int:
    """Print it; returns 0 if the CPU path works."""
    sections = examine()
    print(render(sections))
    return 0 if works(sections) else 1


def _python() -> Iterator[Finding]:
    version = f"{platform.python_version()}, {platform.system()} on {platform.machine()}"
    fits = _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]
    first, last = (".".join(map(str, each)) for each in _PYTHONS)
    yield Finding("Python", version, "" if fits else f"Python {first} to {last}", needed=True)
    yield Finding("graphc", graphc.__version__, needed=True)
    for name in _DISTRIBUTIONS:
        try:
            yield Finding(name, metadata.version(name), needed=True)
        except metadata.PackageNotFoundError:
            yield Finding(name, None, f"pip install {name}", needed=True)
    yield Finding("import torch", _torch())


def _torch() -> str:
    """What `import torch` finds in this environment."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "nothing; `python -m graphc run` and `shim install` let it find graphc"
    if is_stand_in(version):
        return f"graphc, by its stand-in {version} (`python -m graphc shim`)"
    if constraint.is_kept(sys.prefix):
        taken = "which has taken the place of graphc's stand-in"
        return f"PyTorch {version}, {taken}: {constraint.CURE}"
    return f"PyTorch {version}; graphc by `python -m graphc run`"


def _compiled_code() -> Finding:
    return _agrees("compiled code", "cpu")._replace(needed=True)


def _on_gpus() -> Iterator[Finding]:
    """What comes of tensors on each GPU."""
    for index in range(graphc.cuda.device_count()):
        yield _agrees(f"tensors on cuda:{index}", f"cuda:{index}")


def _agrees(subject: str, device: str) -> Finding:
    """A function compiled, run on a device and compared with eager mode on the CPU."""
    try:
        x = graphc.arange(8.0)
        found = graphc.compile(_example, fullgraph=True)(x.to(device))
        right = graphc.equal(found.cpu(), _example(x))
    except Exception as error:  # whatever it is, the user came here to read it
        return Finding(subject, None, f"{type(error).__name__}: {error}")
    if not right:
        cure = "report it, with this text: code compiled here gives wrong numbers"
        return Finding(subject, None, cure)
    return Finding(subject, "runs, and agrees with eager mode")


def _example(x: graphc.Tensor) -> graphc.Tensor:
    return (x * 2 + 1).relu().sum()
