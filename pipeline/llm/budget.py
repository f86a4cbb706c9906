"""context = prompt + output: proven here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import ContextOverflow, ContextTooSmall
from pipeline.llm.model import Call


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """What fits into one call of a model served with `context_tokens`."""

    context_tokens: int

    def room_tokens(self, *, fixed_tokens: int, output_tokens: int, min_tokens: int = 64) -> int:
        """Tokens left for content beside a prompt's fixed part and its output; under `min_tokens`, ContextTooSmall."""
        left = self.context_tokens - fixed_tokens - output_tokens
        if left < min_tokens:
            raise ContextTooSmall(
                f"The prompt's fixed part takes {fixed_tokens} tokens and its output {output_tokens}, which leaves "
                f"{left} of the {self.context_tokens}-token context; serve the model with a larger context."
            )
        return left

    def check_fits(self, call: Call) -> Call:
        """Return `call` if it fits the context, else raise ContextOverflow: the budget was wrong."""
        if call.cost_tokens() > self.context_tokens:
            raise ContextOverflow(
                f"A {call.stage} call needs {len(call.prompt.token_ids)} + {call.sampling.max_output_tokens} tokens, "
                f"but the context has {self.context_tokens}."
            )
        return call
