"""Request bodies: what is accepted, what is refused, and with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.decoder.options import SamplingParams
from specsim.serve.bodies import parse_object
from specsim.serve.errors import ApiError
from specsim.serve.protocol import Call, check_model, parse_call

VOCAB = 100


def completion(**body):
    return parse_call({"prompt": "hi"} | body, chat=False, vocab_size=VOCAB, num_stop_ids=1)


def chat(messages, **body):
    return parse_call({"messages": messages} | body, chat=True, vocab_size=VOCAB, num_stop_ids=1)


def refusal(make):
    with pytest.raises(ApiError) as caught:
        make()
    assert caught.value.status == 400
    return caught.value


def test_defaults_are_those_of_openai_and_vllm():
    call = completion()
    assert (call.max_tokens, call.temperature, call.top_p, call.top_k, call.n) == (16, 1, 1, 0, 1)
    assert not call.stream
    assert call.params(5, 64, 0) == SamplingParams(max_tokens=16, temperature=1.0)
    talk = chat([{"role": "user", "content": "hi"}])
    assert talk.answer_limit is None
    assert talk.params(5, 64, 0).max_tokens == 59


def test_null_is_the_same_as_absent():
    names = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "n", "stream",
             "stream_options", "logprobs", "logit_bias", "suffix", "tools", "ignore_eos")
    assert completion(**dict.fromkeys(names)) == completion()


def test_all_fields_reach_the_engine():
    call = completion(max_tokens=7, temperature=0.5, top_p=0.9, top_k=40, seed=-3, stop=["a", "b"],
                      stop_token_ids=[4, 5, 4], ignore_eos=True, stream=True,
                      stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert call.params(1, 64, 0) == SamplingParams(
        max_tokens=7, temperature=0.5, top_k=40, top_p=0.9, seed=-3, stop_token_ids=(4, 5),
        ignore_eos=True)
    assert call.stop == ("a", "b")
    options = call.stream_options
    assert (call.stream, options.include_usage, options.continuous_usage_stats) == (True,) * 3


def test_each_answer_has_a_seed_of_its_own_and_none_without_one():
    call = completion(n=3, seed=2**63 - 1)
    assert [call.params(1, 64, i).seed for i in range(3)] == [2**63 - 1, -(2**63), -(2**63) + 1]
    assert completion(n=3).params(1, 64, 2).seed is None


@pytest.mark.parametrize(("given_top_k", "used"), [(-1, 0), (0, 0), (40, 40), (100, 0), (10**6, 0)])
def test_top_k_as_wide_as_the_vocabulary_is_off(given_top_k, used):
    assert completion(top_k=given_top_k).top_k == used


@pytest.mark.parametrize(("prompt", "read"), [
    ("text", ("text",)),
    (["one", "two"], ("one", "two")),
    ([1, 2, 99], ((1, 2, 99),)),
    ([[1, 2], [3]], ((1, 2), (3,))),
    ([[1], "two"], ((1,), "two")),
])
def test_prompt_forms(prompt, read):
    assert completion(prompt=prompt).prompt == read


@pytest.mark.parametrize("field", [
    {"prompt": None}, {"prompt": 3}, {"prompt": []}, {"prompt": [True]}, {"prompt": [100]},
    {"prompt": [-1]}, {"prompt": [1, "x"]}, {"prompt": [1.5]}, {"prompt": {"a": 1}},
    {"prompt": "half \ud800"}, {"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": "7"},
    {"max_tokens": True}, {"max_tokens": 1.5}, {"temperature": -0.1}, {"temperature": "0"},
    {"temperature": True}, {"temperature": 1e9}, {"top_p": 1.1}, {"top_k": -2}, {"top_k": 1.5},
    {"seed": 2**63}, {"seed": "x"}, {"n": 0}, {"n": 10**6}, {"stop": [""]}, {"stop": 3},
    {"stop": ["x"] * 17}, {"stop": "y" * 1001}, {"stop": [None]}, {"stop_token_ids": [100]},
    {"stop_token_ids": list(range(8))}, {"stop_token_ids": "3"}, {"stream": 1},
    {"stream": "true"}, {"stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": []},
    {"ignore_eos": "yes"}, {"min_tokens": 5},
])
def test_wrong_values_name_their_field(field):
    error = refusal(lambda: completion(**field))
    last = list(field)[-1]
    assert last in error.message
    assert error.param == last


@pytest.mark.parametrize(("field", "words"), [
    ({"top_p": 0.0}, "top_p"), ({"temperature": 0.001}, "temperature"),
])
def test_ranges_of_the_engine_are_refused_too(field, words):
    assert words in refusal(lambda: completion(**field).params(1, 64, 0)).message


@pytest.mark.parametrize("field", [
    {"logprobs": 0}, {"logprobs": True}, {"echo": True}, {"best_of": 2}, {"suffix": "x"},
    {"presence_penalty": 0.5}, {"frequency_penalty": -1}, {"repetition_penalty": 1.1},
    {"min_p": 0.1}, {"logit_bias": {"3": 1}}, {"use_beam_search": True},
    {"response_format": {"type": "json_object"}}, {"tools": [{}]}, {"structured_outputs": {}},
    {"include_stop_str_in_output": True}, {"skip_special_tokens": False},
])
def test_what_would_change_the_answer_and_is_not_supported_is_refused(field):
    error = refusal(lambda: completion(**field))
    assert error.param == next(iter(field))
    assert "not supported" in error.message


def test_the_same_fields_switched_off_are_accepted():
    off = {"logprobs": False, "echo": False, "best_of": 1, "suffix": "", "presence_penalty": 0,
           "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_p": 0, "logit_bias": {},
           "use_beam_search": False, "response_format": {"type": "text"}, "tools": [],
           "skip_special_tokens": True}
    assert completion(**off) == completion()
    assert completion(n=2, best_of=2).n == 2
    assert "best_of" in refusal(lambda: completion(n=2, best_of=3)).message


def test_unknown_fields_are_ignored_as_vllm_does():
    assert completion(user="me", store=False, metadata={}) == completion()


def test_min_tokens_with_ignore_eos_is_what_ignore_eos_does_anyway():
    assert completion(min_tokens=8, max_tokens=8, ignore_eos=True).max_tokens == 8
    assert refusal(lambda: completion(min_tokens=9, max_tokens=8, ignore_eos=True))


def test_prompts_times_n_is_bounded():
    assert refusal(lambda: completion(prompt=["a"] * 65, n=2)).param == "n"
    assert refusal(lambda: completion(prompt=["a"] * 129)).param == "prompt"


def test_context_is_the_limit_of_prompt_and_answer_together():
    assert completion(max_tokens=60).params(4, 64, 0).max_tokens == 60
    error = refusal(lambda: completion(max_tokens=61).params(4, 64, 0))
    assert error.code == "context_length_exceeded"
    assert "64" in error.message
    # Chat without max_tokens takes what is left, which must be something.
    talk = chat([{"role": "user", "content": "hi"}])
    assert refusal(lambda: talk.params(64, 64, 0)).code == "context_length_exceeded"


def test_chat_content_may_be_parts_of_text():
    call = chat([{"role": "system", "content": "be kind"},
                 {"role": "user", "content": [{"type": "text", "text": "a"},
                                              {"type": "text", "text": "b"}]}],
                max_tokens=3, max_completion_tokens=4)
    assert [message.model_dump() for message in call.messages] == [
        {"role": "system", "content": "be kind"}, {"role": "user", "content": "a\nb"}]
    assert call.answer_limit == 4


@pytest.mark.parametrize("messages", [
    None, [], "hi", [{}], ["hi"], [{"role": "user"}], [{"role": 1, "content": "x"}],
    [{"role": "user", "content": 3}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    [{"role": "user", "content": [{"type": "text"}]}],
])
def test_wrong_messages(messages):
    assert "messages" in refusal(lambda: chat(messages)).message


def test_model_may_be_left_out_and_must_be_the_one_served():
    check_model({}, "tiny")
    check_model({"model": "tiny"}, "tiny")
    with pytest.raises(ApiError) as caught:
        check_model({"model": "gpt"}, "tiny")
    assert caught.value.status == 404
    assert caught.value.code == "model_not_found"
    assert refusal(lambda: check_model({"model": 3}, "tiny"))


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"3", b"null", b'"x"', b"\xff\xfe", b'{"a": NaN}', b'{"a": -Infinity}',
    b'{"a": ' + b"9" * 5000 + b"}", b'{"a":' * 100_000, b'{"a": "\x00"}',
])
def test_bodies_that_are_no_json_objects(body):
    assert "body" in refusal(lambda: parse_object(body)).message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop",
                         "stop_token_ids", "n", "stream", "stream_options", "min_tokens",
                         "best_of", "logprobs", "logit_bias", "messages", "ignore_eos"])


@given(body=st.dictionaries(NAMES, JSON, max_size=5), talk=st.booleans())
def test_any_json_is_read_or_refused_in_words(body, talk):
    try:
        call = parse_call(body, chat=talk, vocab_size=VOCAB, num_stop_ids=1)
        call.params(3, 64, 0)
        assert isinstance(call, Call)
    except ApiError as error:
        assert error.status == 400
        assert len(error.message) < 400
