# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/interrupted: checkpoints of real PyTorch saves that were killed (SIGKILL) at chosen points. Run
by hand; its output is committed, and tests/oracle/verify_interrupted.py uses it. Needs PyTorch. Usage:
make_interrupted.py FOLDER"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

README = """# Interrupted saves

Made by `tests/oracle/make_interrupted.py` with PyTorch {version}: every folder is what a real `torch.distributed.checkpoint.save`
left behind when its process was killed (SIGKILL) at the point that its name says; the last two are two saves into one folder,
and a save without collectives of which one rank was killed. `mtimes.json` keeps the files' ages (seconds relative to the oldest),
which version control does not.

| folder | killed |
|---|---|
"""


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def state(version):
    import torch
    rows = 6 if version == "old" else 9 if version == "bigger" else 6
    first = {"old": 0, "new": 100, "bigger": 200}[version]
    return {"model": {"w": torch.arange(first, first + rows * 4, dtype=torch.float32).reshape(rows, 4),
                      "b": torch.full((4,), first, dtype=torch.int64)}, "step": first}


def patch(stage):
    """Arms the kill. Every stage except `none` ends the process inside dcp.save."""
    from torch.distributed.checkpoint import filesystem
    writer, files = filesystem.FileSystemWriter, filesystem.FileSystem
    if stage == "before_metadata":
        writer.finish = lambda self, metadata, results: die()
    elif stage == "in_metadata":
        finish = writer.finish

        def finish_and_die(self, metadata, results):
            os.fsync = lambda fd: die()
            finish(self, metadata, results)
        writer.finish = finish_and_die
    elif stage == "before_remove":
        files.rm_file = lambda self, path: die()
    elif stage == "before_rename":
        files.rename = lambda self, path, new_path: die()
    elif stage == "in_items":
        write, seen = filesystem._write_item, []

        def write_and_die(transforms, stream, *rest, **named):
            result = write(transforms, stream, *rest, **named)
            seen.append(result)
            if len(seen) == 2:  # the second of three items is half written
                stream.flush()
                os.truncate(stream.fileno(), stream.tell() - 700)
                die()
            return result
        filesystem._write_item = write_and_die


def child(folder, version, stage, mode):
    import torch.distributed.checkpoint as dcp
    patch(stage)
    if mode == "alone":
        dcp.save(state(version), checkpoint_id=folder, no_dist=True)
        return
    # Without collectives: two ranks, each with rows of each tensor; only rank 1 is killed.
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor
    dist.init_process_group("gloo", init_method=f"file://{Path(folder).resolve()}.rendezvous", rank=int(mode), world_size=2)
    mesh = dist.init_device_mesh("cpu", (2,))
    whole = {"w": distribute_tensor(torch.arange(24, dtype=torch.float32).reshape(6, 4), mesh, [Shard(0)]), "step": 5}
    dcp.save(whole, checkpoint_id=folder, use_collectives=False)


def save(folder, version, stage="none", mode="alone"):
    folder.parent.mkdir(exist_ok=True)  # .metadata stores the checkpoint's relative name
    return subprocess.Popen([sys.executable, Path(__file__).resolve(), "--child", folder.name, version, stage, mode],
                            cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(process, stage):
    status = process.wait()
    expected = 0 if stage == "none" else -signal.SIGKILL
    if status != expected:
        raise SystemExit(f"a save with stage {stage} ended with {status}, expected {expected}")


def set_apart(folder):
    """Makes existing files visibly older than later ones."""
    for file in folder.iterdir():
        seconds = file.stat().st_mtime - 60
        os.utime(file, (seconds, seconds))


SAMPLES = {
    "fresh_before_metadata": ("all items were written, .metadata not begun", [("old", "before_metadata")]),
    "fresh_in_metadata": (".metadata.tmp was opened, nothing of it had reached the disk", [("old", "in_metadata")]),
    "fresh_before_rename": (".metadata.tmp was complete, not yet renamed", [("old", "before_rename")]),
    "overwrite_in_items": ("an older save was being overwritten by a bigger one, in the middle of an item",
                           [("old", "none"), ("bigger", "in_items")]),
    "overwrite_before_metadata": ("an older save was overwritten by one of the same shapes, before .metadata",
                                  [("old", "none"), ("new", "before_metadata")]),
    "overwrite_before_remove": ("likewise, .metadata.tmp was complete, the old .metadata still there",
                                [("old", "none"), ("new", "before_remove")]),
    "overwrite_before_rename": ("likewise, the old .metadata was removed, the new one not yet renamed",
                                [("old", "none"), ("new", "before_rename")]),
}


def make(root):
    import torch
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, (what, steps) in SAMPLES.items():
            folder = Path(scratch) / name / "checkpoint"
            for version, stage in steps:
                if folder.exists():
                    set_apart(folder)
                finish(save(folder, version, stage), stage)
            keep(folder, root / name)
            lines.append(f"| `{name}` | {what} |")

        name = "rank_metadata_beside_metadata"
        folder = Path(scratch) / name / "checkpoint"
        for process in [save(folder, "old", mode="0"), save(folder, "old", mode="1")]:
            finish(process, "none")
        set_apart(folder)
        finish(save(folder, "new"), "none")
        keep(folder, root / name)
        lines.append(f"| `{name}` | not at all: a save without collectives, then an ordinary one into the same folder |")

        name = "no_collectives_one_rank"
        folder = Path(scratch) / name / "checkpoint"
        first, second = save(folder, "old", mode="0"), save(folder, "old", "before_metadata", "1")
        finish(second, "before_metadata")
        first.wait()  # its own part is done; its error about the lost rank does not matter
        keep(folder, root / name)
        lines.append(f"| `{name}` | rank 1 of a save without collectives, before its __1.metadata |")
    (root / "README.md").write_text(README.format(version=torch.__version__.split("+")[0]) + "\n".join(lines) + "\n")


def keep(folder, target):
    shutil.copytree(folder, target / "checkpoint")
    times = {file.name: file.stat().st_mtime for file in folder.iterdir()}
    oldest = min(times.values())
    (target / "mtimes.json").write_text(json.dumps({k: round(v - oldest, 3) for k, v in sorted(times.items())}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:6])
    elif len(sys.argv) == 2:
        make(Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
