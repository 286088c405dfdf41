"""What `specsim pareto --at` says: tokens per GPU and their price at one speed for the user."""

from specsim.report.blocks import Block, Command, Group, Lines
from specsim.report.columns import Column, count, curve, figure, fixed, table_of, three, time, word
from specsim.report.doc import Doc
from specsim.report.plots import Panel
from specsim.report.tables import number, times

_SIDES = {"speculative": "with speculation", "plain": "without"}


def at_blocks(doc: Doc) -> list[Block]:
    """A sentence for each speed, the settings, what to type; nothing where none was asked for."""
    found = doc.items("at")
    sides = [item.at(side) for item in found for side in _SIDES if item.at(side).has("point")]
    if not found:
        return []
    money: list[Column] = []
    if any(side.has("cost.per_million_output_tokens") for side in sides):
        money = [("per Mtok", figure("cost.per_million_output_tokens"))]
    table = table_of(sides, [
        ("tok/s/user", fixed("point.stream_tok_s", ".1f")),
        ("tok/s/GPU", fixed("point.gpu_tok_s", ".0f")), *money,
        ("J/token", three("point.joules_per_output_token")),
        ("k", lambda side: side.words("point.k") if side.maybe("point.k") else "plain"),
        ("tp", count("point.tp")), ("weights", word("point.weights")),
        ("cache", word("point.kv_dtype")), ("slots", count("point.max_num_seqs")),
        ("TTFT", time("point.ttft_s")), ("token budget", count("point.max_num_batched_tokens")),
        ("pp", count("point.pp")),
    ], left=0, title="at equal speed for the user: the best setting of each side", detail=2,
        remarks=["slots: max_num_seqs, as many as still give each user the speed"])
    commands = [
        Command(f"  {side.number('point.stream_tok_s'):.1f} tok/s/user, "
                f"{'with' if side.maybe('point.k') else 'without'} speculation:",
                side.text("command"), "\n    ")
        for side in sides if side.has("command")
    ]
    typed: list[Block] = [Group([Lines(["what to type at that speed"]), *commands])]
    return [Lines([_sentence(item) for item in found]), table, *(typed if commands else [])]


def _sentence(item: Doc) -> str:
    speed = f"at {number(item.number('stream_tok_s'))} tok/s for each user"
    ratio = item.maybe("ratio")
    if ratio is None:
        reached = [words for side, words in _SIDES.items() if item.at(side).has("point")]
        return f"{speed}: reached {f'only {reached[0]}' if reached else 'by no setting'}"
    ends = [number(end, 3) if end is not None else "any" for end in item.numbers("ratio_90")]
    ours, plain = (item.number(f"{side}.point.gpu_tok_s") for side in _SIDES)
    joules = item.maybe("joules_ratio")
    return (f"{speed} a GPU serves {ours:,.0f} tok/s with speculation, {plain:,.0f} without: "
            f"{times(ratio)}{f' (90%: {ends[0]} to {ends[1]})' if len(ends) == 2 else ''}"
            + (f", at {times(joules)} the joules per token" if joules is not None else ""))


def at_panel(doc: Doc) -> Panel | None:
    """Tokens per GPU with / without at equal speed, where several speeds were asked for."""
    found = [item for item in doc.items("at") if item.has("ratio")]
    return Panel(
        "What speculation gains at equal speed", "tok/s/user", "tok/s/GPU, with / without",
        (curve("ratio", found, "stream_tok_s", "ratio", interval="ratio_90"),),
        levels=((1.0, "break-even"),), log_y=True,
        words="Each side at its own best setting. The band is the 90% interval; it ends where "
              "plain decoding may not reach the speed.",
    ) if len(found) > 1 else None
