"""What `specsim validate live` and `bench` share: the deployment that is simulated, and the output.

The deployment is checked before anything is measured. Acceptance comes from the measurement of each
point, unless the command line gives one; then the measured one is what the gap is explained with.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.commands.bind import INTERRUPTED, Ended
from specsim.options.groups import DeploymentOptions

if TYPE_CHECKING:
    from specsim.accuracy.compare import AccuracyReport
    from specsim.accuracy.live_replay import MeasuredLoad
    from specsim.analytic.system import System
    from specsim.formats.bench.record import BenchRun

PLACEHOLDER_RATE = 0.5  # only so that the other options can be checked before a measurement


@dataclass
class Deployer:
    """The deployment of the command line; `system` gives it with a point's acceptance."""

    base: "System"
    assumed: bool
    warnings: tuple[str, ...]
    asked: bool  # a method was named

    @classmethod
    def of(cls, options: DeploymentOptions) -> "Deployer":
        """Check the options. UsageError and its kin as for `specsim predict`."""
        from specsim.api.deployment import build_request
        from specsim.methods.registry import is_plain

        assumed = bool(options.acceptance_flags)
        asked = (options.method is not None or options.speculative_config is not None
                 or options.draft is not None)
        if asked and not is_plain(options.method) and not assumed and not _synthetic(options):
            checked = options.but(acceptance_rate=PLACEHOLDER_RATE)
        else:
            checked = options
        request = build_request(checked)
        notes = tuple(w for w in request.warnings if "acceptance" not in w)
        return cls(request.system, assumed or _synthetic(options), notes, asked)

    def check_drafts(self, drafted: int | None, where: str) -> None:
        """Refuse before a run what cannot be simulated after it. drafted: k of the server, None
        where it drafts nothing or does not say."""
        from specsim.errors import UsageError

        if drafted and not self.base.speculative:
            raise UsageError(
                f"{where} drafts {drafted} tokens per step, but the simulation is told nothing "
                "about it; give --method (ngram, draft-model, eagle3, ...) and its --draft"
            )

    def system(self, point: "MeasuredLoad", measured: bool) -> "System":
        """The deployment of a point. measured: with the acceptance that was counted there."""
        from specsim.accuracy.live_replay import measured_acceptance
        from specsim.errors import UsageError

        run = point.run
        if not self.base.speculative:
            self.check_drafts(_drafted(run), run.source)
            return self.base
        if not drafts(run):
            if self.assumed and not measured:
                return self.base
            return self.base.plain()
        if not measured:
            return self.base
        k = self.base.setup.k
        lookup = self.base.setup.drafting.lookup
        found = measured_acceptance(run, k, lookup)
        if found is None:
            raise UsageError(
                f"{run.source} does not say what was accepted; give --acceptance or "
                "--acceptance-length"
            )
        setup = replace(self.base.setup, draft_share=found.draft_probability)
        return self.base.with_(acceptance=found, setup=setup)


def drafts(run: "BenchRun") -> bool:
    """Whether a run shows any speculation."""
    return _drafted(run) is not None or (run.tokens_per_step or 1.0) > 1.02


def _drafted(run: "BenchRun") -> int | None:
    found = run.acceptance
    if found is None or (found.num_drafts is not None and found.num_drafts == 0):
        return None
    return run.server_args.num_speculative_tokens or len(found.per_position) or 1


def _synthetic(options: DeploymentOptions) -> bool:
    """Whether vLLM's JSON holds an acceptance of its own."""
    if options.speculative_config is None:
        return False
    from specsim.formats.speculative_config import parse_speculative_config

    config = parse_speculative_config(str(options.speculative_config))
    return bool(config.acceptance) or config.acceptance_length is not None


def names_of(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def check_fitted(fitted: tuple[str, ...], points: list[str]) -> None:
    from specsim.errors import UsageError

    unknown = [name for name in fitted if name not in points]
    if unknown:
        raise UsageError(
            f"--fitted names {unknown[0][:60]!r}, which is no point; they are "
            f"{', '.join(dict.fromkeys(points))[:200]}"
        )


def finish(found: "AccuracyReport", max_error: float | None, json_out: bool, out: Path | None,
           partial: bool = False, stopped: str = "") -> None:
    """Print, write, and end with the exit code that --max-error asks for."""
    from specsim.accuracy.live import JUDGED
    from specsim.report.live import live_text
    from specsim.report.tables import to_json

    result = found.to_dict()
    sys.stdout.write((to_json(result) if json_out else live_text(result)) + "\n")
    if out is not None:
        # After the figures are shown: a full disk must not take them along.
        sys.stdout.flush()
        found.write(out)
    if partial:
        sys.stdout.flush()
        sys.stderr.write("specsim: interrupted; the figures are of what was finished\n")
        raise Ended(INTERRUPTED)
    if stopped:
        sys.stdout.flush()
        sys.stderr.write(f"specsim: ended early: {stopped}; the points before it are kept\n")
        raise Ended(1)
    if max_error is not None:
        over = [name for name in found.over(max_error) if name in JUDGED]
        if over:
            sys.stdout.flush()
            sys.stderr.write(f"specsim: median error above {max_error:g} in {', '.join(over)}\n")
            raise Ended(1)
