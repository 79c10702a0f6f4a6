// A double of libcupti.so.13: the entries that the recording looks up, over records that a test
// wrote. It hands over only what was enabled, in the buffers that it is given, drops (and counts)
// what finds none, and fails the n-th call of any entry on demand. It knows nothing of the core:
// records are bytes whose first word is their kind, of calls the second the callback.
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using Requested = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Completed = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

constexpr int success = 0, invalid_parameter = 1, invalid_operation = 7, no_more = 12,
              incomplete = 21;
constexpr std::uint32_t driver_kind = 4, runtime_kind = 5;

struct Record {
  std::vector<std::uint8_t> bytes;
  bool whole = true;
};

struct State {
  std::recursive_mutex mutex;  // callbacks come back
  std::uint32_t version = 130001;
  std::uint64_t now = 1, step = 0;
  Requested requested = nullptr;
  Completed completed = nullptr;
  std::set<std::uint32_t> kinds;
  std::set<std::pair<std::uint32_t, std::uint32_t>> calls;  // side's kind, callback
  std::deque<Record> posted;
  std::map<std::uint8_t*, bool> records;  // begin of each in buffers out; false: not whole
  std::map<std::uint8_t*, std::size_t> sizes;
  std::size_t dropped = 0, delivered = 0, buffers = 0, ignored = 0;
  std::map<std::string, std::size_t> counts;
  std::string failing;
  std::size_t failing_at = 0;
  int failing_with = 0;
  int thread_ids = 0;
};

State& state() {
  static State one;
  return one;
}

// The result to answer with.
int called(const char* name) {
  State& s = state();
  const std::size_t number = ++s.counts[name];
  return s.failing == name && number == s.failing_at ? s.failing_with : success;
}

bool is_enabled(const Record& record) {
  std::uint32_t words[2] = {};
  std::memcpy(words, record.bytes.data(), sizeof words);
  State& s = state();
  if (s.kinds.contains(words[0])) return true;
  const bool call = words[0] == driver_kind || words[0] == runtime_kind;
  // Kinds that no test enables stand for what a newer CUPTI adds by itself.
  return call ? s.calls.contains({words[0], words[1]}) : words[0] > 1000;
}

void deliver() {
  State& s = state();
  while (!s.posted.empty()) {
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0, most = 0, used = 0;
    s.requested(&buffer, &size, &most);
    if (buffer == nullptr) {
      s.dropped += s.posted.size();
      s.posted.clear();
      return;
    }
    ++s.buffers;
    while (!s.posted.empty()) {
      const Record& record = s.posted.front();
      const std::size_t bytes = (record.bytes.size() + 7) / 8 * 8;
      if (used + bytes > size) break;
      std::memcpy(buffer + used, record.bytes.data(), record.bytes.size());
      s.records[buffer + used] = record.whole;
      s.sizes[buffer + used] = bytes;
      used += bytes;
      ++s.delivered;
      s.posted.pop_front();
    }
    if (used == 0) {  // a record larger than a buffer
      s.posted.pop_front();
      ++s.dropped;
    }
    s.completed(nullptr, 0, buffer, size, used);
  }
}

}  // namespace

// What a test asks of the double.

EXPORTED void double_reset() {
  const std::lock_guard lock(state().mutex);
  State& s = state();
  s.version = 130001;
  s.now = 1;
  s.step = 0;
  s.kinds.clear();
  s.calls.clear();
  s.posted.clear();
  s.records.clear();
  s.sizes.clear();
  s.dropped = s.delivered = s.buffers = s.ignored = 0;
  s.counts.clear();
  s.failing.clear();
}
EXPORTED void double_fail(const char* name, std::size_t number, int result) {
  const std::lock_guard lock(state().mutex);
  state().failing = name;
  state().failing_at = state().counts[name] + number;
  state().failing_with = result;
}
EXPORTED void double_set_version(std::uint32_t version) { state().version = version; }
// What cuptiGetTimestamp answers, and how far it goes on at each answer.
EXPORTED void double_set_time(std::uint64_t now, std::uint64_t step) {
  const std::lock_guard lock(state().mutex);
  state().now = now;
  state().step = step;
}
// A record as it stands in memory; one that is not enabled is made by nobody.
EXPORTED void double_post(const std::uint8_t* bytes, std::size_t size, bool whole) {
  const std::lock_guard lock(state().mutex);
  Record record{{bytes, bytes + size}, whole};
  if (is_enabled(record)) {
    state().posted.push_back(std::move(record));
  } else {
    ++state().ignored;
  }
}
// As CUPTI's own thread hands over buffers that are full.
EXPORTED void double_deliver() {
  const std::lock_guard lock(state().mutex);
  deliver();
}
EXPORTED std::size_t double_count(const char* what) {
  const std::lock_guard lock(state().mutex);
  State& s = state();
  const std::string name = what;
  if (name == "enabled") return s.kinds.size() + s.calls.size();
  if (name == "delivered") return s.delivered;
  if (name == "buffers") return s.buffers;
  if (name == "ignored") return s.ignored;
  if (name == "system thread ids") return static_cast<std::size_t>(s.thread_ids);
  return s.counts[name];
}

// CUPTI.

EXPORTED int cuptiGetVersion(std::uint32_t* version) {
  const std::lock_guard lock(state().mutex);
  *version = state().version;
  return called("cuptiGetVersion");
}
EXPORTED int cuptiGetResultString(int, const char** text) {
  *text = "A DOUBLE'S ERROR";
  return success;
}
EXPORTED int cuptiGetTimestamp(std::uint64_t* now) {
  const std::lock_guard lock(state().mutex);
  *now = state().now;
  state().now += state().step;
  return called("cuptiGetTimestamp");
}
EXPORTED int cuptiSetThreadIdType(int type) {
  const std::lock_guard lock(state().mutex);
  state().thread_ids = type;
  return called("cuptiSetThreadIdType");
}
EXPORTED int cuptiGetStreamIdEx(void*, void* stream, std::uint8_t, std::uint32_t* id) {
  const std::lock_guard lock(state().mutex);
  *id = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream));
  return called("cuptiGetStreamIdEx");
}
EXPORTED int cuptiGetContextId(void* context, std::uint32_t* id) {
  const std::lock_guard lock(state().mutex);
  *id = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context));
  return called("cuptiGetContextId");
}
EXPORTED int cuptiActivityRegisterCallbacks(Requested requested, Completed completed) {
  const std::lock_guard lock(state().mutex);
  state().requested = requested;
  state().completed = completed;
  return called("cuptiActivityRegisterCallbacks");
}
EXPORTED int cuptiActivityEnable(std::uint32_t kind) {
  const std::lock_guard lock(state().mutex);
  const int result = called("cuptiActivityEnable");
  if (result == success) state().kinds.insert(kind);
  return result;
}
EXPORTED int cuptiActivityDisable(std::uint32_t kind) {
  const std::lock_guard lock(state().mutex);
  state().kinds.erase(kind);
  return called("cuptiActivityDisable");
}
EXPORTED int cuptiActivityEnableRuntimeApi(std::uint32_t callback, std::uint8_t enable) {
  const std::lock_guard lock(state().mutex);
  const int result = called("cuptiActivityEnableRuntimeApi");
  if (enable == 0) state().calls.erase({runtime_kind, callback});
  if (enable != 0 && result == success) state().calls.insert({runtime_kind, callback});
  return result;
}
EXPORTED int cuptiActivityEnableDriverApi(std::uint32_t callback, std::uint8_t enable) {
  const std::lock_guard lock(state().mutex);
  const int result = called("cuptiActivityEnableDriverApi");
  if (enable == 0) state().calls.erase({driver_kind, callback});
  if (enable != 0 && result == success) state().calls.insert({driver_kind, callback});
  return result;
}
EXPORTED int cuptiActivityFlushAll(std::uint32_t) {
  const std::lock_guard lock(state().mutex);
  if (state().requested == nullptr) return invalid_operation;
  const int result = called("cuptiActivityFlushAll");
  if (result == success) deliver();
  return result;
}
EXPORTED int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  const std::lock_guard lock(state().mutex);
  *dropped = state().dropped;
  state().dropped = 0;
  return called("cuptiActivityGetNumDroppedRecords");
}
EXPORTED int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, void** record) {
  const std::lock_guard lock(state().mutex);
  if (const int result = called("cuptiActivityGetNextRecord"); result != success) return result;
  if (buffer == nullptr) return invalid_parameter;
  State& s = state();
  auto* at = static_cast<std::uint8_t*>(*record);
  at = at == nullptr ? buffer : at + s.sizes.at(at);
  if (at >= buffer + valid) return no_more;
  if (!s.records.at(at)) return incomplete;
  *record = at;
  return success;
}
