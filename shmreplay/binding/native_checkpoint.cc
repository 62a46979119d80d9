// _core.CheckpointSave and _core.Restorer: how the daemon saves and restores an arena. Python reads and writes the file
// itself.
#include "checkpoint/checkpoint_restore.h"
#include "checkpoint/checkpoint_save.h"
#include "native_arena.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

// The bytes of a one-dimensional, contiguous uint8 array.
inline char* bytes_of(nb::handle array, uint64_t& size) {
  if (!PyArray_Check(array.ptr())) raise_error("TypeError", "expected an array of uint8");
  auto* a = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_TYPE(a) != NPY_UINT8 || PyArray_NDIM(a) != 1 || !PyArray_IS_C_CONTIGUOUS(a)) {
    raise_error("TypeError", "expected a contiguous array of uint8, of one dimension");
  }
  size = static_cast<uint64_t>(PyArray_DIM(a, 0));
  return PyArray_BYTES(a);
}

class NativeCheckpointSave {
 public:
  explicit NativeCheckpointSave(const NativeArena& arena) : handle_(arena), keep_(arena.shared()) {
    const GilRelease release;
    save_ = std::make_unique<CheckpointSave>(*keep_);
  }
  ~NativeCheckpointSave() { close(); }

  // true: another checkpoint of this arena is being saved, and nothing was taken.
  bool take(uint32_t session, uint32_t generation, nb::handle timeout_s) {
    bool busy = false;
    handle_.run(timeout_s, [&](Arena&, const Wait& w) { return save().take(session, generation, w, busy); });
    return busy;
  }

  nb::dict state() const {
    nb::list tables, patterns;
    for (uint32_t i = 0; i < keep_->num_tables(); ++i) tables.append(words_of(keep_->table(i), save().table(i)));
    for (uint32_t i = 0; i < keep_->geometry().max_patterns; ++i) {
      const PatternRecord& p = save().pattern(i);
      if (p.usage.get().refs == 0) continue;
      const std::string_view blob = save().blob(p);
      patterns.append(
          nb::make_tuple(i, p.size.get().num_outputs, p.size.get().num_slices, nb::bytes(blob.data(), blob.size())));
    }
    nb::dict d;
    d["next_seq"] = save().next_seq();
    d["next_stream_serial"] = save().next_stream_serial();
    d["num_chunks"] = save().num_chunks();
    d["tables"] = tables;
    d["patterns"] = patterns;
    return d;
  }

  // (part, table, bytes) of the next slice, which is put at the start of the buffer.
  nb::tuple fill(nb::handle buffer, nb::handle timeout_s) {
    uint64_t room = 0;
    char* to = bytes_of(buffer, room);
    if (room < CheckpointSave::kMinRoom) raise_error("ValueError", "the buffer is too small");
    CheckpointSave::Slice slice{};
    handle_.run(timeout_s, [&](Arena&, const Wait& w) { return save().fill(to, room, w, slice); });
    return nb::make_tuple(static_cast<int>(slice.part), slice.table, slice.bytes);
  }

  bool was_given_up() const { return save().was_given_up(); }
  uint64_t total_bytes() const { return save().total_bytes(); }
  uint64_t chunks_taken() const { return save().chunks_taken(); }

  void close() {
    const GilRelease release;
    save_.reset();
  }

 private:
  CheckpointSave& save() const {
    if (save_ == nullptr) raise_error("ShmReplayError", "the checkpoint is closed");
    return *save_;
  }

  static nb::dict words_of(const TableFacts& t, const TableRecord& r) {
    nb::dict d;
    d["name"] = t.name;
    d["size"] = r.size.get();
    d["paused"] = (r.flags.get() & (kPausedInserts | kPausedSamples)) != 0;
    const SavedTable words = saved_table(r);
    each_field(words, [&d](const char* name, const auto& value) { d[name] = nb::cast(value); });
    return d;
  }

  const NativeArena& handle_;  // kept alive by the binding
  std::shared_ptr<Arena> keep_;
  std::unique_ptr<CheckpointSave> save_;
};

class NativeRestorer {
 public:
  explicit NativeRestorer(const NativeArena& arena) : handle_(arena), keep_(arena.shared()), restorer_(*keep_) {}

  void set_state(nb::dict state) {
    restorer_.set_state(nb::cast<uint64_t>(state["next_seq"]), nb::cast<uint64_t>(state["next_stream_serial"]));
    const nb::object patterns = state["patterns"], tables = state["tables"];
    for (nb::handle p : patterns) {
      const auto blob = nb::cast<nb::bytes>(p[3]);
      restorer_.set_pattern(nb::cast<uint32_t>(p[0]), nb::cast<uint32_t>(p[1]), nb::cast<uint32_t>(p[2]),
                            std::string(blob.c_str(), blob.size()));
    }
    uint32_t index = 0;
    for (nb::handle t : tables) restorer_.set_table(index++, words_of(nb::cast<nb::dict>(t)));
  }

  void put(int part, uint32_t table, nb::handle buffer) {
    uint64_t size = 0;
    const char* from = bytes_of(buffer, size);
    const GilRelease release;
    restorer_.put(static_cast<SavedPart>(part), table, from, size);
  }

  void finish(nb::handle timeout_s) {
    handle_.run(timeout_s, [&](Arena&, const Wait& w) {
      restorer_.finish(w);
      return Status::kOk;
    });
  }

 private:
  static SavedTable words_of(nb::dict d) {
    SavedTable t;
    each_field(t, [&d](const char* name, auto& value) {
      value = nb::cast<std::remove_reference_t<decltype(value)>>(d[name]);
    });
    return t;
  }

  const NativeArena& handle_;  // kept alive by the binding
  std::shared_ptr<Arena> keep_;
  Restorer restorer_;
};

}  // namespace

void bind_checkpoint(nb::module_& m) {
  nb::class_<NativeCheckpointSave>(m, "CheckpointSave", "An arena as it is at one instant, slice by slice.")
      .def(nb::init<const NativeArena&>(), "arena"_a, nb::keep_alive<1, 2>())
      .def("take", &NativeCheckpointSave::take, "session"_a, "generation"_a, "timeout_s"_a.none())
      .def("state", &NativeCheckpointSave::state)
      .def("fill", &NativeCheckpointSave::fill, "buffer"_a, "timeout_s"_a.none())
      .def_prop_ro("was_given_up", &NativeCheckpointSave::was_given_up)
      .def_prop_ro("total_bytes", &NativeCheckpointSave::total_bytes)
      .def_prop_ro("chunks_taken", &NativeCheckpointSave::chunks_taken)
      .def("close", &NativeCheckpointSave::close);

  nb::class_<NativeRestorer>(m, "Restorer", "Fills a freshly formatted arena, unpublished, with a checkpoint's parts.")
      .def(nb::init<const NativeArena&>(), "arena"_a, nb::keep_alive<1, 2>())
      .def("set_state", &NativeRestorer::set_state, "state"_a)
      .def("put", &NativeRestorer::put, "part"_a, "table"_a, "buffer"_a)
      .def("finish", &NativeRestorer::finish, "timeout_s"_a.none());
}

}  // namespace shmreplay
