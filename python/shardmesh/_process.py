# SPDX-License-Identifier: Apache-2.0
"""Handles that a forked child inherits. It has none of the threads that serve them, so waiting would never end."""
from __future__ import annotations

import os

from ._error import Error, failure


class Owner:
    """The process that made a handle."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._number

    def check(self, handle: str, hint: str, path: str = "") -> None:
        """Raises Error, of code "unsupported", in any other process."""
        if not self.is_here:
            raise of_another(handle, self._number, hint, path)


def of_another(handle: str, process: int, hint: str, path: str = "") -> Error:
    return failure("unsupported", f"{handle} belongs to another process", path=path, expected=f"process {process}",
                   found=f"process {os.getpid()}", hint=hint)
