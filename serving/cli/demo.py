"""`longfold demo`: two questions of a real document of about 107K tokens, with answers that can be checked.

A slower machine reads the first part only: what takes about three minutes, or 32K tokens if both questions then take
no more than ten minutes, else what ten minutes allow. One that cannot read more than a context in that time says what
to do instead. The demo takes nothing from the journal, so the times are those of this machine, today.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from pipeline.documents.document import Document
from pipeline.documents.sample import bundled_document
from pipeline.errors import CapacityError, ModelError, ReplicaUnavailable
from pipeline.findings.answer import Answer
from pipeline.llm.model import Call, CallFailed, EncodedPrompt, Sampling, Stage
from pipeline.run.events import Event
from pipeline.run.request import Request
from pipeline.run.state import RunState
from pipeline.text import duration
from serving.cli.asking import AskContext, asking, faster_text
from serving.cli.command_settings import command_settings
from serving.cli.options import Model
from serving.cli.output import INTERRUPTED, print_lines
from serving.cli.show.answer import answer_lines, plan_lines, usage_lines
from serving.session import OpenModel, Session
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


def demo(
    full: Annotated[bool, typer.Option("--full", help="Read the whole document, however long it takes.")] = False,
    model: Model = None,
) -> None:
    """Ask two questions of Python's language reference."""
    raise typer.Exit(run_demo(command_settings(model=model), full=full))


def run_demo(settings: Settings, *, full: bool) -> int:
    """Run the tour; 0 if both answers are right, the exit code of a model error if not."""
    document = bundled_document()
    with asking(settings) as preparing:
        try:
            with preparing.open(preparing.resolve_model(), document) as context:
                context.display.report("measuring how fast this machine reads")
                speed = context.runner.run(measure_speed(context.session, document))
                part = document if full else choose_part(context.session.model, document, speed, context.display.say)
                if part is None:
                    return CapacityError.exit_code
                return _take_tour(replace(context, document=part), speed)
        except KeyboardInterrupt:
            preparing.display.say("Interrupted.")
            return INTERRUPTED


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
        outcome = await session.dispatcher.complete(call)
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


def _take_tour(context: AskContext, tokens_per_s: float) -> int:
    asked = [question for question in QUESTIONS if question.stated in context.document.text][:2]
    model = context.session.model
    plan = model.plan(context.document, Request(question=asked[0].question, strategy="mapreduce"))
    for line in plan_lines(plan, kv_bytes_per_token=model.profile.kv_bytes_per_token, tokens_per_s=tokens_per_s):
        context.display.say(line)
    first, first_right = _ask(context, asked[0])
    second, second_right = _ask(context, asked[1])
    print_lines([f"Second question on the warm document: {faster_text(second.total_seconds, first.total_seconds)}."])
    print_lines(["", 'Now your own: longfold ask FILE --question "..."   (longfold up keeps the model loaded)'])
    return 0 if first_right and second_right else ModelError.exit_code


def _ask(context: AskContext, question: DemoQuestion) -> tuple[Answer, bool]:
    print_lines(["", f"Question: {question.question}"])
    document, state = context.document, RunState()
    with context.display.watch(document) as feed:

        def emit(event: Event) -> None:
            state.apply(event)
            feed(event)

        request = Request(question=question.question, strategy="mapreduce")
        answer = context.runner.run(context.session.ask(document, request, emit, fresh=True))
    right = re.search(rf"(?<![\d.]){re.escape(question.expected)}(?!\d)", answer.text) is not None
    print_lines([*answer_lines(answer, document), "", *usage_lines(answer.usage, answer.seconds), ""])
    if state.first_answer_s is not None:
        print_lines([f"First provisional answer after {duration(state.first_answer_s)}."])
    print_lines([_verdict(right, question), quote_check(answer, document), ""])
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
