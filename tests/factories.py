"""Small real objects for tests: a byte-level tokenizer with control tokens, documents, resources, scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from pipeline.dispatch.inline import InlineDispatcher
from pipeline.documents.document import Document, Span
from pipeline.findings.confidence import Calibration, GateSettings
from pipeline.findings.finding import Alignment, Evidence, Finding
from pipeline.llm.budget import TokenBudget
from pipeline.llm.model import Call, Dispatcher, EncodedPrompt, Sampling, Stage
from pipeline.llm.scripted import Reply, Script, ScriptedModel
from pipeline.llm.tokenizer import Tokenizer
from pipeline.mapreduce.collapse import Collapse
from pipeline.run.events import Event
from pipeline.run.strategy import Resources
from pipeline.tasks import load_task
from serving.models.dtype import Dtype
from serving.models.profile import Geometry, ModelProfile

CONTROL = ("<|im_start|>", "<|im_end|>", "<think>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = ("t h", "th e", "i n", "e r", "a n", "an d", "o n", "s t", "Y e", "Ye s", "N o")


@cache
def make_tokenizer() -> Tokenizer:
    """Byte-level BPE over a few merges: any text can be encoded, most letters are tokens of their own."""
    return Tokenizer(tokenizer_json(), CHATML, {})


def tokenizer_json() -> str:
    """As it stands in a model's directory."""
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for merge in MERGES:
        vocabulary.setdefault(merge.replace(" ", ""), len(vocabulary))
    merges = [tuple(merge.split()) for merge in MERGES]
    raw = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(list(CONTROL[:2]))
    raw.add_tokens([CONTROL[2]])  # a control token that is not flagged special
    return str(raw.to_str())


def make_call(text: str = "prompt", *, stage: Stage = Stage.MAP, max_output_tokens: int = 16, **fields: object) -> Call:
    prompt = EncodedPrompt(token_ids=make_tokenizer().encode_content(text), shared_prefix_tokens=0)
    return Call(prompt=prompt, sampling=Sampling(max_output_tokens=max_output_tokens), stage=stage, **fields)  # type: ignore[arg-type]


def make_resources(
    script: Script | None = None,
    *,
    dispatcher: Dispatcher | None = None,
    context_tokens: int = 8192,
    chunk_tokens: int = 600,
    gate: GateSettings | None = None,
    emit: Callable[[Event], None] = lambda _: None,
) -> Resources:
    """Resources on a scripted model in this process."""
    assert script is not None or dispatcher is not None
    return Resources(
        tokenizer=make_tokenizer(),
        budget=TokenBudget(context_tokens),
        dispatcher=dispatcher or InlineDispatcher(ScriptedModel(script)),  # type: ignore[arg-type]
        chunk_tokens=chunk_tokens,
        gate=gate or GateSettings(enabled=True, keep_margin=2.0, keep_at_least=2, clear_score=4.0),
        calibration=Calibration(),
        emit=emit,
    )


def fact_document(facts: dict[int, str], paragraphs: int = 12) -> Document:
    """Filler paragraphs of about 500 characters; paragraph i also holds `facts[i]`."""
    filler = "The harbour was quiet that morning and the boats lay still. " * 8
    texts = [f"Section {i}. {filler}{facts.get(i, '')}" for i in range(paragraphs)]
    return Document.from_text("\n\n".join(texts))


def reading_script(
    tokenizer: Tokenizer, facts: Iterable[tuple[str, str]], *, reduce_answer: str | None = None
) -> Script:
    """A model that reads: it says yes, points and answers where the prompt holds a fact, else no.

    `facts` are (text in the document, answer). The reduce takes the first finding's answer unless told another.
    """
    known = list(facts)

    def script(call: Call, times: int) -> Reply:
        text = tokenizer.decode(call.prompt.token_ids)
        fact = next(((stated, answer) for stated, answer in known if stated in text), None)
        if call.sampling.choices:
            return Reply(choice_logprobs=(-0.1, -3.0) if fact else (-4.0, -0.1))
        if call.stage is Stage.REDUCE:
            answer = reduce_answer if reduce_answer is not None else (fact[1] if fact else "")
            return Reply(text=json.dumps({"findings": [1], "explanation": "as found", "answer": answer}))
        if fact is None:
            fields = {"sentences": [], "rationale": "", "answer": "", "confidence": 1}
            return Reply(text=json.dumps(fields))
        before = text[: text.index(fact[0])]
        number = int(before.rpartition("[")[2].partition("]")[0])
        fields = {"sentences": [number], "rationale": "stated", "answer": fact[1], "confidence": 5}
        return Reply(text=json.dumps(fields))

    return script


def make_finding(index: int, answer: str = "an answer", probability: float = 0.5) -> Finding:
    evidence = Evidence(
        quote=f"quote {index}", chunk_index=index, span=Span(index * 10, index * 10 + 8), alignment=Alignment.POINTER
    )
    return Finding(
        chunk_indices=(index,),
        evidence=(evidence,),
        rationale="because " * 10,
        answer=answer,
        stated_confidence=4,
        probability=probability,
    )


def make_collapse(script: Script, chunks: int) -> tuple[Collapse, ScriptedModel]:
    model = ScriptedModel(script)
    resources = make_resources(dispatcher=InlineDispatcher(model))
    collapse = Collapse(
        question_ids=make_tokenizer().encode_content("Why?"),
        task=load_task("question_answering"),
        chunks=chunks,
        dispatcher=resources.dispatcher,
        resources=resources,
    )
    return collapse, model


def make_profile(*, weights_bytes: int, **changes: Any) -> ModelProfile:
    """Of a model that is nowhere: 28 layers, 12 heads, 28,672 bytes of KV a token."""
    geometry = Geometry(layers=28, heads=12, kv_heads=2, head_dim=128, stored_bytes=2, window_tokens=32_768)
    known = ModelProfile(
        path=Path("model"),
        name="model",
        context_tokens=8192,
        chunk_tokens=None,
        geometry=geometry,
        dtype=Dtype(name="bfloat16", reason="given"),
        weights_bytes=weights_bytes,
        gate=GateSettings(),
        calibration=Calibration(),
        fingerprint="model-1",
    )
    return replace(known, **changes)
