# SPDX-License-Identifier: Apache-2.0
"""Parent folders of a destination: created as PyTorch creates them, and removed if the save fails."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ._arguments import is_url
from ._error import Error


def make_parents(path: str) -> list[str]:
    """Creates missing parents, and returns them, the outermost first. Raises Error, of code "io", naming the folder."""
    missing, folder = [], os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    made: list[str] = []
    for one in reversed(missing):
        try:
            os.mkdir(one)
            made.append(one)
        except FileExistsError:  # another process was faster
            continue
        except OSError as cause:
            remove_parents(made)
            raise _refused(one, cause) from cause
    return made


def remove_parents(made: list[str]) -> None:
    """Removes those that are still empty."""
    for folder in reversed(made):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


@contextlib.contextmanager
def made_parents(path: str) -> Iterator[None]:
    made = [] if is_url(path) else make_parents(path)
    try:
        yield
    except BaseException:
        remove_parents(made)
        raise


def _refused(folder: str, cause: OSError) -> Error:
    said = os.strerror(cause.errno) if cause.errno else str(cause)
    made = Error("io", f"{folder}: cannot be made: {said}", message=f"cannot be made: {said}", path=folder)
    made.errno = cause.errno or 0
    return made
