// What is told of each drawn item as a number, in NumPy arrays.
#pragma once

#include "numpy_arrays.h"
#include "python.h"
#include "read/gather.h"

namespace shmreplay {

// The constructor needs the GIL, put() does not.
struct ItemNumbers {
  explicit ItemNumbers(uint32_t n)
      : keys(new_array(NPY_INT64, n)),
        priorities(new_array(NPY_DOUBLE, n)),
        probabilities(new_array(NPY_DOUBLE, n)),
        times_sampled(new_array(NPY_INT64, n)),
        table_size(new_array(NPY_INT64, n)),
        episodes(new_array(NPY_INT64, n)),
        steps(new_array(NPY_INT64, n)),
        ages(new_array(NPY_INT64, n)),
        to_{array_data<int64_t>(keys),          array_data<double>(priorities),  array_data<double>(probabilities),
            array_data<int64_t>(times_sampled), array_data<int64_t>(table_size), array_data<int64_t>(episodes),
            array_data<int64_t>(steps),         array_data<int64_t>(ages)} {}

  // Item i. Its probability is multiplied by `share`; its table has `size` items.
  void put(int64_t i, const Pick& p, double share, uint64_t size) noexcept {
    to_.keys[i] = p.key;
    to_.priorities[i] = p.priority;
    to_.probabilities[i] = p.probability * share;
    to_.times_sampled[i] = p.times_sampled;
    to_.table_size[i] = static_cast<int64_t>(size);
    to_.episodes[i] = static_cast<int64_t>(p.episode);
    to_.steps[i] = p.step;
    to_.ages[i] = p.age;
  }
  // Items first .. first + n - 1.
  void put(int64_t first, const Pick* picks, uint32_t n) noexcept {
    for (uint32_t i = 0; i < n; ++i) put(first + i, picks[i], 1.0, picks[i].table_size);
  }

  nb::object keys, priorities, probabilities, times_sampled, table_size, episodes, steps, ages;

 private:
  struct {
    int64_t* keys;
    double* priorities;
    double* probabilities;
    int64_t* times_sampled;
    int64_t* table_size;
    int64_t* episodes;
    int64_t* steps;
    int64_t* ages;
  } to_;
};

}  // namespace shmreplay
