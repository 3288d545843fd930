# SPDX-License-Identifier: Apache-2.0
"""Arguments of wrong types or out of range raise an Error that names them, before anything is read or written."""
import os
import shutil
import unittest

import common

common.need_torch()
import numpy  # noqa: E402
import shardmesh.dcp  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402

FOLDER = common.GOLDEN / "single_rank" / "checkpoint"
NO_NUMBERS = ("2", 2.0, None, -1, 1 << 70, [2])
NO_TEXTS = (3, None, b"x", 2.5)


class ArgumentTest(common.WorkTest):
    def refused(self, name, call):
        with self.assertRaises(shardmesh.Error) as caught:
            call()
        error = caught.exception
        self.assertEqual((error.code, error.message), ("invalid_argument", f"the argument {name} is invalid"), str(error))
        self.assertTrue(error.expected and error.found, str(error))
        self.assertEqual(self.left_in_work(), [])

    def test_numbers(self):
        to = self.work / "out"
        tensor = {"w": torch.zeros(2)}
        opened = shardmesh.open(FOLDER)
        for value in NO_NUMBERS:
            self.refused("threads", lambda: opened.load_into({}, threads=value))
            self.refused("threads", lambda: opened.start_load({}, threads=value))
            self.refused("threads", lambda: opened.load("w", threads=value))
            self.refused("threads", lambda: shardmesh.verify(FOLDER, threads=value))
            self.refused("threads", lambda: shardmesh.diff(FOLDER, FOLDER, threads=value))
            for name in ("threads", "memory_bytes"):
                self.refused(name, lambda: shardmesh.save(tensor, to, **{name: value}))
                self.refused(name, lambda: shardmesh.convert(FOLDER, to, "dcp", **{name: value}))
                self.refused(name, lambda: shardmesh.reshard(FOLDER, to, "2", **{name: value}))
                self.refused(name, lambda: shardmesh.dcp.StorageWriter(to, **{name: value}))
            for call in (lambda **how: shardmesh.save(tensor, to, **how), lambda **how: shardmesh.convert(FOLDER, to, "hf", **how)):
                self.refused("max_shard_bytes", lambda: call(max_shard_bytes=value))
            for name in ("limit_factor", "block_size"):
                self.refused(name, lambda: shardmesh.open(FOLDER, **{name: value}))
        for value in (0, -7):
            self.refused("max_shard_bytes", lambda: shardmesh.save(tensor, to, max_shard_bytes=value))
            self.refused("limit_factor", lambda: shardmesh.open(FOLDER, limit_factor=value))
        self.refused("threads", lambda: shardmesh.verify(FOLDER, threads=1 << 31))
        for value in ("1", None, -1e-9, float("nan")):
            self.refused("tolerance", lambda: shardmesh.diff(FOLDER, FOLDER, tolerance=value))

    def test_texts(self):
        to = self.work / "out"
        opened = shardmesh.open(FOLDER)
        for value in NO_TEXTS:
            self.refused("key", lambda: opened.load(value))
            self.refused("key", lambda: opened.map_tensor(value))
            self.refused("key", lambda: shardmesh.load(FOLDER, value))
            self.refused("key", lambda: opened.load_into({value: torch.zeros(2)}))
            self.refused("only_keys", lambda: shardmesh.open(FOLDER, only_keys=[value]))
            self.refused("only_keys", lambda: shardmesh.open(FOLDER, only_keys=value))
            self.refused("format", lambda: shardmesh.save({}, to, format=value))
            self.refused("payload", lambda: shardmesh.convert(FOLDER, to, "torch-checkpointing", payload=value))
            self.refused("item", lambda: shardmesh.convert(FOLDER, to, "torch-checkpointing", item=value))
            self.refused("quantize", lambda: shardmesh.convert(FOLDER, to, "gguf", quantize=value))
            for name in ("only", "skip", "rename", "cast"):
                self.refused(name, lambda: shardmesh.convert(FOLDER, to, "dcp", selection=shardmesh.Selection(**{name: value})))
            self.refused("strip_prefix", lambda: shardmesh.convert(FOLDER, to, "dcp", selection=shardmesh.Selection(strip_prefix=value)))
            self.refused("place", lambda: shardmesh.reshard(FOLDER, to, "2", place=value))
            for call in (lambda **how: shardmesh.save({}, to, **how), lambda **how: shardmesh.diff(FOLDER, FOLDER, **how),
                         lambda **how: shardmesh.convert(FOLDER, to, "dcp", **how), lambda **how: shardmesh.reshard(FOLDER, to, "2", **how)):
                self.refused("selection", lambda: call(selection=value))
        for value in (2.0, b"2", [2]):
            self.refused("mesh", lambda: shardmesh.reshard(FOLDER, to, value))
            self.refused("default", lambda: shardmesh.reshard(FOLDER, to, "2", default=value))

    def test_options_that_the_format_does_not_use(self):
        state = {"w": torch.zeros(2)}
        save = lambda to, format, **how: shardmesh.save(state, to, format, **how)  # noqa: E731
        convert = lambda to, format, **how: shardmesh.convert(FOLDER, to, format, **how)  # noqa: E731
        for call in (save, convert):
            for format, option, expected in (("dcp", {"max_shard_bytes": 7}, "max_shard_bytes applies only to hf"),
                                             ("pt", {"item": "a"}, "item and payload apply only to torch-checkpointing"),
                                             ("npz", {"payload": "safetensors"},
                                              "item and payload apply only to torch-checkpointing")):
                with self.subTest(expected):
                    with self.assertRaises(shardmesh.Error) as caught:
                        call(self.work / "out", format, **option)
                    error = caught.exception
                    self.assertEqual((error.code, error.message, error.path, error.found, error.hint),
                                     ("invalid_argument", expected, str(self.work / "out"), format, "leave it out"))
                    self.assertEqual(self.left_in_work(), [])

    def test_arguments_of_pytorchs_functions(self):
        to, state = self.work / "out", {"w": torch.zeros(2)}
        for value in (5, object(), torch_checkpoint.DefaultLoadPlanner):
            for save in (shardmesh.dcp.save, shardmesh.dcp.async_save):
                self.refused("planner", lambda: save(state, checkpoint_id=to, planner=value))
            self.refused("planner", lambda: shardmesh.dcp.load(state, checkpoint_id=FOLDER, planner=value))
            self.refused("async_stager", lambda: shardmesh.dcp.async_save(state, checkpoint_id=to, async_stager=value))
        self.refused("async_checkpointer_type",
                     lambda: shardmesh.dcp.async_save(state, checkpoint_id=to, async_checkpointer_type="thread"))
        shardmesh.save({"o": {1, 2}}, self.work / "objects")
        opened = shardmesh.open(self.work / "objects")
        shutil.rmtree(self.work / "objects")
        for call in (lambda: opened.load("o", weights_only=torch.ones(2)), lambda: opened["o"].load(torch.ones(2)),
                     lambda: opened.load_object("o", torch.ones(2))):
            self.refused("weights_only", call)

    def test_empty_paths(self):
        to, state = self.work / "out", {"w": torch.zeros(2)}
        for call in (lambda: shardmesh.open(""), lambda: shardmesh.verify(b""), lambda: shardmesh.save(state, ""),
                     lambda: shardmesh.save(state, to, previous=""), lambda: shardmesh.convert(FOLDER, "", "dcp"),
                     lambda: shardmesh.save_delta(FOLDER, FOLDER, ""), lambda: shardmesh.open_delta(FOLDER, ""),
                     lambda: shardmesh.dcp.StorageWriter(""), lambda: shardmesh.dcp.StorageWriter(to, previous=""),
                     lambda: shardmesh.Run("", read_only=True)):
            self.refused("path", call)
        before = os.getcwd()
        os.chdir(self.work)
        self.addCleanup(os.chdir, before)
        self.refused("path", lambda: shardmesh.Run(""))  # takes no lock in the current folder

    def test_boxes(self):
        opened = shardmesh.open(FOLDER)
        key = next(entry.key for entry in opened.tensors if len(entry.shape) == 2)
        for value in (3, "ab", ((0.0, 0), (1, 1)), ((0, 0),), ((0, 0), (1, 1), (2, 2)), (0, 1), ((0, None), (1, 1)), ((0, 1 << 70), (1, 1))):
            self.refused("box", lambda: opened.load(key, value))
            self.refused("box", lambda: opened[key].map(value))
            self.refused("box", lambda: opened.load_into([(key, value, torch.zeros(1, 1))]))
        with self.assertRaisesRegex(shardmesh.Error, "indexed with a box: expected slices of step 1, found 0; index the loaded"):
            opened[key][0]
        for value in ((), ((), ()), ((0,), (1,)), ((0, 0), (1,))):
            with self.assertRaises(shardmesh.Error):
                opened.load(key, value)

    def test_destinations_are_tensors(self):
        opened = shardmesh.open(FOLDER)
        entry = opened.tensors[0]
        for value, found in ((numpy.zeros(entry.shape), "numpy.ndarray; torch.from_numpy"), ([1.0], r"builtins.list \["), (None, r"builtins.NoneType \[")):
            for call in (opened.load_into, opened.start_load):
                with self.assertRaisesRegex(shardmesh.Error, f"{entry.key}: .*not a tensor of PyTorch: expected torch.Tensor, found {found}"):
                    call({entry.key: value})

    def test_what_is_almost_right_is_taken(self):
        to = self.work / "out"
        shardmesh.reshard(FOLDER, to, 3, threads=numpy.int64(2))
        self.assertTrue(shardmesh.diff(bytes(FOLDER), str(to).encode(), tolerance=0).equal)
        entry = shardmesh.open(to).tensors[0]
        box = (numpy.zeros(len(entry.shape), dtype=int), list(entry.shape))
        self.assertTrue(torch.equal(entry.load(box), entry.load()))

    def test_memory_of_other_sizes(self):
        shardmesh.save({"w": torch.arange(6.0).reshape(3, 2)}, self.work / "saved")
        opened = shardmesh.open(self.work / "saved")
        for background in (False, True):
            def load(wanted, **how):
                return opened.start_load(wanted, **how).wait() if background else opened.load_into(wanted, **how)

            tall, low, beyond = torch.full((4, 2), -1.0), torch.full((1, 2), -1.0), torch.full((2, 2), -1.0)
            wanted = [("w", None, tall), ("w", None, low), ("w", ((2, 1), (2, 2)), beyond)]
            for one in wanted:
                with self.assertRaises(shardmesh.Error) as caught:
                    load([one])
                self.assertEqual(caught.exception.code, "shape_mismatch")
            load(wanted, allow_shape_mismatch=True)
            self.assertEqual(tall.tolist(), [[0, 1], [2, 3], [4, 5], [0, 0]])
            self.assertEqual((low.tolist(), beyond.tolist()), ([[0, 1]], [[5, 0], [0, 0]]))
            with self.assertRaisesRegex(shardmesh.Error, "^[^ ]*: w: .*shape"):
                load({"w": torch.zeros(6)}, allow_shape_mismatch=True)


if __name__ == "__main__":
    common.main()
