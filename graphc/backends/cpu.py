"""torch.backends.cpu: what the processor can do."""


def get_cpu_capability() -> str:
    """"DEFAULT": the other names say which of PyTorch's own kernels run, and none of them do."""
    return "DEFAULT"
