"""torch.utils.flop_counter: graphc.explain() counts instead."""

from .. import unsupported

FlopCounterMode = unsupported.kind(
    "torch.utils.flop_counter.FlopCounterMode",
    "graphc.explain(model, x) shows the flops of each kernel",
)
