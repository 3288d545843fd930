# SPDX-License-Identifier: Apache-2.0
"""inspect, verify, diff, convert, and reshard as functions return what the command line prints. Needs no torch."""
import http.server
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
import types
import unittest.mock
from pathlib import Path

import common
import shardmesh
from common import GOLDEN
from shardmesh import Selection

TOOL = Path(shardmesh.__file__).parent / "bin" / "shardmesh"
FOLDER = GOLDEN / "fsdp2_tp_2x2" / "checkpoint"


def told(*arguments):
    done = subprocess.run([TOOL, *arguments, "--json"], capture_output=True, text=True)
    return json.loads(done.stdout.replace("pass --allow-globals", "pass allow_globals"))


def write_safetensors(path, tensors):
    """A file of one-dimensional tensors: {KEY: (dtype, bytes)}."""
    header, data, sizes = {}, b"", {"I64": 8, "F32": 4, "U8": 1}
    for key, (dtype, stored) in tensors.items():
        header[key] = {"dtype": dtype, "shape": [len(stored) // sizes[dtype]], "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Refusal(http.server.BaseHTTPRequestHandler):
    """A server that refuses every request."""

    def refuse(self):
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = refuse

    def log_message(self, *_):
        pass


class CommandTest(common.WorkTest):
    def test_inspect_lists_what_the_command_lists(self):
        for name in ("fsdp2_tp_2x2", "dtypes", "nested_objects", "sharded_tensor_chunk", "hf_sharded"):
            path = GOLDEN / name / "checkpoint"
            checkpoint, said = shardmesh.inspect(path), told("inspect", path)
            with self.subTest(name):
                self.assertEqual(checkpoint.format, said["format"])
                self.assertEqual([entry.key for entry in checkpoint.tensors], list(said["tensors"]))
                self.assertEqual([entry.key for entry in checkpoint.objects], list(said["objects"]))
                for entry in checkpoint.tensors:
                    self.assertEqual(list(entry.shape), said["tensors"][entry.key]["shape"])

    def test_verify_finds_what_the_command_finds_in_every_damaged_checkpoint(self):
        compared = 0
        for line in (GOLDEN / "corrupt" / "index.jsonl").read_text().splitlines():
            path = GOLDEN / "corrupt" / json.loads(line)["name"]
            path = path / "checkpoint" if (path / "checkpoint").exists() else path
            report, said = shardmesh.verify(path), told("verify", path)
            with self.subTest(path.name):
                self.assertEqual(report.ok, said["ok"])
                self.assertEqual([str(problem) for problem in report.problems], [p["text"] for p in said["problems"]])
                for ours, theirs in zip(report.problems, said["problems"]):
                    self.assertEqual((ours.key, ours.path, ours.expected, ours.found, ours.hint, list(ours.ranks)),
                                     tuple(theirs[n] for n in ("key", "file", "expected", "found", "hint", "ranks")))
                    self.assertEqual([{"offsets": list(b.offsets), "sizes": list(b.sizes)} for b in ours.boxes],
                                     theirs["boxes"])
                compared += 1
        self.assertGreater(compared, 40)

    def test_other_threads_run_while_verify_searches_what_cannot_be_opened(self):
        """A server of this process answers only while verify does not hold the interpreter's lock."""
        os.environ["no_proxy"] = "127.0.0.1"
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        begin = time.monotonic()
        report = shardmesh.verify(f"http://127.0.0.1:{server.server_address[1]}/x.safetensors")
        passed = time.monotonic() - begin
        server.shutdown()
        server.server_close()
        if report.problems[0].code == "unsupported":
            print("skipped: the package was built without the component remote")
            return
        self.assertEqual(report.problems[0].code, "io")
        self.assertIn("403", report.problems[0].found)
        self.assertLess(passed, 30)

    def test_verify_refuses_dangerous_names_and_counts_unknown_ones(self):
        names = b"".join(b"c%s\n%s\n0" % tuple(name.split(b".")) for name in (b"posix.system", b"os.remove", b"mine.Net", b"mine.Other"))
        for name, data, opens in (("m.pkl", b"\x80\x02" + names + b"}.", True), ("broken.pkl", b"\x80\x02" + names + b"\xff", False)):
            path = self.work / name
            path.write_bytes(data)
            with self.subTest(name):
                report = shardmesh.verify(path)
                self.assertFalse(report.ok)
                self.assertEqual(report.dangerous_globals, ["os.remove", "posix.system"])
                self.assertEqual(report.unknown_globals, 2 if opens else 3)
                self.assertEqual([p.message for p in report.problems][0 if opens else 1:],
                                 [f"its pickle names {n}, which is dangerous to load" for n in ("os.remove", "posix.system")])
                self.assertEqual(str(report.problems[-1]), told("verify", path)["problems"][-1]["text"])
                allowed = shardmesh.verify(path, allow_globals=["posix.system", "os.remove", "mine.Net"])
                self.assertEqual((allowed.ok, allowed.dangerous_globals, allowed.unknown_globals), (opens, [], 1 if opens else 2))
                one = shardmesh.verify(path, allow_globals="os.remove")
                self.assertEqual(one.dangerous_globals, ["posix.system"])
        for wrong in (3, [b"x"], b"x"):
            with self.assertRaises(shardmesh.Error):
                shardmesh.verify(FOLDER, allow_globals=wrong)

    def test_convert_and_diff_go_through_every_format(self):
        for format, name in (("safetensors", "m.safetensors"), ("hf", "hub"), ("dcp", "folder")):
            with self.subTest(format):
                report = shardmesh.convert(FOLDER, self.work / name, format)
                self.assertEqual((report.tensors, report.skipped_tensors), (28, 0))
                self.assertTrue(shardmesh.diff(FOLDER, self.work / name).equal)

    def test_convert_selects_renames_and_casts(self):
        rules = Selection(only=["model\\..*"], strip_prefix="model.", rename="(.*)=net.\\1", cast="float64")
        shardmesh.convert(FOLDER, self.work / "m.safetensors", selection=rules)
        made = shardmesh.open(self.work / "m.safetensors")
        expected = {"net." + key.removeprefix("model.") for key in shardmesh.open(FOLDER) if key.startswith("model.")}
        self.assertEqual(set(made), expected)
        self.assertEqual({entry.dtype for entry in made.tensors}, {"float64"})

    def test_optimizer_state_follows_a_renamed_parameter(self):
        rules = Selection(rename="model\\.(.*)weight=model.\\1w", optimizer_follows=True)
        report = shardmesh.convert(FOLDER, self.work / "new", "dcp", selection=rules)
        expected = {re.sub(r"^((?:model|optim\.state)\..*)weight(\.|$)", r"\1w\2", key) for key in shardmesh.open(FOLDER)}
        self.assertEqual(set(shardmesh.open(self.work / "new")), expected)
        self.assertTrue(any(key.startswith("optim.state") and ".w." in key for key in expected))
        self.assertTrue(any("optimizer state follow the parameters" in note for note in report.notes))

    def test_a_rule_that_matches_nothing_is_an_error_that_names_the_option(self):
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.convert(FOLDER, self.work / "out", "dcp", selection=Selection(only=["nothing"]))
        self.assertEqual(caught.exception.code, "invalid_argument")
        self.assertIn("only", str(caught.exception))
        self.assertEqual(self.left_in_work(), [])

    def test_diff_compares_wrapping_tensors_by_their_components(self):
        source = GOLDEN.parent / "writers" / "wrappers" / "wrappers.pt"
        for format, name in (("safetensors", "m.safetensors"), ("hf", "hub"), ("dcp", "folder"), ("pt", "m.pt"), ("torch-checkpointing", "ranks")):
            with self.subTest(format):
                shardmesh.convert(source, self.work / name, format)
                for progress in (None, lambda done, total: None):
                    self.assertEqual(shardmesh.diff(source, self.work / name, progress=progress).differences, [])
                    self.assertEqual(shardmesh.diff(self.work / name, source, progress=progress).differences, [])

    def test_reshard_cuts_for_another_mesh_and_the_values_stay(self):
        report = shardmesh.reshard(FOLDER, self.work / "three", "3", place=".*weight=S(0)")
        self.assertTrue(shardmesh.diff(FOLDER, self.work / "three").equal)
        weights = [entry for entry in shardmesh.open(self.work / "three").tensors if entry.key.endswith("weight")]
        for entry in weights:
            rows = -(-entry.shape[0] // 3)  # of every rank except the last
            self.assertEqual([chunk.box.offsets[0] for chunk in entry.chunks], list(range(0, entry.shape[0], rows)))
        self.assertEqual(report.tensors, 28)
        shardmesh.reshard(self.work / "three", self.work / "again", like=FOLDER)
        self.assertTrue(shardmesh.diff(FOLDER, self.work / "again", layout=True).equal)

    def test_reshard_cuts_each_segment_of_a_fused_tensor(self):
        source = self.work / "fused.safetensors"
        write_safetensors(source, {"qkv": ("U8", b"qqqqkkvv")})
        shardmesh.reshard(source, self.work / "two", 2, place="qkv=SG(0,4:2:2)")
        (entry,) = shardmesh.open(self.work / "two").tensors
        self.assertEqual([(Path(chunk.file).name, chunk.box.offsets[0], chunk.box.sizes[0]) for chunk in entry.chunks],
                         [("__0_0.distcp", 0, 2), ("__1_0.distcp", 2, 2), ("__0_0.distcp", 4, 1), ("__1_0.distcp", 5, 1),
                          ("__0_0.distcp", 6, 1), ("__1_0.distcp", 7, 1)])
        self.assertTrue(shardmesh.diff(source, self.work / "two").equal)
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.reshard(source, self.work / "three", 3, place="qkv=SG(0,4:2)")
        self.assertEqual(caught.exception.code, "invalid_argument")
        self.assertIn("qkv (the segments of SG(0,4:2) add up to 6, dimension 0 has size 8)", str(caught.exception))
        self.assertFalse((self.work / "three").exists())

    def test_diff_names_what_differs(self):
        shardmesh.convert(FOLDER, self.work / "cast", "dcp", selection=Selection(cast="model\\..*weight=float64"))
        shardmesh.convert(FOLDER, self.work / "less", "dcp", selection=Selection(skip="epoch"))
        report = shardmesh.diff(FOLDER, self.work / "cast")
        self.assertEqual({one.kind for one in report.differences}, {"dtype"})
        self.assertTrue(shardmesh.diff(FOLDER, self.work / "cast", ignore_dtype=True).equal)
        (one,) = shardmesh.diff(FOLDER, self.work / "less").differences
        self.assertEqual((one.key, one.kind), ("epoch", "only-left"))

    def test_diff_compares_what_a_selection_chooses_on_both_sides(self):
        chosen = Selection(skip="epoch", cast="model\\..*weight=float64")
        shardmesh.convert(FOLDER, self.work / "less", "dcp", selection=chosen)
        self.assertEqual({one.kind for one in shardmesh.diff(FOLDER, self.work / "less").differences}, {"dtype", "only-left"})
        report = shardmesh.diff(FOLDER, self.work / "less", selection=chosen)
        self.assertTrue(report.equal)
        self.assertEqual(report.tensors, 28)
        shardmesh.convert(FOLDER, self.work / "named", "dcp", selection=Selection(rename="model\\.(.*)=net.\\1"))
        renamed = shardmesh.diff(FOLDER, self.work / "named", selection=Selection(rename="model\\.(.*)=net.\\1"))
        self.assertEqual([str(one) for one in renamed.differences], [])
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.diff(FOLDER, self.work / "less", selection=Selection(only="nothing"))
        self.assertEqual((caught.exception.code, caught.exception.message), ("invalid_argument", "only 'nothing' matches no key"))

    def test_reshard_cuts_and_fills_to_the_shapes_of_another_checkpoint(self):
        source, wide = self.work / "three.safetensors", self.work / "four.safetensors"
        write_safetensors(source, {"w": ("U8", b"abc")})
        write_safetensors(wide, {"w": ("U8", b"wxyz")})
        shardmesh.reshard(wide, self.work / "like", 2, default="S(0)")
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.reshard(source, self.work / "out", like=self.work / "like")
        self.assertEqual((caught.exception.code, caught.exception.key), ("shape_mismatch", "w"))
        shardmesh.reshard(source, self.work / "out", like=self.work / "like", allow_shape_mismatch=True)
        (entry,) = shardmesh.open(self.work / "out").tensors
        self.assertEqual((entry.shape, [chunk.box.sizes for chunk in entry.chunks]), ((4,), [(2,), (2,)]))
        write_safetensors(self.work / "filled.safetensors", {"w": ("U8", b"abc\0")})
        self.assertTrue(shardmesh.diff(self.work / "out", self.work / "filled.safetensors").equal)

    def test_a_cast_of_integers_is_named_and_narrowing_is_allowed_or_refused(self):
        source, to = self.work / "counter.safetensors", self.work / "cast.safetensors"
        write_safetensors(source, {"step": ("I64", struct.pack("<q", 2**24 + 1)), "w": ("F32", struct.pack("<f", 1.5))})

        def cast(rule, **more):
            return shardmesh.convert(source, to, overwrite=True, selection=Selection(cast=[rule], **more))

        self.assertEqual(cast(".*=float16").notes,
                         ["1 tensor is cast from float32 to float16, which does not hold every value of float32: w; "
                          "numbers beyond 65504 become infinity and are not counted",
                          "the cast '.*=float16' leaves 1 tensor as it is: int64 (1); '.*=int64:float16' casts int64"])
        self.assertEqual({entry.key: entry.dtype for entry in shardmesh.open(to).tensors}, {"step": "int64", "w": "float16"})
        with self.assertRaises(shardmesh.Error) as caught:
            cast("step=int64:float32")
        self.assertEqual((caught.exception.code, caught.exception.key), ("narrowing", "step"))
        self.assertIn("allow_narrowing", caught.exception.hint)
        self.assertEqual(cast("step=int64:float32", allow_narrowing=True).notes,
                         ["1 tensor is cast from int64 to float32, which does not hold every value of int64: step"])
        with self.assertRaisesRegex(shardmesh.Error, "did you mean bfloat16"):
            cast("bf16")

    def test_reshard_names_what_it_replicates(self):
        source = self.work / "two.safetensors"
        write_safetensors(source, {"v": ("U8", b"ab"), "w": ("U8", b"cd")})
        report = shardmesh.reshard(source, self.work / "ranks", 2)
        self.assertEqual(report.notes, ["2 tensors match no placement rule and are replicated on all 2 ranks: v, w"])
        self.assertEqual(shardmesh.reshard(source, self.work / "placed", 2, default="S(0)").notes, [])

    def test_progress_is_told_to_a_function_to_the_end(self):
        said = []
        shardmesh.convert(FOLDER, self.work / "out", "dcp", progress=lambda done, total: said.append((done, total)))
        total = shardmesh.open(FOLDER).tensor_bytes
        self.assertEqual(said[-1], (total, total))
        self.assertEqual(said, sorted(said))

    def test_verify_and_diff_tell_how_much_they_read(self):
        for call in (lambda told: shardmesh.verify(FOLDER, progress=told),
                     lambda told: shardmesh.diff(FOLDER, FOLDER, progress=told)):
            said = []
            self.assertTrue(call(lambda done, total: said.append((done, total))))
            self.assertEqual(said, sorted(said))
            self.assertGreater(said[-1][0], 0)

    def test_a_bar_is_tqdm_s_where_there_is_one(self):
        bars = []

        class Bar:
            def __init__(self, **options):
                self.options, self.n = options, 0
                bars.append(self)

            def __enter__(self):
                return self

            def __exit__(self, *thrown):
                pass

            def refresh(self):
                pass

        module = types.ModuleType("tqdm.auto")
        module.tqdm = Bar
        with unittest.mock.patch.dict(sys.modules, {"tqdm": types.ModuleType("tqdm"), "tqdm.auto": module}):
            shardmesh.convert(FOLDER, self.work / "out", "dcp", progress=True)
        (bar,) = bars
        self.assertEqual((bar.n, bar.options["desc"]), (bar.options["total"], "convert"))
        self.assertEqual(bar.n, shardmesh.open(FOLDER).tensor_bytes)

    def test_no_bar_is_asked_of_a_machine_without_tqdm(self):
        with unittest.mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}):
            shardmesh.convert(FOLDER, self.work / "out", "dcp")
            with self.assertRaisesRegex(shardmesh.Error, "progress=True shows a bar of tqdm, which is not installed"):
                shardmesh.convert(FOLDER, self.work / "again", "dcp", progress=True)
        self.assertEqual(self.left_in_work(), ["out"])

    def test_what_a_progress_function_raises_ends_the_call_and_nothing_is_left(self):
        def stop(done, total):
            raise ValueError("enough")

        with self.assertRaisesRegex(ValueError, "enough"):
            shardmesh.convert(FOLDER, self.work / "m.safetensors", progress=stop)

    def test_what_a_progress_function_raises_after_the_last_byte_is_not_too_late(self):
        def enough(done, total):
            said.append((done, total))
            if done == total:
                raise ValueError("enough")

        for name, call in (("convert.safetensors", lambda to: shardmesh.convert(FOLDER, to, progress=enough)),
                           ("convert.pt", lambda to: shardmesh.convert(FOLDER, to, progress=enough)),
                           ("hf", lambda to: shardmesh.convert(FOLDER, to, "hf", progress=enough)),
                           ("reshard", lambda to: shardmesh.reshard(FOLDER, to, "2", progress=enough))):
            said = []
            with self.assertRaisesRegex(ValueError, "enough"):
                call(self.work / name)
            self.assertEqual(self.left_in_work(), [], name)
            self.assertEqual([step for step in said if step[0] == step[1]], said[-1:], name)

    def test_the_command_line_is_the_package_s_main(self):
        direct = subprocess.run([TOOL, "verify", FOLDER], capture_output=True, text=True)
        ours = subprocess.run([sys.executable, "-m", "shardmesh", "verify", FOLDER], capture_output=True, text=True)
        self.assertEqual((ours.returncode, ours.stdout, ours.stderr),
                         (direct.returncode, direct.stdout, direct.stderr))
        wrong = subprocess.run([sys.executable, "-m", "shardmesh", "verify", self.work / "nothing"], capture_output=True)
        self.assertEqual(wrong.returncode, 3)


if __name__ == "__main__":
    common.main()
