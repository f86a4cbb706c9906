"""Ways to get an answer; one file or one package and one line each."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.errors import UnknownName
from pipeline.mapreduce.strategy import MapReduce
from pipeline.run.strategy import Strategy
from pipeline.strategies.auto import Auto
from pipeline.strategies.chain_of_agents.strategy import ChainOfAgents
from pipeline.strategies.direct import Direct
from pipeline.strategies.lc_boost.strategy import LCBoost
from pipeline.strategies.longagent.strategy import LongAgent
from pipeline.strategies.map_rerank import MapRerank
from pipeline.strategies.reference import Reference
from pipeline.strategies.refine import Refine
from pipeline.strategies.summarize.strategy import LANGCHAIN, Summarize
from pipeline.strategies.truncate import Keep, Truncate

STRATEGIES: dict[str, Strategy] = {
    "auto": Auto(),
    "direct": Direct(),
    "truncate": Truncate("truncate", Keep.ENDS),
    "truncate_head": Truncate("truncate_head", Keep.HEAD),
    "truncate_tail": Truncate("truncate_tail", Keep.TAIL),
    "mapreduce": MapReduce(),
    "summarize": Summarize(),
    "langchain": Summarize(LANGCHAIN),
    "refine": Refine(),
    "map_rerank": MapRerank(),
    "reference": Reference(),
    "longagent": LongAgent(),
    "lc_boost": LCBoost(),
    "chain_of_agents": ChainOfAgents(),
    "chain_of_agents_both_ways": ChainOfAgents(
        name="chain_of_agents_both_ways", orders=("ltr", "rtl"), selector="judge"
    ),
    "chain_of_agents_five_orders": ChainOfAgents(name="chain_of_agents_five_orders", orders=(1, 2, 3, 4, 5)),
}


def check_step(strategy: str, name: str) -> None:
    """Raises UnknownName if a run of the strategy cannot be paused before a step of this name; none is always well."""
    steps = find_strategy(strategy).steps
    if name and name not in steps:
        known = f"its steps are {', '.join(steps)}" if steps else "name the strategy that it would choose"
        raise UnknownName(f"The strategy {strategy} has no step {name!r}; {known}.")


def check_options(strategy: str, names: Iterable[str]) -> None:
    """Raises UnknownName for an option that the strategy would not obey."""
    known = find_strategy(strategy).options
    if unknown := next((name for name in names if name not in known), None):
        has = f"its options are {', '.join(known)}" if known else "it has none"
        raise UnknownName(f"The strategy {strategy} has no option {unknown}; {has}.")


def find_strategy(name: str) -> Strategy:
    """Raises UnknownName with the known names."""
    if name not in STRATEGIES:
        raise UnknownName(f"No strategy {name!r}; the strategies are {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]
