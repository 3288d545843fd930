# SPDX-License-Identifier: Apache-2.0
"""Loading: a load that goes on in a thread of its own, whose tensors can be used as they arrive."""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from . import _arguments
from ._error import failure
from ._process import Owner
from ._progress import Progress, reporting

#: Behind the last key.
_END = None


class Loading:
    """Made by `Checkpoint.start_load`. Iterate over it for the keys, each once everything that was asked of it is there,
    in the order in which tensors are stored; or `wait()`. Both raise what ended the load.

        with checkpoint.start_load(state) as loading:
            for key in loading:
                use(state[key])

    Left by an exception, the `with` block cancels the load; left otherwise, it waits. A program that ends waits, too.
    One thread iterates; the rest may be called by any. A process that was forked meanwhile has no such load: `wait`,
    `done` and the iteration raise Error there.
    """

    def __init__(self, load: Callable[[Callable[[str], None], Callable[[int], None]], None],
                 on_arrival: Callable[[str], None] | None, progress: Progress, total: int) -> None:
        self._owner = Owner()
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._on_arrival = on_arrival
        self._is_cancelled = False
        self._error: BaseException | None = None
        self._bytes = 0
        self._calling: set[int] = set()  # threads in a callback of the caller's
        # Not Thread.join: interrupted by Ctrl-C, Python takes a thread for ended that goes on (bpo-45274).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(load, progress, total), name="shardmesh.Loading")
        try:
            self._thread.start()
        except RuntimeError as cause:
            raise failure("no_memory", f"no thread can be started: {cause}") from cause

    @property
    def bytes(self) -> int:
        """That were loaded so far, as of the last twentieth of a second."""
        return self._bytes

    def done(self) -> bool:
        """True when `wait` would not block."""
        self._check_process()
        return self._ended.is_set()

    def cancel(self) -> None:
        """Ends the load soon; `wait` then raises Error, of code "cancelled". Memory of keys that have not arrived is
        unspecified. After the end of the load, nothing."""
        self._is_cancelled = True

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the load has come to its end, or for so many seconds; True when it has. Raises what ended it:
        Error, or what `on_arrival` or `progress` raised. Ctrl-C ends the waiting, not the load."""
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
        self._queue.put(_END)  # for who asks again
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
        """The caller's own function, on a thread of the library or of this load."""
        me = threading.get_ident()
        self._calling.add(me)
        try:
            callback(argument)
        finally:
            self._calling.discard(me)
