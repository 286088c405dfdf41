#!/usr/bin/env bash
# Drive `specsim serve` with guidellm (https://github.com/vllm-project/guidellm, Apache-2.0), with
# and without n-gram drafting, reading the speculation counters before and after each run.
# Usage: serve_guidellm.sh OUT_DIR     Needs: specsim-llm[decoder] and guidellm 0.8 (in a venv of
# its own; GUIDELLM names its command). Traffic stays on 127.0.0.1.
set -euo pipefail
out=$(realpath -m "$1"); here=$(cd "$(dirname "$0")" && pwd)
guidellm=${GUIDELLM:-guidellm}; specsim=${SPECSIM:-specsim}; port=${PORT:-18210}
count=${COUNT:-12}; threads=${THREADS:-1}; url=http://127.0.0.1:$port
mkdir -p "$out"
python3 - > "$out/machine.json" <<'PY'
import json, os, platform
cpu = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if "model name" in line]
print(json.dumps({"cpu": cpu[0] if cpu else platform.machine(), "cores": os.cpu_count(),
                  "python": platform.python_version(), "load_average": os.getloadavg()}))
PY
python3 "$here/serve_prompts.py" "$out/prompts.jsonl" "$count"

run() {  # name, options of specsim serve
  local name=$1; shift
  $specsim serve --port "$port" --threads "$threads" --max-num-seqs 4 --log-interval 10 "$@" \
    2> "$out/$name.server.log" & local server=$!
  trap "kill $server 2>/dev/null || true" EXIT
  for _ in $(seq 240); do curl -sf -o /dev/null $url/health && break; sleep 0.5; done
  curl -sf $url/metrics > "$out/$name.before.prom"
  "$guidellm" run --disable-console-interactive \
    --backend "kind=openai_http,target=$url,model=smollm2-135m,request_format=/v1/completions,http2=false,extras={\"body\":{\"temperature\":0}}" \
    --profile kind=concurrent,streams=2 --constraint "kind=max_requests,count=$count" \
    --data "kind=json_file,path=$out/prompts.jsonl" \
    --output "kind=json,path=$out/$name.guidellm.json" > "$out/$name.guidellm.log" 2>&1
  curl -sf $url/metrics > "$out/$name.after.prom"
  kill -TERM $server; wait $server   # a graceful stop ends with 0
  trap - EXIT
}

run ngram --draft ngram --k 3
run plain --draft none
python3 "$here/serve_summary.py" "$out" > "$out/summary.json"
cat "$out/summary.json"
