// N streams written as one: a row of each, with the items that rules make of them, in as few holds as fit.
//
// Per stream a row and its items happen together or not at all, in the order of the call's rows. What is wrong with one
// stream's row or rules is found before anything of any stream goes in, unless room is so short that the call has to go
// in parts: the streams for which there are chunks go first, so that nobody waits for chunks that this call withholds.
#pragma once

#include <functional>
#include <memory>

#include "write/rule_writer.h"
#include "write/stream_group.h"

namespace shmreplay {

class VectorWriter {
 public:
  // At least one stream.
  VectorWriter(Arena& arena, const TableFacts& table, uint32_t history, const WriterFacts& facts,
               const std::vector<ItemRule>& rules, uint32_t num_streams);
  ~VectorWriter() { give_up(); }
  VectorWriter(const VectorWriter&) = delete;
  VectorWriter& operator=(const VectorWriter&) = delete;

  uint32_t num_streams() const noexcept { return static_cast<uint32_t>(writers_.size()); }
  size_t num_rules() const noexcept { return writers_.front()->num_rules(); }
  RuleWriter& at(uint32_t stream) const noexcept { return *writers_[stream]; }

  // A row of the caller's, by its number, and the stream that it is for. A call has each stream once at most.
  struct Row {
    uint32_t stream;
    uint32_t number;
  };
  using Rows = std::span<const Row>;
  // Runs without the GIL.
  struct Fill {
    std::function<void(StreamWriter& stream, uint32_t number)> cells;  // writes and marks those of the stream's row
    // That the row's values take, which come before; null: none.
    std::function<uint64_t(StreamWriter& stream, uint32_t number)> blocks;
  };

  // How far a call came: the first `done` rows are done. A failure is about the one at `at`; what was kMissingCell.
  struct Progress {
    uint32_t done = 0, at = 0;
    ItemRule::Missing missing{0, 0};
  };

  // With `finish` false the rows stay open. A stream of which an append is unfinished goes on with that, its row is
  // written.
  Status append(Rows rows, const Fill& fill, bool finish, double priority, const Wait& wait, Progress& progress);
  // `fill` null: there are no final steps. As append() of what is unfinished.
  Status end_episodes(Rows rows, const Fill* fill, bool clear_history, double priority, const Wait& wait,
                      Progress& progress);
  // An item of each stream: of its newest `length` steps, or by a selection if that is not null. `priorities` by
  // number.
  Status create_items(Rows rows, uint32_t length, ItemRule* selection, const double* priorities, const Wait& wait,
                      Progress& progress);
  Status close(const Wait& wait) { return StreamGroup(streams_).close(wait); }
  void give_up() noexcept { StreamGroup(streams_).give_up(); }

 private:
  using Look = std::function<Status(RuleWriter& writer, const Row& row, ItemRule::Missing& missing)>;
  Status in_parts(Rows rows, const Fill& fill, const Wait& wait, Progress& progress,
                  const std::function<Status(Rows)>& work);
  Status secure_blocks(Rows rows, const Fill& fill, const Wait& wait, uint32_t& ready);
  void write(Rows rows, WriterCall call, const Fill& fill);
  Status look_at(Rows rows, const Look& look, Progress& progress);
  Status put_in(Rows rows, const Wait& wait, Progress& progress);

  std::vector<std::unique_ptr<RuleWriter>> writers_;
  std::vector<StreamSteps*> streams_;
};

}  // namespace shmreplay
