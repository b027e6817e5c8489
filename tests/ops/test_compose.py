"""The compose file against the specification of Compose, and against the files and addresses that it names.

No Docker engine runs in these tests. What they check is the form of the files, and that their parts fit together.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.settings import TracesSettings
from actors.gateway.tracing.export_settings import export_settings, is_wanted
from supervisor.__main__ import main
from supervisor.config.server_config import SupervisorSettings

FOLDER = Path(__file__).parents[2] / "ops" / "compose"
TEXT = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
yaml: Any = pytest.importorskip("yaml")
COMPOSE = yaml.safe_load(TEXT)
GPU = yaml.safe_load((FOLDER / "gpu.yaml").read_text(encoding="utf-8"))
COLLECTOR = yaml.safe_load((FOLDER / "collector.yaml").read_text(encoding="utf-8"))
OTHER_ROOMS = ("prometheus", "grafana")


def test_it_keeps_to_the_specification() -> None:
    pytest.importorskip("compose_spec")
    merged = yaml.safe_dump(COMPOSE)  # the library knows no merges of YAML, which Docker does
    parsed: Any = importlib.import_module("compose_spec").PyCompose.from_yaml(merged)
    assert sorted(parsed.service_names()) == ["alertmanager", "collector", "grafana", "jaeger", "prometheus", "server"]


def test_images_have_versions() -> None:
    for name, service in COMPOSE["services"].items():
        assert re.fullmatch(r"[\w./-]+:(v?\d+\.\d+\.\d+|local)", service["image"]), name


def test_what_is_mounted_is_there_and_cannot_be_written() -> None:
    named = set(COMPOSE["volumes"])
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source, _, rest = volume.partition(":")
            if source in named:
                continue
            path = (FOLDER / source).resolve()
            room = path.relative_to(FOLDER.parent).parts[0]
            assert rest.endswith(":ro"), volume
            assert path.exists() or (room in OTHER_ROOMS and not (FOLDER.parent / room).exists()), volume


def test_named_volumes_are_used() -> None:
    used = {v.partition(":")[0] for service in COMPOSE["services"].values() for v in service.get("volumes", ())}
    assert set(COMPOSE["volumes"]) <= used


def test_the_server_sends_its_traces_to_the_collector_and_that_to_jaeger() -> None:
    server, jaeger = (COMPOSE["services"][name]["environment"] for name in ("server", "jaeger"))
    receiver, exporter = COLLECTOR["receivers"]["otlp"]["protocols"], COLLECTOR["exporters"]["otlp/jaeger"]
    assert is_wanted("auto", server)
    assert export_settings(TracesSettings(folder=""), server).url == f"http://{receiver['http']['endpoint']}/v1/traces"
    assert exporter["endpoint"] == jaeger["COLLECTOR_OTLP_GRPC_HOST_PORT"]
    pipeline = COLLECTOR["service"]["pipelines"]["traces"]
    for part in ("receivers", "processors", "exporters"):
        assert set(pipeline[part]) == set(COLLECTOR[part])


def test_everything_listens_on_this_machine_alone() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["network_mode"] == "host", name
        assert "ports" not in service, name
    assert "0.0.0.0" not in TEXT + str(COLLECTOR)


@pytest.mark.parametrize("services", [COMPOSE["services"], GPU["services"]])
def test_the_server_is_started_with_flags_that_it_has(services: Any) -> None:
    command, *flags = services["server"]["command"]
    known = {name for option in main.commands[command].params for name in option.opts}
    assert {flag for flag in flags if flag.startswith("--")} <= known


def test_the_gpu_variant_changes_the_server_alone() -> None:
    assert set(GPU["services"]) == {"server"}
    assert set(GPU["services"]["server"]["build"]["args"]) == {"TORCH_INDEX"}
    assert GPU["services"]["server"]["image"] != COMPOSE["services"]["server"]["image"], "two images, two names"


def test_the_server_may_finish_its_requests_and_writes_into_volumes_alone() -> None:
    server, settings = COMPOSE["services"]["server"], SupervisorSettings()
    assert server["stop_grace_period"] == "2m"
    assert settings.drain_s + 5 * settings.stop_s < 120
    assert server["read_only"]
    assert [volume.partition(":")[2] for volume in server["volumes"]] == ["/var/lib/tardigrade", "/models"]
    assert (FOLDER / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
