"""Prompts to train a draft head on, for `specsim train-head` without --prompts.

A head accepts best on the kinds of text it was trained on (a head trained on three kinds gave 1.67
tokens per step on those and 1.32 on others), so the built-in prompts are of many kinds. Besides,
the model makes up prompts itself: given an empty user turn, an instruction-tuned model writes what
a user might have asked (Xu et al. 2024 call it Magpie).
"""

import importlib
import inspect
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specsim.data import data_table
from specsim.errors import SpecSimError

if TYPE_CHECKING:
    from specsim.decoder.models import LoadedModel

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
