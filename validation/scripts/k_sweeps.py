"""Speeds by draft length at one load: what best_k.py compares, and the AUTOSPEC sweeps.

AUTOSPEC (SGLang, Qwen3-235B-A22B with EAGLE-3 and GLM-4.7 with its MTP head, 1 to 64 clients)
states neither device, lengths, plain speed nor acceptance, so its rows only rank draft lengths.
What stands in: eight H200, where SPECB measured the same model on the same engine, and requests of
the usual chat. Two acceptances are tried:

  catalog  the resolver's: that of Qwen3-235B-A22B-Instruct-2507, or of MTP heads alike. What `tune`
           would say; all loads are judged.
  loads    the catalogue's rates with their logits moved alike until the speeds of the least loads,
           each up to a factor, are met best. Only the loads above them are judged.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specsim.analytic.closed import closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_model, variant
from specsim.ops.work import Parallel
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.resolve import AcceptanceQuery, resolve

CLOSE = 0.03  # the aim: within this share of the measured best speed
MIN_POINTS = 2
_MOVES = [step / 10 for step in range(-20, 31)]  # logits
LEAST_LOADS = (1, 2)  # one of each parity of k: together k = 1 to 6


@dataclass
class Sweep:
    """Speeds by draft length at one load. name: what is compared; given: which acceptance."""

    set_id: str
    name: str
    given: str
    measured: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    load: int = 1

    @property
    def best(self) -> str:
        return max(self.measured, key=lambda k: self.measured[k])

    @property
    def chosen(self) -> str:
        return max(self.predicted, key=lambda k: self.predicted[k])

    @property
    def loss(self) -> float:
        """Measured speed given away by the predicted choice."""
        return 1 - self.measured[self.chosen] / self.measured[self.best]

    @property
    def good(self) -> bool:
        return self.loss <= CLOSE

    def to_dict(self) -> dict[str, Any]:
        return {
            "set": self.set_id, "name": self.name, "acceptance": self.given, "load": self.load,
            "measured_best": self.best, "predicted_best": self.chosen, "loss": self.loss,
            "good": self.good, "measured": self.measured, "predicted": self.predicted,
        }


# Target as the rows call it -> in whose name its acceptance is asked for.
_ASKED = {"Qwen3-235B-A22B": "Qwen3-235B-A22B-Instruct-2507", "GLM-4.7": "GLM-4.7"}


class AutoSpec:
    """One target of AUTOSPEC: speeds by load and draft length."""

    def __init__(self, target: str, rows: Sequence[Mapping[str, str]]) -> None:
        own = [r for r in rows if r["target_model"] == target and r["k"]]
        self.target, self.method = target, own[0]["method"]
        self.measured: dict[int, dict[int, float]] = {}
        for row in own:
            speeds = self.measured.setdefault(int(row["batch_or_concurrency"]), {})
            speeds[int(row["k"])] = float(row["spec_tok_s"])
        self.spec = find_model(target)
        if own[0]["weight_dtype"] == "fp8":
            self.spec = variant(self.spec, "fp8")
        longest = max(k for speeds in self.measured.values() for k in speeds)
        self.rates = resolve(
            AcceptanceQuery(_ASKED[target], self.method), longest
        ).acceptance.at(longest).conditional()

    def moved(self, logits: float) -> Acceptance:
        """The catalogue's acceptance, better by so much at every position."""
        odds = [math.exp(logits) * rate / (1 - rate) for rate in self.rates]
        return Acceptance.from_conditional([x / (1 + x) for x in odds], k=len(odds))

    def system(self, k: int, accepted: Acceptance) -> System:
        """What stands in for the server."""
        engine = find_engine("sglang")
        return System(
            self.spec, load_profile("h200"), engine, Parallel(8, 1),
            setup=resolve_setup(self.spec, engine, self.method, k), acceptance=accepted,
        )

    def speed(self, k: int, clients: int, accepted: Acceptance) -> float:
        """Predicted output tokens per second of all clients."""
        system = self.system(k, accepted)
        return closed_loop(system, Workload(1024, 460), clients).output_tok_s

    def miss(self, logits: float) -> float:
        """How far the speeds of the least loads are from predicted ones, each up to a factor."""
        accepted, total = self.moved(logits), 0.0
        for clients in LEAST_LOADS:
            speeds = self.measured[clients]
            total += len(speeds) * statistics.pvariance([
                math.log(found / self.speed(k, clients, accepted)) for k, found in speeds.items()
            ])
        return total

    def sweeps(self, given: str) -> list[Sweep]:
        """given: `catalog` or `loads`, see the module text."""
        logits = 0.0 if given == "catalog" else min(_MOVES, key=self.miss)
        accepted = self.moved(logits)
        return [
            Sweep(
                "AUTOSPEC", f"{self.target} {self.method} {clients} clients", given,
                {str(k): speed for k, speed in sorted(speeds.items())},
                {str(k): self.speed(k, clients, accepted) for k in sorted(speeds)}, clients,
            )
            for clients, speeds in sorted(self.measured.items())
            if given == "catalog" or clients not in LEAST_LOADS
        ]


def autospec_sweeps(rows: Sequence[Mapping[str, str]], given: str) -> list[Sweep]:
    """All AUTOSPEC sweeps of `published_measurements_2.csv`."""
    own = [r for r in rows if r["set_id"] == "AUTOSPEC"]
    return [s for target in _ASKED for s in AutoSpec(target, own).sweeps(given)]
