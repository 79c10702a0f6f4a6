#include "graph/graph.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "engine/replay.h"
#include "graph/digest.h"
#include "graph/format.h"
#include "graph/statistics.h"
#include "graph_samples.h"

using namespace prism;
using namespace prism::samples;
using format::Section;

namespace {

using Bytes = std::vector<std::byte>;
using FieldOffset = std::size_t;

// Reads a graph wherever a reader could follow something.
std::uint64_t walk(const Graph& graph) {
  std::uint64_t sum = graph.metadata().size() + graph.iterations();
  for (const std::uint32_t r : graph.ranks()) {
    for (const Op& op : expanded(graph, r)) {
      if (op.kind == OpKind::kernel) {
        sum += graph.kernel_name(op.ref).size() + graph.kernel_shape(op.ref).grid[0];
      } else if (op.kind == OpKind::mark) {
        sum += graph.string(op.ref).size();
      } else if (is_communication(op.kind)) {
        const Binding binding = graph.rank(r).bindings[op.ref];
        const auto members = graph.communicator(binding.communicator).members;
        sum += members[(binding.position + op.peer) % members.size()];
      }
    }
    for (const std::uint32_t site : graph.program(graph.rank(r).program).call_sites) {
      sum += graph.string(site).size();
    }
  }
  for (std::uint32_t p = 0; p < graph.num_programs(); ++p) {
    sum += program_statistics(graph, p).ops + graph.rank_class(p);
  }
  return sum + digest(graph).low + communication_digest(graph).low;
}

template <class T>
T load(const Bytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void store(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

std::size_t entry_of(Section section) {
  return sizeof(format::Header) + static_cast<std::size_t>(section) * sizeof(format::SectionEntry);
}

std::size_t offset_of(const Bytes& bytes, Section section) {
  return load<std::uint64_t>(bytes, entry_of(section) + 8);
}

std::size_t size_of_section(const Bytes& bytes, Section section) {
  return load<std::uint64_t>(bytes, entry_of(section) + 16);
}

// Makes the checksums right again, so that what they protect is looked at.
void seal(Bytes& bytes) {
  for (std::size_t i = 0; i < format::sections.size(); ++i) {
    const auto section = static_cast<Section>(i);
    const std::uint64_t from = offset_of(bytes, section);
    const std::uint64_t size = size_of_section(bytes, section);
    if (from > bytes.size() || size > bytes.size() - from) continue;
    store(bytes, entry_of(section) + 24, hash64(std::span(bytes).subspan(from, size)));
  }
  store(bytes, 24, std::uint64_t{0});
  store(bytes, 24, hash64(std::span(bytes).first(format::preamble_bytes)));
}

std::string error_of(const Bytes& bytes) {
  try {
    walk(Graph::from_bytes(bytes));
  } catch (const GraphFormatError& error) {
    return error.what();
  }
  return "";
}

// One value of a column replaced, checksums made right.
template <class T>
std::string error_with(Section section, std::size_t index, T value) {
  Bytes bytes = copy_of(ring());
  const std::size_t at = offset_of(bytes, section) + index * sizeof(T);
  REQUIRE(index * sizeof(T) < size_of_section(bytes, section));
  store(bytes, at, value);
  seal(bytes);
  return error_of(bytes);
}

// False: the engine refuses it. Whatever else it does is a fault.
bool replays(const Graph& graph) {
  for (const std::uint32_t rank : graph.ranks()) memory_curve(graph, rank);
  try {
    replay(graph, {});
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct TemporaryFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("prism_graph_test_" + std::to_string(::getpid()));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
};

}  // namespace

TEST_CASE("a saved graph opens with the same bytes") {
  const TemporaryFolder folder;
  const Graph graph = ring();
  graph.save(folder.path / "job.prism");
  CHECK(folder.files() == 1);
  const Graph opened = Graph::open(folder.path / "job.prism");
  CHECK(std::ranges::equal(opened.bytes(), graph.bytes()));
  CHECK(walk(opened) == walk(graph));
  opened.save(folder.path / "job.prism");  // over the file it is mapped from
  CHECK(walk(opened) == walk(Graph::open(folder.path / "job.prism")));
}

TEST_CASE("a save that fails leaves nothing behind") {
  const TemporaryFolder folder;
  const Graph graph = ring();
  std::filesystem::create_directory(folder.path / "taken");
  std::filesystem::create_directory(folder.path / "taken" / "inside");
  CHECK_THROWS_AS(graph.save(folder.path / "taken"), GraphError);
  CHECK_THROWS_AS(graph.save(folder.path / "missing" / "job.prism"), GraphError);
  CHECK(folder.files() == 1);
}

TEST_CASE("what cannot be opened is named") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(Graph::open(folder.path / "none.prism"), GraphError);
  CHECK_THROWS_AS(Graph::open(folder.path), GraphFormatError);
  std::ofstream(folder.path / "empty.prism").flush();
  CHECK_THROWS_AS(Graph::open(folder.path / "empty.prism"), GraphFormatError);
}

TEST_CASE("ids out of range are errors") {
  const Graph graph = ring();
  CHECK_THROWS_AS(graph.op(graph.num_ops()), GraphError);
  CHECK_THROWS_AS(graph.block_size(99), GraphError);
  CHECK_THROWS_AS(graph.program(99), GraphError);
  CHECK_THROWS_AS(graph.communicator(99), GraphError);
  CHECK_THROWS_AS(graph.kernel_name(99), GraphError);
  CHECK_THROWS_AS(graph.kernel_shape(99), GraphError);
  CHECK_THROWS_AS(graph.string(99), GraphError);
  std::vector<Op> out;
  CHECK_THROWS_AS(graph.read_block(99, out), GraphError);
}

TEST_CASE("a file cut at any length is refused") {
  const Bytes whole = copy_of(ring());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string error = error_of({whole.begin(), whole.begin() + std::ptrdiff_t(size)});
    CHECK_MESSAGE(!error.empty(), "cut at " << size);
  }
  Bytes longer = whole;
  longer.resize(whole.size() + 64);
  CHECK(contains(error_of(longer), "length of the file"));
}

TEST_CASE("a file with any byte changed is refused") {
  const Bytes whole = copy_of(ring());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
      Bytes bytes = whole;
      bytes[at] ^= flip;
      CHECK_MESSAGE(!error_of(bytes).empty(), "byte " << at);
    }
  }
}

TEST_CASE("a newer version says what to do") {
  Bytes bytes = copy_of(ring());
  store(bytes, 8, format::version + 1);
  CHECK(error_of(bytes) ==
        "graph bytes: format version 2 found, this prismcore reads up to version 1; upgrade "
        "prismcore, or collect the job again with this one");
}

TEST_CASE("lying counts are found before anything is allocated or followed") {
  for (const std::uint64_t lie : {std::uint64_t{1}, std::uint64_t{8}, std::uint64_t{1} << 40,
                                  ~std::uint64_t{0}, ~std::uint64_t{0} - 63}) {
    for (std::size_t i = 0; i < format::sections.size(); ++i) {
      for (const FieldOffset field : {8U, 16U}) {  // offset, bytes
        const auto section = static_cast<Section>(i);
        if (section == Section::metadata && field == 16 && lie < 64) continue;  // its own padding
        Bytes bytes = copy_of(ring());
        const std::size_t at = entry_of(section) + field;
        store(bytes, at, load<std::uint64_t>(bytes, at) + lie);
        seal(bytes);
        CHECK_MESSAGE(!error_of(bytes).empty(), format::sections[i].name);
      }
    }
  }
  Bytes bytes = copy_of(ring());
  store(bytes, 32, 0xffffffffU);  // world size
  seal(bytes);
  CHECK(contains(error_of(bytes), "world size 4294967295 found"));
}

TEST_CASE("every index a reader follows is checked behind right checksums") {
  using u8 = std::uint8_t;
  using u32 = std::uint32_t;
  using u64 = std::uint64_t;
  using i64 = std::int64_t;
  CHECK(contains(error_with(Section::op_kind, 0, u8{77}), "kind 77"));
  CHECK(contains(error_with(Section::op_flags, 0, u8{0x40}), "unknown flags"));
  CHECK(contains(error_with(Section::op_flags, 0, u8{0x04}), "grouped launch"));
  CHECK(contains(error_with(Section::op_dtype, 0, u8{99}), "dtype"));
  CHECK(contains(error_with(Section::op_ref, 0, u32{7}), "kernel id 7"));
  CHECK(contains(error_with(Section::op_ref, 3, u32{0xfffffff0U}), "communicator slot"));
  CHECK(contains(error_with(Section::op_peer, 1, u32{4}), "position 4"));
  CHECK(contains(error_with(Section::op_peer, 1, u32{0xffffffffU}), "position 4294967294"));
  CHECK(contains(error_with(Section::op_duration_ns, 0, i64{-1}), "duration_ns -1"));
  CHECK(contains(error_with(Section::op_bytes, 0, INT64_MIN), "bytes"));
  CHECK(contains(error_with(Section::op_flags, 1, u8{0}), "closes a block before"));
  CHECK(contains(error_with(Section::block_offsets, 0, u64{1}), "block_offsets"));
  CHECK(contains(error_with(Section::block_offsets, 1, u64{0}), "block_offsets"));
  CHECK(contains(error_with(Section::block_offsets, 1, ~u64{0}), "block_offsets"));
  CHECK(contains(error_with(Section::program_offsets, 1, ~u64{0} - 2), "program_offsets"));
  CHECK(contains(error_with(Section::program_blocks, 0, u32{99}), "program_blocks[0]: 99"));
  CHECK(contains(error_with(Section::program_blocks, 0, u32{3}), "last block"));
  CHECK(contains(error_with(Section::program_call_sites, 0, u32{99}), "program_call_sites[0]"));
  CHECK(contains(error_with(Section::rank_ids, 0, u32{2}), "rank 2"));
  CHECK(contains(error_with(Section::rank_ids, 3, u32{4}), "rank_ids[3]: 4"));
  CHECK(contains(error_with(Section::rank_ids, 3, u32{2}), "rising"));
  CHECK(contains(error_with(Section::rank_programs, 1, u32{2}), "rank_programs[1]"));
  CHECK(contains(error_with(Section::rank_origins, 1, u8{3}), "rank_origins[1]"));
  CHECK(contains(error_with(Section::binding_offsets, 1, u64{9}), "binding_offsets"));
  CHECK(contains(error_with(Section::binding_offsets, 1, u64{1}), "slot"));
  CHECK(contains(error_with(Section::bindings, 0, Binding{5, 0}), "bindings[0]: 5"));
  CHECK(contains(error_with(Section::bindings, 0, Binding{0, 9}), "where the rank is not"));
  CHECK(contains(error_with(Section::bindings, 0, Binding{0, 1}), "where the rank is not"));
  CHECK(contains(error_with(Section::bindings, 1, Binding{0, 0}), "slots 0 and 1 are both"));
  CHECK(contains(error_with(Section::communicator_names, 0, u32{99}), "communicator_names[0]"));
  CHECK(contains(error_with(Section::communicator_offsets, 1, u64{0}), "communicator_offsets"));
  CHECK(contains(error_with(Section::communicator_members, 0, u32{4}), "communicator_members[0]"));
  CHECK(contains(error_with(Section::communicator_members, 1, u32{0}), "names a rank twice"));
  CHECK(contains(error_with(Section::kernel_names, 0, u32{99}), "kernel_names[0]"));
  CHECK(contains(error_with(Section::kernel_shapes, 4, i64{-1}), "kernel_shapes[0]"));
  CHECK(contains(error_with(Section::string_offsets, 1, u64{1}), "string 0"));
  CHECK(contains(error_with(Section::string_offsets, 2, ~u64{0}), "string_offsets"));
  Bytes bytes = copy_of(ring());
  store(bytes, 36, u32{1});
  seal(bytes);
  CHECK(contains(error_of(bytes), "iterations: 1 found in the header, 2 in the programs"));
}

TEST_CASE("iteration marks are counted past 32 bits when blocks repeat") {
  // 2^16 marks in one block, 2^16 times.
  constexpr std::uint32_t many = 1U << 16;
  GraphBuilder builder(2);
  std::vector<Op> ops(many, mark(MarkKind::iteration, 0));
  ops.push_back(collective(OpKind::all_reduce, 0, 8));
  std::vector<Binding> bindings;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    bindings.push_back({builder.communicator("own", std::vector<std::uint32_t>{rank}), 0});
  }
  builder.set_rank(0, ops, std::span(bindings).first(1));
  const std::vector<std::uint32_t> program(many, builder.program_of(0)[0]);
  const auto infer = [&](std::size_t blocks) {
    builder.infer_program(1, std::span(program).first(blocks), {}, std::span(bindings).last(1), {});
  };
  CHECK_THROWS_AS(infer(many), GraphError);
  infer(many - 1);
  const Graph graph = builder.finish();
  CHECK(graph.iterations() == many * (many - 1));
  CHECK(reread(graph).iterations() == many * (many - 1));
  CHECK_THROWS_AS(replay(graph, {}), GraphError);  // a row for each mark would not fit in memory
}

TEST_CASE("random damage behind right checksums never leads astray") {
  const Bytes whole = copy_of(ring());
  std::mt19937_64 random(7);
  int refused = 0, replayed = 0;
  for (int i = 0; i < 4000; ++i) {
    Bytes bytes = whole;
    for (std::uint64_t n = 0; n < 1 + random() % 3; ++n) {
      const std::size_t at =
          format::preamble_bytes + random() % (whole.size() - format::preamble_bytes);
      const std::uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff, static_cast<std::uint8_t>(random())};
      bytes[at] = std::byte{values[random() % std::size(values)]};
    }
    seal(bytes);
    if (!error_of(bytes).empty()) {
      ++refused;  // else walk() went through all of it
    } else {
      replayed += replays(Graph::from_bytes(bytes)) ? 1 : 0;
    }
  }
  CHECK(refused > 1000);
  CHECK(replayed > 100);
}

TEST_CASE("many threads may read one graph") {
  const Graph graph = ring();
  const std::uint64_t expected = walk(reread(graph));  // what is found when asked for, not yet here
  std::vector<std::uint64_t> sums(4);
  std::vector<std::thread> threads;
  for (std::uint64_t& sum : sums) {
    threads.emplace_back([&graph, &sum] { sum = walk(Graph(graph)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::uint64_t sum : sums) CHECK(sum == expected);
}

TEST_CASE("the layout of the file is frozen") {
  const Bytes bytes = copy_of(ring());
  std::string begin;
  for (std::size_t i = 0; i < 16; ++i) {
    constexpr char digits[] = "0123456789abcdef";
    begin += digits[std::to_integer<unsigned>(bytes[i]) >> 4];
    begin += digits[std::to_integer<unsigned>(bytes[i]) & 15];
  }
  CHECK(begin == "89505249534d0d0a010000001e000000");
  CHECK(bytes.size() == 3520);
  CHECK(hash128(bytes).hex() == "d98558a201eee2fdac61127403d4c661");
  CHECK(digest(ring()).hex() == "77f6791c0879d581ae87880b5f4d10a2");
  CHECK(communication_digest(ring()).hex() == "751ccb976e7a66b89c533f6a54c47d8b");
}
