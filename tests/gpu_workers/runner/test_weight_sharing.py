"""Weights are loaded once and mapped by later processes, whoever dies at which moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from gpu_workers.layers import cpu_linear
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.shard import Shard
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import SafetensorsSource, WeightPlacement
from gpu_workers.runner import model_loading, weight_sharing
from gpu_workers.runner.backend import Backend, choose_backend
from gpu_workers.runner.empty_step import run_empty_step
from gpu_workers.runner.model_loading import build_model
from gpu_workers.vault import weight_vault
from gpu_workers.vault.weight_vault import WeightVault
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.workers.tiny_model import write_model

pytestmark = pytest.mark.slow

OWNER = "worker/0.0 weights"
DEADLINE_S = 60.0
Read = Callable[..., None]


class Death(BaseException):
    """Stands for the end of a process: what it has open is closed, and nothing else is done."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    one = StoreProcess(tmp_path / "vault-0")
    yield one
    one.kill()


@pytest.fixture(scope="module")
def backends() -> dict[object, Backend]:
    return {}


@pytest.fixture(autouse=True)
def compile_once(backends: dict[object, Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    """One back end for all tests: to compile its kernels takes longer than all else."""

    def choose(
        placement: WeightPlacement, config: ModelConfig, shard: Shard, *_: object, deterministic: bool, page_dtype: None
    ) -> Backend:
        key = (placement.dtype, config, deterministic)
        if key not in backends:
            backends[key] = choose_backend(placement, config, shard, deterministic=deterministic, page_dtype=page_dtype)
        return backends[key]

    monkeypatch.setattr(model_loading, "choose_backend", choose)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    return write_model(path)


def vault_at(store: StoreProcess, content: bytes = b"tiny") -> WeightVault:
    return WeightVault(store.path, OWNER, content)


def build(
    folder: Path,
    vault: WeightVault | None,
    dtype: torch.dtype = torch.float32,
    deterministic: bool = False,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> Model:
    placement = WeightPlacement(torch.device("cpu"), dtype)
    config = read_model_config(folder)
    return build_model(config, folder, placement, deterministic=deterministic, on_progress=on_progress, vault=vault)


def logits(model: Model) -> torch.Tensor:
    return run_empty_step(model, KvPages.allocate(model.kv_shape, 8, "cpu"), [1, 1, 20])


def entries(store: StoreProcess) -> int:
    with store.client() as client:
        found = client.find(OWNER)
    for entry in found:
        os.close(entry.descriptor)
    return len(found)


def remove_weights(folder: Path) -> None:
    """From now on only who has the weights already can build the model."""
    (folder / "model.safetensors").unlink()


def die_at_read(patch: pytest.MonkeyPatch, number: int) -> None:
    """The process that loads dies at this read of the checkpoint."""
    whole: Read = SafetensorsSource.read
    n_reads = 0

    def read(*arguments: object) -> None:
        nonlocal n_reads
        n_reads += 1
        if n_reads == number:
            raise Death
        whole(*arguments)

    patch.setattr(SafetensorsSource, "read", read)


@pytest.mark.parametrize(("dtype", "deterministic"), [(torch.float32, False), (torch.bfloat16, False), (torch.float32, True)])
def test_a_later_process_computes_the_same_without_the_checkpoint(
    store: StoreProcess, folder: Path, dtype: torch.dtype, deterministic: bool
) -> None:
    if deterministic:
        replace_sizes(folder)
    right = logits(build(folder, None, dtype, deterministic))
    first, second = vault_at(store), vault_at(store)
    assert logits(build(folder, first, dtype, deterministic)).equal(right)
    remove_weights(folder)
    assert logits(build(folder, second, dtype, deterministic)).equal(right)
    assert first.shared_bytes == second.shared_bytes > 0
    first.close()  # the first one has gone; its memory stays
    assert logits(build(folder, vault_at(store), dtype, deterministic)).equal(right)


def replace_sizes(folder: Path) -> None:
    """A model whose sizes are multiples of a kernel's block."""
    from safetensors.torch import save_file

    from gpu_workers.models.llama.config import LlamaConfig
    from gpu_workers.models.llama.weights import tensor_shapes

    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("96", "128").replace("211", "256").replace("64", "128"))
    config = read_model_config(folder)
    assert isinstance(config, LlamaConfig)
    generator = torch.Generator().manual_seed(1)
    shapes = tensor_shapes(config).items()
    save_file({name: torch.randn(shape, generator=generator) for name, shape in shapes}, folder / "model.safetensors")


@pytest.mark.parametrize("number", [1, 9])
def test_a_death_while_loading_leaves_nothing_behind(store: StoreProcess, folder: Path, number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        die_at_read(patch, number)
        with pytest.raises(Death):
            build(folder, vault_at(store))
    assert entries(store) == 0
    vault = vault_at(store)
    build(folder, vault)
    assert entries(store) == 1


def test_a_death_before_the_memory_is_given_leaves_nothing_behind(
    store: StoreProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: WeightVault, descriptor: int, sealed: object) -> None:
        os.close(descriptor)
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(WeightVault, "adopt", die)
        with pytest.raises(Death):
            build(folder, vault_at(store))
    assert entries(store) == 0
    build(folder, vault_at(store))
    assert entries(store) == 1


def test_memory_that_ends_its_readers_is_given_up(store: StoreProcess, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: object) -> None:
        raise Death

    build(folder, vault_at(store))
    for n_deaths in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(weight_sharing, "read_index", die)
            for _ in range(n_deaths):
                with pytest.raises(Death):
                    build(folder, vault_at(store))
        with pytest.MonkeyPatch.context() as patch:
            die_at_read(patch, 1)
            if n_deaths == 1:
                build(folder, vault_at(store))  # reads nothing: the memory is used again
            else:
                with pytest.raises(Death):
                    build(folder, vault_at(store))  # reads the checkpoint


def test_of_two_at_the_same_time_one_loads(store: StoreProcess, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, waits = threading.Event(), threading.Event()
    whole: Read = SafetensorsSource.read
    readers: set[int] = set()

    def read(*arguments: object) -> None:
        readers.add(threading.get_ident())
        begun.set()
        assert waits.wait(DEADLINE_S)
        whole(*arguments)

    monkeypatch.setattr(SafetensorsSource, "read", read)
    models: list[Model] = []
    threads = [
        threading.Thread(target=lambda: models.append(build(folder, vault_at(store)))),
        threading.Thread(target=lambda: models.append(build(folder, vault_at(store), on_progress=lambda _: waits.set()))),
    ]
    threads[0].start()
    assert begun.wait(DEADLINE_S)
    threads[1].start()  # it waits, says so, and lets the first one go on
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(models) == 2
    assert logits(models[0]).equal(logits(models[1]))
    assert len(readers) == 1


def test_who_has_waited_too_long_loads_its_own(store: StoreProcess, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_vault, "_LOADING_S", 0.0)
    loading, late = vault_at(store), vault_at(store)
    with loading.alone(lambda: None) as is_alone:
        assert is_alone
        assert logits(build(folder, late)).equal(logits(build(folder, None)))
    assert late.shared_bytes == 0
    assert entries(store) == 0


@pytest.mark.parametrize("where", ["tensors", "index"])
def test_a_flipped_bit_is_noticed(store: StoreProcess, folder: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_workers.vault.host_region.HostRegion.finish", lambda region, fd: region.share(fd, True))
    first = vault_at(store)
    right = logits(build(folder, first))
    assert first._descriptor is not None
    assert first._sealed is not None
    at = 4096 if where == "tensors" else first._sealed.tensor_bytes + 5
    os.pwrite(first._descriptor, bytes([os.pread(first._descriptor, 1, at)[0] ^ 4]), at)
    first.close()
    again = vault_at(store)
    assert logits(build(folder, again)).equal(right)
    remove_weights(folder)
    assert logits(build(folder, vault_at(store))).equal(right)
    assert entries(store) == 1


def test_weights_of_another_content_are_given_up(store: StoreProcess, folder: Path) -> None:
    build(folder, vault_at(store, b"before"))
    after = vault_at(store, b"after")
    remove_weights(folder)
    with pytest.raises(ValueError, match="expected weights"):
        build(folder, after)
    assert entries(store) == 0


def test_a_new_vault_gets_the_weights_from_a_living_process(store: StoreProcess, folder: Path) -> None:
    living = vault_at(store)
    right = logits(build(folder, living))
    remove_weights(folder)
    store.kill()
    living.give_again()  # without a vault nothing happens
    successor = StoreProcess(store.path)
    found: list[Model] = []
    late = threading.Thread(target=lambda: found.append(build(folder, vault_at(successor))))
    late.start()  # whether it asks before or after the next line, it gets them
    living.give_again()
    late.join(DEADLINE_S)
    successor.kill()
    assert logits(found[0]).equal(right)


def test_without_a_vault_the_weights_wait_for_one(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_vault, "_WAIT_S", 0.0)
    vault = WeightVault(tmp_path / "vault-0", OWNER, b"tiny")
    right = logits(build(folder, vault))
    store = StoreProcess(tmp_path / "vault-0")
    vault.give_again()
    remove_weights(folder)
    assert logits(build(folder, vault_at(store))).equal(right)
    store.kill()


def test_a_torch_that_cannot_place_packed_weights_shares_none(
    store: StoreProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not cpu_linear.can_pack(torch.float32):
        pytest.skip("oneDNN packs nothing here")
    monkeypatch.setattr(weight_sharing, "can_place_packed", lambda dtype: False)
    vault = vault_at(store)
    assert logits(build(folder, vault)).equal(logits(build(folder, None)))
    assert (vault.shared_bytes, entries(store)) == (0, 0)
