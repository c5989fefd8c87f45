"""The IR: types, operators, graphs, passes and kernels. Imports no other part of graphc."""

if __name__ != "graphc.ir":  # reached through the link at the repository's root
    right = "import graphc.ir"
    raise ImportError(f"{right}, not {__name__}: the link is for people", name=__name__)
