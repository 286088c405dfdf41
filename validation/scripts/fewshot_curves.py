"""Paired curves of the public CSV, as points that a few-shot calibration can fit or predict.

A curve is one server measured at several concurrencies, without speculation and with one form of
it. Rows are read by `specsim.accuracy.rows`. What these five sets leave out is filled in here,
the same way for all of them, and written beside the result:

    acceptance   the catalogue's value for model, method and data set where it has one, else half
                 of the drafts; either way unknown to the fit (`acceptance_group`)
    draft length the drafter's own (vLLM's default), where a row states none
    drafters     dflash, dspark and dfly heads without a public config: five layers of 32 x 128
                 attention heads and an MLP of three times the target's width, as the published ones
    models       DeepSeek-V4-Pro has no public config here: DeepSeek-V3.2-NVFP4 stands for it
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from common import PUBLISHED

from specsim.accuracy.lookups import SkipRow, model_of
from specsim.accuracy.rows import PublishedCase, published_case
from specsim.accuracy.score import read_rows
from specsim.analytic.system import System
from specsim.calibrate.fewshot import FewShotPoint
from specsim.errors import SpecSimError
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_drafter
from specsim.model.feedforward import DenseMLP
from specsim.model.spec import Drafter, ModelSpec
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.resolve import AcceptanceQuery, resolve

SETS = ("HY3", "SDB1", "NEMLIT", "DSPARK", "GPUSTK8")
STAND_INS = {"DeepSeek-V4-Pro-0813": "DeepSeek-V3.2-NVFP4"}
BLOCK = {"dflash": "DFlash-Qwen3-8B", "dfly": "DFlash-Qwen3-8B", "dspark": "DSpark-Qwen3.6-27B"}
BLOCK_SIZE = 8  # published heads of this kind: 8 or 16; the sets' own notes say 8


@dataclass
class Curve:
    """plain, spec: points by concurrency. notes: what was filled in."""

    set_id: str
    name: str
    plain: dict[int, FewShotPoint] = field(default_factory=dict)
    spec: dict[int, FewShotPoint] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)

    @property
    def paired(self) -> list[int]:
        """Concurrencies at which both sides are known: two points, or their ratio."""
        return sorted(c for c in self.spec
                      if c in self.plain or "speedup" in self.spec[c].measured)


def block_drafter(spec: ModelSpec, method: str) -> Drafter:
    """A block drafter of the published shape at the target's width."""
    shape = find_drafter(BLOCK[method])
    wide = tuple(
        replace(group, ffn=DenseMLP(3 * spec.hidden), norm_weights=2 * spec.hidden)
        for group in shape.layers
    )
    matrices = tuple((rows, spec.vocab) for rows, _ in shape.extra_matrices)
    return replace(
        shape, name=f"{method}-{spec.name} (assumed)", hidden=spec.hidden, layers=wide,
        vocab=spec.vocab, draft_vocab=spec.vocab, fc_in=5 * spec.hidden, fc_out=spec.hidden,
        extra_weights=2 * spec.hidden, extra_matrices=matrices, block_size=BLOCK_SIZE,
        lookup_weights=256 * spec.vocab if matrices else 0, target=spec.name, source="assumed",
    )


def _case(row: Mapping[str, str], notes: set[str]) -> PublishedCase:
    """The row as a case; what it leaves out filled in as the module says."""
    row = dict(row)
    method = row["method"]
    name = re.sub(r"\(.*?\)", "", row["target_model"]).strip()
    if name in STAND_INS:
        row["target_model"] = STAND_INS[name]
        notes.add(f"{name} priced as {STAND_INS[name]}")
    if row["weight_dtype"].startswith("native"):
        row["weight_dtype"] = ""
    if "EP on" in row["notes"]:
        notes.add("experts whole on each GPU")
    if method in BLOCK:
        # Read as a plain row first, then given its drafter.
        known = _number(row["k"])
        base = published_case({**row, "method": "none", "k": ""})
        spec = base.system.spec
        kind = "dflash" if method == "dfly" else method
        setup = resolve_setup(
            spec, base.system.engine, kind, known, draft=block_drafter(spec, method)
        )
        notes.add(f"{method} head of the published shape assumed")
        if method == "dfly":
            notes.add("dfly run as dflash")
        length = _real(row["mean_accepted_length"])
        acceptance = Acceptance.from_mean_length(length or 1 + setup.k / 2, setup.k)
        case = replace(
            base, system=replace(base.system, setup=setup, acceptance=acceptance),
            acceptance_length=length,
        )
    else:
        if method == "mtp" and not _number(row["k"]):
            row["k"] = "3"
            notes.add("k = 3 assumed")
        case = published_case(row)
    if "EP on" in row["notes"]:
        gpus = case.system.parallel.gpus
        case = replace(case, system=replace(
            case.system, parallel=replace(case.system.parallel, ep=gpus)))
    return case


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,2}", text.strip()) else None


def _real(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text.strip()) else None


def _expected(row: Mapping[str, str], system: System, notes: set[str]) -> System:
    """The system with the acceptance one would expect before measuring any."""
    setup = system.setup
    length, share = 1 + 0.5 * setup.k, 1.0
    data = re.sub(r"\(.*?\)|T=[\d.]+", "", row["dataset"]).strip()
    own = re.sub(r"\(.*?\)", "", row["target_model"]).strip()
    for name, dataset in ((own, data), (system.spec.name, data), (own, None),
                          (system.spec.name, None)):
        try:
            match = resolve(AcceptanceQuery(name, setup.method, work=dataset), setup.k)
        except SpecSimError:
            continue
        if match.level in ("measured", "this drafter", "this model"):
            found = match.acceptance
            length, share = found.expected_tokens(setup.k), found.draft_probability
            notes.add(f"acceptance expected from the catalogue ({match.level})")
            break
    else:
        notes.add("acceptance expected: half of the drafts")
    acceptance = Acceptance.from_mean_length(min(max(length, 1.01), setup.k + 1), setup.k)
    if share < 1:
        setup = replace(setup, draft_share=share)
        acceptance = replace(acceptance, draft_probability=share)
    return replace(system, setup=setup, acceptance=acceptance)


def _side(case: PublishedCase, side: str) -> dict[str, float]:
    measured = case.measured
    if f"{side}_tpot_s" in measured:
        return {"tpot_s": measured[f"{side}_tpot_s"]}
    if f"{side}_output_tok_s" in measured:
        return {"output_tok_s": measured[f"{side}_output_tok_s"]}
    return {}


def curves(set_id: str) -> tuple[list[Curve], dict[str, int]]:
    """(curves with at least one paired concurrency and another point, rows left out by reason)."""
    rows = [row for row in read_rows(PUBLISHED) if row["set_id"] == set_id]
    plain: dict[tuple[str, ...], dict[int, FewShotPoint]] = defaultdict(dict)
    found: dict[tuple[str, ...], Curve] = {}
    skipped: dict[str, int] = defaultdict(int)
    for row in rows:
        server = tuple(row[k] for k in ("target_model", "gpu", "n_gpus", "engine", "weight_dtype",
                                        "dataset"))
        notes: set[str] = set()
        try:
            case = _case(row, notes)
        except (SkipRow, SpecSimError) as reason:
            skipped[f"{row['method']} {row['target_model']}: {str(reason).split(';')[0]}"] += 1
            continue
        base = _side(case, "baseline")
        at = case.concurrency
        if base and at not in plain[server]:
            system = replace(case.system.plain(), max_num_seqs=at)
            plain[server][at] = FewShotPoint(f"plain c={at}", system, case.workload, at, base)
        if not case.system.speculative:
            continue
        measured = _side(case, "spec") or (
            {"speedup": case.measured["speedup"]} if "speedup" in case.measured else {}
        )
        if not measured:
            continue
        key = (*server, row["method"], row["k"], row["tree_topk"], row["draft_model"],
               row["notes"] if row["notes"].startswith("final") else "")
        curve = found.setdefault(key, Curve(set_id, _name(row)))
        system, group = case.system, ""
        if case.acceptance_length is None:
            system, group = _expected(row, system, notes), "unknown"
        curve.notes |= notes
        curve.spec[at] = FewShotPoint(f"spec c={at}", system, case.workload, at, measured, group)
    out = []
    for key, curve in found.items():
        curve.plain = dict(plain[key[:6]])
        if curve.paired and len(curve.spec) + len(curve.plain) > 2 - ("speedup" in
                next(iter(curve.spec.values())).measured):
            out.append(curve)
        else:
            skipped[f"{curve.name}: no pair, or nothing beside it"] += len(curve.spec)
    return out, dict(skipped)


def _name(row: Mapping[str, str]) -> str:
    model = model_of(re.sub(r"\(.*?\)", "", row["target_model"]).strip())
    dataset = re.sub(r"\(.*?\)|T=[\d.]+", "", row["dataset"]).split(",")[0].strip()
    tail = " final" if row["notes"].startswith("final") else ""
    k = f" k={row['k']}" if row["k"] else ""
    tree = f" [{row['tree_topk']}]" if row["tree_topk"] else ""
    name = model.name if model else row["target_model"]
    return f"{name}, {dataset}, {row['method']}{k}{tree}{tail}"
