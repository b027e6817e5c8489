"""The import law: messages import nothing of ours, actors do not import each other, only gpu_workers imports torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from tests.support.architecture.source_tree import PRODUCT, REPO, SourceFile, product_files, product_modules

MAY_IMPORT = {
    "messages": {"messages"},
    "actors": {"messages", "actors"},
    "gpu_workers": {"messages", "gpu_workers"},
    "supervisor": set(PRODUCT),
}
SHARED_BY_ACTORS = ("", "actor", "pages")
TORCH_FREE = (
    "gpu_workers.model_store",
    "gpu_workers.hash_chain",
    "gpu_workers.hash_chain_engine",
    "gpu_workers.embedding.settings",
    "gpu_workers.embedding.model_files",
    "gpu_workers.embedding.sentence_files",
    "gpu_workers.settings",
    "gpu_workers.layers.shard",
    "gpu_workers.runner.memory_estimate",
)
TRANSPORTS = ("actors.gateway.http", "actors.gateway.zeromq")
OURS = {*PRODUCT, "ops", "tests"}
NEVER = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}

_REFUSE_TORCH = """
import importlib, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ImportError(f"{name} was imported")

sys.meta_path.insert(0, Refuse())
for module in sys.argv[1:]:
    importlib.import_module(module)
"""


def is_torch_free(module: str) -> bool:
    """Is it one of TORCH_FREE, or in one of these packages?"""
    return any(module == free or module.startswith(f"{free}.") for free in TORCH_FREE)


def top_of(module: str) -> str:
    """The package that a module is in."""
    return module.partition(".")[0]


def forbidden_imports(is_forbidden: Callable[[SourceFile, str], bool]) -> list[str]:
    """Every import of the product that a rule forbids."""
    return [
        f"{file.path} imports {name}" for file in product_files() for name in sorted(file.imports) if is_forbidden(file, name)
    ]


def folder_of_actor(module: str) -> str:
    """actors.gateway.requests.request_spec -> gateway; actors.actor -> actor; actors -> nothing."""
    return ([*module.split("."), ""])[1]


def transport_of(module: str) -> str:
    """The package for one transport that a module of the gateway lies in; "" if it lies in none."""
    return next((name for name in TRANSPORTS if f"{module}.".startswith(f"{name}.")), "")


def test_a_file_imports_only_what_its_package_may_know() -> None:
    assert forbidden_imports(lambda file, name: top_of(name) in OURS and top_of(name) not in MAY_IMPORT[file.top]) == []


def test_an_actor_folder_imports_no_other_actor_folder() -> None:
    def is_forbidden(file: SourceFile, name: str) -> bool:
        if file.top != "actors" or top_of(name) != "actors" or name not in product_modules():
            return False
        return folder_of_actor(name) not in (*SHARED_BY_ACTORS, folder_of_actor(file.module))

    assert forbidden_imports(is_forbidden) == []


def test_the_packages_for_http_and_zeromq_import_nothing_of_each_other() -> None:
    """What both need stands in a package beside them."""

    def is_forbidden(file: SourceFile, name: str) -> bool:
        return transport_of(file.module) not in ("", transport_of(name)) and transport_of(name) != ""

    assert forbidden_imports(is_forbidden) == []
    assert {transport_of(module) for module in product_modules()} == {"", *TRANSPORTS}


def test_only_gpu_workers_imports_torch() -> None:
    def is_forbidden(file: SourceFile, name: str) -> bool:
        may = file.top == "gpu_workers" and not is_torch_free(file.module)
        return top_of(name) in ("torch", "triton") and not may

    assert forbidden_imports(is_forbidden) == []


def test_no_file_unpickles() -> None:
    assert forbidden_imports(lambda file, name: top_of(name) in NEVER) == []


def test_all_but_gpu_workers_can_be_imported_without_torch() -> None:
    """Also through what it imports in turn: the client library above all."""
    modules = [
        file.module
        for file in product_files()
        if (file.top != "gpu_workers" or is_torch_free(file.module)) and not file.module.endswith("__main__")
    ]
    assert "messages.client" in modules
    run = subprocess.run(
        [sys.executable, "-c", _REFUSE_TORCH, *modules], cwd=REPO, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
