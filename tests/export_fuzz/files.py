"""Good files to begin with: small, of many operators, of both formats."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import graphc as torch
import graphc.nn as nn
import graphc.nn.functional as F
from graphc.export import Dim, export, export_step

TRUSTED = "trusted"  # the SHA-256 of the code in the file that has some


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)

    def forward(self, x: Any) -> Any:
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1).softmax(1)


def good_files(folder: Path) -> list[Path]:
    """The files, made in a folder."""
    torch.manual_seed(0)
    batch = ({0: Dim("n", max=64)},)
    programs: dict[str, Any] = {
        "vector": export(lambda x: (x * 2).exp().sum(), (torch.rand(4),)),
        "mlp": export(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4)).eval(),
                      (torch.rand(2, 3),), dynamic_shapes=batch),
        "convolutions": export(_Convolutions().eval(), (torch.rand(2, 1, 4, 4),),
                               dynamic_shapes=batch),
        "second graph": export(lambda x: x.squeeze(0) + x.shape[0], (torch.rand(3, 2),),
                               dynamic_shapes=({0: Dim("n", min=1)},)),
        "indices": export(lambda x, i: (x[i], x.gather(0, i[:, None]).cumsum(0), x.sort(0)[1]),
                          (torch.rand(5, 2), torch.tensor([0, 2, 4]))),
        "branches": export(
            lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
            (torch.rand(4),)),
        "matrices": export(lambda a, b: (a @ b, torch.linalg.solve(a, b), torch.fft.fft(b).abs()),
                           (torch.eye(3) * 2, torch.rand(3, 2))),
    }
    weight = nn.Parameter(torch.rand(3, 2))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x: Any, lr: float) -> Any:
        optimizer.zero_grad()
        loss = F.dropout(x @ weight, 0.5).square().mean() * lr
        loss.backward()
        optimizer.step()
        return loss.item()

    step(torch.rand(2, 3), 1.0)
    programs["step"] = export_step(step, (torch.rand(2, 3), 0.5))
    programs["step"](torch.rand(2, 3), 0.5)  # its recorded call has a state of its own
    programs["train mode"] = export(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), (torch.rand(4, 3),),
        dynamic_shapes=({0: Dim("n", min=2)},),
    )
    files: list[Path] = []
    for name, program in programs.items():
        files.append(folder / f"{name}.gcx")
        program.save(files[-1])
    files.append(folder / "native.gcx")
    digests = programs["vector"].save(files[-1], native=True)
    (folder / TRUSTED).write_text("\n".join(digests.values()))
    old = Path(__file__).parents[1] / "export_files" / "format_1"
    for name in ("tied", "containers", "lstm"):
        files.append(folder / f"{name}.gcx")
        shutil.copy(old / f"{name}.gcx", files[-1])
    return files
