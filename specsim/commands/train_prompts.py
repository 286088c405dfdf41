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

from specsim.errors import SpecSimError

if TYPE_CHECKING:
    from specsim.decoder.models import LoadedModel

_TOPICS = (
    "bread baking", "tides", "the printing press", "vaccines", "bicycle brakes", "volcanoes",
    "compound interest", "honey bees", "glaciers", "electric motors", "the silk road", "soap",
    "batteries", "earthquakes", "coffee roasting", "migrating birds", "concrete", "the moon",
    "photosynthesis", "chess openings", "lighthouses", "dreams", "rust", "inflation", "violins",
    "antibiotics", "satellites", "fermentation", "maps", "coral reefs", "paper", "wind turbines",
)
_ASK = (
    "Explain how {} works or came about, in plain words.",
    "Give me five facts about {}.",
    "Write a short story in which {} plays a part.",
    "What are the advantages and disadvantages of {}?",
    "Make a numbered list of steps for a beginner who wants to learn about {}.",
    "Write a dialogue between a teacher and a pupil about {}.",
    "Write a polite e-mail that invites a friend to a talk about {}.",
    "Compare {} with something similar and say how they differ.",
    "Answer as an expert: what do people often get wrong about {}?",
    "Write a four-line poem about {}.",
)
_SUMS = (
    "{a} boxes hold {b} apples each. {c} apples are eaten. How many are left? Show your steps.",
    "A train goes {a} km in {b} hours. How far does it go in {c} hours at the same speed?",
    "Anna has {a} coins, Ben has {b} more than Anna, and they share {c} coins with a friend. How "
    "many do they have left together?",
    "A shop sells pens at {a} cents and books at {b} dollars. What do {c} pens and two books cost?",
)
_CODE = (
    "Write a Python function that returns the {} of a list of numbers.",
    "Write a Python function with a docstring that checks whether a string {}.",
    "Find the error in this Python code and correct it:\n"
    "def total(items):\n    for item in items:\n        total += item\n    return {}",
)
_CODE_WORDS = (
    ("largest value", "median", "second smallest value", "running sums", "product",
     "differences of neighbours", "mode", "range"),
    ("is a palindrome", "is a valid number", "contains only vowels", "is in upper case",
     "starts and ends alike", "has balanced brackets"),
    ("total", "items", "sum", "result"),
)
_EDIT = (
    "Rewrite this text in the past tense:\n{}", "Translate into French:\n{}",
    "Summarise in one sentence:\n{}", "List the nouns of this text:\n{}",
    "Repeat this text exactly, then add one sentence:\n{}",
)
_TEXTS = (
    "The baker opens the shop at six. She lights the oven, weighs the flour and kneads the dough. "
    "When the first customers come, the loaves are still warm.",
    "A lighthouse keeper writes down the weather every evening. The wind turns, the rain stops, "
    "and ships pass far out. He counts them and closes the book.",
    "Our meeting moves to Thursday at ten. Please bring the budget, the plan for the new office "
    "and a list of open questions.",
    "The river rises in spring when the snow melts. Farmers watch the dikes, move their animals "
    "to higher ground and wait for the water to fall.",
)
_MODULES = ("statistics", "textwrap", "random", "shutil", "math", "itertools", "functools", "json",
            "os.path", "re", "string", "bisect", "heapq", "datetime", "csv", "fractions")
_LIBRARY = ("Explain what Python's {} does and show an example.",
            "Show how to use Python's {} in a short program.")


def built_in_prompts(seed: int) -> list[str]:
    """Some hundreds of prompts in an order drawn from the seed; the same for the same Python."""
    rng = random.Random(seed)
    out = [ask.format(topic) for ask in _ASK for topic in _TOPICS]
    for sums in _SUMS:
        for _ in range(30):
            a, b, c = rng.randint(2, 60), rng.randint(2, 20), rng.randint(2, 30)
            out.append(sums.format(a=a, b=b, c=c))
    for code, words in zip(_CODE, _CODE_WORDS, strict=True):
        out += [code.format(word) for word in words]
    out += [edit.format(text) for edit in _EDIT for text in _TEXTS]
    names = _functions()
    out += [rng.choice(_LIBRARY).format(name) for name in names]
    rng.shuffle(out)
    return out


def _functions() -> list[str]:
    """Public functions and classes of some standard modules, by their full names."""
    found = []
    for name in _MODULES:
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
    from specsim.decoder.requests import EngineRequest

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
