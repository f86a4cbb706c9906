"""`longfold demo`: two questions of a real document of about 107K tokens, with answers that can be checked.

On a slow machine it reads the first part only: what takes about three minutes, but at least 32K tokens. It takes
nothing from the journal, so the times are those of this machine, today.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.answer import Answer
from pipeline.bundled_document import bundled_document
from pipeline.document import Document
from pipeline.errors import ModelError, ReplicaUnavailable
from pipeline.events import Event, Provisional
from pipeline.model import Call, CallFailed, EncodedPrompt, Sampling, Stage
from pipeline.plan import Plan
from pipeline.request import Request
from pipeline.words import duration
from serving.ask_command import INTERRUPTED, faster_text, print_lines
from serving.live_display import Display, make_display
from serving.render_answer import answer_lines, plan_lines, usage_lines
from serving.session import OpenModel, Session, bring_model, describe_model, open_session
from serving.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoQuestion:
    """A question whose right answer is known."""

    question: str
    expected: str
    """What a right answer contains."""
    stated: str
    """Words of the document that state it: the question is asked only if they stand in the part that is read."""


QUESTIONS = (
    DemoQuestion(
        question="Which exception does an assert statement raise when its condition is false?",
        expected="AssertionError",
        stated="raise AssertionError",
    ),
    DemoQuestion(
        question='Since which Python version may "/" in a function definition indicate positional-only parameters?',
        expected="3.8",
        stated='The "/" function parameter syntax may be used',
    ),
    DemoQuestion(
        question="Since which Python version is hash randomization enabled by default?",
        expected="3.3",
        stated="Hash randomization is enabled by default",
    ),
)
"""The first two whose facts stand in the part that is read are asked."""

AIM_S = 180.0
_READING_SHARE = 0.8
"""Of that time for reading every chunk once; the rest is for what the kept ones say."""
FEWEST_TOKENS = 32_768
_CANARY_TOKENS = 2000
"""Long enough for the speed of reading to show, short enough to cost seconds."""


@dataclass(slots=True)
class _Times:
    """When the first provisional answer of a run came, in seconds from its start."""

    started_s: float
    first_answer_s: float | None = None

    def note(self, event: Event) -> None:
        if isinstance(event, Provisional) and self.first_answer_s is None:
            self.first_answer_s = time.monotonic() - self.started_s


def run_demo(settings: Settings, *, full: bool) -> int:
    """Run the tour; 0 if both answers are right, the exit code of a model error if not."""
    display = make_display(sys.stderr)
    try:
        model = bring_model(settings, display.report)
        display.say(describe_model(settings, model))
        with open_session(settings, model, display.report) as session, asyncio.Runner() as runner:
            document = bundled_document()
            display.report("measuring how fast this machine reads")
            speed = runner.run(measure_speed(session, document))
            if not full:
                document = choose_part(model, document, speed, display.say)
            tour = _Tour(session=session, document=document, display=display, runner=runner, tokens_per_s=speed)
            return tour.run()
    except KeyboardInterrupt:
        display.say("Interrupted.")
        return INTERRUPTED
    finally:
        display.close()


async def measure_speed(session: Session, document: Document) -> float:
    """Tokens per second that the model reads here: one prompt to warm up, then one that is timed."""
    ids = session.model.tokenizer.encode_content(document.text[-12 * _CANARY_TOKENS :])
    begun_s = 0.0
    for prompt in (ids[:64], ids[64 : 64 + _CANARY_TOKENS]):
        begun_s = time.monotonic()
        call = Call(
            prompt=EncodedPrompt(token_ids=prompt, shared_prefix_tokens=0),
            sampling=Sampling(max_output_tokens=1),
            stage=Stage.DIRECT,
        )
        async for outcome in session.dispatcher.complete([call]):
            if isinstance(outcome, CallFailed):
                raise ReplicaUnavailable(f"The model did not answer a short test: {outcome.message}")
    return _CANARY_TOKENS / (time.monotonic() - begun_s)


def choose_part(model: OpenModel, document: Document, tokens_per_s: float, say: Callable[[str], None]) -> Document:
    """As many of the document's topics as are read in about three minutes, and what that is, said aloud."""
    tokens = model.tokenizer.count(document.text)
    wanted = max(FEWEST_TOKENS, int(tokens_per_s * AIM_S * _READING_SHARE))
    whole_s = tokens / tokens_per_s
    if wanted >= tokens:
        say(f"This machine reads about {tokens_per_s:,.0f} tokens/s: time enough for the whole document.")
        return document
    part = bundled_document(at_least_chars=len(document.text) * wanted // tokens)
    say(
        f"This machine reads about {tokens_per_s:,.0f} tokens/s, so the demo takes the first "
        f"{model.tokenizer.count(part.text):,} of the document's {tokens:,} tokens.\n"
        f"To read all of it (about {duration(whole_s)}): make demo FULL=1"
    )
    return part


@dataclass(frozen=True, kw_only=True)
class _Tour:
    session: Session
    document: Document
    display: Display
    runner: asyncio.Runner
    tokens_per_s: float

    def run(self) -> int:
        asked = [question for question in QUESTIONS if question.stated in self.document.text][:2]
        self._show_plan(Request(question=asked[0].question, strategy="mapreduce"))
        first, first_right = self._ask(asked[0])
        second, second_right = self._ask(asked[1])
        print_lines(
            [f"Second question on the warm document: {faster_text(second.total_seconds, first.total_seconds)}."]
        )
        print_lines(["", 'Now your own: longfold ask FILE --question "..."   (longfold up keeps the model loaded)'])
        return 0 if first_right and second_right else ModelError.exit_code

    def _show_plan(self, request: Request) -> None:
        plan: Plan = self.session.model.plan(self.document, request)
        per_token = self.session.model.profile.kv_bytes_per_token
        for line in plan_lines(plan, kv_bytes_per_token=per_token, tokens_per_s=self.tokens_per_s):
            self.display.say(line)

    def _ask(self, question: DemoQuestion) -> tuple[Answer, bool]:
        print_lines(["", f"Question: {question.question}"])
        times = _Times(started_s=time.monotonic())
        with self.display.watch(self.document) as feed:

            def tell(event: Event) -> None:
                times.note(event)
                feed(event)

            request = Request(question=question.question, strategy="mapreduce")
            answer = self.runner.run(self.session.ask(self.document, request, tell, fresh=True))
        right = re.search(rf"(?<![\d.]){re.escape(question.expected)}(?!\d)", answer.text) is not None
        print_lines([*answer_lines(answer, self.document), "", *usage_lines(answer.usage, answer.seconds), ""])
        if times.first_answer_s is not None:
            print_lines([f"First provisional answer after {duration(times.first_answer_s)}."])
        print_lines([_verdict(right, question), quote_check(answer, self.document), ""])
        return answer, right


def _verdict(right: bool, question: DemoQuestion) -> str:
    return "The answer is right." if right else f"The answer is wrong: {question.expected} would be right."


def quote_check(answer: Answer, document: Document) -> str:
    """Looks every quote up in the document again, independently of how it got there."""
    quotes = [evidence for evidence in answer.evidence if evidence.span is not None]
    found = sum(document.slice(evidence.span) == evidence.quote for evidence in quotes if evidence.span)
    if not answer.evidence:
        return "There is no quote to check."
    return f"{found} of {len(answer.evidence)} quotes found again in the document, character for character."
