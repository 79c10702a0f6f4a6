// Sets of residues whose differences all differ: the algebra behind long Golomb rulers.
#pragma once

#include <cstdint>
#include <vector>

namespace prism::spare {

struct DifferenceSet {
  std::int32_t modulus = 0;
  std::vector<std::int32_t> elements;  // ascending
};

bool is_prime(std::int32_t number);
bool coprime(std::int32_t a, std::int32_t b);

// For a prime q. Singer (1938): q + 1 elements modulo q^2 + q + 1.
DifferenceSet singer(std::int32_t q);
// Bose (1942), Bose and Chowla (1962): q elements modulo q^2 - 1.
DifferenceSet bose_chowla(std::int32_t q);
// Ruzsa (1993): q - 1 elements modulo q^2 - q.
DifferenceSet ruzsa(std::int32_t q);

}  // namespace prism::spare
