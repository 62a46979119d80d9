// The Python module _core: what the daemon and the clients may do with an arena. The classes behind it are in binding/;
// they know both Python and the core, and nothing else does.
#define SHMREPLAY_IMPORT_NUMPY
#include "arena/formatter.h"
#include "binding/python.h"

#include <system_error>

#include "arena/huge_pages.h"
#include "arena/robust_lock.h"
#include "binding/arena_handle.h"
#include "binding/checkpoint_handle.h"
#include "binding/extend_call.h"
#include "binding/shard_batch.h"
#include "binding/table_handle.h"
#include "binding/vector_handle.h"
#include "binding/view_handle.h"
#include "binding/writer_handle.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

TableSpec table_spec(nb::dict d) {
  TableSpec t;
  t.name = nb::cast<std::string>(d["name"]);
  t.max_size = nb::cast<uint32_t>(d["max_size"]);
  t.sampler = nb::cast<uint32_t>(d["sampler"]);
  t.sampler_exponent = nb::cast<double>(d["sampler_exponent"]);
  t.remover = nb::cast<uint32_t>(d["remover"]);
  t.remover_exponent = nb::cast<double>(d["remover_exponent"]);
  t.max_times_sampled = nb::cast<uint32_t>(d["max_times_sampled"]);
  t.samples_per_insert = nb::cast<double>(d["samples_per_insert"]);
  t.min_size_to_sample = nb::cast<int64_t>(d["min_size_to_sample"]);
  t.min_diff = nb::cast<double>(d["min_diff"]);
  t.max_diff = nb::cast<double>(d["max_diff"]);
  t.count_deletes = nb::cast<bool>(d["count_deletes"]);
  t.on_full = nb::cast<uint32_t>(d["on_full"]);
  t.item_steps = nb::cast<uint32_t>(d["item_steps"]);
  t.shard = nb::cast<uint32_t>(d["shard"]);
  return t;
}

ArenaSpec arena_spec(nb::dict d) {
  ArenaSpec s;
  const nb::object columns = d["columns"], tables = d["tables"];
  for (nb::handle c : columns) {
    s.columns.push_back({nb::cast<uint32_t>(c[0]), nb::cast<uint32_t>(c[1]), nb::cast<uint32_t>(c[2])});
  }
  s.chunk_steps = nb::cast<uint32_t>(d["chunk_steps"]);
  s.num_chunks = nb::cast<uint32_t>(d["num_chunks"]);
  s.max_streams = nb::cast<uint32_t>(d["max_streams"]);
  s.max_sessions = nb::cast<uint32_t>(d["max_sessions"]);
  s.num_blocks = nb::cast<uint32_t>(d["num_blocks"]);
  s.block_bytes = nb::cast<uint32_t>(d["block_bytes"]);
  const auto specs = nb::cast<nb::bytes>(d["specs"]);
  s.specs.assign(specs.c_str(), specs.size());
  for (nb::handle t : tables) s.tables.push_back(table_spec(nb::cast<nb::dict>(t)));
  return s;
}

nb::dict plan(nb::dict native) {
  const ArenaSpec spec = arena_spec(native);
  const Plan p = plan_arena(spec);
  nb::dict d;
  d["index_bytes"] = p.index_bytes;
  d["data_bytes"] = p.data_bytes;
  d["chunk_bytes"] = p.geometry.chunk_bytes;
  d["heap_bytes"] = uint64_t{p.geometry.num_blocks} * p.geometry.block_bytes;
  d["item_index_bytes"] = (p.offsets.end - p.offsets.items) / p.geometry.total_items;
  return d;
}

// Stored bytes of packed rows, uint8 [n, row_bytes] contiguous, that one stream writes one behind the other.
uint64_t packed_bytes(nb::handle rows) {
  auto* array = reinterpret_cast<PyArrayObject*>(rows.ptr());
  if (!PyArray_Check(rows.ptr()) || PyArray_TYPE(array) != NPY_UINT8 || PyArray_NDIM(array) != 2 ||
      !PyArray_IS_C_CONTIGUOUS(array)) {
    throw nb::type_error("rows: expected a contiguous uint8 array of two axes");
  }
  const auto row_bytes = static_cast<size_t>(PyArray_DIM(array, 1));
  if (row_bytes == 0 || row_bytes >= 1u << 31) throw nb::value_error("rows: expected 1 to 2^31 - 1 bytes each");
  RowPacker packer(static_cast<uint32_t>(row_bytes));
  std::vector<char> bytes;
  uint64_t total = 0;
  for (npy_intp i = 0; i < PyArray_DIM(array, 0); ++i) {
    std::memcpy(packer.staged(), static_cast<const char*>(PyArray_DATA(array)) + static_cast<size_t>(i) * row_bytes,
                row_bytes);
    bytes.clear();
    packer.pack(static_cast<uint32_t>(i), bytes);
    total += bytes.size();
  }
  return total;
}

nb::dict header(int index_fd) {
  const HeaderReport h = inspect_header(index_fd);
  nb::dict d;
  d["magic_ok"] = h.magic_ok;
  d["ready"] = h.ready;
  d["failed"] = h.failed;
  d["layout_version"] = h.layout_version;
  d["layout_hash"] = h.layout_hash;
  d["index_bytes"] = h.index_bytes;
  d["data_bytes"] = h.data_bytes;
  d["pid_namespace"] = h.pid_namespace;
  d["boot_id"] = h.boot_id;
  d["instance"] = h.instance;
  d["name"] = h.name;
  d["specs"] = nb::bytes(h.specs.data(), h.specs.size());
  return d;
}

// Exceptions of the core that are not statuses.
void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const CorruptIndex& e) {
    PyErr_SetString(error_class("SegmentFailed").ptr(),
                    (std::string("the arena's index is damaged (") + e.what() +
                     ") and marked failed; restart the daemon with --discard, or restore a checkpoint")
                        .c_str());
  } catch (const AttachError& e) {
    PyErr_SetString(error_class(e.kind == AttachError::Kind::kLayout ? "LayoutMismatch" : "SegmentFailed").ptr(),
                    e.what());
  } catch (const RestoreError& e) {
    PyErr_SetString(error_class("DamagedCheckpoint").ptr(), e.what());
  } catch (const std::system_error& e) {
    PyErr_SetObject(PyExc_OSError, nb::make_tuple(e.code().value(), e.what()).ptr());
  }
}

}  // namespace
}  // namespace shmreplay

NB_MODULE(_core, m) {
  using namespace shmreplay;
  if (_import_array() < 0) throw nb::python_error();
  nb::register_exception_translator(translate);
  nb::set_leak_warnings(false);  // a thread that is in a call when Python ends keeps its handles: no fault of the
                                 // user's
  m.doc() = "Native core of shmreplay. Private: its names and answers change without notice.";

  m.attr("LAYOUT_VERSION") = kLayoutVersion;
  m.attr("MAX_PRIORITY") = kMaxPriority;
  m.attr("MAX_GATHER_THREADS") = GatherThreads::kMost;
  m.attr("HUGE_PAGE_BYTES") = kHugePageBytes;
  m.attr("VIEW_CHUNKS") = SampleCall::kViewChunks;
  m.attr("FIRST_REPORT_S") = kFirstReportS;
  m.attr("LATER_REPORTS_S") = kLaterReportsS;
  m.attr("BAD_PRIORITY") = kBadPriority;
  m.attr("WRONG_ARRAYS") = TableHandle::kWrongArrays;
  m.attr("NEEDS_END_EPISODE") = kNeedsEndEpisode;
  m.attr("NEEDS_FINAL_STEP") = kNeedsFinalStep;
  m.attr("UNFINISHED") = kUnfinished;
  m.attr("STATUS_MISSING_CELL") = static_cast<int>(Status::kMissingCell);
  m.attr("COLUMN_TWICE") = kColumnTwice;
  m.attr("COLUMN_MISSING") = kColumnMissing;
  m.attr("ROW_IS_OPEN") = kRowIsOpen;
  m.attr("LACKS_COLUMN") = kLacksColumn;
  no_value() = nb::module_::import_("builtins").attr("object")().release().ptr();
  m.attr("NO_VALUE") = nb::handle(no_value());
  m.attr("HEAP_COLUMN") = static_cast<uint32_t>(kHeapColumn);
  m.attr("MUTABLE_COLUMN") = static_cast<uint32_t>(kMutableColumn);
  m.attr("PER_ITEM_COLUMN") = static_cast<uint32_t>(kPerItemColumn);
  nb::dict status;
  for (const StatusError& e : kStatusErrors)
    status[nb::int_(static_cast<int>(e.status))] = nb::make_tuple(e.error, e.message);
  m.attr("STATUS_ERRORS") = status;
  m.attr("STATUS_TIMEOUT") = static_cast<int>(Status::kTimeout);
  m.attr("STATUS_INTERRUPTED") = static_cast<int>(Status::kInterrupted);
  m.attr("STATUS_SESSION_LOST") = static_cast<int>(Status::kSessionLost);
  m.attr("STATUS_FORKED") = static_cast<int>(Status::kForked);
  m.attr("STATUS_LOCK_TIMEOUT") = static_cast<int>(Status::kLockTimeout);
  m.attr("STATUS_ARENA_FULL") = static_cast<int>(Status::kArenaFull);
  m.attr("STATUS_STRUCTURE") = static_cast<int>(Status::kStructure);
  m.attr("STATUS_TOO_LONG") = static_cast<int>(Status::kTooLong);
  m.attr("STATUS_TOO_FEW_ITEMS") = static_cast<int>(Status::kTooFewItems);
  m.attr("STATUS_HISTORY") = static_cast<int>(Status::kHistory);

  m.def("layout_hash", &layout_hash, "Hash of the segment's layout, the lock and the C library.");
  m.def("plan_arena", &plan, "native"_a, "Sizes of an arena, in bytes.");
  m.def(
      "format_arena",
      [](int index_fd, int data_fd, nb::dict native, const std::string& instance, const std::string& name,
         bool published) {
        const ArenaSpec spec = arena_spec(native);
        const GilRelease release;
        Formatter(index_fd, data_fd, spec).run(instance, name, published);
      },
      "index_fd"_a, "data_fd"_a, "native"_a, "instance"_a, "name"_a, "published"_a = true,
      "Lays out an empty arena in two segments of the planned sizes.");
  m.def("packed_bytes", &packed_bytes, "rows"_a,
        "Stored bytes of rows of a packed column, uint8 [n, row_bytes], one behind the other.");
  m.def("inspect_header", &header, "index_fd"_a,
        "What the header of an index segment says; never raises for a damaged one.");
  m.def("take_huge_pages", &take_huge_pages, nb::call_guard<GilRelease>(), "fd"_a, "offset"_a, "num_bytes"_a,
        "Has the empty part of a file allocated as huge pages. 0, or the errno with which the kernel stopped.");
  m.def("huge_bytes_of", &huge_bytes_of, nb::call_guard<GilRelease>(), "fd"_a, "num_bytes"_a,
        "How much of a file is in huge pages now.");
  m.def(
      "num_memory_nodes", [] { return memory_nodes().count; },
      "Those that this process may use; 0 where there are none to choose.");
  m.def(
      "interleave", [](int fd, uint64_t bytes) { return interleave(fd, bytes, memory_nodes()); }, "fd"_a, "num_bytes"_a,
      "Spreads the pages that a file is given from now on over the memory nodes. 0, or errno.");
  m.def("prove_robust_lock", &prove_robust_lock, nb::call_guard<GilRelease>(),
        "Forks a child that dies inside a lock; RuntimeError where its death is not reported.");
  m.def("process_is_dead", &process_is_dead, "pid"_a, "start_time"_a,
        "Whether the kernel says that this process has ended.");
  m.def("process_start_time", &process_start_time, "pid"_a, "Clock ticks since boot; 0 if unreadable.");

  nb::class_<Flag>(m, "Flag", "Set once: the calls of all handles that were bound with it end.")
      .def(nb::init<>())
      .def("set", &Flag::set)
      .def_prop_ro("is_set", &Flag::is_set);

  nb::class_<ArenaHandle>(m, "Arena", "A mapped arena. Calls that wait release the GIL and honour signals.")
      .def(nb::init<int, int, int64_t, uint32_t, bool>(), "index_fd"_a, "data_fd"_a, "session"_a = -1,
           "generation"_a = 0, "published"_a = true)
      .def_prop_ro("instance", [](const ArenaHandle& a) { return a.get().instance(); })
      .def_prop_ro("name", [](const ArenaHandle& a) { return a.get().name(); })
      .def_prop_ro("specs",
                   [](const ArenaHandle& a) {
                     const std::string& s = a.get().specs();
                     return nb::bytes(s.data(), s.size());
                   })
      .def_prop_ro("num_tables", [](const ArenaHandle& a) { return a.get().num_tables(); })
      .def_prop_ro("pid_namespace", [](const ArenaHandle& a) { return a.get().header().pid_namespace; })
      .def_prop_ro("forked", [](const ArenaHandle& a) { return a.get().forked(); })
      .def_prop_ro("session", &ArenaHandle::session)
      .def_prop_ro("open_streams", &ArenaHandle::open_streams)
      .def_prop_ro("data_address", &ArenaHandle::data_address)
      .def_prop_ro("data_bytes", &ArenaHandle::data_bytes)
      .def_prop_ro("chunk_bytes", &ArenaHandle::chunk_bytes)
      .def("open_session", &ArenaHandle::open_session, "pid"_a, "start_time"_a, "timeout_s"_a.none() = nb::none())
      .def("close_session", &ArenaHandle::close_session, "session"_a, "generation"_a, "timeout_s"_a.none() = nb::none())
      .def("sessions", &ArenaHandle::sessions, nb::sig("def sessions(self) -> list[dict[str, Any]]"))
      .def("uses_of", &ArenaHandle::uses_of, "session"_a, "generation"_a,
           nb::sig("def uses_of(self, session: int, generation: int) -> tuple[list[str], list[str]]"))
      .def("uses", &ArenaHandle::uses, nb::sig("def uses(self) -> tuple[list[str], list[str]]"))
      .def("waits", &ArenaHandle::waits, nb::sig("def waits(self) -> list[dict[str, Any]]"))
      .def("end_calls", &ArenaHandle::end_calls, "timeout_s"_a)
      .def("drop", &ArenaHandle::drop, "timeout_s"_a.none() = nb::none())
      .def("lock_holder", &ArenaHandle::lock_holder, nb::sig("def lock_holder(self) -> dict[str, int] | None"))
      .def("names_chunks", &ArenaHandle::names_chunks)
      .def("check", &ArenaHandle::check, "timeout_s"_a.none() = nb::none())
      .def("rebuild", &ArenaHandle::rebuild, "timeout_s"_a.none() = nb::none())
      .def("publish", [](const ArenaHandle& a) { a.get().publish(); })
      .def("stats", &ArenaHandle::stats)
      .def("mlock_index", [](const ArenaHandle& a) { return a.get().mlock_index(); })
      .def("close", &ArenaHandle::close)
      .def(
          "table", [](const ArenaHandle& a, uint32_t index) { return new TableHandle(a, index); }, "index"_a,
          nb::rv_policy::take_ownership);

  nb::class_<BatchLayout>(m, "BatchLayout", "Which outputs a batch shows, and how they lie.")
      .def(nb::init<uint32_t, nb::list, nb::bytes, bool>(), "num_outputs"_a, "outputs"_a, "names"_a, "time_major"_a);

  nb::class_<CheckpointSaveHandle>(m, "CheckpointSave", "An arena as it is at one instant, slice by slice.")
      .def(nb::init<const ArenaHandle&>(), "arena"_a, nb::keep_alive<1, 2>())
      .def("take", &CheckpointSaveHandle::take, "session"_a, "generation"_a, "timeout_s"_a.none())
      .def("state", &CheckpointSaveHandle::state)
      .def("fill", &CheckpointSaveHandle::fill, "buffer"_a, "timeout_s"_a.none())
      .def_prop_ro("was_given_up", &CheckpointSaveHandle::was_given_up)
      .def_prop_ro("total_bytes", &CheckpointSaveHandle::total_bytes)
      .def_prop_ro("chunks_taken", &CheckpointSaveHandle::chunks_taken)
      .def("close", &CheckpointSaveHandle::close);

  nb::class_<RestorerHandle>(m, "Restorer", "Fills a freshly formatted arena, unpublished, with a checkpoint's parts.")
      .def(nb::init<const ArenaHandle&>(), "arena"_a, nb::keep_alive<1, 2>())
      .def("set_state", &RestorerHandle::set_state, "state"_a)
      .def("put", &RestorerHandle::put, "part"_a, "table"_a, "buffer"_a)
      .def("finish", &RestorerHandle::finish, "timeout_s"_a.none());

  nb::class_<TableHandle>(m, "Table", "One table of a mapped arena.")
      .def("bind", &TableHandle::bind, "plan"_a, "columns"_a, "canonical"_a, "canonical_batch"_a, "observer"_a.none(),
           "closed"_a)
      .def("insert", &TableHandle::insert, "step"_a.none(), "priority"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none())
      .def("insert_batch", &TableHandle::insert_batch, "steps"_a.none(), "priorities"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none())
      .def("extend", &extend_table, "arrays"_a, "row_ends"_a.none(), "history"_a, "ends"_a, "rules"_a,
           "clear_history"_a, "counted"_a, "timeout_s"_a.none())
      .def("structure", &TableHandle::structure, "waits"_a, "count"_a, "timeout_s"_a.none())
      .def("sample", &TableHandle::sample, "n"_a, "at_least"_a, "count"_a, "distinct"_a, "uniforms"_a,
           "timeout_s"_a.none(), "layout"_a.none(), "out"_a.none(), "num_threads"_a = 1, "rank"_a = 0,
           "num_ranks"_a = 1)
      .def("end_threads", &TableHandle::end_threads)
      .def("get", &TableHandle::get, "keys"_a, "timeout_s"_a.none(), "layout"_a.none())
      .def("places", &TableHandle::places, "keys"_a, "timeout_s"_a.none())
      .def("keys", &TableHandle::keys)
      .def("column", &TableHandle::column, "index"_a, "device_type"_a = 1, "device_id"_a = 0,
           nb::sig("def column(self, index: int, device_type: int = 1, device_id: int = 0) -> Any"))
      .def("wait_for_insert", &TableHandle::wait_for_insert, "seen"_a, "timeout_s"_a.none())
      .def("insert_number", &TableHandle::insert_number, "key"_a, "timeout_s"_a.none())
      .def("update_priorities", &TableHandle::update_priorities, "keys"_a, "priorities"_a, "timeout_s"_a.none())
      .def("update_data", &TableHandle::update_data, "keys"_a, "updates"_a, "at"_a, "timeout_s"_a.none())
      .def("delete", &TableHandle::remove, "keys"_a, "timeout_s"_a.none())
      .def("reset", &TableHandle::reset, "timeout_s"_a.none() = nb::none())
      .def("set_rate_limiter", &TableHandle::set_rate_limiter, "samples_per_insert"_a, "min_size_to_sample"_a,
           "min_diff"_a, "max_diff"_a, "count_deletes"_a, "rebase"_a, "timeout_s"_a.none() = nb::none())
      .def("set_priority_exponent", &TableHandle::set_priority_exponent, "exponent"_a,
           "timeout_s"_a.none() = nb::none())
      .def("pause", &TableHandle::pause, "inserts"_a, "samples"_a, "timeout_s"_a.none() = nb::none())
      .def("resume", &TableHandle::resume, "timeout_s"_a.none() = nb::none())
      .def("set_stopping", &TableHandle::set_stopping, "on"_a, "timeout_s"_a.none() = nb::none())
      .def("end_waits", &TableHandle::end_waits)
      .def("can_insert", &TableHandle::can_insert, "n"_a)
      .def("can_sample", &TableHandle::can_sample, "n"_a)
      .def("info", &TableHandle::info)
      .def("priority_stats", &TableHandle::priority_stats)
      .def("survey", &TableHandle::survey, "max_items"_a,
           nb::sig("def survey(self, max_items: int) -> tuple[Any, Any, Any, Any, int]"))
      .def("origin", &TableHandle::origin, "key"_a, "timeout_s"_a.none(),
           nb::sig("def origin(self, key: int, timeout_s: float | None) -> dict[str, Any] | None"))
      .def_prop_ro("dropped", &TableHandle::dropped)
      .def_prop_ro("num_inserts", &TableHandle::num_inserts)
      .def_prop_ro("is_awaited", &TableHandle::is_awaited)
      .def_prop_ro("size", &TableHandle::size);

  nb::class_<ShardBatch>(m, "ShardBatch", "A batch drawn from several tables as from one.")
      .def(nb::init<nb::list, uint32_t, const BatchLayout*, nb::handle, nb::handle>(), "tables"_a, "n"_a,
           "layout"_a.none(), "out"_a.none(), "timeout_s"_a.none(), nb::keep_alive<1, 4>())
      .def("draw", &ShardBatch::draw, "uniforms"_a, "count"_a, "num_threads"_a)
      .def("wait", &ShardBatch::wait, "count"_a)
      .def("get", &ShardBatch::get, "shard"_a, "keys"_a)
      .def("release", &ShardBatch::release)
      .def_prop_ro("arrays_are_right", &ShardBatch::arrays_are_right)
      .def_prop_ro("open", &ShardBatch::open)
      .def_prop_ro("done", &ShardBatch::done)
      .def_prop_ro("shard", &ShardBatch::shard);

  m.def("update_shards", &update_shards, "tables"_a, "keys"_a, "priorities"_a, "timeout_s"_a.none(),
        "New priorities for items of several tables, by their keys.");

  nb::class_<ViewHandle>(m, "View", "Items where they lie, until they are released.")
      .def(nb::init<const TableHandle&>(), "table"_a)
      .def("draw", &ViewHandle::draw, "n"_a, "uniforms"_a, "timeout_s"_a.none())
      .def("numbers", &ViewHandle::numbers)
      .def_prop_ro("num_copies", &ViewHandle::num_copies)
      .def_prop_ro("smallest_probability", &ViewHandle::smallest_probability)
      .def("structure", &ViewHandle::structure,
           nb::sig("def structure(self) -> tuple[bytes, list[bool], list[int]] | None"))
      .def("rows", &ViewHandle::rows)
      .def("item", &ViewHandle::item, "index"_a)
      .def("row_numbers", &ViewHandle::row_numbers, "output"_a)
      .def_prop_ro("is_contiguous", &ViewHandle::is_contiguous)
      .def("strided", &ViewHandle::strided, "output"_a, nb::sig("def strided(self, output: int) -> Any"))
      .def("exported", &ViewHandle::exported, "output"_a, "device_type"_a = 1, "device_id"_a = 0,
           nb::sig("def exported(self, output: int, device_type: int = 1, device_id: int = 0) -> Any"))
      .def("release", &ViewHandle::release);

  nb::class_<WriterHandle>(m, "Writer", "One stream.")
      .def(nb::init<const TableHandle&, uint32_t, nb::tuple, nb::list, uint32_t>(), "table"_a, "history"_a, "ends"_a,
           "rules"_a, "commit_every"_a = 1)
      .def("append", &WriterHandle::append, "step"_a.none(), "priority"_a.none(), "timeout_s"_a.none())
      .def("write_open", &WriterHandle::write_open, "arrays"_a, "finish"_a, "priority"_a.none(), "timeout_s"_a.none())
      .def("go_on", &WriterHandle::go_on, "timeout_s"_a.none())
      .def("present", &WriterHandle::present)
      .def("set_selection", &WriterHandle::set_selection, "number"_a, "rule"_a)
      .def("create_selected", &WriterHandle::create_selected, "selection"_a, "priority"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none())
      .def("create_item", &WriterHandle::create_item, "length"_a, "priority"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none())
      .def("end_episode", &WriterHandle::end_episode, "clear_history"_a, "priority"_a.none(), "timeout_s"_a.none())
      .def("flush", &WriterHandle::flush, "timeout_s"_a.none())
      .def("close", &WriterHandle::close, "timeout_s"_a.none())
      .def("read_cell", &WriterHandle::read_cell, "step"_a, "column"_a)
      .def("restore_row", &WriterHandle::restore_row, "columns"_a)
      .def_prop_ro("is_ending", &WriterHandle::is_ending)
      .def_prop_ro("is_unfinished", &WriterHandle::is_unfinished)
      .def_prop_ro("blocking_table", &WriterHandle::blocking_table)
      .def_prop_ro("oldest_step", &WriterHandle::oldest_step)
      .def_prop_ro("row_is_open", &WriterHandle::row_is_open)
      .def_prop_ro("needs_end_episode", &WriterHandle::needs_end_episode)
      .def_prop_ro("num_steps", &WriterHandle::num_steps)
      .def_prop_ro("num_whole", &WriterHandle::num_whole)
      .def_prop_ro("episode_steps", &WriterHandle::episode_steps)
      .def_prop_ro("num_held_back", &WriterHandle::num_held_back)
      .def_prop_ro("forked", &WriterHandle::forked);

  nb::class_<VectorHandle>(m, "VectorWriter", "N streams, written by one call.")
      .def(nb::init<const TableHandle&, uint32_t, uint32_t, nb::tuple, nb::list>(), "table"_a, "num_streams"_a,
           "history"_a, "ends"_a, "rules"_a)
      .def("append", &VectorHandle::append, "steps"_a.none(), "num_rows"_a, "numbers"_a, "streams"_a,
           "priority"_a.none(), "timeout_s"_a.none())
      .def("write_open", &VectorHandle::write_open, "arrays"_a, "finish"_a, "numbers"_a, "streams"_a,
           "priority"_a.none(), "timeout_s"_a.none())
      .def("end_episodes", &VectorHandle::end_episodes, "arrays"_a.none(), "clear_history"_a, "numbers"_a, "streams"_a,
           "priority"_a.none(), "timeout_s"_a.none())
      .def("create_items", &VectorHandle::create_items, "length"_a, "selection"_a, "priorities"_a, "numbers"_a,
           "streams"_a, "timeout_s"_a.none())
      .def("set_selection", &VectorHandle::set_selection, "number"_a, "rule"_a)
      .def("close", &VectorHandle::close, "timeout_s"_a.none())
      .def("read_cell", &VectorHandle::read_cell, "stream"_a, "step"_a, "column"_a)
      .def("oldest_step", &VectorHandle::oldest_step, "stream"_a)
      .def("num_steps", &VectorHandle::num_steps, "stream"_a)
      .def("episode_steps", &VectorHandle::episode_steps, "stream"_a)
      .def("row_is_open", &VectorHandle::row_is_open, "stream"_a)
      .def("blocking_table", &VectorHandle::blocking_table, "stream"_a)
      .def_prop_ro("any_open", &VectorHandle::any_open)
      .def_prop_ro("forked", &VectorHandle::forked);
}
