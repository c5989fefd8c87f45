"""The attributes of a Module that graphc's own code sets, and counts when it does.

Users set other attributes through `__dict__`, too: those are compared at every call.
"""

from __future__ import annotations

from ...nn.modules.module import Module

OWN_FIELDS = frozenset(vars(Module())) | {"_compiled_call_impl"}
