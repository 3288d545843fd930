// SPDX-License-Identifier: Apache-2.0
// A training loop of your own framework on shardmesh. Four processes, connected by TCP, train a model whose matrices
// are sharded by rows, and save it together. Two other processes load it sharded by columns, move it to rows in memory,
// continue, and save again. The result equals, bit for bit, that of one process that never stopped, and PyTorch reads
// both checkpoints. Usage: custom_framework [FOLDER]
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "adaptation.hpp"

import shardmesh;

namespace {

namespace fs = std::filesystem;
using namespace shardmesh;
using tiny::matrix;
using tiny::parameter_store;

constexpr std::int64_t outputs = 8, inputs = 4;
constexpr float rate = 0.0625F, momentum = 0.5F;

layout cut_along(std::int32_t dim, std::int32_t ranks) {
  return layout::make(device_mesh::make({ranks}).value(), {placement::shard(dim)}, {outputs, inputs}).value();
}

parameter_store new_model(const layout& cut, std::int32_t rank) {
  const extents mine = cut.local_shape(rank);
  parameter_store model;
  model["model"]["weight"].is = matrix(mine[0], mine[1]);
  model["optimizer"]["momentum"].is = matrix(mine[0], mine[1]);
  model["step"].is = std::int64_t{0};
  return model;
}

// The weight to find: y = target x. The data depend only on the step's number, so all ranks have the same.
float target(std::int64_t row, std::int64_t column) {
  return static_cast<float>(row - 2 * column);
}
float input(std::int64_t step, std::int64_t column) {
  return static_cast<float>((step * 3 + column * 5) % 7) / 4.0F - 0.75F;
}

// Does one step of gradient descent on this rank's rows; returns their part of the loss.
double train_step(parameter_store& model, std::int64_t first_row) {
  matrix& weight = model["model"]["weight"].tensor();
  matrix& velocity = model["optimizer"]["momentum"].tensor();
  const std::int64_t step = model["step"].counter()++;
  double loss = 0;
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    float wrong = 0;
    for (std::int64_t c = 0; c < weight.columns; ++c)
      wrong += (weight.at(r, c) - target(first_row + r, c)) * input(step, c);
    loss += static_cast<double>(wrong) * static_cast<double>(wrong);
    for (std::int64_t c = 0; c < weight.columns; ++c) {
      velocity.at(r, c) = momentum * velocity.at(r, c) + wrong * input(step, c);
      weight.at(r, c) -= rate * velocity.at(r, c);
    }
  }
  return loss;
}

// Adds up the losses of all ranks, over the framework's network.
double total(double mine, sockets::socket_communicator& comm) {
  const auto losses = comm.all_gather(std::as_bytes(std::span(&mine, 1)), {}).value();
  double sum = 0;
  for (const auto& bytes : losses) {
    double part = 0;
    std::memcpy(&part, bytes.data(), sizeof part);
    sum += part;
  }
  return sum;
}

void train(parameter_store& model, const layout& cut, sockets::socket_communicator& comm, int steps) {
  double loss = 0;
  for (int i = 0; i < steps; ++i) loss = total(train_step(model, cut.first_index(comm.rank())[0]), comm);
  if (comm.rank() == 0)
    std::printf("step %lld on %d ranks: loss %.6f\n", static_cast<long long>(model["step"].counter()), comm.size(),
                loss);
}

void save_together(parameter_store& model, const layout& cut, sockets::socket_communicator& comm,
                   const fs::path& folder) {
  save(folder, tiny::local_view(model, cut, comm.rank()), comm, {.overwrite = true}).value();
}

// Four ranks start from scratch.
void first_run(const tiny::meeting_point& meeting, std::int32_t rank, const fs::path& folder) {
  auto comm = tiny::communicator_of(meeting, rank);
  const layout rows = cut_along(0, comm.size());
  parameter_store model = new_model(rows, rank);
  train(model, rows, comm, 50);
  save_together(model, rows, comm, folder / "first");
}

// Two ranks load the four ranks' checkpoint: as columns, then moved to rows in memory.
void second_run(const tiny::meeting_point& meeting, std::int32_t rank, const fs::path& folder) {
  auto comm = tiny::communicator_of(meeting, rank);
  const layout columns = cut_along(1, comm.size()), rows = cut_along(0, comm.size());
  parameter_store loaded = new_model(columns, rank), model = new_model(rows, rank);
  local_state wanted = tiny::local_view(loaded, columns, rank);
  load(folder / "first", wanted, comm).value();
  tiny::take_counters(loaded, wanted);
  model["step"] = loaded["step"];
  for (const auto& [group, name] : {std::pair{"model", "weight"}, std::pair{"optimizer", "momentum"}}) {
    const auto from = side_of(columns, loaded[group][name].tensor()).value();
    const auto to = side_of(rows, model[group][name].tensor()).value();
    redistribute(from, to, comm).value();
  }
  train(model, rows, comm, 50);
  save_together(model, rows, comm, folder / "second");
}

// Runs a process per rank; returns true if all of them succeed.
bool run_processes(std::int32_t ranks, const std::function<void(const tiny::meeting_point&, std::int32_t)>& body) {
  const tiny::meeting_point meeting = tiny::listen_for(ranks);
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child > 0) children.push_back(child);
    if (child != 0) continue;
    int status = 0;
    try {
      body(meeting, rank);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      status = 1;
    }
    std::fflush(stdout);
    _exit(status);
  }
  for (const int listener : meeting.listeners) close(listener);
  bool well = static_cast<std::int32_t>(children.size()) == ranks;
  for (const pid_t child : children) {
    int status = 0;
    well = waitpid(child, &status, 0) == child && status == 0 && well;
  }
  if (!well) std::fprintf(stderr, "a rank of %d failed\n", ranks);
  return well;
}

// Counts the elements of the last checkpoint that differ from a run in one process.
int count_different(const fs::path& folder) {
  parameter_store whole = new_model(cut_along(0, 1), 0);
  for (int i = 0; i < 100; ++i) train_step(whole, 0);
  const auto checkpoint = open_checkpoint(folder).value();
  int different = 0;
  for (const auto& [group, name] : {std::pair{"model", "weight"}, std::pair{"optimizer", "momentum"}}) {
    const matrix& expected = whole[group][name].tensor();
    matrix stored(outputs, inputs);
    load_into(*checkpoint, std::string(group) + "." + name, stored).value();
    for (std::size_t i = 0; i < stored.values.size(); ++i) different += stored.values[i] == expected.values[i] ? 0 : 1;
  }
  return different;
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path folder = argc > 1 ? argv[1] : "custom_framework.folder";
  fs::create_directories(folder);
  using namespace std::placeholders;
  if (!run_processes(4, std::bind(first_run, _1, _2, folder))) return 1;
  if (!run_processes(2, std::bind(second_run, _1, _2, folder))) return 1;
  const int different = count_different(folder / "second");
  std::printf("%d differ from a run in one process\n", different);
  return different == 0 ? 0 : 1;
}
