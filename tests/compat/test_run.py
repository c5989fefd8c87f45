"""`python -m graphc run`: like plain python, and the same losses as with PyTorch.

Tolerance on printed numbers: 2e-4 relative or 2e-5 absolute, since compiled code adds float32 in
another order; what is not a number must be the same text.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
# the shortest by default; the others are slow tests
QUICK = {("vae", "--compile")}
RTOL, ATOL = 2e-4, 2e-5
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
    )


def same(have: str, want: str) -> None:
    """The same lines, up to the last digits of numbers."""
    assert _NUMBER.sub("#", have) == _NUMBER.sub("#", want)
    for h, w in zip(_NUMBER.findall(have), _NUMBER.findall(want), strict=True):
        assert abs(float(h) - float(w)) <= ATOL + RTOL * abs(float(w)), (have, want)


@pytest.mark.parametrize(
    ("script", "mode"),
    [
        pytest.param(
            path, mode, id=f"{path.stem}{mode}",
            marks=() if (path.stem, mode) in QUICK else pytest.mark.slow,
        )
        for path in SCRIPTS for mode in ("--eager", "--compile")
    ],
)
def test_scripts_print_what_they_print_with_torch(script: Path, mode: str) -> None:
    pytest.importorskip("torch")
    want = python(str(script))
    have = python("-m", "graphc", "run", mode, str(script))
    assert (want.returncode, have.returncode) == (0, 0), want.stderr + have.stderr
    same(have.stdout, want.stdout)
    assert have.stderr == "", "nothing fell back to eager"


PROGRAM = """
import sys
print(sys.argv, __name__, __file__, sys.path[0], __spec__ is None)
print(sys.modules["__main__"].__dict__ is globals())
def fail():
    raise ValueError("mine")
if "--raise" in sys.argv: fail()
if "--exit" in sys.argv: sys.exit(7)
"""


def test_a_script_sees_what_plain_python_shows(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "program.py"
    file.write_text(PROGRAM)
    for arguments in (["--exit", "--epochs", "3"], ["--raise", "-m", "--compile"]):
        want = python("inner/program.py", *arguments, cwd=tmp_path)
        have = python("-m", "graphc", "run", "inner/program.py", *arguments, cwd=tmp_path)
        assert have.returncode == want.returncode
        assert have.stderr == want.stderr
        assert have.stdout == want.stdout


def test_a_module_by_name(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    have = python("-m", "graphc", "run", "-m", "program", "a", "--exit", cwd=tmp_path)
    assert have.returncode == 7
    assert have.stdout.startswith(f"['{tmp_path}/program.py', 'a', '--exit'] __main__ ")


def test_a_missing_file() -> None:
    done = python("-m", "graphc", "run", "no_such_file.py")
    assert done.returncode == 2 and "can't open file" in done.stderr


FALLBACK = """
import torch
from torch import nn
class Halving(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
    def forward(self, x):
        x = self.linear(x)
        while x.norm().item() > 1:
            x = x / 2
        return x.sum()
class Mistake(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = self.linear(x).relu()
        if y.sum() > 1e9:
            print("large")
        return y @ torch.ones(self.calls % 2 * 3 + 1)
torch.manual_seed(0)
model = Halving()
for _ in range(2):
    print("%.4f" % model(torch.ones(2, 3)))
mistake = Mistake()
for _ in range(6):
    try:
        print(mistake(torch.ones(2, 3)).shape, mistake.calls)
    except RuntimeError as error:
        print("mistake", mistake.calls)
"""


def test_what_cannot_be_compiled_runs_eager(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FALLBACK)
    want = python("-m", "graphc", "run", "--eager", "program.py", cwd=tmp_path)
    have = python("-m", "graphc", "run", "--compile", "program.py", cwd=tmp_path)
    assert have.returncode == 0, have.stderr
    same(have.stdout, want.stdout)
    # said once for each: where tensors this small gain nothing by segments
    assert have.stderr.count("PerformanceWarning") <= 2
    # and that a tensor which learns is printed as a number, as torch says
    others = have.stderr.count("Warning") - have.stderr.count("PerformanceWarning")
    assert others == have.stderr.count("Converting a tensor with requires_grad=True") == 1
    assert "Mistake, called at" not in have.stderr


OWN_CALLS = """
import torch
from torch import nn
class Doubled(nn.Sequential):
    calls = 0
    def __call__(self, x):
        self.calls += 1
        return super().__call__(x) * 2
torch.manual_seed(0)
layers = nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)
model, plain, seen = Doubled(*layers), nn.Sequential(*layers), []
def tapped(self, *args):
    seen.append(type(self).__name__)
    return before(self, *args)
for k in range(4):
    y = model(torch.ones(2, 3) + k)
    y.sum().backward()
    print(y.tolist(), model.calls, model[0].bias.grad.tolist(), plain(torch.ones(1, 3)).item())
before, nn.Module.__call__ = nn.Module.__call__, tapped
for k in range(2):
    print(plain(torch.ones(1, 3) + k).item(), model(torch.ones(1, 3)).item(), seen)
nn.Module.__call__ = before
print(plain(torch.ones(1, 3)).item(), len(seen))
"""


def test_a_call_method_of_the_user_s_runs_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OWN_CALLS)
    want = python("-m", "graphc", "run", "--eager", "program.py", cwd=tmp_path)
    have = python("-m", "graphc", "run", "--compile", "program.py", cwd=tmp_path)
    assert (want.returncode, have.returncode) == (0, 0), want.stderr + have.stderr
    same(have.stdout, want.stdout)
    assert "runs eager" not in have.stderr


ORIGINAL = """
import copy, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
compiled = torch.compile(model, backend="eager")
decorated = torch.compile(backend="eager")(lambda x: compiled(x) + model(x))
print(sorted(compiled.state_dict()), compiled._orig_mod is model, sorted(model.state_dict()))
print(decorated(torch.ones(1, 2)).tolist(), copy.deepcopy(compiled)(torch.ones(1, 2)).tolist())
print(getattr(torch.compile(model, disable=True), "_orig_mod", None))
raw = getattr(compiled, "_orig_mod", compiled)
raw.load_state_dict({n.removeprefix("_orig_mod."): v * 2 for n, v in compiled.state_dict().items()})
print(compiled(torch.ones(1, 2)).tolist(), [n for n, _ in compiled.named_parameters()])
"""


def printed(folder: Path, mode: str, text: str) -> tuple[str, str]:
    """What graphc and torch print of a program, which both bring to its end."""
    pytest.importorskip("torch")
    (folder / "program.py").write_text(text)
    want = python("program.py", cwd=folder)
    have = python("-m", "graphc", "run", mode, "program.py", cwd=folder)
    assert (want.returncode, have.returncode) == (0, 0), want.stderr + have.stderr
    return have.stdout, want.stdout


@pytest.mark.parametrize("mode", ["--eager", "--compile"])
def test_a_compiled_module_has_the_original_one(tmp_path: Path, mode: str) -> None:
    same(*printed(tmp_path, mode, ORIGINAL))


RAISING = """
import os
os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
from torch import nn
log = []
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(3, 3), 0
    def forward(self, x):
        self.calls += 1
        log.append(self.calls)
        y = self.inner(x)
        if self.calls % 3 == 0:
            raise KeyError(self.calls)
        return y
for model in (torch.compile(Model()), Model()):
    for i in range(7):
        try:
            model(torch.ones(1, 3))
            print(i)
        except KeyError as error:
            print(error)
    print(log, model.calls)
"""


@pytest.mark.parametrize("mode", ["--eager", "--compile"])
def test_a_module_that_raises_has_run_once(tmp_path: Path, mode: str) -> None:
    have, want = printed(tmp_path, mode, RAISING)
    assert have == want


SPAWN = """
import torch, torch.multiprocessing as mp
def work(rank, scale):
    assert torch.__version__ == "2.13.0+graphc", torch.__version__
    if rank == 1 and scale < 0:
        raise ValueError("negative")
if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
    try:
        mp.spawn(work, args=(-2,), nprocs=2)
    except mp.ProcessRaisedException as error:
        print(error.error_index, "ValueError: negative" in str(error))
"""


def test_spawned_processes_find_graphc_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SPAWN)
    have = python("-m", "graphc", "run", "program.py", cwd=tmp_path)
    assert have.returncode == 0, have.stderr
    assert have.stdout == "1 True\n"


STEPS = """
import sys, torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import mse_loss
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
one = nn.Linear(5, 1)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.Adam([*model.parameters(), *one.parameters()], lr=1e-2)
for i in range(6):
    x, y = torch.randn(4 + i, 6), torch.randint(0, 5, (4 + i,))
    optimizer.zero_grad(set_to_none=False)
    out = model(x)
    logit = one(out).squeeze(1)
    loss = criterion(out, y) + F.nll_loss(out.log_softmax(1), y)
    loss = loss + F.binary_cross_entropy(logit.sigmoid(), (y > 2).float())
    loss = loss + mse_loss(logit, y.float(), reduction="sum")
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    print("%.4f %.4f" % (loss.item(), norm.item()))
for wrong in (lambda: F.mse_loss(out, "text"), lambda: F.nll_loss(out, y + 7)):
    try:
        wrong()
    except (TypeError, IndexError) as error:
        print(type(error).__name__)
print("%.4f" % F.nll_loss(out, y).item())
print("%.4f" % F.l1_loss(torch.ones(3), torch.zeros(3, 1)).item())
(double,) = torch.autograd.grad(F.mse_loss(one(out.detach()), torch.ones(9, 1)),
                                one.weight, create_graph=True)
print("%.4f" % torch.autograd.grad(double.square().sum(), one.weight)[0].sum().item())

from graphc.engine.marks import Compilers
from graphc.engine.update import steps
print("compiled", sorted(f.name for f in Compilers.functions if f.compile_count), len(steps._plans),
      file=sys.stderr)
"""


def test_losses_and_steps_are_compiled_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STEPS)
    want = python("-m", "graphc", "run", "--eager", "program.py", cwd=tmp_path)
    have = python("-m", "graphc", "run", "--compile", "program.py", cwd=tmp_path)
    assert (want.returncode, have.returncode) == (0, 0), want.stderr + have.stderr
    same(have.stdout, want.stdout)
    *warned, counts = have.stderr.splitlines()
    names = "CrossEntropyLoss Sequential binary_cross_entropy l1_loss mse_loss nll_loss".split()
    assert counts == f"compiled {names} 1"
    # the user's line is named, once
    assert warned == want.stderr.splitlines()[:-1]
    assert "program.py:29: UserWarning: Using a target size" in warned[0]
