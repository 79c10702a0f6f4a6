#include "intercept/joint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "intercept/combine.h"
#include "intercept/device_port.h"

namespace prism::intercept {
namespace {

// How many operations this rank has issued on a communicator. Members issue them in one order.
struct Issued {
  std::uint64_t collectives = 0;
  std::map<std::uint32_t, std::uint64_t> sent, received;  // by position of the other side
};

struct Numbers {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Issued> by_communicator;
};

Numbers& numbers() {
  static auto* numbers = new Numbers;
  return *numbers;
}

// Messages and collectives of a communicator are numbered apart.
std::uint64_t message_channel(std::uint64_t communicator) noexcept { return ~communicator; }

bool is_message(const Call& call) noexcept { return is_point_to_point(call.op.kind); }

void* at(void* base, std::int64_t bytes, std::uint32_t index) noexcept {
  return static_cast<std::byte*>(base) + bytes * std::int64_t{index};
}
const void* at(const void* base, std::int64_t bytes, std::uint32_t index) noexcept {
  return static_cast<const std::byte*>(base) + bytes * std::int64_t{index};
}

}  // namespace

JointLaunch::JointLaunch(std::shared_ptr<const vgpu::Company> company, std::span<const Call> calls,
                         std::function<void()> local)
    : company_(std::move(company)), local_(std::move(local)) {
  for (const Call& call : calls) {
    if (is_message(call)) {
      add_message(call);
      continue;
    }
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(numbers().mutex);
      number = numbers().by_communicator[company_->identity].collectives++;
    }
    add(call, number);
  }
  for (const Given& given : given_) {
    if (given.bytes > 0) touches_.push_back({given.from, given.bytes});
  }
  for (const Result& result : results_) {
    if (result.bytes > 0) touches_.push_back({result.to, result.bytes});
  }
}

void JointLaunch::add(const Call& call, std::uint64_t number) {
  const MessageKey key{company_->identity, number};
  switch (call.op.kind) {
    case OpKind::all_reduce:
    case OpKind::reduce:
    case OpKind::reduce_scatter:
      return reduce(call, key);
    case OpKind::all_gather:
    case OpKind::gather:
      return gather(call, key);
    case OpKind::all_to_all:
      return all_to_all(call, key);
    case OpKind::broadcast:
      return broadcast(call, key);
    case OpKind::scatter:
      return scatter(call, key);
    default:
      return;
  }
}

void JointLaunch::add_message(const Call& call) {
  const auto other = number_at(call.peer);
  if (!other || call.peer == company_->own) return;  // local
  const bool sends = call.effect == Effect::send;
  MessageKey key{message_channel(company_->identity), 0};
  {
    const std::lock_guard lock(numbers().mutex);
    Issued& issued = numbers().by_communicator[company_->identity];
    key.number = (sends ? issued.sent : issued.received)[call.peer]++;
  }
  if (sends) {
    leave(give(call.from, call.from_bytes), call.peer, key);
  } else {
    const std::size_t first = taken_.size();
    take(call.peer, key);
    result(call.to, call.to_bytes, first, 1);
  }
}

void JointLaunch::reduce(const Call& call, const MessageKey& key) {
  const auto give_reduced = [&](const void* from) {
    const std::size_t given = give(from, call.unit_bytes);
    if (call.reduction.op == Reduction::premul_sum) {
      given_[given].reduction = call.reduction;
      given_[given].device_scalar = call.device_scalar;
    }
    return given;
  };
  const bool scatters = call.op.kind == OpKind::reduce_scatter;
  std::size_t own = 0;
  if (scatters) {
    for (const std::uint32_t position : company_->positions) {
      const std::size_t given = give_reduced(at(call.in, call.unit_bytes, position));
      if (position == company_->own) own = given;
      leave(given, position, key);
    }
  } else if (call.op.kind == OpKind::reduce) {
    if (!number_at(call.op.peer)) return;
    own = give_reduced(call.in);
    leave(own, call.op.peer, key);
    if (call.op.peer != company_->own) return;
  } else {
    own = give_reduced(call.in);
    leave_to_others(own, key);
  }
  const std::size_t first = taken_.size();
  for (const std::uint32_t position : company_->positions) {
    position == company_->own ? take_own(own) : take(position, key, own);
  }
  result(call.out, call.unit_bytes, first, company_->positions.size());
  results_.back().reduction = call.reduction;
}

void JointLaunch::gather(const Call& call, const MessageKey& key) {
  const bool rooted = call.op.kind == OpKind::gather;
  if (rooted && !number_at(call.op.peer)) return;
  const std::size_t own = give(call.in, call.unit_bytes);
  if (rooted) {
    leave(own, call.op.peer, key);
    if (call.op.peer != company_->own) return;
  } else {
    leave_to_others(own, key);
  }
  const std::size_t first = taken_.size();
  for (const std::uint32_t position : company_->positions) {
    position == company_->own ? take_own(own) : take(position, key, own);
  }
  std::size_t next = 0;
  for (std::uint32_t position = 0; position < company_->size; ++position) {
    const bool runs = next < company_->positions.size() && company_->positions[next] == position;
    result(at(call.out, call.unit_bytes, position), call.unit_bytes, first + (runs ? next++ : 0),
           1);
  }
}

void JointLaunch::all_to_all(const Call& call, const MessageKey& key) {
  for (std::uint32_t position = 0; position < company_->size; ++position) {
    const std::size_t given = give(at(call.in, call.unit_bytes, position), call.unit_bytes);
    const std::size_t first = taken_.size();
    if (position != company_->own && number_at(position)) {
      leave(given, position, key);
      take(position, key, given);
    } else {
      take_own(given);
    }
    result(at(call.out, call.unit_bytes, position), call.unit_bytes, first, 1);
  }
}

void JointLaunch::broadcast(const Call& call, const MessageKey& key) {
  const bool runs = number_at(call.op.peer).has_value();
  const std::uint32_t root = runs ? call.op.peer : company_->positions.front();
  const std::size_t first = taken_.size();
  if (root == company_->own) {
    // A root that does not run holds what the first one that does has.
    const std::size_t own = give(runs ? call.in : call.out, call.unit_bytes);
    leave_to_others(own, key);
    take_own(own);
  } else {
    take(root, key, give(call.out, call.unit_bytes));
  }
  result(call.out, call.unit_bytes, first, 1);
}

void JointLaunch::scatter(const Call& call, const MessageKey& key) {
  const std::size_t first = taken_.size();
  if (!number_at(call.op.peer)) {
    result(call.out, call.unit_bytes, first, 0);  // only the root knows: zeros
    return;
  }
  if (call.op.peer != company_->own) {
    take(call.op.peer, key);
  } else {
    for (const std::uint32_t position : company_->positions) {
      const std::size_t given = give(at(call.in, call.unit_bytes, position), call.unit_bytes);
      if (position == company_->own) take_own(given);
      leave(given, position, key);
    }
  }
  result(call.out, call.unit_bytes, first, 1);
}

std::size_t JointLaunch::give(const void* from, std::int64_t bytes) {
  given_.push_back({.from = from, .bytes = bytes});
  return given_.size() - 1;
}

void JointLaunch::leave(std::size_t given, std::uint32_t position, const MessageKey& key) {
  if (position == company_->own) return;
  const auto to = number_at(position);
  if (to) left_.push_back({given, *to, key});
}

void JointLaunch::leave_to_others(std::size_t given, const MessageKey& key) {
  for (const std::uint32_t position : company_->positions) leave(given, position, key);
}

void JointLaunch::take(std::uint32_t position, const MessageKey& key,
                       std::optional<std::size_t> fallback) {
  taken_.push_back({.fallback = fallback, .from = number_at(position).value_or(0), .key = key});
}

void JointLaunch::take_own(std::size_t given) { taken_.push_back({.given = given}); }

void JointLaunch::result(void* to, std::int64_t bytes, std::size_t first, std::size_t count) {
  results_.push_back({.to = to, .bytes = bytes, .first = first, .count = count});
}

std::optional<std::size_t> JointLaunch::number_at(std::uint32_t position) const noexcept {
  const auto& all = company_->positions;
  const auto found = std::lower_bound(all.begin(), all.end(), position);
  if (found == all.end() || *found != position) return std::nullopt;
  return company_->numbers[static_cast<std::size_t>(found - all.begin())];
}

vgpu::Lacks JointLaunch::step() {
  Exchange& exchange = *company_->exchange;
  if (!begun_) {
    begun_ = true;
    for (Given& given : given_) {
      UniformReduction* reduction = given.reduction ? &*given.reduction : nullptr;
      if (reduction != nullptr && given.device_scalar != nullptr) {
        std::memcpy(reduction->scalar.data(), given.device_scalar, size_of(reduction->dtype));
      }
      given.encoded = Part::encode(given.from, given.bytes, reduction);
    }
    for (const Left& left : left_) {
      exchange.leave(left.to, left.key, given_[left.given].encoded);
    }
  }
  for (; waiting_ < taken_.size(); ++waiting_) {
    Taken& taken = taken_[waiting_];
    if (taken.given) {
      taken.encoded = given_[*taken.given].encoded;
    } else {
      taken.encoded = exchange.take(taken.from, taken.key);
      if (taken.encoded != nullptr) continue;
      if (!exchange.is_over()) return taken.from;
      if (taken.fallback) taken.encoded = given_[*taken.fallback].encoded;
    }
  }
  if (local_) local_();
  for (const Result& result : results_) write(result);
  return std::nullopt;
}

void JointLaunch::write(const Result& result) const {
  if (result.bytes <= 0) return;
  if (result.reduction) {
    write_reduced(result);
    return;
  }
  device_port().clear(result.to, result.bytes);
  if (result.count != 0) Part(taken_[result.first].encoded).write(result.to, result.bytes);
}

void JointLaunch::write_reduced(const Result& result) const {
  const UniformReduction& reduction = *result.reduction;
  const auto element = static_cast<std::int64_t>(size_of(reduction.dtype));
  std::vector<Part> parts;
  // Where one of them is not zero; elsewhere the result is, whatever the reduction.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (std::size_t k = 0; k < result.count; ++k) {
    parts.emplace_back(taken_[result.first + k].encoded);
    for (const Part::Piece& piece : parts.back().pieces()) {
      const std::int64_t begin = piece.at / element * element;
      const std::int64_t end = piece.at + static_cast<std::int64_t>(piece.bytes.size());
      places.emplace_back(begin, std::min(end, result.bytes) / element * element);
    }
  }
  std::sort(places.begin(), places.end());
  std::vector<std::uint32_t> weights(parts.size(), 1);
  weights.front() += company_->size - static_cast<std::uint32_t>(parts.size());

  device_port().clear(result.to, result.bytes);
  constexpr std::int64_t at_once = std::int64_t{16} << 10;
  std::vector<std::vector<std::byte>> inputs(parts.size());
  std::vector<const std::byte*> data;
  for (auto& input : inputs) {
    input.resize(at_once);
    data.push_back(input.data());
  }
  auto* to = static_cast<std::byte*>(result.to);
  std::int64_t done = 0;
  for (auto [begin, end] : places) {
    begin = std::max(begin, done);
    while (begin < end) {
      const std::int64_t bytes = std::min(end - begin, at_once);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        parts[k].read(begin, std::span(inputs[k]).first(static_cast<std::size_t>(bytes)));
      }
      combine(reduction, data, weights, to + begin, bytes / element);
      device_port().note_written(to + begin, bytes);
      begin += bytes;
    }
    done = std::max(done, end);
  }
}

}  // namespace prism::intercept
