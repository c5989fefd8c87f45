"""torch.ao.quantization: integers instead of floats, which graphc does not do."""

from __future__ import annotations

from .. import unsupported

_CURE = "run the model in float32 or bfloat16"

globals().update(unsupported.table("torch.ao.quantization", _CURE, functions="""
    quantize_dynamic quantize quantize_qat prepare prepare_qat convert fuse_modules
    fuse_modules_qat get_default_qconfig get_default_qat_qconfig get_default_qconfig_mapping
    default_dynamic_qconfig propagate_qconfig_ add_quant_dequant swap_module
""", kinds="""
    QuantStub DeQuantStub QuantWrapper QConfig QConfigMapping FakeQuantize ObserverBase
    MinMaxObserver HistogramObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver
"""))
