# SPDX-License-Identifier: Apache-2.0
"""Replaces PyTorch's reader and writer by shardmesh's in every process that has this folder on its path. This
happens when torch.distributed.checkpoint is imported, and not before."""
import importlib.abc
import importlib.util
import sys


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.distributed.checkpoint":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            import shardmesh_in_place

            shardmesh_in_place.install(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
