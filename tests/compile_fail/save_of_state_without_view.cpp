// SPDX-License-Identifier: Apache-2.0
// A state is saved through its local view, so its type needs one.
// says: a state to save has a local view: declare a function local_view(state) beside its type
// notes: 40
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

struct my_model {
  float weight = 0;
};

int main() {
  const my_model model{};
  shardmesh::save("out", model);
}
