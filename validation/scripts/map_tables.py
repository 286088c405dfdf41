"""The rest of map_signs.py, on one source: tables by batch, simulated; verify steps by clients;
what staying on at k = 0 costs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from common import LOSO, read_json
from fit_engines import engine_key

from specsim.accuracy.lookups import number
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.sim.build import Deployment
from specsim.sim.loads import OpenLoop
from specsim.sim.policies.choice import parse_policy
from specsim.sim.request import Request
from specsim.sim.run import simulate

CAPPED = 0.8  # of the FP8 peak, to see what a power limit could do
NEW_TOKENS = 96  # of a prompt whose prefix is cached, as depthchart's other grid states


def unseen(system: System, source: str, without: Mapping[str, Any]) -> System:
    """The deployment with overheads of a fit that has not seen the source."""
    fitted = without.get(source, {}).get(engine_key(system), {})
    return system.with_overheads(replace(system.engine.overheads, **fitted)) if fitted else system


def shared_prefix(case: PublishedCase) -> PublishedCase:
    """A burst whose prompts share a cached prefix. Computed whole, the prompts of DEPTHB come to
    more FLOP per second than the GPU's peak, so most of each was in the cache."""
    load = case.workload
    share = max(0.0, 1 - NEW_TOKENS / load.input_len)
    return replace(case, workload=replace(load, cached_share=share))


def burst(system: System, case: PublishedCase, policy: str) -> tuple[float, float]:
    """Output tokens per second and mean TPOT in ms of a simulated burst. policy: '' for one draft
    length."""
    load, count = case.workload, case.concurrency
    cached = load.input_len - load.computed_input
    deployment = Deployment(
        system.with_(max_num_seqs=0), prefix_caching=True,
        policy=parse_policy(policy) if policy else None,
    )
    requests = [Request(0.0, load.input_len, load.output_len, ((0, cached),))] * count
    run = simulate(deployment.config, OpenLoop(requests, total=count), deployment.cost)
    found = run.summary()
    return float(found["output_tok_s"]), 1e3 * float(found["tpot_s"]["mean"])


def table_cells(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """DEPTHB's table by batch alone, [[1,64,3],[65,128,1],[129,512,0]], beside k = 3 throughout."""
    without, out = read_json(LOSO)["without"], []
    own = [r for r in rows if r["set_id"] == "DEPTHB"]
    fixed = {int(r["isl"]): r for r in own if "schedule" not in r["notes"]}
    for row in own:
        if "batch x context" in row["notes"]:
            continue
        isl = int(row["isl"])
        near = fixed[min(fixed, key=lambda n: abs(math.log(n / isl)))]
        whole = shared_prefix(published_case({**near, "isl": row["isl"]}))
        system = unseen(whole.system, "depthchart", without)
        policy = "table,1=3,65=1,129=0" if "schedule" in row["notes"] else ""
        sides = burst(system.plain(), whole, ""), burst(system, whole, policy)
        out.append({
            "row": row["id"], "context": isl, "table": policy or "k = 3",
            "measured": float(row["speedup"]), "predicted": sides[1][0] / sides[0][0],
            "tok_s": [side[0] for side in sides], "tpot_ms": [side[1] for side in sides],
            "measured_tok_s": [float(row[f"{name}_tok_s"]) for name in ("baseline", "spec")],
            "measured_tpot_ms": [float(row[f"{name}_tpot_ms"]) for name in ("baseline", "spec")],
        })
    return out


def verify_cells(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Time per token without drafts and time between steps with them, predicted over measured - 1,
    of rows that measured both; also with less FP8 peak."""
    without, out = read_json(LOSO)["without"], []
    for row in rows:
        plain, spec = number(row["baseline_tpot_ms"]), number(row["spec_tpot_ms"])
        if row["set_id"] not in ("DEPTHC", "DEPTHR") or row["k"] in ("", "0") or not plain:
            continue
        case = published_case(row)
        length = case.acceptance_length
        if length is None or not spec:
            continue
        system = unseen(case.system, "depthchart", without)
        profile = system.profile
        slower = {**profile.flops, "fp8": CAPPED * profile.flops["fp8"]}
        both = system, system.with_(profile=replace(profile, flops=slower))
        clients, load = case.concurrency, case.workload
        itl = [closed_loop(side, load, clients).itl_s * 1e3 / (spec * length) - 1 for side in both]
        base = closed_loop(system.plain(), load, clients).tpot_s * 1e3 / plain - 1
        out.append({
            "row": row["id"], "clients": clients, "context": load.input_len, "k": system.setup.k,
            "plain": base, "itl": itl[0], "itl_capped": itl[1],
        })
    return out


def rest_cells(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What staying on at k = 0 takes: measured and predicted time per token over plain."""
    without, out = read_json(LOSO)["without"], []
    model = next(r for r in rows if r["id"] == "DEPTHC-004")
    for row in rows:
        tpots = number(row["baseline_tpot_ms"]), number(row["spec_tpot_ms"])
        resting = row["set_id"] in ("DEPTHC", "DEPTHR") and row["k"] == "0" and all(tpots)
        if not resting or "ignores K" in row["engine_version"]:
            continue
        case = published_case(model)
        kv = "fp8" if row["set_id"] == "DEPTHR" and row["isl"] == "150" else case.system.kv_dtype
        system = unseen(case.system.with_(kv_dtype=kv), "depthchart", without)
        clients, context = int(row["batch_or_concurrency"]), float(row["isl"]) + 128
        rest = system.decoding_s(clients, context, drafting=False)
        out.append({
            "row": row["id"], "clients": clients, "context": int(row["isl"]),
            "measured": tpots[1] / tpots[0] - 1,  # type: ignore[operator]
            "predicted": rest / system.plain().decoding_s(clients, context) - 1,
        })
    return out
