#include "batch_layout.h"

#include "bindings.h"

using namespace nb::literals;

namespace shmreplay {

void bind_batch_layout(nb::module_& m) {
  nb::class_<BatchLayout>(m, "BatchLayout", "Which outputs a batch shows, and how they lie.")
      .def(nb::init<uint32_t, nb::list, nb::bytes, bool>(), "num_outputs"_a, "outputs"_a, "names"_a, "time_major"_a);
}

}  // namespace shmreplay
