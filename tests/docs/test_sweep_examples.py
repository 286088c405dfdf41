"""examples/sweep: definitions and clusters that are what their first lines say."""

import ast
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.api.sweep import build_sweep
from specsim.options.sizing import SweepOptions
from specsim.planning.executors import FORMS

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "sweep"


def loaded(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def limits(container: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = container["resources"]["limits"]
    return found


def test_the_study_has_100_000_predictions_and_loads_that_share_work() -> None:
    sweep = build_sweep(SweepOptions(file=FOLDER / "study.toml"))
    assert sweep.count == 100_000 and sweep.run == "predict"
    assert [*sweep.grid][-1] == "concurrency" and "method" in sweep.fixed


def test_the_dask_cluster() -> None:
    """Checked against the operator's own schema (dask-kubernetes 2026.3) when it was written."""
    found = loaded("dask-kubernetes.yaml")
    assert (found["apiVersion"], found["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    worker, scheduler = found["spec"]["worker"], found["spec"]["scheduler"]
    [container] = worker["spec"]["containers"]
    assert container["args"][:3] == ["dask-worker", "--name", "$(DASK_WORKER_NAME)"]
    processes = container["args"][container["args"].index("--nworkers") + 1]
    assert limits(container)["cpu"] == processes and worker["replicas"] > 0
    [head] = scheduler["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert ports["tcp-comm"] == 8786
    service = scheduler["service"]
    assert service["selector"]["dask.org/cluster-name"] == found["metadata"]["name"]
    assert {port["targetPort"] for port in service["ports"]} == set(ports)
    assert head["image"] == container["image"]


def test_the_ray_cluster() -> None:
    found = loaded("kuberay.yaml")
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayCluster")
    [head] = found["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in head["ports"]}["client"] == 10001
    [group] = found["spec"]["workerGroupSpecs"]
    [worker] = group["template"]["spec"]["containers"]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert worker["image"] == head["image"] and limits(worker)["cpu"]
    # KubeRay wants texts here.
    for part in (found["spec"]["headGroupSpec"], group):
        assert all(isinstance(value, str) for value in part["rayStartParams"].values())


@pytest.mark.parametrize("name", ["dask-kubernetes.yaml", "kuberay.yaml", "ray_slurm.sh"])
def test_commands_name_executors_that_there_are(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    words = text.replace("\\\n", " ").split()
    scheme = words[words.index("--executor") + 1].partition("://")[0]
    assert f"{scheme}://HOST:PORT" in FORMS


def test_the_scripts_are_no_nonsense() -> None:
    subprocess.run(["bash", "-n", str(FOLDER / "ray_slurm.sh")], check=True)
    tree = ast.parse((FOLDER / "dask_slurm.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)
             and getattr(node.func, "attr", "") == "sweep"]
    [call] = calls
    assert {word.arg for word in call.keywords} <= set(SweepOptions.model_fields)
