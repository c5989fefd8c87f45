"""torch.backends.quantized: no quantised kernels."""

engine = "none"
supported_engines: list[str] = ["none"]
