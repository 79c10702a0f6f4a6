// Streams as a rank numbers them: by first use, 0 is the default stream. And which of them wait for
// the default stream ("legacy default stream" of the CUDA runtime), and it for them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "device/cupti/rows.h"

namespace prism::device::cupti {

class StreamTable {
 public:
  struct State {
    std::uint16_t index = unused;
    bool blocking = false;  // waits for the default stream
    bool null = false;
    std::uint64_t work = 0, followed = 0, default_work = 0;
  };
  static constexpr std::uint16_t unused = 0xffff;

  explicit StreamTable(std::optional<StreamKey> default_stream);

  // CUPTI told of it, or it is used.
  void add(const StreamRow& row);
  State& at(StreamKey key) { return known(key); }
  // Throws CuptiError where there are more than a graph holds.
  std::uint16_t index_of(State& state);
  // Before work on `stream`: calls follow(stream, before) for each whose work it comes behind.
  template <class Follow>
  void order(State& stream, Follow&& follow) {
    ++stream.work;
    if (blocking_.empty()) return;
    if (&stream == default_) {
      for (State* other : blocking_) {
        if (other->work == other->followed) continue;
        other->followed = other->work;
        follow(stream, *other);
      }
    } else if (stream.blocking && default_ != nullptr && stream.default_work != default_->work) {
      stream.default_work = default_->work;
      follow(stream, *default_);
    }
  }

 private:
  State& known(StreamKey key);
  void make_default(State& state);

  std::unordered_map<std::uint64_t, State> states_;  // they stay where they are
  std::vector<State*> blocking_;
  State* default_ = nullptr;
  std::uint16_t next_ = 1;
};

}  // namespace prism::device::cupti
