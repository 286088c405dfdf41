"""What the events of a response mean."""

import json

import pytest

from specsim.client.prompts import Prompt
from specsim.client.stream import Sampling, StreamedAnswer, body_of
from specsim.errors import ServerError


def take(*events):
    answer = StreamedAnswer()
    for i, event in enumerate(events):
        answer.take(event if isinstance(event, str) else json.dumps(event), float(i))
    return answer


def text(value, count=None, reason=None):
    event = {"choices": [{"text": value, "finish_reason": reason}]}
    return event if count is None else event | {"usage": {"prompt_tokens": 4,
                                                          "completion_tokens": count}}


def test_every_step_is_a_chunk_with_its_tokens():
    answer = take(text("a", 1), text("", 2), text("bcd", 5), text("e", 6, "length"),
                  {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 6}}, "[DONE]")
    assert answer.times_s == [0, 1, 2, 3]
    assert answer.chunk_tokens() == (1, 1, 3, 1)
    assert (answer.prompt_tokens, answer.output_tokens) == (4, 6)
    assert answer.done and answer.finish_reason == "length"


def test_an_end_without_a_token_is_no_step_but_an_unprinted_end_token_is():
    assert take(text("a", 1), text("b", 2), text("", 2, "stop")).chunk_tokens() == (1, 1)
    assert take(text("a", 1), text("b", 2), text("", 3, "stop")).chunk_tokens() == (1, 1, 1)


def test_the_role_of_a_chat_is_no_chunk():
    def delta(**fields):
        return {"choices": [{"delta": fields}]}

    answer = take(delta(role="assistant", content=""), delta(content="hi"),
                  delta(reasoning_content="hm"), delta(content=" there"),
                  {"choices": [{"delta": {}, "finish_reason": "stop"}]})
    assert answer.times_s == [1, 2, 3]
    assert answer.chunk_tokens() == ()  # nobody counted them


def test_acceptance_of_a_request_where_the_server_sends_it():
    spec = {"num_spec_steps": 3, "num_draft_tokens": 9, "num_accepted_draft_tokens": 4,
            "per_step_accepted": [3, 0, 1]}
    answer = take(text("a", 1), {"choices": [], "metrics": {"speculative_decoding": spec}})
    assert (answer.spec_steps, answer.spec_drafted, answer.spec_accepted) == (3, 9, 4)
    assert answer.steps_accepted == (3, 0, 1)


@pytest.mark.parametrize("event, words", [
    ("{broken", "not JSON"), ("[1]", "no object"),
    ({"error": {"message": "out of memory"}}, "out of memory"), ({"error": "gone"}, "gone"),
])
def test_what_is_no_completion_is_said(event, words):
    with pytest.raises(ServerError, match=words):
        take(event)


@pytest.mark.parametrize("event", [
    {"choices": "x"}, {"choices": [3]}, {"choices": [{}], "usage": 3}, {},
    {"usage": {"prompt_tokens": "many", "completion_tokens": -1}}, {"metrics": []},
    {"metrics": {"speculative_decoding": {"per_step_accepted": ["x"], "num_spec_steps": True}}},
])
def test_foreign_fields_do_no_harm(event):
    answer = take(text("a", 1), event)
    assert answer.times_s[0] == 0 and answer.prompt_tokens == 4


def test_bodies():
    body = body_of(Prompt("hello", 7), "m", Sampling(ignore_eos=True, seed=3))
    assert body == {
        "model": "m", "stream": True, "max_tokens": 7, "prompt": "hello", "temperature": 0.0,
        "ignore_eos": True, "seed": 3,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    body = body_of(Prompt("hello", 7), "m", Sampling(chat=True, temperature=None,
                                                     token_counts=False))
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert "temperature" not in body and body["stream_options"] == {"include_usage": True}
    assert body_of(Prompt((1, 2), 7), "m", Sampling())["prompt"] == [1, 2]
