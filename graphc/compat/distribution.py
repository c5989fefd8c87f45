"""What `importlib.metadata` says about torch and torchvision while graphc stands in for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from typing import Any


def is_stand_in(version: str | None) -> bool:
    """Whether a distribution of this version is one of ours, of any release."""
    return version is not None and version.endswith("+graphc")


def same_name(name: str) -> str:
    """A distribution's name as PEP 503 compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


class MirrorDistribution(Distribution):
    """Metadata without files: a name and a version."""

    def __init__(self, name: str, version: str) -> None:
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                        "Summary: graphc, answering to this name\n",
            "top_level.txt": f"{name}\n",
        }

    def read_text(self, filename: str | os.PathLike[str]) -> str | None:
        """One of the metadata files."""
        return self._texts.get(str(filename))

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """There are no files. Raises FileNotFoundError."""
        raise FileNotFoundError(f"{path}: graphc stands in for this distribution")


def distributions(versions: Mapping[str, str], wanted: str | None) -> Iterator[Distribution]:
    """Those called `wanted`, or all for None; but those of which an
    installed stand-in has metadata itself."""
    for name, version in versions.items():
        if wanted is None or same_name(wanted) == name:
            found = MetadataPathFinder.find_distributions(DistributionFinder.Context(name=name))
            if not any(is_stand_in(each.version) for each in found):
                yield MirrorDistribution(name, version)
