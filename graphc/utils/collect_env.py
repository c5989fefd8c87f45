"""torch.utils.collect_env: what a bug report should say about the machine."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

from .. import config
from ..version import __version__ as torch_version

_PACKAGES = ("graphc-compiler", "numpy", "llvmlite", "ml_dtypes", "networkx", "tqdm")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def get_pretty_env_info() -> str:
    """The text that main() prints."""
    lines = [
        f"PyTorch version: {torch_version}",
        "CUDA used to build PyTorch: None",
        f"OS: {platform.platform()}",
        f"Python version: {sys.version}",
        f"CPU: {platform.machine()}, {config.current().threads} threads for compiled code",
        "Versions of relevant libraries:",
        *(f"[pip3] {name}=={_version(name)}" for name in _PACKAGES),
    ]
    return "\n".join(lines)


def main() -> None:
    """Print them."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
