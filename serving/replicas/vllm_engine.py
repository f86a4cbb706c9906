"""vLLM behind `Model`. The only file that imports vllm.

One interface, two engines. On GPUs `AsyncLLM`: its engine is a process of its own, tensor parallel if asked. On a
CPU `LLMEngine` in this process, stepped by one thread: half the start-up time and more throughput there, because
nothing is passed between processes that compete for the same cores.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from pipeline.errors import ContextOverflow, InternalError, LongfoldError, ReplicaUnavailable
from pipeline.llm.model import Call, Completion, FinishReason, Sampling, Usage
from serving.replicas.cpu_scheduling import GateThrottle, limit_prefill_during_decode
from serving.replicas.engine_meter import EngineMeter
from serving.replicas.hosting import EngineProgress
from serving.replicas.last_words import LastWords
from serving.replicas.stepped_engine import EngineRequest, SteppedEngine

if TYPE_CHECKING:
    from vllm import AsyncEngineArgs, RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

CPU_CALLS_AT_ONCE = 16
REPETITION = {"min_pattern_size": 4, "max_pattern_size": 32, "min_count": 4}
"""Tokens: a phrase of 4 to 32 tokens said four times, or one token sixteen times, ends the output.
A repetition penalty would do harm: vLLM applies it to the prompt too, and the model can no longer quote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """One engine. `kv_cache_bytes` None leaves the size to vLLM, which is right on a GPU only."""

    model_path: str
    context_tokens: int
    dtype: str
    """As vLLM names it: bfloat16, float16 or float32."""
    on_gpu: bool
    own_process: bool = False
    """Whether the engine is a process of its own, as it always is on a GPU."""
    kv_cache_bytes: int | None = None
    tensor_parallel: int = 1
    max_sequences: int = 64
    step_tokens: int
    """The most tokens per engine step."""
    memory_share: float = 0.9
    """Of a GPU's memory that the engine may use."""
    load_format: str = "auto"
    """vLLM's name for how weights are loaded; "dummy" draws random ones, for benchmarks."""


class _Engine(Protocol):
    """What the two engines have in common."""

    async def generate(self, request: EngineRequest) -> RequestOutput: ...

    def dead_reason(self) -> str | None: ...

    def stop(self) -> None: ...


class VllmModel:
    """A `HostedModel` on vLLM. `start` first; everything else from one event loop."""

    def __init__(self, settings: VllmSettings) -> None:
        self._settings = settings
        self._engine: _Engine | None = None
        self._tokenizer: Any = None
        self._choice_ids: dict[str, int] = {}
        self._ids = itertools.count()
        self._turns = None if settings.on_gpu else GateThrottle(gate_tokens=8 * settings.step_tokens)
        self._meter = EngineMeter()
        self._in_flight = 0

    def start(self) -> None:
        from vllm import AsyncEngineArgs

        last_words = LastWords()
        try:
            args = AsyncEngineArgs(**_engine_args(self._settings))
            if self._settings.on_gpu or self._settings.own_process:
                process = _ProcessEngine(args, self._meter)
                self._engine, self._tokenizer = process, process.tokenizer
            else:
                self._engine, self._tokenizer = _start_stepped(args, self._meter)
        except Exception as error:  # the engine raises whatever its many parts raise
            if reason := last_words.reason():  # of the engine's process: this one's exception does not say it
                raise ReplicaUnavailable(f"The engine did not start: {reason}") from error
            raise _translate(error, doing="The engine did not start") from error

    async def complete(self, call: Call) -> Completion:
        engine = self._engine
        if engine is None:
            raise ReplicaUnavailable("The engine is not started.")
        token_ids = call.prompt.token_ids.tolist()
        self._check_length(len(token_ids), call.sampling.max_output_tokens)
        request = EngineRequest(
            id=f"call-{next(self._ids)}",
            token_ids=token_ids,
            params=self.params(call.sampling, cumulative=call.on_text is not None),
            priority=call.priority,
            on_output=_on_output(call),
        )
        self._in_flight += 1
        started = time.monotonic()
        try:
            async with self._turns.take(call) if self._turns else nullcontext():
                output = await engine.generate(request)
        except Exception as error:  # whatever the engine raises becomes one of ours, here and nowhere else
            raise _translate(error, doing="The engine failed on a call") from error
        finally:
            self._in_flight -= 1
        return self.completion(output, call.sampling, seconds=time.monotonic() - started)

    @property
    def capacity(self) -> int:
        # A CPU computes prompts one after the other: more than a few only share its steps.
        return self._settings.max_sequences if self._settings.on_gpu else CPU_CALLS_AT_ONCE

    def progress(self) -> EngineProgress:
        return self._meter.progress(self._in_flight)

    def dead_reason(self) -> str | None:
        return self._engine.dead_reason() if self._engine is not None else "not started"

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()
            self._engine = None

    def _check_length(self, prompt_tokens: int, output_tokens: int) -> None:
        if prompt_tokens + output_tokens > self._settings.context_tokens:
            raise ContextOverflow(
                f"A prompt of {prompt_tokens} tokens and {output_tokens} of output exceed the context of "
                f"{self._settings.context_tokens}: the token budget was wrong."
            )

    def params(self, sampling: Sampling, *, cumulative: bool = False) -> SamplingParams:
        """As vLLM has it; `cumulative` tells of each token, else an output comes when it is whole."""
        from vllm.sampling_params import (
            RepetitionDetectionParams,
            RequestOutputKind,
            SamplingParams,
            StructuredOutputsParams,
        )

        common: dict[str, Any] = {
            "temperature": sampling.temperature,
            # vLLM rewinds a request's own generator when a prompt is computed in pieces, and a CPU generator cannot:
            # the engine dies. There the engine's seed, fixed too, draws.
            "seed": sampling.seed if self._settings.on_gpu else None,
            "output_kind": RequestOutputKind.CUMULATIVE if cumulative else RequestOutputKind.FINAL_ONLY,
        }
        if sampling.choices:
            ids = [self._choice_id(choice) for choice in sampling.choices]
            return SamplingParams(max_tokens=1, allowed_token_ids=ids, logprob_token_ids=ids, **common)
        if sampling.json_schema is not None:
            # Without white space between its parts the model cannot babble blanks up to its token limit.
            common["structured_outputs"] = StructuredOutputsParams(
                json=sampling.json_schema, disable_any_whitespace=True
            )
        return SamplingParams(
            max_tokens=sampling.max_output_tokens,
            stop=list(sampling.stop),
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            repetition_penalty=sampling.repetition_penalty,
            repetition_detection=RepetitionDetectionParams(**REPETITION),
            **common,
        )

    def _choice_id(self, choice: str) -> int:
        if choice not in self._choice_ids:
            ids = self._tokenizer.encode(choice, add_special_tokens=False)
            if len(ids) != 1:
                raise InternalError(f"{choice!r} is {len(ids)} tokens of this model; a choice must be one.")
            self._choice_ids[choice] = ids[0]
        return self._choice_ids[choice]

    def completion(self, output: RequestOutput, sampling: Sampling, *, seconds: float) -> Completion:
        """What the engine drew. Raises ReplicaUnavailable if it ended the call by itself."""
        drawn = output.outputs[0]
        reason = drawn.finish_reason
        if reason not in {"stop", "length", "repetition"}:
            raise ReplicaUnavailable(f"The engine ended a call with {reason!r}.")
        logprobs: tuple[float, ...] = ()
        if sampling.choices:
            assert drawn.logprobs is not None
            row = cast("dict[int, Any]", drawn.logprobs[0])
            logprobs = tuple(row[self._choice_ids[choice]].logprob for choice in sampling.choices)
            reason = "stop"  # its one token is all a choice has
        return Completion(
            text=drawn.text,
            finish_reason=cast("FinishReason", reason),
            usage=Usage(
                calls=1,
                prompt_tokens=len(output.prompt_token_ids or ()),
                cached_tokens=output.num_cached_tokens or 0,
                output_tokens=len(drawn.token_ids),
            ),
            choice_logprobs=logprobs,
            seconds=seconds,
        )


def _on_output(call: Call) -> Callable[[RequestOutput], None] | None:
    on_text = call.on_text
    return None if on_text is None else lambda output: on_text(output.outputs[0].text)


def _engine_args(settings: VllmSettings) -> dict[str, Any]:
    args: dict[str, Any] = {
        "model": settings.model_path,
        "dtype": settings.dtype,
        "max_model_len": settings.context_tokens,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",  # a call's priority counts: reduce before map
        "max_num_seqs": settings.max_sequences,
        "max_num_batched_tokens": settings.step_tokens,
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "seed": 0,
        "load_format": settings.load_format,
        "disable_log_stats": False,  # the stat logger says that it lives
    }
    if settings.on_gpu:
        return {
            **args,
            "tensor_parallel_size": settings.tensor_parallel,
            "gpu_memory_utilization": settings.memory_share,
        }
    # Compiling gains nothing on a CPU and costs 100 s at every start. What calls share ends anywhere in a block, and
    # the rest of that block is computed anew: 32 tokens are the least that the kernels take; vLLM's own choice is 128.
    return {**args, "enforce_eager": True, "distributed_executor_backend": "uni", "block_size": 32}


def open_offline(settings: VllmSettings) -> Any:
    """vLLM's own offline `LLM`, first come first served and without statistics, as it is by itself."""
    from vllm import LLM

    return LLM(**_engine_args(settings) | {"scheduling_policy": "fcfs", "disable_log_stats": True})


def open_to_step(settings: VllmSettings, meter: EngineMeter) -> Any:
    """An `LLMEngine`, first come first served, which tells `meter` of every step."""
    from vllm import AsyncEngineArgs

    return _synchronous_engine(AsyncEngineArgs(**_engine_args(settings) | {"scheduling_policy": "fcfs"}), meter)


def _start_stepped(args: AsyncEngineArgs, meter: EngineMeter) -> tuple[SteppedEngine, Any]:
    llm = _synchronous_engine(args, meter)
    return SteppedEngine(
        llm, before_step=limit_prefill_during_decode(llm.engine_core.engine_core.scheduler)
    ), llm.get_tokenizer()


def _synchronous_engine(args: AsyncEngineArgs, meter: EngineMeter) -> Any:
    """An `LLMEngine`: it works while it is stepped."""
    from vllm.v1.engine.llm_engine import LLMEngine

    return LLMEngine.from_engine_args(args, stat_loggers=[_stat_logger(meter)])


class _ProcessEngine:
    """`AsyncLLM`: it streams, aborts and notices its own death."""

    def __init__(self, args: AsyncEngineArgs, meter: EngineMeter) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        self._llm: AsyncLLM = AsyncLLM.from_engine_args(args, stat_loggers=[_stat_logger(meter)])
        self.tokenizer = self._llm.get_tokenizer()

    async def generate(self, request: EngineRequest) -> RequestOutput:
        last = None
        prompt: Any = {"prompt_token_ids": request.token_ids}
        # A cancelled caller closes this stream, which aborts the request in the engine.
        async for output in self._llm.generate(prompt, request.params, request.id, priority=request.priority):
            last = output
            if request.on_output is not None and not output.finished:
                request.on_output(output)
        assert last is not None
        return last

    def dead_reason(self) -> str | None:
        return str(self._llm.dead_error) if self._llm.errored else None

    def stop(self) -> None:
        self._llm.shutdown()


def _stat_logger(meter: EngineMeter) -> Any:
    """A factory of vLLM stat loggers that feed `meter`."""
    from vllm.v1.metrics.loggers import StatLoggerBase as Base

    class StepLogger(Base):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None: ...

        def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
            meter.step(scheduler_stats, iteration_stats)

        def log_engine_initialized(self) -> None: ...

    return StepLogger


def _translate(error: Exception, *, doing: str) -> LongfoldError:
    if isinstance(error, LongfoldError):
        return error
    import vllm.exceptions

    refused = getattr(vllm.exceptions, "VLLMClientError", ValueError)  # older versions raise ValueError
    text = f"{doing}: {type(error).__name__}: {_last_line(error)}"
    return InternalError(text) if isinstance(error, refused) else ReplicaUnavailable(text)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
