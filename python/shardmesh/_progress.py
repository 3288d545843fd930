# SPDX-License-Identifier: Apache-2.0
"""The progress of a call: a bar if tqdm is installed and stderr is a terminal, or a function of the caller."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Union

from . import _arguments
from ._error import failure

#: None: a bar if tqdm is installed and stderr is a terminal. True: a bar. False: nothing. A function is called with the
#: bytes done and the total bytes, regularly and before the destination is put in place (for a load: at the end). An
#: exception from it ends the call, and nothing is written.
Progress = Union[bool, None, Callable[[int, int], None]]
Report = Callable[[int], None]


def is_of_callback(problem: BaseException) -> bool:
    """Whether the function of the caller raised the exception."""
    return getattr(problem, "_is_of_callback", False) is True


@contextlib.contextmanager
def reporting(progress: Progress, total: int, title: str) -> Iterator[Report | None]:
    """Yields the function that the C++ half calls with the bytes so far."""
    if not (progress is None or progress is True or progress is False or callable(progress)):
        raise _arguments.wrong("progress", "None, True, False, or a function of the bytes done and in all", progress)
    if callable(progress):
        def tell(done: int) -> None:
            try:
                progress(min(done, total), total)
            except Exception as problem:
                with contextlib.suppress(Exception):  # a class without room for it
                    problem._is_of_callback = True  # type: ignore[attr-defined]
                raise

        yield tell
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as missing:
        if progress:
            raise failure("unsupported", "progress=True shows a bar of tqdm, which is not installed",
                          hint="pip install tqdm, or a function of the bytes done and in all") from missing
        yield None
        return
    with tqdm(total=total, unit="B", unit_scale=True, desc=title) as bar:
        def report(done: int) -> None:
            bar.n = min(done, total)
            bar.refresh()

        yield report
