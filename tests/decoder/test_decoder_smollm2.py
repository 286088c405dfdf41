"""The default model, SmolLM2-135M, against transformers.

Slow (converting and loading take seconds). Skipped where the model has not been fetched.
Losslessness is checked in fp32: in bf16 a near-tie may fall differently in products of another
shape, which makes speculative and plain text differ without either being wrong.
"""

import pytest
import torch

from decoder_helpers import SlotHarness
from specsim.decoder.engine import Engine
from specsim.decoder.models import DEFAULT_MODEL, load_model, packaged_gguf
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.errors import UsageError

pytestmark = pytest.mark.slow

TEXTS = [
    "What is gravity?",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n",
    "1234567 + 89 = ?  \t(in 2024)",
    "Les élèves naïfs — “déjà vu” … 日本語 😀",
    "<|im_start|>user\nhi<|im_end|>\n",
]
COPY = "Repeat this list: red, green, blue, yellow. Again: red, green, blue, yellow. Again:"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    try:
        file = packaged_gguf(DEFAULT_MODEL, fetch=False)
    except UsageError as error:
        pytest.skip(str(error))
    return load_model(file, dtype="fp32", max_positions=512,
                      cache=tmp_path_factory.mktemp("cache"))


def prompts(loaded):
    tokenizer = loaded.tokenizer()
    asked = [[{"role": "user", "content": text}] for text in (TEXTS[0], COPY)]
    return [tokenizer.encode_chat(messages) for messages in asked] + [tokenizer.encode(TEXTS[1])]


def test_shapes_are_the_published_ones(loaded):
    config = loaded.config
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads,
            config.vocab_size) == (30, 576, 9, 3, 49152)
    assert config.num_parameters() == 134_515_008
    assert config.eos_token_ids == (2,)


def test_tokens_and_logits_equal_transformers(loaded):
    transformers = pytest.importorskip("transformers")
    tokenizer = loaded.tokenizer()
    theirs = transformers.AutoTokenizer.from_pretrained(loaded.folder)
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs(text)["input_ids"]
        assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text
    messages = [{"role": "user", "content": TEXTS[0]}]
    want = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert tokenizer.chat_text(messages) == want

    model = transformers.AutoModelForCausalLM.from_pretrained(loaded.folder, dtype=torch.float32)
    harness = SlotHarness(loaded.model, slots=1, tokens=128)
    for ids in prompts(loaded):
        with torch.no_grad():
            want = model(torch.tensor([ids])).logits[0]
        got = harness.prompt(0, ids, 0)
        assert torch.equal(got.argmax(-1), want.argmax(-1))
        assert (got - want).abs().max() < 1e-5 * want.abs().max()


def run(loaded, method="none", k=0, **options):
    settings = DecoderOptions(method=method, num_speculative_tokens=k, max_num_seqs=3,
                              max_model_len=256, **options)
    engine = Engine(loaded.model, settings)
    results = engine.generate(prompts(loaded), SamplingParams(max_tokens=24))
    return [r.token_ids for r in results], engine


def test_speculative_text_equals_plain_text(loaded):
    plain, _ = run(loaded)
    assert len({tuple(tokens) for tokens in plain}) == 3
    for method, k, options in (("ngram", 4, {}), ("suffix", 4, {}),
                               ("early_exit", 2, {"early_exit_layers": 26})):
        tokens, engine = run(loaded, method, k, **options)
        assert tokens == plain
        assert engine.stats.num_accepted_tokens > 0
    text = loaded.tokenizer().decode(plain[0])
    assert "gravity" in text.lower()
