"""Table and plot of the simulated driver."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.results import Row
from benchmarks.report.charts import Line, draw_lines

_HEAD = (
    f"{'load':10} {'speed':>6} {'replicas':>9} {'calls':>8} {'calls/s':>9} {'idle':>6} {'tail s':>8} "
    f"{'driver busy':>12} {'driver ms/call':>15} {'router ms/call':>15}"
)
TAIL_SHARE = 0.95
SATURATED = 0.8
"""Of a driver's time, from where on it counts as the limit."""


def report_scale(_: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    lines = []
    for row in rows:
        if row["key"] == "ray":
            lines += [
                f"measured, not simulated: through Ray and one scripted replica {row['calls_per_s']:,.0f} calls/s; of "
                f"the driver's thread {row['batched_ms_per_call']:.2f} ms per call in batches and "
                f"{row['single_ms_per_call']:.2f} ms per call alone",
                f"of these Ray's: {row['ray_ms_per_task']:.2f} ms per task, {row['ray_ms_per_call']:.2f} ms per call",
            ]
    points = [row for row in rows if row["key"] != "ray"]
    for file in dict.fromkeys(row["speed_from"] for row in points):
        slowest = min(row["replica_tokens_per_s"] for row in points if row["speed_from"] == file)
        lines.append(f"speed 1: {slowest:,.0f} tokens/s a replica, measured ({file}); other speeds are assumed")
    lines += ["", "SIMULATED, every row", _HEAD, *(_line(row) for row in points)]
    lines.append(f"tail: seconds from when {TAIL_SHARE:.0%} of the calls had ended to the end")
    return [*lines, "", *limits(points)]


def limits(points: Sequence[Row]) -> list[str]:
    """The number of replicas from which on the driver is busy nearly all the time, for each load and speed."""
    lines = []
    for load, speed in dict.fromkeys((row["load"], row["speed"]) for row in points):
        own = sorted(
            (row for row in points if (row["load"], row["speed"]) == (load, speed)), key=lambda r: r["replicas"]
        )
        full = [row for row in own if row["driver_share"] >= SATURATED]
        if full:
            found = f"the driver is the limit from {full[0]['replicas']:,} replicas on, at {_peak_rate(full)} calls/s"
        else:
            busiest = max(row["driver_share"] for row in own)
            found = f"the driver is never the limit (busy {busiest:.0%} at most, {_peak_rate(own)} calls/s)"
        lines.append(f"simulated, {load}, speed x{speed}: {found}")
    return lines


def draw_scale(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    """Calls per second over replicas."""
    points = [row for row in rows if row["key"] != "ray"]
    loads = list(dict.fromkeys(row["load"] for row in points))
    lines = [
        Line(
            colour=loads.index(load),
            dashed=speed == 1,
            name=f"{load}, speed x{speed}",
            points=[
                (row["replicas"], row["calls_per_s"])
                for row in sorted(points, key=lambda row: row["replicas"])
                if (row["load"], row["speed"]) == (load, speed)
            ],
        )
        for load, speed in dict.fromkeys((row["load"], row["speed"]) for row in points)
    ]
    title = f"SIMULATED: calls per second of one driver, {header['model']['name']}'s prompts"
    return draw_lines(title, lines, "scripted replicas (simulated)", "calls per second (simulated)")


def _peak_rate(rows: Sequence[Row]) -> str:
    return f"{max(row['calls_per_s'] for row in rows):,.0f}"


def _line(row: Row) -> str:
    return (
        f"{row['load']:10} {'x' + str(row['speed']):>6} {row['replicas']:>9,} {row['calls']:>8,} "
        f"{row['calls_per_s']:>9,.1f} {row['idle_share']:>6.0%} {row['tail_s']:>8.1f} {row['driver_share']:>12.0%} "
        f"{row['driver_ms_per_call']:>15.3f} {row['router_ms_per_call']:>15.3f}"
    )
