"""What `specsim quick` makes of its measurements: a verdict over the loads, what to type, and which
assumptions matter."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from specsim.api.deployment import build_request
from specsim.api.diagnose import of_diagnosis
from specsim.api.served import predictor_for
from specsim.api.verdicts import served_names, unmeasured
from specsim.diagnose.evidence import Evidence
from specsim.diagnose.expected import FULL_SHARE, Expected, Predictor
from specsim.diagnose.finding import Diagnosis
from specsim.diagnose.judge import diagnose
from specsim.diagnose.rules_speculation import GAIN
from specsim.errors import CapacityError, SpecSimError
from specsim.jsonable import picked
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import QuickOptions
from specsim.planning.flags import ReadyCommand, flags_of
from specsim.planning.tune_choices import OfferedLoad
from specsim.planning.verdict import Verdict, of_unmeasured

GPUS = ("l40s", "a100-80gb", "h100-sxm", "b200")  # compared with one that is assumed
SPLITS = (1, 2, 4, 8, 16, 32)
MISFITS = ("prediction_misfit", "faster_than_predicted", "host_gap")


@dataclass(frozen=True)
class Stage:
    """One load: what was sent (clients, requests, failed; empty where only watched), and what is
    found in it. predictor: None where nothing is predicted."""

    sent: Mapping[str, int]
    told: Diagnosis
    predictor: Predictor | None

    @property
    def here(self) -> Evidence:
        return self.told.case.evidence

    @property
    def misfit(self) -> str | None:
        """Why the prediction is of another deployment than this one, if it is."""
        wrong = (item.verdict for item in self.told.findings if item.rule in MISFITS)
        return next(wrong, None)

    @property
    def about(self) -> Expected | None:
        """What speculation does here, or would do."""
        case = self.told.case
        return case.would if self.here.speculates is False else case.expected

    @property
    def answer(self) -> tuple[bool, int | None] | None:
        """(whether it pays, best k); None where nothing is predicted."""
        return None if self.about is None else (self.about.speedup > 1, self.about.best_k)

    def to_dict(self) -> dict[str, object]:
        return {**self.sent, "misfit": self.misfit, **picked(
            self, "measured=here predicted=told.case.expected would=told.case.would "
                  "findings=told.findings")}


def judged_at(
    options: QuickOptions, sent: Mapping[str, int], evidence: Evidence, notes: list[str]
) -> Stage:
    """The evidence judged; without a prediction where the deployment cannot be priced. Of a server
    that does not speculate, with the best draft length."""
    predictor = None
    if evidence.speculates and not _drafting(options, evidence) and (
        (evidence.draft_share or 1.0) < FULL_SHARE
    ):  # a network drafts in every step, a lookup where it finds something
        options = options.but(method="ngram")
    try:
        predictor = predictor_for(options.model, options, evidence, notes)
    except SpecSimError as error:
        notes.append(f"nothing is predicted: {error}")
    told = diagnose(evidence, predictor)
    would = told.case.would
    if predictor is not None and would is not None and would.best_k:
        predictor = predictor.at(would.best_k)
        told = diagnose(evidence, predictor)
    notes += told.warnings
    return Stage(sent, told, predictor if told.case.expected is not None else None)


def smallest_split(options: QuickOptions, notes: list[str]) -> QuickOptions:
    """With the fewest GPUs that hold the model, where nobody says how many share it. SpecSimError
    for a deployment that cannot be."""
    splits = (options.tp,) if "tp" in options.model_fields_set else SPLITS
    for tp in splits:
        try:
            build_request(_deployment(options).but(tp=tp).plain())
        except CapacityError:
            if tp == splits[-1]:
                raise
            continue
        if tp > options.tp:
            notes.append(f"{tp} GPUs are assumed to share the model, the fewest that hold it; --tp "
                         "names another number")
        return options.but(tp=tp) if tp > 1 else options
    raise AssertionError


def decided(options: QuickOptions, stages: list[Stage]) -> Verdict:
    """The verdict of the largest load, with the others beside it, and `to_type` as its command."""
    lead, names = stages[-1], served_names(_deployment(options))
    if lead.about is None and lead.predictor is not None:
        case = unmeasured(build_request(_deployment(options)))
        if case is not None:
            load = OfferedLoad(max(1, round(lead.here.running or 1)))
            return of_unmeasured(case, lead.predictor.workload, [load], names)
    each = [of_diagnosis(stage.told.case, stage.predictor) for stage in reversed(stages)]
    said = replace(each[0], loads=tuple(item.loads[0] for item in each),
                   rests_on=each[0].rests_on.partition(";")[0])
    if lead.misfit:  # the interval is of the deployment described, which is not this one
        said = replace(said, certainty="open", winning_share=None, gain_90=None)
    return said


def to_type(options: QuickOptions, lead: Stage) -> tuple[ReadyCommand | None, str]:
    """What to start the server with for the best draft length at this load, and words about it."""
    about, here, predictor = lead.about, lead.here, lead.predictor
    if about is None or predictor is None:
        return None, ""
    now = about.speedup if here.speculates else 1.0
    k, gain = about.best_k, about.best_speedup
    if k is None:  # a method of fixed length
        k, gain = (about.k, about.speedup) if about.speedup > 1 else (0, 1.0)
    running = (here.drafted_k or about.k) if here.speculates else 0
    if k == running or gain < now * (1 + GAIN):
        what = f"k = {running}" if running else "no speculation"
        return None, f"nothing: {what} is the best at this load, or within {GAIN:.0%} of it"
    system = predictor.measured_system(here) if here.speculates else predictor.system
    flags, _ = flags_of(system.with_(k=k), served_names(_deployment(options)))
    words = f"k = {k}" if k else "no speculation"
    if flags is None:
        with_ = f"with --num-speculative-tokens {k}" if k else "without a drafter"
        words = f"its own command {with_}"
    than = "plain decoding" if here.speculates is None else "now"
    return flags, f"{words}, {gain / now:.2f}x of {than} (predicted)"


def assumptions(options: QuickOptions, lead: Stage, gpu_from: str) -> list[dict[str, object]]:
    """What the server does not tell and the answer rests on. changes: values that would give
    another answer; null where that was not looked at."""

    def item(what: str, flag: str, value: object, changes: object = None) -> dict[str, object]:
        return {"what": what, "flag": flag, "value": value, "changes": changes}

    if lead.about is None:
        return [] if options.model else [item("model", "--model", None)]
    out = []
    if not gpu_from:
        others = {gpu: judged_at(options.but(gpu=gpu), {}, lead.here, []) for gpu in GPUS}
        out.append(item("GPU", "--gpu", options.gpu, [
            {"value": gpu, "pays": other.answer[0], "best_k": other.answer[1]}
            for gpu, other in others.items() if other.answer not in (None, lead.answer)
        ]))
    if lead.here.speculates and not _drafting(options, lead.here):
        out.append(item("method", "--method", lead.about.method))
    if options.engine is None:
        out.append(item("engine", "--engine", "vllm"))
    return out


def _drafting(options: QuickOptions, here: Evidence) -> object:
    """What says how drafts are made; empty where nothing does."""
    return options.method or options.draft or options.speculative_config or here.method


def _deployment(options: QuickOptions) -> DeploymentOptions:
    return DeploymentOptions.of(options).but(engine=options.engine or "vllm")
