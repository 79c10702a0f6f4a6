// What an outside rank has posted, cut into blocks as the engine runs them. Each content is folded
// once, so that a long run costs no more memory than its different blocks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "engine/outside.h"
#include "engine/steps.h"

namespace prism::engine {

class Feed {
 public:
  struct Block {
    const Steps* steps = nullptr;
    std::uint64_t first_op = 0;  // of the rank's, from 0
    Post last;                   // what it ends with, for its ask
  };

  // When an op was posted, on the wall clock, and the host time it took.
  struct Stamp {
    std::int64_t posted_ns = 0, host_ns = 0;
  };

  // stamped: keeps the stamps of ops.
  Feed(bool folded, bool stamped, Contents& contents, KernelTimes* times)
      : folded_(folded), stamped_(stamped), contents_(contents), times_(times) {}

  // Slots of communication ops are those of the graph.
  void add(const Post& post);
  bool empty() const noexcept { return ready_.empty(); }
  Block take();
  // Those of the block that was taken last, if they are kept.
  std::span<const Stamp> stamps() const noexcept { return stamps_; }
  bool ended() const noexcept { return ended_; }
  // The rank waits to be told something, so nothing more will come until it is.
  bool asks() const noexcept { return asks_; }
  void told() noexcept { asks_ = false; }

 private:
  void close(const Post& last);

  const bool folded_, stamped_;
  bool ended_ = false, asks_ = false;
  Contents& contents_;
  KernelTimes* times_;
  std::vector<Op> open_;
  std::uint64_t ops_ = 0;
  std::deque<Block> ready_;
  std::vector<Stamp> stamps_;
  std::deque<Stamp> later_stamps_;
  std::unordered_map<Hash128, std::unique_ptr<Steps>, Hash128Hasher> known_;
};

}  // namespace prism::engine
