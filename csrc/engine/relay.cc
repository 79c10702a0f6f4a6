#include "engine/relay.h"

#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace prism {
namespace {

constexpr const char* engine_gone = "machine 0 is gone; look at what prism emulate wrote there";

}  // namespace

void TextQueue::add(const Frame& frame) {
  const std::lock_guard lock(mutex_);
  queue_.emplace_back(reinterpret_cast<const char*>(frame.data.data()), frame.data.size());
}

std::optional<std::string> TextQueue::take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  std::string text = std::move(queue_.front());
  queue_.pop_front();
  return text;
}

RemoteMachine::RemoteMachine(int fd, const PortMemory& memory, std::vector<std::uint32_t> numbers)
    : connection_(fd), memory_(memory), numbers_(std::move(numbers)) {
  for (const std::uint32_t number : numbers_) {
    if (number >= memory_.ranks()) throw Error("a port of another machine does not exist");
    ports_.emplace_back(memory_, number);
  }
  listener_ = std::thread([this] { listen(); });
}

RemoteMachine::~RemoteMachine() {
  memory_.close();  // its thread may wait for room in a port
  connection_.end();
  listener_.join();
}

void RemoteMachine::listen() {
  Frame frame;
  while (connection_.receive(frame)) {
    if (frame.kind == FrameKind::text) {
      texts_.add(frame);
    } else if (frame.kind == FrameKind::posts && frame.number < ports_.size() &&
               frame.data.size() % sizeof(Post) == 0) {
      post(frame);
    } else {
      break;
    }
  }
  lost_.store(true, std::memory_order_release);
}

void RemoteMachine::post(const Frame& frame) {
  for (std::size_t at = 0; at < frame.data.size(); at += sizeof(Post)) {
    Post post;
    std::memcpy(&post, frame.data.data() + at, sizeof post);
    ports_[frame.number].post(post);
  }
}

void RemoteMachine::answer(std::uint32_t number, std::int64_t value) {
  for (std::uint32_t k = 0; k < numbers_.size(); ++k) {
    if (numbers_[k] != number) continue;
    // Where the other side is gone, the thread that listens finds out too.
    connection_.send(FrameKind::answer, k, std::as_bytes(std::span(&value, 1)));
    return;
  }
  PRISM_CHECK(false);
}

Relay::Relay(int fd, const PortMemory& memory) : connection_(fd), memory_(memory) {
  listener_ = std::thread([this] { listen(); });
}

Relay::~Relay() {
  connection_.end();
  listener_.join();
}

void Relay::listen() {
  Frame frame;
  while (connection_.receive(frame)) {
    if (frame.kind == FrameKind::text) {
      texts_.add(frame);
    } else if (frame.kind == FrameKind::answer && frame.number < memory_.ranks() &&
               frame.data.size() == sizeof(std::int64_t)) {
      std::int64_t value = 0;
      std::memcpy(&value, frame.data.data(), sizeof value);
      memory_.answer(frame.number, value);
    } else {
      break;
    }
  }
  lost_.store(true, std::memory_order_release);
}

void Relay::run(const PortRanks::Idle& idle) {
  struct Closed {};
  std::vector<std::uint32_t> numbers(memory_.ranks());
  std::iota(numbers.begin(), numbers.end(), 0U);
  using Clock = std::chrono::steady_clock;
  constexpr auto often = std::chrono::milliseconds(100);
  Clock::time_point looked = Clock::now();
  const auto look = [&](std::uint32_t number, std::chrono::nanoseconds silent) {
    looked = Clock::now();
    idle(number, silent);
    if (lost()) throw Error(engine_gone);
    if (memory_.is_closed()) throw Closed();  // what ranks post now may never come
  };
  PortRanks ranks(memory_, numbers, look);
  std::vector<Post> posts;
  std::size_t running = numbers.size();
  try {
    while (running != 0) {
      bool any = false;
      for (const std::uint32_t number : numbers) {
        posts.clear();
        ranks.take(number, posts);
        if (posts.empty()) continue;
        any = true;
        if (posts.back().ended) --running;
        if (connection_.send(FrameKind::posts, number, std::as_bytes(std::span(posts)))) continue;
        idle(number, {});
        throw Error(engine_gone);
      }
      if (!any) {
        ranks.wait();
      } else if (Clock::now() - looked >= often) {
        look(0, {});  // also where posts come all the time
      }
    }
  } catch (const Closed&) {
    return;
  }
}

}  // namespace prism
