// What a rank gives to a communication op: the bytes of a buffer that are not zero, and where they
// lie. Most tensors of a virtual GPU were never written, and then there is nothing to send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "intercept/contract.h"

namespace prism::intercept {

class Part {
 public:
  struct Piece {
    std::int64_t at = 0;  // in the buffer
    std::span<const std::byte> bytes;
  };
  using Encoded = std::shared_ptr<const std::vector<std::byte>>;

  Part() = default;  // of no bytes
  // As it is now; multiplied, where the reduction says so.
  static Encoded encode(const void* from, std::int64_t bytes,
                        const UniformReduction* reduction = nullptr);
  // What is not a part, or of another size than expected, reads as far as it goes.
  explicit Part(Encoded encoded);

  std::span<const Piece> pieces() const noexcept { return pieces_; }
  // [begin, begin + to.size()) of the buffer, with zeros where nothing is.
  void read(std::int64_t begin, std::span<std::byte> to) const;
  // Over what is there; the rest of `to` keeps what it has.
  void write(void* to, std::int64_t bytes) const;

 private:
  Encoded kept_;
  std::vector<Piece> pieces_;  // rising, apart
};

}  // namespace prism::intercept
