#include "write/stream_items.h"

#include <algorithm>

#include "arena/admission.h"
#include "items/item_table.h"

namespace shmreplay {

StreamItems::StreamItems(StreamSteps& steps)
    : steps_(steps),
      episode_slots_(steps.arena().num_tables(), kNone),
      noted_(steps.arena().num_tables(), Noted{0, 0}),
      newcomers_(kInsertGroup),
      item_values_(steps.arena(), steps.table()) {}

Status StreamItems::insert_rows(const TableFacts& t, PreparedPattern& p, const double* priorities, uint32_t n,
                                const Wait& wait, int64_t* keys, uint32_t& done, RowsKind kind) {
  StreamRow& row = steps_.row();
  for (done = 0; done < n;) {
    Rows rows{t, p, priorities + done, keys + done, std::min(n - done, kInsertGroup)};
    make_newcomers(rows.n, kind);
    if (kind.values != nullptr) {
      for (uint32_t i = 0; i < rows.n; ++i) newcomers_[i].values = kind.values[done + i];
    }
    row.mark_all();
    row.publish(rows.n);
    InsertHolds holds(steps_.arena(), uint64_t{1} << t.index, wait);
    const Status s = holds.run([&] { return rows.done < rows.n; },
                               [&](Hold& hold, Filled& filled) { return fill(hold, rows, filled); });
    done += rows.done;
    row.use_up(rows.done);
    if (kind.in_episode) steps_.history().skip(rows.done);
    if (s != Status::kOk) return s;
  }
  return Status::kOk;
}

void StreamItems::make_newcomers(uint32_t n, RowsKind kind) {
  const Place at = steps_.row().place();
  for (uint32_t i = 0; i < n; ++i) {
    NewItem& item = newcomers_[i] = NewItem{};
    item.place = {at.chunk, at.row + i};
    item.num_steps = 1;
    item.own_episode = !kind.in_episode;
    item.counted = kind.counted;
    item.step = kind.in_episode ? static_cast<int64_t>(steps_.history().episode_steps() + i) : 0;
  }
}

// Puts in rows while the log has room and the limiter admits them.
Status StreamItems::fill(Hold& hold, Rows& rows, Filled& filled) {
  const TableFacts& t = rows.table;
  if (const Status s = make_known(hold, t, rows.pattern); s != Status::kOk) return s;
  const uint32_t entries = insert_entries(t, 1) + kMaxOutputs;
  // A large new pattern and an insert of the largest size may not fit one log together: the insert gets the next hold.
  if (hold.room() < entries) return Status::kOk;
  // Read once a hold: after the first newcomer with this priority, it is still the largest for the others.
  const double fallback = default_priority(hold, t);
  const uint32_t before = rows.done;
  for (uint32_t i = before; i < rows.n; ++i) {
    newcomers_[i].priority = rows.priorities[i] < 0 ? fallback : rows.priorities[i];
    newcomers_[i].pattern = rows.pattern.record;
  }
  while (rows.done < rows.n && hold.room() >= entries) {
    NewItem* const items = &newcomers_[rows.done];
    const uint32_t left = rows.n - rows.done,
                   admitted = items->counted ? admitted_inserts(hold, *t.record, left) : left;
    if (admitted == 0) break;
    note_insert(hold, t, rows.pattern, *items);
    rows.done += put_in(hold, t, items, admitted, rows.keys + rows.done);
  }
  filled.items = rows.done - before;
  if (filled.items > 0) filled.tables = uint64_t{1} << t.index;
  else filled.blocking = t.index;
  return Status::kOk;
}

// Puts in the first of the items, or as many of them as go in together. Answers how many.
uint32_t StreamItems::put_in(Hold& hold, const TableFacts& t, NewItem* items, uint32_t n, int64_t* keys) {
  if (items->own_episode) return insert_items(hold, t, items, n, keys);
  items->episode = episode_;
  items->episode_slot = episode_slots_[t.index];
  const uint32_t num_in = insert_items(hold, t, items, 1, keys);
  episode_ = items->episode;
  episode_slots_[t.index] = items->episode_slot;
  return num_in;
}

int64_t StreamItems::put_in(Hold& hold, const DueItem& due, bool counted) {
  const TableFacts& t = hold.arena().table(due.table);
  const StreamHistory& history = steps_.history();
  NewItem item;
  item.priority = due.priority < 0 ? default_priority(hold, t) : due.priority;
  item.place = history.place_of(due.first);
  item.num_steps = due.num_steps;
  item.pattern = due.pattern->record;
  item.padding = due.padding;
  item.counted = counted;
  item.step = static_cast<int64_t>(due.first) - static_cast<int64_t>(history.episode_start());
  item.values = due.values;
  note_insert(hold, t, *due.pattern, item);
  int64_t key = 0;
  put_in(hold, t, &item, 1, &key);
  return key;
}

void StreamItems::note_insert(Hold& hold, const TableFacts& t, const PreparedPattern& p, const NewItem& item) {
  const uint64_t positions = uint64_t{item.padding.before} + item.num_steps + item.padding.after;
  if (noted_[t.index].pattern_hash == p.hash && noted_[t.index].positions == positions) return;
  note_lengths(hold, t, p.pattern, positions);
  noted_[t.index] = {p.hash, positions};
}

// An item's values take blocks of the chunk of its first step: often, but not always, the row's chunk.
Status StreamItems::bring_values(uint64_t first, const char* bytes, uint64_t num_bytes, const Wait& wait,
                                 BlockRef& ref) {
  const Arena& arena = steps_.arena();
  if (!fits_heap(arena, num_bytes)) return Status::kValueTooLarge;
  const uint32_t chunk = steps_.history().place_of(first).chunk;
  const Place row = steps_.row().place();
  ValueWriter& values = chunk == row.chunk ? steps_.row().values() : item_values_;
  values.use_chunk(chunk);
  if (const Status s = steps_.secure_blocks(values, blocks_of(arena, num_bytes), wait); s != Status::kOk) return s;
  ref = values.write(row.row, kNone, bytes, static_cast<uint32_t>(num_bytes));
  brought_to_ = &values;
  return Status::kOk;
}

void StreamItems::end_values(bool went_in) noexcept {
  if (brought_to_ != nullptr && !went_in) brought_to_->take_back_last();
  brought_to_ = nullptr;
  item_values_.keep_before(kNone);
}

void StreamItems::end_episode() noexcept {
  episode_ = 0;
  std::fill(episode_slots_.begin(), episode_slots_.end(), kNone);
}

}  // namespace shmreplay
