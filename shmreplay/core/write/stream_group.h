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
  // The streams must outlive the group.
  explicit StreamGroup(Streams streams) noexcept : streams_(streams) {}

  Status open(const Wait& wait);   // kNoStreams: the streams before the first that got none are open
  Status close(const Wait& wait);  // idempotent
  void give_up() noexcept;         // closes those that it can; for a writer's destructor
  // Gives the first `ready` streams a row to write to: the open one, or the next. kOk: at least the first has one.
  // Takes the chunks that there are, for all streams; waits if there is none for the first. After a failure, some may
  // have got a chunk.
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
