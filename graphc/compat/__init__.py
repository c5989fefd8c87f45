"""Running unmodified PyTorch code: `import torch` finds graphc.

    import graphc.compat
    graphc.compat.install()
    import torch.nn.functional as F   # graphc.nn.functional, the same module object

`python -m graphc run script.py` does this for a script.
"""

from .finder import install, installed, uninstall

__all__ = ["install", "installed", "uninstall"]
