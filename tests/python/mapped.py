# SPDX-License-Identifier: Apache-2.0
"""map_tensor yields the same values as load, and is read-only. A mapping lives exactly as long as the objects made
from it."""
import gc
import os
import random

import common

common.need_torch()
import numpy  # noqa: E402
import torch  # noqa: E402

import shardmesh  # noqa: E402
from common import GOLDEN, raw  # noqa: E402

REFUSED = {"unsupported", "unaligned"}


def is_mapped(path):
    with open("/proc/self/maps") as maps:
        return any(str(path) in line for line in maps)


class MappedTest(common.WorkTest):
    def compare(self, checkpoint, key, box, counts):
        """Compares one mapped box with the loaded one; counts comparisons and refusals."""
        try:
            mapped = checkpoint.map_tensor(key, box, allow_unaligned=True)
        except shardmesh.Error as refused:
            self.assertEqual((refused.code, refused.key), ("unsupported", key))
            counts["refused"] += 1
            return
        loaded = checkpoint.load(key, box, threads=1)
        self.assertEqual((mapped.dtype, mapped.shape), (str(loaded.dtype)[6:], tuple(loaded.shape)))
        try:
            array = mapped.numpy()
            self.assertFalse(array.flags.writeable)
            self.assertEqual(array.tobytes(), raw(loaded))
            counts["numpy"] += 1
        except shardmesh.Error as refused:
            self.assertEqual(refused.code, "unsupported")
            self.assertIn(mapped.dtype, str(refused))
        try:
            self.assertEqual(raw(mapped.torch()), raw(loaded))
            counts["torch"] += 1
        except shardmesh.Error as refused:
            self.assertEqual(refused.code, "unaligned")

    def test_random_boxes_of_every_chunk_of_the_golden_checkpoints_are_what_load_reads(self):
        dice, counts = random.Random(common.seed()), {"refused": 0, "numpy": 0, "torch": 0}
        for path in sorted(GOLDEN.glob("*/checkpoint")):
            if path.parent.name == "options_xor":
                continue
            checkpoint = shardmesh.open(path)
            for entry in checkpoint.tensors:
                if entry.foreign_type or not isinstance(getattr(torch, entry.dtype, None), torch.dtype):
                    continue
                for chunk in entry.chunks[:2]:
                    begin = [dice.randint(0, size) for size in chunk.box.sizes]
                    sizes = [dice.randint(0, size - at) for size, at in zip(chunk.box.sizes, begin)]
                    box = ([at + more for at, more in zip(chunk.box.offsets, begin)], sizes)
                    with self.subTest(f"{path.parent.name}: {entry.key} {box}, seed {common.seed()}"):
                        self.compare(checkpoint, entry.key, box, counts)
        self.assertGreater(counts["numpy"], 200)
        self.assertGreater(counts["torch"], 10)
        self.assertGreater(counts["refused"], 0)  # options_zstd

    def saved(self, format="safetensors"):
        path = self.work / ("state." + format)
        state = {"w": torch.arange(12.0).reshape(4, 3), "h": torch.arange(6).to(torch.bfloat16),
                 "c": torch.tensor([1 + 2j, 3 - 1j]), "none": torch.empty(0, 3)}
        shardmesh.save(state, path, format)
        return path, state

    def test_whole_tensors_of_files_that_align_are_arrays_and_tensors(self):
        for format in ("safetensors", "pt"):
            path, state = self.saved(format)
            checkpoint = shardmesh.open(path)
            for key, tensor in state.items():
                self.assertTrue(torch.equal(checkpoint.map_tensor(key).torch(), tensor), key)
            numpy.testing.assert_array_equal(checkpoint["w"].map(), state["w"].numpy())
            numpy.testing.assert_array_equal(numpy.asarray(checkpoint["c"].map(), dtype="complex128"),
                                             state["c"].numpy())
            rows = shardmesh.map_tensor(path, "w", ((1, 1), (2, 2)))
            self.assertEqual((rows.shape, rows.strides, rows.nbytes), ((2, 2), (3, 1), 20))
            numpy.testing.assert_array_equal(rows, [[4, 5], [7, 8]])

    def test_a_mapping_outlives_the_checkpoint_and_the_file_and_goes_with_the_last_that_uses_it(self):
        path, state = self.saved()
        for make in (lambda mapped: mapped.numpy(), lambda mapped: mapped.torch(), lambda mapped: mapped,
                     lambda mapped: mapped.numpy()[1:, 1], lambda mapped: mapped.torch().T[0],
                     lambda mapped: memoryview(mapped._memory)):
            checkpoint = shardmesh.open(path)
            made = make(checkpoint.map_tensor("w"))
            del checkpoint
            gc.collect()
            self.assertTrue(is_mapped(path))
            del made
            gc.collect()
            self.assertFalse(is_mapped(path))
        array = shardmesh.open(path).map_tensor("w").numpy()
        path.unlink()
        gc.collect()
        numpy.testing.assert_array_equal(array, state["w"].numpy())

    def test_nothing_can_be_written(self):
        path, _ = self.saved()
        mapped = shardmesh.open(path).map_tensor("w")
        with self.assertRaises(ValueError):
            mapped.numpy()[0] = 1
        with self.assertRaises(ValueError):
            mapped.numpy().flags.writeable = True
        self.assertTrue(memoryview(mapped._memory).readonly)

    def test_a_file_that_became_shorter_is_an_error_that_names_it(self):
        path, _ = self.saved()
        mapped = shardmesh.open(path).map_tensor("w")
        mapped.check()
        os.truncate(path, 8)
        with self.assertRaises(shardmesh.Error) as caught:
            mapped.check()
        self.assertEqual((caught.exception.code, caught.exception.path), ("io", str(path)))

    def test_what_cannot_be_mapped_says_why(self):
        path, _ = self.saved()
        checkpoint = shardmesh.open(path)
        for key, box, code, word in (("ww", None, "missing_key", "did you mean w"),
                                     ("w", ((0, 0), (5, 3)), "shape_mismatch", "[0:5, 0:3)"),
                                     ("w", ((0,), (5, 3)), "shape_mismatch", "")):
            with self.assertRaises(shardmesh.Error) as caught:
                checkpoint.map_tensor(key, box)
            self.assertEqual(caught.exception.code, code)
            self.assertIn(word, str(caught.exception))
        cut = shardmesh.open(GOLDEN / "fsdp2_4" / "checkpoint")
        entry = next(entry for entry in cut.tensors if len(entry.chunks) > 1)
        with self.assertRaises(shardmesh.Error) as caught:
            cut.map_tensor(entry.key)
        self.assertEqual((caught.exception.code, caught.exception.key), ("unsupported", entry.key))

    def test_elements_that_no_pointer_may_read_are_arrays_where_the_caller_allows_them(self):
        path = self.work / "odd.safetensors"
        header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
        header = header.ljust(-(-len(header) // 8) * 8)
        values = torch.tensor([1.5, -2.25])
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x07" + raw(values))
        checkpoint = shardmesh.open(path)
        with self.assertRaises(shardmesh.Error) as caught:
            checkpoint.map_tensor("w")
        error = caught.exception
        self.assertEqual((error.code, error.key, error.expected, error.found, error.hint),
                         ("unaligned", "w", "an address at a multiple of 4 bytes", "an address 1 byte after a multiple",
                          "load it, or pass allow_unaligned"))
        mapped = checkpoint.map_tensor("w", allow_unaligned=True)
        numpy.testing.assert_array_equal(mapped.numpy(), values.numpy())
        self.assertFalse(mapped.numpy().flags.aligned)
        with self.assertRaises(shardmesh.Error) as caught:
            mapped.torch()
        self.assertEqual((caught.exception.code, caught.exception.found), ("unaligned", "an address 1 byte after a multiple"))


if __name__ == "__main__":
    common.main()
