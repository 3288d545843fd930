// SPDX-License-Identifier: Apache-2.0
// Checkpoints from C++17, with compilers without modules (GCC, MSVC, nvcc): read, save, reshard, verify, compare, and
// plan a move. Usage: checkpoint_from_cpp17 CHECKPOINT [FOLDER]
#include <shardmesh/c_api.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace sm = shardmesh::c_api;

namespace {

void show(const sm::checkpoint& checkpoint) {
  for (const sm::tensor_entry& tensor : checkpoint.tensors())
    std::printf("%s: %s, chunks: %zu\n", tensor.key.c_str(), shardmesh_dtype_name(tensor.dtype), tensor.chunk_count);
}

// Two ranks wrote one half each; four ranks get one quarter each.
void save_and_reshard(const std::string& folder) {
  const std::vector<float> upper(12, 1.0F), lower(12, 2.0F);
  const std::vector<sm::save_tensor> state{
      {"weight", {8, 3}, {{sm::view(upper.data(), {4, 3}), {0, 0}, 0}, {sm::view(lower.data(), {4, 3}), {4, 0}, 1}}}};
  sm::save(folder + "/first", state);
  const sm::checkpoint first = sm::checkpoint::open(folder + "/first");
  sm::reshard_options onto_four;
  onto_four.mesh = "4";
  onto_four.place = {".*=S(0)"};
  sm::reshard(first, folder + "/second", onto_four);
  const sm::checkpoint second = sm::checkpoint::open(folder + "/second");
  show(second);
  std::printf("whole: %s, equal: %s\n", sm::verify(second).ok() ? "yes" : "no",
              sm::diff(first, second).equal() ? "yes" : "no");
}

// Opens a checkpoint with the description of one key only, loads that tensor in the background, and maps its first
// chunk.
void load_in_background(const std::string& path) {
  sm::open_options little;
  little.only_keys = {sm::checkpoint::open(path).tensor_at(0).key};
  const sm::checkpoint from = sm::checkpoint::open(path, little);
  const sm::tensor_entry entry = from.tensor_at(0);
  std::vector<double> values(static_cast<std::size_t>(entry.numel()));
  sm::start_load_options options;
  options.on_arrival = [](const std::string& key) { return std::printf("arrived: %s\n", key.c_str()) > 0; };
  sm::loading loading(from, {{entry.key, sm::view(values.data(), entry.shape), {}}}, options);
  loading.wait();
  const shardmesh_box chunk = from.chunks(0).front().where;
  sm::map_options where;
  where.offsets.assign(chunk.offsets, chunk.offsets + chunk.rank);
  where.sizes.assign(chunk.sizes, chunk.sizes + chunk.rank);
  where.allow_unaligned = true;  // chunks of DCP begin anywhere
  const sm::mapped_tensor mapped = sm::map_tensor(from, entry.key, where);
  std::printf("values: %zu, bytes mapped: %lld\n", values.size(), static_cast<long long>(mapped.size_bytes()));
}

void plan_a_move() {
  const sm::layout rows("4", "S(0)", {8, 8}), columns("4", "S(1)", {8, 8});
  const sm::plan plan(rows, columns);
  std::printf("rows to columns: %lld bytes move over %zu links, %zu steps on rank 0\n",
              static_cast<long long>(plan.cost().bytes_moved), plan.links().size(), plan.steps(0).size());
}

// An error has its details as fields. This one has a path, which does not exist.
void show_an_error(const std::string& path) {
  try {
    sm::checkpoint::open(path);
  } catch (const sm::error& e) {
    std::printf("%s: %s (%s)\n", shardmesh_status_name(e.status), e.message.c_str(), e.path.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 2 ? argv[2] : "checkpoint_from_cpp17.folder";
  try {
    if (argc > 1) show(sm::checkpoint::open(argv[1]));
    if (argc > 1) load_in_background(argv[1]);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    save_and_reshard(folder);
    plan_a_move();
    show_an_error(folder + "/third");
  } catch (const sm::error& e) {
    std::fprintf(stderr, "%s: %s\n", shardmesh_status_name(e.status), e.what());
    return 1;
  }
  return 0;
}
