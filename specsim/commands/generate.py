"""`specsim generate`: a real answer, its drafts accepted and rejected in sight, and the speedup."""

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from specsim.commands import decoder_setup as d
from specsim.commands.bind import command
from specsim.errors import UsageError
from specsim.options.local import GenerateCommand
from specsim.report.tables import to_json
from specsim.rows import printable
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.commands.generate_run import Answer, SideBySide
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import SamplingParams
    from specsim.decoder.slots import StepOutput

MAX_PROMPT_CHARS = 4_000_000


@command(
    GenerateCommand,
    "specsim generate 'The capital of France is' --draft ngram -k 3",
)
def generate(options: GenerateCommand) -> None:
    """Generate text by speculative decoding with the bundled decoder. Measured against plain
    decoding. The text goes to standard output, the numbers to standard error. Accepted drafts are
    green, rejected ones red and struck through before the token that replaced them."""
    plan = d.plan(options.model, options.draft, options.k, options.dtype, options.device)
    text = sys.stdin.read(MAX_PROMPT_CHARS + 1) if options.prompt == "-" else options.prompt
    if not text:
        raise UsageError("the prompt is empty; give some text, or - for standard input")
    if len(text) > MAX_PROMPT_CHARS:
        raise UsageError(f"the prompt has more than {MAX_PROMPT_CHARS} characters; shorten it")
    d.need(d.DECODER_PACKAGES, "generate")
    d.prepare_torch(options.threads)
    from specsim.decoder.options import SamplingParams

    params = SamplingParams(
        max_tokens=options.max_new_tokens, temperature=options.temperature, top_k=options.top_k,
        top_p=options.top_p, seed=options.seed,
    )
    tokenizer = d.read_tokenizer(plan)
    ids = (tokenizer.encode_chat([{"role": "user", "content": text}]) if options.chat
           else tokenizer.encode(text))
    loaded = d.load(plan, len(ids) + options.max_new_tokens, options.threads)
    if options.top_k >= loaded.target.config.vocab_size:
        params = replace(params, top_k=0)  # a filter wider than the vocabulary is none
    _run(_Bench(loaded, ids, params), options)


class _Bench:
    """The request, and engines for it. Warmed up: first calls pay for memory and kernels, and
    neither side of a comparison should."""

    def __init__(self, loaded: d.LoadedDecoder, ids: list[int], params: "SamplingParams") -> None:
        self.loaded, self.ids, self.params = loaded, ids, params
        self._kept: Engine | None = None

    def _warm(self, engine: "Engine") -> "Engine":
        from specsim.decoder.options import SamplingParams

        tokens = min(4, self.params.max_tokens)
        engine.generate([self.ids[:8]], SamplingParams(max_tokens=tokens, ignore_eos=True))
        return engine

    def speculative(self) -> "Engine":
        """The engine with drafts; a new one each time where it remembers answers (suffix), since it
        would know this one from the run before."""
        from specsim.decoder.engine import Engine

        if self._kept is None or self.loaded.plan.method == "suffix":
            self._kept = self._warm(Engine(
                self.loaded.target.model, self.loaded.options(1), draft=self.loaded.draft))
        return self._kept

    def plain(self) -> "Engine":
        from specsim.decoder.engine import Engine
        from specsim.decoder.options import DecoderOptions

        options = DecoderOptions(max_num_seqs=1, max_model_len=self.loaded.max_model_len)
        return self._warm(Engine(self.loaded.target.model, options))

    def measure(self, first: "Answer", runs: int, compare: bool) -> "SideBySide":
        """The runs to report. first: the run that was shown; it counts where nothing runs beside
        it."""
        from specsim.commands.generate_run import SideBySide, run_once, run_side_by_side

        if not compare or not self.loaded.plan.k:
            more = [run_once(self.speculative(), self.ids, self.params) for _ in range(runs - 1)]
            return SideBySide((first, *more), ())
        plain, pairs = self.plain(), []
        for _ in range(runs):
            engines = [self.speculative(), plain]
            if plain.target.device.type == "cpu":
                pairs.append(run_side_by_side(engines, self.ids, self.params))
            else:
                pairs.append([run_once(engine, self.ids, self.params) for engine in engines])
        return SideBySide(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def _run(bench: _Bench, options: GenerateCommand) -> None:
    from specsim.commands.generate_run import LiveText, report_text, run_once, to_dict, use_color

    loaded, params, plan = bench.loaded, bench.params, bench.loaded.plan
    engine = bench.speculative()
    shown = not options.json_out
    live = LiveText(
        loaded.tokenizer, sys.stdout.write if shown else lambda _: None,
        color=shown and use_color(sys.stdout, options.color), terminal=sys.stdout.isatty(),
    )

    def on_step(output: "StepOutput") -> None:
        live.step(output)
        sys.stdout.flush()

    first = run_once(engine, bench.ids, params, on_step)
    if shown and not live.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    result = bench.measure(first, options.repeat, options.compare)
    device = loaded.target.model.device
    if options.json_out:
        head = {"model": plan.model, "method": plan.method, "draft": plan.drafter,
                "num_speculative_tokens": plan.k, "dtype": plan.dtype, "device": str(device),
                "threads": loaded.threads, "prompt_tokens": len(bench.ids),
                "sampling": asdict(params), "text": live.text}
        sys.stdout.write(to_json(head | to_dict(result, plan.k, params.greedy)) + "\n")
        return
    drafts = f"{plan.method.replace('_', '-')}, k = {plan.k}" if plan.k else "no drafts"
    threads = counted(loaded.threads, "CPU thread")
    where = threads if device.type == "cpu" else str(device)
    what = f"\n{plan.model}, {plan.dtype}, {drafts}, {where}, {len(bench.ids)} prompt tokens"
    text = report_text(result, what, plan.k, greedy=params.greedy, dtype=plan.dtype)
    sys.stderr.write(printable(text))
