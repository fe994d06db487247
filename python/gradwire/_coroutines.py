"""Coroutine functions as callees: one event loop per process, on a thread that starts with the first coroutine.

A coroutine awaits futures of `rpc_async`. What would block its thread until another worker has answered is refused.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Coroutine
from typing import Any

from gradwire import _default
from gradwire._C import ServedCall, forbid_waits
from gradwire.errors import Error
from gradwire.futures import Future

_STOP_LIMIT_S = 2.0


class _Loop:
    """A running event loop and its thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.is_stopping = False
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name=_default.LOOP_THREAD, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        forbid_waits()
        try:
            self._run_until_stopped()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left, timeout=_STOP_LIMIT_S))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def _run_until_stopped(self) -> None:
        while not self.is_stopping:
            # A coroutine that exits, is interrupted or stops the loop ends alone: others run here, too.
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()

    def stop(self) -> None:
        self.is_stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        if self.thread is not threading.current_thread():
            self.thread.join(2 * _STOP_LIMIT_S)


_mutex = threading.Lock()
_running: _Loop | None = None


def _the_loop() -> asyncio.AbstractEventLoop:
    global _running
    with _mutex:
        if _running is None:
            _running = _Loop()
        return _running.loop


def _stop() -> None:
    """Ends the loop with its coroutines. In a forked child it only forgets it: the thread stayed with the parent."""
    global _running
    old, _running = _running, None
    if old is not None and old.pid == os.getpid():
        old.stop()


_default.on_end.append(_stop)


def start(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context, call: ServedCall) -> Future[Any]:
    """Runs a call's coroutine on the event loop; the future of its result. A call that is cancelled cancels its task.

    The context holds what the call runs inside of: autograd context and deadline. Tasks that it starts inherit it.
    """
    result: Future[Any] = Future()
    loop = _the_loop()

    def finish(done: asyncio.Task[Any]) -> None:
        try:
            value = done.result()
        except asyncio.CancelledError:
            result.set_exception(Error("the coroutine was cancelled", "Cancelled"))
        except Exception as error:
            result.set_exception(error)
        except BaseException as error:  # an exit ends its own loop only
            result.set_exception(Error(f"the coroutine ended with {error!r}", "Remote"))
        else:
            result.set_result(value)

    def run() -> None:
        task = loop.create_task(coroutine)
        task.add_done_callback(finish)

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its coroutines with it
                loop.call_soon_threadsafe(task.cancel)

        call.on_cancelled(cancel)

    loop.call_soon_threadsafe(run, context=context)
    return result
