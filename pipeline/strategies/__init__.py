"""Ways to get an answer; one file and one line each."""

from __future__ import annotations

from pipeline.errors import UnknownName
from pipeline.run import Strategy
from pipeline.strategies.map_reduce import MapReduce
from pipeline.strategies.reference import Reference

STRATEGIES: dict[str, Strategy] = {
    "mapreduce": MapReduce(),
    "reference": Reference(),
}


def find_strategy(name: str) -> Strategy:
    """`auto` is mapreduce, which reads a document of one chunk directly."""
    if name == "auto":
        return STRATEGIES["mapreduce"]
    if name not in STRATEGIES:
        raise UnknownName(f"No strategy {name!r}; the strategies are auto, {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]
