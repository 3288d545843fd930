# SPDX-License-Identifier: Apache-2.0
"""One error on all ranks, which callers of shardmesh and callers of PyTorch can catch."""
from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from .._error import Error, failure
from .._progress import is_of_callback


class CheckpointError(Error, CheckpointException):
    """A shardmesh.Error of a collective load or save that is also PyTorch's CheckpointException: `failures` has every
    rank's error."""

    def __init__(self, problem: Error, failures: dict[int, Any]) -> None:
        Error.__init__(self, problem.code, problem.message)
        self.args = problem.args  # the same line
        self.__dict__.update(problem.__dict__)
        self._failures = failures

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def failures(self) -> dict[int, Any]:
        """(exception, stack) for each rank that failed."""
        return self._failures


def _with_failures(problem: BaseException, failures: dict[int, Any]) -> BaseException | None:
    """Returns an exception like one of a planner that is also PyTorch's CheckpointException, so that handlers of either
    type catch it; None if the type cannot be combined."""
    kind = type(problem)
    try:
        maker, arguments, *state = problem.__reduce__()
        if maker is not kind:
            return None
        both = type(kind.__name__, (kind, CheckpointException), {
            "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": kind.__str__,
            "__reduce__": lambda self: (_with_failures, (problem, self._failures))})
        made = both.__new__(both, *arguments)
        next(one for one in kind.__mro__ if one.__module__ == "builtins").__init__(made, *arguments)
        made.__setstate__({**(state[0] if state else {}), "_failures": failures})
        return made
    except Exception:  # from the problem's class
        return None


@contextlib.contextmanager
def one_error(step: str, process_group: dist.ProcessGroup | None, no_dist: bool) -> Iterator[None]:
    """PyTorch reports every rank's failure to every rank. Raises the first of them; its `others` holds those of other
    ranks that differ. An exception of a planner keeps its type, and one of a callback remains as it is."""
    try:
        yield
    except CheckpointException as failed:
        if isinstance(failed, CheckpointError):
            raise
        of_ranks = {rank: _as_ours(wrapped[0]) for rank, wrapped in sorted(failed.failures.items())}
        ours = [problem for problem in of_ranks.values() if isinstance(problem, Error)]
        if not ours:
            problem = next(iter(of_ranks.values()))
            if is_of_callback(problem) or not isinstance(problem, Exception):
                raise problem from failed
            both = _with_failures(problem, failed.failures)
            if both is None:
                raise
            raise both from problem
        first, others = ours[0], [problem for problem in ours[1:] if str(problem) != str(ours[0])]
        first.others = (*first.others, *others)
        raise CheckpointError(first, failed.failures) from failed
    except Error as problem:  # in this rank's arguments, before it notified the others
        raise CheckpointError(problem, {_rank(process_group, no_dist): (problem, traceback.extract_tb(problem.__traceback__))}
                              ) from problem


def _rank(process_group: dist.ProcessGroup | None, no_dist: bool) -> int:
    if no_dist or not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank(process_group)


def _as_ours(problem: BaseException) -> BaseException:
    """Converts the exceptions that PyTorch's flattening raises for a state dict that cannot be saved."""
    if isinstance(problem, RecursionError):
        return failure("invalid_argument", "a container of the state dict holds itself, or is nested too deeply")
    if isinstance(problem, UnicodeEncodeError):
        return failure("invalid_argument", "a key of the state dict is not valid Unicode", found=ascii(problem.object)[:100])
    return problem
