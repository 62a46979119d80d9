#include "write/insert_holds.h"

#include <bit>

#include "arena/session_counts.h"
#include "base/futex.h"
#include "items/enter_table.h"
#include "items/item_table.h"

namespace shmreplay {
namespace {

const TableFacts& first_of(const Arena& arena, uint64_t tables) {
  return arena.table(static_cast<uint32_t>(std::countr_zero(tables)));
}

}  // namespace

// Takes the lock at a moment when none of the tables is dropped or being reset. enter_table() sees to one of them; the
// others are checked after it.
Status InsertHolds::enter(Hold& hold) {
  const auto is_ready = [](const TableFacts& t) { return (t.record->flags.get() & (kDropped | kResetting)) == 0; };
  for (uint64_t left = tables_;;) {
    if (const Status s = enter_table(hold, first_of(arena_, left), wait_); s != Status::kOk) return s;
    for (left = tables_; left != 0 && is_ready(first_of(arena_, left));) left &= left - 1;
    if (left == 0) break;
    hold.end();
  }
  if (blocked_) blocked_->leave(hold);
  return Status::kOk;
}

void InsertHolds::count(Hold& hold, const Filled& filled) {
  if (filled.items == 0) return;
  count_own_inserts(hold, filled.tables, filled.items);
  for (uint64_t left = filled.tables; left != 0; left &= left - 1)
    hold.set(first_of(arena_, left).record->last_insert_ns, coarse_now_ns());
}

// Ends the hold and sleeps until the limiter may admit what is left.
Status InsertHolds::sleep(Hold& hold, uint32_t table) {
  if (wait_.try_only) return Status::kTimeout;
  if (!blocked_ || table != blocking_) blocked_.emplace(arena_, arena_.table(table), kInserts, wait_);
  blocking_ = table;
  blocked_->join(hold);
  hold.end();
  return blocked_->sleep();
}

Status make_known(Hold& hold, const TableFacts& t, PreparedPattern& pattern) {
  if (const Status s = intern_pattern(hold, pattern); s != Status::kOk) return s;
  return admit_structure(hold, t, pattern);
}

}  // namespace shmreplay
