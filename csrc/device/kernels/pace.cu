// Time: a kernel that lasts as long as it is told, and one that tells it.
#include "device/kernels/arguments.h"

using namespace prism::device;

namespace {

__device__ uint64_t now_ns() {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__device__ bool is_released(const PaceArguments& arguments) {
  if (arguments.flag == nullptr) return false;
  const uint32_t word = *static_cast<const volatile uint32_t*>(arguments.flag);
  return static_cast<int32_t>(word - arguments.until) >= 0;
}

// What a block is to have moved since it began.
__device__ double bytes_due(const PaceArguments& arguments, uint64_t elapsed_ns) {
  return static_cast<double>(arguments.bytes_per_second) * 1e-9 * static_cast<double>(elapsed_ns);
}

}  // namespace

// One tile a turn: each thread reads 16 bytes and writes them back, so a tile counts twice. A turn
// without a tile sleeps, so that the SM is held and its memory is not.
extern "C" __global__ void __launch_bounds__(1024) prism_pace(const PaceArguments arguments) {
  enum Turn : int { end, move, idle };
  __shared__ int turn;
  const uint64_t began = now_ns();
  uint64_t deadline = arguments.deadline_ns;
  if (arguments.duration_ns < no_deadline_ns - began && began + arguments.duration_ns < deadline) {
    deadline = began + arguments.duration_ns;
  }
  const uint64_t tile = uint64_t{16} * blockDim.x;
  const uint64_t tiles = arguments.load == nullptr ? 0 : arguments.load_bytes / tile;
  uint64_t moved = 0;
  for (;;) {
    if (threadIdx.x == 0) {
      const uint64_t time = now_ns();
      if (time >= deadline || is_released(arguments)) {
        turn = end;
      } else if (tiles > 0 &&
                 static_cast<double>(moved * 2 * tile) < bytes_due(arguments, time - began)) {
        turn = move;
      } else {
        turn = idle;
      }
    }
    __syncthreads();
    const int mine = turn;
    __syncthreads();  // all have read it before it is written again
    if (mine == end) break;
    if (mine == move) {
      const uint64_t place = (blockIdx.x + moved * gridDim.x) % tiles;
      volatile uint64_t* at =
          reinterpret_cast<volatile uint64_t*>(arguments.load + place * tile) + 2 * threadIdx.x;
      const uint64_t low = at[0], high = at[1];
      at[0] = low;
      at[1] = high;
      ++moved;
    } else {
      __nanosleep(100);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && arguments.ended_ns != nullptr) {
    *static_cast<volatile uint64_t*>(arguments.ended_ns) = now_ns();
    __threadfence_system();
  }
}

extern "C" __global__ void prism_stamp(const StampArguments arguments) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *static_cast<volatile uint64_t*>(arguments.time_ns) = now_ns();
    __threadfence_system();
  }
}
