"""The event stream: the same events however the bytes are cut, and limits."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.client.stream import EventParser
from specsim.errors import ServerError

TEXT = (
    b"data: one\n\n: a comment\r\ndata: two\r\ndata:  lines\r\n\r\nevent: x\ndata: t\xc3\xa4g\n\n\n"
    b"data: three\r\rdata: never ended"
)
EVENTS = ["one", "two\n lines", "täg", "three"]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_events_do_not_depend_on_where_the_bytes_are_cut(cuts):
    stream, found = EventParser(), []
    places = sorted({0, *cuts, len(TEXT)})
    for start, end in pairwise(places):
        found += stream.feed(TEXT[start:end])
    assert found == EVENTS
    assert stream.received == len(TEXT)


def test_an_event_without_end_is_refused_before_it_fills_memory():
    stream = EventParser(max_event=100)
    stream.feed(b"data: " + b"x" * 90)
    with pytest.raises(ServerError, match="event of more than"):
        stream.feed(b"x" * 90)


def test_many_data_lines_of_one_event_are_limited_too():
    stream = EventParser(max_event=100)
    with pytest.raises(ServerError, match="event of more than"):
        for _ in range(30):
            stream.feed(b"data: 12345678\n")


def test_an_endless_answer_is_refused():
    stream = EventParser(max_response=1000)
    with pytest.raises(ServerError, match="more than"):
        for _ in range(200):
            stream.feed(b"data: x\n\n")
