"""`longfold demo`: two questions of a real document of about 107K tokens, with answers that can be checked.

A slower machine reads the first part only: what takes about three minutes, or 32K tokens if both questions then take
no more than ten minutes, else what ten minutes allow. One that cannot read more than a context in that time says what
to do instead. The demo takes nothing from the journal, so the times are those of this machine, today.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.documents.document import Document
from pipeline.documents.sample import bundled_document
from pipeline.errors import CapacityError, ModelError, ReplicaUnavailable
from pipeline.findings.answer import Answer
from pipeline.llm.model import Call, CallFailed, EncodedPrompt, Sampling, Stage
from pipeline.run.events import Event, Provisional
from pipeline.run.plan import Plan
from pipeline.run.request import Request
from pipeline.text import duration
from serving.cli.ask import INTERRUPTED, faster_text, print_lines
from serving.cli.show.answer import answer_lines, plan_lines, usage_lines
from serving.cli.show.live import Display, make_display
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
    DemoQuestion(
        question='Since which Python version are "await" and "async" keywords?',
        expected="3.7",
        stated='"await" and "async" are now keywords',
    ),
)
"""The first two whose facts are in the part that is read are asked."""

AIM_S = 180.0
READING_SHARE = 0.8
"""Of that time for reading every chunk once; the rest is for what the kept ones say."""
GOOD_TOKENS = 32_768
"""Four contexts: taken on slower machines too, if `MAX_S` allows."""
MAX_S = 600.0
"""The longest that both questions together are planned to take."""
MAX_READING_SHARE = 0.5
"""Of `MAX_S`: where reading is slow, writing is slower still, and there is a second question."""
MIN_TOKENS = 8_900
"""More than one context, and two questions whose facts are in it."""
_WARM_UP_TOKENS, _TIMED_TOKENS = 512, 1024
"""Whole engine steps on a CPU: long enough for the speed of reading to show, short enough to cost seconds."""


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
                part = choose_part(model, document, speed, display.say)
                if part is None:
                    return CapacityError.exit_code
                document = part
            tour = _Tour(session=session, document=document, display=display, runner=runner, tokens_per_s=speed)
            return tour.run()
    except KeyboardInterrupt:
        display.say("Interrupted.")
        return INTERRUPTED
    finally:
        display.close()


async def measure_speed(session: Session, document: Document) -> float:
    """Tokens per second that the model reads here: one prompt to warm up, then one that is timed.

    Where the first already shows that the demo would be hopeless, it alone is timed.
    """
    ids = session.model.tokenizer.encode_content(document.text[-12 * (_WARM_UP_TOKENS + _TIMED_TOKENS) :])
    seconds = 0.0
    for prompt in (ids[:_WARM_UP_TOKENS], ids[_WARM_UP_TOKENS : _WARM_UP_TOKENS + _TIMED_TOKENS]):
        if seconds > MAX_S / 10:
            return _WARM_UP_TOKENS / seconds
        begun_s = time.monotonic()
        call = Call(
            prompt=EncodedPrompt(token_ids=prompt, shared_prefix_tokens=0),
            sampling=Sampling(max_output_tokens=1),
            stage=Stage.DIRECT,
        )
        async for outcome in session.dispatcher.complete([call]):
            if isinstance(outcome, CallFailed):
                raise ReplicaUnavailable(f"The model did not answer a short test: {outcome.message}")
        seconds = time.monotonic() - begun_s
    return _TIMED_TOKENS / seconds


def choose_part(
    model: OpenModel, document: Document, tokens_per_s: float, say: Callable[[str], None]
) -> Document | None:
    """As many of the document's topics as this machine has time for; none where that is no more than a context.

    What was chosen is said, and what to do instead where nothing is.
    """
    tokens = model.tokenizer.count(document.text)
    allowed = int(tokens_per_s * MAX_S * MAX_READING_SHARE)
    wanted = max(int(tokens_per_s * AIM_S * READING_SHARE), min(GOOD_TOKENS, allowed))
    whole_s = tokens / tokens_per_s
    if wanted < MIN_TOKENS:
        say(
            f"This machine reads about {tokens_per_s:,.1f} tokens/s: in {duration(MAX_S)} the demo could not read what "
            "is longer than the model's context. Stop other programs and try again, look at the number format in "
            "`longfold doctor`, or take a machine with a GPU.\n"
            "To see everything but good answers, with a small model: LONGFOLD_MODEL=smollm2-135m make demo\n"
            f"To read the whole document all the same (about {duration(whole_s)}): make demo FULL=1"
        )
        return None
    if wanted >= tokens:
        say(f"This machine reads about {tokens_per_s:,.0f} tokens/s: time enough for the whole document.")
        return document
    part = bundled_document(max_chars=len(document.text) * wanted // tokens)
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
