#include "spare/golomb.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "spare/difference_set.h"
#include "spare/random.h"

namespace prism::spare {
namespace {

// The shortest rulers of 1 to 28 marks, one after the other (published; 24 to 28 marks proved
// shortest by distributed.net's OGR projects, 2004 to 2022). tests/cpp/placement.cc checks every
// one.
constexpr std::array<std::int16_t, 406> kShortest = {
    0,                                                                                         //
    0,   1,                                                                                    //
    0,   1,   3,                                                                               //
    0,   1,   4,   6,                                                                          //
    0,   1,   4,   9,   11,                                                                    //
    0,   1,   4,   10,  12,  17,                                                               //
    0,   1,   4,   10,  18,  23,  25,                                                          //
    0,   1,   4,   9,   15,  22,  32,  34,                                                     //
    0,   1,   5,   12,  25,  27,  35,  41,  44,                                                //
    0,   1,   6,   10,  23,  26,  34,  41,  53,  55,                                           //
    0,   1,   4,   13,  28,  33,  47,  54,  64,  70,  72,                                      //
    0,   2,   6,   24,  29,  40,  43,  55,  68,  75,  76,  85,                                 //
    0,   2,   5,   25,  37,  43,  59,  70,  85,  89,  98,  99,  106,                           //
    0,   4,   6,   20,  35,  52,  59,  77,  78,  86,  89,  99,  122, 127,                      //
    0,   4,   20,  30,  57,  59,  62,  76,  100, 111, 123, 136, 144, 145, 151,                 //
    0,   1,   4,   11,  26,  32,  56,  68,  76,  115, 117, 134, 150, 163, 168, 177,            //
    0,   5,   7,   17,  52,  56,  67,  80,  81,  100, 122, 138, 159, 165, 168, 191, 199,       //
    0,   2,   10,  22,  53,  56,  82,  83,  89,  98,  130, 148, 153, 167, 188, 192, 205, 216,  //
    0,   1,   6,   25,  32,  72,  100, 108, 120, 130, 153, 169, 187, 190, 204, 231, 233, 242,
    246,  //
    0,   1,   8,   11,  68,  77,  94,  116, 121, 156, 158, 179, 194, 208, 212, 228, 240, 253,
    259, 283,  //
    0,   2,   24,  56,  77,  82,  83,  95,  129, 144, 179, 186, 195, 255, 265, 285, 293, 296,
    310, 329,  //
    333,       //
    0,   1,   9,   14,  43,  70,  106, 122, 124, 128, 159, 179, 204, 223, 253, 263, 270, 291,
    330, 341,  //
    353, 356,  //
    0,   3,   7,   17,  61,  66,  91,  99,  114, 159, 171, 199, 200, 226, 235, 246, 277, 316,
    329, 348,       //
    350, 366, 372,  //
    0,   9,   33,  37,  38,  97,  122, 129, 140, 142, 152, 191, 205, 208, 252, 278, 286, 326,
    332, 353,            //
    368, 384, 403, 425,  //
    0,   12,  29,  39,  72,  91,  146, 157, 160, 161, 166, 191, 207, 214, 258, 290, 316, 354,
    372, 394,                 //
    396, 431, 459, 467, 480,  //
    0,   1,   33,  83,  104, 110, 124, 163, 185, 200, 203, 249, 251, 258, 314, 318, 343, 356,
    386, 430,                      //
    440, 456, 464, 475, 487, 492,  //
    0,   3,   15,  41,  66,  95,  97,  106, 142, 152, 220, 221, 225, 242, 295, 330, 338, 354,
    382, 388,                           //
    402, 415, 486, 504, 523, 546, 553,  //
    0,   3,   15,  41,  66,  95,  97,  106, 142, 152, 220, 221, 225, 242, 295, 330, 338, 354,
    382, 388,  //
    402, 415, 486, 504, 523, 546, 553, 585,
};

std::vector<std::int32_t> shortest_known(std::int32_t marks) {
  const auto first = static_cast<std::size_t>(marks * (marks - 1) / 2);
  return {kShortest.begin() + static_cast<std::ptrdiff_t>(first),
          kShortest.begin() + static_cast<std::ptrdiff_t>(first) + marks};
}

// Elements that one walk over the constructions may look at: some tens of milliseconds.
constexpr std::int64_t kSearchBudget = 4'000'000;

// Calls `visit(at, length)` for runs of `marks` cyclic neighbours in multiples of a modular ruler:
// at(i) is the i-th mark of the run. Multiples by numbers coprime to the modulus are modular
// rulers.
template <class Visit>
void walk_runs(const DifferenceSet& set, std::int32_t marks, const Visit& visit) {
  const auto size = static_cast<std::int32_t>(set.elements.size());
  std::int64_t budget = kSearchBudget / 9;
  std::vector<std::int32_t> scaled(set.elements.size());
  for (std::int32_t factor = 1; factor <= set.modulus / 2 && budget > 0; ++factor) {
    if (!coprime(factor, set.modulus)) continue;
    budget -= size;
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      scaled[i] = static_cast<std::int32_t>(std::int64_t{set.elements[i]} * factor % set.modulus);
    }
    std::sort(scaled.begin(), scaled.end());
    for (std::int32_t first = 0; first < size; ++first) {
      const auto mark = [&](std::int32_t i) {
        const std::int32_t j = first + i;
        const std::int32_t value = j < size
                                       ? scaled[static_cast<std::size_t>(j)]
                                       : scaled[static_cast<std::size_t>(j - size)] + set.modulus;
        return value - scaled[static_cast<std::size_t>(first)];
      };
      visit(mark, mark(marks - 1));
    }
  }
}

// The constructions over the next three primes that have as many marks.
template <class Visit>
void walk_constructions(std::int32_t marks, const Visit& visit) {
  std::int32_t primes = 0;
  for (std::int32_t q = std::max(2, marks - 1); primes < 3; ++q) {
    if (!is_prime(q)) continue;
    ++primes;
    for (const auto build : {singer, bose_chowla, ruzsa}) {
      const DifferenceSet set = build(q);
      if (static_cast<std::int32_t>(set.elements.size()) >= marks) walk_runs(set, marks, visit);
    }
  }
}

template <class Mark>
std::vector<std::int32_t> written_out(const Mark& mark, std::int32_t marks) {
  std::vector<std::int32_t> ruler;
  for (std::int32_t i = 0; i < marks; ++i) ruler.push_back(mark(i));
  return ruler;
}

// Appends the mark where its differences to all others, both directions, are new.
void take_mark(std::int32_t mark, std::int32_t modulus, std::vector<std::int32_t>& ruler,
               std::vector<bool>& taken) {
  std::size_t done = 0;
  const auto both = [&](std::size_t i) {
    const std::int32_t up = mark > ruler[i] ? mark - ruler[i] : mark - ruler[i] + modulus;
    return std::pair(static_cast<std::size_t>(up), static_cast<std::size_t>(modulus - up));
  };
  for (; done < ruler.size(); ++done) {
    const auto [up, down] = both(done);
    if (up == down || taken[up]) break;  // down is taken when up is
    taken[up] = taken[down] = true;
  }
  if (done == ruler.size()) {
    ruler.push_back(mark);
    return;
  }
  while (done-- > 0) {
    const auto [up, down] = both(done);
    taken[up] = taken[down] = false;
  }
}

std::vector<std::int32_t> constructed(std::int32_t marks) {
  std::vector<std::int32_t> best;
  walk_constructions(marks, [&](const auto& mark, std::int32_t length) {
    if (best.empty() || length < best.back()) best = written_out(mark, marks);
  });
  return best;
}

}  // namespace

std::vector<std::int32_t> golomb_ruler(std::int32_t marks) {
  if (marks < 1 || marks > kLargestRuler) {
    throw SpareError("Golomb ruler: found " + std::to_string(marks) + " marks, expected 1 to " +
                     std::to_string(kLargestRuler));
  }
  return marks <= kLargestOptimalRuler ? shortest_known(marks) : constructed(marks);
}

std::vector<std::int32_t> exact_modular_ruler(std::int32_t marks, std::int32_t modulus) {
  // q^2 + q + 1, q^2 - 1 and q^2 - q all lie between (q - 1)^2 and (q + 1)^2.
  std::int32_t root = 1;
  while (std::int64_t{root} * root < modulus) ++root;
  for (std::int32_t q = std::max(2, root - 2); q <= root + 1; ++q) {
    if (!is_prime(q)) continue;
    for (const auto build : {singer, bose_chowla, ruzsa}) {
      const DifferenceSet set = build(q);
      if (set.modulus != modulus || static_cast<std::int32_t>(set.elements.size()) < marks)
        continue;
      std::vector<std::int32_t> ruler(set.elements.begin(), set.elements.begin() + marks);
      for (std::int32_t& mark : ruler) mark -= set.elements.front();
      return ruler;
    }
  }
  return {};
}

bool distinct_differences(std::span<const std::int32_t> ruler, std::int32_t modulus) {
  std::vector<bool> seen(static_cast<std::size_t>(modulus), false);
  for (const std::int32_t a : ruler) {
    for (const std::int32_t b : ruler) {
      if (a == b) continue;
      const std::int64_t difference = (std::int64_t{b - a} % modulus + modulus) % modulus;
      if (difference == 0 || seen[static_cast<std::size_t>(difference)]) return false;
      seen[static_cast<std::size_t>(difference)] = true;
    }
  }
  return true;
}

std::vector<std::int32_t> ruler_for(std::int32_t groups, std::int32_t marks) {
  // Each ordered pair of marks takes a difference of its own.
  if (std::int64_t{marks} * (marks - 1) > groups - 1 || marks > kLargestRuler) return {};
  std::vector<std::int32_t> ruler = golomb_ruler(marks);
  if (distinct_differences(ruler, groups)) return ruler;
  return exact_modular_ruler(marks, groups);
}

std::vector<std::vector<std::int32_t>> rulers_for(std::int32_t groups, std::int32_t marks) {
  constexpr std::size_t kMost = 64;
  std::vector<std::vector<std::int32_t>> found = {ruler_for(groups, marks)};
  if (found.front().empty()) return {};
  if (marks < 3) return found;
  walk_constructions(marks, [&](const auto& mark, std::int32_t length) {
    if (found.size() >= kMost || length > (groups - 1) / 2) return;
    found.push_back(written_out(mark, marks));
  });
  return found;
}

std::vector<std::int32_t> spread_ruler(std::int32_t groups, std::int32_t marks, Pulse& pulse) {
  constexpr std::uint64_t kTries = 8;
  std::vector<std::int32_t> order(static_cast<std::size_t>(groups));
  std::vector<std::int32_t> best;
  for (std::uint64_t seed = 0; seed < kTries && std::ssize(best) < marks; ++seed) {
    std::iota(order.begin(), order.end(), 0);
    std::vector<bool> taken(order.size(), false);  // by difference
    std::vector<std::int32_t> ruler = {0};
    Draw draw(seed);
    for (std::int32_t i = 1; i < groups && std::ssize(ruler) < marks; ++i) {
      pulse.beat(std::ssize(ruler));
      std::swap(order[static_cast<std::size_t>(i)],
                order[static_cast<std::size_t>(i + draw.below(groups - i))]);
      take_mark(order[static_cast<std::size_t>(i)], groups, ruler, taken);
    }
    if (ruler.size() > best.size()) best = std::move(ruler);
  }
  std::sort(best.begin(), best.end());
  return best;
}

std::int32_t groups_needed(std::int32_t marks) { return 2 * golomb_ruler(marks).back() + 1; }

std::int32_t largest_redundancy(std::int32_t groups, const Poll& poll) {
  Pulse pulse(poll);
  std::int32_t marks = 1;
  while (std::int64_t{marks + 1} * marks <= groups - 1 && marks < kLargestRuler) ++marks;
  while (marks > 1 && ruler_for(groups, marks).empty()) {
    pulse.beat(kSearchBudget);
    --marks;
  }
  return marks;
}

}  // namespace prism::spare
