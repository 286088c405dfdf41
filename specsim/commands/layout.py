"""How lists of options and commands are laid out in `--help`."""

import textwrap
from collections.abc import Sequence
from typing import Any

# As wide as the terminal is; typer's own limit is 80.
WIDTH = {"max_content_width": 10_000}


def write_list(
    formatter: Any, heading: str, rows: Sequence[tuple[str, str]], column: int
) -> None:
    """Names and what they mean in two columns below a heading; a name longer than `column`
    characters has a line of its own. No word is broken, so that every flag can be copied."""
    with formatter.section(heading):
        indent = " " * formatter.current_indent
        beside = f"{indent}{'':<{column}}  "
        for name, text in rows:
            lines = textwrap.wrap(
                text, formatter.width, initial_indent=beside, subsequent_indent=beside,
                break_on_hyphens=False, break_long_words=False,
            )
            if len(name) > column or not lines:
                formatter.write(f"{indent}{name}\n")
            else:
                lines[0] = f"{indent}{name:<{column}}  {lines[0].lstrip()}"
            formatter.write("".join(f"{line}\n" for line in lines))
