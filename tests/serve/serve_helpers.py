"""A tiny model on disk, an engine that steps when told, and a client that speaks ASGI.

The client drives the application inside the test's own event loop, so a test decides when each
part of a body arrives, reads a stream event by event, and leaves when it wants to.
"""

import asyncio
import json
import string
import threading
from contextlib import asynccontextmanager

import torch
from safetensors.torch import save_file

from specsim.decoder.config import ModelConfig
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions
from specsim.serve.app import Service, create_app
from specsim.serve.settings import ServeSettings

CHARS = string.ascii_letters + string.digits + string.punctuation
SPECIALS = ("<|end|>", "<|user|>", "<|model|>")
VOCAB = len(CHARS) + 2 + len(SPECIALS)  # + space and newline
END_ID = len(CHARS) + 2
CONFIG = ModelConfig(
    family="llama", hidden_size=48, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=12,
    intermediate_size=96, vocab_size=VOCAB, rms_norm_eps=1e-5, max_position=512,
    eos_token_ids=(END_ID,),
)
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|model|>{% endif %}"
)
TIMEOUT_S = 20.0


def write_model(folder):
    """config.json, model.safetensors, tokenizer.json and tokenizer_config.json."""
    c, generator = CONFIG, torch.Generator().manual_seed(3)

    def weight(*shape):
        return torch.randn(shape, generator=generator) * 0.2

    h, d = c.hidden_size, c.head_dim
    tensors = {"model.embed_tokens.weight": weight(c.vocab_size, h),
               "lm_head.weight": weight(c.vocab_size, h), "model.norm.weight": torch.ones(h)}
    for i in range(c.num_layers):
        p = f"model.layers.{i}."
        tensors |= {
            p + "input_layernorm.weight": torch.ones(h),
            p + "post_attention_layernorm.weight": torch.ones(h),
            p + "self_attn.q_proj.weight": weight(c.num_heads * d, h),
            p + "self_attn.k_proj.weight": weight(c.num_kv_heads * d, h),
            p + "self_attn.v_proj.weight": weight(c.num_kv_heads * d, h),
            p + "self_attn.o_proj.weight": weight(h, c.num_heads * d),
            p + "mlp.gate_proj.weight": weight(c.intermediate_size, h),
            p + "mlp.up_proj.weight": weight(c.intermediate_size, h),
            p + "mlp.down_proj.weight": weight(h, c.intermediate_size),
        }
    # Never the end token by chance: a test that wants it asks for it.
    tensors["lm_head.weight"][END_ID:] = 0.0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(c.to_hf("float32")))

    # Byte-level names of space and newline.
    vocab = {char: i for i, char in enumerate([*CHARS, "Ġ", "Ċ"])}
    added = [{"id": END_ID + i, "content": text, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(SPECIALS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "merges": [],
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab},
    }))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


class GatedEngine(Engine):
    """An engine whose steps wait for permission, so that tests see it busy for as long as they
    like. open(): no more waiting. fail: raise in the next step."""

    def __init__(self, *args, closed=False, **kwargs):
        super().__init__(*args, **kwargs)
        self._permits, self._open, self.fail = threading.Semaphore(0), not closed, False

    def permit(self, steps):
        self._permits.release(steps)

    def open(self):
        self._open = True
        self._permits.release(1)

    def step(self):
        if not self._open:
            self._permits.acquire()
        if self.fail:
            raise RuntimeError("out of luck")
        return super().step()


def make_engine(model, *, method="ngram", k=3, max_num_seqs=2, max_model_len=256, closed=False,
                **options):
    return GatedEngine(
        model, DecoderOptions(method=method, num_speculative_tokens=k, max_num_seqs=max_num_seqs,
                              max_model_len=max_model_len, **options), closed=closed,
    )


def make_service(engine, tokenizer, **settings):
    return Service(engine, tokenizer, ServeSettings(model_name="tiny", **settings))


class Reply:
    """A response: status, headers, and the body, whole or event by event."""

    def __init__(self):
        self.status, self.headers, self._parts = 0, {}, asyncio.Queue()
        self.started, self.ended = asyncio.Event(), asyncio.Event()
        self.body = b""

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            self.started.set()
            return
        self.body += message.get("body", b"")
        self._parts.put_nowait(message.get("body", b""))
        if not message.get("more_body"):
            self.ended.set()

    async def part(self):
        """The next piece of the body as the application sent it."""
        return await asyncio.wait_for(self._parts.get(), TIMEOUT_S)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """Decoded server-sent events, [DONE] as None."""
        lines = self.body.decode().split("\n\n")
        assert lines[-1] == "", "the stream ends within an event"
        out = []
        for line in lines[:-1]:
            assert line.startswith("data: "), line
            out.append(None if line == "data: [DONE]" else json.loads(line[6:]))
        return out


class Call:
    """A request in progress."""

    def __init__(self, app, method, path, headers, parts):
        self.reply = Reply()
        self._inbox = asyncio.Queue()
        for part, more in parts:
            self._inbox.put_nowait({"type": "http.request", "body": part, "more_body": more})
        raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
                 "http_version": "1.1", "method": method, "scheme": "http", "path": path,
                 "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": raw,
                 "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)}
        self.task = asyncio.create_task(app(scope, self._inbox.get, self.reply.send))

    def leave(self):
        """The client closes its connection."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    async def done(self):
        await asyncio.wait_for(self.task, TIMEOUT_S)
        return self.reply


class Client:
    def __init__(self, app):
        self._app = app

    def open(self, path, body, headers=None, method="POST", parts=None):
        """Start a request; parts: (bytes, more) pieces of the body instead of body."""
        head = {"host": "127.0.0.1:8000", "content-type": "application/json"} | (headers or {})
        if parts is None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            head.setdefault("content-length", str(len(data)))
            parts = [(data, False)]
        return Call(self._app, method, path, head, parts)

    async def post(self, path, body, headers=None):
        return await self.open(path, body, headers).done()

    async def complete(self, **body):
        return await self.post("/v1/completions", body)

    async def get(self, path, headers=None):
        return await self.open(path, b"", headers, method="GET").done()

    async def metrics(self):
        """name{labels without model and engine} -> value."""
        from prometheus_client.parser import text_string_to_metric_families

        reply = await self.get("/metrics")
        out = {}
        for family in text_string_to_metric_families(reply.body.decode()):
            for sample in family.samples:
                labels = {k: v for k, v in sample.labels.items() if k not in
                          ("model_name", "engine")}
                if sample.name.startswith("vllm:"):
                    assert sample.labels["model_name"] == "tiny"
                    assert sample.labels["engine"] == "0"
                key = sample.name.removeprefix("vllm:")
                out[(key, *labels.values()) if labels else key] = sample.value
        return out


@asynccontextmanager
async def running(service):
    """A client of the service while its lifespan is on."""
    app = create_app(service)
    inbox, outbox = asyncio.Queue(), asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}},
                                   inbox.get, outbox.put))
    inbox.put_nowait({"type": "lifespan.startup"})
    assert (await outbox.get())["type"] == "lifespan.startup.complete"
    try:
        yield Client(app)
    finally:
        service.engine.open()
        inbox.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait_for(task, TIMEOUT_S)


async def until(condition):
    """Wait for what another thread does."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.002)
