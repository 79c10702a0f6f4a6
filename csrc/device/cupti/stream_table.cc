#include "device/cupti/stream_table.h"

#include <string>

#include "base/error.h"

namespace prism::device::cupti {

StreamTable::StreamTable(std::optional<StreamKey> default_stream) {
  if (default_stream) make_default(known(*default_stream));
}

StreamTable::State& StreamTable::known(StreamKey key) { return states_[key.value()]; }

void StreamTable::make_default(State& state) {
  state.null = true;
  if (default_ != nullptr) return;  // of another device: a stream like others
  default_ = &state;
  state.index = 0;
}

void StreamTable::add(const StreamRow& row) {
  State& state = known(row.stream);
  if (row.flag == abi::StreamFlag::null) {
    make_default(state);
  } else if (row.flag == abi::StreamFlag::blocking && !state.blocking) {
    state.blocking = true;
    if (default_ != nullptr) state.default_work = default_->work;
    blocking_.push_back(&state);
  }
}

std::uint16_t StreamTable::index_of(State& state) {
  if (state.index != unused) return state.index;
  if (next_ == unused) {
    throw CuptiError(
        "CUPTI: work on " + std::to_string(next_) +
        " streams found, expected fewer: use streams again instead of making new ones");
  }
  state.index = next_++;
  return state.index;
}

}  // namespace prism::device::cupti
