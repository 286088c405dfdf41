"""Imported benchmark runs, traces and models. Takes the normal form as plain dicts
(`BenchRun.to_dict`)."""

import os
from collections.abc import Iterable, Mapping, Sequence

from specsim.report.blocks import Group, Lines, Section
from specsim.report.columns import table_of, time
from specsim.report.doc import Doc
from specsim.report.tables import Table, in_unit, number, one_unit
from specsim.units import TIME, rounded, seconds

WHOLE = 4  # more runs than this are shown as one table only
LONGEST = 60  # characters of a run's name in that table
_TIMES = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL (per chunk)"),
    ("itl_per_token_s", "ITL per token"),
    ("e2el_s", "E2EL"),
)
_CONFIGURED = (
    ("method", "method"), ("num_speculative_tokens", "k"), ("draft_model", "drafter"),
    ("tp", "tp"), ("dp", "dp"), ("max_num_seqs", "max_num_seqs"),
)
_SERVER = (  # key, words, format
    ("running", "running {} {how}", ".3g"), ("waiting", "waiting {}", ".3g"),
    ("kv_cache_usage", "KV cache {}", ".1%"), ("prefix_cache_hit_rate", "prefix hits {}", ".1%"),
)
Part = tuple[str, str]


def imported_section(
    found: Sequence[Mapping[str, object]], skipped: Sequence[Mapping[str, str]] = (),
    others: Sequence[Mapping[str, object]] = (),
) -> Section:
    """Every run in full when they are few, one table when they are many; then what was left out.
    others: traces, models and drafters, before the runs."""
    runs = [Doc(run) for run in found]
    few, many = len(runs) <= WHOLE, len(runs) > 1
    return Section("Imported", "Imported", [
        *(_other(Doc(item)) for item in others),
        *(_run(run) for run in runs if few),
        _table(runs) if many else None,
        Lines([] if few else _notes(runs)),
        Lines([f"skipped {item['file']}: {item['reason']}" for item in skipped]),
    ])


def _names(runs: Sequence[Doc]) -> list[str]:
    """The runs' files without the folders that all of them share."""
    sources = [run.text("source") for run in runs]
    folders = {os.path.dirname(source) for source in sources}
    try:
        common = os.path.commonpath(folders)
    except ValueError:  # relative and absolute paths mixed
        return sources
    return [os.path.relpath(source, common) if common else source for source in sources]


def _notes(runs: Sequence[Doc]) -> list[str]:
    """Every note once, with the run it is about or the number of runs."""
    about: dict[str, list[str]] = {}
    for run, name in zip(runs, _names(runs), strict=True):
        for text in run.texts("warnings"):
            about.setdefault(text, []).append(name)
    return [
        f"note ({names[0] if len(names) == 1 else f'{len(names)} runs'}): {text}"
        for text, names in about.items()
    ]


def _load(load: Doc) -> str:
    """The load in words."""
    kind, clients = load.text("kind"), load.words("max_concurrency")
    words = {
        "open": f"open loop, {_amount(load.at('request_rate'))} requests/s",
        "closed": f"closed loop, {clients} client{'' if clients == '1' else 's'}",
        "burst": "all requests at once",
        "unknown": "load not stated",
    }[kind]
    if kind == "open" and load.has("max_concurrency"):
        words += f", at most {clients} at a time"
    shape = load.at("burstiness").value
    if kind == "open" and shape is not None:
        laws = {"1.0": ", Poisson", "1": ", Poisson", "inf": ", evenly spaced"}
        words += laws.get(str(shape), f", burstiness {shape}")
    return words


def _amount(found: Doc) -> str:
    """A number, or the word that stands for one."""
    if isinstance(found.value, str):
        return found.value
    value = found.maybe()
    return "-" if value is None else number(value)


def _run(run: Doc) -> Group:
    """One run: what was recognised, load, counts, times, speculation, server, notes."""
    version = f" {run.text('format_version')}" if run.text("format_version", "") else ""
    engine = " ".join(filter(None, (run.text("engine", ""), run.text("engine_version", ""))))
    args, unused = run.at("server_args"), run.maybe("acceptance.undrafted_positions")
    facts = _listed(f"{run.text('source')}: {run.text('format')}{version}", [
        ("model", run.text("model", "")),
        ("engine", engine),
        ("label", run.text("label", "")),
        ("load", _load(run.at("load"))),
        ("requests", _requests(run)),
        ("tokens", _tokens(run)),
        ("speculation", _speculation(run.at("acceptance"))),
        ("step", _step(run)),
        ("server", _server(run.at("server"))),
        ("configured", ", ".join([
            *(f"{word} {args.at(key).value}" for key, word in _CONFIGURED if args.has(key)),
            *([f"{unused:.0f} more positions that were never drafted"] if unused else []),
        ])),
    ])
    times = [_latency(title, run.at(key)) for key, title in _TIMES if run.has(key)]
    headers = ("time", "mean", "p50", "p90", "p95", "p99", "std", "", "from")
    table = Table(headers, times, indent=2) if times else Lines([])
    return Group([facts, table, _remarks(run, "warnings")])


def _latency(title: str, found: Doc) -> list[str]:
    """One latency and its statistics, all in one unit, which stands behind them."""
    middle = "median" if found.has("median") else "percentiles.p50"
    keys = ("mean", middle, *(f"percentiles.{name}" for name in ("p90", "p95", "p99")), "std")
    values = [found.maybe(key) for key in keys]
    unit, factor = one_unit(values, TIME)
    return [title, *(in_unit(value, factor) for value in values), unit, found.text("basis")]


def _remarks(found: Doc, key: str) -> Lines:
    return Lines([f"  note: {text}" for text in found.texts(key)])


def _listed(title: str, facts: Iterable[Part]) -> Lines:
    """A title, and what is known below it."""
    return Lines([title, *(f"  {name:<12}{value}" for name, value in facts if value)])


def _table(runs: Sequence[Doc]) -> Table:
    """One line per run, to compare load points."""
    names = iter(_names(runs))

    def name(_: Doc) -> str:
        shown = next(names)
        return shown if len(shown) <= LONGEST else "..." + shown[3 - LONGEST :]

    return table_of(runs, [
        ("run", name), ("load", lambda run: _load(run.at("load"))),
        ("out tok/s", lambda run: _amount(run.at("output_tok_s"))),
        *((title, time(f"{key}.mean"))
          for title, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"))),
        ("AL", lambda run: _amount(run.at("acceptance.acceptance_length"))),
        ("tokens/step", lambda run: _amount(run.at("tokens_per_step"))),
    ], left=2)


def _requests(run: Doc) -> str:
    if not run.has("completed"):
        return ""
    text = f"{run.words('completed')} completed"
    if run.maybe("failed"):
        text += f" and {run.words('failed')} failed"
    if run.maybe("duration_s"):
        text += f" in {seconds(run.maybe('duration_s'))}"
    for key, words in (("request_rate_achieved", "{}/s"),
                       ("concurrency_mean", "{} in flight on average")):
        value = run.maybe(key)
        text += ", " + words.format(rounded(value)) if value else ""
    return text


def _tokens(run: Doc) -> str:
    parts = [
        f"{number(run.number(key))} {word}"
        for key, word in (("input_tokens_mean", "in"), ("output_tokens_mean", "out"))
        if run.has(key)
    ]
    text = " + ".join(parts) + " per request" if parts else ""
    rate = run.maybe("output_tok_s")
    return text + (f"{', ' if text else ''}{number(rate)} output tokens/s" if rate else "")


def _speculation(found: Doc) -> str:
    if not found.has(""):
        return ""
    parts = [
        words.format(value) for key, words in (
            ("acceptance_length", "acceptance length {:.3f}"), ("acceptance_rate", "rate {:.1%}"))
        if (value := found.maybe(key)) is not None
    ]
    rates = [f"{rate.number():.3f}" for rate in found.items("per_position")]
    parts += ["per position " + ", ".join(rates)] if rates else []
    parts += [f"{found.words('num_drafts')} drafts"] if found.maybe("num_drafts") else []
    scope = found.text("scope")
    return ", ".join(parts) + ("" if scope == "run" else f" ({scope})")


def _step(run: Doc) -> str:
    if not run.has("tokens_per_step"):
        return ""
    text = (f"{run.number('tokens_per_step'):.3f} tokens per step (from "
            f"{run.words('tokens_per_step_basis')})")
    share = run.maybe("draft_share")
    return text + ("" if share is None else f", {share:.0%} of the steps with a draft")


def _server(side: Doc) -> str:
    if not side.has(""):
        return ""
    how = "on average" if side.text("gauges", "") == "mean" else "at the scrape"
    parts = [
        words.format(format(value, spec), how=how) for key, words, spec in _SERVER
        if (value := side.maybe(key)) is not None
    ]
    if side.maybe("preemptions"):
        parts.append(f"{side.words('preemptions')} preemptions")
    parts += [f"{word} {seconds(side.maybe(f'{word}_s.mean'))}" for word in ("queue", "prefill")
              if side.has(f"{word}_s")]
    return ", ".join(parts)


def _other(found: Doc) -> Group:
    """A trace, model or drafter (`formats.recognise`) in a few lines."""
    title = f"{found.text('file')}: {found.text('format')}"
    trace = found.has("requests")
    facts = _listed(f"{title} trace", _trace(found)) if trace else _listed(title, _model(found))
    return Group([facts, _remarks(found, "notes")])


def _trace(found: Doc) -> list[Part]:
    span, rate = found.maybe("span_s"), found.maybe("request_rate")
    shape = found.maybe("burstiness")
    arrivals = "" if rate is None else f"{number(rate)}/s" + (
        f", burstiness {rounded(shape)}" if shape else "")
    named = "shared prefixes are named (hash ids)" if found.flag("with_prefix_ids") else ""
    return [
        ("requests", found.words("requests") + (f" in {seconds(span)}" if span
                                                else ", without times")),
        ("rate", arrivals),
        ("prompt", _lengths(found, "prompt")),
        ("output", _lengths(found, "output")),
        ("sessions", found.words("sessions") if found.maybe("sessions") else ""),
        ("prefixes", named),
    ]


def _model(found: Doc) -> list[Part]:
    kind = found.text("kind")
    vocab, drafted = found.words("vocab"), found.words("draft_vocab")
    fewer = found.has("draft_vocab") and drafted != vocab
    return [
        (kind, found.text("name")),
        ("method" if kind == "drafter" else "family",
         found.text("method", "") or found.text("family", "")),
        ("weights", found.text("weights", "")),
        ("layers", f"{found.words('layers')} of width {found.words('hidden')}"),
        ("vocabulary", vocab + (f", drafts from {drafted}" if fewer else "")),
        ("parameters", f"{rounded(found.number('parameters') / 1e9)} G"),
        ("verifier", found.text("verifier", "")),
        ("k", found.words("num_speculative_tokens")
         if found.maybe("num_speculative_tokens") else ""),
        ("MTP head", found.words("mtp") if found.at("mtp").value else ""),
    ]


def _lengths(found: Doc, name: str) -> str:
    key = f"{name}_tokens"
    return (
        f"{found.number(f'{key}_mean'):.4g} tokens on average, median "
        f"{found.number(f'{key}_p50'):g}, longest {found.words(f'{key}_max')}"
    )
