
bench() {  # SETTING METHOD K CLIENTS
  local prompts=$(( $4 * @EACH@ > @LEAST@ ? $4 * @EACH@ : @LEAST@ ))
  python -m sglang.bench_serving --backend sglang --base-url "$URL" --model @MODEL@ \
    --dataset-name sharegpt --dataset-path "$PROMPTS" --sharegpt-output-len @OUTPUT@ \
    --max-concurrency "$4" --num-prompts "$prompts" \
    --output-file "$RESULTS/$1-c$4.jsonl"
}
