// The items that rules found due, of one stream or of many, put into their tables.
//
// A run is what one stream has due. As much of a run as a hold can log and its tables can ever admit at once is a
// piece: it goes in whole, or the call waits for all of it. A hold takes as many pieces as fit, in the order of the
// runs, and as many as are admitted; so the runs before `done` are in, the one at `done` may be in part, and nothing
// of the runs after it is.
#pragma once

#include <span>

#include "write/stream_items.h"

namespace shmreplay {

struct DueRun {
  StreamItems* stream;
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

  Piece next_piece(const Hold& hold) const;
  Status make_piece_known(Hold& hold, const Piece& piece, bool& all);
  uint32_t keeps_out(const Hold& hold, const Piece& piece) const;
  Status fill(Hold& hold, Filled& filled);
  void put_in(Hold& hold, const Piece& piece, Filled& filled);

  Arena& arena_;
  std::span<DueRun> runs_;
  const Wait& wait_;
  bool counted_;
  size_t at_ = 0;
  const PreparedPattern* known_ = nullptr;  // the last pattern that this hold made known, to that table
  uint32_t known_to_ = kNone;
};

}  // namespace shmreplay
