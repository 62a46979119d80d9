// Fills a freshly formatted arena, which no other process can see yet, with the contents of a checkpoint.
//
// The parts come in the file's order: the state, the tables' words and patterns, pieces of chunks, items, chunks'
// records. Then finish() rebuilds what is derived, puts the dense arrays in the order that decides the draws, and
// checks every invariant. Anything that does not fit throws RestoreError, which names the record at fault. Then the
// arena must be thrown away.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "base/wait.h"
#include "checkpoint/chunk_bytes.h"
#include "checkpoint/touched_data.h"
#include "items/patterns.h"

namespace shmreplay {

class RestoreError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Restorer {
 public:
  explicit Restorer(Arena& unpublished);

  // Insertion numbers go on after a random jump of 2^40 to 2^41. So a key that was given out after the checkpoint, and
  // is lost with the old arena, finds no item in this one. Where possible, the jump keeps sorted keys in insertion
  // order.
  void set_state(uint64_t next_seq, uint64_t next_stream_serial);
  void set_table(uint32_t table, const SavedTable& saved);
  void set_pattern(uint32_t record, uint32_t num_outputs, uint32_t num_slices, const std::string& blob);

  // Takes a slice: whole records, or pieces of chunks, each following the one before. `table`: for items and free
  // slots.
  void put(SavedPart part, uint32_t table, const char* from, uint64_t bytes);

  void finish(const Wait& wait);

 private:
  void put_pieces(const char* from, uint64_t bytes);
  void put_items(uint32_t table, const char* from, uint64_t bytes);
  void put_free_slots(uint32_t table, const char* from, uint64_t bytes);
  void put_chunks(const char* from, uint64_t bytes);
  void put_item(const TableFacts& t, const SavedItem& item);
  void put_chunk(const SavedChunk& chunk);
  void note_position(uint32_t table, uint32_t role, uint32_t position, uint32_t slot);
  void keep_order(const TableFacts& t, Role role);
  void keep_free_slots(const TableFacts& t);
  void check_neighbours() const;
  void begin_chunk(const SavedPiece& piece);
  void end_chunk();
  bool is_own_value(BlockRef ref) const;

  Arena& arena_;
  TouchedData touched_;
  uint32_t coming_ = kNone;         // the chunk whose pieces are coming in
  ChunkBytes bytes_;                // of that chunk
  uint64_t offset_ = 0;             // of the next piece in them
  std::vector<SavedBlock> blocks_;  // of that chunk
  uint64_t saved_next_seq_ = 0;
  uint32_t num_chunks_ = 0;     // records that came
  std::vector<uint32_t> rows_;  // of each chunk whose bytes came
  std::vector<bool> has_record_;
  std::vector<std::vector<uint32_t>> positions_[2];  // by role and table: the dense array as it was
  std::vector<std::vector<SavedRun>> free_slots_;    // by table
};

}  // namespace shmreplay
