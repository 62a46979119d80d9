#include "native_table.h"

#include "bindings.h"

using namespace nb::literals;

namespace shmreplay {

void bind_table(nb::module_& m) {
  nb::class_<NativeTable>(m, "Table", "One table of a mapped arena.")
      .def("bind", &NativeTable::bind, "plan"_a, "columns"_a, "canonical"_a, "canonical_batch"_a, "observer"_a.none(),
           "closed"_a)
      .def("insert", &NativeTable::insert, "step"_a.none(), "priority"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none())
      .def("insert_batch", &NativeTable::insert_batch, "steps"_a.none(), "priorities"_a.none(), "timeout_s"_a.none(),
           "values"_a.none(), "went_in"_a)
      .def("extend", &NativeTable::extend, "arrays"_a, "row_ends"_a.none(), "finals"_a.none(), "history"_a, "ends"_a,
           "rules"_a, "clear_history"_a, "counted"_a, "timeout_s"_a.none(), "went_in"_a)
      .def("structure", &NativeTable::structure, "waits"_a, "count"_a, "timeout_s"_a.none())
      .def("sample", &NativeTable::sample, "options"_a, "uniforms"_a, "timeout_s"_a.none(), "layout"_a.none(),
           "out"_a.none(), "make"_a, "drawn"_a)
      .def("end_threads", &NativeTable::end_threads)
      .def("get", &NativeTable::get, "keys"_a, "timeout_s"_a.none(), "layout"_a.none())
      .def("places", &NativeTable::places, "keys"_a, "timeout_s"_a.none())
      .def("keys", &NativeTable::keys)
      .def("column", &NativeTable::column, "index"_a, "device_type"_a = 1, "device_id"_a = 0,
           nb::sig("def column(self, index: int, device_type: int = 1, device_id: int = 0) -> Any"))
      .def("wait_for_insert", &NativeTable::wait_for_insert, "seen"_a, "timeout_s"_a.none())
      .def("insert_number", &NativeTable::insert_number, "key"_a, "timeout_s"_a.none())
      .def("update_priorities", &NativeTable::update_priorities, "keys"_a, "priorities"_a, "timeout_s"_a.none())
      .def("update_data", &NativeTable::update_data, "keys"_a, "updates"_a, "at"_a, "timeout_s"_a.none())
      .def("delete", &NativeTable::remove, "keys"_a, "timeout_s"_a.none())
      .def("reset", &NativeTable::reset, "timeout_s"_a.none() = nb::none())
      .def("set_rate_limiter", &NativeTable::set_rate_limiter, "samples_per_insert"_a, "min_size_to_sample"_a,
           "min_diff"_a, "max_diff"_a, "count_deletes"_a, "rebase"_a, "timeout_s"_a.none() = nb::none())
      .def("first_bad_priority", &NativeTable::first_bad_priority, "priorities"_a)
      .def("set_priority_exponent", &NativeTable::set_priority_exponent, "exponent"_a,
           "timeout_s"_a.none() = nb::none())
      .def("pause", &NativeTable::pause, "inserts"_a, "samples"_a, "timeout_s"_a.none() = nb::none())
      .def("resume", &NativeTable::resume, "timeout_s"_a.none() = nb::none())
      .def("set_stopping", &NativeTable::set_stopping, "on"_a, "timeout_s"_a.none() = nb::none())
      .def("end_waits", &NativeTable::end_waits)
      .def("can_insert", &NativeTable::can_insert, "n"_a)
      .def("can_sample", &NativeTable::can_sample, "n"_a)
      .def("info", &NativeTable::info)
      .def("priority_stats", &NativeTable::priority_stats)
      .def("survey", &NativeTable::survey, "max_items"_a,
           nb::sig("def survey(self, max_items: int) -> tuple[Any, Any, Any, Any, int]"))
      .def("origin", &NativeTable::origin, "key"_a, "timeout_s"_a.none(),
           nb::sig("def origin(self, key: int, timeout_s: float | None) -> dict[str, Any] | None"))
      .def_prop_ro("dropped", &NativeTable::dropped)
      .def_prop_ro("num_inserts", &NativeTable::num_inserts)
      .def_prop_ro("is_awaited", &NativeTable::is_awaited)
      .def_prop_ro("size", &NativeTable::size);
}

}  // namespace shmreplay
