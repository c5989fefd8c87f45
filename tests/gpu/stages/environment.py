"""What there is: the driver, the device, libraries, and what the peers would use."""

from __future__ import annotations

import platform
import shutil
from importlib import metadata
from typing import Any

from graphc import doctor
from graphc.backends.cuda.driver import Attribute

from ..bed import Bed
from ..results import Record

PACKAGES = (
    "numpy", "llvmlite", "ml_dtypes", "cupy-cuda12x", "cupy-cuda13x", "cuda-pathfinder", "torch",
    "triton", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cudnn-cu13",
)
TOOLS = ("nvcc", "ncu", "compute-sanitizer", "cuobjdump", "g++")


def run(bed: Bed, record: Record) -> None:
    """A line for each kind."""
    driver = bed.driver
    free, total = driver.memory()
    record(
        "device", cuda=".".join(map(str, driver.version())), free=free, total=total,
        **{name.name.lower(): _attribute(bed, name) for name in Attribute},
    )
    record("python", version=platform.python_version(), machine=platform.machine())
    record("packages", **{name: _version(name) for name in PACKAGES})
    record("tools", **{name: shutil.which(name) is not None for name in TOOLS})
    sections = doctor.examine()
    for finding in next(s.findings for s in sections if s.title == "backend cuda"):
        record("doctor", subject=finding.subject, found=finding.found, cure=finding.cure)
    _peers(record)


def _attribute(bed: Bed, attribute: Attribute) -> int | None:
    try:
        return bed.driver.attribute(0, attribute)
    except (KeyError, RuntimeError):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _peers(record: Record) -> None:
    """PyTorch, and which attention it takes first."""
    try:
        import torch
    except ImportError as error:
        record("torch", missing=str(error))
        return
    fields: dict[str, Any] = {"version": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        fields["cudnn"] = torch.backends.cudnn.version()
        q = torch.randn(1, 8, 256, 128, device="cuda", dtype=torch.bfloat16)
        params = torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, True, False)
        fields["flash"] = torch.backends.cuda.can_use_flash_attention(params)
        fields["cudnn_attention"] = torch.backends.cuda.can_use_cudnn_attention(params)
        fields["chosen"] = int(torch._fused_sdp_choice(q, q, q, None, 0.0, True))
    record("torch", **fields)
