# SPDX-License-Identifier: Apache-2.0
"""A user's data around a destination: paths that appear while a command writes, sources inside destinations,
unrelated files, leftovers of killed runs, signals, FIFOs in every place, few descriptors, long names, full disks.
Needs no package."""
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

from common import Oracle, fingerprint
from limits import write_safetensors

TEMPORARY = ".shardmesh-tmp-"
MIB = 1 << 20
FORMATS = {"safetensors": ("out.safetensors", []), "dcp": ("out", ["--to", "dcp"]), "pt": ("out.pt", []),
           "hf": ("out", ["--to", "hf", "--max-shard-size", "16MiB"])}
FILES = ("safetensors", "pt")  # the other formats are folders


def small(path, names=("w",)):
    """A safetensors file of a few tensors of four numbers."""
    header, data = {}, b""
    for name in names:
        header[name] = {"dtype": "I32", "shape": [4], "data_offsets": [len(data), len(data) + 16]}
        data += bytes(range(16))
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def temporaries(folder):
    return sorted(p for p in folder.iterdir() if TEMPORARY in p.name)


class Placing:
    def __init__(self, oracle):
        self.oracle = oracle
        self.big = oracle.work / "big.safetensors"
        write_safetensors(self.big, 4096, 8192)  # 128 MiB

    def folder(self, name):
        folder = self.oracle.work / name
        folder.mkdir(parents=True)
        return folder

    def start(self, *arguments):
        return subprocess.Popen([self.oracle.tool, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def start_writing(self, folder, *arguments):
        """Starts a command, and returns when its output appears in `folder` or it has ended."""
        process = self.start(*arguments)
        while process.poll() is None and not temporaries(folder):
            time.sleep(0.001)
        return process

    def refused(self, case, done, status, *words):
        code, _, err = done
        lines = [line for line in err.strip().splitlines() if not line.startswith(("note:", "warning:"))]
        self.oracle.check(code == status, case, f"exits {code}, expected {status}: {err[-400:]}")
        self.oracle.check(len(lines) == 1, case, f"says {len(lines)} lines: {lines[:3]}")
        for word in words:
            self.oracle.check(str(word) in err, case, f"does not say {word!r}: {err[-400:]}")

    def nothing_left(self, case, folder):
        self.oracle.check(not temporaries(folder), case, f"leaves {[p.name for p in temporaries(folder)]}")

    # -- paths that appear while a command writes

    def appears(self):
        for form, (name, to) in FORMATS.items():
            for force in ([], ["--force"]):
                case = f"appears {form} {force}"
                folder = self.folder(case)
                process = self.start_writing(folder, "convert", self.big, folder / name, *to, *force)
                if form in FILES:
                    (folder / name).write_text("precious")
                else:
                    (folder / name).mkdir()
                    (folder / name / "thesis.txt").write_text("precious")
                precious = fingerprint(folder / name)
                out, err = process.communicate(timeout=120)
                self.refused(case, (process.returncode, out, err), 2, folder / name, "appeared")
                self.oracle.check(fingerprint(folder / name) == precious, case, "what appeared was harmed")
                self.nothing_left(case, folder)

    def changes_under_force(self):
        for form, (name, to) in FORMATS.items():
            case = f"changes {form}"
            folder = self.folder(case)
            self.oracle.succeeds(case, "convert", small(folder / "source.safetensors"), folder / name, *to)
            process = self.start_writing(folder, "convert", self.big, folder / name, *to, "--force")
            if form in FILES:
                (folder / name).write_text("precious")
            else:
                (folder / name / "thesis.txt").write_text("precious")
            precious = fingerprint(folder / name)
            out, err = process.communicate(timeout=120)
            self.refused(case, (process.returncode, out, err), 2, folder / name,
                         "different contents" if form in FILES else "thesis.txt")
            self.oracle.check(fingerprint(folder / name) == precious, case, "what was there was harmed")
            self.nothing_left(case, folder)

    def three_writers(self):
        for form, (name, to) in FORMATS.items():
            case = f"three writers {form}"
            folder = self.folder(case)
            running = [self.start("convert", self.big, folder / name, *to) for _ in range(3)]
            statuses = [(p.communicate(timeout=120), p.returncode)[1] for p in running]
            self.oracle.check(sorted(statuses) == [0, 2, 2], case, f"exit with {statuses}")
            self.oracle.succeeds(case, "diff", self.big, folder / name)
            self.nothing_left(case, folder)

    # -- allowed replacements, and sources in use

    def sources_inside(self):
        folder = self.folder("inside")
        m = folder / "m"
        m.mkdir()
        source = small(m / "a.safetensors", ("w", "v"))
        model = small(m / "model.safetensors")
        outside = small(folder / "outside.safetensors")
        os.symlink(m, folder / "link")
        os.symlink(source, folder / "a_link.safetensors")
        os.link(outside, m / "hard.safetensors")
        before = fingerprint(m)
        only = ["--only", "w", "--to", "hf", "--force"]
        for case, arguments in {
                "file": [source, m], "through a link to the folder": [folder / "link" / "a.safetensors", m],
                "onto a link": [source, folder / "link"], "through a link to the file": [folder / "a_link.safetensors", m],
                "hard link": [outside, m]}.items():
            self.refused(f"source inside: {case}", self.oracle.run("convert", *arguments, *only), 2, arguments[0])
            self.oracle.check(fingerprint(m) == before, f"source inside: {case}", "the folder changed")
        self.refused("source is the destination", self.oracle.run("convert", model, model, "--force"), 2, model)
        other = small(folder / "other.safetensors")
        self.refused("like inside", self.oracle.run("reshard", other, m, "--like", source, "--force"), 2, source)
        self.oracle.check(fingerprint(m) == before, "like inside", "the folder changed")
        # An index whose file is a link into the destination.
        linked = folder / "linked"
        linked.mkdir()
        os.symlink(model, linked / "model.safetensors")
        n = folder / "n"
        self.oracle.succeeds("linked source", "convert", outside, n, "--to", "hf")
        (linked / "model.safetensors").unlink()
        os.symlink(n / "model.safetensors", linked / "model.safetensors")
        whole = fingerprint(n)
        self.refused("linked source", self.oracle.run("convert", linked, n, "--to", "hf", "--force"), 2)
        self.oracle.check(fingerprint(n) == whole, "linked source", "the folder changed")
        # The description of flat parameters, beside the destination and inside it.
        spec = n / "spec.json"
        spec.write_text('{"units":[]}')
        self.refused("flat spec", self.oracle.run("convert", outside, n, "--to", "hf", "--force", "--flat-spec", spec), 2, spec)
        spec = folder / "x.objects.json"
        spec.write_text('{"units":[]}')
        self.refused("flat spec", self.oracle.run("convert", outside, folder / "x.safetensors", "--flat-spec", spec), 2, spec)

    def unrelated_files(self):
        folder = self.folder("unrelated")
        source = small(folder / "source.safetensors")
        cases = {
            "two models": ["a.safetensors", "b.safetensors"], "one of some name": ["mine.safetensors"],
            "beside a model": ["model.safetensors", "mine.safetensors"],
            "two series": ["a-00001-of-00002.safetensors", "b-00001-of-00002.safetensors"],
            "odd dcp": ["mine.distcp"], "odd metadata": ["notes.metadata"], "backup": [".metadata_backup", ".metadata"]}
        for case, names in cases.items():
            target = folder / case
            target.mkdir()
            for name in names:
                small(target / name)
            before = fingerprint(target)
            for to in ("hf", "dcp"):
                self.refused(f"unrelated: {case}", self.oracle.run("convert", source, target, "--to", to, "--force"), 2,
                             target, "more than the files of one checkpoint")
            self.oracle.check(fingerprint(target) == before, f"unrelated: {case}", "was harmed")
        # Beside output of shardmesh, and beside files that an index names.
        for case, make in {"recorded": lambda t: self.oracle.succeeds("recorded", "convert", source, t, "--to", "hf"),
                           "dcp": lambda t: self.oracle.succeeds("dcp", "convert", source, t, "--to", "dcp"),
                           "indexed": self.make_indexed}.items():
            target = folder / case
            make(target)
            mine = target / "mine.safetensors"
            small(mine)
            self.refused(case, self.oracle.run("convert", source, target, "--to", "hf", "--force"), 2, "mine.safetensors")
            mine.unlink()
            self.oracle.succeeds(case, "convert", source, target, "--to", "hf", "--force")
            self.oracle.succeeds(case, "diff", source, target)
        # Every file that belongs to no checkpoint is named, beside output of PyTorch or shardmesh.
        for form in ("dcp", "hf"):
            target = folder / f"{form} with files"
            self.oracle.succeeds(form, "convert", source, target, "--to", form)
            for name in ("config.json", "model.pt"):
                (target / name).write_text("{}")
            self.refused(f"{form} with files", self.oracle.run("convert", source, target, "--to", form, "--force"), 2,
                         "more than the files of one checkpoint", "config.json, model.pt")
            (target / "below").mkdir()
            self.refused(f"{form} with a folder", self.oracle.run("convert", source, target, "--to", form, "--force"), 2,
                         "below/")
        # Files of one series, without an index.
        target = folder / "series"
        target.mkdir()
        for i in (1, 2):
            small(target / f"model-0000{i}-of-00002.safetensors", (f"t{i}",))
        self.oracle.succeeds("series", "convert", source, target, "--to", "dcp", "--force")
        # Only regular files are ever replaced.
        fifo = folder / "fifo.safetensors"
        os.mkfifo(fifo)
        self.refused("fifo destination", self.oracle.run("convert", source, fifo, "--force", timeout=10), 2, "FIFO")
        theirs = folder / "x.objects.json"
        theirs.write_text("mine")
        objects = self.oracle.golden / "single_rank" / "checkpoint"
        self.refused("objects beside", self.oracle.run("convert", objects, folder / "x.safetensors", "--force"), 2, theirs)
        self.oracle.check(theirs.read_text() == "mine", "objects beside", "was harmed")
        self.nothing_left("unrelated", folder)

    def make_indexed(self, target):
        target.mkdir()
        small(target / "one.safetensors", ("a",))
        small(target / "two.safetensors", ("b",))
        (target / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))

    # -- killed runs

    def leftovers(self):
        for form, (name, to) in FORMATS.items():
            case = f"killed {form}"
            folder = self.folder(case)
            process = self.start_writing(folder, "convert", self.big, folder / name, *to)
            process.kill()
            process.communicate()
            left = temporaries(folder)
            self.oracle.check(len(left) == 1, case, f"{len(left)} leftovers")
            source = small(folder / "source.safetensors")
            status, _, err = self.oracle.run("convert", source, folder / name, *to)
            self.oracle.check(status == 0 and left[0].name in err and "note:" in err, case, f"the next run: {status} {err}")
            status, out, err = self.oracle.run("verify", folder / name)
            self.oracle.check(status == 0 and left[0].name in err and "clean" in err, case, f"verify: {status} {err}")
            status, _, err = self.oracle.run("verify", folder / name, "--strict")
            self.oracle.check(status == 0, case, f"verify --strict: {status} {err}")
            status, out, _ = self.oracle.run("clean", folder / name, "--dry-run")
            self.oracle.check(status == 0 and f"would remove {left[0]}" in out and left[0].exists(), case, out)
            status, _, err = self.oracle.run("convert", source, folder / name, *to, "--force")
            self.oracle.check(status == 0 and left[0].name in err and not left[0].exists(), case, f"--force: {status} {err}")
            self.nothing_left(case, folder)

    def cleaning(self):
        folder = self.folder("cleaning")
        dead, alive = folder / "dead", folder / "alive"
        for name in (dead, alive):
            process = self.start_writing(folder, "convert", self.big, name, "--to", "dcp")
            if name == dead:
                while not any(folder.glob(".*/*.distcp")):
                    time.sleep(0.001)
                process.kill()
                process.communicate()
                (left,) = temporaries(folder)
            else:
                # It holds its lock once it has files.
                while process.poll() is None and sum(1 for t in temporaries(folder) if any(t.glob("*.distcp"))) < 2:
                    time.sleep(0.001)
                process.send_signal(signal.SIGSTOP)
        (running,) = [p for p in temporaries(folder) if p != left]
        mine = folder / ".mine.shardmesh-tmp-of-mine"
        mine.write_text("not one of those")
        status, out, _ = self.oracle.run("clean", folder, "--json")
        said = json.loads(out)
        self.oracle.check([r["path"] for r in said["removed"]] == [str(left)], "clean", out)
        self.oracle.check([k["path"] for k in said["kept"]] == [str(running)] and "written" in said["kept"][0]["why"], "clean", out)
        self.oracle.check(status == 0 and not left.exists() and running.exists() and mine.exists(), "clean", f"{status} {out}")
        process.send_signal(signal.SIGCONT)
        self.oracle.check(process.wait(60) == 0, "clean", "the run that was alive did not end well")
        process.communicate()
        status, out, _ = self.oracle.run("clean", folder)
        self.oracle.check(status == 0 and "no leftovers" in out, "clean", out)
        self.refused("clean", self.oracle.run("clean", folder / "no" / "where"), 3, "no")
        # After a kill between the exchange and the deletion, the replaced folder has the temporary name. Files of
        # others in it stay.
        old = folder / ".o.shardmesh-tmp-00000000-1-00000000"
        self.oracle.succeeds("clean", "convert", small(folder / "s.safetensors"), old, "--to", "dcp")
        (old / "thesis.txt").write_text("years")
        status, out, err = self.oracle.run("clean", folder / "o")
        self.oracle.check(status != 0 and "thesis.txt" in err and (old / "__0_0.distcp").exists(), "clean", f"{status} {out} {err}")
        (old / "thesis.txt").unlink()
        status, out, err = self.oracle.run("clean", folder / "o")
        self.oracle.check(status == 0 and not old.exists(), "clean", f"{status} {out} {err}")

    def signals(self):
        for form, (name, to) in FORMATS.items():
            for number in (signal.SIGINT, signal.SIGTERM):
                for force in ([], ["--force"]):
                    case = f"{number.name} {form} {force}"
                    folder = self.folder(case)
                    if force:
                        self.oracle.succeeds(case, "convert", small(folder / "source.safetensors"), folder / name, *to)
                    before = fingerprint(folder / name)
                    process = self.start_writing(folder, "convert", self.big, folder / name, *to, *force)
                    process.send_signal(number)
                    _, err = process.communicate(timeout=60)
                    self.oracle.check(process.returncode == 3 and err.count("\n") == 1 and "interrupted" in err, case,
                                      f"{process.returncode}: {err}")
                    self.oracle.check(fingerprint(folder / name) == before, case, "the destination changed")
                    self.nothing_left(case, folder)
        # A signal after the write changes nothing: the status says what the destination is.
        folder = self.folder("after the write")
        reader, full = os.pipe()
        os.set_blocking(full, False)
        while True:  # the command waits at its end until someone reads what it prints
            try:
                os.write(full, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(full, True)
        process = subprocess.Popen([self.oracle.tool, "convert", small(folder / "s.safetensors"), folder / "o.pt", "--no-sync"],
                                   stdout=full, stderr=subprocess.PIPE, text=True)
        os.close(full)
        end = time.monotonic() + 60
        while not (folder / "o.pt").exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        with open(reader, "rb") as out:
            printed = out.read()
        _, err = process.communicate(timeout=60)
        self.oracle.check(process.returncode == 0 and b"wrote 1 tensor" in printed and not err, "after the write",
                          f"{process.returncode}: {err}")
        reading = self.start("diff", self.big, self.big)
        time.sleep(0.03)
        reading.send_signal(signal.SIGINT)
        _, err = reading.communicate(timeout=60)
        self.oracle.check(reading.returncode in (0, 3), "SIGINT diff", f"{reading.returncode} {err}")
        # A second signal does not wait.
        folder = self.folder("twice")
        process = self.start_writing(folder, "convert", self.big, folder / "out", "--to", "dcp")
        for _ in range(50):
            process.send_signal(signal.SIGINT)
            time.sleep(0.001)
            if process.poll() is not None:
                break
        process.communicate(timeout=10)
        self.oracle.check(process.returncode == 3, "twice", f"exits {process.returncode}")
        self.oracle.succeeds("twice", "clean", folder)
        self.nothing_left("twice", folder)

    # -- paths that are not files

    def no_files(self):
        folder = self.folder("fifos")
        objects = self.oracle.golden / "single_rank" / "checkpoint"
        source = small(folder / "s.safetensors")
        fifo = folder / "fifo"
        os.mkfifo(fifo)
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(str(folder / "socket"))
        device = folder / "zero"
        try:
            os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 5))
        except PermissionError:
            print("skipped devices: no permission to make one")
        things = {"FIFO": fifo, "socket": folder / "socket", "folder": folder / "is_folder"}
        things["folder"].mkdir()
        if device.exists():
            things["device"] = device

        def made(name, make):
            target = folder / name
            make(target)
            return target

        dcp = made("dcp", lambda t: shutil.copytree(objects, t))
        hf = made("hf", lambda t: self.oracle.succeeds("fifos", "convert", source, t, "--to", "hf"))
        indexed = made("indexed", self.make_indexed)
        flat = made("flat.safetensors", lambda t: self.oracle.succeeds("fifos", "convert", objects, t))
        ours = made("ours", lambda t: self.oracle.succeeds("fifos", "convert", objects, t, "--to", "hf"))
        written = made("written", lambda t: self.oracle.succeeds("fifos", "convert", source, t, "--to", "dcp"))
        places = {dcp / ".metadata": dcp, dcp / "__0_0.distcp": dcp, hf / "model.safetensors": hf,
                  indexed / "one.safetensors": indexed, indexed / "model.safetensors.index.json": indexed,
                  hf / ".shardmesh_checksums": hf, written / ".shardmesh_checksums": written}
        for place, checkpoint in places.items():
            kept = place.read_bytes()
            for kind, thing in things.items():
                case = f"{kind} for {checkpoint.name}/{place.name}"
                place.unlink()
                os.rename(thing, place)
                commands = [["verify", checkpoint]]
                if place.name != ".shardmesh_checksums":
                    commands += [["diff", checkpoint, checkpoint], ["convert", checkpoint, folder / "o.safetensors", "--force"],
                                 ["reshard", checkpoint, folder / "or", "--mesh", "2", "--force"]]
                for arguments in commands:
                    status, _, err = self.oracle.run(*arguments, timeout=10)
                    self.oracle.check(status in (1, 3) and place.name in err, case, f"{arguments[0]} exits {status}: {err[-300:]}")
                os.rename(place, thing)
                place.write_bytes(kept)
        for kind, thing in things.items():
            if kind != "folder":
                for arguments in (["inspect", thing], ["verify", thing], ["diff", thing, source], ["check-shards", thing],
                                  ["convert", thing, folder / "o.safetensors"], ["convert", thing, folder / "o", "--to", "dcp"],
                                  ["reshard", source, folder / "o", "--like", thing],
                                  ["convert", source, folder / "o.safetensors", "--flat-spec", thing]):
                    status, _, err = self.oracle.run(*arguments, timeout=10)
                    self.oracle.check(status in (1, 3) and kind in err, f"{kind} {arguments[0]}", f"exits {status}: {err[-300:]}")
        # Beside the source, where nothing of the kind is needed: no harm, no wait.
        for place, checkpoint in ((folder / "flat.objects.json", flat), (ours / "objects.json", ours),
                                  (folder / "s.objects.json", source)):
            place.unlink(missing_ok=True)
            os.mkfifo(place)
            for arguments in (["inspect", checkpoint], ["convert", checkpoint, folder / "beside", "--to", "dcp", "--force"],
                              ["convert", source, folder / "flat.safetensors", "--force"]):
                status, _, err = self.oracle.run(*arguments, timeout=10)
                self.oracle.check(status >= 0, f"FIFO beside {checkpoint.name}", f"{arguments[0]} exits {status}: {err[-300:]}")
            self.oracle.check(place.is_fifo(), f"FIFO beside {checkpoint.name}", "it went")
            place.unlink()
        status, _, err = self.oracle.run("layout", "--shape", "4", "--mesh", "2", "--place", "S(0)", "--svg", fifo, timeout=10)
        self.oracle.check(status == 3 and "fifo" in err, "svg to a FIFO", f"exits {status}: {err[-300:]}")
        bound.close()

    # -- scarce resources

    def few_descriptors(self):
        folder = self.folder("few")
        source = folder / "source.safetensors"
        write_safetensors(source, 1024, 1024)  # 4 MiB
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))  # noqa: E731
        names = [f"t{i}" for i in range(64)]
        many = small(folder / "many.safetensors", names)
        steps = [["reshard", source, folder / "ranks", "--mesh", "64", "--place", "w=S(0)"], ["inspect", folder / "ranks"],
                 ["verify", folder / "ranks"], ["diff", source, folder / "ranks"], ["diff", folder / "ranks", folder / "ranks"],
                 ["reshard", folder / "ranks", folder / "columns", "--mesh", "64", "--place", "w=S(1)"],
                 ["reshard", source, folder / "like", "--like", folder / "columns"],
                 ["convert", folder / "columns", folder / "one.safetensors"],
                 ["convert", many, folder / "hf", "--to", "hf", "--max-shard-size", "16"], ["verify", folder / "hf"],
                 ["convert", folder / "hf", folder / "dcp", "--to", "dcp"], ["diff", folder / "dcp", folder / "hf"],
                 ["convert", folder / "hf", folder / "again.safetensors"], ["convert", folder / "hf", folder / "dcp", "--to", "dcp", "--force"],
                 ["convert", self.oracle.golden / "single_rank" / "checkpoint", folder / "objects.safetensors"],
                 ["verify", folder / "objects.safetensors"], ["clean", folder]]
        for threads in ("1", "16"):
            for arguments in steps:
                done = subprocess.run([self.oracle.tool, *map(str, arguments), "--threads", threads], capture_output=True,
                                      text=True, preexec_fn=few, timeout=60)
                self.oracle.check(done.returncode == 0, f"20 descriptors, {threads} threads",
                                  f"{arguments[0]} to {Path(arguments[-1]).name} exits {done.returncode}: {done.stderr[-300:]}")
            self.oracle.succeeds("20 descriptors", "diff", source, folder / "one.safetensors")
            for made in ("ranks", "columns", "like", "hf", "dcp"):
                shutil.rmtree(folder / made)
            for made in ("one", "again", "objects"):
                (folder / f"{made}.safetensors").unlink()
            (folder / "objects.objects.json").unlink(missing_ok=True)

    def long_names(self):
        folder = self.folder("long")
        objects = self.oracle.golden / "single_rank" / "checkpoint"
        for length in (196, 197, 228, 240, 254):
            for stem in ("n", "\u00e9"):
                for form, (_, to) in FORMATS.items():
                    end = f".{form}" if form in FILES else ""
                    room = length - len(end)
                    name = (stem * room).encode()[:room - room % len(stem.encode())].decode() + end
                    case = f"name of {len(name.encode())} bytes, {form}"
                    for force in ([], ["--force"]):
                        self.oracle.succeeds(case, "convert", objects, folder / name, *to, *force)
                    self.oracle.succeeds(case, "verify", folder / name)
                    (shutil.rmtree if (folder / name).is_dir() else os.unlink)(folder / name)
                    for left in folder.iterdir():
                        left.unlink()
        name = "k" * 240
        process = self.start_writing(folder, "convert", self.big, folder / name, "--to", "dcp")
        process.kill()
        process.communicate()
        status, out, err = self.oracle.run("clean", folder / name)
        self.oracle.check(status == 0 and "removed" in out and not list(folder.iterdir()), "long names", f"{status} {out} {err}")

    def full_disk(self):
        mount = self.folder("tiny")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", mount], capture_output=True).returncode != 0:
            print("skipped full_disk: no permission to mount a tmpfs")
            return
        try:
            for form, (name, to) in FORMATS.items():
                start = time.monotonic()
                done = self.oracle.run("convert", self.big, mount / name, *to)
                self.refused(f"full disk {form}", done, 3, mount / name, "No space left", 128 * MIB if form == "dcp" else "1342",
                             "bytes of free space")
                self.oracle.check(not list(mount.iterdir()), f"full disk {form}", "something is left")
                self.oracle.check(time.monotonic() - start < 5, f"full disk {form}", "it was written to first")
        finally:
            subprocess.run(["umount", mount], check=True)


def main():
    oracle = Oracle(__doc__, syncs=False)
    placing = Placing(oracle)
    for part in (placing.appears, placing.changes_under_force, placing.three_writers, placing.sources_inside,
                 placing.unrelated_files, placing.leftovers, placing.cleaning, placing.signals, placing.no_files,
                 placing.few_descriptors, placing.long_names, placing.full_disk):
        if oracle.args.only in part.__name__:
            start = time.monotonic()
            part()
            print(f"{part.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    oracle.finish()


if __name__ == "__main__":
    sys.exit(main())
