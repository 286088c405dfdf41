#!/usr/bin/env bash
# A new user's path in a fresh virtual environment, outside the checkout: install the wheel, predict,
# calibrate on two benchmark files, predict with that, err. Then README, tutorial and how-to pages to
# the letter (tests/literal.py).
# usage: tests/user_path.sh [WHEEL]      (without: the wheel is built from this checkout)
# Ends with 0 only if every step did what it should. PYTHON names the interpreter to use.
# LITERAL=--light leaves out what installs torch, LITERAL=no all pages.
set -euo pipefail
checkout="$(cd "$(dirname "$0")/.." && pwd)"
wheel="${1:+$(realpath "$1")}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 PIP_NO_COMPILE=0 SPECSIM_CONFIG= NO_COLOR=1 OMP_NUM_THREADS=1
unset PYTHONPATH PYTHONDONTWRITEBYTECODE

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'user path: %s\n' "$*" >&2; exit 1; }

step "install"
"${PYTHON:-python3}" -m venv "$work/venv"
if [ -z "$wheel" ]; then
  "$work/venv/bin/python" -m pip install build
  "$work/venv/bin/python" -m build --wheel --outdir "$work/dist" "$checkout" >/dev/null
  wheel="$(ls "$work"/dist/*.whl)"
fi
"$work/venv/bin/python" -m pip install "$wheel"
export PATH="$work/venv/bin:$PATH"
# What a benchmark of one's own server would have left behind.
cp "$checkout/examples/plain.json" "$checkout/examples/spec.json" "$work"
cd "$work"
begin=$SECONDS

step "specsim --version"
specsim --version | grep -E '^specsim [0-9]+\.[0-9]+' || fail "no version"

specsim --help > /dev/null
specsim gpus | grep -c 'h200-sxm' >/dev/null || fail "specsim gpus has no h200-sxm"
specsim models | grep -c 'Qwen3.6-27B' >/dev/null || fail "specsim models has no Qwen3.6-27B"

step "specsim predict"
specsim predict | grep -c 'qwen3.6-27b' >/dev/null || fail "the cluster's table has no qwen3.6-27b"

step "specsim import"
specsim import plain.json spec.json | tee import.txt | tail -n 4
grep -q 'acceptance length 3.187' import.txt || fail "the acceptance in the file was not read"

step "specsim calibrate"
specsim calibrate --from plain.json --from spec.json smollm2-135m --gpu cpu-generic \
  --method ngram --k 3 -o my-engine.toml --report calibration.json | tail -n 8
test -s my-engine.toml || fail "no engine profile was written"

step "the prediction that calibrate says to type"
command="$(python -c 'import json; print(json.load(open("calibration.json"))["command"])')"
echo "$command"
bash -c "$command --concurrency 1 --input-len 205 --output-len 128 --json" > calibrated.json
python - <<'PYTHON' || fail "the calibrated prediction is not near the measurement"
import json
measured = json.load(open("plain.json"))["mean_tpot_ms"] / 1000
predicted = json.load(open("calibrated.json"))["points"][0]["baseline_tpot_s"]
print(f"plain TPOT: measured {measured:.4f} s, predicted {predicted:.4f} s")
raise SystemExit(abs(predicted / measured - 1) > 0.15)
PYTHON

step "an error is one line and exit code 2"
code=0; specsim predict qwen3.6-27 2> error.txt || code=$?
cat error.txt
[ "$code" -eq 2 ] && [ "$(wc -l < error.txt)" -eq 1 ] || fail "exit code $code"

printf '\nsteps done in %d s, installation not counted\n' "$((SECONDS - begin))"
[ "$((SECONDS - begin))" -le 60 ] || [ -n "${SLOW_MACHINE:-}" ] || fail "that is over 60 s"

if [ "${LITERAL:-}" != no ]; then
  step "README, tutorial and how-to pages to the letter"
  "${PYTHON:-python3}" "$checkout/tests/literal.py" ${LITERAL:+"$LITERAL"}
fi
