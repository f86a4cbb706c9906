"""A run as it begins: the question encoded, the prompts chosen, the document split; nothing here needs a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.chunks.context import context_tokens, gather_context
from pipeline.chunks.split import SMALLEST_CHUNK_TOKENS, Chunk, split_document
from pipeline.documents.document import Document
from pipeline.errors import ContextTooSmall, QuestionTooLong
from pipeline.findings.confidence import Calibration, judge_finding
from pipeline.findings.finding import Finding
from pipeline.llm.prompt import PromptTemplate
from pipeline.llm.tokenizer import Tokenizer
from pipeline.run.checkpoints import State, Steps
from pipeline.run.coverage import CoverageTracker
from pipeline.run.edits import StateContext, read_state, write_state
from pipeline.run.events import Split, StepReached
from pipeline.run.meter import Meter
from pipeline.run.request import Request
from pipeline.run.strategy import Resources
from pipeline.tasks import Task, load_prompt, task_for

LONGEST_QUESTION_SHARE = 0.25
"""Of the context. A longer question leaves too little room for findings to be weighed against each other."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One strategy on one question: what all its steps share."""

    document: Document
    request: Request
    resources: Resources
    task: Task
    question_ids: Sequence[int]
    tokenizer: Tokenizer
    meter: Meter
    """The dispatcher that counts and keeps the limits."""
    account: CoverageTracker
    steps: Steps
    chunks: Sequence[Chunk] = ()
    """In document order; none until `split`."""

    @property
    def calibration(self) -> Calibration:
        return self.resources.calibration.for_task(self.task.name)

    def split(self, room_tokens: int, *, usual_tokens: int | None = None) -> None:
        """Cut the document so that each chunk, with what is gathered around it, takes at most `room_tokens`.

        The size is the request's, else the strategy's `usual_tokens`, else the model's own. Raises ContextTooSmall
        where too little is left.
        """
        gathered = self.request.gather_tokens
        around = context_tokens(gathered, self.tokenizer)
        if around and room_tokens - around < SMALLEST_CHUNK_TOKENS:
            raise ContextTooSmall(
                f"The prompts leave {room_tokens} tokens for a chunk and what is gathered around it: gather_tokens="
                f"{gathered} takes {around} of them, and a chunk at least {SMALLEST_CHUNK_TOKENS}. Gather less."
            )
        wanted = self.request.chunk_tokens or usual_tokens or self.resources.chunk_tokens
        chunks = split_document(self.document, self.tokenizer, min(wanted, room_tokens - around))
        self.read_as(gather_context(self.document, chunks, self.tokenizer, gathered) if around else chunks)

    def read_as(self, chunks: Sequence[Chunk]) -> None:
        """These are the chunks of this run; from here on each is accounted for."""
        self.chunks = self.account.chunks = chunks
        self.resources.emit(Split(spans=tuple(chunk.span for chunk in chunks)))

    def document_tokens(self) -> int:
        return sum(len(sentence.token_ids) for chunk in self.chunks for sentence in chunk.sentences)

    def prompt(self, folder: str, name: str) -> PromptTemplate:
        """A prompt of a strategy, which asks for the answer in the task's language."""
        return load_prompt(folder, name, self.task.language_rule)

    def step(self, name: str, state: State) -> State:
        """The state that the step `name` begins from: this one, or what a person made of it (`run/checkpoints.py`)."""
        return self.steps.take(name, state)

    @property
    def state_context(self) -> StateContext:
        """What an edited state is read against, as soon as there are chunks."""
        return StateContext(
            document=self.document,
            chunks=self.chunks,
            tokenizer=self.tokenizer,
            letters=self.request.letters,
            judge=self.judge,
        )

    def judge(self, finding: Finding) -> Finding:
        """Fill in the probability of a finding that no gate and no support check has seen: the words alone decide."""
        return judge_finding(finding, None, self.calibration)


def begin_run(document: Document, request: Request, resources: Resources) -> Run:
    """Raises QuestionTooLong. The chunks come with `Run.split`, when the strategy knows what its prompts leave."""
    meter = Meter(resources.dispatcher, request.limits, resources.emit)
    account = CoverageTracker(meter=meter, emit=resources.emit)
    run = Run(
        document=document,
        request=request,
        resources=resources,
        task=choose_task(request, resources),
        question_ids=encode_question(request, resources),
        tokenizer=resources.tokenizer,
        meter=meter,
        account=account,
        steps=Steps(
            resources.steps,
            write=lambda state: write_state(state, resources.tokenizer),
            read=lambda text, original: read_state(text, original, run.state_context),
            warn=account.warnings.append,
            report=lambda checkpoint: resources.emit(StepReached(checkpoint=checkpoint)),
        ),
    )
    return run


def choose_task(request: Request, resources: Resources) -> Task:
    """In the question's language; its findings with a rationale or not, as asked, else as the model does best."""
    task = task_for(request.task, request.question)
    asked = request.use_rationale
    with_rationale = task.name not in resources.tasks_without_rationale if asked is None else asked
    return task if with_rationale else task.without_rationale()


def encode_question(request: Request, resources: Resources) -> Sequence[int]:
    """The question, with its options under letters; untrusted text like the document."""
    options = [f"{letter}. {choice}" for letter, choice in zip(request.letters, request.choices, strict=True)]
    ids = resources.tokenizer.encode_content("\n".join([request.question, *options]))
    longest = int(resources.budget.context_tokens * LONGEST_QUESTION_SHARE)
    if len(ids) > longest:
        raise QuestionTooLong(
            f"The question has {len(ids)} tokens; at most {longest} leave room for the document "
            f"in a context of {resources.budget.context_tokens}."
        )
    return ids
