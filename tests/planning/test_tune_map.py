"""The map of draft lengths: its cells are predictions, its gains follow from them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.errors import UsageError
from specsim.options.groups import DeploymentOptions as Options
from specsim.planning.tune_dynamic import dynamic_table
from specsim.planning.tune_map import DraftMap, MapCell, draft_map
from specsim.report.doc import Doc
from specsim.report.plots_file import write_picture
from specsim.report.text import section_text
from specsim.report.tuning import tuning_picture, tuning_section

CHAT = Workload(1024, 256)
LENGTHS = (1, 2, 3, 4)


def system(model: str = "llama-3.1-8b", **given: Any) -> System:
    asked = {"method": "eagle3", "k": 4, "acceptance": "0.75,0.55,0.4,0.3", "gpu": "h100-sxm"}
    return build_request(Options(model=model, **{**asked, **given})).system


@pytest.fixture(scope="module")
def llama() -> System:
    return system()


@pytest.fixture(scope="module")
def found(llama: System) -> DraftMap:
    table = dynamic_table(llama, LENGTHS, CHAT, 4)
    return draft_map(llama, LENGTHS, CHAT, (1, 16, 256), (512, 8192), table)


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """JSON of a map with full, waiting and unsure cells."""
    made = specsim.tune("gemma-4-31b", gpu="h100-nvl", weights="fp8", method="draft-model",
                        by="batch,context", contexts="512,32k,1024k", concurrency=[1, 64])
    return json.loads(json.dumps(made.to_dict()))


def cell(found: DraftMap, clients: int, context: int) -> MapCell:
    return next(c for c in found.cells if (c.concurrency, c.context) == (clients, context))


def test_cells_are_the_predictions_of_their_load(found: DraftMap) -> None:
    for clients, context in ((1, 512), (16, 8192), (256, 512)):
        of = cell(found, clients, context)
        point = specsim.predict(
            "llama-3.1-8b", gpu="h100-sxm", method="eagle3", k=4, input_len=context,
            acceptance="0.75,0.55,0.4,0.3", output_len=256, concurrency=clients,
        ).points[0]
        assert of.at(4) == pytest.approx(point.speedup, rel=1e-9)
        assert of.speedup == max(of.at(k) for k in LENGTHS)
        best = next(k for k in LENGTHS if of.at(k) == of.speedup)
        assert of.k == (best if of.at(best) > 1 else 0)
        assert of.speedup_90 is not None and of.speedup_90[0] < of.at(best) < of.speedup_90[1]


def test_pays_is_what_the_whole_interval_says(found: DraftMap) -> None:
    assert {of.pays for of in found.cells} >= {"yes", "unsure"}
    for of in found.cells:
        assert of.speedup_90 is not None
        low, high = of.speedup_90
        assert of.pays == ("yes" if low > 1 else "no" if high < 1 else "unsure")


def test_an_idle_drafter_costs_the_steps_it_runs_in(llama: System, found: DraftMap) -> None:
    """One client, prompts computed elsewhere: TPOT is the step alone, k = 0 that of the table."""
    apart = replace(CHAT, computed_elsewhere=True)
    of = draft_map(llama, LENGTHS, apart, (1,), (1024,), None).cells[0]
    rest = llama.decoding_s(1, apart.mean_context, drafting=False)
    plain = llama.plain().decoding_s(1, apart.mean_context)
    assert of.at(0) == pytest.approx(plain / rest, rel=1e-9)
    assert of.at(0) < 1
    low, high = found.off_cost or (0.0, 0.0)
    assert 0 < low <= high < 0.5


def test_gains_are_means_over_cells_where_nobody_waits(found: DraftMap) -> None:
    judged = found.judged
    assert judged == tuple(of for of in found.cells if not of.waits) != found.cells
    means = {k: math.prod(of.at(k) for of in judged) for k in LENGTHS}
    assert found.constant_k == max(means, key=means.__getitem__)
    whole, batch = found.gain(found.by_cell), found.gain(found.by_batch)
    assert whole is not None and batch is not None
    by_hand = math.prod(max(of.at(k) for k in (0, *LENGTHS)) for of in judged)
    mean = (by_hand / means[found.constant_k]) ** (1 / len(judged)) - 1
    assert whole["mean"] == pytest.approx(mean) and whole["mean"] >= batch["mean"]
    assert all(0 <= row["most"] < 1 for row in found.given_away())  # type: ignore[operator]


def test_hopeless_drafts_are_off_everywhere_and_so_is_the_constant() -> None:
    poor = system(acceptance="0.05,0.01,0.001,0.0001")
    found = draft_map(poor, LENGTHS, CHAT, (64, 128), (512,), None)
    assert [of.k for of in found.cells] == [0, 0]
    assert all(of.speedup and of.speedup < 1 for of in found.cells)
    assert found.constant_k == 0
    gain = found.gain(found.by_cell)
    assert gain is not None and gain["mean"] < 0  # a table that rests still pays for the drafter
    assert found.to_dict()["gains"]["by_batch"] is None  # type: ignore[index]


def test_more_than_memory_or_the_model_holds_is_marked(llama: System) -> None:
    found = draft_map(llama, LENGTHS, CHAT, (1, 4000), (8192, 130_900, 500_000), None)
    assert "longer than the" in cell(found, 1, 500_000).reason
    assert cell(found, 4000, 8192).waits and not cell(found, 1, 8192).waits
    small = system("llama-3.1-70b", weights="fp8", gpu="h100-sxm")
    full = draft_map(small, LENGTHS, CHAT, (1,), (120_000,), None)
    assert "needs" in full.cells[0].reason and full.judged == ()
    assert full.gain(full.by_cell) is None and full.to_dict()["constant_k"] is None


@pytest.mark.slow
def test_json_alone_makes_the_blocks_and_the_picture(told: dict[str, Any], tmp_path: Path) -> None:
    text = section_text(tuning_section(Doc(told)), 80)
    for words in ("acceptance to be alike", "full", "32k", "staying on at k = 0"):
        assert words in text
    table = text[text.index("prompt  "):].splitlines()
    assert all(len(line) <= 80 for line in table[:8])
    first, again = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, again):
        write_picture(tuning_picture(Doc(told)), str(path))
    drawn = first.read_text(encoding="utf-8")
    assert drawn == again.read_text(encoding="utf-8")
    for of in told["map"]["cells"]:
        if of["speedup"]:
            assert f"{of['k']} {of['speedup']:.2f}x" in drawn


def test_by_batch_is_the_row_of_the_own_context() -> None:
    found = specsim.tune("llama-3.1-8b", method="eagle3", gpu="h100-sxm", by="batch",
                         input_len=700, concurrency=[1, 8])
    assert found.by_cell is not None
    assert [(c.concurrency, c.context) for c in found.by_cell.cells] == [(1, 700), (8, 700)]
    assert [row["context"] for row in found.to_rows()] == [700, 700]
    assert specsim.tune("llama-3.1-8b", method="eagle3", concurrency=[1]).map is None


@pytest.mark.parametrize(("given", "words"), [
    ({"by": "context"}, "must be batch or batch,context"),
    ({"contexts": "1k"}, "add --by batch,context"),
    ({"by": "batch", "contexts": "1k"}, "add --by batch,context"),
    ({"by": "batch,context", "contexts": "0"}, "--contexts has '0'"),
    ({"by": "batch,context", "contexts": ""}, "--contexts has"),
    ({"by": "batch,context", "contexts": "1k,nan"}, "--contexts has 'nan'"),
    ({"by": "batch", "rate": "2"}, "--by maps a closed loop"),
    ({"by": "batch,context", "concurrency": list(range(1, 700))}, "cells; give at most"),
    ({"by": "batch,context", "concurrency": "0"}, "--concurrency has 0"),
    ({"by": "batch,context", "method": "none"}, "--by needs a method"),
])
def test_bad_input_says_what_to_type(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        specsim.tune("llama-3.1-8b", **given)
    assert words in str(error.value)


def test_lookups_are_priced_in_the_share_of_steps_that_draft() -> None:
    """The share that comes with a measured acceptance counts as one that is given."""
    side = system(method="ngram", k=4)
    assert side.acceptance is not None
    seldom = side.with_(acceptance=replace(side.acceptance, draft_probability=0.2))
    always, never = side.decoding_s(64, 1000), side.decoding_s(64, 1000, drafting=False)
    assert seldom.decoding_s(64, 1000) == pytest.approx(0.2 * always + 0.8 * never)
    given = side.with_(setup=replace(side.setup, draft_share=0.2), acceptance=seldom.acceptance)
    assert closed_loop(given, CHAT, 64) == closed_loop(seldom, CHAT, 64)
