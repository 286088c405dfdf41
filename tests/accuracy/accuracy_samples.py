"""Rows of measurements for the tests of validation."""

from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2] / "validation/data/published"
PUBLISHED = _FOLDER / "published_measurements.csv"
PUBLISHED_2 = _FOLDER / "published_measurements_2.csv"

ROW = {
    "id": "X-1", "set_id": "X", "grade": "A", "gpu": "H100 SXM", "tp": "1", "engine": "vLLM",
    "engine_version": "0.25.1", "target_model": "meta-llama/Llama-3.1-8B-Instruct",
    "weight_dtype": "bf16", "method": "eagle3", "k": "3", "dataset": "GSM8K", "isl": "1000",
    "osl": "201", "batch_or_concurrency": "4", "mean_accepted_length": "2.5",
    "baseline_tpot_ms": "7.0", "spec_tpot_ms": "4.0", "ttft_ms": "50", "speedup": "1.75",
}
# As the second file has them: the load in columns of its own.
ROW_2 = {
    **ROW, "id": "Y-1", "set_id": "Y", "cached_tokens": "", "arrival": "", "num_prompts": "",
    "acceptance_pinned": "", "ttft_ms": "",
}
SILICON = {
    "model_path": "Qwen/Qwen3-32B", "backend": "vllm", "backend_version": "0.24.0",
    "precision": "fp8", "tp_size": "2", "pp_size": "1", "isl": "1024", "osl": "128",
    "concurrency": "16", "silicon_tpot_ms": "12.5", "silicon_ttft_ms": "180", "mode": "agg",
}
