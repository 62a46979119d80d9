// Which step each row of an item shows: what is needed to make an equal item elsewhere.
#pragma once

#include <vector>

#include "numpy_batch.h"
#include "read/sample_call.h"

namespace shmreplay {

class ItemPlaces : public ViewSink {
 public:
  // These stand where a step's number would, counted from the item's first real step. kNoStep: the row is 0. kRepeated:
  // it repeats the first step.
  static constexpr int32_t kNoStep = -1, kRepeated = -2;

  bool take(const DrawnItems& part, bool) noexcept override {
    try {
      if (num_steps_.empty()) outputs_.resize(part.patterns.at(part.picks[0].pattern).outputs.size());
      for (uint32_t i = 0; i < part.n; ++i) {
        const Pattern& pattern = part.patterns.at(part.picks[i].pattern);
        if (pattern.outputs.size() != outputs_.size()) is_damaged_ = true;
        if (is_damaged_) return true;
        add(pattern, part.picks[i], part.rows);
      }
      return true;
    } catch (const std::exception& e) {
      const GilAcquire gil;
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
    return false;
  }

  // Whether an item had another structure than its table.
  bool is_damaged() const noexcept { return is_damaged_; }

  // (number of steps int32 [n], [(rows of each item int32 [n], their steps int32 [rows of all]) of each output]).
  nb::tuple release() const {
    nb::list outputs;
    for (const Rows& output : outputs_) outputs.append(nb::make_tuple(array_of(output.counts), array_of(output.steps)));
    return nb::make_tuple(array_of(num_steps_), outputs);
  }

 private:
  struct Rows { std::vector<int32_t> counts, steps; };

  // `most`: the most rows that an output may have, whatever a damaged pattern says.
  void add(const Pattern& pattern, const Pick& pick, const uint32_t* most) {
    for (size_t o = 0; o < pattern.outputs.size(); ++o) {
      Rows& to = outputs_[o];
      const size_t before = to.steps.size();
      pattern.each_row(
          o, num_positions(pick),
          [&](int64_t position) {
            const ShownStep shown = shown_step(pattern.outputs[o], pick, position);
            to.steps.push_back(shown.is_real ? static_cast<int32_t>(shown.step) : shown.step < 0 ? kNoStep : kRepeated);
          },
          most[o]);
      to.counts.push_back(static_cast<int32_t>(to.steps.size() - before));
    }
    num_steps_.push_back(static_cast<int32_t>(pick.num_steps));
  }

  static nb::object array_of(const std::vector<int32_t>& values) {
    nb::object array = new_array(NPY_INT32, static_cast<npy_intp>(values.size()));
    if (!values.empty()) std::memcpy(array_data<int32_t>(array), values.data(), values.size() * sizeof(int32_t));
    return array;
  }

  std::vector<int32_t> num_steps_;
  std::vector<Rows> outputs_;
  bool is_damaged_ = false;
};

}  // namespace shmreplay
