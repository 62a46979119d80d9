#include "write/stream_steps.h"

#include "base/row_copy.h"
#include "chunks/streams.h"

namespace shmreplay {

StreamSteps::StreamSteps(Arena& arena, const TableFacts& table, uint32_t history, uint32_t slack)
    : arena_(arena),
      table_(table),
      max_back_(history + slack),
      row_(arena, table),
      history_(arena, row_, history, slack) {}

uint32_t StreamSteps::last_chunk() const { return arena_.stream(stream_).window.get().last; }

// The row being written and the steps that an item may go back touch at most this many chunks. Where rows repeat, each
// chunk shares one of its steps with another chunk; the newest step is in the last chunk.
uint32_t StreamSteps::max_chunks() const noexcept {
  const uint32_t chunk_steps = arena_.geometry().chunk_steps;
  if (!unroll_.repeats || max_back_ == 0) return (max_back_ + chunk_steps - 1) / chunk_steps + 1;
  return (max_back_ - 1 + unroll_.steps - 1) / unroll_.steps + 1;
}

// All chunks of the stream but the last are full: none has to be looked at.
uint32_t StreamSteps::num_chunks(uint64_t first, uint32_t num_steps) const noexcept {
  const uint32_t steps = unroll_.repeats ? unroll_.steps : arena_.geometry().chunk_steps;
  const uint64_t n = (uint64_t{history_.place_of(first).row} + num_steps - 1) / steps + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(n, kMaxItemChunks + 1));
}

Status StreamSteps::open(Hold& hold) {
  uint32_t stream;
  if (const Status s = open_stream(hold, max_chunks(), stream); s != Status::kOk) return s;
  serial_ = arena_.stream(stream).serial.get();
  stream_ = stream;
  return Status::kOk;
}

bool StreamSteps::close(Hold& hold, uint32_t most_chunks) {
  if (is_open() && !close_stream(hold, stream_, most_chunks)) return false;
  stream_ = kNone;
  row_.leave_chunk();
  history_.drop();
  return true;
}

// Whether the newest step ends a run of steps and begins the next.
bool StreamSteps::repeats_newest() const noexcept {
  const uint64_t start = unroll_.across ? history_.stretch_start() : history_.episode_start();
  const uint64_t steps = history_.num_finished() - start;
  return unroll_.repeats && steps > 1 && (steps - 1) % unroll_.steps == 0;
}

void StreamSteps::use_chunk(Hold& hold, uint32_t chunk) {
  const Place at = row_.place();
  is_to_repeat_ = at.chunk != kNone && repeats_newest();
  if (at.chunk != kNone && (is_to_repeat_ || at.row < arena_.geometry().chunk_steps))
    close_chunk(hold, at.chunk, at.row, is_to_repeat_);
  extend_window(hold, stream_, chunk);
  row_.use_chunk(chunk, is_to_repeat_ ? 1 : 0);
}

// Nobody reads this row before there is an item with a step after the repeated one.
void StreamSteps::repeat_newest() {
  is_to_repeat_ = false;
  const Place from = history_.place_of(history_.num_finished() - 1), to{row_.place().chunk, 0};
  for (uint32_t c = 0; c < arena_.columns().size(); ++c) {
    copy_row(arena_.row(to.chunk, c, 0), arena_.row(from.chunk, c, from.row), arena_.columns()[c].row_bytes,
             arena_.exceeds_caches());
  }
  const uint64_t* present = history_.present_in_newest();
  for (uint32_t w = 0; w < arena_.geometry().presence_words; ++w) {
    arena_.presence(to.chunk, 0, w).store(present[w], std::memory_order_relaxed);  // relaxed: as in
                                                                                   // StreamRow::publish()
  }
  history_.move_newest(to);
}

void StreamSteps::begin_row() {
  if (row_.is_open()) return;
  if (is_to_repeat_) repeat_newest();
  row_.begin();
}

void StreamSteps::finish_row() noexcept {
  row_.publish();
  history_.add();
  row_.use_up(1);
}

void StreamSteps::end_episode(bool clear_history) noexcept {
  if (row_.is_open()) finish_row();
  history_.end_episode(clear_history);
  const Place at = row_.place();
  if (clear_history && unrolls() && at.chunk != kNone && at.row > 0) row_.end_chunk();
}

Status StreamSteps::secure_blocks(uint64_t n, const Wait& wait) {
  return n == 0 ? Status::kOk : secure_blocks(row_.values(), n, wait);
}

Status StreamSteps::secure_blocks(ValueWriter& values, uint64_t n, const Wait& wait) {
  blocking_table_ = kNone;  // the call waits for room now, whatever kept an item waiting before
  return values.secure(stream_, n, wait);
}

}  // namespace shmreplay
