# SPDX-License-Identifier: Apache-2.0
"""Futures of saves in the background."""
from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ._process import Owner


class OwnedFuture(Future):
    """In a process that was forked meanwhile, the save would never end; there the future raises Error."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = Owner()
        self.set_running_or_notify_cancel()

    def _check(self) -> None:
        self._owner.check("a save in the background", "begin a save of its own in each process")

    def result(self, timeout: float | None = None) -> Any:
        self._check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check()
        return super().exception(timeout)


class StepFuture(OwnedFuture):
    """The save of a step in the background. `result` returns the step's folder, or raises the error of the save."""

    def __init__(self, saving: Future, path: str, end_save: Callable[[bool], None]) -> None:
        super().__init__()
        self._is_asked = False

        def finish(done: Future) -> None:
            try:
                problem = done.exception()
                end_save(problem is None)
            except BaseException as raised:
                problem = raised
            if problem is None:
                self.set_result(path)
            else:
                self.set_exception(problem)

        saving.add_done_callback(finish)

    def result(self, timeout: float | None = None) -> str:
        made = super().exception(timeout)
        self._is_asked = True
        if made is not None:
            raise made
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        made = super().exception(timeout)
        self._is_asked = True
        return made

    def end(self) -> None:
        """Waits for the save. Raises its error if nobody asked for it."""
        problem = super().exception()
        if problem is not None and not self._is_asked:
            self._is_asked = True
            raise problem
