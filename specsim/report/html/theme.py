"""Colours by role, told apart by people with any colour vision, for light and dark pages.

The qualitative colours are those of Okabe and Ito (2008, "Color Universal Design"), for dark pages
their light members; curves also differ by dash and marker, so that none depends on colour. Charts
name roles ("@a"); the page replaces them by the colour of the scheme it is shown in.
"""

SERIES = ("a", "b", "c", "d", "e", "f", "g", "h")

LIGHT = {
    "a": "#0072b2", "b": "#d55e00", "c": "#009e73", "d": "#b0558a", "e": "#a67c00",
    "f": "#3b8fc4", "g": "#5a5a5a", "h": "#7a3e00",
    "page": "#f5f6f8", "card": "#ffffff", "ink": "#1b1f24", "muted": "#57606a",
    "line": "#d8dee4", "grid": "#e6e9ed", "soft": "#eef2f6", "warn": "#8a4600",
    "warn-soft": "#fff4e5", "shade": "#b9c2cc", "good": "#006b4f", "bad": "#b3261e",
    "link": "#0060a0",
}
DARK = {
    "a": "#56b4e9", "b": "#e69f00", "c": "#2bc999", "d": "#e79bc6", "e": "#f0e442",
    "f": "#9ab8ff", "g": "#b5b5b5", "h": "#d98e5f",
    "page": "#101317", "card": "#191e24", "ink": "#e7ebef", "muted": "#a3adb8",
    "line": "#333b45", "grid": "#2a313a", "soft": "#222931", "warn": "#ffc078",
    "warn-soft": "#33260f", "shade": "#56616e", "good": "#4fd1a5", "bad": "#ff9a8f",
    "link": "#7cc4ff",
}
BAND_ALPHA = 0.18

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid", "dash", "dot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x", "hexagon")
# Blue to yellow through grey, readable without colours too (the scale "cividis" of Nunez et al.,
# 2018, at nine steps).
SEQUENTIAL = (
    "#00224e", "#1f3a6e", "#434e6c", "#61656f", "#7d7c78", "#9c9377", "#bcac6f", "#ddc75f",
    "#fee838",
)

DIVERGING = ("#5e3c99", "#f7f7f7", "#e66101")  # below, at and above the middle


def variables(colours: dict[str, str]) -> str:
    """CSS custom properties of a scheme, bands included."""
    out = [f"--{name}:{value};" for name, value in colours.items()]
    for name in SERIES:
        red, green, blue = (int(colours[name][i : i + 2], 16) for i in (1, 3, 5))
        out.append(f"--{name}-band:rgba({red},{green},{blue},{BAND_ALPHA});")
    return "".join(out)


def roles() -> list[str]:
    """All names a chart may use behind '@'."""
    return [*LIGHT, *(f"{name}-band" for name in SERIES)]
