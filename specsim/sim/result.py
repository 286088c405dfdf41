"""What `specsim simulate` gives: the figures of both sides with all that they rest on."""

from collections.abc import Mapping
from dataclasses import dataclass

from specsim.rows import columns_of, flat
from specsim.sim.build import Deployment, acceptance_spread_of
from specsim.sim.cache_blocks import cache_blocks
from specsim.sim.compare import Arm, SimulatedComparison


def inputs_of(deployment: Deployment, load: Mapping[str, object]) -> dict[str, object]:
    """Everything that decides the figures of a load, besides the seed."""
    system, config = deployment.system, deployment.config
    acceptance_spread = deployment.acceptance_spread or acceptance_spread_of(system)
    blocks = cache_blocks(system, prefix_caching=config.rules.prefix_caching)
    return {
        **system.summary(
            "model", "gpu", "tp", "ep", "attention_dp", "weights", "kv_dtype", "engine",
            "engine_version", "method", "draft", "k", "acceptance_length", "acceptance",
        ),
        "easiness": acceptance_spread.source if system.speculative else None,
        "num_speculative_tokens_per_batch_size": [
            list(row) for row in deployment.per_batch_size
        ],
        "policy": None if deployment.policy is None else deployment.policy.text,
        "fidelity": system.fidelity,
        "load": load,
        "config": config.to_dict(),
        **({"apart": apart.to_dict()} if (apart := deployment.apart) is not None else {}),
        "kv_block_bytes": blocks.block_bytes,
    }


@dataclass(frozen=True)
class SimulationFigures:
    """A comparison with its inputs. load: the description of the load plan."""

    deployment: Deployment
    comparison: SimulatedComparison
    load: Mapping[str, object]
    seed: int
    warnings: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        return self.comparison.partial

    @property
    def inputs(self) -> dict[str, object]:
        return inputs_of(self.deployment, self.load)

    def to_dict(self, over_time: bool = False) -> dict[str, object]:
        """JSON-ready: the figures with speculation at the top, the others under `baseline`.

        over_time: with the timelines of both sides, some thousand numbers."""
        found = self.comparison
        out: dict[str, object] = {
            "kind": "simulation",
            **found.main.to_dict(),
            "partial": found.partial,
            "baseline": found.baseline.to_dict() if found.baseline else None,
            "gain": found.gain or None,
            "gain_confidence_95": {name: list(pair) for name, pair in found.gain_95.items()},
            "seed": self.seed,
            "replications": len(found.main.runs),
            "inputs": self.inputs,
            "warnings": list(self.warnings),
        }
        if over_time:
            out["timeline"] = found.timelines.get("with")
            out["baseline_timeline"] = found.timelines.get("without")
        return out

    def rows(self) -> list[dict[str, object]]:
        """One flat row per side, for CSV."""
        sides: list[tuple[str, Arm]] = [("with", self.comparison.main)]
        if self.comparison.baseline is not None:
            sides.append(("without", self.comparison.baseline))
        rows = [
            {"speculation": name, "seed": self.seed, **flat(arm.figures)} for name, arm in sides
        ]
        columns = columns_of(rows)
        return [{key: row.get(key) for key in columns} for row in rows]
