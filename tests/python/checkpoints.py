# SPDX-License-Identifier: Apache-2.0
"""open, load, and save: every golden checkpoint against PyTorch's own values, and back through every format."""
import enum
import gc
import json
import os
import random
import shutil
import time

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402

import shardmesh.dcp  # noqa: E402
from common import GOLDEN, raw  # noqa: E402


class Colour(enum.Enum):
    RED = 1


def golden_cases():
    """Yields (name, path, the contents of expected.json)."""
    for folder in sorted(GOLDEN.iterdir()):
        expected = folder / "expected.json"
        if expected.exists() and (folder / "checkpoint").is_dir():
            yield folder.name, folder / "checkpoint", json.loads(expected.read_text())


class GoldenTest(common.WorkTest):
    def test_every_tensor_of_every_golden_checkpoint_is_bit_for_bit_what_pytorch_had(self):
        import hashlib

        compared = 0
        for name, path, expected in golden_cases():
            if name == "options_xor":  # a transform that no other program knows
                continue
            checkpoint = shardmesh.open(path)
            for key, said in expected["tensors"].items():
                entry = checkpoint.get(key)
                if not isinstance(entry, shardmesh.TensorEntry) or entry.foreign_type or "sha256" not in said:
                    continue
                if not isinstance(getattr(torch, entry.dtype, None), torch.dtype):
                    continue
                with self.subTest(f"{name}: {key}"):
                    loaded = checkpoint.load(key)
                    self.assertEqual(list(loaded.shape), said["shape"])
                    self.assertEqual(str(loaded.dtype), "torch." + entry.dtype)
                    self.assertEqual(hashlib.sha256(raw(loaded)).hexdigest(), said["sha256"])
                    compared += 1
        self.assertGreater(compared, 400)

    def test_chunks_tile_their_tensor_and_lie_in_files_that_are_there(self):
        path = GOLDEN / "dtensor_2d_2x2" / "checkpoint"
        checkpoint = shardmesh.open(path)
        for entry in checkpoint.tensors:
            elements = 0
            for chunk in entry.chunks:
                count = 1
                for size in chunk.box.sizes:
                    count *= size
                elements += count
                self.assertLessEqual(chunk.offset + chunk.length, (path / chunk.file).stat().st_size)
            self.assertEqual(elements, torch.Size(entry.shape).numel())

    def test_objects_are_what_pytorch_saved(self):
        path = GOLDEN / "fsdp2_4" / "checkpoint"
        checkpoint = shardmesh.open(path)
        wanted = {entry.key: None for entry in checkpoint.objects}
        self.assertGreater(len(wanted), 3)
        for key in wanted:
            archive = torch.load(__import__("io").BytesIO(checkpoint.object_bytes(key)), weights_only=True)
            self.assertEqual(checkpoint.load(key), archive)
            self.assertEqual(checkpoint[key].type, f"{type(archive).__module__}.{type(archive).__qualname__}")


class BoxTest(common.WorkTest):
    def setUp(self):
        super().setUp()
        self.whole = torch.arange(35, dtype=torch.float32).reshape(7, 5)
        shardmesh.save({"w": self.whole, "scalar": torch.tensor(3), "empty": torch.empty(0, 4), "step": 7},
                       self.work / "saved")
        self.checkpoint = shardmesh.open(self.work / "saved")

    def test_random_boxes_are_slices(self):
        draw = random.Random(common.seed())
        for _ in range(100):
            rows, columns = sorted(draw.choices(range(8), k=2)), sorted(draw.choices(range(6), k=2))
            offsets, sizes = (rows[0], columns[0]), (rows[1] - rows[0], columns[1] - columns[0])
            expected = self.whole[rows[0]:rows[1], columns[0]:columns[1]]
            with self.subTest(SHARDMESH_SEED=common.seed(), offsets=offsets, sizes=sizes):
                self.assertTrue(torch.equal(self.checkpoint.load("w", (offsets, sizes)), expected))
                self.assertTrue(torch.equal(self.checkpoint["w"][rows[0]:rows[1], columns[0]:columns[1]], expected))

    def test_an_entry_is_indexed_with_slices_and_an_ellipsis(self):
        entry = self.checkpoint["w"]
        self.assertTrue(torch.equal(entry[...], self.whole))
        self.assertTrue(torch.equal(entry[2:], self.whole[2:]))
        self.assertTrue(torch.equal(entry[..., 1:3], self.whole[..., 1:3]))
        self.assertTrue(torch.equal(entry[-3:-1], self.whole[-3:-1]))
        with self.assertRaisesRegex(shardmesh.Error, "indexed with a box"):
            entry[3]
        with self.assertRaisesRegex(shardmesh.Error, "indexed with a box"):
            entry[::2]

    def test_checkpoints_are_equal_to_themselves_alone_and_entries_to_those_of_the_same_checkpoint(self):
        path = GOLDEN / "dtensor_2d_2x2" / "checkpoint"
        one, other = shardmesh.open(path), shardmesh.open(path)
        self.assertEqual((one == one, one == other, len({one, other})), (True, False, 2))
        for key in one:
            self.assertEqual((one[key] == one[key], one[key] == other[key]), (True, False))
            self.assertEqual(len({one[key], one[key], other[key]}), 2)
        self.assertIn(one.tensors[0], one.tensors)
        self.assertNotIn(one.tensors[0], other.tensors)

    def test_files_are_closed_with_the_last_reference_to_the_checkpoint_or_an_entry(self):
        path = GOLDEN / "dtensor_2d_2x2" / "checkpoint"

        def open_files():
            with os.scandir("/proc/self/fd") as descriptors:
                links = [os.readlink(one.path) for one in descriptors if os.path.exists(one.path)]
            return [link for link in links if link.startswith(str(path.resolve()))]

        gc.collect()  # of earlier tests
        gc.disable()  # as some training loops do
        try:
            checkpoint = shardmesh.open(path)
            entry = checkpoint.tensors[0]
            whole = entry.load()
            self.assertNotEqual(open_files(), [])
            del checkpoint
            self.assertTrue(torch.equal(entry.load(), whole))
            del entry
            self.assertEqual(open_files(), [])
            state = {key: torch.empty(one.shape, dtype=getattr(torch, one.dtype))
                     for key, one in shardmesh.open(path).items() if isinstance(one, shardmesh.TensorEntry)}
            shardmesh.dcp.load(state, checkpoint_id=path)
            self.assertEqual(open_files(), [])
        finally:
            gc.enable()

    def test_scalars_and_empty_tensors_are_tensors(self):
        self.assertTrue(torch.equal(self.checkpoint.load("scalar"), torch.tensor(3)))
        self.assertEqual(self.checkpoint.load("empty").shape, (0, 4))

    def test_a_box_that_leaves_the_tensor_is_an_error_with_key_and_box(self):
        with self.assertRaises(shardmesh.Error) as caught:
            self.checkpoint.load("w", ((5, 0), (3, 5)))
        problem = caught.exception
        self.assertEqual((problem.code, problem.key), ("shape_mismatch", "w"))
        self.assertEqual(problem.boxes, (shardmesh.Box((5, 0), (3, 5)),))
        self.assertIn("[5:8, 0:5)", str(problem))

    def test_a_missing_key_is_an_error_that_names_the_nearest(self):
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.load(self.work / "saved", "scalr")
        self.assertEqual((caught.exception.code, caught.exception.key), ("missing_key", "scalr"))
        self.assertIn("scalar", caught.exception.hint)

    def test_load_into_fills_any_strides_and_dtypes_and_tells_autograd(self):
        columns = torch.zeros(5, 7).t()
        wider = torch.zeros(2, 5, dtype=torch.float64)
        version = columns._version
        self.checkpoint.load_into([("w", None, columns), ("w", ((1, 0), (2, 5)), wider)])
        self.assertTrue(torch.equal(columns, self.whole))
        self.assertTrue(torch.equal(wider, self.whole[1:3].double()))
        self.assertGreater(columns._version, version)

    def test_load_into_refuses_another_shape_and_a_narrower_dtype_and_leaves_the_memory(self):
        other, narrow = torch.ones(5, 7), torch.ones(7, 5, dtype=torch.float16)
        with self.assertRaises(shardmesh.Error) as caught:
            self.checkpoint.load_into({"w": other})
        self.assertEqual(caught.exception.code, "shape_mismatch")
        with self.assertRaises(shardmesh.Error) as caught:
            self.checkpoint.load_into({"w": narrow})
        self.assertEqual(caught.exception.code, "narrowing")
        self.assertTrue(torch.equal(other, torch.ones(5, 7)) and torch.equal(narrow, torch.ones_like(narrow)))
        self.checkpoint.load_into({"w": narrow}, allow_narrowing=True)
        self.assertTrue(torch.equal(narrow, self.whole.half()))

    def test_tensors_without_plain_memory_are_refused_by_name(self):
        for tensor, kind in ((torch.empty(7, 5, device="meta"), "meta tensor"),
                             (torch.zeros(7, 5).to_sparse(), "torch.sparse_coo"),
                             (torch.quantize_per_tensor(torch.zeros(7, 5), 1.0, 0, torch.qint8), "quantized"),
                             (torch.nested.nested_tensor([torch.zeros(2)]), "nested tensor")):
            with self.subTest(kind):
                with self.assertRaisesRegex(shardmesh.Error, kind):
                    self.checkpoint.load_into([("w", None, tensor)])
                with self.assertRaisesRegex(shardmesh.Error, kind):
                    shardmesh.save({"w": tensor}, self.work / "refused")
        self.assertFalse((self.work / "refused").exists())

    def test_tensors_whose_storage_was_freed_or_shrunk_are_refused(self):
        """FSDP frees storages in this way; PyTorch's own copies of such tensors crash."""
        for made, needed in ((torch.zeros(7, 5), 140), (torch.zeros(7, 5, dtype=torch.float64), 280),
                             (torch.zeros(5, 7).t(), 140), (torch.zeros(9, 5)[2:], 180), (torch.zeros(7, 10)[:, ::2], 276)):
            for held in (0, 40, needed - 1):
                freed = made.clone(memory_format=torch.preserve_format) if made._base is None else made
                freed.untyped_storage().resize_(held)
                says = f"w: has no plain memory to .*needs {needed} bytes of a storage that has {held}"
                for call in (lambda: self.checkpoint.load_into([("w", None, freed)]),
                             lambda: self.checkpoint.start_load({"w": freed}),
                             lambda: shardmesh.save({"w": freed}, self.work / "refused")):
                    with self.assertRaisesRegex(shardmesh.Error, says):
                        call()
                freed.untyped_storage().resize_(needed)
                self.checkpoint.load_into([("w", None, freed)], allow_narrowing=True)
                self.assertTrue(torch.equal(freed, self.whole.to(freed.dtype)))
        self.assertFalse((self.work / "refused").exists())
        empty = torch.empty(0, 5)
        shardmesh.save({"w": empty}, self.work / "empty")


STATE = {
    "model": {"w": torch.arange(12.0).reshape(3, 4), "transposed": torch.arange(12.0).reshape(3, 4).t(),
              "half": torch.arange(5).to(torch.bfloat16), "flags": torch.tensor([True, False])},
    "imaginary": torch.tensor([1 + 2j, 3 - 1j]).conj(), "negative": torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "list": [torch.zeros(2), {"lr": 0.1}], "epoch": 3, "name": "run", "nothing": None,
}


class SaveTest(common.WorkTest):
    def flat(self):
        from torch.distributed.checkpoint._nested_dict import flatten_state_dict

        return flatten_state_dict(STATE)[0]

    def check(self, path):
        checkpoint = shardmesh.open(path)
        flat = self.flat()
        self.assertEqual(set(checkpoint), set(flat))
        for key, value in flat.items():
            loaded = checkpoint.load(key)
            if isinstance(value, torch.Tensor):
                self.assertEqual((loaded.dtype, raw(loaded)), (value.dtype, raw(value)), key)
            else:
                self.assertEqual(loaded, value, key)

    def test_a_state_dict_comes_back_from_every_format(self):
        for format, name in (("dcp", "folder"), ("safetensors", "file.safetensors"), ("hf", "hub"), ("pt", "file.pt")):
            with self.subTest(format):
                report = shardmesh.save(STATE, self.work / name, format)
                self.assertEqual(report.tensors + report.objects, len(self.flat()))
                self.check(self.work / name)

    def test_objects_of_json_are_read_as_plain_data_alone(self):
        import io
        import os
        import pickle

        from shardmesh import _plain_pickle

        def archive(value):
            with io.BytesIO() as stream:
                torch.save(value, stream, pickle_protocol=4)
                return stream.getvalue()

        plain = {"a": [1, 2.5, None, True, "x", b"y", (1, {2})], "dtype": torch.bfloat16, "size": torch.Size([2, 3])}
        self.assertEqual(_plain_pickle.load(archive(plain)), plain)
        long = {"seed": 2**64 - 1, "state": 2**127 + 3, "least": -2**63 - 1, "bytes": b"\xff\0", "changing": bytearray(b"z")}
        shardmesh.save(long, self.work / "long.safetensors", "safetensors")
        checkpoint = shardmesh.open(self.work / "long.safetensors")
        self.assertEqual({key: checkpoint.load(key) for key in long}, long)
        for more in (os.getcwd, eval, torch.load):
            with self.assertRaisesRegex(pickle.UnpicklingError, "more than plain data"):
                _plain_pickle.load(archive(more))

    def test_pytorch_loads_what_save_wrote(self):
        shardmesh.save(STATE, self.work / "saved")
        wanted = {key: torch.zeros_like(value.contiguous()) if isinstance(value, torch.Tensor) else None
                  for key, value in self.flat().items()}
        torch_checkpoint.load(wanted, checkpoint_id=self.work / "saved", no_dist=True)
        for key, value in self.flat().items():
            if isinstance(value, torch.Tensor):
                self.assertEqual(raw(wanted[key]), raw(value), key)
            else:
                self.assertEqual(wanted[key], value, key)

    def test_a_selection_chooses_renames_and_casts_what_is_saved(self):
        state = {"model": {"w": torch.arange(4.0), "b": torch.ones(2)}, "epoch": 3, "log": lambda: None}
        rules = shardmesh.Selection(skip="log", rename="model\\.w=weight", cast="float64")  # pickle cannot write the log
        report = shardmesh.save(state, self.work / "saved", selection=rules)
        self.assertEqual((report.tensors, report.objects, report.excluded, report.skipped_objects), (2, 1, 1, 0))
        saved = shardmesh.open(self.work / "saved")
        self.assertEqual(set(saved), {"weight", "model.b", "epoch"})
        self.assertTrue(torch.equal(saved.load("weight"), torch.arange(4.0, dtype=torch.float64)))
        self.assertEqual(saved.load("epoch"), 3)
        report = shardmesh.save(state, self.work / "m.safetensors", "safetensors", skip_objects=True)
        self.assertEqual((report.tensors, report.objects, report.excluded, report.skipped_objects), (2, 0, 0, 2))
        self.assertEqual(set(shardmesh.open(self.work / "m.safetensors")), {"model.w", "model.b"})
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.save(state, self.work / "no", selection=shardmesh.Selection(only="nothing"))
        self.assertEqual((caught.exception.code, caught.exception.message), ("invalid_argument", "only 'nothing' matches no key"))
        self.assertNotIn("no", self.left_in_work())

    def test_optimizer_state_follows_a_parameter_that_is_saved_under_another_name(self):
        ones = torch.ones(2)
        state = {"model": {"a.w": ones, "b.w": ones},
                 "optim": {"state": {"a.w": {"exp_avg": ones}, "b.w": {"exp_avg": ones}},
                           "param_groups": [{"params": ["a.w", "b.w"], "lr": 0.1}]}}
        rules = shardmesh.Selection(rename="model\\.a\\.(.*)=model.z.\\1", skip="model\\.b\\..*", optimizer_follows=True)
        shardmesh.save(state, self.work / "saved", selection=rules)
        saved = shardmesh.open(self.work / "saved")
        lists = "optim.param_groups.0."
        self.assertEqual(set(saved), {"model.z.w", "optim.state.z.w.exp_avg", lists + "params", lists + "lr"})
        self.assertEqual(saved.load(lists + "params"), ["z.w"])

    def test_what_is_there_stays_unless_it_may_be_replaced(self):
        shardmesh.save({"w": torch.ones(2)}, self.work / "saved")
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.save({"w": torch.zeros(2)}, self.work / "saved")
        self.assertEqual(caught.exception.code, "destination_exists")
        self.assertTrue(torch.equal(shardmesh.load(self.work / "saved", "w"), torch.ones(2)))
        shardmesh.save({"w": torch.zeros(2)}, self.work / "saved", overwrite=True)
        self.assertTrue(torch.equal(shardmesh.load(self.work / "saved", "w"), torch.zeros(2)))
        self.assertEqual(self.left_in_work(), ["saved"])

    def test_a_load_never_has_values_of_two_checkpoints_that_had_one_path(self):
        for value in (1, 2):
            shardmesh.save({"w": torch.full((4096,), value)}, self.work / f"whole_{value}")
        sharded = {"mesh": "4", "default": "S(0)"}
        shardmesh.reshard(self.work / "whole_1", self.work / "run", **sharded)
        opened = shardmesh.open(self.work / "run")
        first = shardmesh.Box([0], [1024])
        self.assertEqual(opened.load("w", first).unique().tolist(), [1])
        time.sleep(0.05)  # the folders get different times
        shardmesh.reshard(self.work / "whole_2", self.work / "run", overwrite=True, **sharded)
        with self.assertRaises(shardmesh.Error) as caught:
            opened.load("w")
        self.assertEqual(caught.exception.code, "io")
        self.assertIn("the checkpoint was replaced after it was opened", str(caught.exception))
        self.assertEqual(shardmesh.load(self.work / "run", "w").unique().tolist(), [2])

    def test_loading_and_saving_tell_how_far_they_are(self):
        state = {f"w{i}": torch.full((512, 512), float(i)) for i in range(4)}
        total = sum(tensor.nbytes for tensor in state.values())
        said = {"save": [], "load_into": [], "dcp.load": []}
        tell = {name: (lambda done, of, into=into: into.append((done, of))) for name, into in said.items()}
        shardmesh.save(state, self.work / "saved", progress=tell["save"])
        loaded = {key: torch.zeros(512, 512) for key in state}
        shardmesh.open(self.work / "saved").load_into(loaded, progress=tell["load_into"])
        again = {key: torch.zeros(512, 512) for key in state}
        reader = shardmesh.dcp.StorageReader(self.work / "saved", progress=tell["dcp.load"])
        torch_checkpoint.load(again, storage_reader=reader, no_dist=True)
        for name, steps in said.items():
            self.assertEqual((name, steps[-1], steps), (name, (total, total), sorted(steps)))
        for key, tensor in state.items():
            self.assertTrue(torch.equal(loaded[key], tensor) and torch.equal(again[key], tensor))

    def test_no_exception_of_progress_comes_after_the_destination_was_replaced(self):
        state = {f"w{i}": torch.randn(64) for i in range(50)}
        for format in ("dcp", "safetensors", "hf", "pt", "torch-checkpointing"):
            for at in range(1, 6):
                told = []

                def stop(done, total):
                    told.append(done)
                    if len(told) == at:
                        raise ValueError("enough")

                to = self.work / f"{format}.{at}"
                try:
                    shardmesh.save(state, to, format, progress=stop)
                    self.assertTrue(to.exists())
                except ValueError:
                    self.assertEqual(self.left_in_work(), [], (format, at))
                for left in self.left_in_work():
                    shutil.rmtree(self.work / left) if (self.work / left).is_dir() else (self.work / left).unlink()

    def test_destinations_whose_elements_share_memory_are_refused(self):
        shardmesh.save({"w": torch.arange(24.0).reshape(4, 6)}, self.work / "saved")
        for shared in (torch.zeros(1, 6).expand(4, 6), torch.zeros(30).as_strided((4, 6), (2, 1)),
                       torch.zeros(4, 1).expand(4, 6), torch.zeros(9).unfold(0, 6, 1),
                       torch.zeros(60).as_strided((4, 6), (9, 6))):
            with self.assertRaisesRegex(shardmesh.Error, "w: cannot be filled: several of its elements share memory"):
                shardmesh.open(self.work / "saved").load_into({"w": shared})
        for strides in ((1, 5), (7, 4)):  # (7, 4): neither dimension lies within the other
            fine = torch.zeros(60).as_strided((4, 6), strides)
            shardmesh.open(self.work / "saved").load_into({"w": fine})
            self.assertTrue(torch.equal(fine, torch.arange(24.0).reshape(4, 6)))

    def test_modules_are_saved_by_their_state_dict(self):
        module = torch.nn.Linear(3, 2)
        for format in ("dcp", "safetensors"):
            shardmesh.save({"m": module, "step": 3}, self.work / format, format)
            found = shardmesh.open(self.work / format)
            self.assertEqual(sorted(found), ["m.bias", "m.weight", "step"])
            self.assertTrue(torch.equal(found.load("m.weight"), module.weight))

    def test_integer_keys_come_back_as_integers(self):
        state = {"o": {"state": {0: {"exp_avg": torch.ones(2)}, 13: {"step": 4, "-1": [5, {-1: torch.zeros(1)}]}},
                       "param_groups": [{"lr": 0.1, "params": [0, 13]}]}, "0": {"1": torch.ones(1)}}
        shardmesh.save(state, self.work / "direct.pt", "pt")
        shardmesh.save(state, self.work / "s.safetensors", "safetensors")
        shardmesh.convert(self.work / "s.safetensors", self.work / "converted.pt")
        for name in ("direct.pt", "converted.pt"):
            found = torch.load(self.work / name)
            self.assertEqual(repr(found["o"]["param_groups"]), repr(state["o"]["param_groups"]))
            self.assertEqual([set(found), set(found["o"]["state"]), set(found["o"]["state"][13]), set(found["0"])],
                             [{"o", "0"}, {0, 13}, {"step", "-1"}, {"1"}])
            self.assertTrue(torch.equal(found["o"]["state"][13]["-1"][1][-1], torch.zeros(1)))
            self.assertTrue(torch.equal(found["o"]["state"][0]["exp_avg"], torch.ones(2)))

    def test_dcp_load_replaces_objects_under_keys_that_are_not_text(self):
        def state(step, value):
            return {"optimizer": {"state": {0: {"step": step, "moment": torch.full((2,), value)}, 1: {"step": step + 1}},
                                  "groups": [{"lr": value, 7: torch.full((1,), value)}]},
                    "flags": {True: step, None: step + 2, "text": step + 3}}

        shardmesh.dcp.save(state(5, 0.5), checkpoint_id=self.work / "saved")
        loaded = state(0, 0.0)
        shardmesh.dcp.load(loaded, checkpoint_id=self.work / "saved")
        self.assertEqual(str(loaded), str(state(5, 0.5)))
        with shardmesh.Run(self.work / "run") as run:
            run.save(1, state(5, 0.5))
            loaded = state(0, 0.0)
            run.resume(loaded)
        self.assertEqual(str(loaded), str(state(5, 0.5)))

    def test_what_would_come_back_as_something_else_is_refused_or_told(self):
        optimizer = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        with self.assertRaisesRegex(shardmesh.Error, r"o.state.0: a dict's key that is not text .*found int"):
            shardmesh.save({"o": optimizer}, self.work / "refused", "torch-checkpointing")
        for key, kind in ((True, "bool"), (0.5, "float"), ((1, 2), "tuple")):
            with self.assertRaisesRegex(shardmesh.Error, rf"expected str or int, found {kind}"):
                shardmesh.save({"o": {key: torch.ones(2)}}, self.work / "refused", "pt")
        shardmesh.save({"o": optimizer}, self.work / "dcp")
        for value in ((1, torch.empty(2, device="meta")), {"x": [(torch.empty(2, device="meta"),)]}):
            with self.assertRaisesRegex(shardmesh.Error, "^a[^:]*: has no plain memory to read: it is a meta tensor"):
                shardmesh.save({"a": value}, self.work / "refused")
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.save({"a": {"b": torch.ones(1)}, "a.b": 3}, self.work / "refused")
        self.assertEqual(caught.exception.code, "duplicate_key")
        report = shardmesh.save({"v": Colour.RED, "w": torch.ones(2)}, self.work / "x.safetensors", "safetensors")
        self.assertEqual(len(report.notes), 1)
        self.assertIn("objects.json holds only a part of v", report.notes[0])
        self.assertFalse((self.work / "refused").exists())

    def test_a_save_that_progress_ends_at_its_last_byte_leaves_what_was_there(self):
        shardmesh.save({"w": torch.ones(2)}, self.work / "saved")
        with self.assertRaises(ZeroDivisionError):
            shardmesh.save({"w": torch.zeros(2)}, self.work / "saved", overwrite=True,
                           progress=lambda done, total: 1 / (total - done))
        self.assertTrue(torch.equal(shardmesh.load(self.work / "saved", "w"), torch.ones(2)))
        self.assertEqual(self.left_in_work(), ["saved"])

    def test_what_was_saved_is_found_changed_by_one_bit(self):
        shardmesh.save(STATE, self.work / "saved")
        self.assertTrue(shardmesh.verify(self.work / "saved").ok)
        file = self.work / "saved" / "__0_0.distcp"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        report = shardmesh.verify(self.work / "saved")
        self.assertFalse(report.ok)
        self.assertIn("checksum_mismatch", [problem.code for problem in report.problems])


if __name__ == "__main__":
    common.main()
