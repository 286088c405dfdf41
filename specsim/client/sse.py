"""Server-sent events of one response, from bytes as they come, with limits.

Only `data` fields matter here. An event ends at an empty line; several data lines of one event are
joined by a line feed (the HTML standard, section 9.2.6). Lines end with LF, CRLF or CR.
"""

from specsim.errors import ServerError

MAX_EVENT_BYTES = 1_000_000
MAX_RESPONSE_BYTES = 64_000_000


class EventParser:
    """feed(bytes) -> the data of the events that are complete now. ServerError where a server
    sends more than any answer needs."""

    def __init__(
        self, max_event: int = MAX_EVENT_BYTES, max_response: int = MAX_RESPONSE_BYTES
    ) -> None:
        self._max_event, self._max_response = max_event, max_response
        self._rest = b""
        self._data: list[bytes] = []
        self._held = 0  # bytes in _data
        self.received = 0

    def feed(self, chunk: bytes) -> list[str]:
        self.received += len(chunk)
        if self.received > self._max_response:
            raise ServerError(
                f"the server sent more than {self._max_response // 10**6} MB for one answer"
            )
        text = self._rest + chunk
        # A CR at the end may be half of a CRLF.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = lines.split(b"\n")
        self._rest = rest + held
        out: list[str] = []
        for line in whole:
            if not line:
                if self._data:
                    out.append(b"\n".join(self._data).decode("utf-8", "replace"))
                    self._data, self._held = [], 0
            elif line.startswith(b"data:"):
                value = line[5:].removeprefix(b" ")
                self._data.append(value)
                self._held += len(value)
        if len(self._rest) + self._held > self._max_event:
            raise ServerError(
                f"the server sent an event of more than {self._max_event // 1000} kB; "
                "chunks of an answer are far smaller"
            )
        return out
