#include "engine/exchange.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/futex.h"

namespace prism {
namespace {

constexpr std::uint64_t magic = 0x31484358'4d535250;  // "PRSMXCH1"
constexpr std::size_t line = 64;
constexpr const char* purpose = "bytes between the running ranks";
constexpr std::size_t slot_bytes = 4096;

using Word = std::atomic<std::uint32_t>;
using Count = std::atomic<std::uint64_t>;
static_assert(Count::is_always_lock_free);

// A place of an inbox. `turn` says whose it is: a number that senders draw: free for that sender;
// one more: full, for the receiver (D. Vyukov's bounded queue). Kept less the place's own number,
// so that fresh memory, which is zero, is an empty inbox.
struct Slot {
  Count turn{0};
  std::uint32_t from = 0;
  std::uint32_t bytes = 0;  // in this chunk
  std::uint64_t channel = 0, number = 0;
  std::uint64_t whole = 0;  // bytes of the message

  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this) + line; }
};
static_assert(sizeof(Slot) <= line);
constexpr std::size_t chunk_bytes = slot_bytes - line;

}  // namespace

struct ExchangeHead {
  std::uint64_t magic = 0;
  std::uint64_t ranks = 0, chunks = 0;
  Word closed{0};
  // Then the numbers of the ranks.
};

struct Inbox {
  alignas(line) Count drawn{0};  // by senders
  alignas(line) Count taken{0};  // by the receiver
  Word starving{0};              // somebody found no room
  Word waits_for{0};             // number + 1
  alignas(line) Word news{0};
  Word sleepers{0};

  void ring() noexcept {
    news.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    futex_wake(news, INT_MAX);
  }
};

namespace {

std::size_t head_bytes(std::uint64_t ranks) noexcept {
  const std::size_t bytes = sizeof(ExchangeHead) + ranks * sizeof(std::uint32_t);
  return (bytes + line - 1) / line * line;
}
std::size_t inbox_bytes(std::uint64_t chunks) noexcept {
  return sizeof(Inbox) + chunks * slot_bytes;
}
std::size_t whole_bytes(std::uint64_t ranks, std::uint64_t chunks) noexcept {
  return head_bytes(ranks) + ranks * inbox_bytes(chunks);
}
Slot& slot_of(Inbox& inbox, std::uint64_t chunks, std::uint64_t number) noexcept {
  auto* first = reinterpret_cast<std::byte*>(&inbox) + sizeof(Inbox);
  return *reinterpret_cast<Slot*>(first + (number & (chunks - 1)) * slot_bytes);
}

}  // namespace

ExchangeMemory ExchangeMemory::create(std::span<const std::uint32_t> ranks, std::size_t chunks) {
  PRISM_CHECK(!ranks.empty() && chunks >= 2 && (chunks & (chunks - 1)) == 0);
  PRISM_CHECK(std::is_sorted(ranks.begin(), ranks.end()));
  const ExchangeMemory made(
      SharedMemory::create("prism-exchange", purpose, whole_bytes(ranks.size(), chunks)));
  auto* head = new (made.memory_.data()) ExchangeHead;
  head->ranks = ranks.size();
  head->chunks = chunks;
  std::copy(ranks.begin(), ranks.end(), reinterpret_cast<std::uint32_t*>(head + 1));
  for (std::size_t r = 0; r < ranks.size(); ++r) new (&made.inbox(r)) Inbox;
  head->magic = magic;
  return made;
}

ExchangeMemory ExchangeMemory::open(int fd) {
  const ExchangeMemory made(SharedMemory::open(fd, purpose, sizeof(ExchangeHead)));
  const ExchangeHead& head = made.head();
  if (head.magic != magic || whole_bytes(head.ranks, head.chunks) != made.memory_.bytes()) {
    throw Error("the descriptor passed on is not shared memory for bytes of this version");
  }
  return made;
}

int ExchangeMemory::fd() const noexcept { return memory_.fd(); }
ExchangeHead& ExchangeMemory::head() const noexcept {
  return *static_cast<ExchangeHead*>(memory_.data());
}
std::span<const std::uint32_t> ExchangeMemory::ranks() const noexcept {
  return {reinterpret_cast<const std::uint32_t*>(&head() + 1), head().ranks};
}
Inbox& ExchangeMemory::inbox(std::size_t number) const noexcept {
  auto* first = static_cast<std::byte*>(memory_.data()) + head_bytes(head().ranks);
  return *reinterpret_cast<Inbox*>(first + number * inbox_bytes(head().chunks));
}

void ExchangeMemory::close() const {
  head().closed.store(1, std::memory_order_seq_cst);
  for (std::size_t r = 0; r < head().ranks; ++r) inbox(r).ring();
}

std::optional<std::size_t> ExchangeMemory::waits_for(std::size_t number) const noexcept {
  const std::uint32_t found = inbox(number).waits_for.load(std::memory_order_relaxed);
  return found == 0 ? std::nullopt : std::optional<std::size_t>(found - 1);
}

Exchange::Exchange(ExchangeMemory memory, std::size_t number)
    : memory_(std::move(memory)), number_(number), mine_(memory_.inbox(number)) {
  PRISM_CHECK(number < memory_.ranks().size());
}

std::optional<std::size_t> Exchange::number_of(std::uint32_t rank) const noexcept {
  const auto ranks = memory_.ranks();
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) return std::nullopt;
  return static_cast<std::size_t>(at - ranks.begin());
}

void Exchange::leave(std::size_t to, const MessageKey& key, Payload payload) {
  PRISM_CHECK(payload != nullptr && to < memory_.ranks().size());
  const std::lock_guard lock(mutex_);
  if (is_over()) return;
  if (to == number_) {
    arrived_.emplace(std::pair(to, key), std::move(payload));
    return;
  }
  outgoing_[to].push_back({key, std::move(payload)});
  send();
}

Exchange::Payload Exchange::take(std::size_t from, const MessageKey& key) {
  const std::lock_guard lock(mutex_);
  receive();
  const auto found = arrived_.find({from, key});
  if (found == arrived_.end()) return nullptr;
  Payload payload = std::move(found->second);
  arrived_.erase(found);
  return payload;
}

bool Exchange::progress() {
  const std::lock_guard lock(mutex_);
  const bool sent = send();
  return receive() || sent;
}

bool Exchange::is_flushed() const {
  const std::lock_guard lock(mutex_);
  return outgoing_.empty();
}

bool Exchange::send() {
  bool moved = false;
  const std::uint64_t chunks = memory_.head().chunks;
  for (auto it = outgoing_.begin(); it != outgoing_.end();) {
    Inbox& inbox = memory_.inbox(it->first);
    std::deque<Outgoing>& queue = it->second;
    bool rings = false;
    while (!queue.empty()) {
      Outgoing& message = queue.front();
      std::uint64_t drawn = inbox.drawn.load(std::memory_order_relaxed);
      Slot* slot = nullptr;
      bool said = false;
      for (;;) {
        slot = &slot_of(inbox, chunks, drawn);
        const std::uint64_t turn =
            slot->turn.load(std::memory_order_seq_cst) + (drawn & (chunks - 1));
        if (turn == drawn) {
          if (inbox.drawn.compare_exchange_weak(drawn, drawn + 1, std::memory_order_relaxed)) break;
        } else if (turn > drawn) {
          drawn = inbox.drawn.load(std::memory_order_relaxed);  // another sender was faster
        } else if (!said) {
          // Full. Said before looking once more: either this sees the room that the receiver makes,
          // or the receiver sees that somebody waits for it.
          said = true;
          inbox.starving.store(1, std::memory_order_seq_cst);
        } else {
          slot = nullptr;
          break;
        }
      }
      if (slot == nullptr) break;
      const std::span<const std::byte> all(*message.payload);
      const std::size_t bytes = std::min(chunk_bytes, all.size() - message.sent);
      slot->from = static_cast<std::uint32_t>(number_);
      slot->bytes = static_cast<std::uint32_t>(bytes);
      slot->channel = message.key.channel;
      slot->number = message.key.number;
      slot->whole = all.size();
      if (bytes != 0) std::memcpy(slot->data(), all.data() + message.sent, bytes);
      slot->turn.store(drawn + 1 - (drawn & (chunks - 1)), std::memory_order_release);
      message.sent += bytes;
      rings = moved = true;
      if (message.sent == all.size()) queue.pop_front();
    }
    if (rings) inbox.ring();
    it = queue.empty() ? outgoing_.erase(it) : std::next(it);
  }
  return moved;
}

bool Exchange::receive() {
  bool moved = false;
  const std::uint64_t chunks = memory_.head().chunks;
  std::uint64_t taken = mine_.taken.load(std::memory_order_relaxed);
  for (;; ++taken) {
    Slot& slot = slot_of(mine_, chunks, taken);
    const std::uint64_t place = taken & (chunks - 1);
    if (slot.turn.load(std::memory_order_acquire) + place != taken + 1) break;
    Incoming& message = incoming_[slot.from];
    if (message.received == 0) {
      message.key = {slot.channel, slot.number};
      message.bytes.resize(slot.whole);
    }
    const std::size_t bytes = std::min<std::size_t>(slot.bytes, chunk_bytes);
    PRISM_CHECK(message.received + bytes <= message.bytes.size());
    if (bytes != 0) std::memcpy(message.bytes.data() + message.received, slot.data(), bytes);
    message.received += bytes;
    if (message.received == message.bytes.size()) {
      arrived_.insert_or_assign(
          std::pair<std::size_t, MessageKey>(slot.from, message.key),
          std::make_shared<const std::vector<std::byte>>(std::move(message.bytes)));
      incoming_.erase(slot.from);
    }
    slot.turn.store(taken + chunks - place, std::memory_order_seq_cst);
    moved = true;
  }
  if (!moved) return false;
  mine_.taken.store(taken, std::memory_order_relaxed);
  if (mine_.starving.load(std::memory_order_seq_cst) != 0 &&
      mine_.starving.exchange(0, std::memory_order_seq_cst) != 0) {
    for (std::size_t r = 0; r < memory_.ranks().size(); ++r) {
      if (r != number_) memory_.inbox(r).ring();
    }
  }
  return true;
}

bool Exchange::is_over() const noexcept {
  return abandoned_.load(std::memory_order_relaxed) ||
         memory_.head().closed.load(std::memory_order_acquire) != 0;
}

void Exchange::abandon() {
  abandoned_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    outgoing_.clear();
  }
  stir();
}

std::uint32_t Exchange::news() const noexcept { return mine_.news.load(std::memory_order_seq_cst); }

void Exchange::sleep(std::uint32_t seen, std::chrono::nanoseconds longest) const {
  mine_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  futex_sleep(mine_.news, seen, longest);
  mine_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Exchange::stir() { mine_.ring(); }

void Exchange::note_wait(std::optional<std::size_t> from) noexcept {
  mine_.waits_for.store(from ? static_cast<std::uint32_t>(*from + 1) : 0,
                        std::memory_order_relaxed);
}

}  // namespace prism
