"""What a run is: engine options, and the sampling parameters of one request.

Names follow vLLM (num_speculative_tokens, max_num_seqs, max_num_batched_tokens, prompt_lookup_*).
Frozen; every rule is checked when the object is made, and the message says the way out.
"""

from dataclasses import dataclass

from specsim.errors import UsageError, closest, require

METHODS = ("none", "draft_model", "eagle", "ngram", "suffix", "early_exit")
DTYPES = ("bf16", "fp32")
MAX_STOP_IDS = 8  # stop tokens one request may have; one row of a device tensor

# Batch sizes a CUDA graph is captured for; a batch is padded up to the next one.
BATCH_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request's tokens are drawn.

    temperature 0 is greedy. top_k 0 and top_p 1 switch their filter off; both are applied after
    the temperature, top_k first, as Hugging Face and vLLM do. The draws are a function of `seed`
    and the token's position alone, so a request gives the same text whatever shares its batch
    (up to floating-point differences between batch shapes). seed None: taken from the engine.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        require(
            (self.max_tokens >= 1, f"max_tokens {self.max_tokens} must be 1 or more"),
            (0.0 <= self.temperature <= 100.0,
             f"temperature {self.temperature} must lie in 0..100 (0 is greedy)"),
            (self.temperature == 0.0 or self.temperature >= 0.01,
             f"temperature {self.temperature} is too close to 0; use 0 for greedy"),
            (self.top_k >= 0, f"top_k {self.top_k} must be 0 (off) or more"),
            (0.0 < self.top_p <= 1.0, f"top_p {self.top_p} must lie in (0, 1]"),
            (len(self.stop_token_ids) <= MAX_STOP_IDS,
             f"{len(self.stop_token_ids)} stop tokens; at most {MAX_STOP_IDS} are supported"),
        )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """Engine options.

    method, num_speculative_tokens: the drafter and its draft length k (0 with 'none').
    max_num_seqs: slots; max_model_len: tokens of prompt and answer of one request.
    max_num_batched_tokens: prompt tokens computed per engine iteration (chunked prefill).
    page_size: tokens of a cache page; 0: one page per slot on the CPU, 64 on CUDA.
    readback_lag: steps the host reads behind the device; 0 on the CPU, 1 on CUDA. A drafter that
        works on the host (suffix) needs 0.
    trim_drafts: verify only as many positions as the longest proposal of the batch (needs lag 0;
        pays where a drafter often proposes nothing).
    prompt_lookup_max/min: longest and shortest match of the n-gram drafter, tokens.
    early_exit_layers: layers of the target that the early-exit drafter runs.
    """

    method: str = "none"
    num_speculative_tokens: int = 0
    max_num_seqs: int = 8
    max_model_len: int = 2048
    max_num_batched_tokens: int = 512
    page_size: int = 0
    kv_pages: int = 0  # 0: enough for max_num_seqs full requests
    readback_lag: int | None = None
    trim_drafts: bool | None = None
    batch_buckets: tuple[int, ...] = BATCH_BUCKETS
    prompt_lookup_max: int = 3
    prompt_lookup_min: int = 1
    early_exit_layers: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            hint = f"{closest(self.method, METHODS)}methods: {', '.join(METHODS)}"
            raise UsageError(f"unknown speculative method {self.method!r}; {hint}")
        k = self.num_speculative_tokens
        require(
            (k >= 0, f"num_speculative_tokens {k} must be 0 or more"),
            (self.method != "none" or k == 0,
             f"num_speculative_tokens {k} needs a method; set it to 0 or choose one of "
             f"{', '.join(METHODS[1:])}"),
            (self.method == "none" or k >= 1,
             f"method {self.method!r} needs num_speculative_tokens of 1 or more"),
            (self.max_num_seqs >= 1, f"max_num_seqs {self.max_num_seqs} must be 1 or more"),
            (self.max_model_len >= 2, f"max_model_len {self.max_model_len} must be 2 or more"),
            (self.max_num_batched_tokens >= 1,
             f"max_num_batched_tokens {self.max_num_batched_tokens} must be 1 or more"),
            (1 <= self.prompt_lookup_min <= self.prompt_lookup_max,
             f"prompt_lookup_min {self.prompt_lookup_min} must lie in "
             f"1..prompt_lookup_max ({self.prompt_lookup_max})"),
            (self.page_size >= 0, f"page_size {self.page_size} must be 0 (automatic) or more"),
        )

    def bucket(self, batch: int) -> int:
        """The batch a step of `batch` rows is padded to on CUDA."""
        for size in self.batch_buckets:
            if size >= batch:
                return size
        return batch
