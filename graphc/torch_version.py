"""torch.torch_version."""

from .version import TorchVersion as TorchVersion
from .version import __version__ as __version__
