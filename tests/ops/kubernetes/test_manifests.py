"""The manifests for Kubernetes and the chart's values against the supervisor, the image and the metrics.

What Helm makes of the chart is checked by tests/long/deployment/test_chart.py; `ops/kubernetes/base` is drawn from it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from messages.run_dir import DEFAULT_PORT
from supervisor.__main__ import main
from supervisor.config.server_config import SupervisorSettings, load_config
from supervisor.directories.state_dir import default_state_dir

ROOT = Path(__file__).parents[3]
KUBERNETES, CHART = ROOT / "ops" / "kubernetes", ROOT / "ops" / "helm" / "tardigrade"
EXAMPLES = sorted((CHART.parent / "values").glob("*.yaml"))
GROUPS = 8  # of a tree with keys and a standby
yaml: Any = pytest.importorskip("yaml")
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
MANIFESTS = {
    one["kind"]: one for one in yaml.safe_load_all((KUBERNETES / "base" / "server.yaml").read_text(encoding="utf-8")) if one
}
POD = MANIFESTS["StatefulSet"]["spec"]["template"]["spec"]
(SERVER,) = POD["containers"]


def unknown_values(given: dict[str, Any], known: dict[str, Any], prefix: str = "") -> list[str]:
    """The keys of an example that the chart does not have; tables that are empty there take any."""
    found = [prefix + key for key in given if key not in known]
    for key, value in given.items():
        if isinstance(value, dict) and known.get(key):
            found += unknown_values(value, known[key], f"{prefix}{key}.")
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_sets_what_the_chart_and_the_server_know(example: Path, tmp_path: Path) -> None:
    given = yaml.safe_load(example.read_text(encoding="utf-8"))
    assert unknown_values(given, VALUES) == []
    (tmp_path / "server.toml").write_text(given.get("config", VALUES["config"]))
    flags: list[dict[str, Any]] = [{"api_keys": given.get("apiKeys", VALUES["apiKeys"])["enabled"]}]
    load_config(str(tmp_path / "server.toml"), flags)


def test_the_command_of_the_container_is_one_that_the_image_has() -> None:
    name, *arguments = SERVER["args"]
    context = main.commands[name].make_context(name, list(arguments))
    assert (context.params["port"], context.params["gpus"], context.params["host"]) == (DEFAULT_PORT, 0, "0.0.0.0")
    config = [volume["mountPath"] for volume in SERVER["volumeMounts"] if volume["name"] == "config"]
    assert context.params["config"] == f"{config[0]}/{next(iter(MANIFESTS['ConfigMap']['data']))}"


def test_commands_in_the_pod_find_the_state_that_the_server_has() -> None:
    """`supervisor keys add` looks where the environment of the image says."""
    text = (ROOT / "ops" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    environment = dict(re.findall(r"^(?:ENV)? +(\w+)=(/[^ \n]+)", text, re.MULTILINE))
    expected = default_state_dir(DEFAULT_PORT, environment, Path("/nowhere"))
    assert f"--state-dir={expected}" in SERVER["args"]


def test_probes_ask_what_they_are_for() -> None:
    paths = {name: SERVER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/livez", "readiness": "/readyz", "liveness": "/livez"}
    startup, liveness = SERVER["startupProbe"], SERVER["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > SupervisorSettings().worker_ready_s
    assert liveness["periodSeconds"] * liveness["failureThreshold"] > SupervisorSettings().hello_s, "the supervisor comes first"


def test_a_pod_may_finish_its_requests() -> None:
    settings = SupervisorSettings()
    assert VALUES["drainSeconds"] == settings.drain_s
    assert VALUES["stopSeconds"] >= GROUPS * settings.stop_s
    assert POD["terminationGracePeriodSeconds"] == sum(VALUES[f"{name}Seconds"] for name in ("preStop", "drain", "stop"))


def test_it_has_no_rights_and_writes_into_volumes_alone() -> None:
    context = {**POD["securityContext"], **SERVER["securityContext"]}
    assert (context["runAsUser"], context["runAsNonRoot"], context["readOnlyRootFilesystem"]) == (10001, True, True)
    assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    written = {mount["mountPath"] for mount in SERVER["volumeMounts"] if not mount.get("readOnly")}
    assert written == {"/var/lib/tardigrade", "/models", "/tmp", "/dev/shm"}
    claims = [claim["metadata"]["name"] for claim in MANIFESTS["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    assert claims == ["state", "models"]
    assert POD["automountServiceAccountToken"] is False


def test_more_pods_are_started_by_a_metric_that_the_server_has() -> None:
    metrics = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert f"| `{VALUES['autoscaling']['metric']}` | gauge |" in metrics


def test_the_chart_and_the_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize(("overlay", "n_gpus"), [("base", 0), ("overlays/gpu", 1)])
def test_kustomize_draws_the_overlays(overlay: str, n_gpus: int, tmp_path: Path) -> None:
    if (program := shutil.which("kubectl")) is None:
        pytest.skip("kubectl is not on this machine")
    done = subprocess.run(
        [program, "kustomize", str(KUBERNETES / overlay)], capture_output=True, text=True, timeout=60, check=True
    )
    drawn = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    (server,) = drawn["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert f"--gpus={n_gpus}" in server["args"]
    assert server["resources"]["limits"].get("nvidia.com/gpu", 0) == n_gpus
    assert server["image"].endswith("-cuda" if n_gpus else "-cpu")
    (tmp_path / "server.toml").write_text(drawn["ConfigMap"]["data"]["server.toml"])
    load_config(str(tmp_path / "server.toml"))
