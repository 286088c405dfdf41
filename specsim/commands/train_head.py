"""`specsim train-head`: a draft head for a model, trained on the model's own answers.

A head accepts best on the kinds of text it was trained on (a head trained on three kinds gave 1.67
tokens per step on those and 1.32 on others), so the built-in prompts are of many kinds. Besides,
the model makes up prompts itself: given an empty user turn, an instruction-tuned model writes what
a user might have asked (Xu et al. 2024 call it Magpie).
"""

import hashlib
import importlib
import inspect
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.client.prompts import read_prompts
from specsim.commands import decoder_setup as d
from specsim.commands.bind import INTERRUPTED, Ended, command
from specsim.data import data_table
from specsim.errors import SpecSimError, UsageError
from specsim.files import write_whole
from specsim.jsonable import json_text
from specsim.options.local import TrainHeadCommand
from specsim.options.values import parse_duration
from specsim.report.tables import to_json

if TYPE_CHECKING:
    from torch import Tensor

    from specsim.decoder.distill import TargetAnswer
    from specsim.decoder.drafters.eagle import EagleWeights
    from specsim.decoder.models import LoadedModel
    from specsim.decoder.training import Example, Recipe


def built_in_prompts(seed: int) -> list[str]:
    """Some hundreds of prompts in an order drawn from the seed; the same for the same Python."""
    rng = random.Random(seed)
    raw = data_table("catalog", "prompts.toml")["train"]
    out = [ask.format(topic) for ask in raw["ask"] for topic in raw["topics"]]
    for sums in raw["sums"]:
        for _ in range(30):
            a, b, c = rng.randint(2, 60), rng.randint(2, 20), rng.randint(2, 30)
            out.append(sums.format(a=a, b=b, c=c))
    for code in raw["code"]:
        out += [code["ask"].format(word) for word in code["words"]]
    out += [edit.format(given) for edit in raw["edit"] for given in raw["texts"]]
    out += [rng.choice(raw["library"]).format(name) for name in _functions(raw["modules"])]
    rng.shuffle(out)
    return out


def _functions(modules: Sequence[str]) -> list[str]:
    """Public functions and classes of some standard modules, by their full names."""
    found = []
    for name in modules:
        module = importlib.import_module(name)
        for item in sorted(getattr(module, "__all__", None) or dir(module)):
            thing = getattr(module, item)
            if not item.startswith("_") and (inspect.isroutine(thing) or inspect.isclass(thing)):
                found.append(f"{name}.{item}")
    return found


def self_made_prompts(
    loaded: "LoadedModel", wanted: int, seed: int, *, stop: Callable[[], bool],
    on_prompt: Callable[[int], None] | None = None,
) -> list[list[int]]:
    """Token ids of chats whose user turn the model wrote itself (temperature 1, top-p 0.95).

    Up to `wanted`, fewer when `stop()` says so or too few turns come to an end; none when the model
    has no chat template.
    """
    from specsim.decoder.engine import Engine
    from specsim.decoder.options import DecoderOptions, SamplingParams
    from specsim.decoder.slots import EngineRequest

    tokenizer, mark = loaded.tokenizer(), "\u2042"
    try:
        whole = tokenizer.chat_text([{"role": "user", "content": mark}])
    except SpecSimError:
        return []
    head, _, tail = whole.partition(mark)
    prefix, suffix = (tokenizer.encode(part, special=False) for part in (head, tail))
    most = 96
    engine = Engine(loaded.model, DecoderOptions(max_num_seqs=32, max_model_len=len(prefix) + most,
                                                 seed=seed))
    params = SamplingParams(max_tokens=most, temperature=1.0, top_p=0.95)
    stops = set(loaded.config.eos_token_ids)
    made: list[list[int]] = []
    number = 0
    while len(made) < wanted and not stop() and number < 64 + 4 * wanted:
        while engine.num_running + engine.num_waiting < engine.options.max_num_seqs:
            engine.add(EngineRequest(f"turn-{number}", prefix, params))
            number += 1
        for output in engine.step():
            if not output.finished:
                continue
            turn = engine.finished.pop(output.request_id).token_ids
            if turn[-1] in stops and len(turn) > 4:  # a finished turn of some length
                made.append([*prefix, *_without(turn, stops), *suffix])
                if on_prompt is not None:
                    on_prompt(len(made))
    return made[:wanted]


def _without(ids: Sequence[int], stops: set[int]) -> list[int]:
    return [token for token in ids if token not in stops]


# Shares of the budget: answers may take this much, then features and training the rest.
_ANSWERS, _RESERVE = 0.4, 0.08
_BATCH = 32  # prompts answered side by side
_JUDGED = 12  # held-out prompts decoded with the finished head


@command(
    TrainHeadCommand,
    "specsim train-head --out my-head --budget 20m",
)
def train_head(options: TrainHeadCommand) -> None:
    """Train a one-layer draft head by self-distillation. Inside a time budget. Ctrl-C keeps answers
    and weights; the same command goes on where it stopped."""
    started = time.monotonic()
    budget_s = parse_duration(options.budget, "--budget")
    given = None if options.prompts is None else [
        str(prompt.content) for prompt in read_prompts(options.prompts, plain=True)]
    d.need(d.DECODER_PACKAGES, "train-head")
    d.prepare_torch(options.threads)

    from specsim.decoder.models import load_model
    from specsim.decoder.training import Recipe
    from specsim.report.progress import live_bar

    loaded = load_model(options.model)
    if loaded.folder is None:
        name = repr(options.model)
        raise UsageError(f"model {name} has random weights; a head needs a trained model")
    recipe = Recipe(
        epochs=options.epochs, vocab_size=min(options.vocab_size, loaded.config.vocab_size)
    )
    job = _Job(loaded, options.out, recipe, options.seed, started, budget_s, options.init)
    job.check_folder({
        "model": loaded.name, "seed": options.seed, "max_new_tokens": options.max_new_tokens,
        "vocab_size": recipe.vocab_size,
        "init": None if options.init is None else options.init.name,
        "prompts": "built-in" if options.prompts is None else _digest(given),
    })
    try:
        columns = ("{task.description}", "bar", "{task.completed:.0f}/{task.total:.0f}", "time",
                   f"of {budget_s:.0f} s")
        with live_bar(
            sys.stderr.isatty(), *columns, begin="starting", total=1, transient=False
        ) as job.bar:
            result = job.run(given, options.tokens, options.max_new_tokens)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"specsim: interrupted; answers and weights so far are in {options.out}, the same "
            "command goes on from there\n"
        )
        raise Ended(INTERRUPTED) from None
    sys.stdout.write((to_json(result) if options.json_out else _text(options.out, result)) + "\n")


class _Job:
    """One run of the command. bar: where progress goes."""

    def __init__(
        self, loaded: "LoadedModel", out: Path, recipe: "Recipe", seed: int, started: float,
        budget_s: float, init: Path | None,
    ) -> None:
        self.loaded, self.out, self.recipe, self.seed = loaded, out, recipe, seed
        self.started, self.budget_s, self.init = started, budget_s, init
        self.bar: Callable[..., None] | None = None

    def show(self, what: str, done: float, total: float) -> None:
        if self.bar is not None:
            self.bar(description=what, completed=done, total=max(1, total))

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def check_folder(self, plan: dict[str, object]) -> None:
        """Refuse a folder whose answers are of another model, seed or prompts."""
        path = self.out / "plan.json"
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            before = json.loads(path.read_text("utf-8")) if path.is_file() else plan
        except OSError as error:
            raise UsageError(f"cannot write {self.out}: {error.strerror}; choose another --out"
                             ) from None
        except ValueError:
            before = {}
        for name, value in plan.items():
            if not isinstance(before, dict) or before.get(name) != value:
                raise UsageError(
                    f"{self.out} holds answers made with another {name}; choose another --out"
                )
        write_whole(path, json_text(plan, indent=1) + "\n")

    def run(self, given: list[str] | None, tokens: int, max_new: int) -> dict[str, object]:
        import torch

        from specsim.decoder.training import HeadNet, accuracy, head_weights, train

        answers = self._answers(given, tokens, max_new)
        if len(answers) < 2:
            raise UsageError(
                f"only {len(answers)} answers fitted into the budget; raise --budget or lower "
                "--max-new-tokens"
            )
        held = max(1, round(self.recipe.held_out * len(answers)))
        learn, judge = answers[held:], answers[:held]
        target = self.loaded.model
        start, vocab = self._start(learn)
        examples = self._examples(learn, vocab)
        judged = self._examples(judge, vocab)
        net = HeadNet(start, self.loaded.config, target.embed, target.head_weight[vocab])
        left = self.budget_s * (1 - _RESERVE) - self.elapsed()
        state = train(
            net, examples, self.recipe, self.out / "checkpoint.safetensors",
            budget_s=max(1.0, left), seed=self.seed, clock=time.monotonic,
            on_step=lambda s: self.show("training", s.iteration, s.planned),
        )
        weights = head_weights(net, vocab)
        weights.save(self.out / "head.safetensors")
        shares = accuracy(net, judged, self.recipe)
        real = self._decode(weights, judge)
        result = {
            "head": str(self.out / "head.safetensors"),
            "answers": len(learn), "answer_tokens": sum(len(a.out_ids) for a in learn),
            "iterations": state.iteration, "planned_iterations": state.planned,
            "training_s": round(state.seconds, 1), "losses": [round(x, 4) for x in state.losses],
            "held_out_answers": len(judge),
            "teacher_forced_accuracy": [round(x, 4) for x in shares],
            **real, "elapsed_s": round(self.elapsed(), 1),
            "threads": torch.get_num_threads(),
        }
        write_whole(self.out / "report.json", json_text(result, indent=1) + "\n")
        return result

    # ------------------------------------------------------------------ stages

    def _start(self, learn: "list[TargetAnswer]") -> "tuple[dict[str, Tensor], Tensor]":
        """Weights to begin with, and the head's vocabulary."""
        from specsim.decoder.distill import frequent_tokens
        from specsim.decoder.drafters.eagle import EagleWeights
        from specsim.decoder.training import initial_weights

        config, folder = self.loaded.config, self.loaded.folder
        assert folder is not None
        start = initial_weights(folder, config, self.seed)
        if self.init is None:
            return start, frequent_tokens(learn, self.recipe.vocab_size, config.vocab_size)
        head = EagleWeights.load(self.init)
        for name, tensor in start.items():
            if head.tensors[name].shape != tensor.shape:
                raise UsageError(
                    f"{self.init}: {name} has shape {tuple(head.tensors[name].shape)}, this model "
                    f"needs {tuple(tensor.shape)}; the head is of another model"
                )
        if head.vocab is None:
            return dict(head.tensors), frequent_tokens([], config.vocab_size, config.vocab_size)
        return dict(head.tensors), head.vocab

    def _answers(self, given: list[str] | None, tokens: int, max_new: int) -> "list[TargetAnswer]":
        """Answers in a shuffled order that depends on the seed alone."""
        import random

        from specsim.decoder.distill import collect_answers
        from specsim.decoder.engine import Engine
        from specsim.decoder.options import DecoderOptions

        prompts = self._prompts(given, tokens, max_new)
        longest = max(len(p) for p in prompts)
        engine = Engine(self.loaded.model, DecoderOptions(
            max_num_seqs=_BATCH, max_model_len=longest + max_new + 1, seed=self.seed))
        deadline = self.budget_s * _ANSWERS
        known = collect_answers(
            engine, prompts, self.out / "answers.jsonl", max_new=max_new, tokens=tokens,
            stop=lambda: self.elapsed() > deadline,
            on_answer=lambda total: self.show("answering", total, tokens),
        )
        kept = [known[i] for i in sorted(known) if len(known[i].out_ids) > 2]
        random.Random(self.seed).shuffle(kept)
        return kept

    def _prompts(self, given: list[str] | None, tokens: int, max_new: int) -> list[list[int]]:
        """Token ids of all prompts, kept in prompts.jsonl: a continued run must see the same."""
        from specsim.commands.train_head import built_in_prompts, self_made_prompts

        path = self.out / "prompts.jsonl"
        if path.is_file():
            lines = path.read_text("utf-8").splitlines()
            return [[int(t) for t in json.loads(line)] for line in lines]
        tokenizer = self.loaded.tokenizer()
        texts = built_in_prompts(self.seed) if given is None else given
        room = self.loaded.config.max_position - max_new - 2
        chats = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in texts]
        prompts = [ids for ids in chats if len(ids) <= min(room, 1024)]
        if not prompts:
            raise UsageError(f"none of the {len(texts)} prompts is short enough; give shorter ones")
        if given is None:
            # As many again made up by the model itself, at most an eighth of the budget.
            until = self.elapsed() + self.budget_s / 8
            wanted = min(len(prompts), 1 + tokens // 100)
            made = self_made_prompts(
                self.loaded, wanted, self.seed, stop=lambda: self.elapsed() > until,
                on_prompt=lambda n: self.show("making prompts", n, wanted),
            )
            # Taken in turn, so that a short run sees both kinds.
            mixed = [p for pair in zip(prompts, made, strict=False) for p in pair]
            prompts = mixed + prompts[len(made) :]
        write_whole(path, "".join(json_text(ids) + "\n" for ids in prompts))
        return prompts

    def _examples(self, answers: "list[TargetAnswer]", vocab: "Tensor") -> "list[Example]":
        import torch

        from specsim.decoder.distill import hidden_states
        from specsim.decoder.training import make_example

        rows = torch.full((self.loaded.config.vocab_size,), -100)
        rows[vocab] = torch.arange(len(vocab))
        out = []
        for number, answer in enumerate(answers):
            ids = answer.ids[: self.recipe.max_len + 2]
            hidden = hidden_states(self.loaded.model, ids)
            out.append(make_example(answer, hidden, rows, self.recipe.max_len))
            self.show("reading answers", number, len(answers))
        return [example for example in out if bool((example.labels != -100).any())]

    def _decode(self, weights: "EagleWeights", judge: "list[TargetAnswer]") -> dict[str, object]:
        """Real decoding of held-out prompts with the head: tokens per step."""
        from specsim.decoder.engine import Engine
        from specsim.decoder.options import DecoderOptions, SamplingParams

        k, chosen = 4, judge[:_JUDGED]
        longest = max(len(a.ids) for a in chosen)
        engine = Engine(self.loaded.model, DecoderOptions(
            method="eagle", num_speculative_tokens=k, max_num_seqs=_BATCH,
            max_model_len=longest + 2), draft=weights)
        most = max(len(a.out_ids) for a in chosen)
        engine.generate([a.prompt_ids for a in chosen], SamplingParams(max_tokens=most))
        stats = engine.stats
        per_position = [
            round(n / max(1, stats.num_drafts), 4) for n in stats.accepted_per_position
        ]
        return {"judged_requests": len(chosen), "num_speculative_tokens": k,
                "acceptance_length": round(stats.acceptance_length, 4),
                "acceptance_per_position": per_position}


def _digest(prompts: list[str] | None) -> str:
    return hashlib.sha256(json_text(prompts).encode()).hexdigest()[:16]


def _text(out: Path, result: dict[str, Any]) -> str:
    shares = ", ".join(f"{x:.1%}" for x in result["teacher_forced_accuracy"])
    rates = ", ".join(f"{x:.2f}" for x in result["acceptance_per_position"])
    return "\n".join((
        f"{result['head']}: trained on {result['answer_tokens']} tokens of {result['answers']} "
        f"answers, {result['iterations']} iterations in {result['training_s']:.0f} s",
        f"held-out answers, teacher-forced: {shares} of tokens right at steps 1, 2, ...",
        f"held-out prompts, decoded with k = {result['num_speculative_tokens']}: "
        f"{result['acceptance_length']:.2f} tokens per step (accepted per position: {rates})",
        f"use it: specsim generate PROMPT --draft {out / 'head.safetensors'}",
    ))
