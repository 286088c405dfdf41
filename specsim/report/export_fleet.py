"""A fleet's day as files of what runs it: values of vLLM's Helm chart, Kubernetes' and KEDA's
autoscalers. Each model is one deployment, named as the chart names it for the release `vllm`.

    values.yaml   vllm/vllm-stack: model, replicas, GPUs, flags of every endpoint that vLLM serves
    hpa.yaml      autoscaling/v2, one autoscaler per model
    keda.yaml     keda.sh/v1alpha1, the same target and the day's replicas as schedules; not both
"""

import math
import re
from itertools import groupby

from specsim.errors import UsageError
from specsim.report.doc import Doc

EXPORTED = "values.yaml"
CHARTED = ("vllm",)  # engines of the production-stack chart
CPU_PER_GPU, MEMORY_PER_GPU = 8, 32  # cores, GiB: the chart asks for them; assumed


def fleet_files(doc: Doc) -> dict[str, str]:
    """Name of each file -> its text."""
    import yaml  # by few commands only

    ends = {e.text("name"): e for e in doc.items("endpoints")}
    if len(set(map(kube_name, ends))) < len(ends):
        raise UsageError("two models have one name for Kubernetes, which knows small letters, "
                         "digits and dashes; rename one in the file")
    models = [(m, ends[m.text("name")]) for m in doc.items("day.models")]
    chart = [_values(m, e) for m, e in models if e.text("flags.engine", "") in CHARTED]
    zone = doc.text("day.timezone", "UTC")
    documents = {
        EXPORTED: [{"servingEngineSpec": {"modelSpec": chart}}],
        "hpa.yaml": [_hpa(m) for m, _ in models],
        "keda.yaml": [_keda(m, zone) for m, _ in models],
    }
    return {name: yaml.safe_dump_all(items, sort_keys=False, width=100)
            for name, items in documents.items()}


def kube_name(name: str) -> str:
    """A name as Kubernetes takes it: at most 40 small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "model"


def _values(m: Doc, e: Doc) -> dict[str, object]:
    words = [word.words() for word in e.items("flags.args")]
    served, gpus = words.index("serve") + 1, int(e.number("gpus_per_replica"))
    return {
        "name": kube_name(m.text("name")), "repository": "vllm/vllm-openai",
        "tag": f"v{e.text('flags.version')}", "modelURL": words[served],
        "replicaCount": int(m.number("with_speculation.most_replicas")),
        "requestCPU": CPU_PER_GPU * gpus, "requestMemory": f"{MEMORY_PER_GPU * gpus}Gi",
        "requestGPU": gpus,
        "vllmConfig": {"extraArgs": words[served + 1:]},
    }


def _deployment(m: Doc) -> str:
    return f"vllm-{kube_name(m.text('name'))}-deployment-vllm"


def _hpa(m: Doc) -> dict[str, object]:
    rule = m.at("autoscale")
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": kube_name(m.text("name"))},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment",
                               "name": _deployment(m)},
            "minReplicas": int(rule.number("min_replicas")),
            "maxReplicas": int(rule.number("max_replicas")),
            "metrics": [{"type": "Pods", "pods": {
                "metric": {"name": rule.text("metric").replace(":", "_")},
                "target": {"type": "AverageValue",
                           "averageValue": f"{math.ceil(1e3 * rule.number('target'))}m"}}}],
            **_behavior(m),
        },
    }


def _behavior(m: Doc) -> dict[str, object]:
    """What keeps replicas for a while (Kubernetes: an hour at most)."""
    window = min(3600, round(m.number("autoscale.cool_down_s")))
    return {"behavior": {"scaleDown": {"stabilizationWindowSeconds": window}}}


def _keda(m: Doc, zone: str) -> dict[str, object]:
    rule, name = m.at("autoscale"), m.text("name")
    triggers: list[dict[str, object]] = [{"type": "prometheus", "metadata": {
        "serverAddress": "http://prometheus-server:9090",
        "query": f'sum({rule.text("metric")}{{pod=~"{_deployment(m)}-.*"}})',
        "threshold": f"{rule.number('target'):.4g}"}}]
    runs = [(count, [int(h.number("hour")) for h in group]) for count, group in
            groupby(m.items("hours"), lambda h: int(h.number("replicas")))]
    least = int(rule.number("min_replicas"))
    if len(runs) == 1:  # all day: KEDA takes no schedule from an hour to itself
        (least, _), runs = runs[0], []
    for count, hours in runs:
        triggers.append({"type": "cron", "metadata": {
            "timezone": zone, "start": f"0 {hours[0]} * * *",
            "end": f"0 {(hours[-1] + 1) % 24} * * *", "desiredReplicas": str(count)}})
    return {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": kube_name(name)},
        "spec": {"scaleTargetRef": {"name": _deployment(m)},
                 "minReplicaCount": least, "maxReplicaCount": int(rule.number("max_replicas")),
                 "advanced": {"horizontalPodAutoscalerConfig": _behavior(m)},
                 "triggers": triggers},
    }
