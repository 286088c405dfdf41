"""Carry measured acceptance into `catalog/acceptance.csv`.

    python validation/scripts/build_acceptance_catalogue.py

reads `validation/data/published/published_measurements.csv` and `acceptance_measurements.csv`
beside it (grades A and B with an acceptance length, per-position rates or a mean rate, at a stated
k) and `validation/data/acceptance_statistics.json` (own runs and statistics of traces), and writes
the catalogue and `catalog/ACCEPTANCE.md`, which counts what was left out and why. Nothing is
changed but spelling: data set, temperature and thinking are taken apart, ranges become their
middle, rows of one condition that agree in everything but load or number format become one line
with their mean.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from common import (
    ACCEPTANCE_MEASURED,
    CATALOG,
    PUBLISHED,
    STATISTICS,
    read_csv,
    read_json,
    table,
    write_text,
)
from told_chains import LARGEST_FITTED, chain_length, heuristic_length, spec_bench

from specsim.speculation.acceptance_catalogue import WORKS as WORK_NAMES
from specsim.speculation.names import normalise_dataset, normalise_model

COLUMNS = [
    *("model", "method", "draft", "dataset", "work", "temperature", "thinking", "language"),
    *("k", "tree_topk", "num_draft_tokens", "acceptance_length", "chain_length"),
    *("per_position", "draft_probability", "grade", "set", "rows", "note"),
]
SCRIPT = "validation/scripts/build_acceptance_catalogue.py"
CATALOGUE = CATALOG / "acceptance.csv"
SOURCES = CATALOG / "acceptance_sources.csv"
PROVENANCE = CATALOG / "ACCEPTANCE.md"
# Names of sources that no published file has: own runs.
OWN_SOURCES = {"SMOLLM2": "own runs of SmolLM2", "QWENPAIR": "own runs of Qwen2.5-Coder"}

# Kind of work of a data set of published_measurements.csv, by the first pattern that its name has.
WORKS = (
    ("random", r"random"),
    ("unstated", r"^(not-stated|single-prompt|.*650-token|log-window|65536-in)"),
    ("mixed", r"^(speed-bench-average|speed-bench|spec-bench-overall|spec-bench-humaneval)$"),
    ("chat", r"^(mt-bench|mtbench|sharegpt|alpaca|chat-traffic)$"),
    ("edit", r"swe-bench"),
    ("code", r"humaneval|mbpp|livecodebench|code|coding|coder"),
    ("math", r"gsm8k|math|aime"),
    ("reasoning", r"reasoning"),
    ("rag", r"rag"),
    ("summarization", r"summari|cnn-dailymail"),
    ("translation", r"translation"),
    ("multilingual", r"multilingual"),
    ("tools", r"tool"),
    ("writing", r"writing"),
    ("roleplay", r"roleplay"),
    ("stem", r"stem|gpqa"),
    ("humanities", r"humanities"),
    ("qa", r"qa$"),
)
# Rows whose data set is told by their notes.
DATASET_FROM_NOTES = {
    "MRBLOG-3": "chat traffic",
    "CLUB3090-007": "log window 1",
    "CLUB3090-008": "log window 2",
}
STATIC_TREE = "static tree"
NOTES = {
    "ANGEL": "k=2 inferred from AL <= 2.2",
    "CLUB3090-004": "QAT weights",
    "MRBLOG-3": "AL = 1 + 4 x 0.52 accepted per draft token",
    "NULTRA-097": "k=7 as the collector recalls the report",
    "EAGLE": STATIC_TREE,
    "Medusa": STATIC_TREE,
    "SpS": "drafts of heuristic length, told from 2.0 to 2.3 tokens a step",
    "MRBLOG-6": "AL = 1 + 2 x 0.73 accepted per draft token",
}
# The "0.83 then 0.71" of MRBLOG-4 are the mean rates of the runs at k=1 and k=2 that MR122
# describes; the row itself is k=2. So MR122 has AL(1) = 1.83 as well.
EXTRA_LENGTHS = {"MR122-2": (1, 1.83)}


@dataclass(slots=True)
class Line:
    """One line of the catalogue in the making."""

    # model method draft dataset work temperature thinking language k topk tokens set grade
    key: tuple[str, ...]
    lengths: list[float] = field(default_factory=list)
    positions: list[list[float]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    draft_probability: float = 1.0


def number(text: str) -> float | None:
    """A number, or the middle of a range such as 2.8-3.0; None for anything else."""
    match = re.fullmatch(r"\s*(\d*\.?\d+)(?:\s*-\s*(\d*\.?\d+))?\s*", text)
    if match is None:
        return None
    low = float(match.group(1))
    return low if match.group(2) is None else round(0.5 * (low + float(match.group(2))), 6)


def temperature_of(row: dict[str, str]) -> str:
    """Sampling temperature, where the row states it."""
    for text in (row["dataset"], row["notes"]):
        match = re.search(r"\bT\s*=\s*(\d+(?:\.\d+)?)", text) or re.search(r"\btemp (\d+)\b", text)
        if match:
            return f"{float(match.group(1)):g}"
    greedy = row["dataset"].endswith(" greedy") or row["set_id"] in ("SDBT", "SPECBENCH")
    return "0" if greedy else ""


def dataset_of(row: dict[str, str]) -> str:
    """Data set without the temperature."""
    text = DATASET_FROM_NOTES.get(row["id"], row["dataset"])
    text = re.sub(r",?\s*\bT\s*=\s*\d+(\.\d+)?|,?\s*\btemp \d+\b|\s+greedy$", "", text)
    text = re.sub(r"^question\((.*)\)$", r"\1", re.sub(r"\s+", " ", text).strip(" ,"))
    return text or "not stated"


def work_of(dataset: str) -> str:
    """Kind of work of a data set; see WORKS of the catalogue."""
    name = normalise_dataset(dataset)
    return next((work for work, pattern in WORKS if re.search(pattern, name)), "unstated")


def thinking_of(dataset: str) -> tuple[str, str]:
    """The data set without its remark on thinking, and the remark as on, off or nothing."""
    match = re.search(r"\s*\(thinking (on|off)\)| no-think$", dataset)
    if match is None:
        return dataset, ""
    return dataset.replace(match.group(), ""), match.group(1) or "off"


def shape_of(row: dict[str, str]) -> tuple[int, int, int] | str:
    """(k, tree topk, tokens verified with the root), or the reason why there is none."""
    stated = re.match(r"^(\d+)(\? \(AL<=2.2\))?$", row["k"].strip())
    if stated is None:
        return "k not stated"
    tree = row["tree_topk"]
    match = re.search(r"steps (\d+) topk (\d+) draft_tokens (\d+)", tree) or re.match(
        r"^(\d+)-(\d+)-(\d+)", tree
    )
    k = int(stated.group(1))
    if match is None:
        return "tree shape not stated" if "tree" in tree else (k, 1, k + 1)
    steps, topk, tokens = (int(x) for x in match.groups())
    if topk == 1:
        return (min(steps, tokens - 1), 1, min(steps, tokens - 1) + 1)
    return (steps, topk, tokens)


def values_of(row: dict[str, str], k: int) -> tuple[float, list[float]] | str:
    """(acceptance length, per-position rates), or the reason why there is none."""
    positions: list[float] = []
    for text in row["per_pos_acceptance"].split("|"):
        value = number(text)
        if value is not None:
            positions.append(value)
    if len(positions) != k:
        positions = []
    length = number(row["mean_accepted_length"])
    ranged = "-" in row["mean_accepted_length"]
    if positions and (length is None or ranged):
        length = round(1.0 + sum(positions), 6)
    if length is None:
        rate = number(row["acceptance_rate"])
        if rate is None:
            return "acceptance in words only"
        if "stop early" in row["notes"]:
            return "mean rate of drafts that stop early"
        length = round(1.0 + k * rate, 6)
    if not 1.0 <= length <= k + 1:
        return "acceptance length outside [1, k + 1]"
    return length, positions


def published(lines: dict[tuple[str, ...], Line], skipped: Counter[str]) -> None:
    """Lines from the published measurements."""
    for row in read_csv(PUBLISHED):
        texts = (row["mean_accepted_length"], row["per_pos_acceptance"], row["acceptance_rate"])
        if not any(texts):
            skipped["no acceptance"] += 1
            continue
        if row["grade"] not in ("A", "B"):
            skipped["grade C"] += 1
            continue
        if row["set_id"] == "GLM52":
            skipped["pinned or measured is in dispute"] += 1
            continue
        method, named, shape = row["method"], row["draft_model"], shape_of(row)
        if row["set_id"] == "SPECBENCH":
            ran = spec_bench(row["method"], row["target_model"])
            method, named, shape = ran or (method, named, "method not known")
        if isinstance(shape, str):
            skipped[shape] += 1
            continue
        k, topk, tokens = shape
        values = values_of(row, k)
        if isinstance(values, str):
            skipped[values] += 1
            continue
        if row["method"] == "SpS":
            values = heuristic_length(values[0], k), []
        draft = "" if named.startswith("built-in") else named
        # One draft is spelled in two ways by its source.
        draft = re.sub(r"Spec\s*for\s*ge$|Specforge$", "SpecForge", draft)
        model = row["target_model"].replace("DeepSeek-V3/R1", "DeepSeek-V3")
        dataset, thinking = thinking_of(dataset_of(row))
        work = work_of(dataset)
        note = NOTES.get(row["id"], NOTES.get(row["set_id"], NOTES.get(row["method"], "")))
        found = [(k, *values)]
        if row["id"] in EXTRA_LENGTHS:
            found.append((*EXTRA_LENGTHS[row["id"]], []))
        for length_k, length, positions in found:
            add(
                lines,
                (
                    model,
                    method,
                    draft,
                    dataset,
                    work,
                    temperature_of(row),
                    thinking,
                    "multi" if work == "multilingual" else "",
                    str(length_k),
                    str(topk),
                    str(tokens if length_k == k else length_k + 1),
                    row["set_id"],
                    row["grade"],
                ),
                length,
                positions,
                row["id"],
                note,
            )


def acceptance(lines: dict[tuple[str, ...], Line], skipped: Counter[str]) -> None:
    """Lines from the measurements of acceptance alone."""
    for row in read_csv(ACCEPTANCE_MEASURED):
        reason = reason_against(row)
        shape, tokens = row["tree_topk"], row["num_draft_tokens"]
        if not reason and (shape == "unstated" or not tokens):
            reason = "tree shape not stated"
        values = reason or values_of(
            row | {"per_pos_acceptance": row["per_position"],
                   "mean_accepted_length": row["acceptance_length"], "notes": row["note"]},
            int(row["k"]),
        )
        if isinstance(values, str):
            skipped[values] += 1
            continue
        line = add(
            lines,
            (
                *(row["target"], row["method"], row["drafter"], row["dataset"], row["work"]),
                f"{float(row['temperature']):g}" if row["temperature"] else "",
                *(row["thinking"], row["language"], row["k"]),
                *("0" if shape == "tree" else shape, tokens, row["set"], row["grade"]),
            ),
            *values,
            row["id"],
            "",
        )
        if row["draft_share"]:
            line.draft_probability = float(row["draft_share"])


def reason_against(row: dict[str, str]) -> str:
    """Why a row is no measurement of acceptance at a known k; '' for one that is."""
    if row["status"] not in ("measured", "random prompts"):
        return row["status"]
    if row["grade"] not in ("A", "B"):
        return "grade C"
    if not row["k"]:
        return "k not stated"
    return "target not stated" if row["target"].startswith(("not stated", "multi-layer")) else ""


def own(lines: dict[tuple[str, ...], Line]) -> None:
    """Lines from own runs, and from statistics of traces where no published row has them."""
    for case in read_json(STATISTICS):
        name, k = case["name"], case["k"]
        note = ""
        if name.startswith("llama-8b"):
            if case["drafter"] == "eagle" and k == 3:
                continue  # rows SDBT-001 to SDBT-003
            model, method, draft, set_id = "Llama-3.1-8B-Instruct", case["drafter"], "", "SDBT"
            dataset = {"gsm8k": "GSM8K", "sharegpt": "ShareGPT"}[case["dataset"]]
            if method == "ngram":
                note = "counted over all steps, with and without a draft"
        else:
            model, set_id, dataset = "SmolLM2-135M-Instruct", "SMOLLM2", "Spec-Bench + HumanEval"
            method, draft = {
                "ngram_n3-1": ("ngram", "prompt lookup n=3..1"),
                "ngram_n3-2": ("ngram", "prompt lookup n=3..2"),
                "suffix_local": ("suffix", "own text only"),
                "suffix_global": ("suffix", "with 948 earlier answers"),
                "head_a": ("eagle", "smollm2_eagle1layer_head_a"),
                "layerskip_L20": ("early_exit", "20 of 30 layers"),
                "layerskip_L26": ("early_exit", "26 of 30 layers"),
                "qwen1.5b_0.5b": ("draft_model", "Qwen2.5-Coder-0.5B-Instruct"),
            }[case["drafter"]]
            if name.startswith("qwen"):
                model, set_id = "Qwen2.5-Coder-1.5B-Instruct", "QWENPAIR"
            if case["requests"] < 100:
                note = f"only {case['requests']} requests"
        positions = [float(f"{x:.5g}") for x in case["unconditional"]]
        line = add(
            lines,
            (
                model,
                method,
                draft,
                dataset,
                work_of(dataset),
                *("0", "", ""),
                str(k),
                "1",
                str(k + 1),
                set_id,
                "A",
            ),
            1.0 + sum(case["unconditional"]),
            positions,
            f"statistics:{name}",
            note,
        )
        line.draft_probability = case["draft_probability"]


def add(
    lines: dict[tuple[str, ...], Line],
    key: tuple[str, ...],
    length: float,
    positions: list[float],
    row: str,
    note: str,
) -> Line:
    """Put one measurement into its line."""
    line = lines.setdefault(key, Line(key))
    line.lengths.append(length)
    if positions:
        line.positions.append(positions)
    line.rows.append(row)
    if note:
        line.notes.append(note)
    return line


def drafter_of(line: Line) -> tuple[str, str, str]:
    model, method, draft = line.key[:3]
    return normalise_model(model), method, normalise_model(draft)


def finished(line: Line, chained: set[tuple[str, str, str]]) -> list[str]:
    """The line as cells of the catalogue. chained: drafters of which a chain was measured."""
    *shape, set_id, grade = line.key[-5:]
    k, topk, tokens = map(int, shape)
    length = sum(line.lengths) / len(line.lengths)
    positions = [sum(column) / len(line.positions) for column in zip(*line.positions, strict=True)]
    # Rates that do not add up to the length (another run, or misprinted) are left out.
    if positions and abs(1.0 + sum(positions) - length) > 0.02:
        positions = []
    notes = sorted(set(line.notes))
    low, high = min(line.lengths), max(line.lengths)
    if high - low > 0.005:
        notes.append(f"mean of {len(line.lengths)} rows from {low:g} to {high:g}")
    chain, static = "", STATIC_TREE in line.notes
    if topk > 1 and drafter_of(line) not in chained and (static or tokens <= LARGEST_FITTED):
        told = chain_length(length, line.key[1], (k, topk, tokens), static)
        # Where most of what a tree yields would be its siblings', it tells nothing of the chain.
        chain = f"{told:.5g}" if told - 1.0 > 0.5 * (length - 1.0) else ""
    return [
        *line.key[:-2],
        f"{length:.5g}",
        chain,
        "|".join(f"{x:.5g}" for x in positions),
        f"{line.draft_probability:.5g}",
        grade,
        set_id,
        " ".join(line.rows),
        "; ".join(notes),
    ]


def main() -> None:
    lines: dict[tuple[str, ...], Line] = {}
    skipped: Counter[str] = Counter()
    published(lines, skipped)
    acceptance(lines, skipped)
    used = sum(len(line.rows) for line in lines.values())
    own(lines)
    chained = {drafter_of(line) for line in lines.values() if line.key[9] == "1"}
    done = [finished(line, chained) for line in lines.values()]
    with CATALOGUE.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# Written by {SCRIPT}; see ACCEPTANCE.md\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(done)
    with SOURCES.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# Written by {SCRIPT}; see ACCEPTANCE.md\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("set", "source"))
        writer.writerows(sources({cells[COLUMNS.index("set")] for cells in done}))
    per_model: dict[str, set[str]] = defaultdict(set)
    for line in lines.values():
        per_model[line.key[0]].add(line.key[1])
    text = PREAMBLE.format(
        used=used, lines=len(lines), models=len(per_model), works=", ".join(WORK_NAMES)
    )
    left_out = [[reason, str(count)] for reason, count in skipped.most_common()]
    models = [
        [model, ", ".join(sorted(methods))]
        for model, methods in sorted(per_model.items(), key=lambda item: item[0].lower())
    ]
    lines_of_text = [
        "\n## Left out\n", *table(("reason", "rows"), left_out, left=True),
        "\n## Models\n", *table(("model", "methods"), models, left=True),
    ]
    write_text(PROVENANCE, text + "\n".join(lines_of_text) + "\n")


def sources(sets: set[str]) -> list[tuple[str, str]]:
    """How a sentence names the source of each set: as most rows have it, without remarks."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path, column in ((PUBLISHED, "set_id"), (ACCEPTANCE_MEASURED, "set")):
        for row in read_csv(path):
            name = re.sub(r"\s*\([^)]*\)", "", row["source"].replace('"', "")).strip()
            found[row[column]][name] += 1
    names = {set_id: counts.most_common(1)[0][0] for set_id, counts in found.items()}
    return sorted((set_id, {**names, **OWN_SOURCES}[set_id]) for set_id in sets)


PREAMBLE = """# Where acceptance.csv comes from

Written by `validation/scripts/build_acceptance_catalogue.py`: {lines} lines for {models} models,
from {used} rows of `published_measurements.csv` and `acceptance_measurements.csv` in
`validation/data/published/` and from `validation/data/acceptance_statistics.json`. Figures are
facts taken from the sources named in the published files (`url_or_repo` or `url` of each row);
`rows` holds the row ids. `statistics:NAME` is a case of the statistics file: own runs of SmolLM2
and Qwen2.5-Coder (Apache-2.0 weights), or statistics of the SpecDecode-Bench traces, whose
sequences are not in the repository.

| column | meaning |
|---|---|
| model, method, draft | as the source names them; an empty draft is a built-in head or not stated |
| dataset, work | kind of work: {works}, random or repetitive |
| temperature, thinking, language | of the target's answers; empty if not stated |
| k | drafted tokens per step; for a tree (tree_topk above 1, or 0 where not stated) its steps |
| num_draft_tokens | tokens verified per step, root included |
| acceptance_length | mean tokens of a verify step, bonus token counted |
| chain_length | of drafters measured in trees alone: tokens per step of a chain as deep |
| per_position | P(at least i drafts accepted), i = 1..k, where the source has it |
| draft_probability | share of steps that carry a draft; the two columns before count only those |
| grade | A: nearly complete conditions; B: digitised, or one condition missing |

Spec-Bench states neither trees nor draft lengths: they are the defaults of the code that it ran,
and its trees tell of chains by the rank model of `specsim/speculation/trees.py`
(`validation/scripts/told_chains.py`).

Acceptance on random prompts is kept apart: many models fall into repetition after random tokens
(high acceptance), others write what no draft can guess. It is never used unless asked for.
Curves of one model at several k come from separate runs and are noisy by up to 0.3 tokens (k = 6 to
8 of DeepSeek-V4-Pro-0813); a lookup at k meets the measured value at that k exactly.
"""


if __name__ == "__main__":
    main()
