// SPDX-License-Identifier: Apache-2.0
// The functions that add each file of this folder to shardmesh._native.
#pragma once
#include <pybind11/pybind11.h>

namespace bindings {

void add_checkpoint(pybind11::module_& native);   // one opened checkpoint: its contents, loading
void add_mapping(pybind11::module_& native);      // its tensors in place in the files
void add_conventions(pybind11::module_& native);  // mappings between naming conventions
void add_saving(pybind11::module_& native);       // save, from one process
void add_commands(pybind11::module_& native);     // verify, diff, convert, reshard
void add_deltas(pybind11::module_& native);       // the differences between two checkpoints
void discard_rank_folders();                      // deletes those that the ending program has not committed
void add_rank_folder(pybind11::module_& native);  // a DCP folder that several processes write
void add_layouts(pybind11::module_& native);      // the boxes of a tensor that each rank holds
void add_ranks(pybind11::module_& native);        // processes as ranks, and moving tensors between them
void add_runs(pybind11::module_& native);         // the folder of a training run
void add_devices(pybind11::module_& native);      // the GPUs of this machine and the libraries for them

}  // namespace bindings
