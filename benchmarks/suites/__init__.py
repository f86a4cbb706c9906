"""What can be measured; one file and one line each."""

from __future__ import annotations

from benchmarks.harness.suite import Suite
from benchmarks.suites import (
    ablation,
    ask,
    gate,
    gateway,
    infinitebench,
    load,
    longcontext,
    needle,
    peers,
    quality,
    saturation,
    scale,
    second_question,
    split,
)

SUITES: dict[str, Suite] = {
    "gate": gate.SUITE,
    "ask": ask.SUITE,
    "ablation": ablation.SUITE,
    "quality": quality.SUITE,
    "saturation": saturation.SUITE,
    "second_question": second_question.SUITE,
    "split": split.SUITE,
    "peers": peers.SUITE,
    "load": load.SUITE,
    "gateway": gateway.SUITE,
    "infinitebench": infinitebench.SUITE,
    "needle": needle.SUITE,
    "longcontext": longcontext.SUITE,
    "scale": scale.SUITE,
}
