# SPDX-License-Identifier: Apache-2.0
"""save_delta and open_delta: the new checkpoint over its base, boxes of it, and the errors."""
import common

common.need_torch()
import torch  # noqa: E402

import shardmesh  # noqa: E402


def states():
    generator = torch.Generator().manual_seed(1)
    base = {"w": torch.randn(64, 32, generator=generator).to(torch.bfloat16), "same": torch.arange(40), "gone": torch.ones(3)}
    new = {"w": base["w"].clone(), "same": base["same"], "new": torch.tensor(7.0), "epoch": 3}
    new["w"][5, 7] += 1
    return base, new


class DeltaTest(common.WorkTest):
    def setUp(self):
        super().setUp()
        self.base, self.new = states()
        shardmesh.save(self.base, self.work / "base")
        shardmesh.save(self.base, self.work / "base.safetensors", "safetensors")
        shardmesh.save(self.new, self.work / "new")

    def make(self, **options):
        return shardmesh.save_delta(self.work / "base", self.work / "new", self.work / "d", **options)

    def test_a_delta_over_any_copy_of_its_base_has_the_new_values(self):
        said = []
        report = self.make(level=-7, block_bytes=256, progress=lambda done, total: said.append((done, total)))
        size = 64 * 32 * 2 + 40 * 8 + 4
        self.assertEqual(report, shardmesh.DeltaReport(3, size, 1, 1, 1, 1, 1, (self.work / "d").stat().st_size))
        self.assertEqual(said[-1], (size, size))
        for base in ("base", "base.safetensors"):
            made = shardmesh.open_delta(self.work / base, self.work / "d")
            self.assertEqual(made.format, "delta")
            self.assertEqual(set(made), set(self.new))
            for key, value in self.new.items():
                loaded = made.load(key)
                same = torch.equal(loaded, value) if isinstance(value, torch.Tensor) else loaded == value
                self.assertTrue(same, key)
            self.assertTrue(torch.equal(made["w"][4:6, 3:9], self.new["w"][4:6, 3:9]))

    def test_another_base_is_named_by_key(self):
        self.make()
        other = {**self.base, "w": self.base["w"] + 1}
        shardmesh.save(other, self.work / "other")
        made = shardmesh.open_delta(self.work / "other", self.work / "d")
        self.assertTrue(torch.equal(made.load("same"), self.new["same"]))
        with self.assertRaises(shardmesh.Error) as raised:
            made.load("w")
        self.assertEqual((raised.exception.code, raised.exception.key), ("checksum_mismatch", "w"))

    def test_a_sparse_tensor_of_a_pt_file_needs_a_conversion(self):
        new = {"w": self.new["w"], "sparse": torch.eye(3).to_sparse()}
        torch.save(new, self.work / "new.pt")
        with self.assertRaises(shardmesh.Error) as raised:
            shardmesh.save_delta(self.work / "base", self.work / "new.pt", self.work / "d")
        self.assertEqual((raised.exception.code, raised.exception.key), ("unsupported", "sparse"))
        self.assertEqual(raised.exception.hint,
                         "convert the checkpoint to DCP first, or pass skip_unsupported to leave it out")
        shardmesh.convert(self.work / "new.pt", self.work / "converted", "dcp")
        shardmesh.save_delta(self.work / "base", self.work / "converted", self.work / "d")
        made = shardmesh.open_delta(self.work / "base.safetensors", self.work / "d")
        self.assertTrue(torch.equal(made.load("sparse", weights_only=False).to_dense(), torch.eye(3)))
        self.assertTrue(torch.equal(made.load("w"), new["w"]))

    def test_wrong_arguments_and_an_existing_file_are_refused(self):
        for options in ({"level": 20}, {"level": -8}, {"level": "3"}, {"block_bytes": 63}, {"threads": -1}):
            with self.assertRaises(shardmesh.Error) as raised:
                self.make(**options)
            self.assertEqual(raised.exception.code, "invalid_argument", options)
        self.make()
        with self.assertRaises(shardmesh.Error) as raised:
            self.make()
        self.assertEqual(raised.exception.code, "destination_exists")
        self.assertEqual(self.make(overwrite=True).changed, 1)
        with self.assertRaises(shardmesh.Error) as raised:
            shardmesh.open_delta(self.work / "base", self.work / "base.safetensors")
        self.assertEqual(raised.exception.code, "bad_format")


if __name__ == "__main__":
    common.main()
