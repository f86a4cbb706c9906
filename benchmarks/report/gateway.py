"""The report and the picture of the suite `gateway`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.results import Row
from benchmarks.report.charts import Bar, BarPanel, draw_bars


def report_gateway(_: Row, rows: Sequence[Row], __: Sequence[str]) -> list[str]:
    lines = ["with a scripted model that answers at once: what the gateway costs, nothing about a model"]
    lines += [
        f"a 4 KiB write brought to this disk: p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms"
        for row in rows
        if row["part"] == "disk"
    ]
    lines += ["", f"{'request':28} {'clients':>7} {'p50 ms':>8} {'p99 ms':>8} {'per s':>8} {'gateway CPU ms':>15}"]
    lines += [_request_line(row) for row in rows if row["part"] == "request"]
    for row in rows:
        if row["part"] == "queue":
            lines += ["", *_queue_lines(row)]
        elif row["part"] == "upload":
            lines += ["", *_upload_lines(row)]
    return lines


def _request_line(row: Row) -> str:
    return (
        f"{row['request']:28} {row['clients']:>7} {row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f} {row['per_s']:>8,.0f} "
        f"{row['gateway_cpu_ms']:>15.2f}"
    )


def _queue_lines(row: Mapping[str, Any]) -> list[str]:
    return [
        f"{row['jobs']:,} jobs queued, {row['streams']} streams open: {row['completed']:,} completed in "
        f"{row['seconds']:.1f} s",
        f"  events: {row['events']:,} stored, {row['received']:,} received, {row['missing']} missing, "
        f"{row['repeated']} repeated, {row['streams_not_as_stored']} streams not as stored",
        f"  from an event's time to its arrival: p50 {row.get('delay_p50_ms', 0):.0f} ms, "
        f"p99 {row.get('delay_p99_ms', 0):.0f} ms",
        f"  processor seconds: gateway {row['cpu_s_gateway']}, runner {row['cpu_s_runner']}, "
        f"clients {row['cpu_s_clients']}",
        f"  gateway's memory: {row['rss_before_mib']} MiB before, {row['rss_max_mib']} at most, "
        f"{row['rss_after_mib']} after",
    ]


def _upload_lines(row: Mapping[str, Any]) -> list[str]:
    return [
        f"upload of {row['bytes'] / 1e6:.0f} MB: sent in {row['sending_s']:.1f} s, stored and read in "
        f"{row['seconds']:.1f} s",
        f"  gateway's memory: {row['rss_before_mib']} MiB before, + {row['growth_receiving_mib']} at most while it "
        f"came in, + {row['growth_storing_mib']} while it was stored and read, + {row['growth_after_mib']} after",
        f"  the process that reads it, alone: {row['parser_max_mib']} MiB at most",
    ]


def draw_gateway(header: Row, rows: Sequence[Row], _: Sequence[str]) -> str:
    """Requests by one client and by many, on scales of their own."""
    requests = [row for row in rows if row["part"] == "request"]
    panels = []
    for clients in sorted({row["clients"] for row in requests}):
        bars = [
            Bar(label=row["request"], value=row["p50_ms"], high=row["p99_ms"], note=f"{row['p50_ms']:.1f} ms")
            for row in requests
            if row["clients"] == clients
        ]
        panels.append(BarPanel(title=f"{clients} client{'s' * (clients != 1)}: ms, p50, whisker to p99", bars=bars))
    return draw_bars(f"The gateway, scripted model, commit {header['commit'][:12]}", panels)
