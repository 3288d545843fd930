// SPDX-License-Identifier: Apache-2.0
// Rewrites a checkpoint of an FSDP model through our types: fsdp_rewrite SOURCE DESTINATION FORM MESH FSDP_DIM [LIKE].
// Thread ranks take the chunks that their files held (modulo their number) as sharded tensors and load them into units
// over MESH. They make a state dict of FORM (full, sharded, dtensor, local) and save it as DCP. With FORM held, they
// save their flat shards in place and load them again. LIKE names the parameters if SOURCE has only flat ones. The
// program compares the result with SOURCE; fsdp_round_trip.py asks PyTorch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.fsdp;
import shardmesh.sharding;

using namespace shardmesh;

namespace {

using state = state_dict<host_tensor>;

// A source tensor's chunk, and the rank that wrote it.
struct loaded_chunk {
  box where;
  std::int32_t rank = 0;
  host_tensor tensor;
};
struct loaded {
  path where;
  extents shape;
  dtype type = dtype::undefined;
  std::vector<loaded_chunk> chunks;
};

std::map<std::string, loaded> load_all(checkpoint_reader& reader) {
  std::map<std::string, loaded> found;
  const catalog& contents = reader.contents();
  for (const tensor_entry& t : contents.tensors) {
    loaded& one = found[t.key];
    one.where = t.where;
    one.shape = t.shape;
    one.type = t.type;
    for (std::int32_t c = t.first_chunk; c < t.first_chunk + t.chunk_count; ++c) {
      const box where = contents.chunk_box(t, c);
      const auto file = static_cast<std::size_t>(contents.chunk_places[static_cast<std::size_t>(c)].file);
      one.chunks.push_back(
          {where, rank_of_file(contents.files[file]).value_or(0), load_tensor(reader, t.key, where).value()});
    }
  }
  return found;
}

// Splits a key. "optim.state.mlp.up.weight.exp_avg" is a parameter with a suffix, "model.mlp.up.weight" is a parameter.
// Everything else is replicated on every rank.
struct parts_of_key {
  std::string root, module, name, suffix;
};
std::optional<parts_of_key> split(const std::string& key) {
  parts_of_key made;
  std::string rest;
  if (key.starts_with("model.")) {
    made.root = "model";
    rest = key.substr(6);
  } else if (key.starts_with("optim.state.")) {
    made.root = "optim.state";
    rest = key.substr(12);
    for (const char* suffix : {".exp_avg", ".exp_avg_sq"})
      if (rest.ends_with(suffix)) made.suffix = suffix;
    if (made.suffix.empty()) return std::nullopt;
    rest.resize(rest.size() - made.suffix.size());
  } else {
    return std::nullopt;
  }
  made.module = rest.starts_with("mlp.") ? "mlp" : "";
  made.name = made.module.empty() ? rest : rest.substr(4);
  return made;
}

// Tensor parallelism on the last mesh dimension, as in the golden models.
std::vector<placement> placements_of(const std::string& name, std::size_t mesh_rank, std::size_t fsdp_dim) {
  std::vector<placement> made(mesh_rank, placement::replicate());
  if (fsdp_dim + 1 == mesh_rank) return made;
  if (name.starts_with("up.") || name == "head.weight") made.back() = placement::shard(0);
  if (name == "down.weight") made.back() = placement::shard(1);
  return made;
}

// The model as all ranks describe it, in key order.
struct description {
  struct unit {
    std::string prefix, suffix;
    parallel_parameters parameters;
  };
  std::vector<unit> units;
  std::vector<std::string> whole;
};

description describe(const std::map<std::string, loaded>& names, const device_mesh& mesh, std::size_t fsdp_dim) {
  description made;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<parallel_parameter_info>> units;
  for (const auto& [key, tensor] : names) {
    const auto parts = split(key);
    if (!parts) {
      made.whole.push_back(key);
      continue;
    }
    units[{parts->root, parts->module, parts->suffix}].push_back(
        {parts->name, tensor.shape, placements_of(parts->name, mesh.rank(), fsdp_dim), tensor.type});
  }
  for (auto& [where, infos] : units) {
    const auto& [root, module, suffix] = where;
    // Flat order of the golden models is the order in which modules define parameters. For these names it is the
    // reverse of sorting by module: up before down, norm before head, weight before bias.
    std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.fqn > b.fqn; });
    made.units.push_back(
        {joined_key(root, module), suffix,
         parallel_parameters::make(mesh, mesh.rank_limit(), infos, {}, {.fsdp_dim = fsdp_dim}).value()});
  }
  return made;
}

// This rank's chunks of the source, as a sharded tensor over all ranks.
result<state> own_state(const std::map<std::string, loaded>& source, std::int32_t rank, std::int32_t ranks) {
  state dict;
  for (const auto& [key, tensor] : source) {
    sharded_tensor_metadata metadata;
    metadata.size = tensor.shape;
    metadata.properties.type = tensor.type;
    std::vector<shard<host_tensor>> own;
    for (const loaded_chunk& chunk : tensor.chunks) {
      const shard_metadata m{chunk.where.offsets, chunk.where.sizes, remote_device{chunk.rank % ranks, {}, {}}};
      metadata.shards.push_back(m);
      if (chunk.rank % ranks != rank) continue;
      auto copied = chunk.tensor.clone();
      if (!copied) return std::move(copied).error();
      auto held = shard<host_tensor>::make(*std::move(copied), m);
      if (!held) return std::move(held).error();
      own.push_back(*std::move(held));
    }
    auto made = sharded_tensor<host_tensor>::make(std::move(own), metadata, rank_group::world(ranks), rank);
    if (!made) return std::move(made).error().with_key(key);
    if (auto done = dict.set(path{key}, *std::move(made)); !done) return std::move(done).error();
  }
  return dict;
}

// A rank's memory: flat shards and whole tensors, every byte 0xA5 at first.
struct rank_model {
  rank_model(const description& d, const std::map<std::string, loaded>& names, std::int32_t rank) {
    const auto room = [&](dtype type, const extents& sizes) {
      memory.push_back(std::make_unique<host_tensor>(host_tensor::make(type, sizes).value()));
      const tensor_view view = adapter<host_tensor>::view(*memory.back());
      std::fill_n(view.data, static_cast<std::size_t>(numel(view) * item_bytes(type)), std::byte{0xA5});
      return view;
    };
    for (const auto& u : d.units) {
      const flat_parameter& flat = u.parameters.flat(*u.parameters.column_of(rank));
      const tensor_view shard = room(flat.type(), {flat.sharded_numel()});
      if (!flat.fill_padding(*u.parameters.group().position(rank), shard)) std::abort();
      model.units.push_back(parallel_unit(u.prefix, u.parameters, rank, shard, u.suffix));
    }
    for (const std::string& key : d.whole)
      model.tensors.push_back({key, room(names.at(key).type, names.at(key).shape)});
  }
  std::vector<std::unique_ptr<host_tensor>> memory;
  fsdp_model model;
};

result<saved_state<host_tensor>> state_of(const std::string& form, const fsdp_model& model, any_communicator& comm) {
  if (form == "full") return full_state_dict<host_tensor>(model, comm, {.rank0_only = true});
  if (form == "local") return local_state_dict<host_tensor>(model, comm.rank());
  return sharded_state_dict<host_tensor>(
      model, comm, {.form = form == "dtensor" ? sharded_form::dtensor : sharded_form::sharded_tensor});
}

// Saves the model's memory in place, and loads it into another model's memory.
result<void> save_held(const std::string& destination, const rank_model& memory, rank_model& other,
                       any_communicator& comm) {
  auto held = local_view(memory.model, comm.rank());
  if (!held) return std::move(held).error();
  const auto saved = held->to_save();
  if (!saved) return saved.error();
  const auto report = save(destination, *saved, comm);
  if (!report) return report.error();
  auto wanted = local_view(other.model, comm.rank());
  if (!wanted) return std::move(wanted).error();
  local_state state = wanted->to_load();
  const auto loaded = load(destination, state, comm);
  if (!loaded) return loaded.error();
  for (std::size_t i = 0; i < memory.memory.size(); ++i)
    if (!std::ranges::equal(memory.memory[i]->bytes(), other.memory[i]->bytes()))
      return fail(errc::checksum_mismatch, "other values were loaded in place").with_rank(comm.rank());
  return {};
}

// All ranks' parts of a state dict, each box once, for the single-process save.
std::vector<save_tensor> gathered(const std::vector<state>& states, const std::map<std::string, loaded>& source) {
  std::map<std::string, save_tensor> tensors;
  std::set<std::pair<std::string, box>> seen;
  for (std::size_t r = 0; r < states.size(); ++r) {
    const auto paths = states[r].spec().leaf_paths();
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const std::string key(paths[i][0].name());
      const auto& value = states[r].leaves()[i];
      save_tensor& one = tensors[key];
      one.key = key;
      if (const auto known = source.find(key); known != source.end()) one.where = known->second.where;
      const auto add = [&](const const_tensor_view& view, const box& where, const extents& shape) {
        one.shape = shape;
        if (seen.emplace(key, where).second) one.parts.push_back({where, view, static_cast<std::int32_t>(r)});
      };
      if (const auto* tensor = value.tensor())
        add(adapter<host_tensor>::view(*tensor), box::whole(tensor->sizes()), tensor->sizes());
      if (const auto* sharded = value.sharded_tensor())
        for (const auto& part : sharded->local_shards())
          add(adapter<host_tensor>::view(part.tensor()), part.metadata().where(), sharded->size());
      if (const auto* placed = value.dtensor())
        for (const placed_box& b : placed->layout().boxes(placed->rank()))
          add(subview(adapter<host_tensor>::view(placed->local()), {b.local_offsets, b.where.sizes}), b.where,
              placed->size());
    }
  }
  std::vector<save_tensor> made;
  for (auto& [key, one] : tensors) made.push_back(std::move(one));
  return made;
}

int failed(const std::string& text) {
  std::fprintf(stderr, "fsdp_rewrite: %s\n", text.c_str());
  return 1;
}

int rewrite(const std::vector<std::string>& args) {
  auto reader = open_checkpoint(args[1]);
  if (!reader) return failed(to_string(reader.error()));
  const auto source = load_all(**reader);
  std::map<std::string, loaded> like;
  if (args.size() > 6) {
    auto other = open_checkpoint(args[6]);
    if (!other) return failed(to_string(other.error()));
    for (auto& [key, tensor] : load_all(**other))
      if (key.starts_with("model.")) like.emplace(key, loaded{tensor.where, tensor.shape, tensor.type, {}});
  }
  const auto& names = args.size() > 6 ? like : source;
  const device_mesh mesh = parse_mesh(args[4]).value();
  const description d = describe(names, mesh, static_cast<std::size_t>(std::stoul(args[5])));
  const auto ranks = static_cast<std::int32_t>(mesh.size());
  std::vector<std::optional<state>> made(static_cast<std::size_t>(ranks));
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto dict = own_state(source, comm.rank(), ranks);
    if (!dict) return std::move(dict).error();
    rank_model memory(d, names, comm.rank());
    auto report = load_state_dict(memory.model, *dict, comm);
    if (!report) return std::move(report).error();
    if (args[3] == "held") {
      rank_model other(d, names, comm.rank());
      return save_held(args[2], memory, other, comm);
    }
    auto saved = state_of(args[3], memory.model, comm);
    if (!saved) return std::move(saved).error();
    made[static_cast<std::size_t>(comm.rank())].emplace(std::move(saved->state));
    return {};
  });
  if (!ran) return failed(to_string(ran.error()));
  if (args[3] != "held") {
    std::vector<state> states;
    for (auto& one : made) states.push_back(*std::move(one));
    const auto report = save(args[2], gathered(states, names));
    if (!report) return failed(to_string(report.error()));
  }

  auto back = open_checkpoint(args[2]);
  if (!back) return failed(to_string(back.error()));
  std::size_t equal = 0;
  for (const tensor_entry& t : (*back)->contents().tensors) {
    if (!source.contains(t.key)) continue;
    const auto ours = load_tensor(**back, t.key), theirs = load_tensor(**reader, t.key);
    if (!ours || !theirs || ours->sizes() != theirs->sizes() || ours->type() != theirs->type() ||
        !std::equal(ours->bytes().begin(), ours->bytes().end(), theirs->bytes().begin(), theirs->bytes().end()))
      return failed(t.key + " came out with other values");
    ++equal;
  }
  std::printf("%zu tensors, %zu equal to the source's\n", (*back)->contents().tensors.size(), equal);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv, argv + argc);
  if (args.size() < 6)
    return failed("needs SOURCE DESTINATION full|sharded|dtensor|local|held MESH FSDP_DIM [LIKE]"), 2;
  return rewrite(args);
}
