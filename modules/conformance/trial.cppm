// SPDX-License-Identifier: Apache-2.0
// The tools of the checks: a rank's communicator, bytes that identify their sender, and a list of problems.
module shardmesh.conformance:trial;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :suite;

namespace shardmesh {

class trial {
 public:
  trial(std::string_view name, communicator_ref c, const conformance_options& o)
      : comm(c), options(o), rank(c.rank()), size(c.size()), name_(name) {}

  communicator_ref comm;
  const conformance_options& options;
  const std::int32_t rank, size;

  // Records a problem if the condition fails. Returns whether the condition holds.
  bool expect(bool holds, std::string expected, std::string found);
  bool succeeds(const result<void>& done, std::string_view what);
  // Expects that `done` failed with this code.
  bool fails(const result<void>& done, errc code, std::string_view what);

  // The name of the calls that should fail at their deadlines.
  static constexpr const char* hasty_name = "hasty_call";
  // Options of a call that should succeed, and of one that should fail at its deadline.
  call_options patient(std::uint32_t tag = 0) const;
  call_options hasty(std::uint32_t tag = 0) const;

  // Waits until all ranks have called it.
  bool meet(std::string_view when);
  // Expects that the communicator, which failed on one rank, soon fails every call of this rank with that code.
  void becomes_poisoned(errc code);

  std::vector<conformance_problem> found() && { return std::move(problems_); }

 private:
  std::string_view name_;
  std::vector<conformance_problem> problems_;
};

// The bytes of message number `number` from one rank to another.
std::vector<std::byte> message_bytes(std::int32_t from, std::int32_t to, std::uint32_t number, std::size_t size);

// Memory for a receive, between two borders that must not change.
class bordered {
 public:
  explicit bordered(std::size_t size) : all_(size + 2 * border, filling) {}
  std::span<std::byte> inside() { return std::span(all_).subspan(border, all_.size() - 2 * border); }
  bool holds(std::span<const std::byte> expected) const;
  bool is_untouched() const;

 private:
  static constexpr std::size_t border = 64;
  static constexpr std::byte filling{0xa5};
  std::vector<std::byte> all_;
};

// One exchange of this rank, with the memory that it uses.
struct started_exchange {
  struct expected_message {
    std::int32_t from = 0;
    std::vector<std::byte> bytes;
    std::unique_ptr<bordered> room;
  };
  std::vector<std::vector<std::byte>> sent;
  std::vector<expected_message> received;
  pending work;
};

// Starts an exchange between every pair of ranks: message number `number`, of `size_of(from, to)` bytes (0: none).
std::optional<started_exchange> start_between_all(trial& t, std::uint32_t number,
                                                  function_ref<std::size_t(std::int32_t, std::int32_t)> size_of,
                                                  std::uint32_t tag);
// Expects that all messages of the exchange have arrived and nothing else was written.
bool arrived(trial& t, const started_exchange& e, std::string_view what);
bool finish(trial& t, started_exchange& e, std::string_view what);

// The checks, by subject.
void check_ranks(trial& t);
void check_gather_lengths(trial& t);
void check_many_gathers(trial& t);
void check_no_messages(trial& t);
void check_sizes(trial& t);
void check_call_order(trial& t);
void check_tags(trial& t);
void check_gather_beside_exchange(trial& t);
void check_few_ranks(trial& t);
void check_polling(trial& t);
void check_dropping(trial& t);
void check_large_message(trial& t);
void check_refusals(trial& t);

void check_gather_deadline(trial& t);
void check_exchange_deadline(trial& t);
void check_past_deadline(trial& t);
void check_abort_of_gather(trial& t);
void check_abort_of_exchange(trial& t);
void check_cancelling(trial& t);
void check_different_sizes(trial& t);

void check_all_gather_into(trial& t);
void check_all_to_all(trial& t);
void check_broadcast(trial& t);
void check_reductions(trial& t);
void check_lending(trial& t);

}  // namespace shardmesh
