"""Models from the hub: progress, errors and the cache, with the hub's client replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from gpu_workers.model_store import hub
from gpu_workers.model_store.hub import cached_config, download, download_config
from gpu_workers.model_store.model_folder import ModelNotFoundError

NAME = "org/model"


@pytest.fixture(autouse=True)
def no_large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """None that are fetched without the client; tests of hub_cache are about those."""
    monkeypatch.setattr(hub, "prefetch", lambda *_: None)


def test_progress_is_that_of_bytes_and_never_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(name: str, *, tqdm_class: Any, **_: Any) -> str:
        with tqdm_class(total=8, unit="it", name="files") as files, tqdm_class(total=100, unit="B") as received:
            files.update(8)
            received.update(60)
            received.update(-20)  # the client counts a part again
            received.update(50)
        return str(tmp_path)

    told: list[tuple[str, float]] = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert download(NAME, lambda what, fraction: told.append((what, fraction))) == tmp_path
    assert {what for what, _ in told} == {f"downloading {NAME}"}
    assert [fraction for _, fraction in told] == [0.0, 0.6, 0.9, 1.0]


def test_an_error_of_the_client_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    (of_connections,) = (base for base in HfHubHTTPError.__bases__ if base is not OSError)

    def refuse(name: str, **_: Any) -> str:
        raise of_connections("no\n network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelNotFoundError, match=r"org/model: expected a folder here, .* got from the hub: no network"):
        download(NAME, lambda what, fraction: None)


def test_without_a_network_the_connections_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **_: Any) -> str:
        raise LocalEntryNotFoundError("a long advice") from ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelNotFoundError, match=r"got no copy on this machine and no answer from the hub \(no network\)$"):
        download(NAME, lambda what, fraction: None)


def test_the_configuration_alone_is_fetched_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(tmp_path))
    with pytest.raises(ModelNotFoundError, match=r"expected config\.json in the model's folder on the hub, got none"):
        download_config(NAME)
    (tmp_path / "config.json").write_text("{}")
    assert download_config(NAME) == tmp_path / "config.json"


def test_the_cache_is_read_without_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert cached_config(NAME) is None
    folder = tmp_path / "models--org--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc\n")
    assert cached_config(NAME) is None, "the snapshot has no config.json"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text("{}")
    assert cached_config(NAME) == folder / "snapshots" / "abc" / "config.json"


def test_of_folders_only_that_of_the_pooling_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: dict[str, list[str]] = {}

    def snapshot(name: str, *, allow_patterns: list[str], ignore_patterns: list[str], **_: Any) -> str:
        wanted.update(allow_patterns=allow_patterns, ignore_patterns=ignore_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    download(NAME, lambda what, fraction: None)
    there = [
        "config.json",
        "model.safetensors",
        "README.md",
        "picture.png",
        "onnx/model.json",
        "original/a.safetensors",
        "1_Pooling/config.json",
    ]
    kept = huggingface_hub.utils.filter_repo_objects(there, **wanted)  # pyright: ignore[reportArgumentType]
    assert list(kept) == ["config.json", "model.safetensors", "README.md", "1_Pooling/config.json"]
