"""What linking raises."""


class LinkError(RuntimeError):
    """No linker, or one that refuses; the message says the cure, or what the linker said."""
