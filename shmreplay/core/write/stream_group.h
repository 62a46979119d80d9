// Streams of one arena and table, opened, closed and given rows together, in as few holds as fit.
#pragma once

#include <span>
#include <vector>

#include "write/room.h"
#include "write/stream_steps.h"

namespace shmreplay {

class StreamGroup {
 public:
  using Streams = std::span<StreamSteps* const>;
  // They outlive the group.
  explicit StreamGroup(Streams streams) noexcept : streams_(streams) {}

  Status open(const Wait& wait);   // kNoStreams: those before the first that found none are open
  Status close(const Wait& wait);  // idempotent
  void give_up() noexcept;         // closes those that it can; what a writer's destructor does
  // A row to write to, the open one or the next, for the first `ready` of them; at least for one if it answers kOk.
  // Takes what chunks there are for all; waits if there is none for the first. Some may have got a chunk when it fails.
  Status ensure_rows(const Wait& wait, uint32_t& ready);

 private:
  using Wanting = std::vector<StreamSteps*>;  // those that have no row left
  Status try_open(const Wait& wait);
  static Status take_chunks(Wanting& wanting, bool must, const Wait& wait);
  static Status try_chunks(Wanting& wanting, const Wait& wait, Take take);
  static Status try_run(Wanting& wanting, const Wait& wait);
  static Status take_side_by_side(Wanting& wanting, const Wait& wait);

  Streams streams_;
};

}  // namespace shmreplay
