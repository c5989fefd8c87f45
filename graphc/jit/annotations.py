"""torch.jit.annotations: typing's names, and lists that one number may stand for."""

from __future__ import annotations

import typing
from typing import Any

# by name: scripts from before Python 3.9 import them from here
List = typing.List  # noqa: UP006
Dict = typing.Dict  # noqa: UP006
Tuple = typing.Tuple  # noqa: UP006
Optional = typing.Optional
Union = typing.Union


class _BroadcastingList:
    def __getitem__(self, types: Any) -> Any:
        return types


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = _BroadcastingList()
