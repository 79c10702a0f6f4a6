// For the files that define NCCL's C names.
#pragma once

#define PRISM_EXPORT __attribute__((visibility("default")))
// NCCL exports every name twice: ncclX for callers and interposers, pncclX for the latter to call.
#define PRISM_TWIN(name) \
  extern "C" PRISM_EXPORT decltype(name) p##name __attribute__((alias(#name)));
