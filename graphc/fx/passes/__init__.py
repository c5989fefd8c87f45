"""torch.fx.passes: walks over Graphs that other tools build on."""

from . import shape_prop as shape_prop
