// N streams written as one: a call writes a row of each, with the items that rules make of them, in as few holds as
// fit.
//
// For each stream, a row and its items go in together or not at all, in the order of the call's rows. An error in one
// stream's row or rules is found before anything of any stream goes in, unless room is so short that the call has to go
// in parts. Then the streams for which there are chunks go first, so that nobody waits for chunks that this call
// withholds.
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

  // A row of the caller's data, by its number, and the stream that it is for. A call names each stream at most once.
  struct Row {
    uint32_t stream;
    uint32_t number;
  };
  using Rows = std::span<const Row>;
  // How rows are filled. Both functions run without the GIL.
  struct Fill {
    std::function<void(StreamWriter& stream, uint32_t number)> cells;  // writes and marks the cells of the stream's row
    // Blocks that the row's values take; asked before cells(). null: none.
    std::function<uint64_t(StreamWriter& stream, uint32_t number)> blocks;
  };

  // How far a call came: the first `done` rows are done. A failure is about row `at`; after kMissingCell, `missing`
  // says what was missing.
  struct Progress {
    uint32_t done = 0, at = 0;
    ItemRule::Missing missing{0, 0};
  };

  // `finish` false: the rows stay open. A stream whose append is unfinished goes on with that one; its row is already
  // written.
  Status append(Rows rows, const Fill& fill, bool finish, double priority, const Wait& wait, Progress& progress);
  // `fill` null: there are no final steps. What is unfinished goes on as in append().
  Status end_episodes(Rows rows, const Fill* fill, bool clear_history, double priority, const Wait& wait,
                      Progress& progress);
  // Makes an item of each stream: of its newest `length` steps, or by `selection` if that is not null. `priorities`: by
  // row number.
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
