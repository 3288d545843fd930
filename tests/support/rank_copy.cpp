// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint with several ranks (threads) into another layout, and saves it with all of them.
// Scripts of tests/oracle run it. Prints the keys that it leaves out, one per line: opaque tensors, and with
// safetensors all that the format cannot hold. Exits with 3 on failure.
//   rank_copy SOURCE DESTINATION RANKS [--force] [--threads N] [--to dcp|safetensors|hf] [--max-shard-bytes N]
//             [--previous FOLDER]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.collective_checkpoint;
import shardmesh.safetensors;

using namespace shardmesh;

namespace {

// Whether a checkpoint of that format must leave this out.
bool is_left_out(const tensor_entry& tensor, target_format to) {
  if (!tensor.opaque_type.empty()) return true;
  const safetensors::tensor entry{tensor.key, tensor.type, tensor.shape};
  return to != target_format::dcp && !safetensors::problems_of({&entry, 1}).empty();
}
bool is_left_out(checkpoint_reader& reader, std::size_t object, target_format to) {
  if (to == target_format::dcp) return false;
  const auto value = reader.read_object(object);
  return !value || !value->tensors.empty();
}

// A rank's part of every tensor that is not left out: in turn replicated, by rows, by strided rows, and on a grid.
local_state held_on(checkpoint_reader& reader, std::int32_t rank, std::int32_t ranks, target_format to,
                    std::deque<host_tensor>& memory) {
  local_state made;
  const std::int64_t sizes[] = {ranks / 2, 2};
  const device_mesh mesh = device_mesh::make(sizes).value();
  std::int64_t number = 0;
  for (const tensor_entry& tensor : reader.contents().tensors) {
    if (is_left_out(tensor, to)) continue;
    const std::int64_t turn = tensor.shape.rank() == 0 ? 0 : number++ % 4;
    const auto last = static_cast<std::int32_t>(tensor.shape.rank()) - 1;
    const std::vector<placement> placements = turn == 0   ? std::vector{placement::replicate(), placement::replicate()}
                                              : turn == 1 ? std::vector{placement::shard(0), placement::replicate()}
                                              : turn == 2
                                                  ? std::vector{placement::strided_shard(0, 2), placement::shard(0)}
                                                  : std::vector{placement::shard(0), placement::shard(last)};
    local_state_tensor held{tensor.where.empty() ? path{tensor.key} : tensor.where, tensor.shape, tensor.type, {}};
    for (const placed_box& placed : layout::make(mesh, placements, tensor.shape).value().boxes(rank)) {
      memory.push_back(host_tensor::make(tensor.type, placed.where.sizes).value());
      held.parts.push_back({placed.where, adapter<host_tensor>::view(memory.back())});
    }
    made.tensors.push_back(std::move(held));
  }
  for (std::size_t i = 0; i < reader.contents().objects.size(); ++i) {
    const object_entry& object = reader.contents().objects[i];
    if (!is_left_out(reader, i, to))
      made.objects.push_back({object.where.empty() ? path{object.key} : object.where, {}, {plain_value()}});
  }
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::filesystem::path source = argv[1], destination = argv[2];
  rank_save_options options;
  for (int i = 4; i < argc; ++i) {
    if (std::string(argv[i]) == "--force") options.overwrite = true;
    if (std::string(argv[i]) == "--threads" && i + 1 < argc) options.threads = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--previous" && i + 1 < argc) options.previous = argv[i + 1];
    if (std::string(argv[i]) == "--max-shard-bytes" && i + 1 < argc) options.max_shard_bytes = std::atoll(argv[i + 1]);
    if (std::string(argv[i]) == "--to" && i + 1 < argc)
      options.format = std::string(argv[i + 1]) == "hf"            ? target_format::hf
                       : std::string(argv[i + 1]) == "safetensors" ? target_format::safetensors
                                                                   : target_format::dcp;
  }
  const auto done = run_ranks(std::atoi(argv[3]), [&](any_communicator& comm) -> result<void> {
    auto reader = open_checkpoint(source);
    if (!reader) return reader.error();
    (*reader)->identify_opaque_tensors();
    if (comm.rank() == 0)
      for (const tensor_entry& tensor : (*reader)->contents().tensors)
        if (is_left_out(tensor, options.format)) std::printf("%s\n", tensor.key.c_str());
    std::deque<host_tensor> memory;
    local_state held = held_on(**reader, comm.rank(), comm.size(), options.format, memory);
    const auto loaded = load(**reader, held, comm, {.sharing = read_sharing::group});
    if (!loaded) return loaded.error();
    const auto saved = save(destination, held, comm, options);
    if (!saved) return saved.error();
    return {};
  });
  if (done) return 0;
  std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return 3;
}
