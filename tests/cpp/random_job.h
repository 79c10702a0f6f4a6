// Random jobs for tests of replay and emulation: ranks that meet in one global order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/outside.h"
#include "graph/builder.h"

namespace prism::test {

inline Op plain(OpKind kind, std::uint16_t stream, std::uint32_t host_ns) {
  Op op;
  op.kind = kind;
  op.stream = stream;
  op.host_ns = host_ns;
  return op;
}

inline std::string numbered(const char* what, std::size_t number) {
  std::string text(what);
  text += std::to_string(number);
  return text;
}

struct Job {
  std::vector<std::vector<Op>> ranks;
  Graph graph;
};

// All ranks, and each pair of them.
inline std::vector<std::vector<std::uint32_t>> groups_of(std::uint32_t world) {
  std::vector<std::vector<std::uint32_t>> groups{{}};
  for (std::uint32_t r = 0; r < world; ++r) groups[0].push_back(r);
  for (std::uint32_t first = 0; first + 1 < world; first += 2) groups.push_back({first, first + 1});
  return groups;
}

// Kernels are k0 to k2; a rank is in group 0 and in its pair's, in that order of slots.
inline Job job_of(std::vector<std::vector<Op>> ranks) {
  const auto world = static_cast<std::uint32_t>(ranks.size());
  const std::vector<std::vector<std::uint32_t>> groups = groups_of(world);
  GraphBuilder builder(world);
  for (int k = 0; k < 3; ++k) builder.kernel(numbered("k", static_cast<std::size_t>(k)), {});
  std::vector<std::uint32_t> ids;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    ids.push_back(builder.communicator(numbered("group", g), groups[g]));
  }
  for (std::uint32_t r = 0; r < world; ++r) {
    std::vector<Binding> bindings{{ids[0], r}};
    if (r / 2 + 1 < groups.size()) bindings.push_back({ids[1 + r / 2], r % 2});
    builder.set_rank(r, ranks[r], bindings);
  }
  Graph graph = builder.finish("{}");
  return {std::move(ranks), std::move(graph)};
}

// Ranks that meet in one global order, so that nothing can lock up, with local work between.
inline Job random_job(std::uint32_t seed, std::uint32_t world, int actions) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::vector<std::vector<std::uint32_t>> groups = groups_of(world);
  std::vector<std::vector<Op>> ranks(world);
  std::vector<std::vector<std::uint32_t>> records(world, std::vector<std::uint32_t>(3));
  const auto local = [&](std::uint32_t r) {
    const auto s = static_cast<std::uint16_t>(below(3));
    switch (below(8)) {
      case 0: {
        ranks[r].push_back(plain(OpKind::event_record, s, below(20)));
        ++records[r][s];
        break;
      }
      case 1: {
        Op op = plain(OpKind::event_wait, s, below(20));
        op.event_stream = static_cast<std::uint16_t>(below(3));
        if (records[r][op.event_stream] == 0) break;
        op.peer = 1 + below(std::min(records[r][op.event_stream], 4U));
        ranks[r].push_back(op);
        break;
      }
      case 2:
        if (below(3) == 0) ranks[r].push_back(plain(OpKind::stream_sync, s, 5));
        break;
      case 3:
        if (below(8) == 0) ranks[r].push_back(plain(OpKind::device_sync, 0, 5));
        break;
      default: {
        Op op = plain(OpKind::kernel, s, below(50));
        op.ref = below(3);
        op.duration_ns = below(200);
        ranks[r].push_back(op);
      }
    }
  };
  for (int a = 0; a < actions; ++a) {
    for (std::uint32_t r = 0; r < world; ++r) {
      for (std::uint32_t k = below(6); k-- > 0;) local(r);
    }
    const std::uint32_t g = below(static_cast<std::uint32_t>(groups.size()));
    const auto s = static_cast<std::uint16_t>(below(3));
    const bool message = below(2) == 0;
    for (const std::uint32_t r : groups[g]) {
      Op op = plain(message ? OpKind::send : OpKind::all_reduce, s, below(30));
      op.ref = g == 0 ? 0 : 1;
      op.bytes = 64 << below(6);
      op.dtype = DataType::float32;
      op.duration_ns = 100;
      if (!message) {
        op.bytes = 256;
        ranks[r].push_back(op);
        continue;
      }
      op.bytes = 512;
      op.peer = 1;
      op.flags |= Op::group_continues;
      ranks[r].push_back(op);
      op.kind = OpKind::recv;
      op.host_ns = 0;
      op.peer = static_cast<std::uint32_t>(groups[g].size()) - 1;
      op.flags = 0;
      ranks[r].push_back(op);
    }
    if (a % 8 == 7) {
      for (std::uint32_t r = 0; r < world; ++r) ranks[r].push_back(plain(OpKind::mark, 0, 0));
    }
  }
  return job_of(std::move(ranks));
}

// What the rank's process would post for an op of its own list.
inline Post post_of(const Job& job, std::uint32_t rank, const Op& op) {
  Post post;
  post.op = op;
  if (is_communication(op.kind)) {
    const Binding binding = job.graph.rank(rank).bindings[op.ref];
    const CommunicatorView c = job.graph.communicator(binding.communicator);
    post.what = communicator_identity(c.name, c.members);
  }
  if (op.kind == OpKind::kernel) post.what = kernel_identity(numbered("k", op.ref), {});
  if (is_host_sync(op.kind)) post.ask = Ask::host_time;
  return post;
}

}  // namespace prism::test
