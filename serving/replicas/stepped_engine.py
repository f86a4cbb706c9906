"""An engine in this process, stepped by one thread that alone touches it; callers wait in asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class EngineDied(Exception):
    """A step raised, or the engine was stopped; no call on it will ever end."""


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
        self._waiting: dict[str, Future[Any]] = {}
        self._told: dict[str, Callable[[Any], None]] = {}
        self._dead_reason: str | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def generate(
        self,
        token_ids: list[int],
        params: Any,
        request_id: str,
        priority: int,
        tell: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the request's final output; `tell` is called with those before. Cancelling aborts the request."""
        future: Future[Any] = Future()
        loop = asyncio.get_running_loop()

        def hop(output: Any) -> None:
            assert tell is not None
            loop.call_soon_threadsafe(tell, output)

        def add() -> None:
            self._add(future, token_ids, params, request_id, priority)
            if tell is not None and request_id in self._waiting:
                self._told[request_id] = hop

        self._inbox.put(add)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._inbox.put(lambda: self._abort(request_id))
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

    def _add(self, future: Future[Any], token_ids: list[int], params: Any, request_id: str, priority: int) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            self._engine.add_request(request_id, {"prompt_token_ids": token_ids}, params, priority=priority)
        except Exception as error:  # noqa: BLE001  a refused request is its caller's news, not the engine's end
            future.set_exception(error)
        else:
            self._waiting[request_id] = future

    def _abort(self, request_id: str) -> None:
        self._told.pop(request_id, None)
        if self._waiting.pop(request_id, None) is not None:
            self._engine.abort_request([request_id])

    def _settle(self, output: Any) -> None:
        if not output.finished:
            if tell := self._told.get(output.request_id):
                tell(output)
            return
        self._told.pop(output.request_id, None)
        if future := self._waiting.pop(output.request_id, None):
            future.set_result(output)

    def _die(self, reason: str) -> None:
        self._dead_reason = reason
        for future in self._waiting.values():
            future.set_exception(EngineDied(reason))
        self._waiting.clear()
        while True:  # calls that came in meanwhile, or come in later, see `dead_reason` or end here
            try:
                self._inbox.get_nowait()
            except queue.Empty:
                return
