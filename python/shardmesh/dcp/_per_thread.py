# SPDX-License-Identifier: Apache-2.0
"""The state of the saves of a writer and of the loads of a reader. PyTorch makes all calls of a save or load in one
thread, and may run several with one writer or reader at the same time, each in its own thread."""
from __future__ import annotations

import threading
import weakref
from typing import Any, Generic, TypeVar

State = TypeVar("State")


class PerThread(Generic[State]):
    """A state for each thread that has one. A copy, in this process or in another, has none."""

    def __init__(self) -> None:
        # Keyed by the thread, whose number may be that of an earlier one. A lock would stay locked in a forked child.
        self._states: weakref.WeakKeyDictionary[threading.Thread, State] = weakref.WeakKeyDictionary()

    @property
    def own(self) -> State | None:
        """The state of this thread."""
        return self._states.get(threading.current_thread())

    @own.setter
    def own(self, state: State | None) -> None:
        if state is None:
            self._states.pop(threading.current_thread(), None)
        else:
            self._states[threading.current_thread()] = state

    def all(self) -> list[State]:
        """Returns the states of all threads. Precondition: no thread sets one meanwhile."""
        return list(self._states.values())

    def __reduce__(self) -> Any:
        return PerThread, ()
