# SPDX-License-Identifier: Apache-2.0
"""Run: a training run is a folder of steps, and each step is a checkpoint that shardmesh.dcp saves and loads."""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _arguments, _native
from ._background import StepFuture
from ._error import Error, failure
from ._plan_cache import SavePlanCache
from ._process import Owner
from ._progress import Progress
from ._rank_objects import WhenResized, checked_rule, rank_objects_of, with_rank_objects
from ._run_values import KeepRules, PruneReport, ResumedRun, RunStep, rules_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from torch.distributed import ProcessGroup

Made = TypeVar("Made")

#: Errors of a step, not of the caller: the step before may load.
_DAMAGE = {"bad_format", "bad_pickle", "checksum_mismatch", "gap", "incomplete_save", "io", "unsafe_path"}


class _BegunSave(NamedTuple):
    step: int
    state: Any
    path: str
    replaces: bool
    previous: str | None
    end: float | None  # see `_arguments.end_of`


class Run:
    """A training run: a folder with one folder for each saved step. Ranks of torch.distributed make a Run together, and
    call `save`, `start_save`, `resume`, and `prune` together; a process without process groups is alone. A context
    manager. Threads of a process may share it, for example to prune while a step is saved.

    names: of the steps' folders. "step": step-100 (torchtitan); "checkpoint": checkpoint-100 (Hugging Face); "iter":
    iter_0000100, with the file latest_checkpointed_iteration.txt (Megatron).
    incremental: a step refers to the newest good one for chunks that have not changed.
    keep: after each save, rank 0 deletes the steps that no rule keeps, in the background. The newest good step, pinned
    steps, damaged ones, and those to which a kept step refers always stay.
    plan_cache: for `save` and `start_save`, as in `dcp.save`.
    read_only: take no lock and save nothing, for a run that another program writes. One rank alone may make it.

    Raises Error: destination_exists if another run has the folder open, naming its process and host.
    """

    def __init__(self, path: str | os.PathLike[str], *, names: str = "step", incremental: bool = False,
                 keep: KeepRules = KeepRules(), plan_cache: SavePlanCache | None = None, read_only: bool = False,
                 process_group: ProcessGroup | None = None) -> None:
        self.path, self._group, self._owner = "", process_group, Owner()
        self._is_open = not _arguments.flag("read_only", read_only)
        self._writer: _native.RunWriter | None = None  # of rank 0
        self._saving: StepFuture | None = None
        self._own_group: ProcessGroup | None = None  # of background saves
        self._plans = plan_cache

        def check() -> bool:
            self.path = os.path.abspath(_arguments.path(path))
            self.names = _arguments.text("names", names)
            self._keep = rules_of(keep)
            if plan_cache is not None and not isinstance(plan_cache, SavePlanCache):
                raise _arguments.wrong("plan_cache", "a shardmesh.SavePlanCache", plan_cache)
            return _arguments.flag("incremental", incremental)

        if self._is_open:
            self._take_lock(self._everywhere(check))
        else:
            check()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:  # otherwise the caller's own exception says more
                raise

    def close(self) -> None:
        """Waits for the background save and the prune, and lets other programs write into the folder. Not collective."""
        if not self._owner.is_here:
            self._is_open, self._writer = False, None
            return
        try:
            self._end_background_save()
        finally:
            writer, self._writer = self._writer, None
            self._is_open = False
            self._drop_background_group()
            if writer is not None:
                writer.wait()

    def save(self, step: int, state_dict: dict[str, Any], *, metric: float | None = None,
             rank_objects: Mapping[str, Any] | None = None, overwrite: bool = False, threads: int = 0,
             memory_bytes: int = 0, progress: Progress = False, within: float | None = None) -> str:
        """Saves a step as `shardmesh.dcp.save` does, and returns its folder. Collective; blocks. A damaged step of this
        number is replaced, with a note; a good one only with `overwrite`.

        metric: for `KeepRules.best`; rank 0's counts, and NaN is no metric.
        rank_objects: values of this rank by name, such as the state of its random generator. `resume` returns them.
        within: as in `dcp.save`.

        Raises Error: those of `dcp.save`; destination_exists if there is a good step of this number; invalid_argument
        if the step to be replaced is one to which another refers.
        """
        from . import dcp

        begun = self._begin_save(step, state_dict, metric, rank_objects, overwrite, within)
        try:
            dcp.save(begun.state, checkpoint_id=begun.path, process_group=self._group, overwrite=begun.replaces,
                     threads=threads, memory_bytes=memory_bytes, progress=progress, previous=begun.previous,
                     within=_arguments.left_until(begun.end), plan_cache=self._plans)
        except BaseException:
            self._end_save(begun.step, False)
            raise
        self._end_save(begun.step, True)
        return begun.path

    def start_save(self, step: int, state_dict: dict[str, Any], *, metric: float | None = None,
                   rank_objects: Mapping[str, Any] | None = None, overwrite: bool = False, threads: int = 0,
                   memory_bytes: int = 0, within: float | None = None) -> Future[str]:
        """Copies the state dict, and saves the copy in the background as `save` does. Collective; blocks until the state
        is copied and the previous background save has ended. Returns a Future of the step's folder.

        The ranks of the save talk in a group of their own, with gloo, or through shared memory if the run has a
        `plan_cache`. The caller may use the run's group meanwhile.
        If nobody asks a future for its outcome and the save fails, the next `save`, `start_save`, `resume`, or `close`
        raises the error.

        within: as in `dcp.async_save`.

        Raises Error: those of `save` that are known before the copy.
        """
        from . import dcp

        begun = self._begin_save(step, state_dict, metric, rank_objects, overwrite, within)
        try:
            # With a cache, the ranks do not talk through the group while the save runs.
            group = self._background_group() if self._plans is None else self._group
            saving = dcp.async_save(begun.state, checkpoint_id=begun.path, process_group=group,
                                    overwrite=begun.replaces, threads=threads, memory_bytes=memory_bytes,
                                    previous=begun.previous, within=within, plan_cache=self._plans)
        except BaseException:
            self._end_save(begun.step, False)
            raise
        self._saving = StepFuture(saving, begun.path, lambda is_saved: self._end_save(begun.step, is_saved))
        return self._saving

    def steps(self) -> list[RunStep]:
        """Lists the steps, ascending. A step that is being saved is not among them. Not collective."""
        return [RunStep(*one) for one in _native.run_steps(self.path, self.names)]

    def latest(self, *, deep: bool = False, threads: int = 0, within: float | None = None) -> RunStep | None:
        """Returns the newest good step, without its metric, which `steps` reads; None: no step is good. Not collective.

        deep: compare every checksum. Otherwise a step is good if its description is readable, its files have the sizes
        that the description needs, and no `resume` has found it damaged.
        within: as in `open`, here and below.
        """
        return self._newest(False, _arguments.flag("deep", deep), _arguments.threads(threads), None,
                            _arguments.end_of(within))[0]

    def verify(self, *, threads: int = 0, within: float | None = None) -> dict[int, Error]:
        """Checks every byte of every step, and returns the problem of each damaged one. Not collective. A step that the
        process that writes the run prunes meanwhile is not among them."""
        end, threads = _arguments.end_of(within), _arguments.threads(threads)
        found = [(one, _native.check_step(one.path, True, threads, end)) for one in self.steps()]
        return {one.step: problem for one, problem in found if problem is not None and os.path.lexists(one.path)}

    def resume(self, state_dict: dict[str, Any], *, deep: bool = False, when_resized: WhenResized = "refuse",
               threads: int = 0, progress: Progress = False, within: float | None = None) -> ResumedRun:
        """Loads the newest good step into a state dict as `shardmesh.dcp.load` does. Collective; blocks. The layout and
        the number of ranks may differ from those of the save. If a step turns out to be damaged, the one before is
        loaded. A run without steps leaves the state dict unchanged.

        deep: compare every checksum of a step before it is loaded.
        when_resized: what happens to `rank_objects` if another number of ranks saved the step. "refuse" raises Error,
        "drop" lists their keys in `dropped`, and a function makes them: it gets the objects of all ranks that saved, a
        list of dicts, the rank, and the number of ranks. Objects are unpickled, as in `dcp.load`.

        Raises Error: the problems of all steps if there are steps and none is good; those of `dcp.load` that are not
        damage to the step, such as missing_key. After an error the tensors hold unspecified values.
        """
        from . import dcp

        def check() -> tuple[bool, int, WhenResized, float | None]:
            end = _arguments.end_of(within)
            self._end_background_save()
            return _arguments.flag("deep", deep), _arguments.threads(threads), checked_rule(when_resized), end

        deep, threads, rule, end = self._everywhere(check)
        below: int | None = None
        skipped: list[Error] = []

        def choose() -> tuple[RunStep | None, list[Error]]:
            found, newer = self._newest(True, deep, threads, below, end)
            if found is None and not newer and below is None:
                _native.check_first_step(self.path, self.names)
            return found, newer

        while True:
            found, newer = self._together("Run.resume", (self.path, deep), choose)
            skipped += newer
            if found is None:
                break
            try:
                own, dropped = self._everywhere(
                    lambda path=found.path: rank_objects_of(path, *self._ranks(), rule, end))
                dcp.load(state_dict, checkpoint_id=found.path, process_group=self._group, threads=threads,
                         progress=progress, within=_arguments.left_until(end))
            except Error as problem:
                if problem.code not in _DAMAGE:
                    raise
                why = str(problem).removesuffix(f" [{problem.code}]")
                skipped.append(failure(problem.code, f"the step is skipped: {why}", path=found.path))
                below = found.step
            else:
                if self._writer is not None:
                    self._writer.note_resume(found.step)
                return ResumedRun(found.step, found.path, skipped, own, dropped)
        if skipped:
            skipped[0].others = (*skipped[0].others, *skipped[1:])
            raise skipped[0]
        return ResumedRun(None)

    def prune(self, keep: KeepRules | None = None, *, dry_run: bool = False) -> PruneReport:
        """Deletes the steps that no rule keeps, and leftovers of killed saves. Collective.

        keep: the rules; None: those of the run.
        dry_run: delete nothing, and report what would be deleted.
        """
        def check() -> tuple[dict[str, Any], bool]:
            plans_only = _arguments.flag("dry_run", dry_run)
            if not plans_only:
                self._check_open()
            return self._keep if keep is None else rules_of(keep), plans_only

        rules, plans_only = self._everywhere(check)

        def prune() -> dict[str, Any]:
            if self._writer is None:
                return _native.planned_prune(self.path, self.names, rules)
            return self._writer.prune(rules, plans_only)

        made = self._together("Run.prune", (self.path, rules, plans_only), prune)
        made["kept"] = [(RunStep(*step), reasons) for step, reasons in made["kept"]]
        made["deleted"] = [RunStep(*step) for step in made["deleted"]]
        return PruneReport(**made)

    def pin(self, step: int) -> None:
        """Pins a step, which no prune deletes until `unpin`. Not collective; needs no lock."""
        _native.set_pin(self.path, self.names, _arguments.number("step", step), True)

    def unpin(self, step: int) -> None:
        """Removes the pin of a step, if it has one. Not collective; needs no lock."""
        _native.set_pin(self.path, self.names, _arguments.number("step", step), False)

    def take_notes(self) -> list[str]:
        """Returns the notes since the last call, on rank 0: replaced steps, and problems of the prune, of the record of
        metrics, and of Megatron's tracker file."""
        return [] if self._writer is None else self._writer.take_notes()

    def __repr__(self) -> str:
        return f"<shardmesh.Run {self.path!r}>"

    def _take_lock(self, incremental: bool) -> None:
        def take() -> None:
            self._writer = _native.RunWriter.open(self.path, self.names, incremental, self._keep)

        try:
            self._together("Run", (self.path, self.names, incremental, self._plans is not None), take)
        except BaseException:
            self._writer = None
            raise

    def _check_open(self) -> None:
        self._owner.check("a run", "open a run of its own in each process", self.path)
        if not self._is_open:
            raise failure("invalid_argument", "the run is closed, or was opened with read_only", path=self.path,
                          hint="open the run again without read_only")

    def _begin_save(self, step: Any, state_dict: Any, metric: Any, rank_objects: Any, overwrite: Any,
                    within: Any) -> _BegunSave:
        def check() -> tuple[int, float | None, bool, Any, float | None]:
            end = _arguments.end_of(within)
            self._check_open()
            self._end_background_save()
            return (_arguments.number("step", step), _metric_of(metric), _arguments.flag("overwrite", overwrite),
                    with_rank_objects(state_dict, rank_objects, *self._ranks()), end)

        number, value, replace, state, end = self._everywhere(check)
        try:
            path, replaces, previous = self._together(
                "Run.save", (self.path, number, replace),
                lambda: self._writer.begin_save(number, value, replace))  # type: ignore[union-attr]
        except BaseException:
            self._end_save(number, False)
            raise
        return _BegunSave(number, state, path, replaces, previous or None, end)

    def _end_background_save(self) -> None:
        """Waits for the background save. Raises its error if nobody asked for its outcome."""
        saving = self._saving
        if saving is None:
            return
        try:
            saving.end()
        finally:
            if saving.done():  # not after Ctrl-C
                self._saving = None

    def _background_group(self) -> ProcessGroup | None:
        _, size = self._ranks()
        if size == 1 or self._own_group is not None:
            return self._own_group
        import torch.distributed as dist

        self._own_group = dist.new_group(dist.get_process_group_ranks(self._group), backend="gloo",
                                         use_local_synchronization=True)
        return self._own_group

    def _drop_background_group(self) -> None:
        group, self._own_group = self._own_group, None
        if group is None:
            return
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group(group)

    def _end_save(self, step: int, is_saved: bool) -> None:
        if self._writer is not None:
            self._writer.end_save(step, is_saved)

    def _newest(self, to_resume: bool, deep: bool, threads: int, below: int | None,
                end: float | None) -> tuple[RunStep | None, list[Error]]:
        found, skipped = _native.newest_step(self.path, self.names, to_resume, deep, threads, below, end)
        return None if found is None else RunStep(*found), skipped

    def _ranks(self) -> tuple[int, int]:
        """Returns this process's rank, and the number of ranks. A process that has not imported torch is alone."""
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return 0, 1
        rank = dist.get_rank(self._group)
        if rank < 0:
            raise failure("invalid_argument", "this process is not a rank of the run's process group", path=self.path,
                          hint="pass a process_group that contains this process")
        return rank, dist.get_world_size(self._group)

    def _together(self, call: str, arguments: tuple, work: Callable[[], Made]) -> Made:
        """Runs the work on rank 0. Every rank returns its answer, or raises its error. Ranks that pass other arguments
        are an error on every rank."""
        rank, size = self._ranks()
        answer, problem = None, None
        if rank == 0:
            try:
                answer = work()
            except Exception as raised:
                problem = raised
        if size > 1:
            import torch.distributed as dist

            told: list[Any] = [None] * size
            dist.all_gather_object(told, (arguments, problem, answer), group=self._group)
            for other, (theirs, _, _) in enumerate(told):
                if theirs != told[0][0]:
                    raise failure("disagreement", f"the ranks call {call} with different arguments", path=self.path,
                                  ranks=(0, other), expected=repr(told[0][0]), found=repr(theirs))
            _, problem, answer = told[0]
        if problem is not None:
            raise problem
        return answer  # type: ignore[return-value]

    def _everywhere(self, work: Callable[[], Made]) -> Made:
        """Runs the work on every rank. If it fails on some ranks, all raise the error of the first of them: a rank whose
        arguments are wrong must not leave the others waiting for it."""
        _, size = self._ranks()
        made, problem = None, None
        try:
            made = work()
        except Exception as raised:
            problem = raised
        if size > 1:
            import torch.distributed as dist

            told: list[Any] = [None] * size
            dist.all_gather_object(told, None if problem is None else _portable(problem), group=self._group)
            theirs = next((one for one in told if one is not None), None)
            # One error on all ranks, so that all of them skip the step, or none does.
            if theirs is not None:
                raise theirs from problem
        if problem is not None:
            raise problem
        return made  # type: ignore[return-value]


def _portable(problem: Exception) -> Error:
    """Returns an error that other ranks can unpickle."""
    if isinstance(problem, Error):
        return problem
    return failure("invalid_argument", f"a rank cannot use its arguments: {problem!r}")


def _metric_of(metric: Any) -> float | None:
    if metric is None:
        return None
    try:
        return float(metric)
    except Exception as cause:  # also from an array of several values
        raise _arguments.wrong("metric", "a number", metric) from cause
