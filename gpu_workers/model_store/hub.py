"""Models from the Hugging Face hub, through its own client, its own cache and its own environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_workers.model_store.model_folder import ModelNotFoundError

_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer*"]
_CONFIG = "config.json"
# copies in other formats stand in sub-folders; 1_Pooling says how an embedding model makes its vectors
_IGNORED = ["[!1]*/*"]


def download(name: str, on_progress: Callable[[str, float], None]) -> Path:
    """Folder of the newest snapshot of `name`; cached files are not downloaded again, and with HF_HUB_OFFLINE=1 none is.

    Raises ModelNotFoundError with the client's reason."""
    from huggingface_hub import snapshot_download  # slow import, which most starts do not need

    what = f"downloading {name}"
    on_progress(what, 0.0)
    with _explained(name):
        folder = snapshot_download(
            name, allow_patterns=_PATTERNS, ignore_patterns=_IGNORED, tqdm_class=_reporter(what, on_progress)
        )
    on_progress(what, 1.0)
    return Path(folder)


def download_config(name: str) -> Path:
    """The config.json of `name`, from the hub alone: enough to refuse a start before its weights are downloaded.

    Raises ModelNotFoundError with the client's reason."""
    from huggingface_hub import (
        snapshot_download,
    )  # fails at once without a network, where hf_hub_download tries for half a minute

    silent = _reporter("", lambda what, fraction: None)
    with _explained(name):
        path = Path(snapshot_download(name, allow_patterns=[_CONFIG], tqdm_class=silent)) / _CONFIG
    if not path.is_file():
        raise ModelNotFoundError(f"{name}: expected {_CONFIG} in the model's folder on the hub, got none")
    return path


def cached_config(name: str) -> Path | None:
    """The config.json of the newest snapshot of `name` in the client's cache, found without importing the client."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    folder = cache / f"models--{name.replace('/', '--')}"
    try:
        path = folder / "snapshots" / (folder / "refs" / "main").read_text().strip() / _CONFIG
    except OSError:
        return None
    return path if path.is_file() else None


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn the errors of the client into ModelNotFoundError."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # the client does not wrap errors in the middle of a file: they are those of its HTTP library, httpx or httpx2
    of_connections = tuple(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))
    try:
        yield
    except (*of_connections, HFValidationError, OSError) as error:
        raise ModelNotFoundError(
            f"{name}: expected a folder here, or a model that the Hugging Face hub gives, got {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Why the client has no model, on one line. Without a network its own text is advice about its cache."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    said = " ".join(str(error).split())[:300]
    cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else None
    return f"no copy on this machine and no answer from the hub ({cause})" if cause is not None else f"from the hub: {said}"


def _reporter(what: str, on_progress: Callable[[str, float], None]) -> type[Any]:
    """A class of silent progress bars, which pass the bytes that the client counts on them to on_progress."""
    from tqdm.asyncio import tqdm_asyncio

    best = 0.0  # of two bars: the client counts received and written bytes apart

    class Reporter(tqdm_asyncio):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            self._silence = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (lives as long as the bar)
            super().__init__(*args, **kwargs | {"file": self._silence})

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal best
            shown = super().update(n)
            if self.unit == "B" and self.total and self.n / self.total > best:
                best = min(1.0, self.n / self.total)
                on_progress(what, best)
            return shown

        def close(self) -> None:
            super().close()
            self._silence.close()

    return Reporter
