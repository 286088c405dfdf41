"""A plan of runs as a shell script: start a server, drive it at every load, stop it, the next.

Clients are those that come with the engines: `vllm bench serve`, and `sglang.bench_serving`, with
flags of vLLM 0.33.0 and SGLang 0.5.23. Prompts must be the user's own: on random tokens nothing of
what is accepted is real. A result that is there is not measured again, so a script that was stopped
goes on. Results are named SETTING-cCLIENTS, which `specsim tune --from` reads.
"""

import shlex
from collections.abc import Sequence

from specsim.analytic.workload import Workload
from specsim.planning.run_plan import RunPlan

LEAST_PROMPTS, PROMPTS_PER_CLIENT = 32, 8

_HEAD = """#!/usr/bin/env bash
# Runs that settle the choice of drafting method and draft length: {runs}.
# Then: {again}
set -euo pipefail
: "${{PROMPTS:?set it to a file of your own prompts ({form})}}"
RESULTS="${{RESULTS:-results}}"
URL=http://127.0.0.1:{port}
mkdir -p "$RESULTS"

server=
trap '[ -z "$server" ] || kill "$server"' EXIT

wait_for_server() {{
  until curl -sf "$URL/health" > /dev/null; do
    kill -0 "$server" || {{ echo "the server ended; see $RESULTS/$1.log" >&2; exit 1; }}
    sleep 2
  done
}}

run() {{  # SETTING METHOD K SERVER...
  local name=$1 method=$2 k=$3 clients
  shift 3
  for clients in {loads}; do [ -e "$RESULTS/$name-c$clients.{suffix}" ] || break; done
  if [ -e "$RESULTS/$name-c$clients.{suffix}" ]; then echo "$name is measured"; return; fi
  echo "$name: $*"
  "$@" > "$RESULTS/$name.log" 2>&1 &
  server=$!
  wait_for_server "$name"
  for clients in {loads}; do
    [ -e "$RESULTS/$name-c$clients.{suffix}" ] || bench "$name" "$method" "$k" "$clients"
  done
  kill "$server"; wait "$server" || true
  server=
}}
"""
_VLLM = """
bench() {{  # SETTING METHOD K CLIENTS
  local prompts=$(( $4 * {each} > {least} ? $4 * {each} : {least} ))
  vllm bench serve --base-url "$URL" --model {model} \\
    --dataset-name custom --dataset-path "$PROMPTS" --custom-output-len {output} \\
    --max-concurrency "$4" --num-prompts "$prompts" --num-warmups "$4" \\
    --save-result --result-dir "$RESULTS" --result-filename "$1-c$4.json" \\
    --metadata "method=$2" "num_speculative_tokens=$3"
}}
"""
_SGLANG = """
bench() {{  # SETTING METHOD K CLIENTS
  local prompts=$(( $4 * {each} > {least} ? $4 * {each} : {least} ))
  python -m sglang.bench_serving --backend sglang --base-url "$URL" --model {model} \\
    --dataset-name sharegpt --dataset-path "$PROMPTS" --sharegpt-output-len {output} \\
    --max-concurrency "$4" --num-prompts "$prompts" \\
    --output-file "$RESULTS/$1-c$4.jsonl"
}}
"""


def script_of(
    plan: RunPlan, dialect: str, model: str, loads: Sequence[int], workload: Workload, again: str
) -> str:
    """dialect: vllm or sglang. model: as the server is told. again: what to type afterwards. Runs
    without a command for the server stand in it as remarks."""
    vllm = dialect == "vllm"
    head = _HEAD.format(
        runs=", ".join(run.name for run in plan.runs) or "none", again=again,
        form="JSON Lines, the text as prompt" if vllm else "in the form of ShareGPT",
        port=8000 if vllm else 30000, loads=" ".join(map(str, loads)),
        suffix="json" if vllm else "jsonl",
    )
    client = (_VLLM if vllm else _SGLANG).format(
        model=shlex.quote(model), output=workload.output_len, each=PROMPTS_PER_CLIENT,
        least=LEAST_PROMPTS,
    )
    lines = []
    for run in plan.runs:
        if run.command is None:
            lines.append(f"# {run.name}: no command; {run.no_command}")
        else:
            lines.append(f"run {run.name} {run.method} {run.k} {run.command}")
    return "\n".join([head + client, *lines, ""])
