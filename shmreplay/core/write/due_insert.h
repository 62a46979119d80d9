// Puts the items that rules found due into their tables, for one stream or for many.
//
// A run is what one stream has due. A piece is as much of a run as one hold can log and its tables could ever admit at
// once: all of a piece goes in, or the call waits until all of it can. A hold takes as many pieces as fit its log and
// are admitted, in the order of the runs. So the runs before at() are in, the run at at() may be partly in, and nothing
// of the runs after it is in.
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

  // Checks for items that fit no table or no hold: kStructure, kTooManyChunks, else kOk, as run() would answer. Runs
  // without the lock: another process may fix a table's structure meanwhile.
  Status find_misfit();

  // kOk: everything is in. kStructure, kTooManyChunks: at() is the first run that has such an item, and nothing is in
  // (unless another process fixed the table's structure meanwhile). kTimeout: the stream of the run at at() knows the
  // table whose limiter did not admit (StreamSteps::blocking_table()).
  Status run();

  // Index of the run at which the call ended.
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
  const PreparedPattern* known_ = nullptr;  // the last pattern that this hold made known, to table known_to_
  uint32_t known_to_ = kNone;
};

}  // namespace shmreplay
