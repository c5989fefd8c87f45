"""Objects become files that other people's programs load: shared objects, static archives, and
modules of WebAssembly."""

from graphc.export.aot.linking.archive import static_archive
from graphc.export.aot.linking.errors import LinkError
from graphc.export.aot.linking.shared import link_shared
from graphc.export.aot.linking.webassembly import link_wasm

__all__ = ["LinkError", "link_shared", "link_wasm", "static_archive"]
