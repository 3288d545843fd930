# SPDX-License-Identifier: Apache-2.0
"""The programs in Python of docs/recipes run, each in an empty folder beside a copy of a checkpoint, and print what they
should. Those of several ranks get the environment of torchrun. All are forked from one process, and one also runs in an
interpreter of its own."""
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback

import common

common.need_torch()
import torch._dynamo  # noqa: E402, F401  the programs are forked after all imports that take time

import shardmesh.dcp  # noqa: E402, F401

RECIPES = common.DATA.parent.parent / "examples" / "recipes"
TRAINED, NEW = "fsdp2_tp_2x2/checkpoint", "era_torch_2.15.0/checkpoint"
MATRIX = "model.mlp.up.weight"
# (program, arguments, checkpoint, exit status, what it prints)
ALONE = [
    ("read_tensor", ["checkpoint", MATRIX], TRAINED, 0, rf"{MATRIX}: float32\[16, 10\], row 1 from "),
    ("rank_part", ["checkpoint", "2"], TRAINED, 0, rf"{MATRIX}: \[\[4, 10\]\]\n"),
    ("rename_and_cast", ["checkpoint", "model.safetensors"], TRAINED, 0, r"^tensors: 7\n$"),
    ("fuse_qkv", ["checkpoint", "fused", "qkv", "model.norm.weight", "model.norm.bias", "model.mlp.up.bias"], TRAINED, 0,
     r"^qkv: float32\[\d+\] of 3 tensors\n$"),
    ("map_names", ["checkpoint", str(common.DATA.parent / "c_api" / "names.toml"), "named.safetensors"],
     "single_rank/checkpoint", 0, r"^tensors: 2 \(bias, kernel\)\n$"),
    ("untrusted", ["checkpoint"], TRAINED, 0, r"nothing found\n$"),
    ("untrusted", ["checkpoint"], "corrupt/blob_evil_pickle/checkpoint", 1, r"problem: .*\ndo not load this with Python\n$"),
    ("older_pytorch", ["checkpoint", "older"], NEW, 0, r"^tensors: \d+, files: 4, entries: \d+\n$"),
    ("convert_formats", ["checkpoint"], TRAINED, 0, r"(copy\.\w+: equal \(tensors: 28, objects: \d+\)\n){4}$"),
]
# (program, arguments of each run, what all runs print)
ON_RANKS = [
    ("move_between_layouts", [[]], r"rank 1: \[3, 4\], \[6, 2\]\n"),
    ("save_keep_resume", [["run", "3"], ["run", "5"]],
     r"resumes after step 0\nkeeps steps \[2, 3\]\nresumes after step 3\nkeeps steps \[4, 5\]\n"),
]
WORLD = 2
SECONDS = 120  # of a program


def reserved_port():
    """A socket. While it is open, no other program gets its port by chance; rank 0 may listen on it."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    return one


def status_of(path):
    """Runs a program as `python PATH` does. Returns its exit status."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class Recipes(common.WorkTest):
    def start(self, program, arguments, **environment):
        """Starts a program in a fork of this process, which has imported PyTorch. Returns its number and its output."""
        files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        for file in files:
            self.addCleanup(file.close)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for file, number in zip(files, (1, 2)):
                    os.dup2(file.fileno(), number)
                signal.alarm(SECONDS)  # a rank that waits for one that failed
                os.chdir(self.work)
                os.environ.update(environment)
                path = str(RECIPES / f"{program}.py")
                sys.path[0], sys.argv = str(RECIPES), [path, *arguments]
                status = status_of(path)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)  # threads of gloo may still exist, and an ordinary exit then aborts at times
        return child, files

    def end(self, started, status=0):
        """Returns the program's output."""
        child, files = started
        found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said, problems = (file.seek(0) or file.read() for file in files)
        self.assertEqual(found, status, said + problems)
        return said

    def test_programs_of_one_process(self):
        for program, arguments, checkpoint, status, prints in ALONE:
            with self.subTest(program=program, checkpoint=checkpoint):
                shutil.rmtree(self.work)
                shutil.copytree(common.GOLDEN / checkpoint, self.work / "checkpoint")
                os.utime(self.work / "checkpoint" / ".metadata")  # git keeps no times; PyTorch writes it last
                self.assertRegex(self.end(self.start(program, arguments), status), prints)

    def test_a_program_in_an_interpreter_of_its_own(self):
        program, arguments, checkpoint, _, prints = ALONE[0]
        shutil.copytree(common.GOLDEN / checkpoint, self.work / "checkpoint")
        done = subprocess.run([sys.executable, "-B", RECIPES / f"{program}.py", *arguments], cwd=self.work, text=True,
                              capture_output=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, prints)

    def test_programs_of_several_ranks(self):
        for program, runs, prints in ON_RANKS:
            with self.subTest(program=program):
                said = ""
                for arguments in runs:
                    with reserved_port() as port:
                        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.getsockname()[1]),
                                 "WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD), "GLOO_SOCKET_IFNAME": "lo",
                                 "OMP_NUM_THREADS": "1"}
                        running = [self.start(program, arguments, RANK=str(rank), LOCAL_RANK=str(rank), **group)
                                   for rank in range(WORLD)]
                        said += "".join([self.end(one) for one in running])
                self.assertRegex(said, prints)

    def test_every_program_runs(self):
        run = {program for program, *_ in ALONE} | {program for program, *_ in ON_RANKS}
        self.assertEqual(run, {file.stem for file in RECIPES.glob("*.py")})


if __name__ == "__main__":
    common.main()
