// The items that a writer makes of its stream's steps: which episode they belong to, and which values they bring.
//
// Rows and the items made of them go in together or not at all: a call that fails leaves the open row open.
#pragma once

#include <vector>

#include "items/insert.h"
#include "write/due_item.h"
#include "write/insert_holds.h"
#include "write/stream_steps.h"

namespace shmreplay {

class StreamItems {
 public:
  // `steps` must outlive it.
  explicit StreamItems(StreamSteps& steps);
  StreamItems(const StreamItems&) = delete;
  StreamItems& operator=(const StreamItems&) = delete;

  StreamSteps& steps() const noexcept { return steps_; }

  // Makes one-step items of the next `n` rows of the chunk, whose columns must all be written. `done` counts the items
  // that went in; their rows are used up. A negative priority stands for the table's default.
  struct RowsKind {
    bool in_episode = false;           // the rows are steps of the stream's episode; else each is an episode of its own
    bool counted = true;               // the limiter is asked, and counts the items
    const BlockRef* values = nullptr;  // what each item brings; null: nothing
  };
  Status insert_rows(const TableFacts& table, PreparedPattern& pattern, const double* priorities, uint32_t n,
                     const Wait& wait, int64_t* keys, uint32_t& done, RowsKind kind);
  Status insert_rows(const TableFacts& table, PreparedPattern& pattern, const double* priorities, uint32_t n,
                     const Wait& wait, int64_t* keys, uint32_t& done) {
    return insert_rows(table, pattern, priorities, n, wait, keys, done, {});
  }

  // bring_values() writes the values that an item from step `first` on brings, before it is inserted. end_values() says
  // afterwards whether the item went in.
  Status bring_values(uint64_t first, const char* bytes, uint64_t num_bytes, const Wait& wait, BlockRef& ref);
  void end_values(bool went_in) noexcept;

  // For a DueInsert, whose items are of this row and of steps before it. num_chunks(): how many chunks the item spans;
  // more than kMaxItemChunks if it is too long for a hold. put_in(): puts the item in and answers its key; the hold
  // must have made its pattern known and have room.
  uint32_t num_chunks(const DueItem& due) const noexcept { return steps_.num_chunks(due.first, due.num_steps); }
  int64_t put_in(Hold& hold, const DueItem& due, bool counted);

  void end_episode() noexcept;  // the next item is the first of an episode

 private:
  // Rows of one table that go in together, and how many of them are in.
  struct Rows {
    const TableFacts& table;
    PreparedPattern& pattern;
    const double* priorities;
    int64_t* keys;
    uint32_t n;
    uint32_t done = 0;
  };
  void make_newcomers(uint32_t n, RowsKind kind);
  Status fill(Hold& hold, Rows& rows, Filled& filled);
  uint32_t put_in(Hold& hold, const TableFacts& table, NewItem* items, uint32_t n, int64_t* keys);
  void note_insert(Hold& hold, const TableFacts& table, const PreparedPattern& pattern, const NewItem& item);

  StreamSteps& steps_;
  uint64_t episode_ = 0;                 // 0 until its first item
  std::vector<uint32_t> episode_slots_;  // by table
  struct Noted { uint64_t pattern_hash, positions; };
  std::vector<Noted> noted_;           // by table: the lengths noted last
  std::vector<NewItem> newcomers_;     // those of one insert_rows()
  ValueWriter item_values_;            // for an item that begins in another chunk than the row's
  ValueWriter* brought_to_ = nullptr;  // the writer of the values of an item that is not inserted yet
};

}  // namespace shmreplay
