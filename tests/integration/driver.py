"""A driver that can be killed: asks one question on a running cluster, with a journal, and prints the answer.

python -m tests.integration.driver ADDRESS FOLDER JOURNAL
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from pipeline.dispatch.journal import Journal, JournaledDispatcher
from pipeline.dispatch.ray_tasks import RayTaskDispatcher
from pipeline.dispatch.retry import RetryPolicy
from pipeline.findings.answer import Answer
from pipeline.front_door import ask
from pipeline.llm.model import Dispatcher
from pipeline.run.request import Request
from serving.cluster import ray_cluster
from tests.factories import fact_document, make_resources

DOCUMENT = fact_document({}, paragraphs=40)
REQUEST = Request(question="How still was the harbour?", strategy="mapreduce")


async def ask_on(dispatcher: Dispatcher) -> Answer:
    return await ask(DOCUMENT, REQUEST, make_resources(dispatcher=dispatcher))


def essence(answer: Answer) -> str:
    """What must not depend on failures, times and places."""
    quotes = [[e.quote, e.span.start if e.span else None] for e in answer.evidence]
    return json.dumps([answer.text, answer.explanation, answer.probability, quotes, answer.coverage.chunks_read])


def patient_dispatcher(joined: ray_cluster.Cluster) -> RayTaskDispatcher:
    return joined.dispatcher(calls_per_replica=16, retry=RetryPolicy(first_wait_s=0.2, longest_wait_s=2.0))


def main() -> None:
    address, folder, journal = sys.argv[1:]
    joined = ray_cluster.join(address, folder=Path(folder), auth="disabled")
    dispatcher = JournaledDispatcher(patient_dispatcher(joined), Journal(Path(journal)), "scripted")
    print(essence(asyncio.run(ask_on(dispatcher))))


if __name__ == "__main__":
    main()
