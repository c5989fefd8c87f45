"""What the user touches: Tensor, the tracer, eager autograd. Knows no backend."""

if __name__ != "graphc.frontend":  # reached through the link at the repository's root
    right = "import graphc.frontend"
    raise ImportError(f"{right}, not {__name__}: the link is for people", name=__name__)
