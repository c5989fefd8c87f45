"""What keeps pip from putting another torch in the stand-in's place (`pip install -U torch`): a
constraint, which the environment's own settings of pip name. uv does not read them."""

from __future__ import annotations

import os
from configparser import Error, RawConfigParser
from contextlib import suppress
from pathlib import Path

from .wheel import VERSIONS

_NAME = "graphc-shim.txt"
_SETTINGS = "pip.ini" if os.name == "nt" else "pip.conf"
_SECTION = "[install]"
CURE = "python -m pip uninstall torch, python -m graphc shim install"
_HEAD = "# By `python -m graphc shim install`; `python -m graphc shim remove` takes it away.\n"


def keep(prefix: str) -> str:
    """Let pip in the environment at `prefix` leave the stand-in where it is; a line that says so,
    or how to where pip has been given other constraints there."""
    path = Path(prefix, _NAME)
    path.write_text(f"{_HEAD}torch=={VERSIONS['torch']}\n", encoding="utf-8")
    settings, line = _places(prefix)
    found = _read(settings)
    if line in found:
        return f"pip leaves it there: {settings}"
    if _has_own(settings):
        return f"`pip install -U torch` would replace it: {settings} has constraints of its own. " \
            f"Cure: add {path} to them"
    lines = found or [_HEAD.rstrip()]
    if _SECTION not in lines:
        lines.append(_SECTION)
    lines.insert(lines.index(_SECTION) + 1, line)
    settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"pip leaves it there: {settings}"


def let_go(prefix: str) -> None:
    """Take that away; what else the settings say stays."""
    settings, line = _places(prefix)
    found = _read(settings)
    if line in found:
        left = [each for each in found if each not in (line, _HEAD.rstrip())]
        if any(each.strip() not in ("", _SECTION) for each in left):
            settings.write_text("\n".join(left) + "\n", encoding="utf-8")
        else:
            settings.unlink()
    Path(prefix, _NAME).unlink(missing_ok=True)


def is_kept(prefix: str) -> bool:
    """Whether a stand-in was installed there, and not removed by `shim remove`."""
    return Path(prefix, _NAME).exists()


def _places(prefix: str) -> tuple[Path, str]:
    """The environment's settings of pip, and the line that they need. An address, as pip takes
    blanks in a path for the space between two."""
    return Path(prefix, _SETTINGS), f"constraint = {Path(prefix, _NAME).as_uri()}"


def _read(settings: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return settings.read_text(encoding="utf-8").splitlines()
    return []


def _has_own(settings: Path) -> bool:
    parser = RawConfigParser()
    try:
        parser.read(settings, encoding="utf-8")
    except Error:  # nothing that pip reads either
        return True
    return any(parser.has_option(section, "constraint") for section in ("install", "global"))
