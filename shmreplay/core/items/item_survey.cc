#include "items/item_survey.h"

#include <algorithm>

#include "items/enter_table.h"
#include "items/item_table.h"

namespace shmreplay {
namespace {

int64_t age_of(const TableFacts& t, uint64_t insert_no) noexcept {
  return static_cast<int64_t>(t.record->next_insert_no.get() - 1 - insert_no);
}

// The process that wrote a used chunk; 0 if its session is over. The session's record may belong to another process
// since; that process took its chunks later.
uint32_t writer_of(const Arena& arena, const ChunkRecord& chunk) {
  const uint32_t session = chunk.writer.get().session;
  if (session >= arena.geometry().max_sessions) return 0;
  const SessionRecord& r = arena.session(session);
  return r.state.get().state == kSessionAlive && chunk.stamp.get() >= r.first_take.get() ? r.process.get().pid : 0;
}

// How many inserts the arena has had since it gave that key, including that insert.
uint64_t inserts_since(const Hold& hold, const TableFacts& t, int64_t key) noexcept {
  return low_seq(t, hold.arena().state().next_seq.get() - (static_cast<uint64_t>(key) >> t.slot_bits));
}

}  // namespace

Survey survey_items(const Arena& arena, const TableFacts& t, uint32_t max_items) {
  const uint64_t size = std::min<uint64_t>(t.record->size.get(), t.capacity);
  Survey survey{{}, static_cast<uint32_t>(std::max<uint64_t>(1, (size + max_items - 1) / max_items))};
  // A table that was never full has its items in the first slots: the walk ends as soon as it may have met them all.
  const uint64_t most = std::min<uint64_t>(max_items, survey.stride == 1 ? size : max_items);
  survey.items.reserve(most);
  for (uint64_t slot = 0; slot < t.capacity && survey.items.size() < most; slot += survey.stride) {
    const auto g = static_cast<uint32_t>(t.item_base + slot);
    const ItemRecord& item = arena.item(g);
    const uint64_t seq = item.seq.get();
    if (seq == 0) continue;
    const SurveyedItem found{key_of(t, g, seq), std::max<int64_t>(0, age_of(t, item.insert_no.get())),
                             item.counted.get().times_sampled, arena.priority(g).get()};
    if (item.seq.get() == seq) survey.items.push_back(found);  // a hint: the slot may have gone to another item
  }
  return survey;
}

Status find_origin(Arena& arena, const TableFacts& t, int64_t key, const Wait& wait, std::optional<Origin>& found) {
  found.reset();
  Hold hold(arena);
  if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
  const uint32_t g = find_item(hold, t, key);
  if (g == kNone) return Status::kOk;
  const ItemRecord& item = arena.item(g);
  const ChunkRecord& chunk = arena.chunk(item.place.get().chunk);
  found = Origin{item.insert_no.get(),
                 age_of(t, item.insert_no.get()),
                 item.episode.get() | uint64_t{t.shard} << kShardShift,  // as in a batch
                 item.step.get(),
                 item.extent.get().num_steps,
                 item.counted.get().times_sampled,
                 arena.priority(g).get(),
                 chunk.stream_serial.get(),
                 writer_of(arena, chunk)};
  return Status::kOk;
}

Status find_insert_number(Arena& arena, const TableFacts& table, int64_t key, const Wait& wait, uint64_t& number) {
  Hold hold(arena);
  if (const Status s = enter_table(hold, table, wait); s != Status::kOk) return s;
  number = table.record->next_insert_no.get() - inserts_since(hold, table, key);
  return Status::kOk;
}

}  // namespace shmreplay
