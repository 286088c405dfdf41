"""Text of an answer, cut at stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_helpers import CHARS
from specsim.serve.engine_thread import AnswerText


def written(tokenizer, text, stops):
    """(pieces shown, stop string) when the characters of text come one token at a time."""
    answer = AnswerText(tokenizer, stops)
    pieces = []
    for token in tokenizer.encode(text):
        pieces.append(answer.push(token))
        if answer.stopped is not None:
            break
    else:
        pieces.append(answer.finish())
    return pieces, answer.stopped


def test_without_stops_each_token_shows_at_once(tokenizer):
    pieces, stopped = written(tokenizer, "a b\nc", ())
    assert pieces == ["a", " ", "b", "\n", "c", ""]
    assert stopped is None


@pytest.mark.parametrize(("text", "stops", "shown", "stopped"), [
    ("one END two", ["END"], "one ", "END"),
    ("one EN two", ["END"], "one EN two", None),
    ("one EN", ["END"], "one EN", None),
    ("aaab", ["aab"], "a", "aab"),
    ("abcabd", ["abd"], "abc", "abd"),
    ("xyz", ["yz", "y"], "x", "y"),
    ("x\n\ny", ["\n\n"], "x", "\n\n"),
    ("END", ["END"], "", "END"),
])
def test_answer_ends_before_the_stop_string(tokenizer, text, stops, shown, stopped):
    pieces, found = written(tokenizer, text, stops)
    assert "".join(pieces) == shown
    assert found == stopped


def test_possible_beginning_of_a_stop_is_held_back(tokenizer):
    pieces, _ = written(tokenizer, "a<|b", ["<|im|>"])
    assert pieces == ["a", "", "", "<|b", ""]


@given(text=st.text("ab<", max_size=30),
       stops=st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3))
def test_shown_text_is_what_precedes_the_stop_that_completes_first(tokenizer, text, stops):
    pieces, stopped = written(tokenizer, text, stops)
    ends = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    if not ends:
        assert "".join(pieces) == text
        assert stopped is None
    else:
        # Of the stops that are complete at the earliest moment, the one that began first.
        first = min(end for end, _ in ends)
        assert "".join(pieces) == text[: min(at for end, at in ends if end == first)]
        assert stopped in stops


def test_split_character_is_whole_when_shown():
    class Bytes:
        """A tokenizer of UTF-8 bytes."""

        def decode(self, ids, skip_special=True):
            return bytes(ids).decode("utf-8", errors="replace")

    answer = AnswerText(Bytes(), ["ü!"])
    pieces = [answer.push(b) for b in "aé→ü?".encode()] + [answer.finish()]
    assert "".join(pieces) == "aé→ü?"
    assert not any("\ufffd" in piece for piece in pieces)
    answer = AnswerText(Bytes(), ["ü!"])
    assert "".join(answer.push(b) for b in "aü!b".encode()) == "a"
    assert answer.stopped == "ü!"


def test_tokenizer_of_the_tests_is_one_character_per_token(tokenizer):
    assert len(tokenizer.encode(CHARS + " \n")) == len(CHARS) + 2
    assert tokenizer.decode(tokenizer.encode("a b\n")) == "a b\n"
