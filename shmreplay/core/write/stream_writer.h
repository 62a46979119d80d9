// One writer of one stream: where its next row goes, which rows it still holds, and the items it makes of them.
//
// Private to its process; the segment knows only the stream's window of chunks (streams.h). A row is written in place,
// without the lock: nobody can see it until an item names it. Rows and the item made of them happen together or not at
// all: a call that fails leaves the open row open.
#pragma once

#include <algorithm>
#include <vector>

#include "base/mutable_cell.h"
#include "sessions/blocked.h"
#include "write/item_rules.h"
#include "write/row_packer.h"
#include "write/value_writer.h"

namespace shmreplay {

class StreamWriter : public StreamView {
 public:
  // `history`: how many finished steps stay selectable. 0: none behind the row being written (one-step items). `slack`:
  // how many more steps an item may go back that was found due and goes in later.
  StreamWriter(Arena& arena, const TableFacts& table, uint32_t history, uint32_t slack = 0);
  ~StreamWriter() override;
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // Before it is opened, where all columns are plain or per item: every `steps` steps, counted from where an episode
  // begins (`across`: a stretch), begin a chunk; an episode that clears the history ends one. `repeats`: the step
  // behind them is a row of both chunks. So an item of those steps, and of that one, lies in one chunk.
  void unroll(uint32_t steps, bool repeats, bool across) noexcept { unroll_ = {steps, repeats, across}; }
  bool unrolls() const noexcept { return unroll_.steps > 0; }

  // Alone what a StreamGroup does for many.
  Status open(const Wait& wait);
  Status close(const Wait& wait);       // idempotent
  void give_up() noexcept;              // closes it if it can; what the destructor does
  Status ensure_row(const Wait& wait);  // a row to write to: the open one, or the next
  bool is_open() const noexcept { return stream_ != kNone; }
  Arena& arena() const noexcept { return arena_; }
  const TableFacts& table() const noexcept { return table_; }
  uint32_t rows_left() const noexcept { return chunk_ == kNone ? 0 : rows_in_chunk_ - row_; }  // in the current chunk
  // Where a column's bytes go: of a plain or mutable one's row, or of a packed one's, to be packed then.
  char* cell(uint32_t column) { return packs(column) ? packer(column).staged() : cell_ahead(column, 0); }
  void prefetch_row() const;                                       // that it is about to be written to
  void write_rows(uint32_t column, const char* from, uint32_t n);  // as many cells, from this row on
  // Where the bytes of a plain or mutable cell go in the row that is `ahead` of this one.
  char* cell_ahead(uint32_t column, uint32_t ahead) const {
    char* row = arena_.row(chunk_, column, row_ + ahead);
    return arena_.columns()[column].flags == kMutableColumn ? MutableCell::first_copy(row) : row;
  }

  // Blocks for the values of this and the next rows of the chunk; then the values, to the row that is `ahead` of this
  // one.
  Status secure_blocks(uint64_t n, const Wait& wait);
  void write_value(uint32_t column, const char* bytes, uint32_t num_bytes, uint32_t ahead = 0);
  void write_no_value(uint32_t column, uint32_t ahead = 0);

  // Rows of packed columns. They are packed, what is in cell() or what is given, in their order; then blocks are
  // secured, as many as they take; then they are written. begin_packing() before the first: what was packed and not
  // written is gone.
  bool packs(uint32_t column) const noexcept { return !packers_.empty() && packer_of_[column] != kNone; }
  void begin_packing() noexcept;
  void pack(uint32_t column, uint32_t ahead = 0);
  void pack(uint32_t column, const char* row, uint32_t ahead);
  uint64_t packed_blocks() const noexcept { return packed_blocks_; }
  void keep_packed(uint32_t num_rows) noexcept;  // only those of the first rows
  void write_packed();
  // What the one-step item of that row brings.
  BlockRef write_item_value(const char* bytes, uint32_t num_bytes, uint32_t ahead = 0) {
    return row_values_.write(row_ + ahead, 0, bytes, num_bytes);
  }
  void give_up_rows() noexcept;  // one-step rows that did not become items: their blocks serve the next

  // Values that an item of a span from step `first` on brings, before it is inserted; then whether it was.
  Status bring_values(uint64_t first, const char* bytes, uint64_t num_bytes, const Wait& wait, BlockRef& ref);
  void end_values(bool went_in) noexcept;

  bool row_is_open() const noexcept { return row_is_open_; }
  bool has(uint32_t column) const noexcept { return present_[column / 64] >> (column % 64) & 1; }
  void mark(uint32_t column) noexcept;  // this cell of the row is written
  void mark_all() noexcept;             // all of them are
  bool lacks_any() const noexcept { return num_present_ < arena_.geometry().num_columns; }
  void finish_row() noexcept;  // it becomes the newest step of the history
  const std::vector<uint64_t>& present() const noexcept { return present_; }
  // The open row's columns are these again, none: no row is open. For a call that failed after it had written.
  void restore_row(const std::vector<uint64_t>& present) noexcept;

  // One-step items of the next `n` rows of the chunk, all columns of which are written. `done` counts the items that
  // went in; their rows are used up. A negative priority stands for the table's default.
  struct RowsKind {
    bool in_episode = false;           // they are steps of the stream's episode; else each is an episode of its own
    bool counted = true;               // the limiter is asked and moved
    const BlockRef* values = nullptr;  // what each item brings, or nothing
  };
  Status insert_rows(const TableFacts& table, PreparedPattern& pattern, const double* priorities, uint32_t n,
                     const Wait& wait, int64_t* keys, uint32_t& done, RowsKind kind);
  Status insert_rows(const TableFacts& table, PreparedPattern& pattern, const double* priorities, uint32_t n,
                     const Wait& wait, int64_t* keys, uint32_t& done) {
    return insert_rows(table, pattern, priorities, n, wait, keys, done, {});
  }

  // Steps that an item can be made of now, the open row included.
  uint32_t num_steps() const noexcept { return num_held_ + (row_is_open_ ? 1 : 0); }
  uint64_t episode_steps() const noexcept { return episode_steps_; }
  uint64_t newest_step() const noexcept { return finished_ - (row_is_open_ ? 0 : 1); }  // its number; there is one

  // How many of the newest finished steps have every column: an item may not select what a step lacks.
  uint32_t num_whole() const noexcept { return std::min(num_whole_, num_held_); }

  // After kTimeout: the index of the table whose limiter did not admit, or kNone.
  uint32_t blocking_table() const noexcept { return blocking_table_; }
  void note_blocking(uint32_t table) noexcept { blocking_table_ = table; }

  // What DueInsert, which puts in items of this row and steps before it, is made of. Chunks that the item spans, more
  // than kMaxItemChunks if it is too long for a hold. And, in a hold that has the pattern interned and room: puts it
  // in; its key.
  uint32_t num_chunks(const DueItem& due) const;
  int64_t put_in(Hold& hold, const DueItem& due, bool counted);

  // The open row, if any, is the final step. The next row begins an episode.
  void end_episode(bool clear_history) noexcept;

  // StreamView: the newest step is the row being written.
  uint64_t newest() const noexcept override { return finished_ - (newest_is_finished_ ? 1 : 0); }
  uint64_t oldest_held() const noexcept override { return finished_ - num_held_; }
  uint64_t episode_start() const noexcept override { return finished_ - episode_steps_; }
  uint64_t stretch_start() const noexcept override { return stretch_start_; }
  uint64_t history() const noexcept override { return history_; }
  bool has(uint64_t step, uint32_t column) const noexcept override;
  bool has_all_since(uint64_t step) const noexcept override {
    return step + num_whole_ >= finished_ && (newest_is_finished_ || !lacks_any());
  }
  const char* cell(uint64_t step, uint32_t column) const override;  // of a plain column
  BlockRef value(uint64_t step, uint32_t column) const;             // of a heap column
  void read_value(uint64_t step, BlockRef ref, char* to) const;
  void read_mutable(uint64_t step, uint32_t column, char* to) const;
  bool read_packed(uint64_t step, uint32_t column, char* to) const;  // false: the heap is damaged
  // Whether newest() is the last finished step: at the end of an episode without an open row.
  void look_at_finished(bool yes) noexcept { newest_is_finished_ = yes; }

 private:
  friend class StreamGroup;  // opens, closes and feeds it
  uint32_t max_chunks() const noexcept;
  void use_chunk(Hold& hold, uint32_t chunk);
  bool repeats_newest() const noexcept;
  void repeat_newest();
  Place place_of(uint64_t step) const noexcept;
  NewItem item_of(const DueItem& due) const;
  void note_insert(Hold& hold, const TableFacts& table, const PreparedPattern& pattern, const NewItem& item);
  Status insert(const TableFacts& table, PreparedPattern& pattern, NewItem* items, const double* priorities, uint32_t n,
                const Wait& wait, int64_t* keys, uint32_t& done);
  uint32_t put_in(Hold& hold, const TableFacts& table, NewItem* items, uint32_t n, int64_t* keys);
  void begin_row();
  void put_value(uint32_t column, uint32_t row, BlockRef ref);
  MutableCell mutable_cell(uint32_t column, uint32_t row) const;
  RowPacker& packer(uint32_t column) noexcept { return packers_[packer_of_[column]]; }
  void forget_packed(uint32_t column) noexcept {
    if (packs(column)) packer(column).forget();
  }

  Arena& arena_;
  const TableFacts& table_;
  uint32_t history_, slack_;
  struct {
    uint32_t steps;
    bool repeats, across;
  } unroll_{0, false, false};
  bool is_to_repeat_ = false;  // the chunk's first row is to be made of the newest step
  uint32_t stream_ = kNone;
  uint64_t serial_ = 0;
  uint32_t chunk_ = kNone, row_ = 0, rows_in_chunk_ = 0;
  bool row_is_open_ = false;
  std::vector<uint64_t> base_present_;  // columns that no row can lack
  uint32_t num_base_ = 0;
  std::vector<uint64_t> present_;
  uint32_t num_present_ = 0;
  uint64_t finished_ = 0;  // rows finished since the stream's start: the number of the next one
  bool newest_is_finished_ = false;
  uint64_t stretch_start_ = 0;          // the first step since the history was cleared
  std::vector<Place> held_;             // ring of the newest `history_ + slack_` finished rows, by number
  std::vector<uint64_t> held_present_;  // and which columns they have
  uint32_t num_held_ = 0;
  uint32_t num_whole_ = 0;               // finished rows behind the last one that lacks a column, up to `history_`
  uint64_t episode_steps_ = 0;           // finished steps of this episode
  uint64_t episode_ = 0;                 // 0 until its first item
  std::vector<uint32_t> episode_slots_;  // by table
  struct Noted { uint64_t pattern_hash, positions; };
  std::vector<Noted> noted_;    // by table: lengths noted last
  std::vector<NewItem> items_;  // those of one insert_rows()
  uint32_t blocking_table_ = kNone;
  std::vector<RowPacker> packers_;   // of packed columns
  std::vector<uint32_t> packer_of_;  // by column
  struct Packed {
    uint32_t column, row;
    size_t begin, num_bytes;
  };
  std::vector<Packed> packed_;      // and not written yet
  std::vector<char> packed_bytes_;  // of those
  uint64_t packed_blocks_ = 0;
  ValueWriter row_values_, item_values_;  // of the chunk being written, and of another that an item begins in
  ValueWriter* brought_to_ = nullptr;     // the one with the values of an item that is not inserted yet
};

}  // namespace shmreplay
