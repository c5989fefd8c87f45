"""Shared objects that stand for the system's when a library is linked: names, and no code.

With them a library for another CPU is linked without that system's files, and what comes out does
not hang on the machine where it was made. Names have no versions: the loader then takes a name's
first version in glibc, so that the library runs on old systems, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from graphc.backends.host import elf
from graphc.export.aot.linking.errors import LinkError

# What generated code may call: instructions that a CPU lacks, functions that the vector maths
# leaves to libm, and what the entry points and the threads of a library need of the system.
_MATHS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1
fabs floor fma fmax fmin fmod frexp hypot ldexp lgamma llrint llround log log10 log1p log2 lrint
lround modf nearbyint nextafter pow remainder rint round roundeven scalbn sin sincos sinh sqrt tan
tanh tgamma trunc
""".split()
_SYSTEM = """
__errno_location _exit abort access aligned_alloc bcmp calloc clock_gettime close exit fclose fopen
fputs fread free fseek fstat fsync ftell fwrite getauxval getpid lseek madvise malloc memcmp memcpy
memmove memset mmap munmap open posix_memalign pread read rename
sched_getaffinity sched_getcpu sched_yield sigfillset snprintf strcmp strlen strncmp strnlen syscall
unlink usleep write
""".split()
_THREADS = """
pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_cond_destroy
pthread_cond_init pthread_cond_signal pthread_cond_wait pthread_create pthread_join
pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_self
pthread_sigmask
""".split()
# By the file that has them on Linux. glibc 2.34 moved threads into libc; the other file is still
# there, empty.
_LIBRARIES: Mapping[str, frozenset[str]] = {
    "libm.so.6": frozenset(_MATHS) | frozenset(name + "f" for name in _MATHS),
    "libpthread.so.0": frozenset(_THREADS),
    "libc.so.6": frozenset(_SYSTEM),
}
MACHINES = {"x86_64": elf.X86_64, "aarch64": elf.AARCH64}

_STRINGS, _SYMBOLS, _DYNAMIC, _NAMES = 1, 2, 3, 4  # sections, in their order
_HEADER, _SECTION, _SYMBOL = 64, 64, 24  # bytes
_FUNCTION = 1 << 4 | 2  # a global one
_ABSOLUTE = 0xFFF1


def by_library(names: Iterable[str]) -> dict[str, list[str]]:
    """The files of the system that have these names. Raises LinkError for one that none has."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        library = next((file for file, has in _LIBRARIES.items() if name in has), None)
        if library is None:
            raise LinkError(f"the code calls {name}, which neither libc, libm nor threads have")
        found.setdefault(library, []).append(name)
    return found


def stub(soname: str, names: Sequence[str], arch: str) -> bytes:
    """A shared object of this name that defines these functions, to be linked with and never run.

    Linkers read its sections alone: there are no pages to be loaded.
    """
    strings, places = _strings([soname, *names])
    symbols = bytes(_SYMBOL) + b"".join(
        struct.pack("<IBBHQQ", place, _FUNCTION, 0, _ABSOLUTE, 0, 0) for place in places[1:]
    )
    dynamic = struct.pack("<qQqQ", 14, places[0], 0, 0)  # DT_SONAME, DT_NULL
    kinds = [".dynstr", ".dynsym", ".dynamic", ".shstrtab"]
    section_names, named = _strings(kinds)
    bodies = [strings, symbols, dynamic, section_names]
    # kind, flags (2: loaded), link, info (of symbols: the first global one), alignment, entry
    facts = {
        _STRINGS: (3, 2, 0, 0, 1, 0), _SYMBOLS: (11, 2, _STRINGS, 1, 8, _SYMBOL),
        _DYNAMIC: (6, 2, _STRINGS, 0, 8, 16), _NAMES: (3, 0, 0, 0, 1, 0),
    }
    data, table = bytearray(_HEADER), bytes(_SECTION)
    for number, body in enumerate(bodies, 1):
        data += bytes(-len(data) % 8)
        kind, flags, link, info, alignment, entry = facts[number]
        table += struct.pack(
            "<IIQQQQIIQQ", named[number - 1], kind, flags, len(data), len(data), len(body), link,
            info, alignment, entry,
        )
        data += body
    data += bytes(-len(data) % 8)
    data[:_HEADER] = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, MACHINES[arch], 1, 0, 0, len(data), 0,
        _HEADER, 0, 0, _SECTION, len(bodies) + 1, _NAMES,
    )
    return bytes(data) + table


def _strings(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """A table of texts that end with a zero, and where each begins."""
    data, places = b"\0", []
    for text in texts:
        places.append(len(data))
        data += text.encode() + b"\0"
    return data, places
