// SPDX-License-Identifier: Apache-2.0
// open_containers: the containers that a walk has entered, with the children still to visit in each. It replaces the
// call stack. Internal to the room.
export module shardmesh.tree:walk;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;
import :state_node;

namespace shardmesh::detail {

template <state_node N>
node_kind kind_of(const N& node) {
  return adapter_of<N>::kind(node);
}

/// A child with its key, stored while its siblings are walked.
template <state_node N>
struct keyed_node {
  path_key key;
  node_ref<N> node;
};

/// Adapters pass children to a call-back, so a walk that descends must store the remaining ones. It fetches them in
/// portions that grow with the number already walked. A walk that stops after k children requests at most O(k) of them;
/// a walk of all n children requests less than 9/4 n. All open containers share one array.
template <state_node N>
class open_containers {
 public:
  bool empty() const { return open_.empty(); }
  std::size_t size() const { return open_.size(); }
  /// The innermost container.
  N& node() { return reference_to<N>::node(open_.back().node); }

  void enter(N& container) { open_.push_back({reference_to<N>::of(container), waiting_.size(), waiting_.size()}); }
  /// Leaves the innermost container. Precondition: `next()` has returned nullptr, so none of its children are waiting.
  void leave() { open_.pop_back(); }
  /// Returns the next child of the innermost container, or nullptr. The child is valid until the next call, and its key
  /// may be moved from.
  keyed_node<N>* next() {
    container& c = open_.back();
    if (c.next == waiting_.size()) {
      if (c.is_last_portion || !fetch(c)) return waiting_.erase(waiting_.begin() + c.first, waiting_.end()), nullptr;
    }
    return &waiting_[c.next++];
  }

 private:
  struct container {
    node_ref<N> node;
    std::size_t first, next;  // indices in waiting_
    std::size_t taken = 0;    // children fetched so far
    bool is_last_portion = false;
  };
  static constexpr std::size_t first_portion = 64, growth = 4;

  bool fetch(container& c) {
    waiting_.erase(waiting_.begin() + c.first, waiting_.end());
    c.next = c.first;
    const std::size_t most = c.taken == 0 ? first_portion : growth * c.taken;
    std::size_t skip = c.taken, taken = 0;
    c.is_last_portion = true;
    adapter_of<N>::children(reference_to<N>::node(c.node), [&](path_key key, typename reference_to<N>::child child) {
      if (skip > 0) return --skip, true;
      if (taken == most) return c.is_last_portion = false;
      waiting_.push_back({std::move(key), reference_to<N>::of(child)});
      ++taken;
      return true;
    });
    c.taken += taken;
    return taken > 0;
  }

  std::vector<container> open_;
  std::vector<keyed_node<N>> waiting_;  // the outermost container's first
};

/// Calls an observer; returns false if the observer returned false to stop.
template <class F, class... Arguments>
bool goes_on(F& f, Arguments&&... arguments) {
  if constexpr (std::is_void_v<decltype(f(std::forward<Arguments>(arguments)...))>) {
    f(std::forward<Arguments>(arguments)...);
    return true;
  } else {
    return static_cast<bool>(f(std::forward<Arguments>(arguments)...));
  }
}

}  // namespace shardmesh::detail
