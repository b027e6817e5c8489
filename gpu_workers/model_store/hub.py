"""Models from the Hugging Face hub, through its own client, its own cache and its own environment variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_workers.model_store.hub_cache.cache_paths import cached_file
from gpu_workers.model_store.hub_cache.prefetch import OnBytes, prefetch
from gpu_workers.model_store.hub_cache.resumable import TransferError
from gpu_workers.model_store.model_folder import ModelNotFoundError

_TEXTS = ["README.md", "LICENSE*"]  # small files that say what a model is
_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", *_TEXTS]
_CONFIG = "config.json"
# copies in other formats stand in sub-folders; 1_Pooling says how an embedding model makes its vectors
_IGNORED = ["[!1]*/*"]


def download(name: str, on_progress: Callable[[str, float], None], on_bytes: OnBytes | None = None) -> Path:
    """Folder of the newest snapshot of `name`; cached files are not downloaded again, and with HF_HUB_OFFLINE=1 none is.

    `on_bytes`: told of the bytes of large files as they come. Raises ModelNotFoundError with the client's reason."""
    return _fetch(name, _PATTERNS, on_progress, on_bytes)


def download_gguf(name: str, file: str, on_progress: Callable[[str, float], None], on_bytes: OnBytes | None = None) -> Path:
    """The GGUF file `file` of the newest snapshot of `name`; the rest as for `download`. Raises ModelNotFoundError."""
    path = _fetch(name, [file, *_TEXTS], on_progress, on_bytes, ignored=[]) / file
    if not path.is_file():
        raise ModelNotFoundError(f"{name}: expected the file {file} on the hub, got none")
    return path


def _fetch(
    name: str,
    patterns: Sequence[str],
    on_progress: Callable[[str, float], None],
    on_bytes: OnBytes | None,
    ignored: Sequence[str] = _IGNORED,
) -> Path:
    from huggingface_hub import snapshot_download  # slow import, which most starts do not need

    tell = _rising(f"downloading {name}", on_progress)

    def tell_bytes(n_bytes: int, of_bytes: int) -> None:
        tell(n_bytes / max(1, of_bytes))
        if on_bytes is not None:
            on_bytes(n_bytes, of_bytes)

    on_progress(f"downloading {name}", 0.0)
    with _explained(name):
        try:
            prefetch(name, patterns, ignored, tell_bytes)
        except TransferError:
            raise
        except _client_errors():
            pass  # the client meets it again below, or finds everything in its cache
        reporter = _reporter(tell)
        folder = snapshot_download(name, allow_patterns=list(patterns), ignore_patterns=list(ignored), tqdm_class=reporter)
    on_progress(f"downloading {name}", 1.0)
    return Path(folder)


def _rising(what: str, on_progress: Callable[[str, float], None]) -> Callable[[float], None]:
    """Passes on a fraction that is larger than all before it. The client counts received and written bytes apart."""
    best = 0.0

    def tell(fraction: float) -> None:
        nonlocal best
        if fraction > best:
            best = min(1.0, fraction)
            on_progress(what, best)

    return tell


def download_config(name: str) -> Path:
    """The config.json of `name`, from the hub alone: enough to refuse a start before its weights are downloaded.

    Raises ModelNotFoundError with the client's reason."""
    from huggingface_hub import (
        snapshot_download,
    )  # fails at once without a network, where hf_hub_download tries for half a minute

    silent = _reporter(lambda fraction: None)
    with _explained(name):
        path = Path(snapshot_download(name, allow_patterns=[_CONFIG], tqdm_class=silent)) / _CONFIG
    if not path.is_file():
        raise ModelNotFoundError(f"{name}: expected {_CONFIG} in the model's folder on the hub, got none")
    return path


def cached_config(name: str) -> Path | None:
    """The config.json of the newest snapshot of `name` in the client's cache, found without importing the client."""
    return cached_file(name, _CONFIG)


def _client_errors() -> tuple[type[Exception], ...]:
    """All errors that the client raises, and OSError."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # the client does not wrap errors in the middle of a file: they are those of its HTTP library, httpx or httpx2
    of_connections = [base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)]
    return (*of_connections, HFValidationError, OSError)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn the errors of the client into ModelNotFoundError."""
    try:
        yield
    except _client_errors() as error:
        raise ModelNotFoundError(
            f"{name}: expected a folder here, or a model that the Hugging Face hub gives, got {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Why the client has no model, on one line. Without a network its own text is advice about its cache."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    said = " ".join(str(error).split())[:300]
    cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else None
    return (
        f"no copy on this machine and no answer from the hub ({' '.join(str(cause).split())})"
        if cause is not None
        else f"from the hub: {said}"
    )


def _reporter(tell: Callable[[float], None]) -> type[Any]:
    """A class of silent progress bars, which pass the share of the bytes that the client counts on them to `tell`."""
    from tqdm.asyncio import tqdm_asyncio  # the type that huggingface_hub asks for, and which it brings with it

    class Reporter(tqdm_asyncio):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            self._silence = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (lives as long as the bar)
            super().__init__(*args, **kwargs | {"file": self._silence})

        def update(self, n: float | None = 1) -> bool | None:
            shown = super().update(n)
            if self.unit == "B" and self.total:
                tell(self.n / self.total)
            return shown

        def close(self) -> None:
            super().close()
            self._silence.close()

    return Reporter
