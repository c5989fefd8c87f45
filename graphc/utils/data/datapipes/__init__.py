"""torch.utils.data.datapipes: chains of streams, which torch itself no longer develops.

Nothing is one of them; accelerate asks of every stream that it sends to processes.
"""

from . import iter as iter
