#include "engine/feed.h"

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace prism::engine {
namespace {

// Blocks are cut where those of a recorded program are, and where the rank asks: until it is told,
// nothing more comes. A rank that launches nothing for long is not kept waiting for its end.
constexpr std::size_t most_ops = 4096;

}  // namespace

void Feed::add(const Post& post) {
  PRISM_CHECK(!ended_ && !asks_);
  if (post.ended) {
    ended_ = true;
    if (!open_.empty()) close({});
    return;
  }
  Op op = post.op;
  if (times_ != nullptr) times_->apply(op);
  open_.push_back(op);
  if (stamped_) {
    const std::int64_t gap = op.kind == OpKind::host_gap ? op.duration_ns : 0;
    later_stamps_.push_back({post.posted_ns, op.host_ns + gap});
  }
  asks_ = post.ask != Ask::nothing;
  // On the wall clock it must be known at once that a rank has come to the end of an iteration.
  const bool iteration = stamped_ && op.kind == OpKind::mark;
  if (asks_ || iteration || ends_block(op, open_.size()) ||
      (open_.size() >= most_ops && !op.continues())) {
    close(post);
  }
}

void Feed::close(const Post& last) {
  const Hash128 content = hash128(std::as_bytes(std::span(open_)));
  auto& steps = known_[content];
  if (steps == nullptr) {
    steps = std::make_unique<Steps>(fold_ops(open_, folded_, contents_));
  }
  ready_.push_back({steps.get(), ops_, last});
  ops_ += open_.size();
  open_.clear();
}

Feed::Block Feed::take() {
  Block block = std::move(ready_.front());
  ready_.pop_front();
  if (stamped_) {
    const auto end = later_stamps_.begin() + std::ptrdiff_t{block.steps->facts.front().ops};
    stamps_.assign(later_stamps_.begin(), end);
    later_stamps_.erase(later_stamps_.begin(), end);
  }
  return block;
}

}  // namespace prism::engine
