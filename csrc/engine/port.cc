#include "engine/port.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/futex.h"

namespace prism {
namespace {

constexpr std::uint64_t magic = 0x31545250'4d535250;  // "PRSMPRT1"
constexpr std::size_t line = 64;
constexpr const char* purpose = "the running ranks";
// Long enough for an answer that is on its way, short enough not to matter where none is.
constexpr int spins = 2000;

using Word = std::atomic<std::uint32_t>;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Post) == line);

// A side that sleeps has said so in `sleeps` first. Both sides read and write it in one step:
// either the one that rings sees that the other sleeps, or the sleeper sees what came before the
// ring.
struct Bell {
  Word rings{0};
  Word sleeps{0};

  void ring() noexcept {
    if (sleeps.fetch_add(0, std::memory_order_acq_rel) == 0) return;
    rings.fetch_add(1, std::memory_order_release);
    futex_wake(rings, 1);
  }
  // Until `news()`, or for `longest`.
  template <class News>
  bool wait(News&& news, std::chrono::nanoseconds longest) {
    for (int k = 0; k < spins; ++k) {
      if (news()) return true;
      spin_once();
    }
    const std::uint32_t seen = rings.load(std::memory_order_acquire);
    sleeps.exchange(1, std::memory_order_acq_rel);
    if (!news()) futex_sleep(rings, seen, longest);
    sleeps.store(0, std::memory_order_relaxed);
    return news();
  }
};

}  // namespace

struct PortHead {
  std::uint64_t magic = 0;
  std::uint64_t ranks = 0, slots = 0;
  std::uint64_t timed = 0;
  Word closed{0};
  alignas(line) Bell engine;
};

struct PortLayout {
  alignas(line) std::atomic<std::uint64_t> posted{0};  // by the rank
  alignas(line) std::atomic<std::uint64_t> taken{0};   // by the engine
  alignas(line) std::atomic<std::uint64_t> answers{0};
  std::int64_t answer = 0;
  alignas(line) Bell rank;  // rings for answers, and for room
};

namespace {

std::size_t port_bytes(std::uint64_t slots) noexcept { return sizeof(PortLayout) + slots * line; }
std::size_t whole_bytes(std::uint64_t ranks, std::uint64_t slots) noexcept {
  return sizeof(PortHead) + ranks * port_bytes(slots);
}
std::byte* slot(PortLayout& port, std::uint64_t slots, std::uint64_t number) noexcept {
  return reinterpret_cast<std::byte*>(&port) + sizeof(PortLayout) + (number & (slots - 1)) * line;
}

}  // namespace

PortMemory PortMemory::create(std::size_t ranks, std::size_t slots, bool timed) {
  PRISM_CHECK(ranks > 0 && slots >= 2 && (slots & (slots - 1)) == 0);
  const PortMemory made(SharedMemory::create("prism-ports", purpose, whole_bytes(ranks, slots)));
  auto* head = new (made.memory_.data()) PortHead;
  head->ranks = ranks;
  head->slots = slots;
  head->timed = timed ? 1 : 0;
  for (std::size_t r = 0; r < ranks; ++r) new (&made.layout(r)) PortLayout;
  head->magic = magic;
  return made;
}

PortMemory PortMemory::open(int fd) {
  const PortMemory made(SharedMemory::open(fd, purpose, sizeof(PortHead)));
  const PortHead& head = made.head();
  if (head.magic != magic || whole_bytes(head.ranks, head.slots) != made.memory_.bytes()) {
    throw Error("the descriptor passed on is not shared memory for ranks of this version");
  }
  return made;
}

int PortMemory::fd() const noexcept { return memory_.fd(); }
std::size_t PortMemory::ranks() const noexcept { return head().ranks; }
bool PortMemory::is_timed() const noexcept { return head().timed != 0; }
PortHead& PortMemory::head() const noexcept { return *static_cast<PortHead*>(memory_.data()); }

PortLayout& PortMemory::layout(std::size_t rank) const noexcept {
  auto* at = static_cast<std::byte*>(memory_.data()) + sizeof(PortHead);
  return *reinterpret_cast<PortLayout*>(at + rank * port_bytes(head().slots));
}

void PortMemory::answer(std::size_t number, std::int64_t value) const noexcept {
  PortLayout& port = layout(number);
  port.answer = value;
  port.answers.fetch_add(1, std::memory_order_release);
  port.rank.ring();
}

void PortMemory::close() const {
  head().closed.store(1, std::memory_order_release);
  for (std::size_t r = 0; r < ranks(); ++r) layout(r).rank.ring();
}

Port::Port(PortMemory memory, std::size_t number)
    : memory_(std::move(memory)),
      mine_(memory_.layout(number)),
      posted_(mine_.posted.load(std::memory_order_relaxed)),
      taken_(mine_.taken.load(std::memory_order_acquire)),
      rung_(posted_) {
  PRISM_CHECK(number < memory_.ranks());
}

bool PortMemory::is_closed() const noexcept {
  return head().closed.load(std::memory_order_acquire) != 0;
}

bool Port::is_closed() const noexcept {
  return abandoned_.load(std::memory_order_relaxed) || memory_.is_closed();
}

void Port::abandon() noexcept {
  abandoned_.store(true, std::memory_order_relaxed);
  mine_.rank.ring();
}

void Port::post(const Post& post) {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  PortHead& head = memory_.head();
  if (posted_ - taken_ == head.slots) {
    const auto room = [&] {
      taken_ = mine_.taken.load(std::memory_order_acquire);
      return posted_ - taken_ < head.slots || is_closed();
    };
    // The engine makes room, or closes, or ends the processes of its ranks with itself.
    while (!room()) {
      head.engine.ring();
      mine_.rank.wait(room, std::chrono::seconds(1));
    }
    if (posted_ - taken_ == head.slots) return;  // closed
  }
  std::byte* const at = slot(mine_, head.slots, posted_);
  std::memcpy(at, &post, sizeof post);
  if (head.timed != 0) {
    const std::int64_t now = PaceClock::steady().now();
    std::memcpy(at + offsetof(Post, posted_ns), &now, sizeof now);
  }
  mine_.posted.store(++posted_, std::memory_order_release);
  // The engine runs whole blocks: waking it for less would only put it to sleep again.
  const bool whole = post.ended || post.ask != Ask::nothing || closes_block(post.op);
  if (!whole && posted_ - rung_ < head.slots / 4) return;
  rung_ = posted_;
  head.engine.ring();
}

std::int64_t Port::ask(const Post& question) {
  const std::uint64_t before = mine_.answers.load(std::memory_order_relaxed);
  post(question);
  const auto told = [&] { return mine_.answers.load(std::memory_order_acquire) != before; };
  const auto done = [&] { return told() || is_closed(); };
  while (!done()) mine_.rank.wait(done, std::chrono::seconds(1));
  return told() ? mine_.answer : 0;
}

PortRanks::PortRanks(PortMemory memory, std::vector<std::uint32_t> ranks, Idle idle)
    : memory_(std::move(memory)), ranks_(std::move(ranks)), idle_(std::move(idle)) {
  PRISM_CHECK(ranks_.size() == memory_.ranks());
  taken_.assign(ranks_.size(), 0);
  rests_.assign(ranks_.size(), false);
  silent_.assign(ranks_.size(), {});
  unheard_ = ranks_.size();
  tell_.resize(ranks_.size());
  if (!memory_.is_timed()) return;
  pacer_ = std::make_unique<Pacer>(ranks_.size(), PaceClock::steady(),
                                   [this](std::size_t i, std::int64_t value) { give(i, value); });
}

void PortRanks::take(std::size_t i, std::vector<Post>& posts) {
  PortLayout& port = memory_.layout(i);
  const std::uint64_t slots = memory_.head().slots;
  const std::uint64_t posted = port.posted.load(std::memory_order_acquire);
  if (posted == taken_[i]) return;
  messages_ += posted - taken_[i];
  if (taken_[i] == 0 && --unheard_ == 0) {
    first_post_ns_ = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
  }
  for (; taken_[i] != posted; ++taken_[i]) {
    Post& post = posts.emplace_back();
    std::memcpy(&post, slot(port, slots, taken_[i]), sizeof(Post));
    rests_[i] = post.ended || post.ask != Ask::nothing;
    if (post.op.kind == OpKind::query) continue;
    silent_[i] = {};
    patient_ = true;
  }
  port.taken.store(posted, std::memory_order_release);
  port.rank.ring();
}

bool PortRanks::news() const noexcept {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (memory_.layout(i).posted.load(std::memory_order_acquire) != taken_[i]) return true;
  }
  return false;
}

void PortRanks::wait() { wait_until(INT64_MAX); }

void PortRanks::wait_until(std::int64_t until) {
  constexpr std::chrono::nanoseconds often = std::chrono::milliseconds(100);
  Clock::time_point begin = Clock::now();
  for (;;) {
    const std::chrono::nanoseconds left(until -
                                        begin.time_since_epoch() / std::chrono::nanoseconds(1));
    const bool found = left.count() <= 0 ||
                       memory_.head().engine.wait([this] { return news(); }, std::min(often, left));
    const Clock::time_point now = Clock::now();
    std::size_t longest = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const bool rests = rests_[i] || (pacer_ != nullptr && pacer_->is_due(i));
      if (!rests) silent_[i] += now - begin;
      if (silent_[i] > silent_[longest]) longest = i;
    }
    begin = now;
    // Also where ranks are busy all the time: a signal may have come, another may have ended.
    if (now - looked_ >= often) {
      looked_ = now;
      idle_(ranks_[longest], silent_[longest]);
    }
    if (found) return;
  }
}

void PortRanks::answer(std::size_t i, std::int64_t value) {
  rests_[i] = false;
  ++messages_;
  give(i, value);
}

void PortRanks::answer_at(std::size_t i, std::int64_t value, std::int64_t due) {
  if (due <= now()) {
    ++overdue_;
    return answer(i, value);
  }
  rests_[i] = false;
  ++messages_;
  pacer_->add(i, value, due);
}

void PortRanks::give(std::size_t i, std::int64_t value) {
  if (tell_[i]) {
    tell_[i](value);
  } else {
    memory_.answer(i, value);
  }
}

void PortRanks::tell_by(std::size_t i, std::function<void(std::int64_t)> tell) {
  tell_[i] = std::move(tell);
}

}  // namespace prism
