"""The whole document and the question in one call: the control of every comparison, and the best way if it fits."""

from __future__ import annotations

from pipeline.answer import Answer
from pipeline.answer_in_one_call import answer_in_one_call, direct_call, plan_one_call, whole_document
from pipeline.document import Document
from pipeline.errors import DocumentTooLong
from pipeline.model import Call
from pipeline.run import Plan, Request, Resources
from pipeline.strategies.map_reduce import encode_question
from pipeline.tasks import task_for

GRAPH = "flowchart LR\n    document --> direct[one call] --> answer[answer with evidence]"


class Direct:
    """One call; a document that does not fit is refused, never cut."""

    name = "direct"

    def plan(self, document: Document, request: Request, resources: Resources) -> Plan:
        """Raises DocumentTooLong, which says how many tokens over."""
        call = _proven(document, request, resources)
        chunk = whole_document(document, resources.tokenizer)
        room = resources.budget.context_tokens
        reason = f"document, question and answer take {call.cost_tokens():,} of the context's {room:,} tokens"
        return plan_one_call(self.name, reason, call, len(chunk.plain_token_ids), GRAPH)

    async def run(self, document: Document, request: Request, resources: Resources) -> Answer:
        call = _proven(document, request, resources)
        return await answer_in_one_call(
            document, whole_document(document, resources.tokenizer), call, request, resources
        )


def whole_call(document: Document, request: Request, resources: Resources) -> Call:
    """The one call, whether it fits or not."""
    return direct_call(
        whole_document(document, resources.tokenizer),
        encode_question(request, resources),
        task_for(request.task, request.question),
        request,
        resources.tokenizer,
    )


def excess_tokens(call: Call, resources: Resources) -> int:
    """Tokens of prompt and output beyond the context; not positive if the call fits."""
    return call.cost_tokens() - resources.budget.context_tokens


def _proven(document: Document, request: Request, resources: Resources) -> Call:
    call = whole_call(document, request, resources)
    excess = excess_tokens(call, resources)
    if excess > 0:
        raise DocumentTooLong(
            f"The document is {excess:,} tokens too long for one call: with the question it takes "
            f"{len(call.prompt.token_ids):,} tokens and the answer up to {call.sampling.max_output_tokens:,}, but the "
            f"context has {resources.budget.context_tokens:,}. Take --strategy auto, or a larger context."
        )
    return call
