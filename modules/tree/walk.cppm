// SPDX-License-Identifier: Apache-2.0
// open_containers: the containers that a walk is inside of, and for each the children that come next. It takes the
// place of the call stack. Internal to the room.
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

/// A child with its key, while its siblings are walked.
template <state_node N>
struct keyed_node {
  path_key key;
  node_ref<N> node;
};

/// Children come from their adapter by call-back, so a walk that descends has to put the rest aside. It takes them in
/// portions that grow with the number already walked: a walk that stops after k children has asked for at most
/// O(k) of them, and a walk of all n children has asked for less than 4/3 n. All open containers share one array.
template <state_node N>
class open_containers {
 public:
  bool empty() const { return open_.empty(); }
  std::size_t size() const { return open_.size(); }
  /// The innermost container.
  N& node() { return reference_to<N>::node(open_.back().node); }

  void enter(N& container) { open_.push_back({reference_to<N>::of(container), waiting_.size(), waiting_.size()}); }
  /// Precondition: next() has returned nullptr, so that nothing of the container waits.
  void leave() { open_.pop_back(); }
  /// The next child of the innermost container, or nullptr. It lives until the next call, its key may be moved from.
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
    std::size_t first, next;  // in waiting_
    std::size_t taken = 0;    // children before waiting_[first], then with them
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
  std::vector<keyed_node<N>> waiting_;  // of the outermost container first
};

/// Calls an observer that returns nothing, or false to stop.
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
