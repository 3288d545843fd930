// SPDX-License-Identifier: Apache-2.0
// Reads the weights of a TorchScript archive (torch.jit.save). Its code is never run; only the two lists of names in
// each class's text are read. Archives are opened in `item`. Not exported.
module shardmesh.torch_file:script_archive;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :flatten;
import :item;
import :object_parts;

namespace shardmesh::torch_file {

// Returns the entries of the loaded module's `state_dict()`: its parameters and buffers, then those of its submodules,
// in the archive's order. Notes name the contents that are not weights. A module in several places has entries in each.
// \errors errc::bad_format: no module, classes without text, or more entries than the archive has values; those of
//   reading records
// Cost: reads each class's text once.
// Source: torch/csrc/jit/serialization/python_print.cpp, torch.jit.RecursiveScriptModule
result<taken_apart> script_weights(const byte_source& source, const torch_file::item& item, read_budget& budget);

}  // namespace shardmesh::torch_file
