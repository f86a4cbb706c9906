"""An engine in this process, stepped by one thread that alone touches it; callers wait in asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


class EngineDied(Exception):
    """A step raised, or the engine was stopped; no call on it will ever end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """What an engine is asked for."""

    id: str
    token_ids: list[int]
    params: Any
    """vLLM's `SamplingParams`."""
    priority: int
    """As vLLM has it: lowest first."""
    on_output: Callable[[Any], object] | None = None
    """Called with each output before the final one, if `params` ask for such."""


class SteppedEngine:
    """Runs an engine with `add_request`, `abort_request`, `has_unfinished_requests` and `step` (vLLM's `LLMEngine`).

    Requests must ask for final outputs only, or be told of the others. When a step raises, all waiting callers get
    `EngineDied` and `dead_reason` tells why, for ever.
    """

    def __init__(self, engine: Any, *, before_step: Callable[[], None] = lambda: None) -> None:
        """`before_step` is called in the engine's thread, where it may look at the engine and set it for the step."""
        self._engine = engine
        self._before_step = before_step
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: dict[str, _Caller] = {}
        self._dead_reason: str | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def generate(self, request: EngineRequest) -> Any:
        """Return the request's final output. Cancelling the caller aborts the request."""
        caller = _Caller(on_output=request.on_output, loop=asyncio.get_running_loop())
        self._inbox.put(lambda: self._add(request, caller))
        try:
            return await asyncio.wrap_future(caller.final)
        except asyncio.CancelledError:
            self._inbox.put(lambda: self._abort(request.id))
            raise

    def dead_reason(self) -> str | None:
        return self._dead_reason

    def stop(self, *, wait_s: float = 20.0) -> None:
        """Fail what is waiting, and end the thread once its current step is over."""
        self._stopping = True
        self._inbox.put(lambda: None)
        self._thread.join(wait_s)

    def _run(self) -> None:
        reason = "stopped"
        try:
            while not self._stopping:
                self._read_inbox(block=not self._engine.has_unfinished_requests())
                if self._engine.has_unfinished_requests():
                    self._before_step()
                    for output in self._engine.step():
                        self._settle(output)
        except Exception as error:  # noqa: BLE001  the thread's boundary: recorded, and told to all callers
            reason = f"{type(error).__name__}: {error}"
        self._die(reason)

    def _read_inbox(self, *, block: bool) -> None:
        if block:
            self._inbox.get()()
        while True:
            try:
                self._inbox.get_nowait()()
            except queue.Empty:
                return

    def _add(self, request: EngineRequest, caller: _Caller) -> None:
        if not caller.final.set_running_or_notify_cancel():
            return
        prompt = {"prompt_token_ids": request.token_ids}
        try:
            self._engine.add_request(request.id, prompt, request.params, priority=request.priority)
        except Exception as error:  # noqa: BLE001  a refused request is its caller's news, not the engine's end
            caller.final.set_exception(error)
        else:
            self._waiting[request.id] = caller

    def _abort(self, request_id: str) -> None:
        if self._waiting.pop(request_id, None) is not None:
            self._engine.abort_request([request_id])

    def _settle(self, output: Any) -> None:
        if not output.finished:
            if caller := self._waiting.get(output.request_id):
                caller.hear(output)
        elif caller := self._waiting.pop(output.request_id, None):
            caller.final.set_result(output)

    def _die(self, reason: str) -> None:
        self._dead_reason = reason
        for caller in self._waiting.values():
            caller.final.set_exception(EngineDied(reason))
        self._waiting.clear()
        while True:  # calls that came in meanwhile, or come in later, see `dead_reason` or end here
            try:
                self._inbox.get_nowait()
            except queue.Empty:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    """Who waits for a request, in an event loop of another thread."""

    loop: asyncio.AbstractEventLoop
    on_output: Callable[[Any], object] | None
    final: Future[Any] = field(default_factory=Future)

    def hear(self, output: Any) -> None:
        if self.on_output is not None:
            self.loop.call_soon_threadsafe(self.on_output, output)
