// _core.VectorWriter: N streams written from Python, one native call for all of them.
//
// Calls take `numbers`, rows of the caller's arrays, ascending, and `streams`, the stream of each row: int64 arrays of
// one length, checked by the caller, no stream twice. They answer
//
//   (status or a code of writer_calls.h, rows done, row that it is about, step, column, keys, exception of a signal
//    handler or None).
//
// and put that answer into the list `answers` before they return: a signal may raise as soon as Python goes on. The
// first `done` of the rows are done. Keys of append: int64 [rows, rules], 0: none. Keys of create_items: [rows], 0:
// none. Keys of end_episodes: ([keys of all rows], int64 [rows] of how many each row has).
#include <algorithm>

#include "native_table.h"
#include "write/vector_writer.h"
#include "writer_calls.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

class NativeVectorWriter {
 public:
  // `ends`, `rules`: as in NativeWriter.
  NativeVectorWriter(const NativeTable& table, uint32_t num_streams, uint32_t history, nb::tuple ends, nb::list rules)
      : context_(table.context()),
        writer_(*context_->arena, *context_->facts, history, writer_facts(*context_, ends), read_rules(rules),
                num_streams) {}

  ~NativeVectorWriter() {
    const GilRelease release;  // closing may wait for the lock
    writer_.give_up();
  }

  // Writes whole rows. `steps`: in the signature's structure, with arrays [num_rows, ...].
  nb::tuple append(nb::handle steps, int64_t num_rows, nb::handle numbers, nb::handle streams, nb::handle priority,
                   nb::handle timeout_s, nb::list answers) {
    const Busy busy(busy_, *context_);
    Call call(*this, busy, numbers, streams, timeout_s, answers);
    const double p = call_priority(priority, *context_);
    call.refuse_if([&](const RuleWriter& w) {
      return w.unfinished() == WriterCall::kEnd ? kUnfinished : w.needs_end_episode() ? kNeedsEndEpisode : 0;
    });
    if (call.refused()) return call.answer(nb::none());
    const Arrays arrays = whole_arrays(steps, num_rows, call, numbers);
    call.run([&](VectorWriter::Progress& progress) {
      const VectorWriter::Fill fill = context_->plan->has_heap() ? filling(arrays) : filling_plain(arrays);
      return writer_.append(call.rows, fill, true, p, call.wait, progress);
    });
    return call.answer(call.keys_by_rule());
  }

  // Writes the columns that `arrays` has (None: absent), arrays [num_rows, ...] each, into the open rows. With `finish`
  // the rows are finished as by append(). A heap column is a list of num_rows values (None: no value). NO_VALUE in its
  // place: open rows that lack the column get no value for it.
  nb::tuple write_open(nb::object arrays, bool finish, nb::handle numbers, nb::handle streams, nb::handle priority,
                       nb::handle timeout_s, nb::list answers) {
    const Busy busy(busy_, *context_);
    Call call(*this, busy, numbers, streams, timeout_s, answers);
    const double p = call_priority(priority, *context_);
    return write_columns(call, partial_arrays(arrays), finish, p);
  }

  // The same for steps in the signature's structure that may lack columns, arrays [num_rows, ...]. None, and no answer:
  // nothing was done, and write_open() or what explains its refusal has to be called.
  nb::object append_part(nb::handle steps, int64_t num_rows, bool finish, nb::handle numbers, nb::handle streams,
                         nb::handle priority, nb::handle timeout_s, nb::list answers) {
    const Busy busy(busy_, *context_);
    Call call(*this, busy, numbers, streams, timeout_s, answers);
    const double p = call_priority(priority, *context_);
    Arrays columns;
    npy_intp n = -1;
    if (context_->bound_plan().has_heap() ||
        !context_->plan->batch_part(steps.ptr(), columns.keep, n, [&](npy_intp row) { return call.uses(row); }) ||
        (n >= 0 && n != num_rows))
      return nb::none();
    columns.take_kept();
    return write_columns(call, columns, finish, p);
  }

  // `arrays`: final steps, as write_open() takes them, or None.
  nb::tuple end_episodes(nb::object arrays, bool clear_history, nb::handle numbers, nb::handle streams,
                         nb::handle priority, nb::handle timeout_s, nb::list answers) {
    const Busy busy(busy_, *context_);
    Call call(*this, busy, numbers, streams, timeout_s, answers);
    const double p = call_priority(priority, *context_);
    const Arrays columns = arrays.is_none() ? Arrays{} : partial_arrays(arrays);
    call.refuse_if([&](const RuleWriter& w) {
      if (w.unfinished() != WriterCall::kNothing) return w.unfinished() == WriterCall::kAppend ? kUnfinished : 0;
      if (columns.has_cells()) {
        if (const int code = cells_refused(call, w, columns, false); code != 0) return code;
      }
      return final_step_refused(call, w, columns, clear_history);
    });
    if (call.refused()) return call.answer(nb::none());
    call.run([&](VectorWriter::Progress& progress) {
      const VectorWriter::Fill fill = filling(columns);
      return writer_.end_episodes(call.rows, columns.arrays.empty() ? nullptr : &fill, clear_history, p, call.wait,
                                  progress);
    });
    return call.answer(call.keys_by_row());
  }

  // `priorities`: float64, by row number; negative: the table's default. `selection`: its number, or -1 for the newest
  // `length` steps.
  nb::tuple create_items(uint32_t length, int64_t selection, nb::handle priorities, nb::handle numbers,
                         nb::handle streams, nb::handle timeout_s, nb::list answers) {
    const Busy busy(busy_, *context_);
    Call call(*this, busy, numbers, streams, timeout_s, answers);
    const auto p =
        copied<double>(priorities, NPY_DOUBLE, "priorities: expected a contiguous float64 array of one axis");
    call.refuse_if([&](const RuleWriter& w) {
      if (w.unfinished() != WriterCall::kNothing) return kUnfinished;
      if (w.stream().history().num_steps() == 0) return static_cast<int>(Status::kHistory);
      if (selection >= 0) return 0;
      if (length > w.stream().history().num_steps()) return static_cast<int>(Status::kHistory);
      return length > w.longest_span() ? kLacksColumn : 0;
    });
    if (call.refused()) return call.answer(nb::none());
    ItemRule* rule = selection < 0 ? nullptr : &selections_.at(static_cast<uint32_t>(selection));
    call.run([&](VectorWriter::Progress& progress) {
      return writer_.create_items(call.rows, length, rule, p.data(), call.wait, progress);
    });
    return call.answer(call.one_key_each());
  }

  void set_selection(uint32_t number, nb::dict rule) {
    const Busy busy(busy_, *context_);
    selections_.set(number, rule);
  }

  int close(nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    return close_writer(*context_, timeout_s, [this](const Wait& wait) { return writer_.close(wait); });
  }

  nb::object read_cell(uint32_t stream, uint64_t step, uint32_t column) const {
    return shmreplay::read_cell(checked(stream), *context_, step, column);
  }
  uint64_t oldest_step(uint32_t stream) const { return checked(stream).history().oldest_held(); }
  uint32_t num_steps(uint32_t stream) const { return checked(stream).history().num_steps(); }
  uint64_t episode_steps(uint32_t stream) const { return checked(stream).history().episode_steps(); }
  bool row_is_open(uint32_t stream) const { return checked(stream).row().is_open(); }
  // Index of the table whose limiter kept the stream's item out when the call timed out, or -1.
  int blocking_table(uint32_t stream) const {
    const uint32_t t = checked(stream).blocking_table();
    return t == kNone ? -1 : static_cast<int>(t);
  }
  // Whether a row of any of the streams is open.
  bool any_open() const {
    for (uint32_t i = 0; i < writer_.num_streams(); ++i) {
      if (checked(i).row().is_open()) return true;
    }
    return false;
  }
  bool forked() const { return context_->arena->forked(); }
  // Whether the client is open, and it is plainly a mask for all streams in which none is True.
  bool masks_all(nb::handle mask) const {
    if (forked() || (context_->closed != nullptr && context_->closed->is_set())) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(mask.ptr());
    if (!PyArray_CheckExact(mask.ptr()) || PyArray_TYPE(array) != NPY_BOOL || PyArray_NDIM(array) != 1 ||
        PyArray_DIM(array, 0) != static_cast<npy_intp>(writer_.num_streams()) || !PyArray_IS_C_CONTIGUOUS(array))
      return false;
    const auto* bytes = static_cast<const npy_bool*>(PyArray_DATA(array));
    return std::all_of(bytes, bytes + writer_.num_streams(), [](npy_bool is_true) { return is_true == 0; });
  }

 private:
  // Arrays by column (nullptr: absent). They are kept alive while the GIL is released: the caller's structure may
  // change meanwhile.
  struct Arrays {
    std::vector<PyArrayObject*> arrays;
    std::vector<Held> keep;
    HeapRows heap;

    bool is_no_value(size_t c) const { return reinterpret_cast<PyObject*>(arrays[c]) == no_value(); }
    void take_kept() {
      for (const Held& array : keep) arrays.push_back(reinterpret_cast<PyArrayObject*>(array.ptr()));
    }
    bool has_cells() const {
      for (size_t c = 0; c < arrays.size(); ++c) {
        if (arrays[c] != nullptr && !is_no_value(c)) return true;
      }
      return false;
    }
  };

  // One call: its rows, its wait, and how far it came.
  struct Call {
    Call(NativeVectorWriter& handle, const Busy& busy, nb::handle numbers, nb::handle streams, nb::handle timeout_s,
         nb::list answers)
        : handle_(handle),
          patience_(handle.context_->patience()),
          answers_(std::move(answers)),
          wait{deadline_of(timeout_s), &patience_} {
      const char* expected = "numbers, streams: expected contiguous int64 arrays of one axis";
      const std::vector<int64_t> n = copied<int64_t>(numbers, NPY_INT64, expected),
                                 s = copied<int64_t>(streams, NPY_INT64, expected);
      if (n.size() != s.size())
        throw nb::type_error("numbers and streams: expected as many of the one as of the other");
      for (size_t i = 0; i < n.size(); ++i) {
        (void)handle.checked(static_cast<uint32_t>(s[i]));
        rows.push_back({static_cast<uint32_t>(s[i]), static_cast<uint32_t>(n[i])});
      }
      if (!busy.begun()) code_ = static_cast<int>(Status::kSessionLost);
      if (handle.forked()) code_ = static_cast<int>(Status::kForked);
    }

    // Asks for every stream whether to refuse the call, before anything is written.
    template <class Ask>
    void refuse_if(Ask ask) {
      for (uint32_t i = 0; i < rows.size() && code_ == 0; ++i) {
        progress.at = i;
        code_ = ask(writer(i));
      }
      if (code_ == 0) progress.at = 0;
    }
    bool refused() const { return code_ != 0; }

    template <class Work>
    void run(Work work) {
      if (!rows.empty()) {
        const GilRelease release;
        status_ = work(progress);
      }
      status_ = handle_signals(status_);
      if (status_ == Status::kInterrupted) raised_ = take_raised();
      code_ = static_cast<int>(status_);
    }

    nb::tuple answer(nb::object keys) {
      const bool is_cell = status_ == Status::kMissingCell;
      const nb::tuple found = nb::make_tuple(code_, progress.done, progress.at, progress.missing.step,
                                             is_cell ? progress.missing.column : column, keys, raised_);
      answers_.append(found);
      return found;
    }

    nb::object keys_by_rule() const {
      const size_t num_rules = handle_.writer_.num_rules();
      nb::object array = zeros(rows.size() * num_rules);
      auto* to = array_data<int64_t>(array);
      for (uint32_t i = 0; i < progress.done; ++i) {
        const RuleWriter& w = writer(i);
        for (uint32_t k = 0; k < w.num_in(); ++k) to[i * num_rules + w.rule_of(k)] = w.keys()[k];
      }
      return array;
    }

    nb::object one_key_each() const {
      nb::object array = zeros(rows.size());
      for (uint32_t i = 0; i < progress.done; ++i) array_data<int64_t>(array)[i] = writer(i).keys().front();
      return array;
    }

    nb::object keys_by_row() const {
      nb::object counts = zeros(rows.size());
      std::vector<int64_t> all;
      for (uint32_t i = 0; i < progress.done; ++i) {
        const RuleWriter& w = writer(i);
        array_data<int64_t>(counts)[i] = w.num_in();
        all.insert(all.end(), w.keys().begin(), w.keys().begin() + w.num_in());
      }
      nb::object keys = zeros(all.size());
      std::copy(all.begin(), all.end(), array_data<int64_t>(keys));
      return nb::make_tuple(keys, counts);
    }

    // Whether the call uses that row of the caller's arrays.
    bool uses(npy_intp number) const {
      const auto before = [](const VectorWriter::Row& row, npy_intp n) { return row.number < n; };
      const auto at = std::lower_bound(rows.begin(), rows.end(), number, before);
      return at != rows.end() && at->number == number;
    }

    const RuleWriter& writer(uint32_t i) const { return handle_.writer_.at(rows[i].stream); }

   private:
    static nb::object zeros(size_t n) {
      nb::object array = new_array(NPY_INT64, static_cast<npy_intp>(n));
      std::fill_n(array_data<int64_t>(array), n, 0);
      return array;
    }

    NativeVectorWriter& handle_;
    GilPatience patience_;
    nb::list answers_;
    Status status_ = Status::kOk;
    int code_ = 0;
    nb::object raised_ = nb::none();

   public:
    std::vector<VectorWriter::Row> rows;
    Wait wait;
    VectorWriter::Progress progress;
    uint32_t column = 0;
  };

  const StreamWriter& checked(uint32_t stream) const {
    if (stream >= writer_.num_streams()) throw nb::index_error("no stream of that number");
    return writer_.at(stream).stream();
  }

  // Why the columns cannot go into the stream's open row, or into the row that they would begin; 0: they can.
  int cells_refused(Call& call, const RuleWriter& w, const Arrays& columns, bool finish) const {
    if (w.unfinished() == WriterCall::kAppend && finish) return 0;  // its row is written
    if (w.unfinished() != WriterCall::kNothing) return kUnfinished;
    if (finish && w.needs_end_episode()) return kNeedsEndEpisode;
    for (uint32_t c = 0; c < columns.arrays.size(); ++c) {
      if (context_->plan->columns()[c].flags == kPerItemColumn) continue;  // no row lacks it
      const bool has = w.stream().row().is_open() && w.stream().row().has(c), comes = columns.arrays[c] != nullptr;
      const int code = has && comes && !columns.is_no_value(c) ? kColumnTwice
                       : finish && !has && !comes              ? kColumnMissing
                                                               : 0;
      if (code == 0) continue;
      call.column = c;
      return code;
    }
    return 0;
  }

  // Why a final step with these columns and those of the open row lacks something; 0: it lacks nothing.
  static int final_step_refused(Call& call, const RuleWriter& w, const Arrays& columns, bool clear_history) {
    const bool has_row = columns.has_cells() || w.stream().row().is_open();
    const int lacking = w.lacks_of_final_step(
        clear_history, has_row, [&](uint32_t c) { return c < columns.arrays.size() && columns.arrays[c] != nullptr; });
    if (lacking < 0) return 0;
    call.column = static_cast<uint32_t>(lacking);
    return kNeedsFinalStep;
  }

  nb::tuple write_columns(Call& call, const Arrays& columns, bool finish, double priority) {
    call.refuse_if([&](const RuleWriter& w) { return cells_refused(call, w, columns, finish); });
    if (call.refused()) return call.answer(nb::none());
    call.run([&](VectorWriter::Progress& progress) {
      const VectorWriter::Fill fill = context_->plan->has_heap() ? filling(columns) : filling_plain(columns);
      return writer_.append(call.rows, fill, finish, priority, call.wait, progress);
    });
    return call.answer(call.keys_by_rule());
  }

  Arrays whole_arrays(nb::handle steps, int64_t num_rows, const Call& call, nb::handle numbers) const {
    Arrays a;
    npy_intp n = -1;
    const auto uses = [&](npy_intp row) { return call.uses(row); };
    if (!context_->bound_plan().batch(steps.ptr(), a.keep, n, uses) || n != num_rows) {
      const Held list = outlive_interpreter(
          [&] { return context_->plan->canonical()(steps, nb::arg("batch") = num_rows, nb::arg("used") = numbers); });
      return partial_arrays(list);
    }
    a.take_kept();
    if (context_->plan->has_heap()) a.heap = context_->heap_rows(a.arrays, {});
    return a;
  }

  Arrays partial_arrays(const nb::object& list) const {
    Arrays a{context_->checked_arrays(list, 1), {}, {}};
    keep(a);
    if (!context_->plan->has_heap()) return a;
    std::vector<ValueList> coded(a.arrays.size());
    for (size_t c = 0; c < a.arrays.size(); ++c) {
      if (!context_->is_coded(c) || a.arrays[c] == nullptr || a.is_no_value(c)) continue;
      const nb::handle values(reinterpret_cast<PyObject*>(a.arrays[c]));
      coded[c] = ValueList(*context_->arena, values, nb::len(values), context_->column_name(c));
    }
    a.heap = context_->heap_rows(a.arrays, std::move(coded));
    return a;
  }

  static void keep(Arrays& a) {
    for (PyArrayObject* array : a.arrays) {
      if (array != nullptr) a.keep.push_back(nb::borrow(reinterpret_cast<PyObject*>(array)));
    }
  }

  // For arrays none of which is in the heap.
  VectorWriter::Fill filling_plain(const Arrays& columns) const {
    struct Cells {
      uint32_t column;
      const char* data;
      size_t row_bytes;
    };
    std::vector<Cells> cells;
    for (uint32_t c = 0; c < columns.arrays.size(); ++c) {
      if (columns.arrays[c] == nullptr) continue;
      cells.push_back(
          {c, static_cast<const char*>(PyArray_DATA(columns.arrays[c])), context_->plan->columns()[c].row_bytes});
    }
    const bool are_all = cells.size() == columns.arrays.size();
    VectorWriter::Fill fill;
    fill.cells = [cells = std::move(cells), are_all](StreamWriter& stream, uint32_t number) {
      const bool past_caches = stream.arena().exceeds_caches();
      for (const Cells& c : cells) {
        copy_row(stream.row().cell_ahead(c.column, 0), c.data + number * c.row_bytes, c.row_bytes, past_caches);
        if (!are_all) stream.row().mark(c.column);
      }
      if (are_all) stream.row().mark_all();
    };
    return fill;
  }

  VectorWriter::Fill filling(const Arrays& columns) const {
    VectorWriter::Fill fill;
    fill.cells = [this, &columns](StreamWriter& stream, uint32_t number) {
      if (context_->plan->has_heap()) columns.heap.write(stream, number);
      for (uint32_t c = 0; c < columns.arrays.size(); ++c) {
        if (columns.arrays[c] == nullptr || columns.is_no_value(c)) continue;
        if (!context_->is_coded(c) && !stream.row().packs(c))
          context_->write_cell(stream, c, columns.arrays[c], number);
        stream.row().mark(c);
      }
      for (uint32_t c = 0; c < columns.arrays.size() && stream.row().is_open(); ++c) {
        if (columns.arrays[c] == nullptr || !columns.is_no_value(c) || stream.row().has(c)) continue;
        stream.row().write_no_value(c);
        stream.row().mark(c);
      }
    };
    if (!context_->plan->has_heap()) return fill;
    fill.blocks = [&columns](StreamWriter& stream, uint32_t number) { return columns.heap.blocks(stream, number); };
    return fill;
  }

  std::shared_ptr<TableContext> context_;
  VectorWriter writer_;
  Selections selections_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace

void bind_vector_writer(nb::module_& m) {
  nb::class_<NativeVectorWriter>(m, "VectorWriter", "N streams, written by one call.")
      .def(nb::init<const NativeTable&, uint32_t, uint32_t, nb::tuple, nb::list>(), "table"_a, "num_streams"_a,
           "history"_a, "ends"_a, "rules"_a)
      .def("append", &NativeVectorWriter::append, "steps"_a.none(), "num_rows"_a, "numbers"_a, "streams"_a,
           "priority"_a.none(), "timeout_s"_a.none(), "answers"_a)
      .def("write_open", &NativeVectorWriter::write_open, "arrays"_a, "finish"_a, "numbers"_a, "streams"_a,
           "priority"_a.none(), "timeout_s"_a.none(), "answers"_a)
      .def("append_part", &NativeVectorWriter::append_part, "steps"_a.none(), "num_rows"_a, "finish"_a, "numbers"_a,
           "streams"_a, "priority"_a.none(), "timeout_s"_a.none(), "answers"_a)
      .def("masks_all", &NativeVectorWriter::masks_all, "mask"_a.none())
      .def("end_episodes", &NativeVectorWriter::end_episodes, "arrays"_a.none(), "clear_history"_a, "numbers"_a,
           "streams"_a, "priority"_a.none(), "timeout_s"_a.none(), "answers"_a)
      .def("create_items", &NativeVectorWriter::create_items, "length"_a, "selection"_a, "priorities"_a, "numbers"_a,
           "streams"_a, "timeout_s"_a.none(), "answers"_a)
      .def("set_selection", &NativeVectorWriter::set_selection, "number"_a, "rule"_a)
      .def("close", &NativeVectorWriter::close, "timeout_s"_a.none())
      .def("read_cell", &NativeVectorWriter::read_cell, "stream"_a, "step"_a, "column"_a)
      .def("oldest_step", &NativeVectorWriter::oldest_step, "stream"_a)
      .def("num_steps", &NativeVectorWriter::num_steps, "stream"_a)
      .def("episode_steps", &NativeVectorWriter::episode_steps, "stream"_a)
      .def("row_is_open", &NativeVectorWriter::row_is_open, "stream"_a)
      .def("blocking_table", &NativeVectorWriter::blocking_table, "stream"_a)
      .def_prop_ro("any_open", &NativeVectorWriter::any_open)
      .def_prop_ro("forked", &NativeVectorWriter::forked);
}

}  // namespace shmreplay
