"""A plan of runs as a shell script: start a server, drive it at every load, stop it, the next.

Clients are those that come with the engines: `vllm bench serve`, and `sglang.bench_serving`, with
flags of vLLM 0.33.0 and SGLang 0.5.23. Prompts must be the user's own: on random tokens nothing of
what is accepted is real. A result that is there is not measured again, so a script that was stopped
goes on. Results are named SETTING-cCLIENTS, which `specsim tune --from` reads.
"""

import re
import shlex
from collections.abc import Sequence

from specsim.analytic.workload import Workload
from specsim.data import data_root
from specsim.planning.run_plan import RunPlan

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
