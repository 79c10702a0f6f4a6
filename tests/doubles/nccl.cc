// A double of NCCL's library for tests: it notes every call of a pncclX name with its arguments,
// fails the one it is told to fail, and knows which communicators are open. Loaded as the real one
// is.
#include "vgpu/abi/nccl.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace nccl = prism::abi::nccl;

struct State {
  std::mutex mutex;
  std::vector<std::string> calls;
  std::map<std::string, std::pair<int, int>> failures;  // name -> (calls until it, result)
  std::set<void*> open;
  std::uintptr_t made = 0;
  std::string last = "nothing failed";
  int async_error = nccl::success;
};

State& state() {
  static State state;  // ends with the library
  return state;
}

template <class... Arguments>
int note(const char* name, Arguments... arguments) {
  std::ostringstream text;
  text << name;
  ((text << ' ' << arguments), ...);
  State& of = state();
  const std::lock_guard lock(of.mutex);
  of.calls.push_back(text.str());
  const auto failure = of.failures.find(name);
  if (failure == of.failures.end() || failure->second.first-- > 0) return nccl::success;
  const int result = failure->second.second;
  of.failures.erase(failure);
  of.last = std::string(name) + " was told to fail\n";
  return result;
}

int open(int result, void** made) {
  State& of = state();
  const std::lock_guard lock(of.mutex);
  *made = nullptr;
  if (result != nccl::success && result != nccl::in_progress) return result;
  *made = reinterpret_cast<void*>(++of.made << 12);
  of.open.insert(*made);
  return result;
}

int close(int result, void* communicator) {
  State& of = state();
  const std::lock_guard lock(of.mutex);
  return of.open.erase(communicator) == 1 ? result : nccl::invalid_argument;
}

std::string text(const nccl::UniqueId& id) { return id.internal; }

}  // namespace

#define DOUBLE extern "C" __attribute__((visibility("default")))

// What tests ask and tell.
DOUBLE void nccl_double_reset() {
  State& of = state();
  const std::lock_guard lock(of.mutex);
  of.calls.clear();
  of.failures.clear();
  of.async_error = nccl::success;
}
DOUBLE void nccl_double_fail(const char* name, int after, int result) {
  const std::lock_guard lock(state().mutex);
  state().failures[name] = {after, result};
}
DOUBLE void nccl_double_async_error(int error) { state().async_error = error; }
DOUBLE std::size_t nccl_double_open() { return state().open.size(); }
DOUBLE std::size_t nccl_double_calls(const char** calls, std::size_t room) {
  const std::lock_guard lock(state().mutex);
  for (std::size_t i = 0; i < state().calls.size() && i < room; ++i) {
    calls[i] = state().calls[i].c_str();
  }
  return state().calls.size();
}

// NCCL's.
DOUBLE int pncclGetUniqueId(nccl::UniqueId* id) {
  const int result = note("GetUniqueId");
  *id = {"the double's id"};
  return result;
}
DOUBLE const char* pncclGetLastError(void*) { return state().last.c_str(); }
DOUBLE int pncclCommInitRankConfig(void** made, int size, nccl::UniqueId id, int rank,
                                   const void* config) {
  return open(note("CommInitRankConfig", size, text(id), rank, config), made);
}
DOUBLE int pncclCommInitRankScalable(void** made, int size, int rank, int count,
                                     const nccl::UniqueId* ids, const void* config) {
  return open(note("CommInitRankScalable", size, rank, count, text(ids[count - 1]), config), made);
}
DOUBLE int pncclCommSplit(void* parent, int color, int key, void** made, const void* config) {
  const int result = note("CommSplit", parent, color, key, config);
  if (color != nccl::split_no_color) return open(result, made);
  *made = nullptr;
  return result;
}
DOUBLE int pncclCommFinalize(void* c) { return note("CommFinalize", c); }
DOUBLE int pncclCommRevoke(void* c, int flags) { return note("CommRevoke", c, flags); }
DOUBLE int pncclCommSuspend(void* c, int flags) { return note("CommSuspend", c, flags); }
DOUBLE int pncclCommResume(void* c) { return note("CommResume", c); }
DOUBLE int pncclCommDestroy(void* c) { return close(note("CommDestroy", c), c); }
DOUBLE int pncclCommAbort(void* c) { return close(note("CommAbort", c), c); }
DOUBLE int pncclCommGetAsyncError(void* c, int* error) {
  *error = state().async_error;
  return note("CommGetAsyncError", c);
}
DOUBLE int pncclCommRegister(void* c, void* buffer, std::size_t bytes, void** handle) {
  *handle = static_cast<char*>(buffer) + 1;
  return note("CommRegister", c, buffer, bytes);
}
DOUBLE int pncclCommDeregister(void* c, void* handle) { return note("CommDeregister", c, handle); }
DOUBLE int pncclRedOpCreatePreMulSum(int* op, const void* scalar, int dtype, int residence,
                                     void* c) {
  *op = 900;
  return note("RedOpCreatePreMulSum", scalar, dtype, residence, c);
}
DOUBLE int pncclRedOpDestroy(int op, void* c) { return note("RedOpDestroy", op, c); }
DOUBLE int pncclGroupStart() { return note("GroupStart"); }
DOUBLE int pncclGroupEnd() { return note("GroupEnd"); }
DOUBLE int pncclAllReduce(const void* in, void* out, std::size_t n, int type, int op, void* c,
                          void* s) {
  return note("AllReduce", in, out, n, type, op, c, s);
}
DOUBLE int pncclReduce(const void* in, void* out, std::size_t n, int type, int op, int root,
                       void* c, void* s) {
  return note("Reduce", in, out, n, type, op, root, c, s);
}
DOUBLE int pncclReduceScatter(const void* in, void* out, std::size_t n, int type, int op, void* c,
                              void* s) {
  return note("ReduceScatter", in, out, n, type, op, c, s);
}
DOUBLE int pncclAllGather(const void* in, void* out, std::size_t n, int type, void* c, void* s) {
  return note("AllGather", in, out, n, type, c, s);
}
DOUBLE int pncclGather(const void* in, void* out, std::size_t n, int type, int root, void* c,
                       void* s) {
  return note("Gather", in, out, n, type, root, c, s);
}
DOUBLE int pncclScatter(const void* in, void* out, std::size_t n, int type, int root, void* c,
                        void* s) {
  return note("Scatter", in, out, n, type, root, c, s);
}
DOUBLE int pncclBroadcast(const void* in, void* out, std::size_t n, int type, int root, void* c,
                          void* s) {
  return note("Broadcast", in, out, n, type, root, c, s);
}
DOUBLE int pncclSend(const void* from, std::size_t n, int type, int peer, void* c, void* s) {
  return note("Send", from, n, type, peer, c, s);
}
DOUBLE int pncclRecv(void* to, std::size_t n, int type, int peer, void* c, void* s) {
  return note("Recv", to, n, type, peer, c, s);
}
#ifndef NCCL_DOUBLE_OLD  // before 2.28
DOUBLE int pncclAlltoAll(const void* in, void* out, std::size_t n, int type, void* c, void* s) {
  return note("AlltoAll", in, out, n, type, c, s);
}
#endif
