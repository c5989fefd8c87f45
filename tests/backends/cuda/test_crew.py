"""NVRTC in processes of its own: what it makes there, what it refuses, and how processes end."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from graphc.backends.cuda import crew, libraries
from graphc.backends.cuda.cubins import CubinCache
from graphc.backends.cuda.libraries import NVRTC, Found
from graphc.backends.cuda.nvrtc import Nvrtc, NvrtcError
from graphc.backends.cuda.prelude import PRELUDE
from graphc.backends.cuda.source import Source, shared_out

from . import needs

TEXTS = [
    f'extern "C" __global__ void add{n}(float* x, float y) {{ x[threadIdx.x] += {n} * y; }}\n'
    + "// so that texts have several lengths\n" * (n % 3)
    for n in range(5)
]
# An NVRTC that takes any text, compiles for ever what says so, and breaks down at a word.
FAKE = """
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static const char *source;
const char *nvrtcGetErrorString(int code) { return "no"; }
int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 1; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { return 1; }
int nvrtcGetSupportedArchs(int *archs) { return 1; }
int nvrtcCreateProgram(void **made, const char *text, const char *name, int count,
                       const char *const *headers, const char *const *names) {
  source = text; *made = (void *)&source; return 0;
}
int nvrtcDestroyProgram(void **made) { return 0; }
int nvrtcCompileProgram(void *made, int count, const char *const *options) {
  if (strstr(source, "break")) { fprintf(stderr, "assertion failed\\n"); abort(); }
  if (strstr(source, "for ever")) for (;;) pause();
  puts("what the library prints"); fflush(stdout);
  return 0;
}
int nvrtcGetProgramLogSize(void *made, size_t *size) { *size = 1; return 0; }
int nvrtcGetProgramLog(void *made, char *log) { *log = 0; return 0; }
int nvrtcGetCUBINSize(void *made, size_t *size) { *size = strlen(source); return 0; }
int nvrtcGetCUBIN(void *made, char *cubin) { memcpy(cubin, source, strlen(source)); return 0; }
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("nvrtc")
    source, path = folder / "fake.c", folder / "libnvrtc.so"
    source.write_text(FAKE)
    needs.compile_c(source, path, "-D_GNU_SOURCE", "-shared", "-fPIC")
    return libraries.loaded(NVRTC, str(path))


def test_as_in_this_process(tmp_path: Path) -> None:
    compiler = needs.compiler()
    here = [compiler.compile(text, "sm_90a") for text in TEXTS]
    made = crew.compile_all(compiler.found, TEXTS, "sm_90a", 2)
    assert [each.cubin for each in made] == [each.cubin for each in here]
    assert [each.uses for each in made] == [each.uses for each in here]
    with pytest.raises(NvrtcError, match=r'error: identifier "unknown"'):
        crew.compile_all(compiler.found, [*TEXTS, "void k() { unknown; }"], "sm_90a", 2)
    cache = CubinCache(tmp_path)
    cache.compile(compiler, TEXTS[1], "sm_90a")
    again = cache.compile_all(compiler, [*TEXTS, TEXTS[1]], "sm_90a", 2)
    assert [each.cubin for each in again] == [each.cubin for each in (*here, here[1])]
    assert (cache.hits, cache.misses) == (2, 5)
    assert CubinCache(tmp_path).compile_all(compiler, TEXTS, "sm_90a", 2) == again[:5]


def children() -> set[str]:
    """Processes of this thread."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return set(path.read_text().split()) if path.exists() else set()


def test_each_text_in_its_place(fake: Found) -> None:
    before = children()
    texts = [f"text {n}" + "." * (7 * n % 11) for n in range(40)]
    made = crew.compile_all(fake, texts, "sm_90", 3)
    assert [each.cubin.decode() for each in made] == texts
    assert children() <= before


def test_a_crash_is_an_error(fake: Found) -> None:
    """That says how it ended and what was said last; what waits for other texts is ended."""
    said = r"NVRTC 13\.1 ended its process by SIGABRT: assertion failed\. Cure"
    began = time.monotonic()
    with pytest.raises(NvrtcError, match=said):
        crew.compile_all(fake, ["break", "a", "b"], "sm_90", 2)
    with pytest.raises(NvrtcError, match=said):
        CubinCache().compile_all(Nvrtc(fake), ["break", "a"], "sm_90", 2)
    assert time.monotonic() - began < 20


def test_without_processes(fake: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none can be begun, or none loads the library, this one compiles."""
    gone = fake._replace(path="/no/such/library")
    with pytest.raises(crew.NoWorker, match="no/such/library"):
        crew.compile_all(gone, ["a", "b"], "sm_90", 2)
    assert [c.cubin for c in CubinCache().compile_all(Nvrtc(gone), ["a", "b"], "sm_90", 2)] == [
        b"a", b"b"
    ]
    for executable in (None, "/no/such/python"):
        monkeypatch.setattr(sys, "executable", executable)
        with pytest.raises(crew.NoWorker):
            crew.compile_all(fake, ["a", "b"], "sm_90", 2)


_PARENT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
from graphc.backends.cuda import crew, libraries
found = libraries.loaded(libraries.NVRTC, sys.argv[1])
began = crew.Worker.__init__
def tell(worker, found):
    began(worker, found)
    print(worker._process.pid, flush=True)
crew.Worker.__init__ = tell
crew.compile_all(found, ["for ever", "for ever, too"], "sm_90", 2)
"""


def test_an_interrupt_ends_them(fake: Found) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, fake.path], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    numbers = [int(parent.stdout.readline()) for _ in range(2)]
    try:
        time.sleep(0.3)
        parent.send_signal(signal.SIGINT)
        assert parent.wait(20) != 0
        assert not any(os.path.exists(f"/proc/{number}") for number in numbers)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def test_a_worker_ends_with_who_began_it(fake: Found) -> None:
    worker = crew.Worker(fake)
    worker.ready()
    worker._pipe("stdin").close()
    assert worker._process.wait(20) == 0
    worker.end()


def test_what_is_one_text() -> None:
    small = [Source(PRELUDE + f"// {n}\n" * 40, ()) for n in range(30)]
    large = [Source(PRELUDE + f"// {n}\n" * 4000, ()) for n in range(4)]
    assert shared_out([*small, *large], 1) == [[*small, *large]]
    assert shared_out(small[:3], 16) == [small[:3]]
    assert shared_out([], 16) == [[]]
    for count in (2, 3, 16, 64):
        groups = shared_out([*small, *large], count)
        assert [len(group) for group in groups[:4]] == [1] * 4
        assert sorted(source.text for group in groups for source in group) == sorted(
            source.text for source in (*small, *large)
        )
        assert all(groups) and len(groups) >= 5
