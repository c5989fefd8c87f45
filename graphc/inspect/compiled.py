"""What of a compiled function can be looked at: its versions, its page, what a notebook shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from graphc.ir.late import late

if TYPE_CHECKING:
    from graphc.engine.version.version import Specialisation
    from graphc.inspect import explain as explaining
    from graphc.inspect.page import fragment
else:
    explaining = late("graphc.inspect.explain")
    fragment = late("graphc.inspect.page.fragment")


class Inspected:
    """The base of CompiledFunction for this."""

    _versions: Any

    def versions(self) -> list[Specialisation]:
        """Those that are there, in the order in which they were compiled."""
        found: list[Specialisation] = self._versions.all()
        return found

    def save_html(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """`explain(self, *args, **kwargs).save_html(path)`: one page about what a call with these
        arguments runs; without any, about what was compiled last."""
        explaining.explain(self, *args, **kwargs).save_html(path)

    def _repr_html_(self) -> str:
        """What a notebook shows; nothing is compiled for it."""
        return fragment.of_compiled(self)
