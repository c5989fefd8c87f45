"""torch._dynamo.exc: what compile() raises, by the names that programs catch it by."""

from __future__ import annotations

from ..frontend.errors import TraceError

# fullgraph=True of a function that is no one graph raises TraceError, as torch does Unsupported
TorchDynamoException = Unsupported = UserError = TraceError
