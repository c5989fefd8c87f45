"""`python -m graphc doctor`: its data, its text, its exit status."""

import sys
from typing import Any

import pytest

import graphc
from graphc import __main__ as command
from graphc import backends, doctor
from graphc.backends import Finding
from graphc.doctor import Section


def test_this_machine_works(capsys: pytest.CaptureFixture[str]) -> None:
    """The tests run on it."""
    assert command.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.endswith("The CPU path works.\n")
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]}".split()[1] in text
    sections = doctor.examine()
    titles = [section.title for section in sections]
    assert titles[:2] == ["Python", "backend llvm"] and "backend cuda" in titles
    mine = [section for section in sections if section.title in ("Python", "backend llvm")]
    found = {finding.subject: finding for section in mine for finding in section.findings}
    assert found["graphc"].found == graphc.__version__
    assert found["compiled code"].found == "runs, and agrees with eager mode"
    assert "vectors of" in str(found["CPU"].found)
    for finding in found.values():
        assert finding.found or finding.cure, f"{finding.subject}: neither found nor a cure"
        assert not finding.needed or finding.found is not None


def test_backends_of_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def findings(self, host: backends.Host) -> list[Finding]:
            return [Finding("widget", None, f"buy one for {host.threads} threads", needed=True)]

    monkeypatch.setattr(backends, "_entries", dict(backends._entries))
    monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))
    backends.register("other", Other)
    section = next(each for each in doctor.examine() if each.title == "backend other")
    (finding,) = section.findings
    assert finding.cure.startswith("buy one") and not finding.needed  # the CPU works without


def test_a_backend_that_cannot_say_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ImportError("No module named 'widgets'")

    monkeypatch.setattr(backends, "_entries", dict(backends._entries))
    backends.register("broken", broken)
    section = next(each for each in doctor.examine() if each.title == "backend broken")
    assert section.findings == (
        Finding("broken", None, "ImportError: No module named 'widgets'"),
    )


def test_the_text() -> None:
    sections = [
        Section("One", (Finding("short", "1.0"), Finding("long name", None, "pip install it"))),
        Section("Two", (Finding("old", "0.1", "a newer one"),)),
    ]
    assert doctor.render(sections).splitlines() == [
        "One",
        "  ok      short      1.0",
        "  missing long name",
        "          cure: pip install it",
        "",
        "Two",
        "  mend    old  0.1",
        "          cure: a newer one",
        "",
        "The CPU path works.",
    ]


def test_what_is_needed_and_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [Section("CPU", (Finding("llvmlite", None, "pip install llvmlite", needed=True),))]
    monkeypatch.setattr(doctor, "examine", lambda: broken)
    assert command.main(["doctor"]) == 1
    assert capsys.readouterr().out.endswith("The CPU path does not work: llvmlite\n")


@pytest.mark.parametrize("how", ["raises", "wrong"])
def test_compiled_code_that_does_not_work(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def compiled(function: Any, **options: Any) -> Any:
        if how == "raises":
            raise OSError("the code cannot be loaded")
        return lambda x: function(x) + 1

    monkeypatch.setattr(graphc, "compile", compiled)
    finding = doctor._compiled_code()
    assert finding.found is None and finding.needed
    assert ("OSError: the code cannot be loaded" if how == "raises" else "wrong numbers") in (
        finding.cure
    )
