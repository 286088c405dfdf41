"""What a draft head is trained on: the target's own greedy answers and its hidden states over them.

Answers are kept in a file, one JSON line each, as they finish: {"index": prompt number,
"prompt_ids": [...], "out_ids": [...]}. Hidden states are cheaper to compute again (one pass over
each answer) than to keep.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specsim.decoder.attention import SlotAttention
from specsim.decoder.engine import Engine
from specsim.decoder.kv_cache import BlockTable
from specsim.decoder.options import SamplingParams
from specsim.decoder.slots import EngineRequest
from specsim.decoder.transformer import Transformer
from specsim.errors import FormatError
from specsim.files import told
from specsim.jsonable import json_text


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """A prompt and the target's greedy answer to it, as token ids."""

    prompt_ids: tuple[int, ...]
    out_ids: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.out_ids


def read_answers(path: Path) -> dict[int, TargetAnswer]:
    """Answers by prompt number; a last line that was cut short is left out."""
    out: dict[int, TargetAnswer] = {}
    if not path.is_file():
        return out
    lines = path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            prompt, answer = (tuple(map(int, raw[name])) for name in ("prompt_ids", "out_ids"))
            out[int(raw.get("index", number - 1))] = TargetAnswer(prompt, answer)
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                break
            raise FormatError(
                f"{path} line {number} is no answer (prompt_ids and out_ids, lists of token ids); "
                "remove the line or the file"
            ) from None
    return out


def collect_answers(
    engine: Engine, prompts: Sequence[Sequence[int]], path: Path, *, max_new: int,
    tokens: int, stop: Callable[[], bool], on_answer: Callable[[int], None] | None = None,
) -> dict[int, TargetAnswer]:
    """Greedy answers to `prompts`, appended to `path` as they finish, continuing what it holds.

    Ends with `tokens` answer tokens in all, when `stop()` says so, or with the prompts.
    """
    known = read_answers(path)
    _cut_torn_line(path)
    total = sum(len(a.out_ids) for a in known.values())
    todo = iter([i for i in range(len(prompts)) if i not in known])
    params = SamplingParams(max_tokens=max_new)
    with told(path), path.open("a", encoding="utf-8") as file:
        while total < tokens and not stop():
            while engine.num_running + engine.num_waiting < engine.options.max_num_seqs:
                number = next(todo, None)
                if number is None:
                    break
                engine.add(EngineRequest(str(number), tuple(prompts[number]), params))
            if not engine.has_work:
                break
            for output in engine.step():
                if not output.finished:
                    continue
                number = int(output.request_id)
                made = engine.finished.pop(output.request_id).token_ids
                known[number] = TargetAnswer(tuple(prompts[number]), tuple(made))
                total += len(made)
                file.write(json_text({"index": number, "prompt_ids": list(prompts[number]),
                                       "out_ids": made}) + "\n")
                file.flush()
                if on_answer is not None:
                    on_answer(total)
    return known


def _cut_torn_line(path: Path) -> None:
    if path.is_file():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


@torch.inference_mode()
def hidden_states(target: Transformer, ids: Sequence[int]) -> Tensor:
    """The target's hidden states before the final norm, [len(ids), H], of one sequence."""
    count = len(ids)
    cache = target.new_cache(1, BlockTable(1, count, count, target.device), SlotAttention())
    return target.forward(torch.tensor(ids), target.prompt_plan(0, 0, count, cache))


def frequent_tokens(answers: Sequence[TargetAnswer], size: int, vocab_size: int) -> Tensor:
    """The head's vocabulary: the answers' most frequent tokens, filled up with the lowest ids,
    which a byte-level BPE gives to its most general tokens. Sorted, int64."""
    counts: dict[int, int] = {}
    for answer in answers:
        for token in answer.out_ids:
            counts[token] = counts.get(token, 0) + 1
    chosen = sorted(counts, key=lambda t: (-counts[t], t))[:size]
    have = set(chosen)
    rest = (t for t in range(vocab_size) if t not in have)
    while len(chosen) < min(size, vocab_size):
        chosen.append(next(rest))
    return torch.tensor(sorted(chosen), dtype=torch.int64)
