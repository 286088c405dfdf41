"""`specsim generate`: a real answer, its drafts accepted and rejected in sight, and the speedup."""

import sys
from typing import Annotated

import typer

from specsim.commands import decoder_setup as d

MAX_PROMPT_CHARS = 4_000_000

Prompt = Annotated[str, typer.Argument(help="Text to continue; - reads it from standard input.")]
MaxNew = Annotated[int, typer.Option("--max-new-tokens", help="Length of the answer.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopK = Annotated[int, typer.Option("--top-k", help="Sample from the k likeliest; 0 is all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Sample from this share of probability.")]
Chat = Annotated[
    bool, typer.Option("--chat", help="Ask as a user in the model's chat template.")
]
Compare = Annotated[
    bool, typer.Option("--compare/--no-compare", help="Measure plain decoding too.")
]
Repeat = Annotated[int, typer.Option("--repeat", help="Runs of each kind, taken in turn.")]
Color = Annotated[str, typer.Option("--color", help="auto, always or never.")]


def register(app: typer.Typer) -> None:
    app.command(name="generate")(generate)


def generate(
    prompt: Prompt,
    model: d.ModelOpt = "smollm2-135m",
    draft: d.DraftOpt = "ngram",
    k: d.KOpt = None,
    max_new_tokens: MaxNew = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    chat: Chat = False,
    dtype: d.DtypeOpt = "bf16",
    seed: d.SeedOpt = 0,
    threads: d.ThreadsOpt = None,
    device: d.DeviceOpt = "auto",
    compare: Compare = True,
    repeat: Repeat = 1,
    color: Color = "auto",
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Generate text by speculative decoding, and measure it against plain decoding.

    The text goes to standard output, the numbers to standard error. Accepted drafts are green,
    rejected ones red and struck through before the token that replaced them.
    """
    from specsim.errors import UsageError

    plan = d.plan(model, draft, k, dtype, device)
    if color not in ("auto", "always", "never"):
        raise UsageError(f"--color {color!r} must be auto, always or never")
    if not 1 <= repeat <= 100:
        raise UsageError(f"--repeat {repeat} must lie in 1..100")
    if max_new_tokens < 1:
        raise UsageError(f"--max-new-tokens {max_new_tokens} must be 1 or more")
    text = sys.stdin.read(MAX_PROMPT_CHARS + 1) if prompt == "-" else prompt
    if not text:
        raise UsageError("the prompt is empty; give some text, or - for standard input")
    if len(text) > MAX_PROMPT_CHARS:
        raise UsageError(f"the prompt has more than {MAX_PROMPT_CHARS} characters; shorten it")
    d.need(d.DECODER_PACKAGES, "generate", "decoder")
    d.prepare_torch(threads)
    _run(plan, text, _Sampling(max_new_tokens, temperature, top_k, top_p, seed), chat=chat,
         threads=threads, runs=repeat, compare=compare, color=color, json_out=json_out)


class _Sampling:
    """Sampling options before the decoder's own class is imported."""

    def __init__(self, max_tokens: int, temperature: float, top_k: int, top_p: float,
                 seed: int) -> None:
        from specsim.errors import UsageError

        if not -(1 << 63) <= seed < 1 << 63:
            raise UsageError(f"--seed {seed} must fit 64 bits")
        self.values = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k,
                       "top_p": top_p, "seed": seed}


def _run(
    plan: d.Plan, text: str, sampling: _Sampling, *, chat: bool, threads: int | None, runs: int,
    compare: bool, color: str, json_out: bool,
) -> None:
    from dataclasses import replace

    from specsim.commands.generate_run import Comparison, run_once, to_dict
    from specsim.commands.generate_text import LiveText, report_text, use_color
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import DecoderOptions, SamplingParams
    from specsim.report.tables import to_json

    params = SamplingParams(**sampling.values)  # type: ignore[arg-type]
    tokenizer = d.read_tokenizer(plan)
    if chat:
        ids = tokenizer.encode_chat([{"role": "user", "content": text}])
    else:
        ids = tokenizer.encode(text)
    loaded = d.load(plan, len(ids) + params.max_tokens, threads)
    if params.top_k >= loaded.target.config.vocab_size:
        params = replace(params, top_k=0)
    engine = Engine(loaded.target.model, loaded.options(1), draft=loaded.draft)
    engines = [engine]
    if compare and plan.k:
        engines.append(Engine(loaded.target.model, DecoderOptions(
            max_num_seqs=1, max_model_len=loaded.max_model_len)))
    for each in engines:
        # First calls pay for memory and kernels; neither side of the comparison should.
        each.generate([ids[: min(8, len(ids))]],
                      SamplingParams(max_tokens=min(4, params.max_tokens), ignore_eos=True))

    shown = not json_out
    live = LiveText(tokenizer, sys.stdout.write if shown else lambda _: None,
                    color=shown and use_color(sys.stdout, color), terminal=sys.stdout.isatty())

    def on_step(output: object) -> None:
        live.step(output)  # type: ignore[arg-type]
        sys.stdout.flush()

    answers = [[run_once(engine, ids, params, on_step)]]
    if shown and not live.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    answers += [[run_once(other, ids, params)] for other in engines[1:]]
    for _ in range(runs - 1):
        for found, each in zip(answers, engines, strict=True):
            found.append(run_once(each, ids, params))
    result = Comparison(tuple(answers[0]), tuple(answers[1]) if len(answers) > 1 else ())
    if json_out:
        head = {"model": plan.model, "method": plan.method, "draft": plan.drafter,
                "num_speculative_tokens": plan.k, "dtype": plan.dtype,
                "device": str(loaded.target.model.device), "threads": loaded.threads,
                "prompt_tokens": len(ids), "sampling": sampling.values, "text": live.text}
        sys.stdout.write(to_json(head | to_dict(result, plan.k, params.greedy)) + "\n")
        return
    with_draft = f"{plan.method.replace('_', '-')}, k = {plan.k}" if plan.k else "no drafts"
    where = f"{loaded.threads} CPU threads" if loaded.target.model.device.type == "cpu" else "cuda"
    what = f"\n{plan.model}, {plan.dtype}, {with_draft}, {where}, {len(ids)} prompt tokens"
    sys.stderr.write(report_text(result, what, plan.k, greedy=params.greedy, dtype=plan.dtype))
