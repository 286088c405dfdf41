"""The fit of engine overheads: what it finds, how sources weigh, and what leaving one out means."""

import json
from dataclasses import replace

import numpy as np
import pytest
from common import CATALOG, LOSO, read_json
from engine_fit import EngineFit, Observed, Prior
from fit_engines import COLUMNS, NEVER_FITTED, PRIORS, scored

from accuracy_samples import ROW
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.accuracy.score import score_case
from specsim.accuracy.scored import by_source
from specsim.latency.engine import find_engine
from specsim.latency.overheads import Overheads

VLLM = find_engine("vllm")
KEY = f"{VLLM.name}-{VLLM.version}"
NAMES = {"step_s": Prior(0.5e-3, 0.6), "seq_s": Prior(10e-6, 0.7)}


def measured_under(over: Overheads, batch: int, factor: float = 1.0) -> PublishedCase:
    """A row whose plain time per token is that of the given overheads, times a factor."""
    row = {**ROW, "method": "none", "batch_or_concurrency": str(batch), "ttft_ms": "",
           "speedup": "", "spec_tpot_ms": "", "mean_accepted_length": ""}
    case = published_case(row)
    case = replace(case, system=replace(case.system, engine=VLLM))
    score, = score_case(replace(case, system=case.system.with_overheads(over)))
    return replace(case, measured={"baseline_tpot_s": score.predicted * factor})


def fit_of(rows: list[tuple[str, PublishedCase]]) -> EngineFit:
    """rows: (source, case)."""
    observed = [
        Observed(i, 0, "tpot", "plain", source, source, 0.1) for i, (source, _) in enumerate(rows)
    ]
    return EngineFit([(KEY, case) for _, case in rows], {KEY: VLLM.overheads}, NAMES, observed)


@pytest.mark.slow
def test_overheads_that_the_rows_were_made_with_are_found() -> None:
    true = replace(VLLM.overheads, step_s=1.5e-3, seq_s=30e-6)
    rows = [(f"s{i}", measured_under(true, batch)) for i in range(60) for batch in (1, 8, 64)]
    fit = fit_of(rows)
    x, r, _ = fit.fit()
    found = fit.overheads(x)[KEY]
    assert found.step_s == pytest.approx(true.step_s, rel=0.15)
    assert found.seq_s == pytest.approx(true.seq_s, rel=0.15)
    assert np.abs(r).max() < 0.02


def test_many_rows_of_one_source_do_not_outvote_others() -> None:
    high, low = (replace(VLLM.overheads, step_s=s) for s in (2e-3, 0.5e-3))
    rows = [("many", measured_under(high, 1))] * 200 + [
        (f"one{i}", measured_under(low, 1)) for i in range(6)
    ]
    fit = fit_of(rows)
    each = {source: sum(w for o, w in zip(fit.observed, fit.weight, strict=True)
                        if o.source == source) for source in fit.sources}
    assert each["many"] < 2.1 * each["one0"]
    step_s = fit.overheads(fit.fit()[0])[KEY].step_s
    assert step_s < 1e-3


def test_a_fit_without_a_source_is_that_of_the_others() -> None:
    true = replace(VLLM.overheads, step_s=1.0e-3, seq_s=15e-6)
    others = [(f"s{i}", measured_under(true, batch)) for i, batch in enumerate([1, 8, 32, 64])]
    odd = [("odd", measured_under(true, batch, 1.3)) for batch in (1, 16, 64)]
    whole, rest = fit_of(others + odd), fit_of(others)
    left = whole.without("odd", *whole.fit())
    alone, _, _ = rest.fit()
    assert left == pytest.approx(alone, abs=0.03)
    assert np.abs(whole.fit()[0] - alone).max() > 0.1


def test_a_version_without_rows_takes_after_its_engine() -> None:
    old = find_engine("vllm", "0.10")
    key = f"{old.name}-{old.version}"
    true = replace(VLLM.overheads, step_s=2e-3)
    rows = [(KEY, measured_under(true, batch)) for batch in (1, 2, 4, 8)]
    observed = [Observed(i, 0, "tpot", "plain", f"s{i}", f"s{i}", 0.1) for i in range(4)]
    fit = EngineFit(rows, {KEY: VLLM.overheads, key: old.overheads}, NAMES, observed)
    found = fit.overheads(fit.fit()[0])
    assert NAMES["step_s"].median < found[key].step_s < found[KEY].step_s


def test_kept_predictions_are_of_every_source_and_judge_like_published_rows() -> None:
    kept = read_json(LOSO)
    assert tuple(kept["columns"]) == COLUMNS
    values = scored(kept["values"], "predicted")
    fitted = {v.source for v in values} - set(NEVER_FITTED)
    # The others ran on devices whose kernels nobody measured, which do not count in the fit.
    assert set(kept["without"]) < fitted and len(kept["without"]) >= 12
    for versions in (kept["overheads"], *kept["without"].values()):
        assert all(set(found) <= set(PRIORS) for found in versions.values())
    # Leaving a source out changes what it says of itself, not everything.
    seen, unseen = (
        [errors["median_of_medians"] or 0.0 for errors in by_source(found).values()]
        for found in (scored(kept["values"], "in_sample"), values)
    )
    assert sum(seen) < sum(unseen) < 2 * sum(seen)


@pytest.mark.parametrize("quantity", ["step_cost_ratio", "speedup", "tpot", "ttft"])
def test_shipped_intervals_hold_what_they_promise(quantity: str) -> None:
    """Nine of ten of every source's values, predicted without it, the mean over sources."""
    table = json.loads((CATALOG / "residuals.json").read_text(encoding="utf-8"))["quantities"]
    parts: dict[str, list[bool]] = {}
    for value in scored(read_json(LOSO)["values"], "predicted"):
        if value.quantity == quantity:
            ends = table[quantity][value.klass]
            y = np.log(value.measured / value.predicted)
            parts.setdefault(value.source, []).append(ends["low"] <= y <= ends["high"])
    shares = [np.mean(part) for part in parts.values()]
    assert 0.85 <= np.mean(shares) <= 1.0
