"""Verdicts: the rule, and that each agrees with the table it stands above."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from thinned import examples, slow

import specsim
from specsim.analytic.closed import running_limit
from specsim.analytic.compare import compared
from specsim.model.catalogue import list_drafters, list_models
from specsim.planning.tune_choices import OfferedLoad
from specsim.planning.verdict import LIKELY, judged, needed_tokens
from specsim.report.doc import Doc
from specsim.report.kinds import SECTIONS
from specsim.report.layout import UNKNOWN_WIDTH
from specsim.report.text import section_text
from specsim.report.verdict import lines, verdict_block
from specsim.speculation.acceptance import Acceptance

DATA = Path(__file__).parents[1] / "formats" / "data"
GPUS = ("h200-sxm", "h100-sxm", "b200-sxm", "a100-80gb", "rtx-4090")


@pytest.mark.parametrize(
    ("gain", "interval", "decision", "certainty", "share"),
    [
        (1.5, (1.2, 1.8), "on", "sure", 1.0),
        (1.2, (0.97, 1.5), "on", "likely", 0.930),
        (1.02, (0.9, 1.15), "on", "open", 0.570),
        (1.5, None, "on", "open", None),
        (1.0, (0.9, 1.1), "off", "open", 0.525),
        (0.9, (0.6, 1.04), "off", "likely", 0.929),
        (0.8, (0.7, 0.9), "off", "sure", 1.0),
        (0.8, (0.8, 0.8), "off", "sure", 1.0),
        (None, None, "unknown", "open", None),
    ],
)
def test_the_rule(
    gain: float | None, interval: tuple[float, float] | None, decision: str, certainty: str,
    share: float | None,
) -> None:
    found = judged(gain, interval)
    assert found[:2] == (decision, certainty)
    assert found[2] == (None if share is None else pytest.approx(share, abs=1e-3))
    assert 0.5 < LIKELY < 1


def deployments(count: int, seed: int) -> list[dict[str, object]]:
    """Models, devices, engines and acceptances of all sorts; not all of them can run."""
    draw = random.Random(seed)
    models = [entry.name for entry in list_models()]
    out: list[dict[str, object]] = []
    for _ in range(count):
        k = draw.randint(1, 6)
        out.append({
            "model": draw.choice(models), "gpu": draw.choice(GPUS), "tp": draw.choice((1, 2, 8)),
            "engine": draw.choice(("vllm", "sglang")),
            "method": draw.choice(("mtp", "ngram", None)), "k": k,
            "acceptance_length": draw.uniform(1.0, 1 + k),
            "input_len": draw.choice((128, 2048, 16384)), "output_len": draw.choice((64, 512)),
        })
    return out


def predicted(options: dict[str, object], **more: object) -> specsim.Prediction | None:
    try:
        return specsim.predict(**{**options, **more})  # type: ignore[arg-type]
    except specsim.SpecSimError:
        return None


def test_the_verdict_agrees_with_the_table_below_it() -> None:
    seen = set()
    for number, options in enumerate(deployments(examples(160), seed=13)):
        load = (1, 4, 32, 200)[number % 4]
        found = predicted(options, concurrency=load)
        if found is None or not found.system.speculative:
            continue
        verdict, point = found.verdict, found.points[0]
        assert verdict is not None and verdict.load == load and verdict.unit == "clients"
        assert verdict.decision == ("on" if point.speedup > 1 else "off")
        assert verdict.gain == point.speedup and verdict.k == found.system.setup.k
        assert verdict.pays_below == found.break_even_concurrency
        if verdict.pays_below is not None and load < verdict.pays_below:
            assert verdict.decision == "on"
        assert verdict.memory is not None
        assert verdict.memory.queueing_from == running_limit(found.system, found.workload) + 1
        seen.add((verdict.decision, verdict.pays_below is None))
        if number % 12 == 0:
            crossed = specsim.crossover(**options)  # type: ignore[arg-type]
            assert crossed.verdict is not None
            assert crossed.verdict.pays_below == crossed.curves[0].break_even_concurrency
            assert crossed.verdict.decision == (
                "on" if crossed.curves[0].points[0].speedup > 1 else "off")
    assert {("on", False), ("on", True), ("off", False)} <= seen


@pytest.mark.parametrize(("count", "least"), [(3, 0), slow(20, 10)])
def test_nothing_is_off_for_want_of_an_acceptance(count: int, least: int) -> None:
    drafted = {name for entry in list_drafters() for name in entry.targets}
    unknown = 0
    models = list_models()
    undrafted = [e for e in models if not e.has_mtp and e.name not in drafted]
    draw = random.Random(5)
    for entry in (*draw.sample(undrafted, count), *draw.sample(models, count)):
        try:
            single = specsim.predict(entry.name, tp=8, concurrency=64)
            tuned = specsim.tune(entry.name, tp=8, concurrency=64)
        except specsim.SpecSimError:
            continue
        for verdict, known in ((single.verdict, single.system.speculative),
                               (tuned.verdict, bool(tuned.systems))):
            assert verdict is not None
            if not known:
                unknown += 1
                assert verdict.decision == "unknown" and verdict.gain is None
                assert verdict.certainty == "open" and verdict.rests_on
                if entry.has_mtp or entry.name in drafted:
                    assert verdict.needed_tokens_per_step or verdict.method is None
    assert unknown > least


@cache
def unmeasured() -> tuple[str, str]:
    """A model for which nobody is known to have trained a drafter, and what could draft."""
    for entry in list_models():
        if not entry.has_mtp and not entry.drafters:
            try:
                verdict = specsim.predict(entry.name, tp=8, concurrency=8).verdict
            except specsim.SpecSimError:
                continue
            if verdict is not None and verdict.decision == "unknown" and verdict.method:
                return entry.name, verdict.method
    raise AssertionError("the catalogue knows an acceptance for every model")


def test_it_pays_from_the_tokens_that_an_unknown_needs() -> None:
    model, method = unmeasured()
    found = specsim.predict(model, tp=8, concurrency=8)
    assert found.verdict is not None
    needed = found.verdict.needed_tokens_per_step
    assert needed is not None and found.verdict.method == method
    for length, pays in ((needed - 0.02, False), (needed + 0.02, True)):
        known = specsim.predict(
            model, tp=8, method=method, acceptance_length=length, concurrency=8)
        assert (known.points[0].speedup > 1) is pays
    system = known.system.with_(
        acceptance=Acceptance.from_mean_length(1.0, known.system.setup.k))
    again = needed_tokens(system, known.workload, OfferedLoad(8))
    assert again == pytest.approx(needed, abs=1e-6)


def test_a_rate_is_paid_for_up_to_the_load_that_it_says() -> None:
    found = specsim.predict("qwen3-32b", method="eagle3", rate=2)
    assert found.verdict is not None and found.verdict.unit == "requests/s"
    below = found.verdict.pays_below
    assert below is not None
    gains = [compared(found.system, found.workload, rate=below * share).speedup
             for share in (0.95, 1.0)]
    assert gains[0] > 1 > gains[1]


def test_tune_says_what_its_answers_say() -> None:
    found = specsim.tune("qwen3-32b", methods="eagle3", concurrency="1,64,600")
    assert found.verdict is not None
    for said, answer in zip(found.verdict.loads, found.answers, strict=True):
        assert answer.best is not None
        assert said.decision == ("on" if answer.best.k else "off")
        if answer.best.k:
            assert (said.method, said.k) == (answer.best.method, answer.best.k)
            assert said.gain == answer.best.speedup
        else:
            assert said.gain is not None and said.gain <= 1
    lead = specsim.predict("qwen3-32b", method="eagle3", k=found.verdict.k)
    assert found.verdict.pays_below == lead.break_even_concurrency
    assert found.answers[0].flags is not None
    assert found.verdict.command == found.answers[0].flags.command
    strict = specsim.tune("qwen3-32b", methods="eagle3", slo="tpot_mean=0.0001", concurrency=8)
    assert strict.verdict is not None and strict.verdict.decision == "none"


def test_loads_beyond_those_looked_at_are_not_spoken_of() -> None:
    found: Any = specsim.predict("qwen3-32b", method="eagle3", concurrency=8).to_dict()
    found["verdict"] |= {"pays_below": None, "looked_to": 181, "load": 300, "gain": 1.01}
    assert "up to" not in lines(Doc(found["verdict"]))[0]
    found["verdict"]["load"] = 8
    assert lines(Doc(found["verdict"]))[0].endswith("; pays at any load up to 181 clients")


def test_a_sure_verdict_says_at_which_loads_it_is_not() -> None:
    """What stands in the column `pays` of the table below it is not contradicted."""
    found: Any = specsim.predict("qwen3-32b", method="eagle3", concurrency=[8, 16, 32]).to_dict()
    verdict = found["verdict"] | {"certainty": "sure", "winning_share": 1.0, "decision": "on"}

    def said(*bands: tuple[str, float, float] | None) -> str:
        kept = [item | ({} if band is None else {"decision": band[0], "gain_90": list(band[1:])})
                for item, band in zip(verdict["loads"], bands, strict=True)]
        return lines(Doc(verdict | {"loads": kept}))[1]

    sure, open_, off = ("on", 1.1, 1.9), ("on", 0.9, 1.4), ("off", 0.5, 1.1)
    assert "above 1; " in said(sure, sure, sure)
    assert "above 1, but not at 16 clients; " in said(sure, open_, sure)
    assert "above 1, but not from 16 clients on; " in said(sure, open_, open_)
    assert "above 1, but not at 32 clients; " in said(sure, sure, open_)
    assert "above 1; " in said(sure, sure, off)


def test_plain_decoding_asked_for_has_no_verdict() -> None:
    found = specsim.predict("llama-3.1-8b", method="none")
    assert found.verdict is None and found.to_dict()["verdict"] is None
    assert found.to_text().startswith("Llama-3.1-8B")


def test_a_run_is_judged_by_its_own_figures() -> None:
    sample = str(DATA / "vllm_draftself_k2_c1.json")
    bare: Any = specsim.diagnose(words=[sample]).to_dict()
    assert bare["verdict"]["decision"] == "unknown"
    found: Any = specsim.diagnose(
        words=[sample, "llama-3.1-8b"], gpu="h100", method="eagle3").to_dict()
    (run,) = found["diagnoses"]
    assert found["verdict"] == run["verdict"] and run["verdict"]["decision"] == "on"
    assert run["verdict"]["gain"] == run["predicted"]["speedup"]


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ({"model": "qwen3-32b", "method": "eagle3", "concurrency": "1,64,300"}, "ON: eagle3 k = 3"),
        ({"model": "qwen3-32b", "method": "eagle3", "concurrency": "300"}, "OFF at 300 clients"),
        ({"model": "", "concurrency": "8"}, "NOT KNOWN: turn on "),
    ],
)
def test_the_decision_is_first_and_fits_a_narrow_terminal(
    command: dict[str, str], first: str
) -> None:
    model = command["model"] or unmeasured()[0]
    options: dict[str, Any] = {**command, "model": model, "tp": 1 if command["model"] else 8}
    found = specsim.predict(**options)
    text = found.to_text()
    assert text.startswith(first)
    head = text.partition("to type" if "NOT" not in first else "to measure")[0].splitlines()
    assert all(len(line) <= UNKNOWN_WIDTH for line in head)
    # The decision, how sure it is, and what it costs in memory where it does.
    assert sum(not line.startswith(" ") for line in head) in (2, 3)
    assert ("\n  specsim diagnose --url " if "NOT" in first else "\n  vllm serve ") in text
    document = json.loads(json.dumps(found.to_dict()))
    again = section_text(SECTIONS["prediction"](Doc(document)))
    assert again.startswith(text.partition("\n\n")[0])  # from a file it reads the same
    del document["verdict"]  # as older versions wrote it
    assert verdict_block(Doc(document)) is None
    assert section_text(SECTIONS["prediction"](Doc(document))).startswith(found.system.spec.name)


def test_a_row_that_waits_in_a_queue_says_so() -> None:
    found = specsim.predict("qwen3-32b", method="eagle3", concurrency="64,300")
    text = found.to_text()
    assert "\n300* " in text and "\n64 " in text
    running = f"{found.points[1].running:.0f}"
    assert f"* requests wait in a queue: {running} of 300 clients run at a time" in text
