"""A server of plain bytes: whatever it is asked, it sends what it was given, and goes on."""

import socket
import struct
import threading
import time
import zlib
from contextlib import contextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
MOVED = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def packed(megabytes):
    """So many zeros as gzip, a thousandth of it: one block over and over."""
    zeros, crc = b"0" * 1_000_000, 0
    for _ in range(megabytes):
        crc = zlib.crc32(zeros, crc)
    packer = zlib.compressobj(wbits=-15)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    ends = struct.pack("<II", crc, megabytes * len(zeros))
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes + packer.flush() + ends


# name -> (sent once, sent again and again, seconds between)
LIES = {
    "nothing": (b"", b"", 0.1),
    "closes at once": (b"", None, 0),
    "noise": (bytes(range(256)) * 10, None, 0),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", b"", 0.1),
    "a status that is none": (b"HTTP/1.1 abc OK\r\n\r\n", None, 0),
    "a head that drips": (b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.02),
    "heads for ever": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100, 0),
    "a head line for ever": (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 65536, 0),
    "continues for ever": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0),
    "a body for ever": (OK + b"\r\n", b"a_total 1\n" * 1000, 0),
    "a body that drips": (OK + b"\r\n", b"a", 0.02),
    "less than announced": (OK + b"Content-Length: 1000\r\n\r\nshort", None, 0),
    "an absurd length": (OK + b"Content-Length: 99999999999999999999\r\n\r\n", b"", 0.1),
    "a negative length": (OK + b"Content-Length: -1\r\n\r\nabc", None, 0),
    "a chunk of no size": (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", None, 0),
    "an absurd chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n", b"x", 0.02),
    "packed zeros": (OK + b"Content-Encoding: gzip\r\n\r\n" + packed(200), None, 0),
    "packed wrongly": (OK + b"Content-Encoding: gzip\r\n\r\nabc", None, 0),
    "a loop of redirects": (MOVED + b"Location: /metrics\r\n\r\n", None, 0),
    "redirects to a file": (MOVED + b"Location: file:///etc/passwd\r\n\r\n", None, 0),
    "no text": (OK + b"\r\n\xff\xfe\x00", None, 0),
    "numbers that are none": (OK + b"\r\nvllm:num_requests_running NaN\n"
                              b"vllm:generation_tokens_total 1e999\n"
                              b"vllm:generation_tokens_total -5\n", None, 0),
    "events for ever": (STREAM, b": nothing\n\n" * 1000, 0),
    "an event for ever": (STREAM, b"data: " + b"x" * 65536, 0),
    "events that are no JSON": (STREAM + b"data: [[[[\n\n" + b"data: " + b"[" * 100_000 + b"\n\n",
                                None, 0),
    "tokens for ever": (STREAM, b'data: {"choices": [{"text": "a"}]}\n\n' * 100, 0.01),
}


@contextmanager
def lying(once, again, pause_s, before=None):
    """The address of a server that tells this lie. before: path -> an honest answer."""
    stop = threading.Event()

    def serve(peer):
        with peer, suppress(OSError):
            asked = peer.recv(65536)
            path = asked.split(b" ")[1].decode() if asked.count(b" ") > 1 else ""
            if before and path in before:
                body = before[path]
                size = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                peer.sendall(OK + size.encode() + body)
                return
            peer.sendall(once)
            while again is not None and not stop.is_set():
                peer.sendall(again)
                time.sleep(pause_s)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def accept():
            while not stop.is_set():
                with suppress(TimeoutError):
                    peer, _ = listener.accept()
                    peer.settimeout(5)
                    threading.Thread(target=serve, args=(peer,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(5)
