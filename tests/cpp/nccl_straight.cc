// Communicators whose members all run: calls go on to the NCCL behind the door, here a double of
// it.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "intercept/device_port.h"
#include "intercept/nccl.h"
#include "intercept/real_library.h"
#include "vgpu/device/runtime.h"
#include "vgpu/device/session.h"

using namespace prism;
using namespace prism::intercept;
namespace nccl = prism::abi::nccl;
using vgpu::Runtime;
using vgpu::Session;

namespace {

constexpr int float32 = 7, sum = 0, avg = 4;

// The double, and what tests tell and ask it.
struct Double {
  explicit Double(const char* path) : handle(dlopen(path, RTLD_NOW)) {
    REQUIRE(handle != nullptr);
    library = RealLibrary::open(path);
    reset();
  }
  ~Double() { dlclose(handle); }
  Double(const Double&) = delete;
  Double& operator=(const Double&) = delete;

  template <class F>
  F* find(const char* name) const {
    return reinterpret_cast<F*>(dlsym(handle, name));
  }
  void reset() const { find<void()>("nccl_double_reset")(); }
  void fail(const char* name, int result, int after = 0) const {
    find<void(const char*, int, int)>("nccl_double_fail")(name, after, result);
  }
  void async_error(int error) const { find<void(int)>("nccl_double_async_error")(error); }
  std::size_t open() const { return find<std::size_t()>("nccl_double_open")(); }
  // Since the last question.
  std::vector<std::string> calls() const {
    const auto ask = find<std::size_t(const char**, std::size_t)>("nccl_double_calls");
    std::vector<const char*> texts(ask(nullptr, 0));
    ask(texts.data(), texts.size());
    std::vector<std::string> found(texts.begin(), texts.end());
    reset();
    return found;
  }

  void* handle;
  std::unique_ptr<const RealLibrary> library;
};

// The virtual GPU, behind which a real NCCL serves every communicator but those of this name.
class StraightDevice final : public DevicePort {
 public:
  StraightDevice(DevicePort& device, const RealLibrary& library)
      : device_(device), library_(library) {}

  std::uint32_t rank() const override { return device_.rank(); }
  std::uint32_t world_size() const override { return device_.world_size(); }
  std::int32_t compute_capability() const override { return device_.compute_capability(); }
  std::int32_t current_device() const override { return device_.current_device(); }
  bool is_device(const void* address) const override { return device_.is_device(address); }
  bool is_live(const void* address, std::int64_t bytes) const override {
    return device_.is_live(address, bytes);
  }
  void* allocate(std::int64_t bytes) override { return device_.allocate(bytes); }
  bool release(void* address) override { return device_.release(address); }
  std::uint32_t add_communicator(std::string_view name, std::uint32_t size, std::uint32_t position,
                                 std::string_view unique_id) override {
    return device_.add_communicator(name, size, position, unique_id);
  }
  const RealLibrary* real_nccl() const override { return &library_; }
  bool goes_straight(std::string_view name, std::uint32_t, std::uint32_t, std::string_view,
                     std::span<const std::uint32_t>) const override {
    return name != "mixed";
  }
  void end_communicator() override { device_.end_communicator(); }
  void set_members(std::uint32_t slot, std::span<const std::uint32_t> members) override {
    device_.set_members(slot, members);
  }
  void communicate(void* stream, std::span<Op> parts) override {
    device_.communicate(stream, parts);
  }
  void enqueue(void* stream, std::function<void()> move,
               std::span<const Touched> touches) override {
    ++moves;
    device_.enqueue(stream, std::move(move), touches);
  }
  void enqueue_step(void* stream, std::function<vgpu::Lacks()> step,
                    std::span<const Touched> touches) override {
    device_.enqueue_step(stream, std::move(step), touches);
  }
  void follow_all(void* stream) override { device_.follow_all(stream); }
  std::shared_ptr<const vgpu::Company> company(std::uint32_t slot) const override {
    return device_.company(slot);
  }
  std::vector<Touched> written(const void* address, std::int64_t bytes) const override {
    return device_.written(address, bytes);
  }
  void clear(void* address, std::int64_t bytes) override { device_.clear(address, bytes); }
  void note_written(const void* address, std::int64_t bytes) override {
    device_.note_written(address, bytes);
  }
  std::int64_t real_bytes_limit() const override { return device_.real_bytes_limit(); }

  int moves = 0;  // of bytes, by the door itself

 private:
  DevicePort& device_;
  const RealLibrary& library_;
};

// A rank of 4 on such a device.
struct Rank {
  explicit Rank(bool goes_straight = true, const char* path = PRISM_DOUBLE_NCCL)
      : real(path), device(device_port(), *real.library) {
    vgpu::SessionOptions options = Session::get().options();
    options.rank = 1;
    options.world_size = 4;
    options.cluster.gpus_per_node = 8;
    Session::get().start(options);
    if (goes_straight) use_device_port(&device);
    buffer = Runtime::get().allocate(1 << 16, 0);
    REQUIRE(buffer != nullptr);
  }
  ~Rank() {
    Runtime::get().free(buffer);
    use_device_port(nullptr);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Handle communicator(const char* name = nullptr, int size = 4, int rank = 1) {
    nccl::UniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == nccl::success);
    config.size = sizeof config;
    config.magic = nccl::config_magic;
    config.name = name;
    Handle made = nullptr;
    REQUIRE(ncclCommInitRankConfig(&made, size, id, rank, &config) == nccl::success);
    return made;
  }
  float* at(int element) const { return static_cast<float*>(buffer) + element; }

  // Every communication op recorded, in order.
  std::vector<Op> communication() {
    const Graph graph = Session::get().finish({}, "{}");
    std::vector<Op> ops;
    for (const std::uint32_t block : graph.program(graph.rank(1).program).blocks) {
      graph.read_block(block, ops);
    }
    std::erase_if(ops, [](const Op& op) { return !is_communication(op.kind); });
    return ops;
  }

  Double real;
  StraightDevice device;
  nccl::Config config;
  void* buffer = nullptr;
};

bool says(std::string_view part) {
  const std::string_view said = ncclGetLastError(nullptr);
  INFO(said);
  CHECK(said.find(part) != std::string_view::npos);
  return said.find(part) != std::string_view::npos;
}

std::string hex(const void* address) {
  std::ostringstream text;
  text << address;
  return text.str();
}

// Every collective and message once, each a call of its own.
std::vector<int> all_calls(const Rank& rank, Handle c, void* stream = nullptr) {
  float* const in = rank.at(0);
  float* const out = rank.at(4096);
  return {
      ncclAllReduce(in, out, 8, float32, avg, c, stream),
      ncclReduce(in, out, 8, float32, sum, 2, c, stream),
      ncclReduceScatter(in, out, 8, float32, sum, c, stream),
      ncclAllGather(in, out, 8, float32, c, stream),
      ncclAlltoAll(in, out, 8, float32, c, stream),
      ncclGather(in, out, 8, float32, 3, c, stream),
      ncclScatter(in, out, 8, float32, 3, c, stream),
      ncclBroadcast(in, out, 8, float32, 0, c, stream),
      ncclBcast(out, 8, float32, 0, c, stream),
      ncclSend(in, 8, float32, 2, c, stream),
      ncclRecv(out, 8, float32, 0, c, stream),
  };
}

}  // namespace

TEST_CASE("what a program asks of NCCL goes on as it was asked") {
  Rank rank;
  const Handle world = rank.communicator("default_pg:0");
  const std::string config = hex(&rank.config);
  CHECK(
      rank.real.calls() ==
      std::vector<std::string>{"GetUniqueId", "CommInitRankConfig 4 the double's id 1 " + config});
  CHECK(rank.real.open() == 1);
  void* const stream = rank.at(100);  // any address
  CHECK(all_calls(rank, world, stream) == std::vector<int>(11, nccl::success));
  const std::string in = hex(rank.at(0)), out = hex(rank.at(4096)), s = " 0x1000 " + hex(stream);
  const std::vector<std::string> expected{
      "AllReduce " + in + " " + out + " 8 7 4" + s,
      "Reduce " + in + " " + out + " 8 7 0 2" + s,
      "ReduceScatter " + in + " " + out + " 8 7 0" + s,
      "AllGather " + in + " " + out + " 8 7" + s,
      "AlltoAll " + in + " " + out + " 8 7" + s,
      "Gather " + in + " " + out + " 8 7 3" + s,
      "Scatter " + in + " " + out + " 8 7 3" + s,
      "Broadcast " + in + " " + out + " 8 7 0" + s,
      "Broadcast " + out + " " + out + " 8 7 0" + s,
      "Send " + in + " 8 7 2" + s,
      "Recv " + out + " 8 7 0" + s,
  };
  std::vector<std::string> calls = rank.real.calls();
  std::erase_if(calls, [](const std::string& call) { return call.starts_with("Group"); });
  CHECK(calls == expected);
  CHECK(rank.device.moves == 0);
  CHECK(ncclCommDestroy(world) == nccl::success);
  CHECK(rank.real.open() == 0);
}

TEST_CASE("the same ops are recorded, whoever moves the bytes") {
  std::vector<std::vector<Op>> found;
  for (const bool straight : {true, false}) {
    Rank rank(straight);
    const Handle world = rank.communicator("default_pg:0");
    CHECK(all_calls(rank, world) == std::vector<int>(11, nccl::success));
    CHECK(ncclGroupStart() == nccl::success);
    all_calls(rank, world);
    CHECK(ncclGroupEnd() == nccl::success);
    found.push_back(rank.communication());
    CHECK(ncclCommDestroy(world) == nccl::success);
  }
  REQUIRE(found[0].size() == 22);
  CHECK(found[0] == found[1]);
}

TEST_CASE("a group is one of NCCL's, over all communicators that go straight") {
  Rank rank;
  const Handle a = rank.communicator("a"), b = rank.communicator("b");
  const Handle mixed = rank.communicator("mixed");
  rank.real.calls();
  ncclGroupStart();
  ncclGroupStart();
  CHECK(ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, a, nullptr) == nccl::success);
  CHECK(ncclAllReduce(rank.at(64), rank.at(64), 8, float32, sum, mixed, nullptr) == nccl::success);
  ncclGroupEnd();
  CHECK(ncclSend(rank.at(0), 8, float32, 2, b, nullptr) == nccl::success);
  CHECK(ncclRecv(rank.at(0), 8, float32, 0, b, nullptr) == nccl::success);
  CHECK(rank.real.calls().empty());  // nothing before the group's end
  CHECK(ncclGroupEnd() == nccl::success);
  const auto calls = rank.real.calls();
  REQUIRE(calls.size() == 5);
  CHECK(calls[0] == "GroupStart");
  CHECK(calls[1].starts_with("AllReduce"));
  CHECK(calls[2].starts_with("Send"));
  CHECK(calls[3].starts_with("Recv"));
  CHECK(calls[4] == "GroupEnd");
  CHECK(rank.device.moves == 1);
  for (const Handle c : {a, b, mixed}) CHECK(ncclCommAbort(c) == nccl::success);
  CHECK(rank.real.open() == 0);
}

TEST_CASE("each failure of NCCL is told with its call and communicator, and leaves nothing open") {
  Rank rank;
  const std::vector<std::string> names{"AllReduce", "Reduce", "ReduceScatter", "AllGather",
                                       "AlltoAll",  "Gather", "Scatter",       "Broadcast",
                                       "Broadcast", "Send",   "Recv"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Handle world = rank.communicator("default_pg:0");
    rank.real.fail(names[i].c_str(), nccl::remote_error, names[i] == "Broadcast" && i == 8 ? 1 : 0);
    std::vector<int> expected(names.size(), nccl::success);
    expected[i] = nccl::remote_error;
    CHECK(all_calls(rank, world) == expected);
    says("nccl" + names[i] + " on default_pg:0 (rank 1 of 4): NCCL answered 6: " + names[i] +
         " was told to fail");
    CHECK(ncclCommAbort(world) == nccl::success);
    CHECK(rank.real.open() == 0);
  }
  for (const char* name : {"GroupStart", "GroupEnd"}) {
    const Handle world = rank.communicator("default_pg:0");
    rank.real.fail(name, nccl::system_error);
    ncclGroupStart();
    ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, world, nullptr);
    CHECK(ncclGroupEnd() == nccl::system_error);
    says(std::string("nccl") + name);
    CHECK(ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, world, nullptr) == nccl::success);
    CHECK(ncclCommDestroy(world) == nccl::success);
  }
  for (const char* name : {"GetUniqueId", "CommInitRankConfig"}) {
    rank.real.fail(name, nccl::system_error);
    nccl::UniqueId id{};
    Handle made = &rank;
    const auto asked = ncclGetUniqueId(&id);
    const auto opened = ncclCommInitRank(&made, 4, id, 1);
    CHECK((asked == nccl::system_error || opened == nccl::system_error));
    if (opened != nccl::success) CHECK(made == nullptr);
    if (made != nullptr) ncclCommDestroy(made);
    says("NCCL answered 2");
    CHECK(rank.real.open() == 0);
  }
}

TEST_CASE("a call that fails ends its group: nothing of it is launched behind the failure") {
  Rank rank;
  const Handle a = rank.communicator("a"), b = rank.communicator("b");
  rank.real.calls();
  rank.real.fail("AllReduce", nccl::invalid_usage);
  ncclGroupStart();
  ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, a, nullptr);
  ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, b, nullptr);
  CHECK(ncclGroupEnd() == nccl::invalid_usage);
  const auto calls = rank.real.calls();
  REQUIRE(calls.size() == 3);
  CHECK(calls[0] == "GroupStart");
  CHECK(calls[2] == "GroupEnd");
  CHECK(ncclCommDestroy(a) == nccl::success);
  CHECK(ncclCommDestroy(b) == nccl::success);
}

TEST_CASE("a communicator lives as NCCL's does") {
  Rank rank;
  const Handle world = rank.communicator("w");
  const auto step = [&](nccl::Result (*call)(Handle), const char* name) {
    rank.real.calls();
    CHECK(call(world) == nccl::success);
    CHECK(rank.real.calls() == std::vector<std::string>{std::string(name) + " 0x1000"});
  };
  rank.real.calls();
  nccl::Result error = nccl::success;
  rank.real.async_error(nccl::remote_error);
  CHECK(ncclCommGetAsyncError(world, &error) == nccl::success);
  CHECK(error == nccl::remote_error);
  rank.real.calls();
  CHECK(ncclCommSuspend(world, 1) == nccl::success);
  CHECK(rank.real.calls() == std::vector<std::string>{"CommSuspend 0x1000 1"});
  CHECK(ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, world, nullptr) ==
        nccl::invalid_usage);
  CHECK(rank.real.calls().empty());
  step(ncclCommResume, "CommResume");
  rank.real.fail("CommFinalize", nccl::system_error);
  CHECK(ncclCommFinalize(world) == nccl::system_error);  // and stays as it was
  step(ncclCommFinalize, "CommFinalize");
  step(ncclCommDestroy, "CommDestroy");
  CHECK(rank.real.open() == 0);
  CHECK(ncclCommDestroy(world) == nccl::invalid_argument);

  const Handle revoked = rank.communicator("r");
  CHECK(ncclCommRevoke(revoked, 0) == nccl::success);
  rank.real.fail("CommAbort", nccl::system_error);
  CHECK(ncclCommAbort(revoked) == nccl::system_error);
  CHECK(rank.real.open() == 0);
}

TEST_CASE("splits: every member of the parent takes part") {
  Rank rank;
  const Handle world = rank.communicator("w");
  const std::vector<std::uint32_t> members{1, 3};
  const auto announce = [&] {
    CHECK(prism_nccl_announce_split(7, members.data(), members.size()) == nccl::success);
  };
  announce();
  rank.real.calls();
  Handle half = nullptr;
  CHECK(ncclCommSplit(world, 7, 0, &half, nullptr) == nccl::success);
  CHECK(rank.real.calls() == std::vector<std::string>{"CommSplit 0x1000 7 0 0"});
  CHECK(rank.real.open() == 2);
  CHECK(ncclAllReduce(rank.at(0), rank.at(0), 8, float32, sum, half, nullptr) == nccl::success);
  CHECK(rank.real.calls()[1].ends_with(" 0x2000 0"));
  Handle none = &rank;
  CHECK(ncclCommSplit(world, nccl::split_no_color, 0, &none, nullptr) == nccl::success);
  CHECK(none == nullptr);
  CHECK(rank.real.calls() == std::vector<std::string>{"CommSplit 0x1000 -1 0 0"});
  announce();
  rank.real.fail("CommSplit", nccl::system_error);
  CHECK(ncclCommSplit(world, 7, 0, &none, nullptr) == nccl::system_error);
  CHECK(none == nullptr);
  CHECK(ncclCommDestroy(half) == nccl::success);
  CHECK(ncclCommDestroy(world) == nccl::success);
  CHECK(rank.real.open() == 0);
}

TEST_CASE("created reductions and registered buffers are NCCL's") {
  Rank rank;
  const Handle world = rank.communicator("w");
  const float scalar = 0.5F;
  int op = 0;
  rank.real.calls();
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, float32, nccl::scalar_host_immediate, world) ==
        nccl::success);
  CHECK(ncclAllReduce(rank.at(0), rank.at(0), 8, float32, op, world, nullptr) == nccl::success);
  const auto calls = rank.real.calls();
  CHECK(calls[0] == "RedOpCreatePreMulSum " + hex(&scalar) + " 7 1 0x1000");
  CHECK(calls[2] == "AllReduce " + hex(rank.at(0)) + " " + hex(rank.at(0)) + " 8 7 900 0x1000 0");
  CHECK(ncclRedOpDestroy(op, world) == nccl::success);
  CHECK(rank.real.calls() == std::vector<std::string>{"RedOpDestroy 900 0x1000"});
  CHECK(ncclRedOpDestroy(op, world) == nccl::invalid_argument);

  void* handle = nullptr;
  CHECK(ncclCommRegister(world, rank.buffer, 64, &handle) == nccl::success);
  CHECK(handle == static_cast<char*>(rank.buffer) + 1);
  CHECK(ncclCommDeregister(world, handle) == nccl::success);
  CHECK(rank.real.calls() ==
        std::vector<std::string>{"CommRegister 0x1000 " + hex(rank.buffer) + " 64",
                                 "CommDeregister 0x1000 " + hex(handle)});
  CHECK(ncclCommDestroy(world) == nccl::success);
}

TEST_CASE("an older NCCL lacks calls, which are refused by name when they are made") {
  Rank rank(true, PRISM_DOUBLE_NCCL_OLD);
  const Handle world = rank.communicator("w");
  std::vector<int> expected(11, nccl::success);
  expected[4] = nccl::invalid_usage;
  CHECK(all_calls(rank, world) == expected);
  says("ncclAlltoAll on w (rank 1 of 4): the NCCL that is loaded does not have it");
  CHECK(ncclCommDestroy(world) == nccl::success);
}

TEST_CASE("a library that is not there, or is none of NCCL's, is told") {
  CHECK_THROWS_WITH_AS(RealLibrary::open("/no/libnccl.so.2"),
                       doctest::Contains("NCCL (/no/libnccl.so.2) is not loaded"), NcclError);
  CHECK_THROWS_WITH_AS(RealLibrary::open("libm.so.6"), doctest::Contains("has no pncclGetUniqueId"),
                       NcclError);
  CHECK_THROWS_AS(RealLibrary::open(), NcclError);  // this process has none
}
