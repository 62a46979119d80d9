// A bound function that does nothing: what calling into C++ costs before anything is done.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(empty_call, m) {
  m.def(
      "nothing", [](nb::handle, nb::handle, nb::handle, nb::handle) { return 1; }, nb::arg("step").none(),
      nb::arg("priority").none(), nb::arg("timeout_s").none(), nb::arg("values").none());
}
