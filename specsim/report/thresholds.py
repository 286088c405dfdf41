"""Loads at which something changes, by the one name that every output uses for each."""

PAYS = "pays below"
CHEAP = "cheap below"
MEMORY_BOUND = "memory-bound below"
QUEUEING = "queueing from"
MEANING = {
    PAYS: "with more clients speculation no longer raises throughput",
    CHEAP: "a step costs at most {share:.0%} more than a plain one",
    MEMORY_BOUND: "a verify step reads memory for longer than it computes",
    QUEUEING: "the first number of requests at a time of which one waits for a slot",
}


def below(load: float | None, top: float | None = None) -> str:
    """A threshold that something holds below: 'never' for 1 (not even for one client); where it was
    not reached, the largest load looked at ('> 124'), or 'any load'."""
    if load == 1:
        return "never"
    if load is None:
        return "any load" if top is None else f"> {top:,.15g}"
    return f"{load:,.15g}"
