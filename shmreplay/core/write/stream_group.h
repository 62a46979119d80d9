// Writers of one arena and table, opened, closed and given rows together, in as few holds as fit.
#pragma once

#include <span>
#include <vector>

#include "write/room.h"
#include "write/stream_writer.h"

namespace shmreplay {

class StreamGroup {
 public:
  using Writers = std::span<StreamWriter* const>;
  // They outlive the group.
  explicit StreamGroup(Writers writers) noexcept : writers_(writers) {}

  Status open(const Wait& wait);   // kNoStreams: those before the first that found none are open
  Status close(const Wait& wait);  // idempotent
  void give_up() noexcept;         // closes those that it can; what a writer's destructor does
  // A row to write to, the open one or the next, for the first `ready` of them; at least for one if it answers kOk.
  // Takes what chunks there are for all; waits if there is none for the first. A failure may have got some a chunk.
  Status ensure_rows(const Wait& wait, uint32_t& ready);

 private:
  Status try_open(const Wait& wait);
  static Status take_chunks(std::vector<StreamWriter*>& wanting, bool must, const Wait& wait);
  static Status try_chunks(std::vector<StreamWriter*>& wanting, const Wait& wait, Take take);
  static Status try_run(std::vector<StreamWriter*>& wanting, const Wait& wait);
  static Status take_side_by_side(std::vector<StreamWriter*>& wanting, const Wait& wait);

  Writers writers_;
};

}  // namespace shmreplay
