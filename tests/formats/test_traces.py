"""Trace readers: each format by a few lines of it, and every way a line can be broken."""

import json
import tracemalloc

import pytest

from specsim.errors import FormatError, UsageError
from specsim.formats.traces import TraceOptions, detect_format, read_trace
from specsim.sim.request import Request


def write(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-17 00:00:00.0000001,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118.5,GPT-4,417,276,693,API log
"""
BURSTGPT_3 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens
1,a,3.5,ChatGPT,10,20
2,b,1.0,ChatGPT,11,21
3,a,2.0,ChatGPT,40,22
"""
MOONCAKE = "\n".join(
    json.dumps(row)
    for row in (
        {"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 512, "output_length": 3, "hash_ids": [0]},
    )
)
SHAREGPT = "arrival_time_ns,input_toks,output_toks\n46926808,2358,531\n347938951,1034,769\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n10.5,374,44\n10.75,396,109\n"
OWN_LINES = (
    '{"arrival_s": 0.5, "prompt_tokens": 10, "output_tokens": 20, "session": 4, "replica": 0}\n'
    '{"arrival_s": 1.25, "prompt_tokens": 30, "output_tokens": 0}\n'
)
SHAREGPT_LINES = (
    '{"input_toks": 2358, "output_toks": 531, "arrival_time_ns": 46926808}\n'
    '{"input_toks": 1034, "output_toks": 769, "arrival_time_ns": 347938951}\n'
)
LENGTHS = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
    "3772,54,3826,69.85\n2015,156,2171,12.9\n"
)
OWN = "arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n1.25,30,0\n"


def rows(path, **options):
    trace = read_trace(path, options=TraceOptions(**options))
    return [(round(r.arrival_s, 9), r.prompt_tokens, r.output_tokens) for r in trace]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (AZURE, "azure", [(0, 4808, 10), (0.052, 3180, 8), (20576.0200401, 110, 27)]),
        (AZURE_2024, "azure", [(0, 2162, 5), (0.007405, 2399, 6)]),
        (BURSTGPT, "burstgpt", [(0, 472, 18), (113.5, 417, 276)]),
        (SHAREGPT, "sharegpt", [(0, 2358, 531), (0.301012143, 1034, 769)]),
        (LENGTHS, "lengths", [(0, 3772, 54), (0, 2015, 156)]),
        (OWN, "requests", [(0, 10, 20), (0.75, 30, 0)]),
        (VIDUR, "vidur", [(0, 374, 44), (0.25, 396, 109)]),
        (OWN_LINES, "requests", [(0, 10, 20), (0.75, 30, 0)]),
        (SHAREGPT_LINES, "sharegpt", [(0, 2358, 531), (0.301012143, 1034, 769)]),
        (MOONCAKE, "mooncake", [(0, 1100, 500), (3, 512, 3)]),
    ],
)
def test_every_format_is_recognised_and_read(tmp_path, text, kind, expected):
    path = write(tmp_path, text)
    assert detect_format(path) == kind
    assert rows(path) == expected


def test_mooncake_hash_ids_become_pieces_of_512_tokens(tmp_path):
    first, second = read_trace(write(tmp_path, MOONCAKE))
    assert first.spans == ((0, 512), (1, 512), (2, 76))
    assert second == Request(3.0, 512, 3, ((0, 512),), session=1)


def test_sessions_of_mooncake_follow_from_its_hash_ids(tmp_path):
    """0 begins all prompts; 3 goes on where 1 ended, 4 where 3 did; 5 has 1's first blocks only."""
    blocks = ([0, 1, 2, 9], [0, 5, 6, 8], [0, 1, 2, 3, 4, 7], [0, 1, 2, 3, 4, 10], [0, 1, 11])
    lines = [
        f'{{"timestamp": {i}, "input_length": {512 * len(ids) - 5}, "output_length": 1, '
        f'"hash_ids": {ids}}}'
        for i, ids in enumerate([*blocks, [12]])
    ]
    found = [r.session for r in read_trace(write(tmp_path, "\n".join(lines)))]
    assert found == [0, 1, 0, 0, 2, -1]


def test_own_traces_say_what_prompts_share(tmp_path):
    text = """arrival_s,prompt_tokens,output_tokens,prefix,prefix_tokens,prompt
0,100,5,3,60,1
1,100,5,3,60,
2,50,5,,,1
3,60,5,3,60,2
"""
    spans = [request.spans for request in read_trace(write(tmp_path, text))]
    assert spans == [((6, 60), (3, 40)), ((6, 60),), ((3, 50),), ((6, 60),)]
    for row, words in (
        ("0,100,5,3,200,1", "prefix_tokens is 200, but the prompt has 100"),
        ("0,100,5,3,,1", "prefix_tokens is ''"),
        ("0,100,5,a,5,1", "prefix is 'a'"),
        ("0,100,5,1,5,-7", "prompt is '-7'"),
    ):
        with pytest.raises(FormatError, match=f"line 2: {words}"):
            list(read_trace(write(tmp_path, text.splitlines()[0] + "\n" + row)))


@pytest.mark.parametrize("begin", ['{"timestamp": 1, "x": "', "TIMESTAMP,ContextTokens,", "x,"])
def test_an_endless_line_is_not_read(tmp_path, begin):
    path = tmp_path / "trace"
    path.write_bytes(begin.encode() + b"x" * 80_000_000)
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"longer than 10000000|no known trace header"):
        list(read_trace(path, "azure" if begin.startswith("TIME") else None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


def test_missing_hash_ids(tmp_path):
    path = write(tmp_path, '{"timestamp": 5, "input_length": 40, "output_length": 1}')
    (request,) = read_trace(path)
    assert request.spans == () and request.arrival_s == 0.0


def test_burstgpt_sessions_and_failures(tmp_path):
    sessions = [request.session for request in read_trace(write(tmp_path, BURSTGPT_3))]
    assert sessions == [0, 1, 0]


def test_limits_and_times(tmp_path):
    path = write(tmp_path, AZURE)
    assert len(rows(path, limit=2)) == 2
    assert rows(path, time_scale=0.5)[1][0] == 0.026


def test_out_of_order_lines_are_named_or_sorted(tmp_path):
    path = write(tmp_path, OWN + "1.0,5,5\n")
    # in the file's own times, although requests count from the first one
    words = r"line 4 has the arrival_s 1\.0, earlier than the 1\.25 of line 3.*--sort-trace"
    with pytest.raises(FormatError, match=words):
        rows(path)
    azure = write(tmp_path, AZURE + "2023-11-16 20:00:00.5,10,20\n")
    words = r"TIMESTAMP 2023-11-16 20:00:00\.5, earlier than the 2023-11-17 00:00:00\.0000001 of"
    with pytest.raises(FormatError, match=words):
        rows(azure)
    mooncake = write(tmp_path, MOONCAKE + '\n{"timestamp":2,"input_length":1,"output_length":1}')
    with pytest.raises(FormatError, match="line 3 has the timestamp 2, earlier than the 3000 of"):
        rows(mooncake)
    path = write(tmp_path, OWN + "1.0,5,5\n")
    assert [row[0] for row in rows(path, sort_times=True)] == [0, 0.5, 0.75]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (AZURE + "2023-11-18 99:00:00.1,5,5\n", "line 5: TIMESTAMP is '2023-11-18 99:00:00.1'"),
        (AZURE + "2023-11-18 01:00:00.1,many,5\n", "line 5: ContextTokens is 'many'"),
        (AZURE + "2023-11-18 01:00:00.1,5\n", "line 5 has another number of columns"),
        (AZURE + "2023-11-18 01:00:00.1,5,5,5\n", "line 5 has another number of columns"),
        (AZURE + "2023-11-18 01:00:00.1,-5,5\n", "line 5: ContextTokens is '-5'"),
        (AZURE + "2023-11-18 01:00:00.1,5,1.5\n", "line 5: GeneratedTokens is '1.5'"),
        (BURSTGPT + "soon,GPT-4,1,2,3,API log\n", "line 5: Timestamp is 'soon'"),
        (BURSTGPT + "nan,GPT-4,1,2,3,API log\n", "line 5: Timestamp is 'nan'"),
        (SHAREGPT + "9e99,5,5\n", "9e99 of line 4"),
        (SHAREGPT + "348000000,99999999999,5\n", "line 4: input_toks is '99999999999'"),
        (OWN + '2.0,"5,5\n', "line 4"),
        (MOONCAKE + '\n{"timestamp": 4000', "line 3 is not JSON"),
        (MOONCAKE + "\n[1, 2]", "line 3 is not a JSON object"),
        (MOONCAKE + '\n{"timestamp": 4000, "input_length": 5}', "line 3 lacks 'output_length'"),
        (
            MOONCAKE + '\n{"timestamp": 4000, "input_length": true, "output_length": 1}',
            "line 3: input_length is True",
        ),
        (
            MOONCAKE + '\n{"timestamp": 4000, "input_length": 5, "output_length": 1, '
            '"hash_ids": [-1]}',
            "line 3: hash id -1",
        ),
        (
            MOONCAKE + '\n{"timestamp": 4000, "input_length": 5, "output_length": 1, '
            '"hash_ids": 7}',
            "line 3: hash_ids is 7",
        ),
        (OWN_LINES + '{"arrival_s": 2, "prompt_tokens": 5}', "line 3 lacks 'output_tokens'"),
        (OWN_LINES + "{", "line 3 is not JSON"),
        (
            OWN_LINES + '{"arrival_s":2,"prompt_tokens":5,"output_tokens":1,"session":"x"}',
            "line 3: session is 'x'",
        ),
        ("time,in,out\n1,2,3\n", "line 1 is no known trace header"),
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no request"),
        ("", "line 1 is no known trace header"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, words):
    path = write(tmp_path, text)
    if words == "9e99 of line 4":
        # A time that is a number but absurd: refused only when the next one comes earlier.
        path = write(tmp_path, text + "349000000,5,5\n")
    with pytest.raises(FormatError, match=words):
        rows(path)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"arrival_s,prompt_tokens,output_tokens\n0.5,10,20\n1.0,\xff\xfe,5\n")
    with pytest.raises(FormatError, match="line"):
        rows(path)


def test_asking_for_the_wrong_format_names_the_missing_column(tmp_path):
    path = write(tmp_path, AZURE)
    with pytest.raises(FormatError, match="line 1 lacks the column"):
        list(read_trace(path, "burstgpt"))
    with pytest.raises(UsageError, match="formats are azure"):
        read_trace(path, "vidor")
    with pytest.raises(UsageError, match="is not a file"):
        read_trace(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, "limit is 0"),
        ({"time_scale": 0.0}, "time_scale is 0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        TraceOptions(**options)


def test_long_traces_stream(tmp_path):
    """Reading the first lines does not read the rest: a broken end does no harm."""
    body = "".join(f"{i * 0.5},5,5\n" for i in range(5000))
    path = write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + body + "broken\n")
    assert len(rows(path, limit=5000)) == 5000
    with pytest.raises(FormatError, match="line 5002"):
        rows(path)


def test_the_format_of_what_is_no_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "none", "."):
        with pytest.raises(UsageError, match="is not a file"):
            detect_format(tmp_path / name)


def test_times_of_another_zone_are_converted(tmp_path):
    path = write(tmp_path, AZURE.splitlines()[0] + "\n2023-11-16 18:17:03.5,10,20\n"
                 "2023-11-16 20:17:05+02:00,10,20\n")
    assert [row[0] for row in rows(path)] == [0, 1.5]
