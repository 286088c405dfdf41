"""Texts are sized before they are tokenised, long ones never hold up short ones, and a request has
its place before it costs anything."""

import asyncio
import threading

import pytest

from serve_helpers import make_engine, make_service, running, until
from specsim.serve import app

MEGABYTE = "a" * 1_000_000


class Watched:
    """A tokenizer that notes the sizes it was given and, while `held`, waits on long texts."""

    def __init__(self, tokenizer):
        self._tokenizer, self.sizes, self.gate = tokenizer, [], threading.Event()

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def encode(self, text, special=True):
        self.sizes.append(len(text))
        if len(text) > 64:
            assert self.gate.wait(20)
        return self._tokenizer.encode(text, special)


def bodies(text):
    yield "/v1/completions", {"prompt": text, "max_tokens": 1}
    yield "/v1/completions", {"prompt": ["a", text], "max_tokens": 1}
    yield "/v1/chat/completions", {"messages": [{"role": "user", "content": text}],
                                   "max_tokens": 1}


def test_texts_that_cannot_fit_are_refused_untokenised(model, tokenizer):
    watched = Watched(tokenizer)

    async def main():
        async with running(make_service(make_engine(model), watched)) as client:
            for path, body in bodies(MEGABYTE):
                for _ in range(8):
                    reply = await client.post(path, body)
                    assert reply.status == 400
                    assert reply.json["error"]["code"] == "context_length_exceeded"
            assert max(watched.sizes, default=0) <= 1
            reply = await client.complete(prompt="ab", max_tokens=2)
            assert reply.status == 200

    asyncio.run(main())


def test_a_text_that_fits_is_never_refused_by_its_size(model, tokenizer):
    """The longest prompts that fit the context, of the longest token and of many characters."""
    service = make_service(make_engine(model), tokenizer)
    longest = "<|model|>"
    assert tokenizer.longest_token_bytes == len(longest)
    for text in (longest * 255, "a" * 255, "~" * 255, " " * 255):
        assert len(tokenizer.encode(text)) == 255
        assert len(text.encode()) <= service.tokenizing.most_bytes


@pytest.mark.parametrize("kind", range(3))
def test_long_texts_do_not_hold_up_short_ones(model, tokenizer, monkeypatch, kind):
    monkeypatch.setattr(app, "SHORT_BYTES", 64)
    watched = Watched(tokenizer)

    async def main():
        async with running(make_service(make_engine(model), watched, max_queue=30)) as client:
            calls = [client.open(*list(bodies("a" * 200))[kind]) for _ in range(8)]
            await until(lambda: any(size > 64 for size in watched.sizes))
            assert (await client.complete(prompt="ab", max_tokens=2)).status == 200
            assert (await client.get("/health")).status == 200
            assert sum(size > 64 for size in watched.sizes) == 1, "one at a time"
            watched.gate.set()
            assert [(await call.done()).status for call in calls] == [200] * 8

    asyncio.run(main())


def test_places_are_held_before_tokenising_and_given_back(model, tokenizer, monkeypatch):
    monkeypatch.setattr(app, "SHORT_BYTES", 64)
    watched = Watched(tokenizer)

    async def main():
        service = make_service(make_engine(model, max_num_seqs=2), watched, max_queue=1)
        async with running(service) as client:
            calls = [client.open("/v1/completions", {"prompt": "a" * 200, "max_tokens": 1})
                     for _ in range(3)]
            await until(lambda: service._preparing == 3)
            assert (await client.complete(prompt="ab", max_tokens=1)).status == 429
            calls[2].leave()  # it was waiting for the thread
            await calls[2].done()
            assert (await client.complete(prompt="ab", max_tokens=1)).status == 200
            reply = await client.complete(prompt=["ab", "ab"], max_tokens=1)
            assert reply.status == 429, "all its sequences or none"
            watched.gate.set()
            assert [(await call.done()).status for call in calls[:2]] == [200, 200]
            assert service._preparing == 0
            assert len([size for size in watched.sizes if size == 200]) == 2, "the third never ran"

    asyncio.run(main())
