"""torchvision._meta_registrations, _autograd_registrations and ops._register_onnx_ops, for an
installed torchvision: what types and gradients its operators have, graphc's own operators say."""


def _register_custom_op() -> None:
    """Nothing: there is no export to ONNX."""
