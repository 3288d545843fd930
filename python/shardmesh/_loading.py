# SPDX-License-Identifier: Apache-2.0
"""Loading: a load that runs in its own thread; its tensors can be used as they arrive."""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from . import _arguments
from ._error import failure
from ._process import Owner
from ._progress import Progress, reporting

#: Follows the last key.
_END = None


class Loading:
    """A running load, made by `Checkpoint.start_load`. Iterate over it to get the keys in storage order, each when
    everything requested of it has arrived; or call `wait()`. Both raise the error that ended the load.

        with checkpoint.start_load(state) as loading:
            for key in loading:
                use(state[key])

    If an exception leaves the `with` block, the load is cancelled; otherwise the block waits for its end. A program
    that ends also waits for it. Only one thread may iterate; any thread may call the rest. In a process that was forked
    meanwhile, `wait`, `done`, and the iteration raise Error, because the load does not run there.
    """

    def __init__(self, load: Callable[[Callable[[str], None], Callable[[int], None]], None],
                 on_arrival: Callable[[str], None] | None, progress: Progress, total: int) -> None:
        self._owner = Owner()
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._on_arrival = on_arrival
        self._is_cancelled = False
        self._error: BaseException | None = None
        self._bytes = 0
        self._calling: set[int] = set()  # threads in a callback of the caller
        # Not Thread.join: after Ctrl-C interrupts it, Python takes a running thread for ended (bpo-45274).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(load, progress, total), name="shardmesh.Loading")
        try:
            self._thread.start()
        except RuntimeError as cause:
            raise failure("no_memory", f"cannot start a thread: {cause}") from cause

    @property
    def bytes(self) -> int:
        """Bytes loaded so far, updated every twentieth of a second."""
        return self._bytes

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        self._check_process()
        return self._ended.is_set()

    def cancel(self) -> None:
        """Ends the load soon; `wait` then raises Error, of code "cancelled". Memory of keys that have not arrived is
        unspecified. No effect after the load has ended."""
        self._is_cancelled = True

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the load has ended, or for `timeout` seconds; returns whether it has ended. Raises the error
        that ended it: Error, or the exception of `on_arrival` or `progress`. Ctrl-C ends the waiting, not the load."""
        timeout = _arguments.seconds("timeout", timeout)
        self._refuse_in_callback()
        self._check_process()
        if not self._ended.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            return False
        if self._error is not None:
            raise self._error
        return True

    def __iter__(self) -> Iterator[str]:
        self._refuse_in_callback()
        while (key := self._next()) is not _END:
            yield key
        self._queue.put(_END)  # for a second iteration
        self.wait()

    def _next(self) -> str | None:
        self._check_process()
        return self._queue.get()

    def __enter__(self) -> Loading:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.wait()
        elif self._owner.is_here:
            self.cancel()
            self._ended.wait()

    def _check_process(self) -> None:
        self._owner.check("a load in the background", "begin a load of its own in each process")

    def _refuse_in_callback(self) -> None:
        if threading.get_ident() in self._calling:
            raise failure("invalid_argument", "a callback of a load cannot wait for it: it would wait for itself")

    def _run(self, load: Callable, progress: Progress, total: int) -> None:
        try:
            with reporting(progress, total, "load") as report:
                def tell(done: int) -> None:
                    self._bytes = done
                    if self._is_cancelled:
                        raise failure("cancelled", "the load was cancelled")
                    if report:
                        self._call(report, done)

                load(self._arrived, tell)
                self._bytes = total
                if report:
                    self._call(report, total)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
            self._queue.put(_END)

    def _arrived(self, key: str) -> None:
        if self._is_cancelled:
            raise failure("cancelled", "the load was cancelled")
        if self._on_arrival:
            self._call(self._on_arrival, key)
        self._queue.put(key)

    def _call(self, callback: Callable, argument: object) -> None:
        """Calls the caller's function, on a thread of the library or of this load."""
        me = threading.get_ident()
        self._calling.add(me)
        try:
            callback(argument)
        finally:
            self._calling.discard(me)
