"""Which requirements the stand-ins do not meet: those would bring PyTorch itself."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, NamedTuple

from ..compat.distribution import same_name
from ..compat.extensions import of_pytorch
from . import constraint, wheel
from .place import Place, Refused
from .wheel import VERSIONS

# what has compiled code beside Python that runs on graphc without it
_PYTHON_SUFFICES = ("torchvision",)


class Pull(NamedTuple):
    """A requirement that a stand-in does not meet; `whose`: a distribution, "" where given."""

    whose: str
    requirement: str

    def __str__(self) -> str:
        asks = f"{self.whose} asks for {self.requirement}" if self.whose else self.requirement
        return f"{asks}: pip would put PyTorch itself in the stand-in's place"


def report(place: Place, given: Sequence[str]) -> tuple[list[str], list[Pull]]:
    """Lines of text about an environment and requirements that are to be installed in it, and what
    would pull. Raises Refused."""
    lines = [f"{name}: {_state(place, name)}" for name in place.packages]
    versions = answered(place)
    found = list(metadata.distributions(path=place.paths))
    pulls = list(unmet(found, versions))
    others = []
    for text in given:
        own = directly(text, versions)
        if own is None:
            others.append(text)
        elif own:
            pulls.append(Pull("", text))
        else:
            lines.append(f"{text}: met by the stand-in")
    if others:
        lines += resolved(place, others, versions)
    lines += [str(pull) for pull in pulls]
    lines += compiled(found)
    if not pulls:
        lines.append("nothing installed or given asks for another torch")
    return lines, pulls


def answered(place: Place) -> dict[str, str]:
    """The names that stand-ins answer to here, or would after `shim install`, and the versions."""
    return {name: VERSIONS[name] for name, package in place.packages.items() if not package.real}


def unmet(
    distributions: Iterable[metadata.Distribution], versions: Mapping[str, str]
) -> Iterator[Pull]:
    """The requirements of distributions that stand-ins of these versions do not meet."""
    for each in distributions:
        for text in each.requires or ():
            if directly(text, versions):
                yield Pull(f"{each.name} {each.version}", text)


def directly(text: str, versions: Mapping[str, str]) -> bool | None:
    """Whether a requirement would replace a stand-in; None: it asks for something else. Of extras
    nobody knows whether they were asked for."""
    parsed = _parse(text)
    if parsed is None or same_name(parsed.name) not in versions:
        return None
    if parsed.marker is not None and not parsed.marker.evaluate({"extra": ""}):
        return None
    if parsed.url is not None:
        return True
    return not parsed.specifier.contains(versions[same_name(parsed.name)], prereleases=True)


def compiled(distributions: Iterable[metadata.Distribution]) -> Iterator[str]:
    """A line for each distribution with extension modules that are linked to libtorch."""
    for each in distributions:
        linked = {
            str(file): libraries for file in each.files or ()
            if str(file).endswith((*EXTENSION_SUFFIXES, ".so"))
            and (libraries := _libraries(each, file))
        }
        if linked:
            path, libraries = next(iter(linked.items()))
            more = f" and {len(linked) - 1} more" if len(linked) > 1 else ""
            yield (
                f"{each.name} {each.version}: {path}{more} is built on {', '.join(libraries)}, "
                "which graphc does not load"
            )


def resolved(place: Place, given: Sequence[str], versions: Mapping[str, str]) -> Iterator[str]:
    """What pip would install for requirements if the stand-ins are to stay: it is asked, and told
    that there is no other torch, so it downloads none. Raises Refused where there is no answer."""
    with tempfile.TemporaryDirectory() as folder:
        for name in versions:
            wheel.write(name, Path(folder))
        kept = Path(folder, "constraints.txt")
        kept.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        answer = Path(folder, "report.json")
        done = subprocess.run(
            [place.python, "-I", "-m", "pip", "install", "--dry-run", "--no-input",
             "--disable-pip-version-check", "--report", str(answer), "--constraint", str(kept),
             "--find-links", folder, *given],
            capture_output=True, text=True,
        )
        if done.returncode:
            raise Refused(
                f"pip finds no versions of {', '.join(given)} for which "
                f"{' and '.join(f'{n} {v}' for n, v in versions.items())} will do:\n"
                f"{_conflict(done.stdout, done.stderr)}"
            )
        chosen = json.loads(answer.read_text())["install"]
    yield from _choice(given, [each["metadata"] for each in chosen], versions, {
        each["metadata"]["name"] for each in chosen
        if not each["download_info"]["url"].endswith(("-any.whl", ".tar.gz", ".zip"))
    })


def _choice(
    given: Sequence[str], chosen: Sequence[Mapping[str, Any]], versions: Mapping[str, str],
    compiled: Collection[str] = (),
) -> Iterator[str]:
    """Lines about distributions that pip has chosen, of which some have `compiled` code."""
    new = [each for each in chosen if same_name(each["name"]) not in versions]
    if not new:
        yield f"{', '.join(given)}: installed, or met by the stand-in"
        return
    names = {same_name(parsed.name) for text in given if (parsed := _parse(text)) is not None}
    on_torch = [each for each in new if any(
        directly(text, versions) is not None for text in each.get("requires_dist", ())
    )]
    built = [each for each in on_torch if each["name"] in compiled
             and same_name(each["name"]) not in _PYTHON_SUFFICES]
    for each in built:
        yield (
            f"{each['name']} {each['version']} has compiled code and asks for torch: such code is "
            "built on PyTorch's libraries as a rule, and graphc does not load it"
        )
    if built:
        return
    pins = [
        f"{each['name']}=={each['version']}" for each in new
        if same_name(each["name"]) in names or each in on_torch
    ]
    yield f"{', '.join(given)}: can be had with the stand-in, as"
    yield f"  python -m pip install {' '.join(f'{pin!r}' for pin in pins)}"


def _conflict(out: str, error: str) -> str:
    """What pip says of a conflict: its errors, and the paragraph that names who asks for what."""
    lines = [line for line in error.splitlines() if line.startswith("ERROR:")]
    found = out.splitlines()
    for number, line in enumerate(found):
        if line.startswith("The conflict is caused by:"):
            end = next((n for n in range(number, len(found)) if not found[n].strip()), len(found))
            lines += found[number:end]
    return "\n".join(lines) or (error or out).strip()


def _state(place: Place, name: str) -> str:
    package = place.packages[name]
    if package.ours:
        stale = "" if package.version == VERSIONS[name] else (
            f"; this graphc follows {VERSIONS[name]}: python -m graphc shim install"
        )
        return f"graphc's stand-in, {package.version}{stale}"
    if name == "torch" and package.real and constraint.is_kept(place.prefix):
        return f"{package}, which has taken the place of graphc's stand-in. Cure: {constraint.CURE}"
    return f"{package}, not graphc's" if package.real else "nothing"


def _libraries(owner: metadata.Distribution, file: metadata.PackagePath) -> list[str]:
    try:
        return of_pytorch(str(owner.locate_file(file)))
    except OSError:  # listed, and not there
        return []


def _parse(text: str) -> Any:
    """A requirement as PEP 508 has it; None for other things that pip takes (files, addresses)."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ModuleNotFoundError:
        raise Refused(
            "requirements are read by `packaging`, which is not installed. Cure: python -m pip "
            "install packaging"
        ) from None
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None
