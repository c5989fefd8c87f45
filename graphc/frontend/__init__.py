"""The PyTorch-shaped front: Tensors, dispatch, eager autograd, and the tracer. Knows no backend.

    tensor.py       Tensor (state only), Parameter, register_methods, concrete()
    dispatch.py     apply(): every operation; inplace(): every write; set_runner()
    promote.py      torch's type promotion: binary(), unary(), operands()
    views.py        the view operators, on arrays, strides and values
    nodes.py        the tape; autograd.py walks it; worlds.py: on arrays, graph nodes or Tensors
    function.py     autograd.Function
    trace.py        Trace: records instead of running; functionalize.py: writes without memory
    captured.py     what a finished trace says (TracedGraph); finish.py makes it
    numbers.py      Size, SymInt, LiftedNumber; number_expr.py: what is computed with them
"""

if __name__ != "graphc.frontend":  # reached through the link at the repository's root
    right = "import graphc.frontend"
    raise ImportError(f"{right}, not {__name__}: the link is for people", name=__name__)
