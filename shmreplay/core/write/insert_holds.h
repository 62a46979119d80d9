// The holds of one insert: one after another until everything is in. Where a limiter does not admit, the call sleeps
// between two holds.
//
// The caller says what goes in: fill(hold, filled) puts in as much as the hold's log takes and the limiters admit. A
// fill that puts in nothing and names no limiter gets another hold, with an empty log.
#pragma once

#include <optional>

#include "items/patterns.h"
#include "sessions/blocked.h"

namespace shmreplay {

// What one hold put in.
struct Filled {
  uint64_t tables = 0;  // one bit for each table that got items
  uint32_t items = 0;
  uint32_t blocking = kNone;  // if nothing went in: the table whose limiter does not admit what comes next
};

class InsertHolds {
 public:
  // `tables`: one bit for each table that is to get items; at least one.
  InsertHolds(Arena& arena, uint64_t tables, const Wait& wait) noexcept : arena_(arena), tables_(tables), wait_(wait) {}

  // Takes holds while is_left(). Answers kOk, kTimeout, kInterrupted, kClosed if a table was dropped, or what fill()
  // answered.
  template <class IsLeft, class Fill>
  Status run(IsLeft is_left, Fill fill) {
    for (bool is_first = true; is_left(); is_first = false) {
      if (!is_first) arena_.give_way();
      Hold hold(arena_);
      if (const Status s = enter(hold); s != Status::kOk) return s;
      Filled filled;
      const Status s = fill(hold, filled);
      count(hold, filled);
      if (s != Status::kOk) return s;
      if (filled.blocking == kNone) continue;
      if (const Status t = sleep(hold, filled.blocking); t != Status::kOk) return t;
    }
    return Status::kOk;
  }

 private:
  Status enter(Hold& hold);
  void count(Hold& hold, const Filled& filled);
  Status sleep(Hold& hold, uint32_t table);

  Arena& arena_;
  const uint64_t tables_;
  const Wait& wait_;
  std::optional<Blocked> blocked_;
  uint32_t blocking_ = kNone;  // the table that blocked_ is about
};

// Makes the pattern known to the arena and to the table. The pattern must have the table's structure. The hold's log
// must have room for kPatternWords + kMaxOutputs words.
Status make_known(Hold& hold, const TableFacts& table, PreparedPattern& pattern);

}  // namespace shmreplay
