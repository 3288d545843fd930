# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed as ranks of shardmesh. They find each other through the default store. Bytes then go
through shared memory within a machine, or through a separate gloo group between machines."""
from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import time
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import _native
from ._error import Error, failure
from ._process import of_another


class Members(NamedTuple):
    """Some ranks of the default group, in ascending order; this process is one of them."""

    native: _native.Ranks
    ranks: tuple[int, ...]
    meeting: str = ""  # the place in the store where they met; empty for a rank that is `alone`
    group: dist.ProcessGroup | None = None  # needed by `native`, if they use one
    process: int = 0  # the process that met the others: a forked child is not a member
    use: str = ""  # see `members`

    def number_of(self, rank: int) -> int:
        """Returns the communicator's number of a rank of the default group."""
        return self.ranks.index(rank)

    @contextlib.contextmanager
    def telling_others(self, call: str = "redistribute") -> Iterator[None]:
        """Wraps this rank's own work before the call, which moves bytes. If that fails, the others are notified instead
        of waiting in vain."""
        try:
            yield
        except Exception as problem:
            with self.moving():
                self.native.refuse(_told(problem), call)
                raise

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """Wraps a call of all ranks. If the call breaks their connection (a deadline, Ctrl-C, a rank that is gone),
        each rank gets an error from its current call or from its next; after that the ranks meet again."""
        try:
            yield
        except BaseException:
            if self.meeting and not self.native.is_sound:
                for known in list(_made.values()):
                    if known.get((self.use, self.ranks)) is self:
                        del known[self.use, self.ranks]
                _end(self.meeting)
            raise


def alone() -> Members:
    """Returns this process as the only rank."""
    memory = _native.SharedMemory.make(1)
    return Members(_native.Ranks.join(memory.token, 0, None), (0,), process=os.getpid())


def _told(problem: Exception) -> Error:
    """This rank's error as the others get it."""
    return problem if isinstance(problem, Error) else failure("unsupported", f"{type(problem).__name__}: {problem}")


#: For each default group (there may be another after destroy_process_group): members by their use and ranks.
_made: weakref.WeakKeyDictionary[dist.ProcessGroup, dict[tuple[str, tuple[int, ...]], Members]]
_made = weakref.WeakKeyDictionary()


def members(ranks: set[int], group: dist.ProcessGroup | None, timeout: float | None = None, use: str = "") -> Members:
    """Returns the members of the group, or of these ranks of the default group. Collective over them the first time,
    and after a call that broke their connection; waits at most `timeout` seconds (None: the process group's timeout).
    The members are kept from then on.

    use: members of another use have a connection of their own. A thread in the background needs one, because calls on
    one connection must come in the same order on every rank.

    Raises Error: unsupported if this process is not one of them, or they are on several machines and this package was
    built without PyTorch; deadline_exceeded; communication if a rank's process has ended.
    """
    if not dist.is_initialized():
        raise failure("unsupported", "the default process group has not been initialized",
                      hint="torch.distributed.init_process_group")
    whole = distributed_c10d._get_default_group()
    chosen = tuple(sorted(dist.get_process_group_ranks(group) if group is not None else ranks))
    missing = sorted(ranks - set(chosen))
    if missing:
        raise failure("invalid_argument", "the process group lacks ranks of the meshes", ranks=tuple(missing))
    known = _made.setdefault(whole, {})
    if (use, chosen) not in known:
        known[use, chosen] = _meet(chosen, dist.get_rank(), timeout, use)._replace(process=os.getpid(), use=use)
    met = known[use, chosen]
    if met.process != os.getpid():
        raise of_another("a group of ranks", met.process, "initialize a process group in each process")
    return met


def _meet(ranks: tuple[int, ...], rank: int, timeout: float | None, use: str) -> Members:
    if rank not in ranks:
        raise failure("unsupported", f"rank {rank} is not one of the ranks that move this tensor", ranks=ranks,
                      hint="process_group=: a group with all of them and this rank")
    store = distributed_c10d._get_default_store()
    name = "shardmesh/" + use + hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
    end = time.monotonic() + (_timeout_of_group() if timeout is None else timeout)
    number, is_first, missed = 0, True, None
    while True:
        meeting = _Meeting(store, f"{name}/{number}", ranks, is_first, missed, end)
        number += 1
        if meeting.is_over():
            is_first = False
            continue
        try:
            return _meet_at(meeting, rank)
        except _OverError as over:
            missed = over.awaited if missed is None else missed
        except BaseException:
            _end(meeting.name)
            raise


def _end(meeting: str) -> None:
    """Ends a meeting: ranks that come to it from now on go to the next."""
    with contextlib.suppress(Exception):  # the call fails anyway; the store may have gone with its process or group
        distributed_c10d._get_default_store().set(f"{meeting}/ended", "1")


def _timeout_of_group() -> float:
    try:
        options = distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options
        return options._timeout.total_seconds()
    except (AttributeError, RuntimeError):  # a backend without options, or no backend for the CPU
        return distributed_c10d._get_default_timeout(dist.Backend("gloo")).total_seconds()


class _OverError(Exception):
    """Another rank has moved on to the next meeting while this one waited."""

    def __init__(self, awaited: int) -> None:
        super().__init__()
        self.awaited = awaited


class _Meeting(NamedTuple):
    store: dist.Store
    name: str
    ranks: tuple[int, ...]
    is_first: bool
    missed: int | None  # the rank that the others stopped waiting for
    end: float  # in time.monotonic()

    def is_over(self) -> bool:
        return self.store.check([f"{self.name}/ended"])

    def tell(self, key: str, value: bytes | str) -> None:
        self.store.set(f"{self.name}/{key}", value)

    def told(self, key: str, by: int) -> bytes:
        """Returns the value that another rank sets. The store's own wait ignores Ctrl-C and our timeout."""
        key, pause, look = f"{self.name}/{key}", 0.0005, 0.0
        while not self.store.check([key]):
            if self.is_over():
                raise _OverError(by)
            if time.monotonic() >= look and not self.store.check([key]):
                self.check_alive()
                look = time.monotonic() + 0.2
            if time.monotonic() >= self.end:
                if self.missed is not None and not self.store.check([f"{self.name}/machine/{self.missed}"]):
                    by = self.missed
                raise failure("deadline_exceeded", "did not come to its first call with these ranks" if self.is_first else
                              "did not come back after a call with these ranks that had ended", ranks=(by,))
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return self.store.get(key)

    def check_alive(self) -> None:
        """Raises Error if a process has ended. Detects only ranks of this machine that have met others before."""
        for rank in self.ranks:
            key = f"shardmesh/process/{rank}"
            if self.store.check([key]) and _is_gone(self.store.get(key).decode()):
                raise failure("communication", "its process has ended", ranks=(rank,))


def _meet_at(meeting: _Meeting, rank: int) -> Members:
    ranks = meeting.ranks
    meeting.store.set(f"shardmesh/process/{rank}", _process())
    meeting.tell(f"machine/{rank}", _machine())
    machines = {other: meeting.told(f"machine/{other}", other) for other in ranks}
    elsewhere = tuple(other for other in ranks if machines[other] != machines[ranks[0]])
    if elsewhere:
        return _over_group(ranks, elsewhere, meeting.name)
    memory = None
    if rank == ranks[0]:
        memory = _native.SharedMemory.make(len(ranks))
        meeting.tell("token", memory.token)
    token = meeting.told("token", ranks[0]).decode()
    left = max(0.001, meeting.end - time.monotonic())
    # returns when all have joined; the memory then needs no name
    joined = _native.Ranks.join(token, ranks.index(rank), left)
    return Members(joined, ranks, meeting.name)


def _over_group(ranks: tuple[int, ...], elsewhere: tuple[int, ...], name: str) -> Members:
    try:
        from . import _c10d
    except ImportError as missing:
        raise failure("unsupported", f"not on the machine (or not in the container) of rank {ranks[0]}",
                      ranks=elsewhere, hint="a package that was built with this PyTorch moves tensors between machines"
                      f" ({missing}); or save and load them with shardmesh.dcp") from missing
    group = dist.new_group(list(ranks), backend="gloo", use_local_synchronization=True)
    return Members(_native.Ranks.over(_c10d.communicator(group.group_name)), ranks, name, group)


def _machine() -> bytes:
    """An identifier that is equal for processes that see each other."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}/{os.getuid()}".encode()


def _process() -> str:
    """An identifier of this process on this machine: its number and its start time, because numbers are reused."""
    return f"{_machine().decode()}/{os.getpid()}/{_began(os.getpid())}"


def _is_gone(process: str) -> bool:
    machine, number, began = process.rsplit("/", 2)
    return machine.encode() == _machine() and _began(int(number)) != began


def _began(number: int) -> str:
    """The start time in ticks since boot; empty for a process that has ended, even if its parent has not reaped it."""
    try:
        fields = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
