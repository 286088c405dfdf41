
bench() {  # SETTING METHOD K CLIENTS
  local prompts=$(( $4 * @EACH@ > @LEAST@ ? $4 * @EACH@ : @LEAST@ ))
  vllm bench serve --base-url "$URL" --model @MODEL@ \
    --dataset-name custom --dataset-path "$PROMPTS" --custom-output-len @OUTPUT@ \
    --max-concurrency "$4" --num-prompts "$prompts" --num-warmups "$4" \
    --save-result --result-dir "$RESULTS" --result-filename "$1-c$4.json" \
    --metadata "method=$2" "num_speculative_tokens=$3"
}
