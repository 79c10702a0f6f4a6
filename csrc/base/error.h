// Expected failures. Every class here has a Python class of the same name in prismcore.errors;
// the bindings map one to the other. Internal faults are PRISM_CHECK (check.h), never these.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace prism {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A .prism file is damaged, truncated, or of a newer version.
struct GraphFormatError : Error {
  using Error::Error;
};

// A graph is built, merged or asked in a way that its contents do not allow.
struct GraphError : Error {
  using Error::Error;
};

// A device or cluster profile lacks a figure or holds one that cannot be.
struct ProfileError : Error {
  using Error::Error;
};

// Replay cannot go on: some ranks wait for others that never arrive.
struct DeadlockError : Error {
  using Error::Error;
};

// Members of a communicator disagree about the op they meet in.
struct MismatchError : Error {
  MismatchError(const std::string& text, std::uint32_t of, std::uint64_t at)
      : Error(text), rank(of), op(at) {}
  std::uint32_t rank;  // in the world, of one of them: the receiver of a message
  std::uint64_t op;    // number of its op in its program
};

// A rank that runs does something else than the graph recorded of it.
struct DivergenceError : Error {
  DivergenceError(const std::string& text, std::uint32_t of, std::uint64_t at)
      : Error(text), rank(of), op(at) {}
  std::uint32_t rank;  // in the world
  std::uint64_t op;    // number in its program, queries left out
};

// A SPARe placement, plan or life-time is asked for with values that cannot be.
struct SpareError : Error {
  using Error::Error;
};

// A trace cannot be read, is damaged, or holds what cannot be.
struct TraceError : Error {
  using Error::Error;
};

// The real NCCL is not there, or is not one that the door can call.
struct NcclError : Error {
  using Error::Error;
};

// CUPTI is not there, is too old, or refuses: names the call, what it answered, and what to do.
struct CuptiError : Error {
  using Error::Error;
};

}  // namespace prism
