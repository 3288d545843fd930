# SPDX-License-Identifier: Apache-2.0
"""Places that cannot be read or written: a full disk, unreadable files, existing destinations, destinations inside
the source, links that lead out. Each gives its exit status and one line that names the place, and leaves nothing
behind. Needs no package."""
import os
import shutil
import subprocess
import sys

from common import Oracle


def copy_of(oracle, name):
    target = oracle.work / name
    shutil.copytree(oracle.golden / "single_rank" / "checkpoint", target)
    for entry in [target, *target.iterdir()]:
        entry.chmod(0o755)
    return target


def refused(oracle, case, status, expected, err, *words):
    lines = [line for line in err.strip().splitlines() if not line.startswith(("warning:", "note:"))]
    oracle.check(status == expected, case, f"exits {status}, expected {expected}: {err[-300:]}")
    oracle.check(len(lines) == 1, case, f"says {len(lines)} lines: {lines[:4]}")
    for word in words:
        oracle.check(word in err, case, f"does not say {word!r}: {err[-300:]}")


def full_disk(oracle):
    mount = oracle.work / "tiny"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", mount], capture_output=True).returncode != 0:
        print("skipped full_disk: no permission to mount a tmpfs")
        return
    try:
        source = oracle.golden / "dtypes" / "checkpoint"
        for arguments in (["reshard", source, mount / "out", "--mesh", "3", "--place", ".*=S(0)"],
                          ["convert", source, mount / "out.safetensors", "--skip-unsupported"]):
            status, _, err = oracle.run(*arguments)
            refused(oracle, f"full_disk {arguments[0]}", status, 3, err, "No space left")
            oracle.check(not list(mount.iterdir()), "full_disk", f"leaves {[p.name for p in mount.iterdir()]}")
    finally:
        subprocess.run(["umount", mount], check=True)


def unreadable_file(oracle):
    """A file that this user may not read is an error, whether or not the checkpoint names it: it may hold a pickle."""
    for name in ("__0_0.distcp", "extra.pkl"):
        folder = copy_of(oracle, f"unreadable_{name}")
        with open(folder / name, "ab"):
            pass
        (folder / name).chmod(0)
        command = [str(oracle.tool), "verify", str(folder)]
        if os.geteuid() == 0:  # root can read everything: run as another user
            runner = shutil.which("setpriv")
            if not runner:
                print("skipped unreadable_file: running as root without setpriv")
                return
            command = [runner, "--reuid=65534", "--regid=65534", "--clear-groups", *command]
            for parent in folder.parents:
                if not os.stat(parent).st_mode & 0o001:
                    print("skipped unreadable_file: its folder is closed to other users")
                    return
        done = subprocess.run(command, capture_output=True, text=True)
        oracle.check(done.returncode == 3, f"unreadable_file {name}", f"exits {done.returncode}: {done.stderr[-300:]}")
        oracle.check(name in done.stderr and "Permission denied" in done.stderr, f"unreadable_file {name}", done.stderr[-300:])


def empty_paths(oracle):
    """The empty argument that "$CHECKPOINT" yields if the variable is not set."""
    source = oracle.golden / "single_rank" / "checkpoint"
    other = oracle.work / "x"
    for expected, *arguments in ((3, "inspect", ""), (3, "inspect", "", "--json"), (3, "verify", ""), (3, "diff", "", source),
                                 (3, "diff", source, ""), (3, "convert", "", f"{other}.pt"), (2, "convert", source, "", "--to", "dcp"),
                                 (3, "check-shards", ""), (3, "reshard", "", other, "--mesh", "2"),
                                 (2, "reshard", source, "", "--mesh", "2"), (3, "clean", ""), (2, "inspect", source, "--svg", ""),
                                 (2, "inspect", source, "--html", ""), (2, "diff", source, source, "--html", ""),
                                 (2, "plan", "4", "S(0)", "2", "R", "--svg", ""),
                                 (2, "convert", source, f"{other}.pt", "--flat-spec", ""), (2, "convert", source, f"{other}.pt", "--like", ""),
                                 (2, "reshard", source, other, "--like", "")):
        status, out, err = oracle.run(*arguments)
        case = f"empty path: {' '.join(repr(str(a)) for a in arguments)}"
        oracle.check(status == expected, case, f"exits {status}, expected {expected}: {err[-300:]}")
        oracle.check("''" in (out + err if "--json" in arguments else err), case, f"does not show the empty path: {err[-300:]}")
        oracle.check("--json" in arguments or len(err.strip().splitlines()) == 1, case, f"more than a line: {err[-300:]}")


def missing_files(oracle):
    """A file that a checkpoint names and that is missing is the checkpoint's fault, with and without checksums."""
    given = oracle.golden / "fsdp2_tp_2x2" / "checkpoint"
    folders = {"dcp": oracle.work / "given"}
    shutil.copytree(given, folders["dcp"], copy_function=shutil.copyfile)
    for to, more in (("dcp", ()), ("hf", ("--max-shard-size", "1KiB")), ("torch-checkpointing", ())):
        folders[f"our {to}"] = oracle.work / f"our_{to}"
        oracle.succeeds("missing file", "convert", given, folders[f"our {to}"], "--to", to, *more)
    for name, folder in folders.items():
        for file in sorted(folder.iterdir()):
            if file.name in (".metadata", "metadata.pkl", ".shardmesh_checksums") or file.name.endswith(".index.json"):
                continue
            kept = file.read_bytes()
            file.unlink()
            status, _, err = oracle.run("verify", folder)
            oracle.check(status == 1 and file.name in err, f"missing file: {name}", f"{file.name}: exits {status}: {err[-300:]}")
            file.write_bytes(kept)
        oracle.succeeds(f"missing file: {name}", "verify", folder)


def main():
    oracle = Oracle(__doc__)
    source = copy_of(oracle, "source")
    full_disk(oracle)
    unreadable_file(oracle)
    empty_paths(oracle)

    status, _, err = oracle.run("inspect", oracle.work / "nowhere")
    refused(oracle, "absent", status, 3, err, "does not exist")

    # A missing file is a defect of the data, even if checksums name it. A destination that cannot be created is named.
    oracle.succeeds("lost file", "convert", source, oracle.work / "lost", "--to", "dcp")
    (oracle.work / "lost" / "__0_0.distcp").unlink()
    for arguments in (["verify", oracle.work / "lost"], ["convert", oracle.work / "lost", oracle.work / "lost.pt"]):
        status, _, err = oracle.run(*arguments)
        oracle.check(status == 1 and "__0_0.distcp: the file is missing [" in err and "cannot open" not in err, "lost file", f"{status}: {err}")
    for name in ("new.pt", "new.safetensors"):
        status, _, err = oracle.run("convert", source, f"/proc/{name}", "--skip-unsupported")
        refused(oracle, "no place for files", status, 3, err, f"/proc/{name}: cannot create")

    taken = oracle.work / "taken.safetensors"
    taken.write_text("precious")
    status, _, err = oracle.run("convert", source, taken)
    refused(oracle, "exists", status, 2, err, "exists already", "--force")
    oracle.check(taken.read_text() == "precious", "exists", "was harmed")

    for inside in (source / "new", source):
        status, _, err = oracle.run("reshard", source, inside, "--mesh", "2", "--force")
        refused(oracle, "inside the source", status, 2, err, "inside")
    oracle.succeeds("inside the source", "verify", source)

    home = oracle.work / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years")
    status, _, err = oracle.run("reshard", source, home, "--mesh", "2", "--force")
    refused(oracle, "not a checkpoint", status, 2, err, "thesis.txt")
    oracle.check((home / "thesis.txt").read_text() == "years", "not a checkpoint", "was harmed")

    linked = copy_of(oracle, "linked")
    shutil.move(linked / "__0_0.distcp", oracle.work / "outside.distcp")
    (linked / "__0_0.distcp").symlink_to(oracle.work / "outside.distcp")
    status, _, err = oracle.run("verify", linked)
    oracle.check(status == 1 and "leads out" in err, "link out", f"exits {status}: {err[-300:]}")

    missing_files(oracle)

    status, _, err = oracle.run("convert", source, oracle.work / "no" / "such" / "folder.safetensors")
    refused(oracle, "no parent", status, 2, err, "does not exist")

    status, _, err = oracle.run("reshard", source, oracle.work / "small", "--mesh", "2", "--memory", "1MiB")
    refused(oracle, "small budget", status, 2, err, "at least 4194304 bytes")
    leftovers = [p.name for p in oracle.work.iterdir() if p.name.startswith(".")]
    oracle.check(not leftovers, "all", f"temporaries are left: {leftovers}")
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
