"""What a plan of benchmark runs says: what to choose now, what is unknown, which runs settle it.

Settings are named METHOD-kK or METHOD-kK-treeTOPK-TOKENS, plain decoding `plain`; names of result
files hold them. `api.tune_plan` makes a plan, `script_of` a shell script of it: start a server,
drive it at every load, stop it, the next.

Clients are those that come with the engines: `vllm bench serve`, and `sglang.bench_serving`, with
flags of vLLM 0.33.0 and SGLang 0.5.23. Prompts must be the user's own: on random tokens nothing of
what is accepted is real. A result that is there is not measured again, so a script that was stopped
goes on. Results are named SETTING-cCLIENTS, which `specsim tune --from` reads.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.data import data_root
from specsim.jsonable import Jsonable
from specsim.planning.tune_choices import tree_of


def setting_name(system: System) -> str:
    """'plain', 'mtp-k3' or 'eagle3-k5-tree4-8'."""
    if not system.speculative:
        return "plain"
    tree = tree_of(system)
    words = f"{system.setup.method}-k{system.setup.k}"
    return words if tree is None else f"{words}-tree{tree[0]}-{tree[1]}"


@dataclass(frozen=True, slots=True)
class MeasuredRun(Jsonable):
    """A run that was told. speed: output tokens per second, or TPOT in seconds by that objective,
    at the lengths of the plan; off: over what was expected before any run, less 1."""

    name: str
    concurrency: int
    speed: float
    off: float
    acceptance_length: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Decision(Jsonable):
    """What to choose at a load, as things are known. probability: that nothing else is better;
    regret: expected share of the best speed that it gives away; rival: what is better most often
    where it is not the best; command: of the server, where one is known."""

    concurrency: int
    name: str
    method: str
    k: int
    tree: tuple[int, int] | None
    probability: float
    regret: float
    settled: bool
    rival: str | None
    command: str | None


@dataclass(frozen=True, slots=True)
class Unknown(Jsonable):
    """Something not known. worth: regret that knowing it alone would save; left: share of its
    standard deviation that the runs so far have left."""

    name: str
    worth: float
    left: float


@dataclass(frozen=True, slots=True)
class PlannedRun(Jsonable):
    """A run to make: one server start, at all loads. regret: expected after it and those before;
    settles: what it tells of; command: of the server, None with the reason in `no_command`."""

    name: str
    method: str
    k: int
    tree: tuple[int, int] | None
    regret: float
    settles: tuple[str, ...]
    command: str | None
    no_command: str


@dataclass(frozen=True, slots=True)
class RunPlan(Jsonable):
    """regret: expected of choosing now, mean over the loads; settled: whether below `settled_at`.
    runs: to make, in this order; the first is the next. written_for: the engine's version that
    their commands are of, None where there is none."""

    objective: str
    settled_at: float
    regret: float
    settled: bool
    decisions: tuple[Decision, ...]
    measured: tuple[MeasuredRun, ...]
    unknowns: tuple[Unknown, ...]
    runs: tuple[PlannedRun, ...]
    written_for: str | None
    notes: tuple[str, ...] = ()


LEAST_PROMPTS, PROMPTS_PER_CLIENT = 32, 8


def script_of(
    plan: RunPlan, dialect: str, model: str, loads: Sequence[int], workload: Workload, again: str
) -> str:
    """dialect: vllm or sglang. model: as the server is told. again: what to type afterwards. Runs
    without a command for the server stand in it as remarks."""
    vllm = dialect == "vllm"
    filled = {
        "RUNS": ", ".join(run.name for run in plan.runs) or "none", "AGAIN": again,
        "FORM": "JSON Lines, the text as prompt" if vllm else "in the form of ShareGPT",
        "PORT": 8000 if vllm else 30000, "LOADS": " ".join(map(str, loads)),
        "SUFFIX": "json" if vllm else "jsonl", "MODEL": shlex.quote(model),
        "OUTPUT": workload.output_len, "EACH": PROMPTS_PER_CLIENT, "LEAST": LEAST_PROMPTS,
    }
    folder = data_root("catalog") / "tune_runs"
    text = "".join((folder / f"{part}.sh").read_text(encoding="utf-8")
                   for part in ("head", "vllm" if vllm else "sglang"))
    text = re.sub("@([A-Z]+)@", lambda place: str(filled[place[1]]), text)
    lines = []
    for run in plan.runs:
        if run.command is None:
            lines.append(f"# {run.name}: no command; {run.no_command}")
        else:
            lines.append(f"run {run.name} {run.method} {run.k} {run.command}")
    return "\n".join([text, *lines, ""])
