// _core.make_surely: for results that Python makes when a call has changed the table already.
#include "surely.h"

#include "bindings.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

void make_surely(nb::handle make, nb::list made) {
  nb::object raised = nb::none();
  const nb::object result = made_surely([&] { return PyObject_CallNoArgs(make.ptr()); }, raised);
  if (!result.is_none()) made.append(result);
  if (raised.is_none()) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  throw nb::python_error();
}

}  // namespace

void bind_surely(nb::module_& m) {
  m.def("make_surely", &make_surely, "make"_a, "made"_a,
        "Calls make() until no signal's handler ends it, appends what it returned unless that is None, and then raises "
        "what the handler raised.");
}

}  // namespace shmreplay
