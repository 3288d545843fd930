// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.comm;
import :rank_share;

namespace shardmesh {
namespace {

void write_key(detail::wire_writer& out, const std::optional<std::string>& key) {
  out.flag(key.has_value());
  if (key) out.text(*key);
}

std::optional<std::string> read_key(detail::wire_reader& in) {
  if (!in.flag()) return std::nullopt;
  return in.text();
}

tensor_share read_tensor(detail::wire_reader& in) {
  tensor_share share;
  share.index = in.number();
  share.key = read_key(in);
  share.type = static_cast<dtype>(in.in_range(0, static_cast<std::int64_t>(dtype::bits4x2)));
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) share.parts.push_back(in.number());
  return share;
}

object_share read_object(detail::wire_reader& in) {
  object_share share;
  share.index = in.number();
  share.key = read_key(in);
  return share;
}

// The counts of a report, in the order of the wire.
template <class Report>
auto counts_of(Report& report) {
  return std::array{&report.tensors,         &report.bytes,           &report.objects,  &report.files,
                    &report.skipped_tensors, &report.skipped_objects, &report.excluded, &report.referred_bytes};
}

}  // namespace

void write_share(detail::wire_writer& out, const tensor_share& share) {
  out.flag(true);
  out.number(share.index);
  write_key(out, share.key);
  out.number(static_cast<std::int64_t>(share.type));
  out.number(static_cast<std::int64_t>(share.parts.size()));
  for (const std::int64_t part : share.parts) out.number(part);
}

void write_share(detail::wire_writer& out, const object_share& share) {
  out.flag(false);
  out.number(share.index);
  write_key(out, share.key);
}

std::optional<rank_share> read_share(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  rank_share share;
  while (in.ok() && !in.finished()) {
    if (in.flag())
      share.tensors.push_back(read_tensor(in));
    else
      share.objects.push_back(read_object(in));
  }
  if (!in.ok()) return std::nullopt;
  return share;
}

void write_verdict(detail::wire_writer& out, const result<void>& verdict) {
  out.flag(!verdict);
  if (!verdict) out.raw(to_bytes(verdict.error()));
}

result<void> read_verdict(detail::wire_reader& in) {
  const bool is_refused = in.flag();
  if (in.ok() && !is_refused) return {};
  return error_from_bytes(in.rest()).value_or(
      fail(errc::communication, "rank 0 cannot continue, and its reason cannot be read").with_rank(0));
}

std::vector<std::byte> encode_report(const save_report& report) {
  detail::wire_writer out;
  for (const std::int64_t* const count : counts_of(report)) out.number(*count);
  out.number(static_cast<std::int64_t>(report.notes.size()));
  for (const std::string& note : report.notes) out.text(note);
  return std::move(out).take();
}

std::optional<save_report> decode_report(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  save_report report;
  for (std::int64_t* const count : counts_of(report)) *count = in.number();
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) report.notes.push_back(in.text());
  if (!in.finished()) return std::nullopt;
  return report;
}

}  // namespace shardmesh
