// SPDX-License-Identifier: Apache-2.0
// Not exported: the weights of a TorchScript archive (torch.jit.save). Its code is never run; of the classes' text two
// lists of names are read. Not here: the archive itself (item).
module shardmesh.torch_file:script_archive;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :flatten;
import :item;
import :object_parts;

namespace shardmesh::torch_file {

// What `state_dict()` of the loaded module gives: parameters and buffers, then those of its modules, in the order of
// the archive; notes say what of it is no weight. A module that lies in several places has entries in each.
// \errors errc::bad_format: no module, classes without text, more entries than the archive has values; those of reading
//         records. Cost: reads the classes' texts, once each.
// Source: torch/csrc/jit/serialization/python_print.cpp, torch.jit.RecursiveScriptModule
result<taken_apart> script_weights(const byte_source& source, const torch_file::item& item, read_budget& budget);

}  // namespace shardmesh::torch_file
