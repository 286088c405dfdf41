"""A tiny model and session for the measuring tests."""

import torch

from specsim.decoder.config import ModelConfig
from specsim.measure.models import MeasuredModel
from specsim.measure.session import Session
from specsim.measure.timer import RepeatLimits

TINY = ModelConfig(
    family="llama", hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=64, vocab_size=97, tie_word_embeddings=True, max_position=512,
)
EXPERTS = ModelConfig(
    family="qwen3_moe", hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
    intermediate_size=64, vocab_size=97, num_experts=8, num_experts_per_tok=2,
    moe_intermediate_size=16, max_position=512,
)
QUICK = RepeatLimits(warmups=1, least=2, most=3, cap_s=0.0)


def tiny(name: str = "tiny") -> MeasuredModel:
    return MeasuredModel(name, TINY)


def experts() -> MeasuredModel:
    return MeasuredModel("experts", EXPERTS)


def session(**options) -> Session:
    made = Session(torch.device("cpu"), "fp32", [tiny(), tiny("small"), experts()], QUICK,
                   **options)
    made.probe = lambda: 1e9  # half a gigabyte would take the test's time
    made.stream_bytes_per_s = 1e9
    return made


def tiny_folder(folder):
    """A Hugging Face folder of TINY with random weights."""
    import json

    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY.to_hf("float32")))
    draw = torch.Generator().manual_seed(0)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw) * 0.1

    c = TINY
    h, kv = c.hidden_size, c.num_kv_heads * c.head_dim
    tensors = {"model.embed_tokens.weight": weight(c.vocab_size, h),
               "model.norm.weight": torch.ones(h)}
    for i in range(c.num_layers):
        p = f"model.layers.{i}."
        shapes = {"self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h),
                  "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, h),
                  "mlp.gate_proj": (c.intermediate_size, h),
                  "mlp.up_proj": (c.intermediate_size, h),
                  "mlp.down_proj": (h, c.intermediate_size)}
        tensors |= {f"{p}{name}.weight": weight(*shape) for name, shape in shapes.items()}
        tensors |= {f"{p}{name}.weight": torch.ones(h)
                    for name in ("input_layernorm", "post_attention_layernorm")}
    save_file(tensors, folder / "model.safetensors")
    return folder


def tiny_tokenizer(folder) -> None:
    """Words w0 .. w94 and the two marks of a chat, for the folder's 97 token ids."""
    import json

    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = ["<user>", "<end>", *(f"w{i}" for i in range(95))]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}<user> {{ m.content }} <end> {% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 1}))
