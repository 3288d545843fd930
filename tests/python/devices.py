# SPDX-License-Identifier: Apache-2.0
"""shardmesh.devices: the GPUs and libraries of the double, and of a machine without any. Needs no torch."""
import os
import unittest
from unittest import mock

import common
import shardmesh

DOUBLE = os.environ["SHARDMESH_TEST_GPU_DOUBLE"]


def devices(cudart, nccl):
    chosen = {"SHARDMESH_CUDART": cudart, "SHARDMESH_NCCL": nccl, "SHARDMESH_CUDA_KERNELS": "none"}
    with mock.patch.dict(os.environ, chosen):
        return shardmesh.devices()


class DevicesTest(unittest.TestCase):
    def test_the_gpus_and_libraries_of_the_double(self):
        report = devices(DOUBLE, DOUBLE)
        self.assertEqual(report.problem, "")
        self.assertEqual([gpu.device for gpu in report.gpus], [f"cuda:{i}" for i in range(8)])
        self.assertEqual((report.gpus[3].name, report.gpus[3].compute_capability), ("device 3 of the double", "9.0"))
        self.assertGreater(report.gpus[3].memory_bytes, 0)
        self.assertEqual(list(report.libraries), ["driver", "cuda_runtime", "nccl", "cuda_kernels", "nvrtc", "kokkos"])
        runtime = report.libraries["cuda_runtime"]
        self.assertEqual((runtime.usable, runtime.version, runtime.file), (True, "13.0", DOUBLE))
        self.assertEqual((report.kernels, report.gpus[3].problem), ("none", ""))
        self.assertTrue(report.kernel_cache.endswith("/shardmesh/kernels") or report.kernel_cache_problem)
        self.assertTrue(str(report).startswith("cuda:0: device 0 of the double, compute capability 9.0, "))

    def test_without_libraries_there_is_a_remedy_for_each_and_no_error(self):
        report = devices("/nowhere/cudart", "/nowhere/nccl")
        self.assertEqual((report.gpus, report.problem), ([], "the CUDA runtime is missing"))
        for name in ("cuda_runtime", "nccl"):
            with self.subTest(name):
                self.assertFalse(report.libraries[name].usable)
                self.assertIn("/nowhere/", report.libraries[name].problem)
                self.assertIn("install", report.libraries[name].remedy)
                self.assertIn(report.libraries[name].remedy, str(report))


if __name__ == "__main__":
    common.main()
