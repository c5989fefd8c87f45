"""Objects become files that other people's programs load: shared objects, and static archives."""

from graphc.export.aot.linking.archive import static_archive
from graphc.export.aot.linking.errors import LinkError
from graphc.export.aot.linking.shared import link_shared

__all__ = ["LinkError", "link_shared", "static_archive"]
