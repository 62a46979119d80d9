// One writer of one stream: the row that it writes, the finished steps that it holds, and the items that it makes of
// them. Private to its process. One call at a time.
#pragma once

#include "write/stream_items.h"
#include "write/stream_steps.h"

namespace shmreplay {

class StreamWriter {
 public:
  // `history`: how many finished steps stay selectable; 0: only the row being written (one-step items). `slack`: how
  // many more steps back an item may begin that was found due and goes in later.
  StreamWriter(Arena& arena, const TableFacts& table, uint32_t history, uint32_t slack = 0);
  ~StreamWriter() { give_up(); }
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // What a StreamGroup does for many streams, done for this one.
  Status open(const Wait& wait);
  Status close(const Wait& wait);       // idempotent
  void give_up() noexcept;              // closes it if it can; what the destructor does
  Status ensure_row(const Wait& wait);  // a row to write to: the open one, or the next
  bool is_open() const noexcept { return steps_.is_open(); }

  Arena& arena() const noexcept { return steps_.arena(); }
  const TableFacts& table() const noexcept { return steps_.table(); }
  StreamSteps& steps() noexcept { return steps_; }
  StreamRow& row() noexcept { return steps_.row(); }
  const StreamRow& row() const noexcept { return steps_.row(); }
  StreamHistory& history() noexcept { return steps_.history(); }
  const StreamHistory& history() const noexcept { return steps_.history(); }
  StreamItems& items() noexcept { return items_; }

  // Secures blocks for the values of this row and of the next rows of the chunk.
  Status secure_blocks(uint64_t n, const Wait& wait) { return steps_.secure_blocks(n, wait); }
  void finish_row() noexcept { steps_.finish_row(); }
  // The open row, if any, is the final step. The next row begins an episode.
  void end_episode(bool clear_history) noexcept;

  // After kTimeout: the index of the table whose limiter did not admit, or kNone.
  uint32_t blocking_table() const noexcept { return steps_.blocking_table(); }

 private:
  StreamSteps steps_;
  StreamItems items_;
};

}  // namespace shmreplay
