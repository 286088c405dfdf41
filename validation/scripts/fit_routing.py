"""Fits how served traffic chooses experts, by kind of router and by model.

    python validation/scripts/fit_routing.py [--dry]

reads `validation/data/routing/expert_counts.csv` (distinct experts of one layer, counted in
captures of routers) and writes `catalog/routing.toml`; --dry only prints. Takes seconds.

A model's beta and ln shape (`specsim.ops.work.Routing`) are drawn around its kind's, and a kind's
around the mean of all; what a capture does not see therefore stays where relatives have it. Rows
of one capture share their text, so together they weigh as one reading with the scatter that
captures of the same model show between workloads.

Prints, for each model, the error of ln distinct with its captures left out (its kind is then fitted
on the others), beside that of uniform choice.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from common import CATALOG, DATA, read_csv, write_text
from scipy.optimize import least_squares

from specsim.latency.routing import KINDS
from specsim.ops.work import UNIFORM, Routing

COUNTS = DATA / "routing" / "expert_counts.csv"
SCATTER = 0.03  # of ln distinct, between workloads of one model
MODEL_SD = np.array([0.06, 0.4])  # of a model's beta and ln shape around its kind's
KIND_SD = np.array([0.10, 0.6])  # of a kind's around the mean of all
BEGIN = np.array([0.75, 0.2])  # beta, ln shape: the mean of all, before any data
BEGIN_SD = np.array([0.2, 1.0])


@dataclass(frozen=True)
class Count:
    """Distinct experts of one layer that `tokens` tokens of `seqs` sequences chose."""

    model: str
    kind: str
    experts: float
    top_k: float
    seqs: float
    tokens: float
    distinct: float
    weight: float  # of its residual, so that a capture weighs as one reading

    def error(self, routing: Routing) -> float:
        """ln(predicted / counted)."""
        found = routing.distinct(self.experts, self.top_k, self.tokens, self.seqs)
        return float(np.log(found / self.distinct))


def read_counts() -> list[Count]:
    rows = read_csv(COUNTS)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        sizes[row["model"], row["capture"]] += 1
    return [
        Count(
            row["model"], row["kind"], float(row["experts"]), float(row["top_k"]),
            float(row["seqs"]), float(row["tokens"]), float(row["distinct"]),
            sizes[row["model"], row["capture"]] ** -0.5,
        )
        for row in rows
    ]


def routing(values: np.ndarray) -> Routing:
    return Routing(float(min(1.0, max(0.0, values[0]))), float(np.exp(values[1])))


def fit(counts: Sequence[Count]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(beta, ln shape) by kind and by model."""
    models = {count.model: count.kind for count in counts}
    places = {name: i for i, name in enumerate(["", *KINDS, *models])}

    def cost(x: np.ndarray) -> np.ndarray:
        at = x.reshape(-1, 2)
        parts = [(at[0] - BEGIN) / BEGIN_SD]
        parts += [(at[places[kind]] - at[0]) / KIND_SD for kind in KINDS]
        parts += [(at[places[m]] - at[places[k]]) / MODEL_SD for m, k in models.items()]
        own = {name: routing(at[places[name]]) for name in models}
        seen = [c.weight * c.error(own[c.model]) / SCATTER for c in counts]
        return np.concatenate([*parts, np.array(seen)])

    found = least_squares(cost, np.tile(BEGIN, len(places))).x.reshape(-1, 2)
    return ({kind: found[places[kind]] for kind in KINDS},
            {name: found[places[name]] for name in models})


def left_out(counts: Sequence[Count]) -> None:
    """Prints the errors of each model under its kind as the other models have it."""
    every: dict[str, list[float]] = {"kind": [], "uniform": []}
    for model in sorted({count.model for count in counts}):
        kinds, _ = fit([count for count in counts if count.model != model])
        mine = [count for count in counts if count.model == model]
        rules = {"kind": routing(kinds[mine[0].kind]), "uniform": UNIFORM}
        errors = {name: [c.error(rule) for c in mine] for name, rule in rules.items()}
        shown = ", ".join(f"{name} {median(e):+.3f} (largest {max(e, key=abs):+.3f})"
                          for name, e in errors.items())
        print(f"  {model}, {mine[0].kind}: {shown}")
        for name, sizes in every.items():
            sizes.append(median(map(abs, errors[name])))
    print("  median over models of the median size: "
          + ", ".join(f"{name} {median(sizes):.3f}" for name, sizes in every.items()))


def main() -> None:
    counts = read_counts()
    print("left out:")
    left_out(counts)
    kinds, models = fit(counts)
    seen = {count.model: count.kind for count in counts}
    lines = [
        "# How natural text chooses experts (specsim.ops.work.Routing): by kind of router",
        "# (specsim.latency.routing.router_kind), and on models whose routers were captured.",
        "# Written by validation/scripts/fit_routing.py from validation/data/routing/.",
    ]
    for kind, values in kinds.items():
        names = sorted(name for name, its in seen.items() if its == kind)
        lines += ["", f"[kind.{kind}]", f"# captured: {', '.join(names)}", *numbers(values)]
    for name in sorted(models):
        size = sum(count.model == name for count in counts)
        errors = [count.error(routing(models[name])) for count in counts if count.model == name]
        print(f"{name}: rms {np.sqrt(np.mean(np.square(errors))):.4f}")
        lines += ["", f'[model."{name}"]', f"# {size} counts; {seen[name]}",
                  *numbers(models[name])]
    text = "\n".join(lines) + "\n"
    print(text)
    if "--dry" not in sys.argv:
        write_text(CATALOG / "routing.toml", text)


def numbers(values: np.ndarray) -> list[str]:
    found = routing(values)
    return [f"beta = {found.beta:.3f}", f"shape = {found.shape:.3g}"]


if __name__ == "__main__":
    main()
