"""Static archives: read by the system's tools, linked by its compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.freestanding.levels import target_named
from graphc.export.aot.linking import LinkError, static_archive

X86 = target_named("x86-64")
ONE = """
declare i64 @NAME_two(i64)
define i64 @NAME_one(i64 %x) nounwind {
  %y = call i64 @NAME_two(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""
TWO = """
define hidden i64 @NAME_two(i64 %x) nounwind {
  %y = mul i64 %x, FACTOR
  ret i64 %y
}
"""


def objects(name: str, factor: int) -> list[bytes]:
    return [
        ObjectCache().compile(text.replace("NAME", name).replace("FACTOR", str(factor)), X86)
        for text in (ONE, TWO)
    ]


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def test_archives_of_two_models_in_one_program(tmp_path: Path) -> None:
    for name, factor in (("a", 10), ("b", 100)):
        (tmp_path / f"lib{name}.a").write_bytes(static_archive(objects(name, factor)))
    (tmp_path / "main.c").write_text("""
        #include <stdio.h>
        long a_one(long), b_one(long);
        int main(void) { printf("%ld %ld\\n", a_one(4), b_one(4)); return 0; }
    """)
    subprocess.run([tool("gcc"), "main.c", "-L.", "-la", "-lb", "-o", "main"], cwd=tmp_path,
                   check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert done.stdout == "41 401\n"


def test_tools_read_it(tmp_path: Path) -> None:
    path = tmp_path / "liba.a"
    odd = [*objects("a", 3), objects("b", 3)[1] + b"\0"]  # of an odd number of bytes
    path.write_bytes(static_archive(odd))
    listed = subprocess.run([tool("ar"), "tv", path], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == [
        "0000.o", "0001.o", "0002.o",
    ]
    table = subprocess.run([tool("nm"), "--print-armap", path], capture_output=True, text=True,
                           check=True).stdout
    assert "a_one in 0000.o" in table and "b_two in 0002.o" in table
    (tmp_path / "out").mkdir()
    subprocess.run([tool("ar"), "x", path], cwd=tmp_path / "out", check=True)
    assert [(tmp_path / "out" / f"{n:04}.o").read_bytes() for n in range(3)] == odd


def test_equal_objects_give_equal_bytes() -> None:
    assert static_archive(objects("a", 3)) == static_archive(objects("a", 3))


def test_what_is_refused() -> None:
    with pytest.raises(LinkError, match="objects 0 and 2 both define a_one"):
        static_archive([*objects("a", 3), objects("a", 4)[0]])
    with pytest.raises(LinkError, match="object 0 is no 64-bit"):
        static_archive([b"!<arch>\n"])
