"""A model's own chat template, rendered around places for texts instead of the texts themselves.

The template never sees what a user wrote, so no text can change what it renders, and what it renders is trusted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import jinja2
import jinja2.sandbox

from pipeline.errors import ModelIncomplete, TemplateRefused

_PLACE = re.compile("\ue000longfold-text-(\\d+)\ue001")


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """What the template writes around the messages' texts."""

    pieces: tuple[str, ...]
    """Before, between and after the texts: one more than `order`."""
    order: tuple[int, ...]
    """Index of the message whose text stands after each piece but the last."""


class ChatTemplate:
    """`template` is Jinja, as in a model's directory; None is a model without one, whose texts are lines."""

    def __init__(self, template: str | None, special_tokens: dict[str, str]) -> None:
        """`special_tokens` are the names the template may use, such as `bos_token`."""
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        self._template = environment.from_string(template) if template is not None else None
        self._special_tokens = special_tokens
        self.render = lru_cache(maxsize=256)(self._render)

    def _render(self, roles: tuple[str, ...]) -> RenderedChat:
        """Render a conversation of messages with these roles, up to where the model's turn begins.

        Raises TemplateRefused if the template does not allow it, or leaves a message out.
        """
        places = [f"\ue000longfold-text-{index}\ue001" for index in range(len(roles))]
        if self._template is None:
            text = "".join(f"{place}\n" for place in places)
        else:
            messages = [{"role": role, "content": place} for role, place in zip(roles, places, strict=True)]
            try:
                text = self._template.render(
                    messages=messages, add_generation_prompt=True, enable_thinking=False, **self._special_tokens
                )
            except jinja2.TemplateError as error:
                raise TemplateRefused(f"The model's chat template fails on this conversation: {error}") from error
        parts = _PLACE.split(text)
        order = tuple(int(index) for index in parts[1::2])
        if set(order) != set(range(len(roles))):
            raise TemplateRefused("The model's chat template leaves out a message of this conversation.")
        return RenderedChat(pieces=tuple(parts[0::2]), order=order)

    def around_user_text(self) -> tuple[str, str]:
        """What comes before and after the text of a single user message. Raises ModelIncomplete."""
        try:
            rendered = self.render(("user",))
        except TemplateRefused as error:
            raise ModelIncomplete(f"A single user message cannot be put to this model: {error}") from error
        if len(rendered.order) != 1:
            raise ModelIncomplete("The model's chat template shows a user message more than once.")
        return rendered.pieces[0], rendered.pieces[1]


def _refuse(message: str) -> None:
    raise TemplateRefused(f"The model's chat template refuses this conversation: {message}")
