"""The engine's own time per step, from a few whole steps: what no kernel point can show.

A step's wall time beyond its phases is host work; the draft phase beyond the drafter's kernels is
the drafter's. Both come from the `anchors`: plain, n-gram and EAGLE steps of the smallest model, at
the smallest and largest batch, shortest and longest draft, shortest context. Per anchor of B
sequences

    wall - verify - sample - predicted kernels of the drafter
        = step_s + seq_s B + [speculating] spec_step_s + [n-gram] ngram_seq_s B
          + draft_pass_s passes

solved by least squares of relative errors with no value below 0. The verify and sample phases of
the anchors are not looked at, so that the forward pass stays unfitted; anchors count as fitted and
judge nothing. All times in seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from specsim.calibrate.price import RecordPricer
from specsim.calibrate.records import Measurement
from specsim.calibrate.samples import FitSample, run_id
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.overheads import Overheads

NAMES = ("step_s", "seq_s", "spec_step_s", "ngram_seq_s", "draft_pass_s")
LEAST_S = 1e-6  # below this a gap is the clock's


@dataclass(frozen=True)
class HostFit:
    """engine: with the fitted overheads. anchors: records used. errors: predicted / measured - 1 of
    the anchors' own time. seen: the overheads that some anchor shows."""

    engine: EngineProfile
    anchors: tuple[Measurement, ...]
    errors: tuple[float, ...]
    seen: tuple[str, ...]


def anchors_of(steps: Sequence[FitSample]) -> list[FitSample]:
    """The steps that show the host's time best: those with the least device time."""
    timed = [s for s in steps if {"verify", "sample"} <= set(s.record.phases_s)
             and s.record.shape["method"] in ("none", "ngram", "eagle")]
    if not timed:
        return []
    quickest = min(timed, key=lambda s: s.seconds).record.shape
    near = [s for s in timed if s.record.shape["model"] == quickest["model"]
            and s.record.shape["ctx"] == quickest["ctx"]]
    out = []
    for method in ("none", "ngram", "eagle"):
        found = [s for s in near if s.record.shape["method"] == method]
        ks = {s.record.shape["k"] for s in found}
        for k in {min(ks), max(ks)} if ks else ():
            same = sorted((s for s in found if s.record.shape["k"] == k),
                          key=lambda s: float(s.record.shape["seqs"]))
            out += [same[0]] if len(same) == 1 else [same[0], same[-1]]
    return out


def fit_host(steps: Sequence[FitSample], pricer: RecordPricer) -> HostFit | None:
    """The engine of `pricer` with the overheads that the steps show; None without such steps."""
    anchors = anchors_of(steps)
    if not anchors:
        return None
    from scipy.optimize import nnls

    rows, gaps = [], []
    for sample in anchors:
        record = sample.record
        s, phases = record.shape, record.phases_s
        model, shape = pricer.step_shape(record)
        kernels = model.with_overheads(Overheads()).step(shape).draft_s
        own = record.timing.median_s - phases["verify"] - phases["sample"] - kernels
        gaps.append(max(LEAST_S, own))
        seqs, k, method = float(s["seqs"]), int(s["k"]), s["method"]
        rows.append([1.0, seqs, float(method != "none"), seqs * (method == "ngram"),
                     float(k if method == "eagle" else 0)])
    matrix, target = np.array(rows), np.array(gaps)
    found, _ = nnls(matrix / target[:, None], np.ones(len(target)))
    seen = tuple(n for n, column in zip(NAMES, matrix.T, strict=True) if column.any())
    kept = {f.name: 0.0 for f in fields(Overheads)}
    kept["request_s"] = pricer.engine.overheads.request_s
    for name, value in zip(NAMES, found.tolist(), strict=True):
        kept[name] = float(f"{value:.4g}") if name in seen else getattr(
            pricer.engine.overheads, name)
    run = anchors[0].record.run
    text = "specsim calibrate"
    if run is not None:
        text += f", run {run_id(run)} on {str(run.device.get('name', ''))[:80]}, {run.date[:10]}"
    unseen = [name for name in NAMES if name not in seen]
    text += f": host time of {len(anchors)} steps"
    if unseen:
        text += f"; not seen and kept from the base: {', '.join(unseen)}"
    engine = replace(
        pricer.engine, overheads=Overheads(**kept),
        sources={**pricer.engine.sources, "overheads": text},
    )
    errors = (matrix @ found) / target - 1
    return HostFit(engine, tuple(s.record for s in anchors), tuple(errors.tolist()), seen)

