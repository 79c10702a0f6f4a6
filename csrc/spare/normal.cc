#include "spare/normal.h"

#include <cmath>
#include <numbers>

namespace prism::spare {
namespace {

// For tail <= 0.5, so that nothing cancels.
double upper_half(double tail) {
  // Abramowitz and Stegun 26.2.23: within 4.5e-4.
  const double t = std::sqrt(-2.0 * std::log(tail));
  double z = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                     (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  // Halley's method on P(Z > z) - tail; its error is cubed at each turn.
  for (int turn = 0; turn < 2; ++turn) {
    const double above = 0.5 * std::erfc(z * std::numbers::sqrt2 / 2.0);
    const double density =
        std::exp(-0.5 * z * z) * std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2.0;
    const double newton = (above - tail) / density;
    z += newton / (1.0 - 0.5 * z * newton);
  }
  return z;
}

}  // namespace

double normal_quantile_above(double tail) {
  return tail <= 0.5 ? upper_half(tail) : -upper_half(1.0 - tail);
}

double largest_normal_draw(RandomStream& stream, double count) {
  return normal_quantile_above(-std::expm1(std::log(stream.unit()) / count));
}

}  // namespace prism::spare
