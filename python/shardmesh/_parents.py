# SPDX-License-Identifier: Apache-2.0
"""Parent folders of a destination: created as PyTorch creates them, and removed if the save fails."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from ._arguments import is_url
from ._error import Error

Made = TypeVar("Made")

#: Each loses a race against another save that fails.
_ATTEMPTS = 100


def in_new_parents(path: str, work: Callable[[], Made]) -> tuple[Made, list[str]]:
    """Creates the missing parents of a path or URL, runs the work, and returns its result and the created parents, the
    outermost first. If the work fails, those that are empty are removed. Raises Error, of code "io", naming the folder
    that cannot be created.

    Another save that fails removes an empty parent that it created, also one that this save needs. The parents are then
    created again.
    """
    if is_url(path):
        return work(), []
    for attempt in range(_ATTEMPTS):
        made = _make_parents(path)
        with _Held(_parent(path)) as parent:
            try:
                return work(), made
            except BaseException as problem:
                is_gone = isinstance(problem, Error) and parent.is_gone()
                remove_parents(made)
                if not is_gone or attempt + 1 == _ATTEMPTS:
                    raise
    raise AssertionError("not reached")


class _Held:
    """A folder, which is held open so that no new one gets its number."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> _Held:
        try:
            self._number: int | None = os.open(self._path, os.O_PATH)
        except OSError:  # removed already
            self._number = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._number is not None:
            os.close(self._number)

    def is_gone(self) -> bool:
        """Whether the folder was removed, even if there is a new one with its name."""
        try:
            return self._number is None or not os.path.samestat(os.fstat(self._number), os.stat(self._path))
        except OSError:
            return True


@contextlib.contextmanager
def new_parents(path: str) -> Iterator[None]:
    """Creates the missing parents of a path or URL for the work of several ranks, which cannot be repeated on one. If
    the work fails, those that are empty are removed. Raises as `in_new_parents`."""
    made = [] if is_url(path) else _make_parents(path)
    try:
        yield
    except BaseException:
        remove_parents(made)
        raise


def remove_parents(made: list[str]) -> None:
    """Removes those that are still empty."""
    for folder in reversed(made):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _make_parents(path: str) -> list[str]:
    made: list[str] = []
    for attempt in range(_ATTEMPTS):
        try:
            for one in _missing(path):
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(one)
                    made.append(one)
            return made
        except FileNotFoundError as cause:  # another process has removed an outer one
            if attempt + 1 == _ATTEMPTS:
                remove_parents(made)
                raise _refused(one, cause) from cause
        except OSError as cause:
            remove_parents(made)
            raise _refused(one, cause) from cause
    return made


def _missing(path: str) -> list[str]:
    """Returns the missing parents, the outermost first."""
    missing, folder = [], _parent(path)
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing[::-1]


def _parent(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def _refused(folder: str, cause: OSError) -> Error:
    said = os.strerror(cause.errno) if cause.errno else str(cause)
    made = Error("io", f"{folder}: cannot be made: {said}", message=f"cannot be made: {said}", path=folder)
    made.errno = cause.errno or 0
    return made
