"""What `specsim predict --plot` draws: the speedup over the loads asked for, with its interval."""

from specsim.analytic.predict import Prediction
from specsim.report.plots import Panel, Series


def speedup_panel(result: Prediction) -> Panel:
    """Speedup over clients or requests per second; the ends of its 90 % interval as dots where
    they are known."""
    points = result.points
    is_open = all(point.utilisation is not None for point in points)
    x = [point.request_rate if is_open else point.concurrency for point in points]
    series = [Series("speedup", x, [point.speedup for point in points])]
    known = [
        (place, band) for place, point in zip(x, points, strict=True)
        if (band := point.interval_90["speedup"])
    ]
    if known:
        ends = [(place, end) for place, band in known for end in band]
        series.append(Series(
            "90 % interval", [place for place, _ in ends], [end for _, end in ends],
            style="points", faint=True,
        ))
    return Panel(
        "What speculation gains", "requests/s" if is_open else "clients",
        "throughput with / without", tuple(series), log_x=len(x) > 2,
        levels=((1.0, "break-even"),),
    )
