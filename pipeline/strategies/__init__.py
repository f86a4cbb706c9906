"""Ways to get an answer; one file and one line each."""

from __future__ import annotations

from pipeline.errors import UnknownName
from pipeline.run import Strategy
from pipeline.strategies.chain_of_agents import ChainOfAgents
from pipeline.strategies.lc_boost import LCBoost
from pipeline.strategies.longagent import LongAgent
from pipeline.strategies.map_reduce import MapReduce
from pipeline.strategies.reference import Reference

STRATEGIES: dict[str, Strategy] = {
    "mapreduce": MapReduce(),
    "reference": Reference(),
    "longagent": LongAgent(),
    "lc_boost": LCBoost(),
    "chain_of_agents": ChainOfAgents(),
    "chain_of_agents_both_ways": ChainOfAgents(
        name="chain_of_agents_both_ways", orders=("ltr", "rtl"), selector="judge"
    ),
    "chain_of_agents_five_orders": ChainOfAgents(name="chain_of_agents_five_orders", orders=(1, 2, 3, 4, 5)),
}


def find_strategy(name: str) -> Strategy:
    """`auto` is mapreduce, which reads a document of one chunk directly."""
    if name == "auto":
        return STRATEGIES["mapreduce"]
    if name not in STRATEGIES:
        raise UnknownName(f"No strategy {name!r}; the strategies are auto, {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]
