"""Training a head: what is trained is what the decoder runs, it learns, and it resumes."""

import json
from dataclasses import replace

import pytest
import torch

from measure_helpers import TINY, tiny_folder
from specsim.decoder.config import read_config
from specsim.decoder.distill import (
    TargetAnswer,
    collect_answers,
    frequent_tokens,
    hidden_states,
    read_answers,
)
from specsim.decoder.drafters.eagle import EagleWeights, shipped_head
from specsim.decoder.engine import Engine
from specsim.decoder.models import load_model
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest
from specsim.decoder.training import (
    HeadNet,
    Recipe,
    TrainState,
    accuracy,
    batches,
    head_weights,
    initial_weights,
    learning_rate,
    make_example,
    train,
)
from specsim.errors import FormatError, UsageError

RECIPE = Recipe(vocab_size=60, batch_seqs=4, autocast=False, epochs=4, max_len=64)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("target") / "tiny")
    return load_model(folder, dtype="fp32")


def noisy_weights(loaded, seed: int) -> dict[str, torch.Tensor]:
    """Initial weights disturbed, so that every part of the head matters."""
    draw = torch.Generator().manual_seed(seed)
    start = initial_weights(loaded.folder, loaded.config, seed)
    return {name: t + 0.2 * torch.randn(t.shape, generator=draw) for name, t in start.items()}


def rows_of(vocab: torch.Tensor) -> torch.Tensor:
    rows = torch.full((TINY.vocab_size,), -100)
    rows[vocab] = torch.arange(len(vocab))
    return rows


@torch.no_grad()
def test_the_trained_function_is_the_one_the_decoder_runs(loaded) -> None:
    """The unrolled network gives, draft for draft, what the engine's head proposes."""
    vocab = torch.arange(0, 97, 2)
    target = loaded.model
    net = HeadNet(noisy_weights(loaded, 3), loaded.config, target.embed, target.head_weight[vocab])
    tensors = {name: p.detach() for name, p in net.weights.items()}
    weights = EagleWeights(tensors, vocab, int(vocab.max()))
    k, prompts = 4, [[5, 17, 80, 2, 9, 44, 31], [1, 2, 3], list(range(20, 33))]
    distinct = set()
    for prompt in prompts:
        engine = Engine(target, DecoderOptions(method="eagle", num_speculative_tokens=k,
                                               max_num_seqs=1, max_model_len=64), draft=weights)
        engine.add(EngineRequest("r", prompt, SamplingParams(max_tokens=12, ignore_eos=True)))
        drafts: tuple[int, ...] = ()
        first: tuple[int, ...] = ()
        while not drafts:
            for output in engine.step():
                drafts = output.drafts
                first = first or output.token_ids
        ids = [*prompt, *first, *drafts[:-1]]
        hidden = hidden_states(target, ids).unsqueeze(0)
        states = net(torch.tensor([ids[1:]]), hidden[:, :-1], k)
        last = len(prompt) - 1
        got = [int(vocab[net.logits(states[s][0, last + s]).argmax()]) for s in range(k)]
        assert tuple(got) == drafts
        distinct |= set(drafts)
    assert len(distinct) > 3  # the drafts are not one constant


def test_hidden_states_give_the_targets_greedy_answer(loaded) -> None:
    engine = Engine(loaded.model, DecoderOptions(max_num_seqs=1, max_model_len=64))
    prompt = [3, 14, 15, 92, 65]
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    answer = engine.generate([prompt], params)[0].token_ids
    hidden = hidden_states(loaded.model, [*prompt, *answer])
    assert hidden.shape == (14, TINY.hidden_size)
    best = loaded.model.logits(hidden).argmax(-1).tolist()
    assert best[4:-1] == answer


def test_labels_are_the_answer_after_its_first_token() -> None:
    vocab = torch.tensor([10, 11, 12, 13])
    answer = TargetAnswer((1, 2, 10), (10, 11, 50, 13))
    example = make_example(answer, torch.randn(7, 4), rows_of(vocab), 64)
    assert example.tokens.tolist() == [2, 10, 10, 11, 50]
    # position t predicts token t+2; the answer's first token (index 3) is the target's own, so
    # the first label is index 4, at t = 2; token 50 is not in the vocabulary
    assert example.labels.tolist() == [-100, -100, 1, -100, 3]
    assert example.hidden.shape == (5, 4)
    cut = make_example(answer, torch.randn(7, 4), rows_of(vocab), 3)
    assert cut.labels.tolist() == [-100, -100, 1] and cut.hidden.shape == (3, 4)


def test_vocabulary_is_the_most_frequent_tokens_filled_up() -> None:
    answers = [TargetAnswer((90,), (7, 7, 7, 5)), TargetAnswer((91,), (5, 9))]
    assert frequent_tokens(answers, 2, 97).tolist() == [5, 7]
    assert frequent_tokens(answers, 5, 97).tolist() == [0, 1, 5, 7, 9]
    assert frequent_tokens(answers, 500, 97).tolist() == list(range(97))


def corpus(loaded, count: int = 24) -> list[TargetAnswer]:
    """Answers with a rule the head can learn from a token and the target's state: x, x+3, x+6..."""
    out = []
    for i in range(count):
        text = [(i + 3 * j) % 60 for j in range(18)]
        out.append(TargetAnswer(tuple(text[:4]), tuple(text[4:])))
    return out


def examples(loaded, answers):
    rows = rows_of(torch.arange(60))
    return [make_example(a, hidden_states(loaded.model, a.ids), rows, 64) for a in answers]


def new_net(loaded) -> HeadNet:
    target = loaded.model
    return HeadNet(initial_weights(loaded.folder, loaded.config, 0), loaded.config, target.embed,
                   target.head_weight[:60])


@pytest.mark.slow
def test_training_learns_and_its_head_is_accepted_more(loaded, tmp_path) -> None:
    answers = corpus(loaded)
    learn, judge = examples(loaded, answers[:20]), examples(loaded, answers[20:])
    net = new_net(loaded)
    before = accuracy(net, judge, RECIPE)
    recipe = replace(RECIPE, epochs=60, learning_rate=5e-3)
    state = train(net, learn, recipe, tmp_path / "c.safetensors", budget_s=60, seed=0)
    after = accuracy(net, judge, recipe)
    assert state.iteration == state.planned == 300
    assert state.losses[-1] < 0.5 * state.losses[0]
    assert all(b > a + 0.3 for a, b in zip(before, after, strict=True)), (before, after)
    weights = head_weights(net, torch.arange(60))
    weights.save(tmp_path / "head.safetensors")
    again = EagleWeights.load(tmp_path / "head.safetensors")
    assert again.vocab is not None and again.vocab.tolist() == list(range(60))
    assert {n: t.dtype for n, t in again.tensors.items()} == dict.fromkeys(again.tensors,
                                                                          torch.bfloat16)


def test_stopped_training_continues_to_the_same_weights(loaded, tmp_path) -> None:
    """Two runs of six iterations end where one of twelve does: weights, moments, batches and
    learning rates are all restored."""
    learn = examples(loaded, corpus(loaded))  # 6 batches an epoch
    recipe = replace(RECIPE, epochs=2)
    whole = new_net(loaded)
    train(whole, learn, recipe, tmp_path / "whole.safetensors", budget_s=1e9, seed=1)

    class Stop(Exception):
        pass

    def stop_at_six(state: TrainState) -> None:
        if state.iteration == 6:
            raise Stop

    half = new_net(loaded)
    with pytest.raises(Stop):
        train(half, learn, recipe, tmp_path / "half.safetensors", budget_s=1e9, seed=1,
              on_step=stop_at_six)
    rest = new_net(loaded)  # a new process: only the file is left
    state = train(rest, learn, recipe, tmp_path / "half.safetensors", budget_s=1e9, seed=1)
    assert state.iteration == 12
    for name, p in whole.weights.items():
        assert torch.allclose(rest.weights[name], p, atol=1e-6), name
    assert not torch.allclose(rest.weights["fc"], half.weights["fc"], atol=1e-6)


def test_training_stays_inside_its_budget_and_lowers_the_rate_first(loaded, tmp_path) -> None:
    now = [0.0]

    def tick(state: TrainState) -> None:
        now[0] += 1.0  # every iteration takes a second

    recipe = replace(RECIPE, epochs=100)
    state = train(new_net(loaded), examples(loaded, corpus(loaded)), recipe,
                  tmp_path / "c.safetensors", budget_s=25.0, seed=0, on_step=tick,
                  clock=lambda: now[0])
    assert state.iteration == state.planned == 25
    last = learning_rate(recipe, state.iteration - 1, state.planned)
    assert last < 0.2 * recipe.learning_rate


def test_learning_rate_by_hand() -> None:
    recipe = Recipe(learning_rate=1.0, warmup=10, floor=0.1)
    assert [learning_rate(recipe, i, 110) for i in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert learning_rate(recipe, 60, 110) == pytest.approx(0.55)  # half way: mean of peak and floor
    assert learning_rate(recipe, 110, 110) == pytest.approx(0.1)


def test_batches_are_of_like_length_and_drawn_per_epoch(loaded) -> None:
    made = examples(loaded, [TargetAnswer((1, 2), tuple(range(3, 6 + i % 5))) for i in range(20)])
    def order(epoch: int) -> list[list[int]]:
        return [[id(e) for e in group] for group in batches(made, 4, epoch, 7)]

    assert order(0) == order(0) != order(1) and sum(map(len, order(0))) == 20
    for group in batches(made, 4, 0, 7):
        lengths = [len(e.tokens) for e in group]
        assert max(lengths) - min(lengths) <= 1


def test_answers_are_kept_and_continued(loaded, tmp_path) -> None:
    path = tmp_path / "answers.jsonl"
    prompts = [[i, i + 1, i + 2] for i in range(9)]

    def engine() -> Engine:
        return Engine(loaded.model, DecoderOptions(max_num_seqs=2, max_model_len=32))

    first = collect_answers(engine(), prompts, path, max_new=6, tokens=20, stop=lambda: False)
    total = sum(len(a.out_ids) for a in first.values())
    assert 20 <= total < 54
    with path.open("a") as file:
        file.write('{"index": 8, "prom')  # a torn line
    rest = collect_answers(engine(), prompts, path, max_new=6, tokens=10**6, stop=lambda: False)
    assert sorted(rest) == list(range(9)) and rest == read_answers(path)
    whole = engine().generate(prompts, SamplingParams(max_tokens=6))
    assert [list(rest[i].out_ids) for i in range(9)] == [r.token_ids for r in whole]
    assert all(len(json.loads(line)["out_ids"]) == 6 for line in path.read_text().splitlines())


def test_broken_files_are_named(loaded, tmp_path) -> None:
    answers = tmp_path / "a.jsonl"
    answers.write_text('{"prompt_ids": [1]}\n{"prompt_ids": [1], "out_ids": [2]}\n')
    with pytest.raises(FormatError, match="line 1"):
        read_answers(answers)
    checkpoint = tmp_path / "c.safetensors"
    checkpoint.write_bytes(b"nothing")
    with pytest.raises(FormatError, match="no checkpoint of this head"):
        train(new_net(loaded), [], RECIPE, checkpoint, budget_s=1, seed=0)


def test_targets_with_experts_are_refused(loaded) -> None:
    config = replace(read_config(loaded.folder), num_experts=4, num_experts_per_tok=2)
    with pytest.raises(UsageError, match="experts"):
        initial_weights(loaded.folder, config, 0)


def test_heads_that_do_not_ship() -> None:
    with pytest.raises(UsageError, match=r"no trained head ships for 'gpt-9'.*train-head"):
        shipped_head("gpt-9")
