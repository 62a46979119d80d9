#include "checkpoint/checkpoint_fixture.h"

namespace shmreplay::test {

bool save_rest(CheckpointSave& save, uint64_t room, const Wait& wait, SavedArena& out) {
  out.next_seq = save.next_seq();
  out.next_stream_serial = save.next_stream_serial();
  for (uint32_t i = 0; i < save.arena().num_tables(); ++i) out.tables.push_back(saved_table(save.table(i)));
  for (uint32_t i = 0; i < save.arena().geometry().max_patterns; ++i) {
    const PatternRecord& p = save.pattern(i);
    if (p.usage.get().refs == 0) continue;
    out.patterns.push_back({i, p.size.get().num_outputs, p.size.get().num_slices, std::string(save.blob(p))});
  }
  std::string buffer(room, 0);
  for (;;) {
    CheckpointSave::Slice slice{};
    if (save.fill(buffer.data(), room, wait, slice) != Status::kOk || save.was_given_up()) return false;
    if (slice.part == SavedPart::kEnd) return true;
    out.slices.emplace_back(slice, buffer.substr(0, slice.bytes));
  }
}

SavedArena save_arena(Arena& arena, uint64_t room) {
  const SessionInfo session = open_own_session(arena);
  SavedArena saved;
  {
    CheckpointSave save(arena);
    bool busy = false;
    CHECK_EQ(save.take(session.index, session.generation, kWhatever, busy), Status::kOk);
    CHECK(!busy);
    CHECK(save_rest(save, room, kWhatever, saved));
  }
  bool reaped = false;
  CHECK_EQ(close_session(arena, session.index, session.generation, kWhatever, reaped), Status::kOk);
  return saved;
}

RestoredWorld::RestoredWorld(const ArenaSpec& spec, const SavedArena& saved) : segments(spec, false) {
  daemon = std::make_unique<Arena>(segments.index_fd, segments.data_fd, kNone, 0, false);
  Restorer restorer(*daemon);
  restorer.set_state(saved.next_seq, saved.next_stream_serial);
  for (const SavedPattern& p : saved.patterns) restorer.set_pattern(p.record, p.num_outputs, p.num_slices, p.blob);
  for (uint32_t i = 0; i < saved.tables.size(); ++i) restorer.set_table(i, saved.tables[i]);
  for (const auto& [slice, bytes] : saved.slices) restorer.put(slice.part, slice.table, bytes.data(), bytes.size());
  restorer.finish(kWhatever);
  daemon->publish();
  const SessionInfo session = open_own_session(*daemon);
  own = segments.attach(session.index, session.generation);
}

}  // namespace shmreplay::test
