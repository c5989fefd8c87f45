"""torch.hub against a GitHub of our own: a server in a thread, at which both sides look."""

import builtins
import http.server
import io
import json
import re
import sys
import threading
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import graphc
from graphc import hub

HUBCONF = '''
"""An example."""
import sys
from os.path import join
import beside
dependencies = ["numpy"]

def model(size=1, *, word=""):
    """A model's text."""
    import beside_later
    return [VERSION, size, word, beside.NAME, beside_later.NAME]

def _hidden():
    pass

VERSION = 1
needs = {"not": "callable"}
'''


def zipped(files: dict[str, str], top: str = "owner-repo-1a2b3c/") -> bytes:
    """A repository's archive, as GitHub packs it: one folder, which comes first."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        if top:
            archive.writestr(top, "")
        for name, text in files.items():
            archive.writestr(top + name, text)
    return made.getvalue()


def repository(version: int = 1, **changes: str) -> bytes:
    return zipped({
        "hubconf.py": HUBCONF.replace("VERSION = 1", f"VERSION = {version}"),
        "beside.py": "NAME = 'beside'", "beside_later.py": "NAME = 'later'", **changes,
    })


BRANCHES = [{"name": "main", "commit": {"sha": "aa11"}}, {"name": "a/b", "commit": {"sha": "bb"}}]
TAGS = [{"name": "v1", "commit": {"sha": "cc33"}}]


class GitHub(http.server.BaseHTTPRequestHandler):
    """Answers by path, from a table of (status, body); notes who asked for what."""

    answers: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        path, token = self.path, self.headers.get("Authorization") or ""
        self.asked.append((path, token))
        status, body = self.answers.get(path, (404, b""))
        if token == "token stale":
            status, body = 401, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


def pages(repo: str, branches: list[Any], tags: list[Any]) -> dict[str, tuple[int, bytes]]:
    found = {}
    for kind, names in (("branches", branches), ("tags", tags)):
        for page, part in ((1, names), (2, [])):
            query = f"/repos/{repo}/{kind}?per_page=100&page={page}"
            found[query] = 200, json.dumps(part).encode()
    return found


def usual() -> dict[str, tuple[int, bytes]]:
    """A repository with a branch main, another one with a branch master."""
    return {
        "/owner/repo/tree/main/": (200, b"<html>"),
        **pages("owner/repo", BRANCHES, TAGS),
        "/owner/repo/zipball/main": (200, repository(1)),
        "/owner/repo/zipball/v1": (200, repository(2)),
        "/owner/repo/zipball/a/b": (200, repository(3)),
        **pages("owner/old", [{"name": "master", "commit": {"sha": "dd"}}], []),
        "/owner/old/zipball/master": (200, repository(4)),
        "/pytorch/repo/tree/main/": (200, b"<html>"),
        **pages("pytorch/repo", BRANCHES, TAGS),
        "/pytorch/repo/zipball/main": (200, repository(5)),
        "/owner/evil/zipball/up": (200, zipped({"../../out.py": "1"})),
        "/owner/evil/zipball/root": (200, zipped({"/etc/out.py": "1"}, top="")),
        "/owner/twice/zipball/v1": (300, b""),
        "/owner/twice/zipball/refs/heads/v1": (200, repository(6)),
        "/owner/needy/zipball/main": (200, repository(7, **{"hubconf.py": (
            "dependencies = ['numpy', 'no_such_thing', 'nor_this']\ndef model(): 1/0"
        )})),
    }


class Side:
    """One of the two modules, with its folder, looking at the server."""

    def __init__(self, module: ModuleType, place: str, folder: Path) -> None:
        self.module, self.folder, self.offline = module, folder, False
        self.handler = type("Handler", (GitHub,), {"answers": usual(), "asked": []})
        self.server = http.server.ThreadingHTTPServer((place, 0), self.handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def asked(self) -> list[tuple[str, str]]:
        return self.handler.asked

    def urlopen(self, request: Any) -> Any:
        if self.offline:
            raise urllib.error.URLError("no network")
        full = request if isinstance(request, str) else request.full_url
        headers = {} if isinstance(request, str) else dict(request.header_items())
        here = "http://{}:{}".format(*self.server.server_address[:2])
        local, changed = re.subn(r"^https://(api\.)?github\.com", here, full)
        assert changed or full.startswith(here), full
        return self.opener.open(urllib.request.Request(local, headers=headers))

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Side]]:
    """make("graphc" or "torch") gives a side."""
    made = []
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)

    def make(name: str) -> Side:
        module = hub if name == "graphc" else pytest.importorskip("torch.hub")
        side = Side(module, "127.0.0.1", tmp_path / f"{name}{len(made)}")
        made.append(side)
        monkeypatch.setattr(module, "urlopen", side.urlopen)
        monkeypatch.setattr(module, "_hub_dir", None)
        module.set_dir(str(side.folder))
        return side

    yield make
    for side in made:
        side.close()


@pytest.fixture
def mine(sides: Callable[[str], Side]) -> Side:
    return sides("graphc")


def forget() -> None:
    """What a hubconf imported, the next one imports again."""
    for name in ("beside", "beside_later"):
        sys.modules.pop(name, None)


# --- what both do --------------------------------------------------------------------------------
# each step: the terminal's answer (None: nobody is asked), a call's name, arguments, options

SKIP = {"skip_validation": True, "trust_repo": True}
TRUE = {"trust_repo": True}
Step = tuple[str | None, str, tuple[Any, ...], dict[str, Any]]
RUNS: dict[str, list[Step]] = {
    "the default branch, and its cache": [
        (None, "load", ("owner/repo", "model", 3), {"word": "w", **TRUE}),
        (None, "list", ("owner/repo",), {}),
        (None, "help", ("owner/repo", "model"), {}),
        (None, "load", ("owner/repo", "model"), {"verbose": False}),
        (None, "load", ("owner/repo", "model"), {"force_reload": True}),
    ],
    "refs": [
        (None, "load", ("owner/repo:v1", "model"), TRUE),
        (None, "load", ("owner/repo:a/b", "model"), TRUE),
        (None, "load", ("owner/old", "model"), TRUE),
        (None, "load", ("owner/repo:nobodys", "model"), TRUE),
        (None, "load", ("owner/repo:nobodys", "model"), SKIP),
        (None, "load", ("owner/repo:v1", "model"), {"source": "GitHub"}),
    ],
    "trust": [
        ("n", "load", ("owner/repo", "model"), {}),
        ("", "list", ("owner/repo",), {}),
        ("Perhaps", "help", ("owner/repo", "model"), {}),
        ("Yes", "load", ("owner/repo", "model"), {}),
        (None, "load", ("owner/repo", "model"), {}),
        ("y", "load", ("owner/repo", "model"), {"trust_repo": False}),
        ("n", "load", ("owner/repo", "model"), {"trust_repo": False}),
        (None, "load", ("owner/repo:v1", "model"), {}),
        (None, "load", ("pytorch/repo", "model"), {}),
    ],
    "errors": [
        (None, "load", ("owner/repo", "no_such"), TRUE),
        (None, "load", ("owner/repo", "needs"), TRUE),
        (None, "load", ("owner/repo", 3), TRUE),
        (None, "load", ("owner/repo", "model"), {"source": "else"}),
        (None, "load", ("owner/needy:main", "model"), SKIP),
        (None, "help", ("owner/needy:main", "model"), SKIP),
        (None, "list", ("owner/needy:main",), SKIP),
        (None, "load", ("owner/nothing:main", "model"), SKIP),
        (None, "load", ("owner/evil:up", "model"), SKIP),
        (None, "load", ("owner/evil:root", "model"), SKIP),
    ],
    "a ref that is two": [(None, "load", ("owner/twice:v1", "model"), SKIP)],
}


def told(
    side: Side, steps: list[Step], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[Any]:
    """What becomes of the steps: results, errors, what is printed, asked and left."""
    seen: list[Any] = []
    for answer, name, arguments, options in steps:
        forget()

        def respond(text: str, answer: str | None = answer, seen: list[Any] = seen) -> str:
            assert answer is not None, "nobody is to be asked"
            seen.append(text)
            return answer

        monkeypatch.setattr(builtins, "input", respond)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                seen.append(getattr(side.module, name)(*arguments, **options))
            except Exception as error:
                seen.append((type(error).__name__, str(error)))
                if hasattr(error, "close"):
                    error.close()
        seen += [str(each.message) for each in warned if each.category is UserWarning]
        printed = capsys.readouterr()
        seen.append((re.sub(" to .*", " to FILE", printed.out), printed.err))
        seen.append([path for path, _ in side.asked])
        side.asked.clear()
        seen.append(sorted(path.name for path in side.folder.iterdir()))
        known = side.folder / "trusted_list"
        seen.append(known.read_text() if known.exists() else None)
        assert not [path for path in sys.path if path.startswith(str(side.folder))]
    return json.loads(json.dumps(seen).replace(str(side.folder), "HUB"))


@pytest.mark.parametrize("steps", RUNS.values(), ids=RUNS.keys())
def test_as_torch(
    steps: list[Step], sides: Callable[[str], Side], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    want = told(sides("torch"), steps, monkeypatch, capsys)
    have = told(sides("graphc"), steps, monkeypatch, capsys)
    left = ("up.zip", "root.zip", "owner-repo-1a2b3c")  # by torch, of what it then refuses
    want = [[x for x in each if x not in left] if isinstance(each, list) else each for each in want]
    assert have == want


def test_without_a_network(
    sides: Callable[[str], Side], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = []
    for name in ("torch", "graphc"):
        side = sides(name)
        first = told(side, [(None, "load", ("owner/repo", "model"), TRUE)], monkeypatch, capsys)
        side.offline = True
        again: list[Step] = [(None, "load", ("owner/repo", "model"), {}),
                             (None, "load", ("owner/other", "model"), TRUE)]
        results.append((first, told(side, again, monkeypatch, capsys)))
    assert results[0] == results[1]
    assert results[0][1][0] == [1, 1, "", "beside", "later"]


def test_a_token_is_tried_first(mine: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "mine")
    assert hub.load("owner/repo:v1", "model", trust_repo=True)[0] == 2
    assert mine.asked[0][1] == "token mine"
    assert mine.asked[-1] == ("/owner/repo/zipball/v1", ""), "files need none"
    mine.asked.clear()
    monkeypatch.setenv("GITHUB_TOKEN", "stale")
    forget()
    assert hub.load("owner/repo:a/b", "model", trust_repo=True)[0] == 3
    assert [token for _, token in mine.asked][:2] == ["token stale", ""]


# --- what torch does not promise -----------------------------------------------------------------


def test_nothing_happens_before_the_answer(mine: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(text: str) -> str:
        assert [path for path, _ in mine.asked] == ["/owner/repo/tree/main/"]
        raise EOFError("EOF when reading a line")

    monkeypatch.setattr(builtins, "input", nobody)
    for trust in ("check", False, None, 1):
        mine.asked.clear()
        with pytest.raises(EOFError) as error:
            hub.load("owner/repo", "model", trust_repo=trust)
        assert "trust_repo=True" in error.value.__notes__[0]
    assert (mine.folder / "trusted_list").read_text() == ""
    assert [path.name for path in mine.folder.iterdir()] == ["trusted_list"]


@pytest.mark.parametrize("github", [
    "owner", "owner/", "/repo", "a/b/c", "owner/repo:", "owner/repo:a:b", "owner/..", "../repo",
    "owner/repo:../../../other/repo/zipball/main", "owner/re po", "owner/repo?x", "",
])
def test_names_that_are_none(mine: Side, github: str) -> None:
    with pytest.raises(ValueError, match="owner/name:ref"):
        hub.load(github, "model", trust_repo=True)
    assert mine.asked == []


def test_a_ref_is_one_part_of_the_address() -> None:
    link = hub._git_archive_link("owner", "repo", "a/b#c%2e%2e")
    assert link == "https://github.com/owner/repo/zipball/a/b%23c%252e%252e"


def links() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("top/hubconf.py", (
            "from pathlib import Path\n"
            "def model(): return Path(__file__).with_name('l').read_text()"
        ))
        entry = zipfile.ZipInfo("top/l")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    return made.getvalue()


def device() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        entry = zipfile.ZipInfo("top/pipe")
        entry.external_attr = 0o010644 << 16
        archive.writestr(entry, "")
    return made.getvalue()


BAD = {
    "up at first": (zipped({"hubconf.py": "1"}, top="../kept/"), "directory traversal"),
    "up within": (zipped({"a/../../kept/x": "1"}), "directory traversal"),
    "up by backslashes": (zipped({"a\\..\\..\\kept": "1"}), "directory traversal"),
    "a drive": (zipped({"c:/x": "1"}, top=""), "absolute path"),
    "two folders": (zipped({"a/x": "1", "b/x": "1"}, top=""), "one folder"),
    "no folder": (zipped({"hubconf.py": "1"}, top=""), "one folder"),
    "a pipe": (device(), "is no file"),
    "nothing": (zipped({}, top=""), "one folder"),
}


@pytest.mark.parametrize(("archive", "reason"), BAD.values(), ids=BAD.keys())
def test_archives_that_are_refused(mine: Side, archive: bytes, reason: str) -> None:
    """Also where the repository is there already: it stays as it is."""
    (mine.folder.parent / "kept").mkdir()
    (mine.folder.parent / "kept" / "mine").write_text("mine")
    assert hub.load("owner/repo", "model", trust_repo=True)[0] == 1
    mine.handler.answers["/owner/repo/zipball/main"] = 200, archive
    with pytest.raises(ValueError, match=reason):
        hub.load("owner/repo", "model", force_reload=True)
    forget()
    assert hub.load("owner/repo", "model")[0] == 1
    assert sorted(path.name for path in mine.folder.iterdir()) == [
        "owner_repo_main", "trusted_list",
    ]
    assert [path.name for path in (mine.folder.parent / "kept").iterdir()] == ["mine"]


def test_a_link_is_a_file(mine: Side) -> None:
    mine.handler.answers["/owner/repo/zipball/main"] = 200, links()
    assert hub.load("owner/repo", "model", trust_repo=True) == "/etc/passwd"
    assert not (mine.folder / "owner_repo_main" / "l").is_symlink()


def test_what_comes_cut_off_is_not_kept(mine: Side, tmp_path: Path) -> None:
    class Short(io.BytesIO):
        headers = {"Content-Length": "10"}

    hub.urlopen = lambda request: Short(b"12345")  # the fixture puts it back
    with pytest.raises(RuntimeError, match="5 of 10 bytes"):
        hub.download_url_to_file("http://x/y", str(tmp_path / "y"), progress=False)
    assert not list(tmp_path.glob("y*"))


def test_weights_in_an_archive_of_one_file(tmp_path: Path) -> None:
    graphc.save({"a": graphc.ones(2)}, tmp_path / "inner")
    with zipfile.ZipFile(tmp_path / "old.pth", "w") as archive:
        archive.write(tmp_path / "inner", "weights/old.pt")
    source = (tmp_path / "old.pth").as_uri()
    found = hub.load_state_dict_from_url(source, str(tmp_path / "kept"), progress=False)
    assert found["a"].tolist() == [1.0, 1.0]


def test_a_hubconf_without_torch_says_who_answers(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    with pytest.raises(ModuleNotFoundError) as error:
        hub.load(str(tmp_path), "model", source="local")
    assert "shim install" in error.value.__notes__[0]
