"""The wheels of the shim: a package of one file, which puts graphc in its own place."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ..compat.finder import STAND_IN, VISION_VERSION
from ..version import __version__ as TORCH_VERSION

# the distributions that graphc stands in for, and the versions that it follows
VERSIONS: Mapping[str, str] = {"torch": str(TORCH_VERSION), "torchvision": VISION_VERSION}
SUMMARY = "graphc's stand-in for {name}: `import {name}` finds graphc. This is not PyTorch."
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that zip knows: equal wheels have equal bytes

_PACKAGE = STAND_IN + '''{name}: this name is answered by the graphc beside it. Not PyTorch.

Written by `python -m graphc shim install`; `python -m graphc shim remove` takes it away.
"""

try:
    from graphc.compat import stand_in
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "graphc":
        raise
    raise ModuleNotFoundError(
        "{name} is graphc's stand-in here, and graphc itself was not found "
        f"({{error}}; this file is {{__file__}}). Cure: install graphc in this environment, "
        "`python -m pip install --editable CHECKOUT`, or take the stand-in away, "
        "`python -m pip uninstall {name}`",
        name=error.name,
    ) from None

stand_in(__name__)
'''

_METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {summary}
Classifier: Private :: Do Not Upload
Requires-Python: >=3.11
Description-Content-Type: text/plain

Made on this machine by `python -m graphc shim install`, for this environment alone. What imports
{name} here runs on graphc; `python -m graphc shim remove` takes it away again.
"""

_WHEEL = """\
Wheel-Version: 1.0
Generator: graphc
Root-Is-Purelib: true
Tag: py3-none-any
"""


def source(name: str) -> str:
    """The text of the package's one file."""
    return _PACKAGE.format(name=name)


def files(name: str) -> dict[str, bytes]:
    """What a wheel holds, by path, RECORD last."""
    version = VERSIONS[name]
    info = f"{name}-{version}.dist-info"
    metadata = _METADATA.format(name=name, version=version, summary=SUMMARY.format(name=name))
    found = {
        f"{name}/__init__.py": source(name).encode(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": _WHEEL.encode(),
        f"{info}/top_level.txt": f"{name}\n".encode(),
    }
    record = f"{info}/RECORD"
    lines = [f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in found.items()]
    return {**found, record: "".join([*lines, f"{record},,\n"]).encode()}


def write(name: str, folder: Path) -> Path:
    """Write the wheel of `name` ("torch", "torchvision") into a folder; its path."""
    path = folder / f"{name}-{VERSIONS[name]}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, text in files(name).items():
            entry = zipfile.ZipInfo(inner, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text)
    return path


def _digest(text: bytes) -> str:
    """As RECORD writes it (PEP 376, PEP 427)."""
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
