"""What export raises."""


class ExportError(RuntimeError):
    """A model that cannot be exported or a file that cannot be loaded. The message has the cure."""
