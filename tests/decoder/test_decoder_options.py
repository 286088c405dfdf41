"""Options and sampling parameters refuse what cannot work, naming value, rule and way out."""

import pytest

from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineStats
from specsim.errors import UsageError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_tokens": 0}, "max_tokens 0"),
        ({"temperature": -1.0}, "temperature -1.0"),
        ({"temperature": 0.001}, "use 0 for greedy"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"top_k": -1}, "top_k -1"),
        ({"top_p": 0.0}, "top_p 0.0"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"stop_token_ids": tuple(range(9))}, "9 stop tokens"),
    ],
)
def test_sampling_rules(wrong, message):
    with pytest.raises(UsageError, match=message):
        SamplingParams(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "ngrm", "num_speculative_tokens": 1}, "did you mean 'ngram'"),
        ({"method": "ngram"}, "needs num_speculative_tokens"),
        ({"num_speculative_tokens": 3}, "needs a method"),
        ({"max_num_seqs": 0}, "max_num_seqs 0"),
        ({"max_model_len": 1}, "max_model_len 1"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens 0"),
        ({"prompt_lookup_min": 4, "prompt_lookup_max": 3}, "prompt_lookup_min 4"),
    ],
)
def test_engine_rules(wrong, message):
    with pytest.raises(UsageError, match=message):
        DecoderOptions(**wrong)


def test_batches_are_padded_to_the_next_bucket():
    options = DecoderOptions()
    assert [options.bucket(n) for n in (1, 2, 3, 17, 256, 300)] == [1, 2, 4, 24, 256, 300]


def test_counters_grow_from_a_snapshot():
    stats = EngineStats(accepted_per_position=[0, 0, 0])
    stats.observe(proposed=3, accepted=2)
    before = stats.snapshot()
    stats.observe(proposed=3, accepted=1)
    stats.observe(proposed=0, accepted=0)
    assert before.accepted_per_position == [1, 1, 0]  # not the list that goes on growing
    grown = stats.since(before)
    assert (grown.num_row_steps, grown.num_drafts, grown.num_draft_tokens) == (2, 1, 3)
    assert (grown.num_accepted_tokens, grown.accepted_per_position) == (1, [1, 0, 0])
