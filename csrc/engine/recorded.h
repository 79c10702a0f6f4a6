// The program that an outside rank recorded, and where it is in it: names what the rank posts as
// the graph does, and finds the first op that differs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/outside.h"
#include "engine/replay.h"
#include "graph/graph.h"

namespace prism::engine {

class Recorded {
 public:
  // kernels: the identities of the graph's kernels, by id; they outlive this.
  Recorded(const Graph& graph, std::uint32_t rank, std::span<const std::uint64_t> kernels,
           OnDivergence on_divergence);

  // The iteration mark that stands in the record before `post`, where the rank makes none: a
  // collection finds iterations in what a program repeats if the program does not tell. nullptr:
  // there is none. To be fed before `post`, and passed over here.
  const Op* due_mark(const Post& post);
  // Its communicator becomes a slot of the graph's rank. The first op that is not the recorded one
  // is noted, or DivergenceError. Queries do not count: how often a program polls depends on its
  // peers.
  void follow(Post& post);
  // Where and how it left its recorded program; empty where it did not.
  const std::string& left() const noexcept { return left_; }
  [[noreturn]] void stop(std::string_view difference) const;
  std::uint64_t ops() const noexcept { return at_; }
  // Where the rank asked more or less often than it recorded.
  std::optional<OddPolls> odd_polls() const;

 private:
  const Op* expected();  // null: the recorded program is over
  bool same(const Post& post, const Op& op) const;
  std::uint32_t slot_of(const Post& post);
  std::string describe(const Op& op) const;
  std::string describe(const Post& post) const;
  std::string difference(const Post& post, const Op* op) const;
  void diverge(const Post& post, const Op* op);
  std::string advice() const;

  const Graph& graph_;
  std::span<const std::uint64_t> kernels_;
  RankView view_;
  ProgramView program_;
  std::vector<std::uint64_t> identities_;  // of the rank's communicators, by slot
  std::vector<std::uint32_t> slots_;       // of the rank's process -> of the graph
  std::size_t block_ = 0;                  // in the program
  std::vector<Op> ops_;                    // of that block
  std::size_t next_ = 0;
  std::uint64_t at_ = 0;                         // ops so far, queries left out
  bool marks_ = false;                           // the rank marks iterations itself
  bool put_in_ = false;                          // there was a due mark
  std::uint64_t asked_ = 0, recorded_asks_ = 0;  // queries so far
  std::uint64_t first_odd_ = UINT64_MAX;         // op before which their numbers first differed
  OnDivergence on_divergence_;
  std::string left_;
};

}  // namespace prism::engine
