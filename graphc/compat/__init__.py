"""Running unmodified PyTorch code: `import torch` finds graphc.

    import graphc.compat
    graphc.compat.install()
    import torch.nn.functional as F   # graphc.nn.functional, the same module object

`python -m graphc run script.py` does this for a script, `python -m graphc shim install` for all
programs of a virtual environment.
"""

from .finder import install, installed, stand_in, uninstall

__all__ = ["install", "installed", "stand_in", "uninstall"]
