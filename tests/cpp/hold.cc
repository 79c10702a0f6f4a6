#include "device/hold.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "device/scratch.h"
#include "device/stamps.h"
#include "driver_double.h"

namespace prism::device {
namespace {

const Place place{5, 23};
const std::byte image[4] = {};  // the double runs kernels by name

// The double, and its context current.
struct Gpu : DriverDouble {
  Context context{driver, 0, place};
  Current current{driver, context, place};
};

bool blocks_the_host(const std::string& name) {
  return name.ends_with("Synchronize") || name.starts_with("cuMemAlloc") ||
         name.starts_with("cuMemFree") || name.starts_with("cuMemHost") ||
         name.starts_with("cuModule") || name.ends_with("Create") || name.ends_with("Destroy");
}

// What was called since `begin`, none of it blocking.
std::vector<std::string> fast_calls(const DriverDouble& the, std::size_t begin) {
  std::vector<std::string> names = the.names();
  names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(begin));
  CHECK(std::none_of(names.begin(), names.end(), blocks_the_host));
  return names;
}

TEST_CASE("a hold stops its stream until it is released, without blocking the host") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  Holds holds(gpu.driver, 4, place);
  const std::size_t begin = gpu.names().size();
  const auto ticket = holds.hold(stream.get(), place);
  REQUIRE(ticket);
  CHECK(fast_calls(gpu, begin) == std::vector<std::string>{"cuStreamIsCapturing",
                                                           "cuStreamWaitValue32",
                                                           "cuStreamWriteValue32"});
  gpu.advance(1'000'000'000);
  CHECK(gpu.pending(stream.get()) == 2);
  CHECK(!holds.passed(*ticket));
  CHECK(holds.in_use() == 1);
  const std::size_t before = gpu.names().size();
  holds.release(*ticket);
  CHECK(gpu.names().size() == before);  // a store, no call
  CHECK(gpu.pending(stream.get()) == 0);
  CHECK(holds.passed(*ticket));
  CHECK(holds.in_use() == 0);
  holds.release(*ticket);  // once more changes nothing
}

TEST_CASE("slots are used again, and an old ticket releases no later hold") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  Holds holds(gpu.driver, 1, place);
  std::optional<Holds::Ticket> last;
  for (int i = 0; i < 1000; ++i) {
    const auto ticket = holds.hold(stream.get(), place);
    REQUIRE(ticket);
    if (last) holds.release(*last);
    CHECK(gpu.pending(stream.get()) == 2);
    holds.release(*ticket);
    CHECK(gpu.pending(stream.get()) == 0);
    last = ticket;
  }
}

TEST_CASE("many holds of many streams are released in any order") {
  const Gpu gpu;
  Holds holds(gpu.driver, 300, place);
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(make_stream(gpu.driver, place));
  std::vector<Holds::Ticket> tickets;
  for (std::size_t i = 0; i < 300; ++i) {
    tickets.push_back(*holds.hold(streams[i % 3].get(), place));
  }
  CHECK_THROWS_WITH_AS(holds.hold(streams[0].get(), place),
                       doctest::Contains("all 300 holds are in use, rank 5, op 23"), DriverError);
  for (std::size_t i = 300; i > 1; --i) holds.release(tickets[i - 1]);
  CHECK(gpu.pending(streams[0].get()) == 200);  // its first hold still stands
  CHECK(gpu.pending(streams[1].get()) == 0);
  CHECK(gpu.pending(streams[2].get()) == 0);
  holds.release(tickets[0]);
  CHECK(gpu.pending(streams[0].get()) == 0);
  CHECK(holds.in_use() == 0);
}

TEST_CASE("a stream that is captured is not held, and nothing is done to it") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  Holds holds(gpu.driver, 1, place);
  const Kernels kernels(gpu.driver, image, place);
  Stamps stamps(gpu.driver, 1, stream.get(), place);
  gpu.capture(stream.get(), true);
  const std::size_t begin = gpu.names().size();
  CHECK(!holds.hold(stream.get(), place));
  CHECK(!holds.pace(stream.get(), kernels, {}, place));
  CHECK(!stamps.arrive(stream.get(), place));
  CHECK(fast_calls(gpu, begin) == std::vector<std::string>(3, "cuStreamIsCapturing"));
  gpu.capture(stream.get(), false);
  CHECK(holds.in_use() == 0);
}

TEST_CASE("the pacing kernel ends at its deadline, after its duration, or when it is told to") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  Holds holds(gpu.driver, 4, place);
  const Kernels kernels(gpu.driver, image, place);
  Pace pace;
  pace.grid = {24, 512};
  const auto held_for = [&](std::uint64_t ns, std::uint64_t then) {
    const auto ticket = holds.pace(stream.get(), kernels, pace, place);
    gpu.advance(ns);
    CHECK(gpu.pending(stream.get()) > 0);
    gpu.advance(then);
    CHECK(gpu.pending(stream.get()) == 0);
    CHECK(holds.passed(*ticket));
  };
  pace.deadline_ns = gpu.now() + 5000;
  held_for(4999, 1);
  pace.deadline_ns = no_deadline_ns;
  pace.duration_ns = 700;
  held_for(699, 1);
  pace.deadline_ns = gpu.now() + 100;
  held_for(99, 1);
  pace = {};
  const auto ticket = holds.pace(stream.get(), kernels, pace, place);
  gpu.advance(1'000'000'000);
  CHECK(!holds.passed(*ticket));
  holds.release(*ticket);
  CHECK(gpu.pending(stream.get()) == 0);
  const auto calls = gpu.calls();
  CHECK(std::any_of(calls.begin(), calls.end(), [](const std::string& call) {
    return call.starts_with("cuLaunchKernel prism_pace 24 1 1 512 1 1 0 ");
  }));
}

TEST_CASE("holds that end release their streams, whatever else stops them") {
  const Gpu gpu;
  const Stream free = make_stream(gpu.driver, place), stuck = make_stream(gpu.driver, place);
  const Mapped other(gpu.driver, 64, place);
  gpu.driver.call<Call::wait_value32>(place, stuck.get(), other.device(), 1U, wait_until_at_least);
  auto holds = std::make_unique<Holds>(gpu.driver, 2, place);
  holds->patience = std::chrono::milliseconds(20);
  std::optional<Holds::Ticket> last[] = {holds->hold(free.get(), place),
                                         holds->hold(stuck.get(), place)};
  REQUIRE(last[1]);
  const std::size_t open = gpu.open();
  holds.reset();
  CHECK(gpu.pending(free.get()) == 0);
  CHECK(gpu.open() == open);  // the words stay: `stuck` has not read them yet
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(other.host()), 1U, __ATOMIC_RELEASE);
  CHECK(gpu.pending(stuck.get()) == 0);
  const auto host = gpu.of_host();
  for (void* memory : host) {
    if (memory != other.host()) gpu.driver.attempt<Call::host_free>(memory);
  }
}

TEST_CASE("a release from another thread while streams are held") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  Holds holds(gpu.driver, 8, place);
  std::vector<Holds::Ticket> tickets;
  for (int i = 0; i < 8; ++i) tickets.push_back(*holds.hold(stream.get(), place));
  std::thread scheduler([&] {
    for (const Holds::Ticket& ticket : tickets) holds.release(ticket);
  });
  gpu.driver.call<Call::stream_synchronize>(place, stream.get());
  scheduler.join();
  CHECK(holds.in_use() == 0);
}

TEST_CASE("scratch moves as many bytes as it is told to") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  const Scratch scratch(gpu.driver, 1000, stream.get(), place);
  CHECK(scratch.bytes() == 1000);
  const std::size_t begin = gpu.names().size();
  scratch.move(stream.get(), 1234, place);
  scratch.move(stream.get(), 0, place);
  CHECK(fast_calls(gpu, begin) == std::vector<std::string>(3, "cuMemcpyDtoDAsync"));
  const std::string from = std::to_string(scratch.address());
  const std::string to = std::to_string(scratch.address() + 500);
  const auto calls = gpu.calls();
  for (const std::size_t i : {begin, begin + 1}) {
    CHECK(calls[i].starts_with("cuMemcpyDtoDAsync " + to + " " + from + " 500 "));
  }
  CHECK(calls[begin + 2].starts_with("cuMemcpyDtoDAsync " + to + " " + from + " 234 "));
}

TEST_CASE("stamps tell when ops arrive and end") {
  const Gpu gpu;
  const Stream stream = make_stream(gpu.driver, place);
  Holds holds(gpu.driver, 1, place);
  Stamps stamps(gpu.driver, 2, stream.get(), place);
  const std::uint64_t origin = gpu.now();
  for (int i = 0; i < 20; ++i) {  // the anchor moves several times
    gpu.advance(400'000'000);
    const std::uint64_t arrival = gpu.now();
    const std::size_t begin = gpu.names().size();
    const auto stamp = stamps.arrive(stream.get(), place);
    REQUIRE(stamp);
    const auto ticket = holds.hold(stream.get(), place);
    stamps.end(*stamp, stream.get(), place);
    fast_calls(gpu, begin);
    CHECK(stamps.has_arrived(*stamp));
    gpu.advance(250'000);
    CHECK(!stamps.has_ended(*stamp));
    CHECK(!stamps.take(*stamp, place));
    holds.release(*ticket);
    CHECK(gpu.pending(stream.get()) == 0);
    CHECK(stamps.has_ended(*stamp));
    const auto times = stamps.take(*stamp, place);
    REQUIRE(times);
    const auto expected = static_cast<std::int64_t>(arrival - origin);
    CHECK(std::abs(times->arrival_ns - expected) < 1000);
    CHECK(std::abs(times->end_ns - times->arrival_ns - 250'000) < 1000);
  }
  CHECK(stamps.arrive(stream.get(), place));
  CHECK(stamps.arrive(stream.get(), place));
  CHECK(!stamps.arrive(stream.get(), place));  // no room
  stamps.drop(0);
  CHECK(stamps.arrive(stream.get(), place));
}

TEST_CASE("an error of every call of holds, stamps and scratch leaves nothing taken or held") {
  const DriverDouble the;
  const auto everything = [&the] {
    const Context context(the.driver, 0, place);
    const Current current(the.driver, context, place);
    const Stream stream = make_stream(the.driver, place);
    const Kernels kernels(the.driver, image, place);
    Stamps stamps(the.driver, 1, stream.get(), place);
    const Scratch scratch(the.driver, 64, stream.get(), place);
    Holds holds(the.driver, 2, place);  // ends first: then nothing uses the others any more
    const auto stamp = stamps.arrive(stream.get(), place);
    const auto first = holds.hold(stream.get(), place);
    Pace pace;
    pace.duration_ns = 10;
    holds.pace(stream.get(), kernels, pace, place);
    scratch.move(stream.get(), 100, place);
    stamps.end(*stamp, stream.get(), place);
    holds.release(*first);
    the.driver.call<Call::stream_synchronize>(place, stream.get());
    const auto times = stamps.take(*stamp, place);
    CHECK(times.has_value());
  };
  const auto failures = the.fail_each(launch_failed, everything, [&](const std::string& name) {
    bool told = false;
    try {
      everything();
    } catch (const DriverError& error) {
      told = error.call.starts_with(name) && error.code == launch_failed && error.rank == 5 &&
             error.op == 23;
    }
    CHECK_MESSAGE(told, name);
    CHECK_MESSAGE(the.open() == 0, name);
  });
  CHECK(failures > 25);
}

}  // namespace
}  // namespace prism::device
