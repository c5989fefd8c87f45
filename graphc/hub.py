"""torch.hub: weights by URL, kept in a folder."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from . import config, unsupported
from .progress import progress as progress_bar
from .serialization import load as _load

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # "resnet18-bf5a5ce5.pth": the start of its SHA-256
READ_DATA_CHUNK = 128 * 1024
_CURE = "clone the repository and import its model"
_chosen: str | None = None


def _get_torch_home() -> str:
    return str(config.torch_home())


def get_dir() -> str:
    """The folder of what was downloaded: $TORCH_HOME/hub, or what set_dir() said."""
    return _chosen if _chosen is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose another folder."""
    global _chosen
    _chosen = os.path.expanduser(d)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetch `url` into the file `dst`, which appears only when it is complete.

    Raises RuntimeError where the SHA-256 does not begin with `hash_prefix`, OSError as urllib does.
    """
    target = Path(dst).expanduser()
    digest = hashlib.sha256()
    request = Request(url, headers={"User-Agent": "torch.hub"})
    with urlopen(request) as answer:
        length = answer.headers.get("Content-Length")
        handle, part = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file, progress_bar(
                total=int(length) if length else None, disable=not progress, unit="B",
                unit_scale=True, unit_divisor=1024,
            ) as bar:
                while chunk := answer.read(READ_DATA_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
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
        sys.stdout.flush()
        sys.stderr.write(f'Downloading: "{url}" to {cached}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(cached), found[1] if found else None, progress)
    return _load(cached, map_location=map_location, weights_only=True)


def load(
    repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check",
    force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:
    """A model of a local folder's hubconf.py (source="local"); it runs that file.

    Raises NotImplementedError for a repository on GitHub.
    """
    if source != "local":
        unsupported.refuse(f"torch.hub.load(source={source!r})", _CURE + ' by source="local"')
    return _entry(repo_or_dir, model)(*args, **kwargs)


def _entry(folder: str, name: str) -> Any:
    path = Path(folder, "hubconf.py")
    namespace: dict[str, Any] = {"__name__": "hubconf", "__file__": str(path)}
    sys.path.insert(0, folder)
    try:
        exec(compile(path.read_text(), str(path), "exec"), namespace)
    finally:
        sys.path.remove(folder)
    entry = namespace.get(name)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return entry


def list(github: str, *args: Any, **kwargs: Any) -> Any:  # torch's name
    """Raises NotImplementedError."""
    unsupported.refuse("torch.hub.list()", _CURE)


def help(github: str, model: str, *args: Any, **kwargs: Any) -> Any:  # torch's name
    """Raises NotImplementedError."""
    unsupported.refuse("torch.hub.help()", _CURE)
