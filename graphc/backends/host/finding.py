"""What a backend has to say of the machine that it runs on."""

from collections.abc import Sequence

from graphc.ir.named import NamedTuple


class Finding(NamedTuple):
    """Something that a backend needs of this machine, or could use: a line of
    `python -m graphc doctor`.

    `found`: what there is (a version, a place), None where it is missing. `cure`: what brings it,
    or mends what there is; empty where nothing is to be done. `needed`: nothing runs without it.
    """

    subject: str
    found: str | None
    cure: str = ""
    needed: bool = False


class KeptProgram(NamedTuple):
    """A program that is kept, for people: a line, more lines, and when it was last used."""

    title: str
    lines: Sequence[str]
    used: float
