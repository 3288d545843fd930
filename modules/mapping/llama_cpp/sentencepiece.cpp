// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :hf_tokenizer;
import :sentencepiece;

namespace shardmesh::llama_cpp {
namespace {

error damaged(std::string_view what) {
  return fail(errc::bad_format, fmt::format("the file is not a model of SentencePiece: {}", what))
      .with_hint("download tokenizer.model again");
}

// One field of a message. `number` is its value, or `bytes` are.
struct field {
  std::uint64_t name = 0;  // its number in the message's definition
  std::uint64_t wire = 0;  // how the value is stored: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes
  std::uint64_t number = 0;
  std::string_view bytes;
};

// Takes the fields of a message one after the other. Each length is compared with the bytes that are left.
class message_reader {
 public:
  explicit message_reader(std::string_view message) : left_(message) {}

  bool is_done() const { return left_.empty(); }

  result<field> next() {
    SHARDMESH_TRY(const std::uint64_t tag, varint());
    field made;
    made.name = tag >> 3;
    made.wire = tag & 7;
    switch (made.wire) {
      case 0: {
        SHARDMESH_TRY(made.number, varint());
        return made;
      }
      case 1: {
        SHARDMESH_TRY(made.bytes, take(8));
        return made;
      }
      case 2: {
        SHARDMESH_TRY(const std::uint64_t length, varint());
        SHARDMESH_TRY(made.bytes, take(length));
        return made;
      }
      case 5: {
        SHARDMESH_TRY(made.bytes, take(4));
        for (std::size_t i = 0; i < 4; ++i)
          made.number |= static_cast<std::uint64_t>(static_cast<unsigned char>(made.bytes[i])) << (8 * i);
        return made;
      }
      default:
        return damaged("a field is stored in an unknown way");
    }
  }

 private:
  result<std::uint64_t> varint() {
    std::uint64_t made = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) return damaged("it ends within a number");
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      made |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return made;
    }
    return damaged("a number is too long");
  }

  result<std::string_view> take(std::uint64_t length) {
    if (length > left_.size()) return damaged("a length exceeds the file");
    const std::string_view taken = left_.substr(0, static_cast<std::size_t>(length));
    left_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view left_;
};

result<piece> read_piece(std::string_view message, std::size_t id) {
  piece made;
  for (message_reader reader(message); !reader.is_done();) {
    SHARDMESH_TRY(const field one, reader.next());
    if (one.name == 1 && one.wire == 2) {
      if (!is_utf8(one.bytes)) return damaged(fmt::format("the piece {} is not UTF-8", id));
      made.text = one.bytes;
    } else if (one.name == 2 && one.wire == 5) {
      made.score = std::bit_cast<float>(static_cast<std::uint32_t>(one.number));
      if (!std::isfinite(made.score)) return damaged(fmt::format("the score of the piece {} is not finite", id));
    } else if (one.name == 3 && one.wire == 0) {
      if (one.number < 1 || one.number > 6) return damaged(fmt::format("the type of the piece {} is unknown", id));
      made.type = static_cast<piece_type>(one.number);
    }
  }
  return made;
}

}  // namespace

result<std::vector<piece>> read_pieces(std::string_view file) {
  std::vector<piece> made;
  for (message_reader reader(file); !reader.is_done();) {
    SHARDMESH_TRY(const field one, reader.next());
    if (one.name != 1 || one.wire != 2) continue;
    if (static_cast<std::int64_t>(made.size()) == most_tokens)
      return fail(errc::out_of_bounds, "the model of SentencePiece has too many pieces")
          .with_values(fmt::format("at most {}", most_tokens), "more");
    SHARDMESH_TRY(piece read, read_piece(one.bytes, made.size()));
    made.push_back(std::move(read));
  }
  if (made.empty()) return damaged("it has no pieces");
  return made;
}

}  // namespace shardmesh::llama_cpp
