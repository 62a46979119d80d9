// The steps of a stream that items can be made of: the newest finished ones, and the row that is being written.
//
// A finished step stays where it is, and its columns are remembered; nothing is copied. Steps are counted in their
// episode, and in the stretch since the history was last cleared.
#pragma once

#include <algorithm>
#include <vector>

#include "chunks/block_heap.h"
#include "write/stream_row.h"
#include "write/stream_view.h"

namespace shmreplay {

class StreamHistory final : public StreamView {
 public:
  // `max_steps`: finished steps that it holds; 0: none (one-step items). `slack`: how many more steps back an item may
  // begin that was found due earlier. The row must outlive the history.
  StreamHistory(const Arena& arena, const StreamRow& row, uint32_t max_steps, uint32_t slack);

  uint32_t num_steps() const noexcept { return num_held_ + (row_.is_open() ? 1 : 0); }  // the open row included
  uint64_t num_finished() const noexcept { return num_finished_; }                      // since the stream's start
  uint64_t episode_steps() const noexcept { return episode_steps_; }                    // finished ones of the episode
  // The number of the newest step, the open row included. There must be one.
  uint64_t newest_step() const noexcept { return num_finished_ - (row_.is_open() ? 0 : 1); }
  // How many of the newest finished steps have every column: an item may not select what a step lacks.
  uint32_t num_whole() const noexcept { return std::min(num_whole_, num_held_); }

  // StreamView. The newest step is the row being written. After look_at_finished(true) it is the last finished step,
  // for the end of an episode without an open row.
  uint64_t newest() const noexcept override { return num_finished_ - (newest_is_finished_ ? 1 : 0); }
  uint64_t oldest_held() const noexcept override { return num_finished_ - num_held_; }
  uint64_t episode_start() const noexcept override { return num_finished_ - episode_steps_; }
  uint64_t stretch_start() const noexcept override { return stretch_start_; }
  uint64_t max_steps() const noexcept override { return max_steps_; }
  bool has(uint64_t step, uint32_t column) const noexcept override;
  bool has_all_since(uint64_t step) const noexcept override {
    return step + num_whole_ >= num_finished_ && (newest_is_finished_ || !row_.lacks_any());
  }
  const char* cell(uint64_t step, uint32_t column) const override;
  void look_at_finished(bool yes) noexcept { newest_is_finished_ = yes; }

  // Where a step lies, and how to read its cells of columns that are not plain.
  Place place_of(uint64_t step) const noexcept;
  BlockRef value(uint64_t step, uint32_t column) const;  // of a heap column
  void read_value(uint64_t step, BlockRef ref, char* to) const;
  void read_mutable(uint64_t step, uint32_t column, char* to) const;
  bool read_packed(uint64_t step, uint32_t column, char* to) const;  // false: the heap is damaged

  // For StreamSteps and StreamItems.
  void add() noexcept;                  // the row becomes the newest finished step
  void skip(uint32_t n) noexcept;       // n finished steps that no item will go back to
  void move_newest(Place to) noexcept;  // the newest finished step also lies there: it is read there from now on
  const uint64_t* present_in_newest() const noexcept;  // the columns of that step
  void end_episode(bool clear) noexcept;               // `clear`: no later item goes back over this end
  void drop() noexcept { num_held_ = 0; }              // the chunks are gone

 private:
  size_t slot_of(uint64_t step) const noexcept { return step % held_.size(); }

  const Arena& arena_;
  const StreamRow& row_;
  const uint32_t max_steps_;
  const uint32_t words_;                // of present columns, a step
  std::vector<Place> held_;             // ring of the newest finished steps, slack included, by number
  std::vector<uint64_t> held_present_;  // and which columns they have
  uint64_t num_finished_ = 0;           // the number of the next step
  bool newest_is_finished_ = false;
  uint64_t stretch_start_ = 0;
  uint32_t num_held_ = 0;
  uint32_t num_whole_ = 0;  // finished steps after the last one that lacks a column, up to max_steps_
  uint64_t episode_steps_ = 0;
};

}  // namespace shmreplay
