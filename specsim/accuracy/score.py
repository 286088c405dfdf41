"""Predict every case of a file and say how far off the predictions are.

Judged are (`accuracy.scored`) r = AL / speedup, where both are measured, so that acceptance cannot
hide an error of the roofline; the speedup predicted with the measured acceptance length; seconds
per token of a stream (or concurrency / throughput where a row gives only that), plain and
speculative sides both; mean or median time to first token.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from specsim.accuracy.lookups import SkipRow, forget
from specsim.accuracy.rows import PublishedCase, published_case, silicon_case
from specsim.accuracy.scored import Scored, ScoreReport
from specsim.analytic.apart import decode_load
from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.intervals import prediction_class
from specsim.analytic.system import System
from specsim.errors import FormatError, SpecSimError
from specsim.files import file_text
from specsim.sim.build import Deployment
from specsim.sim.loads import OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate

MAX_FILE_BYTES = 20_000_000
MAX_ROWS = 200_000


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file; FormatError for anything that is not one (size, encoding, columns)."""
    if not path.is_file():
        raise FormatError(f"{path} is not a file; give a CSV file of measurements")
    text = file_text(path, MAX_FILE_BYTES)
    reader = csv.DictReader(io.StringIO(text))
    try:
        rows = [
            {key: value or "" for key, value in row.items() if key and not isinstance(value, list)}
            for row in islice(reader, MAX_ROWS + 1)
        ]
    except csv.Error as error:
        raise FormatError(f"{path.name} line {reader.line_num} is not CSV: {error}") from None
    if len(rows) > MAX_ROWS:
        raise FormatError(f"{path.name} has more than {MAX_ROWS} rows; split it")
    names = set(reader.fieldnames or ())
    if not ({"target_model", "set_id"} <= names or {"model_path", "silicon_tpot_ms"} <= names):
        raise FormatError(
            f"{path.name} has the columns {', '.join(n[:20] for n in sorted(names)[:6])} ...; "
            "expected "
            "those of published_measurements.csv (target_model, set_id, ...) or of "
            "e2e_silicon_h200.csv (model_path, silicon_tpot_ms, ...)"
        )
    return rows


def score_rows(rows: Iterable[dict[str, str]], keep_cases: bool = True) -> ScoreReport:
    """Scores every row that can be predicted, counts the others by reason. keep_cases: the report
    holds the systems as well, with all that was priced for them (some 10 kB per row)."""
    report = ScoreReport()
    forget()
    for number, row in enumerate(rows, 1):
        report.rows += 1
        try:
            if "silicon_tpot_ms" in row:
                case = silicon_case(row, f"row-{number}")
            else:
                case = published_case(row)
            scores = score_case(case)
        except SkipRow as reason:
            report.skipped[str(reason)] += 1
            continue
        except SpecSimError as error:
            report.skipped[f"not predictable: {str(error).split(';')[0].split(' (')[0]}"] += 1
            continue
        if not scores:
            unknown = case.system.speculative and case.acceptance_length is None
            report.skipped[
                "acceptance length not given" if unknown
                else "one output token: no time per token" if case.workload.output_len == 1
                else "lengths of the requests not stated"
            ] += 1
            continue
        report.predicted += 1
        if keep_cases:
            report.cases.append(case)
        report.scores += scores
    return report


def _tpot(state: SteadyState, case: PublishedCase, system_side: str) -> float:
    """Predicted seconds per token as the row measured it."""
    if f"{system_side}_tpot_s" in case.measured:
        return state.tpot_s
    return state.concurrency / state.output_tok_s


def _ttft(state: SteadyState, case: PublishedCase) -> float:
    """Predicted seconds to the first token, in the statistic of the row."""
    return state.typical_ttft_s if case.median else state.ttft_s


def _measured_tpot(case: PublishedCase, side: str) -> float | None:
    """Measured seconds per token of one side, None where the row does not tell it.

    A throughput tells it for one stream, and for several when the lengths are known: batches of
    unknown unequal requests run partly empty, by how much the row does not say."""
    value = case.measured.get(f"{side}_tpot_s")
    rate = case.measured.get(f"{side}_output_tok_s")
    if value is None and rate and (case.lengths_stated or case.concurrency == 1):
        value = case.concurrency / rate
    return value


def score_case(case: PublishedCase) -> list[Scored]:
    """The judged values of one case."""
    measured = case.measured
    out: list[Scored] = []
    plain = case.system.plain()
    if case.forward_only:
        step = plain.latency.step(plain.decode_shape(case.concurrency, case.workload.input_len))
        return [Scored(case.row_id, case.set_id, "tpot", "plain", prediction_class(plain),
                       step.target_s, measured["baseline_tpot_s"])]
    base = _state(plain, case)
    speculative = case.system.speculative

    def add(quantity: str, side: str, predicted: float, value: float) -> None:
        if not predicted > 0:  # a single output token has no time per token
            return
        klass = prediction_class(plain if side == "plain" else case.system)
        out.append(Scored(case.row_id, case.set_id, quantity, side, klass, predicted, value))

    value = _measured_tpot(case, "baseline")
    if value is not None:
        add("tpot", "plain", _tpot(base, case, "baseline"), value)
    if not speculative:
        if "ttft_s" in measured:
            add("ttft", "plain", _ttft(base, case), measured["ttft_s"])
        return out
    spec = _state(case.system, case)
    if case.acceptance_length is None:
        if "ttft_s" in measured and case.concurrency == 1:  # drafts come after the first token
            add("ttft", "speculative", _ttft(spec, case), measured["ttft_s"])
        return out
    value = _measured_tpot(case, "spec")
    if value is not None:
        add("tpot", "speculative", _tpot(spec, case, "spec"), value)
    if "ttft_s" in measured:
        add("ttft", "speculative", _ttft(spec, case), measured["ttft_s"])
    gain = measured.get("speedup")
    if gain is None and {"baseline_tpot_s", "spec_tpot_s"} <= set(measured):
        gain = measured["baseline_tpot_s"] / measured["spec_tpot_s"]
    if gain is not None:
        times = {"baseline_tpot_s", "spec_tpot_s"} <= set(measured)
        if times and spec.tpot_s > 0 and not case.gain_of_rates:
            predicted = base.tpot_s / spec.tpot_s
        else:
            predicted = spec.output_tok_s / base.output_tok_s
        add("speedup", "speculative", predicted, gain)
        ratio = spec.step_s / base.step_s
        add("step_cost_ratio", "speculative", ratio, case.acceptance_length / gain)
    return out


def _state(system: System, case: PublishedCase) -> SteadyState:
    """What a row describes: a steady state, or a burst that overflows the cache. Pure decode rows
    have no prompts in their steps."""
    state = closed_loop(system, case.workload, case.concurrency)
    if overflows(system, case):
        return burst(system, case, state)
    if not case.pure_decode:
        return state
    apart = closed_loop(system, decode_load(case.workload), case.concurrency)
    return replace(state, tpot_s=apart.tpot_s)


SHARED = 0  # key of the piece that all prompts begin with, where some of it is cached


def overflows(system: System, case: PublishedCase) -> bool:
    """Whether the row is one burst of more requests than run together."""
    limit = running_limit(system.with_(max_num_seqs=0), case.workload)
    return case.arrives == "burst" and limit < case.concurrency


def burst(system: System, case: PublishedCase, state: SteadyState) -> SteadyState:
    """`state` with the times and rates of the simulated burst, which no steady state describes.

    All requests come at once; those that do not fit wait for the memory of others, and the batch
    shrinks at the end. Same requests, same draws (seed 0), so that both sides of a row differ by
    the system alone."""
    load, count = case.workload, case.concurrency
    cached = load.input_len - load.computed_input
    deployment = Deployment(system.with_(max_num_seqs=0), prefix_caching=cached > 0)
    spans = ((SHARED, cached),) if cached else ()
    requests = [Request(0.0, load.input_len, load.output_len, spans)] * count
    run = simulate(deployment.config, OpenLoop(requests, total=count), deployment.cost)
    found = run.summary()
    ttft_s, tpot_s = found["ttft_s"], found["tpot_s"]
    return replace(
        state, ttft_s=ttft_s["mean"] or 0.0, typical_ttft_s=ttft_s["p50"] or 0.0,
        tpot_s=tpot_s["mean"] or 0.0, output_tok_s=found["output_tok_s"],
    )
