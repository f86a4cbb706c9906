"""LongAgent (arXiv 2402.11550): a leader that never sees the document, members that each see one chunk.

    leader ─instruction─▶ members, all at once ─answers─▶ leader ─▶ NEW_STATE: another round
                                                                 ─▶ CONFLICT: two chunks in one prompt, asked again
                                                                 ─▶ ANSWER

Departs from the paper (docs/strategies.md says why): rounds and merges are capped, refusing is a field, pairs are the
lowest numbers, members point at sentences, and the leader's prompt is guarded against too many answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.documents.document import Document
from pipeline.findings.answer import NOTHING, Answer, Conclusion, conclude, conclude_from_one
from pipeline.findings.finding import Finding
from pipeline.llm.model import CallFailed, Stage
from pipeline.run.events import StageStarted
from pipeline.run.plan import Plan
from pipeline.run.request import CHUNK_OPTIONS, Request
from pipeline.run.run import Run, begin_run
from pipeline.run.strategy import Resources
from pipeline.strategies.longagent.leader import (
    MAX_ROUNDS,
    Action,
    Decision,
    Round,
    Talk,
    Voice,
    answers_room_tokens,
    decide,
    first_instruction,
    group_voices,
    is_repeated,
    max_condensing_calls,
    rephrase,
)
from pipeline.strategies.longagent.members import (
    ask_members,
    instruction_tokens,
    largest_chunk_tokens,
    member_call,
    merge_members,
)
from pipeline.text import answer_key, same_answer

CHUNK_TOKENS = 2000
"""The largest of the paper's ablation, and the one that invents least."""
MAX_MERGES = 16
"""Of two chunks over a conflict, in all rounds together."""


class LongAgent:
    """Rounds of instruction and answers until the leader is satisfied or the rounds are used up."""

    name = "longagent"
    steps = ("members", "leader")
    options = CHUNK_OPTIONS

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        run = _begin(document, request, resources)
        n = len(run.chunks)
        merges = min(MAX_MERGES, MAX_ROUNDS * n * (n - 1) // 2)
        decisions = MAX_ROUNDS + merges + 1  # once more where an instruction would repeat an earlier one
        condensing = decisions * max_condensing_calls(run)
        reading = sum(len(member_call(run, c, "").prompt.token_ids) + instruction_tokens(run) for c in run.chunks)
        window, task = resources.budget.context_tokens, run.task
        leader_output = task.reduce_output_tokens + instruction_tokens(run)
        return Plan(
            strategy=self.name,
            reason=f"at most {MAX_ROUNDS} rounds of {n} members and a leader, at most {merges} conflicts read again",
            document_tokens=run.document_tokens(),
            chunks=n,
            calls=1 + MAX_ROUNDS * n + merges + decisions + condensing if n else 0,
            prompt_tokens=MAX_ROUNDS * reading + (1 + merges + decisions + condensing) * window if n else 0,
            output_tokens=(MAX_ROUNDS * n + merges) * task.map_output_tokens
            + (1 + decisions) * leader_output
            + condensing * answers_room_tokens(run),
            depth=1 + MAX_ROUNDS + merges + decisions + condensing if n else 0,
            graph=_graph(n),
        )

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        run = _begin(document, request, resources)
        if not run.chunks:
            return run.account.answer(NOTHING)
        talk = Talk(instruction=await first_instruction(run))
        while talk.instruction and len(talk.rounds) < MAX_ROUNDS:
            talk = run.step("members", talk)
            expected = len(run.chunks) * (len(talk.rounds) + 1) + talk.merges_made
            resources.emit(StageStarted(stage=Stage.MAP, calls=expected))
            talk.rounds.append(Round(instruction=talk.instruction, said=await ask_members(run, talk.instruction)))
            _show(run, talk.rounds[-1])
            talk, decision = await _decide(run, talk)
            if decision is None:
                # Nobody found anything: other words once, then the document does not say.
                again = len(talk.rounds) == 1 and not _stopped(run)
                talk.instruction = await rephrase(run, talk.rounds) if again else ""
            elif isinstance(decision, CallFailed) or decision.action is Action.ANSWER:
                return run.account.answer(_conclude(decision, talk.rounds))
            else:
                talk.instruction = decision.instruction
        return run.account.answer(NOTHING)


def _begin(document: Document, request: Request, resources: Resources) -> Run:
    """Everything that needs no model; a context too small for any of the prompts is found here."""
    run = begin_run(document, request, resources)
    run.split(largest_chunk_tokens(run), usual_tokens=CHUNK_TOKENS)
    answers_room_tokens(run)
    return run


def _stopped(run: Run) -> bool:
    return bool(run.meter.stopped_by)


class _Merges:
    """Conflicts read again: lowest numbers first, no pair twice in a round, a bounded number in all."""

    def __init__(self, run: Run, talk: Talk) -> None:
        self._run = run
        self._talk = talk

    def next_pair(self, round_: Round, among: Iterable[int] | None = None) -> tuple[int, int] | None:
        """The first two different answers not yet held against each other; of the members `among`, if given."""
        if self._talk.merges_made >= MAX_MERGES or _stopped(self._run):
            return None
        named = None if among is None else set(among)
        voices = [v for v in group_voices(round_.said) if named is None or named.intersection(v.members)]
        pairs = ((a.members[0], b.members[0]) for place, a in enumerate(voices) for b in voices[place + 1 :])
        return next((pair for pair in pairs if pair not in round_.pairs_asked), None)

    async def resolve(self, round_: Round, named: Sequence[int]) -> None:
        """Read pairs again until one answer remains among the named. At least one pair is read: the others' first."""
        pair = self.next_pair(round_, named)
        if pair is None:
            pair = self.next_pair(round_)
            named = pair or ()
        while pair is not None:
            self._talk.merges_made += 1
            round_.pairs_asked.add(pair)
            merged = await merge_members(self._run, pair, round_.instruction)
            if isinstance(merged, CallFailed):
                numbers = f"{pair[0]} and {pair[1]}"
                self._run.account.warnings.append(
                    f"The conflict between chunks {numbers} was not read again: {merged.message}"
                )
            elif merged is not None:
                _settle(round_.said, pair, merged)
            pair = self.next_pair(round_, named)


def _settle(said: dict[int, Finding], pair: tuple[int, int], merged: Finding) -> None:
    """Who said what the pair no longer says takes it back; the answer of both chunks stands with the first."""
    right = answer_key(merged.answer)
    wrong = {answer_key(said[index].answer) for index in pair} - {right}
    for index in [index for index, finding in said.items() if answer_key(finding.answer) in wrong]:
        del said[index]
    said[pair[0]] = merged


async def _decide(run: Run, talk: Talk) -> tuple[Talk, Decision | CallFailed | None]:
    """NEW_STATE with a new instruction, ANSWER, or the leader's failure; None if there is nothing to decide on.

    Conflicts are dealt with here.
    """
    while True:
        talk = run.step("leader", talk)
        if not any(round_.said for round_ in talk.rounds):
            return talk, None
        rounds, merges = talk.rounds, _Merges(run, talk)
        last = len(rounds) == MAX_ROUNDS or _stopped(run)
        conflict = merges.next_pair(rounds[-1]) is not None
        allowed = [Action.NEW_STATE] * (not last) + [Action.CONFLICT] * conflict + [Action.ANSWER]
        decision = await decide(run, rounds, allowed)
        if isinstance(decision, CallFailed) or decision.action is Action.ANSWER:
            return talk, decision
        if decision.action is Action.NEW_STATE:
            if is_repeated(decision.instruction, rounds):
                decision = await decide(run, rounds, [Action.ANSWER])
            return talk, decision
        await merges.resolve(rounds[-1], decision.members)


def _show(run: Run, round_: Round) -> None:
    voices = group_voices(round_.said)
    if voices and run.task.decisive:
        run.account.show(conclude_from_one(_strongest(voices).finding), "what most members say")


def _strongest(voices: Sequence[Voice]) -> Voice:
    return max(voices, key=lambda voice: (len(voice.members), voice.finding.probability))


def _conclude(decision: Decision | CallFailed, rounds: Sequence[Round]) -> Conclusion:
    """The leader's answer on the findings it names; if it failed, what most members said, with a warning."""
    voices = next((found for round_ in reversed(rounds) if (found := group_voices(round_.said))), [])
    if isinstance(decision, CallFailed):
        warning = f"The leader failed; this is what most members say: {decision.message}"
        best = _strongest(voices)
        return conclude_from_one(best.finding, [voice.finding for voice in voices if voice is not best], warning)
    if not decision.answer:
        return NOTHING
    everything = [finding for round_ in reversed(rounds) for finding in round_.said.values()]
    named = [round_.said[m] for round_ in reversed(rounds) for m in decision.members if m in round_.said]
    agreeing = [finding for finding in everything if same_answer(finding.answer, decision.answer)]
    return conclude(
        decision.answer, decision.reason, named or agreeing or everything, [voice.finding for voice in voices]
    )


def _graph(chunks: int) -> str:
    """The conversation as Mermaid text."""
    return "\n".join(
        (
            "flowchart LR",
            f"    document --> split[{chunks} chunks] --> members[members ×{chunks}]",
            "    leader -- instruction --> members -- answers --> leader",
            "    leader -- NEW_STATE --> members",
            "    leader -- CONFLICT --> merge[two chunks read again] --> leader",
            "    leader -- ANSWER --> answer[answer with evidence]",
        )
    )
