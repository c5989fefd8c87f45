"""torch.hub: models of repositories on GitHub, and weights by URL, kept in a folder.

The folder, its list of trusted repositories and the names in it are PyTorch's: what one of them
has downloaded the other one finds.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import stat
import sys
import tempfile
import uuid
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlparse
from urllib.request import Request, urlopen

from . import config
from .progress import progress as progress_bar
from .serialization import load as _load

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # "resnet18-bf5a5ce5.pth": the start of its SHA-256
READ_DATA_CHUNK = 128 * 1024
MODULE_HUBCONF = "hubconf.py"
VAR_DEPENDENCY = "dependencies"
_TRUSTED_REPO_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")
_BRANCHES = ("main", "master")  # what may be the default one
_PER_PAGE = 100  # of GitHub's answers
_MULTIPLE_CHOICES = 300
_REPOSITORY = re.compile(r"([\w.-]+)/([\w.-]+)(?::([^:\\\s]+))?")
_hub_dir: str | None = None


# --- the folder ----------------------------------------------------------------------------------


def _get_torch_home() -> str:
    return str(config.torch_home())


def get_dir() -> str:
    """The folder of what was downloaded: $TORCH_HOME/hub, or what set_dir() said."""
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose another folder."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# --- repositories --------------------------------------------------------------------------------


def load(
    repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check",
    force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:
    """What an entry point of a repository's hubconf.py returns, called with the rest.

    repo_or_dir: "owner/name" or "owner/name:ref" (a branch, tag or commit), downloaded once, or a
    folder with source="local". trust_repo: True: it may run code here; False: ask on the terminal;
    "check": ask unless it is known. That comes before anything is downloaded or run.
    Raises ValueError, RuntimeError (no such entry point, a missing dependency) and what urllib
    raises. pytorch.org/docs/stable/hub.html
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        repo_or_dir = _get_cache_or_reload(
            repo_or_dir, force_reload, trust_repo, verbose=verbose, skip_validation=skip_validation
        )
    return _load_local(repo_or_dir, model, *args, **kwargs)


def list(  # torch's name
    github: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: Any = "check", verbose: bool = True,
) -> Any:
    """The names of a repository's entry points: what is callable in its hubconf.py."""
    folder = _get_cache_or_reload(
        github, force_reload, trust_repo, verbose=verbose, skip_validation=skip_validation
    )
    with _add_to_sys_path(folder):
        module = _hubconf(folder)
    return [name for name in dir(module) if name[0] != "_" and callable(getattr(module, name))]


def help(  # torch's name
    github: str, model: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: Any = "check",
) -> Any:
    """The docstring of an entry point."""
    folder = _get_cache_or_reload(
        github, force_reload, trust_repo, verbose=True, skip_validation=skip_validation
    )
    with _add_to_sys_path(folder):
        module = _hubconf(folder)
    return _load_entry_from_hubconf(module, model).__doc__


def _load_local(hubconf_dir: str, model: str, *args: Any, **kwargs: Any) -> Any:
    with _add_to_sys_path(hubconf_dir):  # entry points import what is beside them when called
        return _load_entry_from_hubconf(_hubconf(hubconf_dir), model)(*args, **kwargs)


@contextlib.contextmanager
def _add_to_sys_path(path: str) -> Iterator[None]:
    sys.path.insert(0, path)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it has been removed meanwhile
            sys.path.remove(path)


def _hubconf(folder: str) -> ModuleType:
    try:
        return _import_module(MODULE_HUBCONF, os.path.join(folder, MODULE_HUBCONF))
    except ModuleNotFoundError as error:
        if error.name in ("torch", "torchvision"):
            error.add_note(
                f"Nothing here answers to {error.name!r}. Cure: `python -m graphc run`, "
                "`python -m graphc shim install`, or graphc.compat.install() before"
            )
        raise


def _import_module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_entry_from_hubconf(module: ModuleType, model: str) -> Any:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    missing = [name for name in getattr(module, VAR_DEPENDENCY, None) or () if not _is_there(name)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    entry = getattr(module, model, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return entry


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of its package
        return False


# --- trust ---------------------------------------------------------------------------------------


def _check_repo_is_trusted(
    repo_owner: str, repo_name: str, owner_name_branch: str, trust_repo: Any
) -> None:
    """Raises where the user does not trust a repository; one that is newly trusted is noted."""
    folder = get_dir()
    known = Path(folder, "trusted_list")
    known.touch()
    name = f"{repo_owner}_{repo_name}"
    is_trusted = (
        name in (line.strip() for line in known.read_text().splitlines())
        or os.path.isdir(os.path.join(folder, owner_name_branch))  # downloaded before
        or repo_owner in _TRUSTED_REPO_OWNERS
    )
    if trust_repo is False or not (is_trusted or trust_repo is True):
        said = _ask(name)
        if said.lower() in ("n", "no", ""):
            raise Exception("Untrusted repository.")
        if said.lower() not in ("y", "yes"):
            raise ValueError(f"Unrecognized response {said}.")
        if is_trusted:
            print("The repository is already trusted.")
    if not is_trusted:
        with open(known, "a") as file:
            file.write(name + "\n")


def _ask(name: str) -> str:
    try:
        return input(
            f"The repository {name} does not belong to the list of trusted repositories and as "
            "such cannot be downloaded. Do you trust this repository and wish to add it to the "
            "trusted list of repositories (y/N)?"
        )
    except EOFError as error:
        error.add_note(
            "There is nobody to ask whether it may run code here. Cure, if you trust it: "
            "trust_repo=True"
        )
        raise


# --- GitHub --------------------------------------------------------------------------------------


def _git_archive_link(repo_owner: str, repo_name: str, ref: str) -> str:
    return f"https://github.com/{repo_owner}/{repo_name}/zipball/{quote(ref)}"


def _parse_repo_info(github: str) -> tuple[str, str, str]:
    """Owner, name and ref of "owner/name[:ref]"; without a ref the default branch."""
    found = _REPOSITORY.fullmatch(github)
    if found is None or ".." in github:  # which no name of git's has, and addresses read otherwise
        raise ValueError(f'expected "owner/name" or "owner/name:ref", got {github!r}')
    owner, name, ref = found.groups()
    return owner, name, ref or _default_branch(owner, name)


def _default_branch(owner: str, name: str) -> str:
    try:
        with urlopen(f"https://github.com/{owner}/{name}/tree/main/"):
            return "main"
    except HTTPError as error:
        if error.code != 404:
            raise
        error.close()
        return "master"
    except URLError as error:
        for branch in _BRANCHES:
            if os.path.exists(os.path.join(get_dir(), f"{owner}_{name}_{branch}")):
                return branch
        raise RuntimeError(
            "It looks like there is no internet connection and the repo could not be found in the "
            f"cache ({get_dir()})"
        ) from error


def _validate_not_a_forked_repo(repo_owner: str, repo_name: str, ref: str) -> None:
    """Raises ValueError where a ref is none of the repository's own branches and tags: GitHub
    serves the commits of its forks, which are anybody's, under its name, too."""
    for kind in ("branches", "tags"):
        page = 1
        while found := _listed(f"{repo_owner}/{repo_name}/{kind}?per_page={_PER_PAGE}&page={page}"):
            if any(each["name"] == ref or each["commit"]["sha"].startswith(ref) for each in found):
                return
            page += 1
    raise ValueError(
        f"Cannot find {ref} in https://github.com/{repo_owner}/{repo_name}. If it's a commit from "
        "a forked repo, please call hub.load() with forked repo directly."
    )


def _listed(query: str) -> Any:
    """One of GitHub's lists, with the user's token, if there is one, else as anybody."""
    headers = {"Accept": "application/vnd.github.v3+json"}
    token = config.github_token()
    if token:
        try:
            return _read_json(query, {**headers, "Authorization": f"token {token}"})
        except HTTPError as error:  # it may not be for this
            error.close()
    return _read_json(query, headers)


def _read_json(query: str, headers: dict[str, str]) -> Any:
    with urlopen(Request(f"https://api.github.com/repos/{query}", headers=headers)) as answer:
        return json.loads(answer.read().decode(answer.headers.get_content_charset("utf-8")))


def _get_cache_or_reload(
    github: str, force_reload: bool, trust_repo: Any, verbose: bool = True,
    skip_validation: bool = False,
) -> str:
    """The folder of a repository, downloaded where it is not there."""
    hub = get_dir()
    os.makedirs(hub, exist_ok=True)
    owner, name, ref = _parse_repo_info(github)
    full = "_".join([owner, name, ref.replace("/", "_")])
    folder = os.path.join(hub, full)
    _check_repo_is_trusted(owner, name, full, trust_repo)
    if not force_reload and os.path.exists(folder):
        if verbose:
            sys.stderr.write(f"Using cache found in {folder}\n")
        return folder
    if not skip_validation:
        _validate_not_a_forked_repo(owner, name, ref)
    # everything happens in a folder of its own, so that a download that fails leaves what was there
    with tempfile.TemporaryDirectory(dir=hub, prefix=f".{full}.") as place:
        archive = os.path.join(place, "archive.zip")
        _download_archive(owner, name, ref, archive)
        found = _extract(archive, os.path.join(place, "files"))
        with contextlib.suppress(FileNotFoundError):  # at once: others may be reading
            os.rename(folder, os.path.join(place, "old"))
        try:
            os.rename(found, folder)
        except OSError:  # another process was first
            if not os.path.isdir(folder):
                raise
    return folder


def _download_archive(owner: str, name: str, ref: str, path: str) -> None:
    url = _git_archive_link(owner, name, ref)
    sys.stdout.write(f'Downloading: "{url}" to {path}\n')
    try:
        download_url_to_file(url, path, progress=False)
    except HTTPError as error:
        if error.code != _MULTIPLE_CHOICES:
            raise
        error.close()
        warnings.warn(
            f"The ref {ref} is ambiguous. Perhaps it is both a tag and a branch in the repo? "
            "Torchhub will now assume that it's a branch. You can disambiguate tags and branches "
            "by explicitly passing refs/heads/branch_name or refs/tags/tag_name as the ref. That "
            "might require using skip_validation=True.",
            stacklevel=4,
        )
        url = _git_archive_link(owner, name, f"refs/heads/{ref}")
        download_url_to_file(url, path, progress=False)


def _extract(archive: str, folder: str) -> str:
    """Unpack a repository's archive into a new folder; the one folder that it must hold.

    Nothing is written outside of it, or at all where a name would lead there: raises ValueError. A
    link becomes a file with the name of what it led to.
    """
    os.makedirs(folder)
    with zipfile.ZipFile(archive) as files:
        entries = files.infolist()
        for entry in entries:
            _check_entry(entry)
        files.extractall(folder, entries)
    tops = os.listdir(folder)
    if len(tops) != 1 or not os.path.isdir(os.path.join(folder, tops[0])):
        raise ValueError(f"expected one folder in a repository's archive, got {sorted(tops)}")
    return os.path.join(folder, tops[0])


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Raises ValueError for a name in an archive that leads out of where it is unpacked, and for
    what is neither file, folder nor link."""
    parts = re.split(r"[/\\]", entry.filename)
    if not parts[0] or re.match(r"[A-Za-z]:", parts[0]):
        raise ValueError(f"Archive entry has absolute path: {entry.filename}")
    if ".." in parts:
        raise ValueError(f"Archive entry contains directory traversal: {entry.filename}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        raise ValueError(f"Archive entry is no file: {entry.filename}")


# --- files by URL --------------------------------------------------------------------------------


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetch `url` into the file `dst`, which appears only when it is complete.

    Raises RuntimeError where the SHA-256 does not begin with `hash_prefix`, or less came than was
    announced, OSError as urllib does.
    """
    target = os.path.expanduser(dst)
    digest = hashlib.sha256()
    request = Request(url, headers={"User-Agent": "torch.hub"})
    with urlopen(request) as answer:
        length = answer.headers.get("Content-Length")
        size = int(length) if length else None
        part = f"{target}.{uuid.uuid4().hex}.part"
        try:
            with open(part, "xb") as file, progress_bar(
                total=size, disable=not progress, unit="B", unit_scale=True, unit_divisor=1024,
            ) as bar:
                while chunk := answer.read(READ_DATA_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
                came = file.tell()
            if size is not None and came < size:
                raise RuntimeError(f"{url}: {came} of {size} bytes came. Cure: try again")
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(
                    f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")'
                )
            os.replace(part, target)
        finally:
            Path(part).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = False,
) -> Any:
    """The object in the file at `url`, downloaded once into `model_dir` (get_dir()/checkpoints).

    Read without unpickling whatever `weights_only` says: a state_dict is all that it may be.
    """
    folder = Path(model_dir) if model_dir is not None else Path(get_dir(), "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    cached = folder / name
    if not cached.exists():
        sys.stdout.write(f'Downloading: "{url}" to {cached}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(cached), found[1] if found else None, progress)
    return _read_zipped(cached, map_location)


def _read_zipped(path: Path, map_location: Any) -> Any:
    """What is in a file, or in the only file of an archive, as weights once were packed."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) == 1 and not entries[0].is_dir():
                with archive.open(entries[0]) as inner:
                    return _load(
                        io.BytesIO(inner.read()), map_location=map_location, weights_only=True
                    )
    return _load(path, map_location=map_location, weights_only=True)
