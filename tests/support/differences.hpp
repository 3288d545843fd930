// SPDX-License-Identifier: Apache-2.0
// Compares PyTorch's answers with ours, field by field. tests/data/differences/<file>.json must list every difference:
// its place, PyTorch's value, our value, and the name of its reason. An unlisted difference fails; so does a listed one
// that no longer occurs. Thus no field of an answer can change unnoticed. Each test writes our answer in the golden
// file's form.
//
// After an intended change, run the test's binary with SHARDMESH_WRITE_DIFFERENCES=tests/data/differences, which writes
// the current differences. Read every changed line, and give each new name its reason.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace golden {

/// Stands for a field that one side lacks.
inline const nlohmann::json absent = "(absent)";

/// Our refusal: the code's text and the whole error line.
template <class Error>
nlohmann::json refusal(const Error& e) {
  return {{"exception", {{"type", make_error_code(e.code).message()}, {"text", to_string(e)}}}};
}

/// All comparisons of one section of a golden file. Call `finish` once, after all of them.
class differences {
 public:
  /// ("tp_fsdp", "boxes") names a section of tests/data/differences/tp_fsdp.json.
  differences(std::string file, std::string section) : file_(std::move(file)), section_(std::move(section)) {}

  /// `rule` names the reason under which differences of this answer are listed.
  void compare(const std::string& at, const nlohmann::json& pytorch, const nlohmann::json& ours,
               const std::string& rule) {
    ++compared_;
    walk(at, pytorch, ours, rule);
  }

  std::size_t compared() const { return compared_; }
  std::size_t found() const { return found_.size(); }

  void finish() {
    if (const char* folder = std::getenv("SHARDMESH_WRITE_DIFFERENCES")) return write(folder);
    auto left = listed();
    std::string text;
    std::size_t problems = 0;
    const auto say = [&](const std::string& what, const std::string& at, const entry& e) {
      if (++problems > 8) return;
      text += what + " [" + e.rule + "] at " + section_ + "/" + at + ":\n  PyTorch " + e.pytorch.dump().substr(0, 400) +
              "\n  ours    " + e.ours.dump().substr(0, 400) + "\n";
    };
    for (const auto& [at, e] : found_) {
      const auto known = left.find(at);
      if (known == left.end())
        say("a difference that is not listed", at, e);
      else if (known->second != e)
        say("not the listed difference", at, e);
      if (known != left.end()) left.erase(known);
    }
    for (const auto& [at, e] : left) say("a listed difference that is not there", at, e);
    INFO(text << problems << " differences are not as tests/data/differences/" << file_ << ".json lists them");
    CHECK(compared_ > 0);
    CHECK(problems == 0);
  }

 private:
  struct entry {
    std::string rule;
    nlohmann::json pytorch, ours;
    friend bool operator==(const entry&, const entry&) = default;
  };
  using entries = std::map<std::string, entry>;

  static bool is_plain_list(const nlohmann::json& j) {
    if (!j.is_array()) return false;
    for (const nlohmann::json& item : j)
      if (item.is_structured()) return false;
    return true;
  }

  void walk(const std::string& at, const nlohmann::json& pytorch, const nlohmann::json& ours, const std::string& rule) {
    if (pytorch == ours && pytorch.is_boolean() == ours.is_boolean()) return;
    // A refusal is compared as a whole.
    const auto is_refusal = [](const nlohmann::json& j) { return refused(j) && j.size() == 1; };
    const bool whole = is_refusal(pytorch) || is_refusal(ours) || at.ends_with("/exception");
    if (!whole && pytorch.is_object() && ours.is_object()) {
      std::set<std::string> keys;
      for (const auto& [key, value] : pytorch.items()) keys.insert(key);
      for (const auto& [key, value] : ours.items()) keys.insert(key);
      for (const std::string& key : keys)
        walk(at + "/" + key, pytorch.contains(key) ? pytorch[key] : absent, ours.contains(key) ? ours[key] : absent,
             rule);
    } else if (!whole && pytorch.is_array() && ours.is_array() && pytorch.size() == ours.size() &&
               !(is_plain_list(pytorch) && is_plain_list(ours))) {
      for (std::size_t i = 0; i < pytorch.size(); ++i) walk(at + "/" + std::to_string(i), pytorch[i], ours[i], rule);
    } else {
      found_[at] = {rule, pytorch, ours};
    }
  }

  static nlohmann::json read(const std::filesystem::path& path) {
    std::ifstream stream(path);
    return stream ? nlohmann::json::parse(stream) : nlohmann::json::object();
  }

  entries listed() const {
    entries made;
    const auto all = read(std::filesystem::path(SHARDMESH_TEST_DATA) / "differences" / (file_ + ".json"));
    if (!all.contains(section_)) return made;
    for (const auto& [rule, listing] : all[section_].items()) {
      INFO(section_ << ": " << rule);
      CHECK(listing.at("reason").get<std::string>().size() > 20);
      REQUIRE(!listing.at("differ").empty());
      for (const nlohmann::json& pair : listing["differ"])
        for (const nlohmann::json& at : pair.at("at"))
          REQUIRE(made.try_emplace(at.get<std::string>(), entry{rule, pair.at("pytorch"), pair.at("ours")}).second);
    }
    return made;
  }

  // Groups differences with equal pairs of values, and writes one pair per line.
  void write(const std::filesystem::path& folder) const {
    const std::filesystem::path path = folder / (file_ + ".json");
    nlohmann::json all = read(path);
    nlohmann::json section = nlohmann::json::object();
    std::map<std::tuple<std::string, std::string, std::string>, nlohmann::json> pairs;
    for (const auto& [at, e] : found_) pairs[{e.rule, e.pytorch.dump(), e.ours.dump()}].push_back(at);
    for (const auto& [key, at] : pairs) {
      const auto& [rule, pytorch, ours] = key;
      section[rule]["reason"] =
          all.value(section_, nlohmann::json::object()).value(rule, nlohmann::json::object()).value("reason", "");
      section[rule]["differ"].push_back(
          {{"pytorch", nlohmann::json::parse(pytorch)}, {"ours", nlohmann::json::parse(ours)}, {"at", at}});
    }
    all.erase(section_);
    if (!section.empty()) all[section_] = section;
    std::filesystem::create_directories(folder);
    std::ofstream stream(path);
    stream << "{";
    const char* next_section = "\n";
    for (const auto& [name, rules] : all.items()) {
      stream << next_section << " " << nlohmann::json(name) << ": {";
      const char* next_rule = "\n";
      for (const auto& [rule, listing] : rules.items()) {
        stream << next_rule << "  " << nlohmann::json(rule) << ": {\n   \"reason\": " << listing["reason"]
               << ",\n   \"differ\": [";
        const char* next = "\n";
        for (const nlohmann::json& pair : listing["differ"]) {
          stream << next << "    {\"pytorch\": " << pair["pytorch"] << ", \"ours\": " << pair["ours"]
                 << ", \"at\": " << pair["at"] << "}";
          next = ",\n";
        }
        stream << "\n   ]}";
        next_rule = ",\n";
      }
      stream << "\n }";
      next_section = ",\n";
    }
    stream << "\n}\n";
  }

  std::string file_, section_;
  std::size_t compared_ = 0;
  entries found_;
};

}  // namespace golden
