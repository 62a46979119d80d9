// _core.SampleOptions: what a caller asked of a draw. See read/sample_call.h.
#include "bindings.h"
#include "read/sample_call.h"

using namespace nb::literals;

namespace shmreplay {

void bind_sample_options(nb::module_& m) {
  nb::class_<SampleOptions>(m, "SampleOptions", "What a caller asked of a draw, checked by Python. Serves many calls.")
      .def(
          "__init__",
          [](SampleOptions* self, uint32_t n, uint32_t at_least, bool count, bool distinct, uint32_t num_threads,
             uint32_t rank, uint32_t world_size) {
            new (self) SampleOptions{.n = n,
                                     .at_least = at_least,
                                     .count = count,
                                     .distinct = distinct,
                                     .num_threads = num_threads,
                                     .part = {rank, world_size}};
          },
          "n"_a, "at_least"_a, "count"_a = true, "distinct"_a = false, "num_threads"_a = 1, "rank"_a = 0,
          "world_size"_a = 1);
}

}  // namespace shmreplay
