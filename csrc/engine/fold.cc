#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "engine/steps.h"
#include "engine/text.h"

namespace prism::engine {
namespace {

class BlockFolder {
 public:
  BlockFolder(Steps& out, bool folded, Contents& contents)
      : out_(out), folded_(folded), contents_(contents) {}

  void block(std::uint32_t id, std::span<const Op> ops) {
    block_ = id;
    facts_ = {};
    facts_.ops = static_cast<std::uint32_t>(ops.size());
    pending_ns_ = 0;
    launch_open_ = false;
    for (at_ = 0; at_ < ops.size(); ++at_) add(ops[at_]);
    flush();
    if (pending_ns_ != 0) step(StepKind::host, 0);
    out_.facts[id] = facts_;
  }

  // Kernels and parts have stopped moving: points the steps at them.
  void tie() {
    for (std::size_t i = 0; i < out_.steps.size(); ++i) {
      Step& s = out_.steps[i];
      if (s.kind == StepKind::segment) s.kernels = out_.kernels.data() + first_[i];
      if (s.kind == StepKind::launch) s.parts = out_.parts.data() + first_[i];
    }
  }

 private:
  void add(const Op& op) {
    if (std::max(op.stream, op.event_stream) >= max_streams) {
      fail(op, "names a stream past number 511; streams count from 0 in order of first use");
    }
    if (op.event_stream >= out_.streams && needs_event(op)) {
      out_.streams = op.event_stream + std::uint32_t{1};
    }
    if (op.stream >= out_.streams) out_.streams = op.stream + std::uint32_t{1};
    facts_.total_ns += static_cast<double>(op.duration_ns) + static_cast<double>(op.host_ns);
    if (op.kind == OpKind::allocate || op.kind == OpKind::free) {
      facts_.total_bytes += static_cast<double>(op.bytes);
    }
    if (facts_.total_ns > too_much || facts_.total_bytes > too_much) {
      fail(op, "brings a sum of times or sizes past 64 bits");
    }
    pending_ns_ += op.host_ns;
    switch (op.kind) {
      case OpKind::host_gap:
        pending_ns_ += op.duration_ns;
        break;
      case OpKind::kernel:
      case OpKind::copy:
      case OpKind::set:
        kernel(op);
        break;
      case OpKind::event_record:
        ++facts_.records;
        step(StepKind::record, op.stream);
        break;
      case OpKind::event_wait:
        event(StepKind::wait, op);
        break;
      case OpKind::stream_sync:
        sync_stream(op.stream);
        break;
      case OpKind::event_sync:
        event(StepKind::sync_event, op);
        break;
      case OpKind::device_sync:
        step(StepKind::sync_device, 0);
        break;
      case OpKind::host_callback:
        facts_.callbacks = true;
        step(StepKind::callback, op.stream).time.busy_ns = op.duration_ns;
        break;
      case OpKind::allocate:
        facts_.live_bytes += op.bytes;
        facts_.peak_bytes = std::max(facts_.peak_bytes, facts_.live_bytes);
        break;
      case OpKind::free:
        facts_.live_bytes -= op.bytes;
        break;
      case OpKind::mark:
        if (static_cast<MarkKind>(op.detail) == MarkKind::iteration) {
          ++facts_.iterations;
          step(StepKind::iteration, 0);
        }
        break;
      case OpKind::query:
      case OpKind::graph_launch:
      case OpKind::reserve:
      case OpKind::release:
        break;
      default:
        PRISM_CHECK(is_communication(op.kind));  // the graph holds no other kinds
        communication(op);
    }
    if (!folded_ && pending_ns_ != 0 && !launch_open_) {
      flush();
      step(StepKind::host, 0);
    }
  }

  static bool needs_event(const Op& op) noexcept {
    return op.kind == OpKind::event_wait || op.kind == OpKind::event_sync;
  }

  void kernel(const Op& op) {
    if (segment_open_ && (!folded_ || segment_.stream != op.stream)) flush();
    if (!segment_open_) {
      segment_ = {};
      segment_.kind = StepKind::segment;
      segment_.stream = op.stream;
      segment_first_ = index(out_.kernels.size());
      segment_.op = static_cast<std::uint32_t>(at_);
      segment_.kernel = op.kind == OpKind::kernel;
      segment_open_ = true;
    }
    segment_.time.append(pending_ns_, op.duration_ns);
    out_.kernels.push_back({pending_ns_, op.duration_ns});
    pending_ns_ = 0;
    ++segment_.count;
    facts_.compute_streams |= bit(op.stream);
    facts_.compute_ns[static_cast<std::size_t>(op.provenance())] +=
        static_cast<double>(op.duration_ns);
    if (op.is_blocking()) sync_stream(op.stream);
  }

  void sync_stream(std::uint16_t stream) {
    if (!folded_ || !segment_open_ || segment_.stream != stream || segment_.time.busy_ns == 0) {
      step(StepKind::sync_stream, stream);
      return;
    }
    segment_.time.sync(pending_ns_);
    out_.kernels.push_back({pending_ns_, Kernel::sync});
    pending_ns_ = 0;
    ++segment_.count;
  }

  void event(StepKind kind, const Op& op) {
    if (op.peer == 0) fail(op, "names record 0 of a stream; 1 is the newest");
    if (out_.rings.size() <= op.event_stream) out_.rings.resize(op.event_stream + std::size_t{1});
    out_.rings[op.event_stream] = std::max(out_.rings[op.event_stream], op.peer);
    Step& s = step(kind, op.stream);
    s.event_stream = op.event_stream;
    s.count = op.peer;
  }

  void communication(const Op& op) {
    Part part;
    part.kind = op.kind;
    part.dtype = op.dtype;
    part.detail = op.detail;
    part.stream = op.stream;
    part.slot = op.ref;
    part.peer = op.peer;
    part.tag = op.tag;
    part.op = static_cast<std::uint32_t>(at_);
    part.bytes = op.bytes;
    part.duration_ns = op.duration_ns;
    part.content = contents_.id(part);
    if (!launch_open_) {
      flush();
      launch_ = {};
      launch_.kind = StepKind::launch;
      launch_.stream = op.stream;
      launch_first_ = index(out_.parts.size());
      launch_.op = part.op;
      launch_open_ = true;
      launch_blocks_ = false;
    }
    out_.parts.push_back(part);
    ++launch_.count;
    launch_blocks_ |= op.is_blocking();
    facts_.transfer_streams |= bit(op.stream);
    facts_.transfer_ns[static_cast<std::size_t>(op.provenance())] +=
        static_cast<double>(op.duration_ns);
    if (op.continues()) return;
    launch_open_ = false;
    share_parts();
    facts_.grouped |= launch_.count > 1;
    launch_.time.host_ns = pending_ns_;
    pending_ns_ = 0;
    push(launch_, launch_first_);
    if (!launch_blocks_) return;
    // All streams of a launch end together: waiting for one is waiting for the launch.
    step(StepKind::sync_stream, launch_.stream);
  }

  Step& step(StepKind kind, std::uint16_t stream) {
    flush();
    Step s;
    s.kind = kind;
    s.stream = stream;
    s.op = static_cast<std::uint32_t>(at_);
    s.time.host_ns = pending_ns_;
    pending_ns_ = 0;
    push(s, 0);
    return out_.steps.back();
  }

  void flush() {
    if (!segment_open_) return;
    push(segment_, segment_first_);
    segment_open_ = false;
  }

  void push(const Step& step, std::uint32_t first) {
    out_.steps.push_back(step);
    first_.push_back(first);
  }

  // Blocks often differ in their kernels only: equal launches share their parts, so that a replay
  // of many blocks touches little memory.
  void share_parts() {
    const auto parts = std::span(out_.parts).subspan(launch_first_);
    const std::uint64_t key = hash64(std::as_bytes(parts));
    const auto [found, added] = launches_.try_emplace(key, launch_first_);
    if (added) return;
    const auto known = std::span(out_.parts).subspan(found->second);
    if (known.size() < 2 * parts.size() || !std::equal(parts.begin(), parts.end(), known.begin())) {
      return;
    }
    out_.parts.resize(launch_first_);
    launch_first_ = found->second;
  }
  static std::uint32_t index(std::size_t n) {
    if (n > std::numeric_limits<std::uint32_t>::max()) {
      throw GraphError("the graph holds more than 4294967295 unique kernels or communication ops");
    }
    return static_cast<std::uint32_t>(n);
  }
  static std::uint64_t bit(std::uint16_t stream) noexcept {
    return std::uint64_t{1} << std::min<unsigned>(stream, 63);
  }
  [[noreturn]] void fail(const Op& op, const char* what) const {
    throw GraphError(cat("op ", at_, " (", name(op.kind), ") of block ", block_, " ", what,
                         "; the graph was built wrongly"));
  }

  static constexpr std::uint16_t max_streams = 512;  // bounds what replay keeps of a rank

  Steps& out_;
  const bool folded_;
  Contents& contents_;
  std::uint32_t block_ = 0;
  std::size_t at_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> launches_;  // hash of parts -> first
  BlockFacts facts_;
  std::int64_t pending_ns_ = 0;       // host time no step holds yet
  std::vector<std::uint32_t> first_;  // by step: into kernels or parts
  std::uint32_t segment_first_ = 0, launch_first_ = 0;
  Step segment_, launch_;
  bool segment_open_ = false, launch_open_ = false, launch_blocks_ = false;
};

}  // namespace

std::size_t Contents::KeyHash::operator()(const Key& k) const noexcept {
  return hash64(std::as_bytes(std::span<const Key, 1>(&k, 1)));
}

std::uint32_t Contents::id(const Part& part) {
  Key key;
  // A message's two sides have one content; its peer says who they are, not what moves.
  const auto kind =
      static_cast<std::uint64_t>(is_point_to_point(part.kind) ? OpKind::send : part.kind);
  const std::uint64_t reduction = reduces(part.kind) ? part.detail : 0;
  const std::uint64_t root = has_root(part.kind) ? part.peer : 0;
  key.what = kind << 56 | static_cast<std::uint64_t>(part.dtype) << 48 | reduction << 40 | root;
  key.bytes = part.bytes;
  return ids_.try_emplace(key, static_cast<std::uint32_t>(ids_.size())).first->second;
}

Steps fold(const Graph& graph, std::span<const std::uint8_t> wanted, bool folded,
           Contents& contents, KernelTimes* times) {
  Steps out;
  const auto blocks = static_cast<std::uint32_t>(graph.num_blocks());
  out.begin.reserve(std::size_t{blocks} + 1);
  out.facts.resize(blocks);
  BlockFolder folder(out, folded, contents);
  std::vector<Op> ops;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    out.begin.push_back(out.steps.size());
    if (!wanted.empty() && wanted[b] == 0) continue;
    ops.clear();
    graph.read_block(b, ops);
    if (times != nullptr) {
      for (Op& op : ops) times->apply(op);
    }
    folder.block(b, ops);
  }
  folder.tie();
  out.begin.push_back(out.steps.size());
  out.rings.resize(out.streams, 0);
  return out;
}

Steps fold_ops(std::span<const Op> ops, bool folded, Contents& contents) {
  Steps out;
  out.facts.resize(1);
  out.begin.push_back(0);
  BlockFolder folder(out, folded, contents);
  folder.block(0, ops);
  folder.tie();
  out.begin.push_back(out.steps.size());
  out.rings.resize(out.streams, 0);
  return out;
}

}  // namespace prism::engine
