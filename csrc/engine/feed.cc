#include "engine/feed.h"

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
  asks_ = post.ask != Ask::nothing;
  if (asks_ || ends_block(op, open_.size()) || (open_.size() >= most_ops && !op.continues())) {
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
  return block;
}

}  // namespace prism::engine
