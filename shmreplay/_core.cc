// The Python module _core: what the daemon and the clients may do with an arena. Its classes are in binding/. The files
// there and this one know both Python and the core; no other file does.
#define SHMREPLAY_IMPORT_NUMPY
#include "binding/python.h"

#include <system_error>

#include "arena/huge_pages.h"
#include "binding/bindings.h"
#include "binding/native_table.h"
#include "binding/writer_calls.h"
#include "checkpoint/checkpoint_restore.h"

namespace shmreplay {
namespace {

// Turns exceptions of the core, which are not statuses, into Python's.
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

void bind_constants(nb::module_& m) {
  m.attr("LAYOUT_VERSION") = kLayoutVersion;
  m.attr("EXPECTED_PRIORITY") = expected_priority();
  m.attr("MAX_GATHER_THREADS") = GatherThreads::kMost;
  m.attr("HUGE_PAGE_BYTES") = kHugePageBytes;
  m.attr("VIEW_CHUNKS") = SampleCall::kViewChunks;
  m.attr("FIRST_REPORT_S") = kFirstReportS;
  m.attr("LATER_REPORTS_S") = kLaterReportsS;
  m.attr("BAD_PRIORITY") = kBadPriority;
  m.attr("WRONG_ARRAYS") = NativeTable::kWrongArrays;
  m.attr("NEEDS_END_EPISODE") = kNeedsEndEpisode;
  m.attr("NEEDS_FINAL_STEP") = kNeedsFinalStep;
  m.attr("UNFINISHED") = kUnfinished;
  m.attr("STATUS_MISSING_CELL") = static_cast<int>(Status::kMissingCell);
  m.attr("COLUMN_TWICE") = kColumnTwice;
  m.attr("COLUMN_MISSING") = kColumnMissing;
  m.attr("ROW_IS_OPEN") = kRowIsOpen;
  m.attr("NEEDS_PYTHON") = kNeedsPython;
  m.attr("LACKS_COLUMN") = kLacksColumn;
  no_value() = nb::module_::import_("builtins").attr("object")().release().ptr();
  m.attr("NO_VALUE") = nb::handle(no_value());
  m.attr("HEAP_COLUMN") = static_cast<uint32_t>(kHeapColumn);
  m.attr("MUTABLE_COLUMN") = static_cast<uint32_t>(kMutableColumn);
  m.attr("PER_ITEM_COLUMN") = static_cast<uint32_t>(kPerItemColumn);
  nb::dict status;
  for (const StatusError& e : kStatusErrors)
    status[nb::int_(static_cast<int>(e.status))] = nb::make_tuple(e.error, message_of(e));
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
}

}  // namespace
}  // namespace shmreplay

NB_MODULE(_core, m) {
  using namespace shmreplay;
  if (_import_array() < 0) throw nb::python_error();
  nb::register_exception_translator(translate);
  // A thread that is still in a call when Python ends keeps its handles alive. That is not the user's fault.
  nb::set_leak_warnings(false);
  m.doc() = "Native core of shmreplay. Private: its names and answers change without notice.";
  bind_constants(m);
  bind_arena_setup(m);
  bind_arena(m);
  bind_surely(m);
  bind_sample_options(m);
  bind_batch_layout(m);
  bind_encoded_rows(m);
  bind_checkpoint(m);
  bind_table(m);
  bind_shard_batch(m);
  bind_view(m);
  bind_writer(m);
  bind_vector_writer(m);
}
