"""Sphinx: Markdown pages (MyST) whose commands are run and whose tables are made while building.

    pip install -e '.[docs]' && sphinx-build -W docs build/docs

SPECSIM_EXPANDED may name a folder in which all pages were expanded before.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

HERE = Path(__file__).resolve().parent
SENTENCE = 90  # characters of a cell in a table
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import generated  # noqa: E402

from specsim import __version__  # noqa: E402

project = "specsim"
author = project_copyright = "the specsim authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# Links to files of the repository outside docs/ (a test follows them).
suppress_warnings = ["myst.xref_missing"]
# Docstrings mark code with single backticks; `--help` must not become a dash.
default_role = "code"
smartquotes = False
# Fences without a language hold formulas, pseudo-code and commands: nothing of Python.
highlight_language = "none"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"specsim {__version__}"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False


def _expand(app: Any, docname: str, source: list[str]) -> None:
    folder = os.environ.get("SPECSIM_EXPANDED")
    if folder:
        source[0] = Path(folder, f"{docname}.md").read_text(encoding="utf-8")
    else:
        source[0] = generated.expand(source[0], docname)


def _mark(app: Any, doctree: Any, docname: str) -> None:
    """Sentences in tables are known to the style sheet."""
    for cell in doctree.findall(nodes.entry):
        if len(cell.astext()) > SENTENCE:
            cell["classes"].append("long")


def _breaks(app: Any, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Names in code may go on in the next line after a joint, not within a word."""
    if "body" in context:
        context["body"] = re.sub(
            r'(?<=<span class="pre">)[^<]+',
            lambda match: re.sub(r"(?<=[_/.,=])(?=\w)", "<wbr>", match[0]), context["body"])


def setup(app: Any) -> None:
    app.connect("source-read", _expand)
    app.connect("doctree-resolved", _mark)
    app.connect("html-page-context", _breaks)
