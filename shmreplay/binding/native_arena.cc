#include "native_arena.h"

#include "bindings.h"
#include "native_table.h"

using namespace nb::literals;

namespace shmreplay {

void bind_arena(nb::module_& m) {
  nb::class_<Flag>(m, "Flag", "Set once: the calls of all handles that were bound with it end.")
      .def(nb::init<>())
      .def("set", &Flag::set)
      .def_prop_ro("is_set", &Flag::is_set);

  nb::class_<NativeArena>(m, "Arena", "A mapped arena. Calls that wait release the GIL and honour signals.")
      .def(nb::init<int, int, int64_t, uint32_t, bool>(), "index_fd"_a, "data_fd"_a, "session"_a = -1,
           "generation"_a = 0, "published"_a = true)
      .def_prop_ro("instance", [](const NativeArena& a) { return a.get().instance(); })
      .def_prop_ro("name", [](const NativeArena& a) { return a.get().name(); })
      .def_prop_ro("specs",
                   [](const NativeArena& a) {
                     const std::string& s = a.get().specs();
                     return nb::bytes(s.data(), s.size());
                   })
      .def_prop_ro("num_tables", [](const NativeArena& a) { return a.get().num_tables(); })
      .def_prop_ro("pid_namespace", [](const NativeArena& a) { return a.get().header().pid_namespace; })
      .def_prop_ro("forked", [](const NativeArena& a) { return a.get().forked(); })
      .def_prop_ro("session", &NativeArena::session)
      .def_prop_ro("open_streams", &NativeArena::open_streams)
      .def_prop_ro("data_address", &NativeArena::data_address)
      .def_prop_ro("data_bytes", &NativeArena::data_bytes)
      .def_prop_ro("chunk_bytes", &NativeArena::chunk_bytes)
      .def("open_session", &NativeArena::open_session, "pid"_a, "start_time"_a, "timeout_s"_a.none() = nb::none())
      .def("close_session", &NativeArena::close_session, "session"_a, "generation"_a, "timeout_s"_a.none() = nb::none())
      .def("sessions", &NativeArena::sessions, nb::sig("def sessions(self) -> list[dict[str, Any]]"))
      .def("damaged_session", &NativeArena::damaged_session, "timeout_s"_a.none() = nb::none(),
           "The first session whose record is damaged, and how; empty if there is none.")
      .def("uses_of", &NativeArena::uses_of, "session"_a, "generation"_a,
           nb::sig("def uses_of(self, session: int, generation: int) -> tuple[list[str], list[str]]"))
      .def("uses", &NativeArena::uses, nb::sig("def uses(self) -> tuple[list[str], list[str]]"))
      .def("waits", &NativeArena::waits, nb::sig("def waits(self) -> list[dict[str, Any]]"))
      .def("end_calls", &NativeArena::end_calls, "timeout_s"_a)
      .def("drop", &NativeArena::drop, "timeout_s"_a.none() = nb::none())
      .def("lock_holder", &NativeArena::lock_holder, nb::sig("def lock_holder(self) -> dict[str, int] | None"))
      .def("names_chunks", &NativeArena::names_chunks)
      .def("check", &NativeArena::check, "timeout_s"_a.none() = nb::none())
      .def("rebuild", &NativeArena::rebuild, "timeout_s"_a.none() = nb::none())
      .def("publish", [](const NativeArena& a) { a.get().publish(); })
      .def("stats", &NativeArena::stats)
      .def("mlock_index", [](const NativeArena& a) { return a.get().mlock_index(); })
      .def("close", &NativeArena::close)
      .def(
          "table", [](const NativeArena& a, uint32_t index) { return new NativeTable(a.shared(), index); }, "index"_a,
          nb::rv_policy::take_ownership);
}

}  // namespace shmreplay
