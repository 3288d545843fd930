// SPDX-License-Identifier: Apache-2.0
// Tests that the limits of a call reach the requests of its stores, whatever the server does.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <http_server.hpp>
#include <iterator>
#include <memory>
#include <optional>
#include <scratch_folder.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.checkpoint;
import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using http_server::fault;
using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr fault stalls[] = {fault::stall_at_once, fault::stall, fault::drip, fault::endless_headers,
                            fault::unavailable};

// A golden checkpoint on a server, under a URL of a scheme whose store waits much longer than the tests.
struct served {
  explicit served(const std::string& scheme_name) : scheme(scheme_name) {
    const auto folder = golden::folder() / "fsdp2_4" / "checkpoint";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream stream(entry.path(), std::ios::binary);
      std::string content(std::istreambuf_iterator<char>(stream), {});
      server.put("/run/" + entry.path().filename().string(), std::move(content));
    }
    const auto web = make_http_store({.stall = std::chrono::seconds(60), .attempts = 1000});
    register_store(scheme, std::make_shared<renamed>(web, scheme));
  }
  ~served() { register_store(scheme, nullptr); }
  std::string url() const { return scheme + server.url("/run").substr(4); }

  // The store of http under another scheme.
  class renamed final : public store {
   public:
    renamed(std::shared_ptr<const store> inner, const std::string& scheme)
        : inner_(std::move(inner)), prefix_(scheme.size()) {}
    result<std::optional<stored_object>> look(const std::string& url) const override { return inner_->look(web(url)); }
    result<std::vector<stored_object>> list(const std::string& url) const override { return inner_->list(web(url)); }
    result<std::unique_ptr<byte_source>> open(const std::string& url) const override { return inner_->open(web(url)); }

   private:
    std::string web(const std::string& url) const { return "http" + url.substr(prefix_); }
    std::shared_ptr<const store> inner_;
    std::size_t prefix_;
  };

  std::string scheme;
  http_server::server server;
};

template <class Call>
error late(const std::string& name, Call&& call) {
  INFO(name);
  const auto began = clock_type::now();
  const auto done = call();
  CHECK(clock_type::now() - began < milliseconds(1300));
  REQUIRE(!done);
  CHECK(done.error().code == errc::deadline_exceeded);
  CHECK(done.error().message.starts_with("the " + name + "'s deadline has passed"));
  return done.error();
}

// The request is named if the call waited for it in a read, and not while it opened files.
void check_names_object(const error& problem) {
  INFO(problem.message);
  CHECK(problem.file.find("/run") != std::string::npos);
  CHECK(problem.message.find("deadline has passed after ") != std::string::npos);
  const std::size_t request = problem.message.find(", while it waited for ");
  const bool is_named = request == std::string::npos ||
                        problem.message.substr(request) == ", while it waited for the answer to GET" ||
                        problem.message.substr(request) == ", while it waited for the answer to HEAD";
  CHECK(is_named);
}

}  // namespace

TEST_CASE("a load, a conversion, verify, and diff end within a second of their deadline, whatever the server does") {
  const watchdog dog{std::chrono::seconds(120)};
  served run("deadline");
  const scratch_folder scratch;
  const auto local = open_checkpoint(golden::folder() / "fsdp2_4" / "checkpoint").value();
  for (const fault one : stalls) {
    INFO("fault " << static_cast<int>(one));
    run.server.always(fault::none);
    const auto opened = open_checkpoint(run.url()).value();
    const std::string key = opened->contents().tensors.front().key;
    run.server.always(one);
    const milliseconds soon(300);
    for (const bool check : {false, true}) {
      const load_options loading{.check = check, .within = soon};
      check_names_object(late("load", [&] { return load_tensor(*opened, key, loading); }));
    }
    const convert_options converting{.format = target_format::dcp, .within = soon};
    late("conversion", [&] { return convert(*opened, scratch / "copy", converting); });
    late("verification", [&] { return verify(*opened, {.within = soon}); });
    late("comparison", [&] { return diff(*opened, *local, {.within = soon}); });
    CHECK(std::filesystem::is_empty(scratch.path));
    // No deadline is taken for a defect of a file.
    run.server.always(fault::none);
    CHECK(load_tensor(*opened, key));
    CHECK(verify(*opened).value().ok() == verify(*local).value().ok());
  }
}

TEST_CASE("opening a checkpoint, and a load of a path, end within a second of their deadline") {
  const watchdog dog{std::chrono::seconds(120)};
  served run("opening-deadline");
  const milliseconds soon(300);
  for (const fault one : stalls) {
    INFO("fault " << static_cast<int>(one));
    run.server.always(one);
    check_names_object(late("opening", [&] { return open_checkpoint(run.url(), {.within = soon}); }));
    check_names_object(late("opening", [&] { return open_parts(run.url(), {.within = soon}); }));
    const detail::call_scope of_load({.within = soon, .name = "load"});
    check_names_object(late("load", [&] { return open_checkpoint(run.url(), {.within = std::chrono::hours(1)}); }));
  }
}

TEST_CASE("a checkpoint is opened within its deadline part by part, and a limit that has passed opens none") {
  const watchdog dog{std::chrono::seconds(60)};
  served run("opening-parts");
  const auto local = golden::folder() / "fsdp2_4" / "checkpoint";
  std::stop_source stopped;
  stopped.request_stop();
  for (const std::filesystem::path& place : {local, std::filesystem::path(run.url())}) {
    INFO(place.string());
    for (const bool all : {false, true}) {
      const auto open = [&](const open_options& how) {
        return all ? open_parts(place, how) : open_checkpoint(place, how);
      };
      const auto late = open({.within = -milliseconds(1)}), cancelled = open({.cancel = stopped.get_token()});
      REQUIRE(!late);
      REQUIRE(!cancelled);
      CHECK(late.error().code == errc::deadline_exceeded);
      CHECK(late.error().message.starts_with("the opening's deadline has passed"));
      CHECK(late.error().file == place.string());
      CHECK(cancelled.error().code == errc::cancelled);
      CHECK(cancelled.error().message.starts_with("the opening was cancelled"));
      if (!all) CHECK(open({.within = std::chrono::minutes(1)}));
    }
  }
}

TEST_CASE("the limits of opening do not end later reads") {
  const watchdog dog{std::chrono::seconds(60)};
  served run("opening-ended");
  std::stop_source stop;
  const auto opened = open_checkpoint(run.url(), {.cancel = stop.get_token()}).value();
  stop.request_stop();
  CHECK(load_tensor(*opened, opened->contents().tensors.front().key));
}

TEST_CASE("opening a checkpoint whose server stalls ends as soon as it is cancelled") {
  const watchdog dog{std::chrono::seconds(60)};
  served run("opening-cancelled");
  run.server.always(fault::stall_at_once);
  std::stop_source stop;
  clock_type::time_point stopped;
  std::jthread stopper([&] {
    while (run.server.seen().empty()) std::this_thread::yield();
    stopped = clock_type::now();
    stop.request_stop();
  });
  const auto opened = open_checkpoint(run.url(), {.cancel = stop.get_token()});
  stopper.join();
  CHECK(clock_type::now() - stopped < std::chrono::seconds(1));
  REQUIRE(!opened);
  CHECK(opened.error().code == errc::cancelled);
  CHECK(opened.error().message.starts_with("the opening was cancelled after "));
}

TEST_CASE("a load whose server stalls ends as soon as it is cancelled") {
  const watchdog dog{std::chrono::seconds(60)};
  served run("cancelled");
  const auto opened = open_checkpoint(run.url()).value();
  const std::string key = opened->contents().tensors.front().key;
  run.server.always(fault::stall_at_once);
  run.server.forget_seen();
  std::stop_source stop;
  clock_type::time_point stopped;
  std::jthread stopper([&] {
    while (run.server.seen().empty()) std::this_thread::yield();
    stopped = clock_type::now();
    stop.request_stop();
  });
  const auto loaded = load_tensor(*opened, key, load_options{.cancel = stop.get_token()});
  stopper.join();
  CHECK(clock_type::now() - stopped < std::chrono::seconds(1));
  REQUIRE(!loaded);
  INFO(loaded.error().message);
  CHECK(loaded.error().code == errc::cancelled);
  CHECK(loaded.error().message.starts_with("the load was cancelled after "));
}

TEST_CASE("a load with a deadline does not wait for the requests of one without") {
  const watchdog dog{std::chrono::seconds(60)};
  served run("two-calls");
  const auto opened = open_checkpoint(run.url()).value();
  const std::string key = opened->contents().tensors.front().key;
  run.server.always(fault::stall_at_once);
  run.server.forget_seen();
  std::stop_source stop;
  std::optional<result<host_tensor>> patient;
  std::jthread other([&] { patient.emplace(load_tensor(*opened, key, load_options{.cancel = stop.get_token()})); });
  while (run.server.seen().empty()) std::this_thread::yield();
  const auto began = clock_type::now();
  const auto hasty = load_tensor(*opened, key, load_options{.within = milliseconds(300)});
  CHECK(clock_type::now() - began < milliseconds(1300));
  REQUIRE(!hasty);
  CHECK(hasty.error().code == errc::deadline_exceeded);
  stop.request_stop();
  other.join();
  REQUIRE(!*patient);
  CHECK(patient->error().code == errc::cancelled);
}

TEST_CASE("an upload ends within a second of its deadline, and of the time for its removal") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  server.put("/bucket/run/a.pt", "");
  const auto objects = make_s3_store({.settings = {.region = "us-east-1",
                                                   .endpoint = server.url(""),
                                                   .addressing = s3_addressing::path,
                                                   .is_anonymous = true},
                                      .http = {.stall = std::chrono::seconds(60), .attempts = 1000}});
  const std::vector<std::byte> content(1000);
  for (const bool if_absent : {false, true})
    for (const fault one : {fault::stall_at_once, fault::endless_headers, fault::unavailable}) {
      INFO("fault " << static_cast<int>(one));
      server.always(one);
      const detail::call_scope limits({.within = milliseconds(300), .name = "save"});
      const auto began = clock_type::now();
      const auto done =
          objects->put("s3://bucket/run/a.pt", memory_source(content, "content"), {.if_absent = if_absent});
      CHECK(clock_type::now() - began < milliseconds(if_absent ? 2300 : 1300));
      REQUIRE(!done);
      CHECK(done.error().code == errc::deadline_exceeded);
      CHECK(done.error().file == "s3://bucket/run/a.pt");
      CHECK(done.error().message.starts_with("the save's deadline has passed after "));
      CHECK(done.error().message.ends_with(", while it waited for the answer to PUT"));
    }
}
