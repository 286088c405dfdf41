"""`specsim quick`: a live server in one word."""

import sys

from specsim.commands.bind import Ended, command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.files import check_writable, write_whole
from specsim.options.measured import QuickCommand


@command(
    QuickCommand,
    "specsim quick",
    "specsim quick http://gpu7:8000 --gpu h100-sxm --share answer.md",
)
def quick(options: QuickCommand) -> None:
    """Look at a live server, drive it for a minute, and judge it. Of vLLM or SGLang: whether
    speculation pays there, with which k, up to which load, and what to type.

    An idle server gets 1, then 4, then 8 clients; one that others use a single one; one where
    requests wait is only watched. Nothing is changed there.
    """
    from specsim.api.quick import run
    from specsim.report.doc import Doc
    from specsim.report.progress import words_line
    from specsim.report.quick import quick_markdown

    check_writable(options.share, "--share")
    with words_line(not quiet(options), "looking for the server") as tell:
        found = run(options, tell)
    show(found, options)
    sys.stdout.flush()
    if options.share is not None:
        write_whole(options.share, quick_markdown(Doc(found.document)))
    end_if_partial(found.partial, "the answer is of what was finished")
    if found.stopped:
        sys.stderr.write(f"specsim: ended early: {found.stopped}\n")
        raise Ended(1)
