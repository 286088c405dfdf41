"""The deployment that is simulated beside a measured server (`validate live` and `bench`).

It is checked before anything is measured. Acceptance comes from the measurement of each point,
unless the options give one; then the measured one is what the gap is explained with.
"""

from dataclasses import dataclass, replace

from specsim.accuracy.live_replay import MeasuredLoad
from specsim.analytic.system import System
from specsim.api.deployment import build_request
from specsim.calibrate.fewshot_bench import ONE_TOKEN, measured_acceptance, with_acceptance
from specsim.errors import UsageError
from specsim.formats.bench.record import BenchRun
from specsim.formats.speculative_config import parse_speculative_config
from specsim.methods.registry import is_plain
from specsim.options.groups import DeploymentOptions
from specsim.speculation.acceptance import Acceptance

PLACEHOLDER_RATE = 0.5  # only so that the other options can be checked before a measurement


@dataclass
class JudgedServer:
    """The deployment of the options; `system` gives it with a point's acceptance."""

    base: System
    assumed: bool
    warnings: tuple[str, ...]
    asked: bool  # a method was named
    expected: float | None = None  # tokens per step of the catalogue, where none was given

    @classmethod
    def of(cls, options: DeploymentOptions) -> "JudgedServer":
        """Check the options. UsageError and its kin as for `specsim predict`."""
        assumed = bool(options.acceptance_flags)
        asked = options.asks_to_draft
        if asked and not is_plain(options.method) and not assumed and not _synthetic(options):
            checked = options.but(acceptance_rate=PLACEHOLDER_RATE)
        else:
            checked = options
        request = build_request(checked, choose=False)
        notes = tuple(w for w in request.warnings if "acceptance" not in w)
        told = assumed or _synthetic(options)
        expected = None
        if not told and request.system.speculative:
            known = build_request(options, unknown=True, choose=False)
            expected = known.system.tokens_per_step if known.unknown is None else None
        return cls(request.system, told, notes, asked, expected)

    def pinned(self, length: float) -> "JudgedServer":
        """With an acceptance that the server is told to have. UsageError for one it cannot."""
        if not self.base.speculative:
            raise UsageError("--pinned is given, but nothing drafts; name --method and --k")
        fixed = Acceptance.synthetic_min_variance(length, self.base.setup.k)
        return replace(self, base=self.base.with_(acceptance=fixed), assumed=True, expected=None)

    def check_drafts(self, drafted: int | None, where: str) -> None:
        """Refuse before a run what cannot be simulated after it. drafted: k of the server, None
        where it drafts nothing or does not say."""
        if drafted and not self.base.speculative:
            raise UsageError(
                f"{where} drafts {drafted} tokens per step, but the simulation is told nothing "
                "about it; give --method (ngram, draft-model, eagle3, ...) and its --draft"
            )

    def system(self, point: MeasuredLoad, measured: bool) -> System:
        """The deployment of a point. measured: with the acceptance that was counted there."""
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
        found = measured_acceptance(run, self.base.setup.k, self.base.setup.method)
        if found is None:
            raise UsageError(
                f"{run.source} does not say what was accepted; give --acceptance or "
                "--acceptance-length"
            )
        return with_acceptance(self.base, found)


def drafts(run: BenchRun) -> bool:
    """Whether a run shows any speculation."""
    return _drafted(run) is not None or (run.tokens_per_step or 1.0) > ONE_TOKEN


def _drafted(run: BenchRun) -> int | None:
    found = run.acceptance
    if found is None or (found.num_drafts is not None and found.num_drafts == 0):
        return None
    return run.server_args.num_speculative_tokens or len(found.per_position) or 1


def _synthetic(options: DeploymentOptions) -> bool:
    """Whether vLLM's JSON holds an acceptance of its own."""
    if options.speculative_config is None:
        return False

    config = parse_speculative_config(str(options.speculative_config))
    return bool(config.acceptance) or config.acceptance_length is not None


def names_of(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def check_fitted(fitted: tuple[str, ...], points: list[str]) -> None:
    unknown = [name for name in fitted if name not in points]
    if unknown:
        raise UsageError(
            f"--fitted names {unknown[0][:60]!r}, which is no point; they are "
            f"{', '.join(dict.fromkeys(points))[:200]}"
        )
