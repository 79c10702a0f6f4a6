#include "engine/recorded.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "engine/diagnosis.h"
#include "engine/text.h"

namespace prism {

std::uint64_t kernel_identity(std::string_view name, const KernelShape& shape) noexcept {
  return hash64(std::as_bytes(std::span(name)),
                hash64(std::as_bytes(std::span<const KernelShape, 1>(&shape, 1))));
}

std::uint64_t communicator_identity(std::string_view name,
                                    std::span<const std::uint32_t> members) noexcept {
  return hash64(std::as_bytes(std::span(name)), hash64(std::as_bytes(members)));
}

}  // namespace prism

namespace prism::engine {
namespace {

constexpr std::uint32_t unknown = UINT32_MAX;

bool has_kernel(OpKind kind) noexcept { return kind == OpKind::kernel; }

}  // namespace

Recorded::Recorded(const Graph& graph, std::uint32_t rank, std::span<const std::uint64_t> kernels,
                   OnDivergence on_divergence)
    : graph_(graph),
      kernels_(kernels),
      view_(graph.rank(rank)),
      program_(graph.program(view_.program)),
      on_divergence_(on_divergence) {
  for (const Binding& binding : view_.bindings) {
    const CommunicatorView communicator = graph.communicator(binding.communicator);
    identities_.push_back(communicator_identity(communicator.name, communicator.members));
  }
}

const Op* Recorded::expected() {
  for (;;) {
    for (; next_ < ops_.size() && ops_[next_].kind == OpKind::query; ++next_) ++recorded_asks_;
    if (next_ < ops_.size()) return &ops_[next_];
    if (block_ == program_.blocks.size()) return nullptr;
    ops_.clear();
    next_ = 0;
    graph_.read_block(program_.blocks[block_++], ops_);
  }
}

const Op* Recorded::due_mark(const Post& post) {
  const auto is_mark = [](const Op& op) {
    return op.kind == OpKind::mark && op.detail == static_cast<std::uint8_t>(MarkKind::iteration);
  };
  if (!post.ended && is_mark(post.op)) {
    if (put_in_) stop("it marks the end of an iteration, and has left out a mark before");
    marks_ = true;
  }
  // A rank that polls may mark yet.
  if (marks_ || !left_.empty() || post.op.kind == OpKind::query) return nullptr;
  const Op* op = expected();
  if (op == nullptr || !is_mark(*op)) return nullptr;
  ++next_;
  ++at_;
  put_in_ = true;
  return op;
}

void Recorded::follow(Post& post) {
  if (!left_.empty()) {
    if (is_communication(post.op.kind)) post.op.ref = slot_of(post);
    return;
  }
  if (post.ended) {
    if (const Op* op = expected()) diverge(post, op);
    return;
  }
  if (post.op.kind == OpKind::query) {
    ++asked_;
    return;
  }
  if (is_communication(post.op.kind)) post.op.ref = slot_of(post);
  const Op* op = expected();
  if (asked_ != recorded_asks_) first_odd_ = std::min(first_odd_, at_);
  if (op == nullptr || !same(post, *op)) return diverge(post, op);
  ++next_;
  ++at_;
}

bool Recorded::same(const Post& post, const Op& op) const {
  Op found = post.op;
  // Times follow from the rest; strings and kernels are numbered by each process on its own.
  found.host_ns = op.host_ns;
  found.duration_ns = op.duration_ns;
  found.flags = static_cast<std::uint8_t>((found.flags & ~Op::provenance_mask) |
                                          (op.flags & Op::provenance_mask));
  if (!is_communication(op.kind)) found.ref = op.ref;
  if (found != op) return false;
  if (!has_kernel(op.kind)) return true;
  return post.what == kernels_[op.ref];
}

std::optional<OddPolls> Recorded::odd_polls() const {
  if (first_odd_ == UINT64_MAX) return {};
  return OddPolls{view_.rank, asked_, recorded_asks_, first_odd_};
}

std::uint32_t Recorded::slot_of(const Post& post) {
  const std::uint32_t own = post.op.ref;
  if (own >= slots_.size()) slots_.resize(std::size_t{own} + 1, unknown);
  if (slots_[own] != unknown) return slots_[own];
  // Communicators of one name and one member list are told apart by who came first.
  for (std::uint32_t slot = 0; slot < identities_.size(); ++slot) {
    if (identities_[slot] != post.what) continue;
    if (std::find(slots_.begin(), slots_.end(), slot) != slots_.end()) continue;
    return slots_[own] = slot;
  }
  stop(cat("it calls ", name(post.op.kind), " of ", post.op.bytes,
           " bytes on a communicator that it did not record"));
}

std::string Recorded::describe(const Op& op) const {
  std::string text(name(op.kind));
  if (has_kernel(op.kind)) {
    text += cat(" '", graph_.kernel_name(op.ref), "'");
  } else if (is_communication(op.kind)) {
    text += cat(" of ", op.bytes, " bytes on communicator '",
                graph_.communicator(view_.bindings[op.ref].communicator).name, "'");
  } else if (op.bytes != 0) {
    text += cat(" of ", op.bytes, " bytes");
  }
  return cat(text, " on stream ", op.stream);
}

std::string Recorded::describe(const Post& post) const {
  if (!has_kernel(post.op.kind)) return describe(post.op);
  const auto at = std::find(kernels_.begin(), kernels_.end(), post.what);
  if (at != kernels_.end()) {
    Op op = post.op;
    op.ref = static_cast<std::uint32_t>(at - kernels_.begin());
    return describe(op);
  }
  return cat("a kernel that the graph does not hold, on stream ", post.op.stream);
}

std::string Recorded::difference(const Post& post, const Op* op) const {
  std::string text =
      op == nullptr ? std::string("nothing more is recorded") : cat("recorded ", describe(*op));
  text += post.ended ? std::string(", but its program has ended") : cat(", found ", describe(post));
  if (block_ != 0 && block_ - 1 < program_.call_sites.size()) {
    const std::string_view site = graph_.string(program_.call_sites[block_ - 1]);
    if (!site.empty()) text += cat("; the next recorded communication is at ", site);
  }
  return text;
}

void Recorded::diverge(const Post& post, const Op* op) {
  const std::string text = difference(post, op);
  if (on_divergence_ == OnDivergence::stop) stop(text);
  left_ = cat("rank ", view_.rank, " leaves its recorded program at op ", at_, ": ", text);
}

// After what follows from the difference, if there was one before.
void Recorded::stop(std::string_view difference) const {
  throw DivergenceError(
      cat(left_.empty() ? cat("rank ", view_.rank, " leaves its recorded program at op ", at_, ": ")
                        : cat(left_, "; then "),
          difference, advice()),
      view_.rank, at_);
}

std::string Recorded::advice() const {
  // An allocator that polls frees, and so asks the device, at other points.
  if (const auto odd = odd_polls()) {
    return cat("; it asked ", odd->asked, " times whether something was done before that, and ",
               odd->recorded, " times where it recorded, first before op ", odd->op,
               ": the answers depend on its peers, and so may what it does next");
  }
  if (view_.origin != RankOrigin::inferred) {
    return "; give the arguments that the graph was collected with, or collect again";
  }
  std::string text =
      "; the rank did not run when the graph was collected, it is inferred from its class";
  std::vector<std::uint32_t> ran;
  const std::uint32_t mine = graph_.rank_class(view_.program);
  for (const std::uint32_t rank : graph_.ranks()) {
    const RankView other = graph_.rank(rank);
    if (other.origin == RankOrigin::inferred) continue;
    if (graph_.rank_class(other.program) == mine) ran.push_back(rank);
  }
  if (!ran.empty()) text += cat(": run one of the class that did (", list_ranks(ran, 4), ")");
  return text + ", or collect with --ranks all";
}

}  // namespace prism::engine
