#include "engine/port.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/text.h"

namespace prism {
namespace {

constexpr std::uint64_t magic = 0x31545250'4d535250;  // "PRSMPRT1"
constexpr std::size_t line = 64;
// Long enough for an answer that is on its way, short enough not to matter where none is.
constexpr int spins = 2000;

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Post) == 56);

// Returns on a wake, on a change, or after `longest`.
void sleep_on(Word& word, std::uint32_t seen, std::chrono::nanoseconds longest) {
  const timespec time{longest.count() / 1'000'000'000, longest.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake(Word& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A side that sleeps has said so in `sleeps` first. Both sides read and write it in one step:
// either the one that rings sees that the other sleeps, or the sleeper sees what came before the
// ring.
struct Bell {
  Word rings{0};
  Word sleeps{0};

  void ring() noexcept {
    if (sleeps.fetch_add(0, std::memory_order_acq_rel) == 0) return;
    rings.fetch_add(1, std::memory_order_release);
    wake(rings);
  }
  // Until `news()`, or for `longest`.
  template <class News>
  bool wait(News&& news, std::chrono::nanoseconds longest) {
    for (int k = 0; k < spins; ++k) {
      if (news()) return true;
      relax();
    }
    const std::uint32_t seen = rings.load(std::memory_order_acquire);
    sleeps.exchange(1, std::memory_order_acq_rel);
    if (!news()) sleep_on(rings, seen, longest);
    sleeps.store(0, std::memory_order_relaxed);
    return news();
  }
};

struct Head {
  std::uint64_t magic = 0;
  std::uint64_t ranks = 0, slots = 0;
  alignas(line) Bell engine;
};

}  // namespace

struct PortLayout {
  alignas(line) std::atomic<std::uint64_t> posted{0};  // by the rank
  alignas(line) std::atomic<std::uint64_t> taken{0};   // by the engine
  alignas(line) std::atomic<std::uint64_t> answers{0};
  std::int64_t answer = 0;
  alignas(line) Bell rank;  // rings for answers, and for room
};

namespace {

Head& head_of(void* memory) noexcept { return *static_cast<Head*>(memory); }
std::size_t port_bytes(std::uint64_t slots) noexcept { return sizeof(PortLayout) + slots * line; }
std::size_t whole_bytes(std::uint64_t ranks, std::uint64_t slots) noexcept {
  return sizeof(Head) + ranks * port_bytes(slots);
}
std::byte* slot(PortLayout& port, std::uint64_t slots, std::uint64_t number) noexcept {
  return reinterpret_cast<std::byte*>(&port) + sizeof(PortLayout) + (number & (slots - 1)) * line;
}

[[noreturn]] void fail(const char* what) {
  throw Error(
      engine::cat("shared memory for the running ranks: ", what, ": ", std::strerror(errno)));
}

}  // namespace

PortMemory PortMemory::create(std::size_t ranks, std::size_t slots) {
  PRISM_CHECK(ranks > 0 && slots >= 2 && (slots & (slots - 1)) == 0);
  const int fd = memfd_create("prism-ports", MFD_CLOEXEC);
  if (fd < 0) fail("memfd_create");
  const std::size_t bytes = whole_bytes(ranks, slots);
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(fd);
    errno = error;
    fail("mapping it");
  }
  PortMemory made(fd, memory, bytes);
  Head* head = new (memory) Head;
  head->ranks = ranks;
  head->slots = slots;
  for (std::size_t r = 0; r < ranks; ++r) new (&made.layout(r)) PortLayout;
  head->magic = magic;
  return made;
}

PortMemory PortMemory::open(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) fail("its descriptor");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < sizeof(Head)) throw Error("the descriptor passed on is not shared memory for ranks");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail("mapping it");
  PortMemory made(fd, memory, bytes);
  const Head& head = head_of(memory);
  if (head.magic != magic || whole_bytes(head.ranks, head.slots) != bytes) {
    throw Error("the descriptor passed on is not shared memory for ranks of this version");
  }
  return made;
}

PortMemory::PortMemory(PortMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_) {}

PortMemory::~PortMemory() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  if (fd_ >= 0) close(fd_);
}

std::size_t PortMemory::ranks() const noexcept { return head_of(memory_).ranks; }

PortLayout& PortMemory::layout(std::size_t rank) const noexcept {
  auto* at = static_cast<std::byte*>(memory_) + sizeof(Head);
  return *reinterpret_cast<PortLayout*>(at + rank * port_bytes(head_of(memory_).slots));
}

Port::Port(PortMemory memory, std::size_t number)
    : memory_(std::move(memory)), mine_(memory_.layout(number)) {
  PRISM_CHECK(number < memory_.ranks());
}

void Port::post(const Post& post) {
  Head& head = head_of(memory_.memory_);
  if (posted_ - taken_ == head.slots) {
    const auto room = [&] {
      taken_ = mine_.taken.load(std::memory_order_acquire);
      return posted_ - taken_ < head.slots;
    };
    // The engine that will make room ends this process if it ends itself.
    while (!room()) {
      head.engine.ring();
      mine_.rank.wait(room, std::chrono::seconds(1));
    }
  }
  std::memcpy(slot(mine_, head.slots, posted_), &post, sizeof post);
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
  while (!told()) mine_.rank.wait(told, std::chrono::seconds(1));
  return mine_.answer;
}

PortRanks::PortRanks(PortMemory memory, std::vector<std::uint32_t> ranks, Idle idle)
    : memory_(std::move(memory)), ranks_(std::move(ranks)), idle_(std::move(idle)) {
  PRISM_CHECK(ranks_.size() == memory_.ranks());
  taken_.assign(ranks_.size(), 0);
  silent_ = ranks_.size();
}

void PortRanks::take(std::size_t i, std::vector<Post>& posts) {
  PortLayout& port = memory_.layout(i);
  const std::uint64_t slots = head_of(memory_.memory_).slots;
  const std::uint64_t posted = port.posted.load(std::memory_order_acquire);
  if (posted == taken_[i]) return;
  messages_ += posted - taken_[i];
  if (taken_[i] == 0 && --silent_ == 0) {
    first_post_ns_ = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
  }
  for (; taken_[i] != posted; ++taken_[i]) {
    std::memcpy(&posts.emplace_back(), slot(port, slots, taken_[i]), sizeof(Post));
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

void PortRanks::wait() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point since = Clock::now();
  Bell& bell = head_of(memory_.memory_).engine;
  while (!bell.wait([this] { return news(); }, std::chrono::milliseconds(100))) {
    idle_(Clock::now() - since);
  }
}

void PortRanks::answer(std::size_t i, std::int64_t value) {
  PortLayout& port = memory_.layout(i);
  port.answer = value;
  port.answers.fetch_add(1, std::memory_order_release);
  port.rank.ring();
  ++messages_;
}

}  // namespace prism
