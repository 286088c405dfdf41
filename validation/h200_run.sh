#!/usr/bin/env bash
# Measure the bundled decoder on one GPU (meant for an H200): correctness checks first, then the grid.
#
#   validation/h200_run.sh [OUT_FOLDER] [BUDGET_SECONDS]
#
# One command, under 8 minutes by default. It needs Python >= 3.11 with torch (CUDA), triton,
# safetensors, pydantic, typer and rich, and no network; weights are random, so nothing is downloaded.
# Ordered so that a run that is cut short still calibrates: checks (60 s at most), kernels, whole
# steps, experts, prompts, serving. Points are flushed one by one; running it again goes on.
# Leaves in OUT_FOLDER: h200.jsonl (records), checks.log, measure.log, smi.log.
set -u
cd "$(dirname "$0")/.."
out=${1:-validation/measured/h200}
budget=${2:-390}
python=${PYTHON:-python3}
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
# A copy without a repository can be told which commit it is.
if sha=$(git rev-parse HEAD 2>/dev/null); then
  export SPECSIM_GIT_SHA=${SPECSIM_GIT_SHA:-$sha}
fi

{ date -u +%FT%TZ; nvidia-smi; nvidia-smi -q -d CLOCK,POWER,TEMPERATURE; } >"$out/smi.log" 2>&1

# Does the GPU path compute what the CPU path does? A failure is recorded, measuring goes on.
timeout 60 "$python" -m pytest -q -m gpu -W default -p no:cacheprovider tests/decoder/test_decoder_cuda.py \
  >"$out/checks.log" 2>&1
echo "checks: exit code $? (0: all passed, 124: out of time)" | tee -a "$out/checks.log"

timeout $((budget + 30)) "$python" cli.py measure --device cuda --grid full --budget "${budget}s" \
  --out "$out/h200.jsonl" 2>&1 | tee "$out/measure.log"
status=${PIPESTATUS[0]}

{ date -u +%FT%TZ; nvidia-smi; nvidia-smi -q -d CLOCK,POWER,TEMPERATURE; } >>"$out/smi.log" 2>&1
tail -n 3 "$out/checks.log"
wc -l "$out/h200.jsonl"
exit "$status"
