// The items that rules found due, of one stream or of many, put into their tables.
//
// A run has what one stream has due. As much of a run as a hold can log and its tables can ever admit at once is a
// piece: it goes in whole, or the call waits for all of it. A hold takes as many pieces as fit, in the order of the
// runs, and as many as are admitted; so the runs before `done` are in, the one at `done` may be in part, and nothing
// behind it is.
#pragma once

#include <optional>
#include <span>

#include "sessions/blocked.h"
#include "write/item_rules.h"

namespace shmreplay {

class StreamWriter;

struct DueRun {
  StreamWriter* stream;
  DueItem* due;
  int64_t* keys;
  uint32_t n;
  uint32_t done = 0;  // items that are in
};

class DueInsert {
 public:
  // `counted` false: the limiters are neither asked nor moved.
  DueInsert(Arena& arena, std::span<DueRun> runs, const Wait& wait, bool counted = true);

  // What run() would say of items that fit no table or no hold: kStructure, kTooManyChunks, else kOk. Without the lock:
  // another may fix a table's structure meanwhile.
  Status find_misfit();

  // kOk when everything is in. kStructure, kTooManyChunks: of the first run that has such an item, and nothing is in.
  // kTimeout: the run's stream knows the table whose limiter did not admit.
  Status run();

  // Of the runs: where it ended.
  size_t at() const noexcept { return at_; }

 private:
  struct Piece {
    DueItem* due;
    uint32_t n;
    uint32_t entries;
  };

  Status enter_tables(Hold& hold) const;
  Piece next_piece() const;
  Status make_known(Hold& hold, const Piece& piece, bool& all);
  bool admits(const Piece& piece, uint32_t& blocking) const;
  Status fill(Hold& hold, uint64_t& filled, uint32_t& items, uint32_t& blocking);
  Status one_hold();

  Arena& arena_;
  std::span<DueRun> runs_;
  const Wait& wait_;
  bool counted_;
  size_t at_ = 0;
  uint64_t tables_ = 0;                     // bits of those that get items
  const PreparedPattern* known_ = nullptr;  // in this hold, to that table: the last one
  uint32_t known_to_ = kNone;
  std::optional<Blocked> blocked_;
  uint32_t blocking_ = kNone;
};

}  // namespace shmreplay
