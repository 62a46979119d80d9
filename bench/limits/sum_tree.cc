// An 8-ary sum tree of float64 in private memory, with nobody to share it with: no lock, no log, no keys.
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

constexpr uint64_t kArity = 8, kMaxBatch = 1024;

struct SumTree {
  double exponent;
  std::vector<std::vector<double>> levels;  // leaves first; each padded to whole lines of 8

  SumTree(uint64_t num_leaves, double exponent_) : exponent(exponent_) {
    for (uint64_t n = num_leaves;; n = (n + kArity - 1) / kArity) {
      levels.emplace_back((n + kArity - 1) / kArity * kArity, 0.0);
      if (n <= kArity) break;
    }
  }

  static double sum(const double* line) {
    return ((line[0] + line[1]) + (line[2] + line[3])) + ((line[4] + line[5]) + (line[6] + line[7]));
  }

  // All of a batch, one level at a time, so that their misses overlap.
  void update(const int64_t* leaves, const double* priorities, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) __builtin_prefetch(&levels[0][static_cast<uint64_t>(leaves[i])], 1);
    uint64_t nodes[kMaxBatch];
    for (uint64_t i = 0; i < n; ++i) {
      nodes[i] = static_cast<uint64_t>(leaves[i]);
      levels[0][nodes[i]] = std::pow(priorities[i], exponent);
    }
    for (uint64_t k = 1; k < levels.size(); ++k) {
      for (uint64_t i = 0; i < n; ++i) {
        nodes[i] /= kArity;
        levels[k][nodes[i]] = sum(&levels[k - 1][nodes[i] * kArity]);
        if (k + 1 < levels.size()) __builtin_prefetch(&levels[k + 1][nodes[i] / kArity], 1);
      }
    }
  }

  void draw(const double* u, uint64_t n, int64_t* leaves) const {
    const double total = sum(levels.back().data());
    double rest[kMaxBatch];
    for (uint64_t i = 0; i < n; ++i) rest[i] = u[i] * total, leaves[i] = 0;
    for (uint64_t k = levels.size(); k-- > 0;) {
      for (uint64_t i = 0; i < n; ++i) {
        const double* line = &levels[k][static_cast<uint64_t>(leaves[i]) * kArity];
        double before = 0, next = 0;
        uint64_t child = 0;
        for (uint64_t c = 0; c < kArity; ++c) {
          next += line[c];
          if (next <= rest[i]) before = next, child = c + 1;
        }
        rest[i] -= before;
        leaves[i] =
            leaves[i] * static_cast<int64_t>(kArity) + static_cast<int64_t>(child < kArity ? child : kArity - 1);
        if (k > 0) __builtin_prefetch(&levels[k - 1][static_cast<uint64_t>(leaves[i]) * kArity]);
      }
    }
  }
};

}  // namespace

extern "C" {

SumTree* make_tree(uint64_t num_leaves, double exponent) { return new SumTree(num_leaves, exponent); }
void free_tree(SumTree* tree) { delete tree; }

// Sets of `batch` leaves, from set `first` on and round; batch <= 1024.
void update_leaves(SumTree* tree, const int64_t* leaves, const double* priorities, uint64_t num_sets, uint64_t batch,
                   uint64_t first, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = (first + i) % num_sets * batch;
    tree->update(leaves + at, priorities + at, batch);
  }
}

void draw_leaves(const SumTree* tree, const double* uniforms, int64_t* leaves, uint64_t num_sets, uint64_t batch,
                 uint64_t first, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) tree->draw(uniforms + (first + i) % num_sets * batch, batch, leaves);
}

}  // extern "C"
