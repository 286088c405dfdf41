"""What `diagnose` and `watch` share: a deployment built from options and what was measured.

Acceptance and draft length come from the evidence, not from options; options only describe what
was served. Without MODEL there is no prediction, and only counters are judged.
"""

from specsim.api.deployment import build_request
from specsim.diagnose.evidence import Evidence
from specsim.diagnose.expected import Predictor
from specsim.errors import UsageError
from specsim.latency.engine import list_engines
from specsim.methods.base import find_method
from specsim.methods.registry import method_name
from specsim.options.declare import declared
from specsim.options.groups import DeploymentOptions
from specsim.options.measured import SeenServerOptions

# What is known of an engine or how steps are priced describes no deployment.
_ALONE = {"engine", "fidelity"}


def check_described(model: str | None, options: SeenServerOptions) -> None:
    """Options that describe a deployment mean nothing without one."""
    if model is not None:
        return
    for name in declared(SeenServerOptions):
        if name in options.typed and name not in _ALONE:
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"{flag} describes the deployment, but no MODEL is named; add one of "
                "`specsim models`, or leave it out"
            )


def predictor_for(
    model: str | None, asked: SeenServerOptions, evidence: Evidence, warnings: list[str]
) -> Predictor | None:
    """The deployment that the options and the evidence describe; None without MODEL.

    SpecSimError for options that cannot be, as `specsim predict` says it.
    """
    if model is None:
        return None
    engine = asked.engine or evidence.engine or "vllm"
    if asked.engine is None and engine not in {known.name for known in list_engines()}:
        warnings.append(f"{engine} has no profile here: priced as vllm; --engine names another")
        engine = "vllm"
    options = DeploymentOptions.of(asked).but(model=model, engine=engine)
    method = options.method
    off = method is not None and not find_method(method_name(method)).speculates
    if options.speculative_config is None and not off and evidence.speculates:
        options = _with_measured(options, evidence)
    request = build_request(options)
    warnings += [text for text in request.warnings if not text.startswith("acceptance")]
    fixed = options.input_len is not None or options.output_len is not None
    if evidence.speculates and not request.system.speculative:
        warnings.append(
            "drafts were counted, but the deployment named has none: give --method (and --draft) "
            "as served"
        )
    return Predictor(
        request.system, request.workload, fixed or options.workload is not None, asked_plain=off
    )


def _with_measured(options: DeploymentOptions, evidence: Evidence) -> DeploymentOptions:
    """k and acceptance as measured, where the options leave them open."""
    k = options.k or evidence.drafted_k
    method = options.method
    if method is None and options.draft is None and evidence.method is not None:
        try:
            method = method_name(evidence.method)
        except UsageError:  # an engine's own word for it
            method = None
    length = evidence.length_at(k) if k else evidence.acceptance_length
    if length is not None and k:
        length = min(max(1.0, length), k + 1.0)
    share = evidence.draft_share
    lookup = method is not None and find_method(method_name(method)).lookup
    return options.but(
        k=k, method=method, acceptance_length=length,
        draft_share=min(1.0, max(0.01, round(share, 2))) if share and lookup else 1.0,
    )
