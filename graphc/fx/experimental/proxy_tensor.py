"""torch.fx.experimental.proxy_tensor: whether make_fx is tracing, which it never is here."""

from ... import unsupported

make_fx = unsupported.function(
    "torch.fx.experimental.proxy_tensor.make_fx",
    "torch.export.export() gives a graph of operators",
)


def get_proxy_mode() -> None:
    """None: nothing is traced by proxies."""
