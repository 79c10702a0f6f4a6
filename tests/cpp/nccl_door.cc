#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "intercept/nccl.h"
#include "vgpu/device/runtime.h"
#include "vgpu/device/session.h"

using namespace prism;
namespace nccl = prism::abi::nccl;
using intercept::Handle;
using vgpu::Runtime;
using vgpu::Session;

namespace {

constexpr int int32 = 2, int64 = 4, float16 = 6, float32 = 7, e4m3 = 10;
constexpr int sum = 0, prod = 1, avg = 4;

// A rank of a job on the virtual GPU, from its start to its graph.
class Rank {
 public:
  Rank(std::uint32_t rank, std::uint32_t world) {
    vgpu::SessionOptions options = Session::get().options();
    options.rank = rank;
    options.world_size = world;
    options.cluster.gpus_per_node = 8;
    Session::get().start(options);
    nccl::UniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == nccl::success);
    REQUIRE(ncclCommInitRank(&world_, static_cast<int>(world), id, static_cast<int>(rank)) ==
            nccl::success);
    rank_ = rank;
  }
  ~Rank() {
    for (void* address : buffers_) Runtime::get().free(address);
    ncclCommDestroy(world_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Handle world() const { return world_; }

  template <class T>
  T* device(std::vector<T> values) {
    void* address = Runtime::get().allocate(bytes_of(values), 0);
    REQUIRE(address != nullptr);
    buffers_.push_back(address);
    Runtime::get().copy(nullptr, {.to = address, .from = values.data(), .width = bytes_of(values)},
                        true);
    return static_cast<T*>(address);
  }

  template <class T>
  std::vector<T> read(const T* address, std::size_t count) {
    std::vector<T> values(count);
    Session::get().drain_all();
    Runtime::get().copy(nullptr, {.to = values.data(), .from = address, .width = bytes_of(values)},
                        true);
    return values;
  }

  // Every communication op of the rank, in order.
  std::vector<Op> communication() {
    for (const vgpu::OpenCommunicator& open : Session::get().communicators()) {
      if (open.size == Session::get().options().world_size) continue;  // known
      std::vector<std::uint32_t> members(open.size);  // any ranks, this one at its place
      for (std::uint32_t i = 0; i < open.size; ++i) {
        members[i] = (rank_ + i + open.size - open.position) % open.size;
      }
      Session::get().set_members(open.slot, members);
    }
    const Graph graph = Session::get().finish({}, "{}");
    std::vector<Op> ops;
    for (const std::uint32_t block : graph.program(graph.rank(rank_).program).blocks) {
      graph.read_block(block, ops);
    }
    std::erase_if(ops, [](const Op& op) { return !is_communication(op.kind); });
    return ops;
  }

 private:
  template <class T>
  static std::int64_t bytes_of(const std::vector<T>& values) {
    return static_cast<std::int64_t>(values.size() * sizeof(T));
  }

  Handle world_ = nullptr;
  std::uint32_t rank_ = 0;
  std::vector<void*> buffers_;
};

std::string_view last_error() { return ncclGetLastError(nullptr); }
bool says(std::string_view part) { return last_error().find(part) != std::string_view::npos; }

}  // namespace

TEST_CASE("an all-reduce is recorded and leaves n times the own data") {
  Rank rank(5, 8);
  float* data = rank.device<float>({1, -2, 0.5F, 1024});
  CHECK(ncclAllReduce(data, data, 4, float32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 4) == std::vector<float>{8, -16, 4, 8192});
  const auto ops = rank.communication();
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].kind == OpKind::all_reduce);
  CHECK(ops[0].dtype == DataType::float32);
  CHECK(ops[0].detail == static_cast<std::uint8_t>(Reduction::sum));
  CHECK(ops[0].bytes == 16);
  CHECK(closes_block(ops[0]));
  CHECK(ops[0].duration_ns > 0);
}

TEST_CASE("payloads follow the uniform contract") {
  Rank rank(2, 4);
  auto* chunks = rank.device<std::int32_t>({10, 11, 12, 13});
  auto* out = rank.device<std::int32_t>({-1, -1, -1, -1});

  CHECK(ncclAllGather(chunks + 1, out, 1, int32, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{11, 11, 11, 11});
  CHECK(ncclReduceScatter(chunks, out, 1, int32, prod, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 2) == std::vector<std::int32_t>{12 * 12 * 12 * 12, 11});  // position 2
  CHECK(ncclAlltoAll(chunks, out, 1, int32, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{10, 11, 12, 13});
  CHECK(ncclScatter(nullptr, out, 2, int32, 0, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{0, 0, 12, 13});
  CHECK(ncclBroadcast(nullptr, chunks, 4, int32, 1, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(chunks, 4) == std::vector<std::int32_t>{10, 11, 12, 13});
  CHECK(ncclBroadcast(chunks, out, 4, int32, 2, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{10, 11, 12, 13});
  CHECK(ncclGather(chunks + 3, out, 1, int32, 2, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{13, 13, 13, 13});
  CHECK(ncclReduce(chunks, out, 4, int32, avg, 0, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{13, 13, 13, 13});  // not the root
  CHECK(ncclReduce(chunks, out, 4, int32, avg, 2, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(out, 4) == std::vector<std::int32_t>{10, 11, 12, 13});

  std::vector<std::int64_t> bytes;
  std::vector<OpKind> kinds;
  for (const Op& op : rank.communication()) {
    kinds.push_back(op.kind);
    bytes.push_back(op.bytes);
  }
  CHECK(kinds == std::vector{OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all,
                             OpKind::scatter, OpKind::broadcast, OpKind::broadcast, OpKind::gather,
                             OpKind::reduce, OpKind::reduce});
  CHECK(bytes == std::vector<std::int64_t>{16, 16, 16, 32, 16, 16, 16, 16, 16});
}

TEST_CASE("an all-gather in place") {
  Rank rank(1, 3);
  auto* data = rank.device<std::int32_t>({7, 8, 9, 10, 11, 12});
  CHECK(ncclAllGather(data + 2, data, 2, int32, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 6) == std::vector<std::int32_t>{9, 10, 9, 10, 9, 10});
}

TEST_CASE("three all-gathers in nested groups are one launch of three parts") {
  Rank rank(0, 4);
  float* data = rank.device(std::vector<float>(64, 1.0F));
  ncclGroupStart();
  CHECK(ncclAllGather(data, data + 4, 1, float32, rank.world(), nullptr) == nccl::success);
  ncclGroupStart();
  CHECK(ncclAllGather(data, data + 8, 2, float32, rank.world(), nullptr) == nccl::success);
  CHECK(ncclGroupEnd() == nccl::success);
  CHECK(ncclAllGather(data, data + 16, 3, float32, rank.world(), nullptr) == nccl::success);
  CHECK(ncclGroupEnd() == nccl::success);
  const auto ops = rank.communication();
  REQUIRE(ops.size() == 3);
  CHECK(ops[0].continues());
  CHECK(ops[1].continues());
  CHECK_FALSE(ops[2].continues());
  CHECK(ops[0].bytes == 16);
  CHECK(ops[1].bytes == 32);
  CHECK(ops[2].bytes == 48);
}

TEST_CASE("a group over two communicators is two launches, in the order of first use") {
  Rank rank(0, 4);
  nccl::UniqueId id{};
  Handle other = nullptr;
  REQUIRE(ncclGetUniqueId(&id) == nccl::success);
  REQUIRE(ncclCommInitRank(&other, 2, id, 1) == nccl::success);
  float* data = rank.device(std::vector<float>(16, 1.0F));
  ncclGroupStart();
  ncclAllReduce(data, data, 1, float32, sum, other, nullptr);
  ncclAllReduce(data, data, 2, float32, sum, rank.world(), nullptr);
  ncclAllReduce(data, data, 3, float32, sum, other, nullptr);
  CHECK(ncclGroupEnd() == nccl::success);
  ncclCommDestroy(other);
  const auto ops = rank.communication();
  REQUIRE(ops.size() == 3);
  CHECK(ops[0].bytes == 4);
  CHECK(ops[1].bytes == 12);
  CHECK(ops[2].bytes == 8);
  CHECK(ops[0].continues());
  CHECK_FALSE(ops[1].continues());
  CHECK(ops[0].ref == ops[1].ref);
  CHECK(ops[0].ref != ops[2].ref);
}

TEST_CASE("a refused call fails its group, which launches nothing") {
  Rank rank(0, 4);
  float* data = rank.device<float>({1, 2});
  ncclGroupStart();
  CHECK(ncclAllReduce(data, data, 1, float32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(ncclSend(data, 1, float32, 4, rank.world(), nullptr) == nccl::invalid_argument);
  CHECK(ncclGroupEnd() == nccl::invalid_argument);
  CHECK(says("peer 4, expected 0 to 3"));
  CHECK(ncclGroupEnd() == nccl::invalid_usage);
  CHECK(rank.read(data, 2) == std::vector<float>{1, 2});
  ncclGroupStart();
  CHECK(ncclGroupEnd() == nccl::success);  // nothing is left over
  CHECK(rank.communication().empty());
}

TEST_CASE("messages name their peers relative to the rank, and receives read as zero") {
  Rank rank(3, 4);
  float* sent = rank.device<float>({1, 2});
  float* received = rank.device<float>({8, 9});
  ncclGroupStart();
  CHECK(ncclSend(sent, 2, float32, 0, rank.world(), nullptr) == nccl::success);
  CHECK(ncclRecv(received, 2, float32, 2, rank.world(), nullptr) == nccl::success);
  CHECK(ncclGroupEnd() == nccl::success);
  CHECK(rank.read(received, 2) == std::vector<float>{0, 0});
  const auto ops = rank.communication();
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].kind == OpKind::send);
  CHECK(ops[0].peer == 1);
  CHECK(ops[1].kind == OpKind::recv);
  CHECK(ops[1].peer == 3);
  CHECK(ops[0].continues());
}

TEST_CASE("an uneven all-to-all keeps the own chunks by position within the receives' sizes") {
  Rank rank(1, 3);
  auto* sent = rank.device<std::int64_t>({1, 2, 3, 4, 5, 6});      // 1, 3 and 2 elements
  auto* received = rank.device(std::vector<std::int64_t>(7, -1));  // 2, 3 and 1 elements, 1 spare
  const int sends[] = {1, 3, 2};
  const int receives[] = {2, 3, 1};
  ncclGroupStart();
  for (int peer = 0, from = 0, to = 0; peer < 3;
       from += sends[peer], to += receives[peer], ++peer) {
    const auto count = [](int n) { return static_cast<std::size_t>(n); };
    ncclSend(sent + from, count(sends[peer]), int64, peer, rank.world(), nullptr);
    ncclRecv(received + to, count(receives[peer]), int64, peer, rank.world(), nullptr);
  }
  CHECK(ncclGroupEnd() == nccl::success);
  CHECK(rank.read(received, 7) == std::vector<std::int64_t>{1, 1, 2, 3, 4, 5, -1});
}

TEST_CASE("receives from every other member, around the own place, are a gather") {
  Rank rank(1, 3);
  auto* data = rank.device<std::int32_t>({-1, -1, 7, 8, -1, -1, 9});
  const auto receive = [&](std::int32_t* to, int peer) {
    CHECK(ncclRecv(to, 2, int32, peer, rank.world(), nullptr) == nccl::success);
  };
  ncclGroupStart();
  receive(data, 0);
  receive(data + 4, 2);
  CHECK(ncclGroupEnd() == nccl::success);
  CHECK(rank.read(data, 7) == std::vector<std::int32_t>{7, 8, 7, 8, 7, 8, 9});

  auto* apart = rank.device<std::int32_t>({-1, -1, 7, 8, 5, -1, -1});
  ncclGroupStart();
  receive(apart, 0);
  receive(apart + 5, 2);
  CHECK(ncclGroupEnd() == nccl::success);
  CHECK(rank.read(apart, 7) == std::vector<std::int32_t>{0, 0, 7, 8, 5, 0, 0});
}

TEST_CASE("a pre-multiplied sum, with its scalar on the host and on the device") {
  Rank rank(0, 4);
  auto* data = rank.device<std::int32_t>({1, 2});
  auto* scalar = rank.device<std::int32_t>({10});
  const std::int32_t immediate = 3;
  int from_host = 0;
  int from_device = 0;
  REQUIRE(ncclRedOpCreatePreMulSum(&from_host, &immediate, int32, nccl::scalar_host_immediate,
                                   rank.world()) == nccl::success);
  REQUIRE(ncclRedOpCreatePreMulSum(&from_device, scalar, int32, nccl::scalar_device,
                                   rank.world()) == nccl::success);
  CHECK(from_host != from_device);
  CHECK(ncclAllReduce(data, data, 2, int32, from_host, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 2) == std::vector<std::int32_t>{12, 24});
  CHECK(ncclAllReduce(data, data, 2, int32, from_device, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 2) == std::vector<std::int32_t>{480, 960});
  CHECK(ncclAllReduce(data, data, 1, float32, from_host, rank.world(), nullptr) ==
        nccl::invalid_argument);
  CHECK(says("created for int32, the data are float32"));
  CHECK(ncclRedOpDestroy(from_host, rank.world()) == nccl::success);
  CHECK(ncclRedOpDestroy(from_host, rank.world()) == nccl::invalid_argument);
  CHECK(ncclAllReduce(data, data, 1, int32, from_host, rank.world(), nullptr) ==
        nccl::invalid_argument);
  CHECK(rank.communication()[0].detail == static_cast<std::uint8_t>(Reduction::premul_sum));
}

TEST_CASE("a payload above the limit is recorded and not moved") {
  Rank rank(0, 4);
  const std::size_t count = static_cast<std::size_t>(Session::real_bytes_limit) / 4 + 1;
  auto* data = rank.device(std::vector<std::int32_t>(4, 1));
  auto* large =
      static_cast<std::int32_t*>(Runtime::get().allocate(static_cast<std::int64_t>(count) * 4, 0));
  CHECK(ncclAllReduce(large, large, count, int32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(ncclAllReduce(data, data, 4, int32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 4) == std::vector<std::int32_t>(4, 4));
  Runtime::get().free(large);
  CHECK(rank.communication()[0].bytes == static_cast<std::int64_t>(count) * 4);
}

TEST_CASE("wrong arguments answer invalid_argument with a line that says what") {
  Rank rank(1, 4);
  float* data = rank.device<float>({1, 2});
  float host[2] = {};
  const Handle world = rank.world();
  const auto refuses = [&](nccl::Result result, std::string_view why) {
    CHECK(result == nccl::invalid_argument);
    CHECK_MESSAGE(says(why), last_error());
  };
  refuses(ncclAllReduce(data, data, 2, float32, sum, nullptr, nullptr), "communicator is null");
  refuses(ncclAllReduce(data, data, 2, float32, sum, host, nullptr), "never created");
  refuses(ncclAllReduce(nullptr, data, 2, float32, sum, world, nullptr), "send buffer is null");
  refuses(ncclAllReduce(data, host, 2, float32, sum, world, nullptr), "not device memory");
  refuses(ncclAllReduce(data, data, SIZE_MAX / 2, float32, sum, world, nullptr), "more bytes");
  refuses(ncclAllGather(data, data, SIZE_MAX / 8, float32, world, nullptr), "more bytes");
  refuses(ncclAllReduce(data, data, 2, 12, sum, world, nullptr), "data type 12, expected 0 to 11");
  refuses(ncclAllReduce(data, data, 2, float32, 5, world, nullptr), "reduction 5 is neither");
  refuses(ncclBroadcast(data, data, 2, float32, 4, world, nullptr), "root 4, expected 0 to 3");
  refuses(ncclRecv(data, 2, float32, -1, world, nullptr), "peer -1");
  CHECK(says("rank 1 of 4"));
  CHECK(says("ncclRecv"));
  CHECK(ncclAllReduce(nullptr, nullptr, 0, float32, sum, world, nullptr) == nccl::success);

  nccl::UniqueId id{};
  Handle made = nullptr;
  refuses(ncclCommInitRank(&made, 4, id, 4), "rank 4 of 4");
  refuses(ncclCommInitRank(&made, 0, id, 0), "rank 0 of 0");
  refuses(ncclCommInitRankScalable(&made, 4, 0, 0, &id, nullptr), "0 ids");
  refuses(ncclGetUniqueId(nullptr), "no place");
}

TEST_CASE("8-bit floats are refused where the device cannot reduce them, and may move") {
  Rank rank(0, 2);
  auto* data = rank.device<std::uint8_t>({0x38, 0x40});  // 1 and 2
  CHECK(ncclAllReduce(data, data, 2, e4m3, sum, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 2) == std::vector<std::uint8_t>{0x40, 0x48});
  vgpu::SessionOptions old = Session::get().options();
  vgpu::SessionOptions options = old;
  options.device.compute_major = 8;
  Session::get().start(options);
  Handle world = nullptr;
  REQUIRE(ncclCommInitRank(&world, 2, {}, 0) == nccl::success);
  CHECK(ncclAllReduce(data, data, 2, e4m3, sum, world, nullptr) == nccl::invalid_argument);
  CHECK(says("compute capability 9.0"));
  CHECK(ncclSend(data, 2, e4m3, 1, world, nullptr) == nccl::success);
  ncclCommDestroy(world);
  Session::get().start(old);
}

TEST_CASE("a split has the members that were announced for its colour") {
  Rank rank(5, 8);
  const std::uint32_t members[] = {1, 5, 7};
  REQUIRE(prism_nccl_announce_split(77, members, 3) == nccl::success);
  Handle made = nullptr;
  int answer = -1;
  CHECK(ncclCommSplit(rank.world(), 77, 1, &made, nullptr) == nccl::success);
  REQUIRE(made != nullptr);
  CHECK(ncclCommCount(made, &answer) == nccl::success);
  CHECK(answer == 3);
  CHECK(ncclCommUserRank(made, &answer) == nccl::success);
  CHECK(answer == 1);
  ncclCommDestroy(made);

  CHECK(ncclCommSplit(rank.world(), 77, 2, &made, nullptr) == nccl::invalid_usage);
  CHECK(made == nullptr);
  CHECK(says("asks for place 2 among the 3 ranks of colour 77"));
  CHECK(ncclCommSplit(rank.world(), 78, 0, &made, nullptr) == nccl::invalid_usage);
  CHECK(says("colour 78 is not known"));
  made = rank.world();
  CHECK(ncclCommSplit(rank.world(), nccl::split_no_color, 0, &made, nullptr) == nccl::success);
  CHECK(made == nullptr);

  const std::uint32_t others[] = {2, 3};
  REQUIRE(prism_nccl_announce_split(-1, others, 2) == nccl::success);  // of a split without us
  CHECK(ncclCommSplit(rank.world(), nccl::split_no_color, 0, &made, nullptr) == nccl::success);
  const std::uint32_t pair[] = {4, 5};
  REQUIRE(prism_nccl_announce_split(-1, pair, 2) == nccl::success);
  CHECK(ncclCommSplit(rank.world(), 123, 1, &made, nullptr) == nccl::success);
  CHECK(ncclCommCount(made, &answer) == nccl::success);
  CHECK(answer == 2);
  ncclCommDestroy(made);
}

TEST_CASE("a configuration is read no further than the caller declares") {
  Rank rank(0, 2);
  for (const std::size_t size :
       {offsetof(nccl::Config, blocking), offsetof(nccl::Config, name), sizeof(nccl::Config)}) {
    nccl::Config config;
    config.size = size;
    config.magic = nccl::config_magic;
    config.name = "DP5:6";
    const auto exact = std::make_unique<std::byte[]>(size);  // a sanitizer sees a read past it
    std::memcpy(exact.get(), &config, size);
    Handle made = nullptr;
    REQUIRE(ncclCommInitRankConfig(&made, 2, {}, 1, exact.get()) == nccl::success);
    const std::string name = Session::get().communicators().back().name;
    CHECK((name == "DP5:6") == (size == sizeof(nccl::Config)));
    CHECK_FALSE(name.empty());
    ncclCommDestroy(made);
  }
  nccl::Config wrong;
  wrong.size = sizeof wrong;
  Handle made = nullptr;
  CHECK(ncclCommInitRankConfig(&made, 2, {}, 1, &wrong) == nccl::invalid_argument);
  CHECK(says("NCCL_CONFIG_INITIALIZER"));
}

TEST_CASE("a communicator's life") {
  Rank rank(0, 2);
  float* data = rank.device<float>({1});
  Handle made = nullptr;
  nccl::Result state = nccl::internal_error;
  REQUIRE(ncclCommInitRank(&made, 2, {}, 1) == nccl::success);
  CHECK(ncclCommGetAsyncError(made, &state) == nccl::success);
  CHECK(state == nccl::success);
  const auto reduce = [&] { return ncclAllReduce(data, data, 1, float32, sum, made, nullptr); };
  CHECK(ncclCommSuspend(made, 1) == nccl::success);
  CHECK(reduce() == nccl::invalid_usage);
  CHECK(says("suspended"));
  CHECK(ncclCommResume(made) == nccl::success);
  CHECK(reduce() == nccl::success);
  CHECK(ncclCommRevoke(made, 0) == nccl::success);
  CHECK(reduce() == nccl::invalid_usage);
  CHECK(ncclCommFinalize(made) == nccl::invalid_usage);  // not after revoke
  CHECK(ncclCommAbort(made) == nccl::success);
  CHECK(reduce() == nccl::invalid_argument);
  CHECK(ncclCommDestroy(made) == nccl::invalid_argument);
  CHECK(ncclCommDestroy(nullptr) == nccl::success);
}

TEST_CASE("unique ids differ, and name their rank") {
  Rank rank(6, 8);
  nccl::UniqueId a{};
  nccl::UniqueId b{};
  CHECK(ncclGetUniqueId(&a) == nccl::success);
  CHECK(ncclGetUniqueId(&b) == nccl::success);
  CHECK(intercept::text(a) != intercept::text(b));
  CHECK(std::string(a.internal).find("rank 6") != std::string::npos);
}

TEST_CASE("a one-rank group keeps its data") {
  Rank rank(0, 1);
  float* data = rank.device<float>({3, 4});
  CHECK(ncclAllReduce(data, data, 2, float32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(ncclReduceScatter(data, data, 2, float32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(rank.read(data, 2) == std::vector<float>{3, 4});
  CHECK(rank.communication().size() == 2);
}

TEST_CASE("every thread has a group of its own, and handles are shared") {
  Rank rank(0, 4);
  constexpr int rounds = 200;
  const auto work = [&](float* data) {
    for (int i = 0; i < rounds; ++i) {
      Handle made = nullptr;
      CHECK(ncclCommInitRank(&made, 4, {}, 0) == nccl::success);
      ncclGroupStart();
      CHECK(ncclAllGather(data, data, 1, float32, made, nullptr) == nccl::success);
      CHECK(ncclAllReduce(data, data, 4, float32, avg, rank.world(), nullptr) == nccl::success);
      CHECK(ncclGroupEnd() == nccl::success);
      CHECK(ncclCommDestroy(made) == nccl::success);
    }
  };
  float* mine = rank.device<float>({1, 2, 3, 4});
  float* other = rank.device<float>({5, 6, 7, 8});
  std::thread second(work, other);
  work(mine);
  second.join();
  CHECK(rank.read(mine, 4) == std::vector<float>(4, 1));
  CHECK(rank.read(other, 4) == std::vector<float>(4, 5));
  const auto ops = rank.communication();
  CHECK(ops.size() == 4 * rounds);
  for (const Op& op : ops) CHECK_FALSE(op.continues());  // two communicators: two launches
}

TEST_CASE("a buffer that ends before the data do is refused, and nothing is recorded") {
  Rank rank(0, 4);
  auto* small = rank.device<float>({1, 2, 3, 4});  // 2 MiB: what an allocation takes at least
  constexpr std::size_t quarter = (2 << 20) / sizeof(float) / 4;
  CHECK(ncclAllGather(small, small, quarter, float32, rank.world(), nullptr) == nccl::success);
  CHECK(ncclAllGather(small, small, quarter + 1, float32, rank.world(), nullptr) ==
        nccl::invalid_argument);
  CHECK(std::string_view(ncclGetLastError(nullptr)).find("beyond its allocation") !=
        std::string_view::npos);
  CHECK(ncclReduceScatter(small, small, quarter + 1, float32, sum, rank.world(), nullptr) ==
        nccl::invalid_argument);
  CHECK(ncclRecv(small, 4 * quarter + 1, float32, 1, rank.world(), nullptr) ==
        nccl::invalid_argument);
  CHECK(rank.communication().size() == 1);
}

TEST_CASE("a collective of nothing is recorded, with any addresses, and takes no time") {
  Rank rank(0, 4);
  CHECK(ncclAllReduce(nullptr, nullptr, 0, float32, sum, rank.world(), nullptr) == nccl::success);
  CHECK(ncclAllGather(nullptr, nullptr, 0, float32, rank.world(), nullptr) == nccl::success);
  const auto ops = rank.communication();
  REQUIRE(ops.size() == 2);
  for (const Op& op : ops) CHECK((op.bytes == 0 && op.duration_ns == 0));
}
