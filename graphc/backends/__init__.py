"""What runs a graph: numpy (reference and eager), llvm (CPU), cuda (GPU)."""

if __name__ != "graphc.backends":  # reached through the link at the repository's root
    right = "import graphc.backends"
    raise ImportError(f"{right}, not {__name__}: the link is for people", name=__name__)
