#include "write/stream_history.h"

#include "base/mutable_cell.h"
#include "chunks/packed_reader.h"

namespace shmreplay {

StreamHistory::StreamHistory(const Arena& arena, const StreamRow& row, uint32_t max_steps, uint32_t slack)
    : arena_(arena),
      row_(row),
      max_steps_(max_steps),
      words_(arena.geometry().presence_words),
      held_(std::max(max_steps, 1u) + slack),
      held_present_(held_.size() * words_, 0) {}

Place StreamHistory::place_of(uint64_t step) const noexcept {
  return step == num_finished_ ? row_.place() : held_[slot_of(step)];
}

bool StreamHistory::has(uint64_t step, uint32_t column) const noexcept {
  if (step == num_finished_) return row_.has(column);
  return held_present_[slot_of(step) * words_ + column / 64] >> (column % 64) & 1;
}

const char* StreamHistory::cell(uint64_t step, uint32_t column) const {
  const Place at = place_of(step);
  return arena_.row(at.chunk, column, at.row);
}

BlockRef StreamHistory::value(uint64_t step, uint32_t column) const {
  const Place at = place_of(step);
  return value_of_row(arena_, at.chunk, column, at.row);
}

void StreamHistory::read_value(uint64_t step, BlockRef ref, char* to) const {
  shmreplay::read_value(arena_, place_of(step).chunk, ref, to);
}

void StreamHistory::read_mutable(uint64_t step, uint32_t column, char* to) const {
  const Place at = place_of(step);
  MutableCell(arena_.row(at.chunk, column, at.row), arena_.columns()[column].row_bytes).read(to);
}

bool StreamHistory::read_packed(uint64_t step, uint32_t column, char* to) const {
  const Place at = place_of(step);
  PackedReader reader(arena_.columns()[column].packed_bytes);
  reader.read(arena_, at.chunk, column, at.row, to);
  return !reader.damage().is_there;
}

void StreamHistory::add() noexcept {
  if (max_steps_ > 0) {
    const size_t at = slot_of(num_finished_);
    held_[at] = row_.place();
    std::copy(row_.present().begin(), row_.present().end(),
              held_present_.begin() + static_cast<ptrdiff_t>(at * words_));
    num_held_ = std::min(num_held_ + 1, max_steps_);
    num_whole_ = row_.lacks_any() ? 0 : std::min(num_whole_ + 1, max_steps_);
  }
  skip(1);
}

void StreamHistory::skip(uint32_t n) noexcept {
  num_finished_ += n;
  episode_steps_ += n;
}

void StreamHistory::move_newest(Place to) noexcept { held_[slot_of(num_finished_ - 1)] = to; }

const uint64_t* StreamHistory::present_in_newest() const noexcept {
  return held_present_.data() + slot_of(num_finished_ - 1) * words_;
}

void StreamHistory::end_episode(bool clear) noexcept {
  episode_steps_ = 0;
  if (!clear) return;
  num_held_ = 0;
  stretch_start_ = num_finished_;
}

}  // namespace shmreplay
