// One stream's steps as its writer sees them: the row being written, and the finished steps before it, in a window of
// chunks.
//
// Private to its process; the segment knows only the stream's window (streams.h). A StreamGroup opens the stream,
// closes it and gets chunks for it.
#pragma once

#include "arena/hold.h"
#include "write/stream_history.h"
#include "write/stream_row.h"

namespace shmreplay {

class StreamSteps {
 public:
  // `history`, `slack`: see StreamHistory.
  StreamSteps(Arena& arena, const TableFacts& table, uint32_t history, uint32_t slack);
  StreamSteps(const StreamSteps&) = delete;
  StreamSteps& operator=(const StreamSteps&) = delete;

  // Call this before the stream is opened, and only if all columns are plain or per item. From then on a chunk begins
  // every `steps` steps, counted from the start of the episode (`across`: of the stretch), and an episode that clears
  // the history ends its chunk. `repeats`: the step after those `steps` steps is a row of both chunks. So an item of
  // those steps, and of the one after them, lies in one chunk.
  void unroll(uint32_t steps, bool repeats, bool across) noexcept { unroll_ = {steps, repeats, across}; }
  bool unrolls() const noexcept { return unroll_.steps > 0; }

  Arena& arena() const noexcept { return arena_; }
  const TableFacts& table() const noexcept { return table_; }
  StreamRow& row() noexcept { return row_; }
  const StreamRow& row() const noexcept { return row_; }
  StreamHistory& history() noexcept { return history_; }
  const StreamHistory& history() const noexcept { return history_; }

  bool is_open() const noexcept { return stream_ != kNone; }
  uint32_t stream() const noexcept { return stream_; }  // its record; kNone: not open
  uint64_t serial() const noexcept { return serial_; }
  uint32_t last_chunk() const;           // of the window of the open stream, or kNone
  uint32_t max_chunks() const noexcept;  // the most that the window needs
  // How many chunks an item of `num_steps` steps from step `first` on spans; more than kMaxItemChunks if it is too long
  // for a hold.
  uint32_t num_chunks(uint64_t first, uint32_t num_steps) const noexcept;

  // Parts of what a StreamGroup does, in a hold. close(): call it until it answers true. use_chunk(): goes on to a
  // chunk that was just taken.
  Status open(Hold& hold);
  bool close(Hold& hold, uint32_t most_chunks);
  void use_chunk(Hold& hold, uint32_t chunk);

  bool has_row() const noexcept { return row_.is_open() || row_.rows_left() > 0; }  // to write to
  void begin_row();                                                                 // unless one is open
  void finish_row() noexcept;                     // it becomes the newest step of the history
  void end_episode(bool clear_history) noexcept;  // the open row, if any, is the final step

  // Secures blocks for the values of this row and of the next rows of the chunk.
  Status secure_blocks(uint64_t n, const Wait& wait);
  Status secure_blocks(ValueWriter& values, uint64_t n, const Wait& wait);  // perhaps of another chunk

  // The table whose limiter keeps the caller's items waiting. kNone: no limiter does; a waiting call waits for a chunk
  // or for blocks.
  uint32_t blocking_table() const noexcept { return blocking_table_; }
  void note_blocking(uint32_t table) noexcept { blocking_table_ = table; }

 private:
  bool repeats_newest() const noexcept;
  void repeat_newest();

  Arena& arena_;
  const TableFacts& table_;
  const uint32_t max_back_;  // steps that an item may go back
  struct {
    uint32_t steps;
    bool repeats, across;
  } unroll_{0, false, false};
  uint32_t stream_ = kNone;
  uint64_t serial_ = 0;
  StreamRow row_;
  StreamHistory history_;
  bool is_to_repeat_ = false;  // the chunk's first row is to be made of the newest step
  uint32_t blocking_table_ = kNone;
};

}  // namespace shmreplay
