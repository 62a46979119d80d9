#include "items/data_update.h"

#include <algorithm>

#include "arena/span.h"
#include "base/long_work.h"
#include "base/mutable_cell.h"
#include "items/enter_table.h"
#include "items/item_table.h"

namespace shmreplay {
namespace {

// Steps [first, first + count) of one item's `num_steps` in a call, copied out of the caller's memory.
struct Piece {
  uint32_t key, first, count;
  size_t bytes;  // where its cells begin: column by column
};

// One call, cut into holds.
class Update {
 public:
  Update(Arena& arena, const TableFacts& t, const int64_t* keys, uint32_t num_keys,
         const std::vector<ColumnUpdate>& columns, uint32_t at, uint32_t num_steps)
      : arena_(arena), t_(t), keys_(keys), num_keys_(num_keys), columns_(columns), at_(at), num_steps_(num_steps) {
    for (const ColumnUpdate& c : columns) step_bytes_ += arena.columns()[c.column].row_bytes;
    steps_a_hold_ = static_cast<uint32_t>(std::max<uint64_t>(kUpdateBytes / std::max<uint64_t>(step_bytes_, 1), 1));
    bytes_.resize(size_t{std::min<uint64_t>(steps_a_hold_, uint64_t{num_keys} * num_steps)} * step_bytes_);
    pieces_.reserve(kGroup);
  }

  bool is_done() const noexcept { return key_ == num_keys_ || num_steps_ == 0; }
  uint32_t updated() const noexcept { return updated_; }
  uint32_t num_pieces() const noexcept { return static_cast<uint32_t>(pieces_.size()); }

  // Copies the next hold's cells out of the caller's memory.
  void copy_in() {
    pieces_.clear();
    uint32_t steps = 0;
    size_t bytes = 0;
    while (key_ < num_keys_ && steps < steps_a_hold_ && pieces_.size() < kGroup) {
      const Piece p{key_, step_, std::min(num_steps_ - step_, steps_a_hold_ - steps), bytes};
      for (const ColumnUpdate& c : columns_) {
        const size_t row_bytes = arena_.columns()[c.column].row_bytes;
        std::memcpy(bytes_.data() + bytes, c.cells + (size_t{p.key} * num_steps_ + p.first) * row_bytes,
                    p.count * row_bytes);
        bytes += p.count * row_bytes;
      }
      pieces_.push_back(p);
      steps += p.count;
      step_ += p.count;
      if (step_ == num_steps_) ++key_, step_ = 0;
    }
  }

  void write(const Hold& hold) {
    for (const Piece& p : pieces_) {
      const uint32_t g = find_item(hold, t_, keys_[p.key]);
      if (g == kNone) continue;
      if (p.first == 0) ++updated_;
      write_piece(p, arena_.item(g));
    }
  }

 private:
  void write_piece(const Piece& p, const ItemRecord& item) {
    // Steps [from, to) of the item are real and in the piece; step `begin` of the item is row 0 of the piece.
    const int64_t begin = int64_t{at_} + p.first - item.padding.get().before;
    const int64_t from = std::max<int64_t>(begin, 0),
                  to = std::min<int64_t>(begin + p.count, item.extent.get().num_steps);
    int64_t step = 0;
    each_run(arena_, item.place.get(), item.extent.get().num_steps, [&](uint32_t chunk, uint32_t row, uint32_t rows) {
      for (int64_t s = std::max(from, step); s < std::min<int64_t>(to, step + rows); ++s) {
        write_step(p, static_cast<size_t>(s - begin), chunk, row + static_cast<uint32_t>(s - step));
      }
      step += rows;
    });
  }

  void write_step(const Piece& p, size_t j, uint32_t chunk, uint32_t row) {
    const char* cells = bytes_.data() + p.bytes;
    for (const ColumnUpdate& c : columns_) {
      const uint32_t row_bytes = arena_.columns()[c.column].row_bytes;
      MutableCell(arena_.row(chunk, c.column, row), row_bytes).update(cells + j * row_bytes);
      cells += size_t{p.count} * row_bytes;
    }
  }

  Arena& arena_;
  const TableFacts& t_;
  const int64_t* keys_;
  const uint32_t num_keys_;
  const std::vector<ColumnUpdate>& columns_;
  const uint32_t at_, num_steps_;
  uint64_t step_bytes_ = 0;
  uint32_t steps_a_hold_ = 1;
  uint32_t key_ = 0, step_ = 0;  // the key and the step that come next
  uint32_t updated_ = 0;
  std::vector<char> bytes_;
  std::vector<Piece> pieces_;
};

}  // namespace

Status update_data(Arena& arena, const TableFacts& t, const int64_t* keys, uint32_t num_keys,
                   const std::vector<ColumnUpdate>& columns, uint32_t at, uint32_t num_steps, const Wait& wait,
                   uint32_t& updated) {
  Update update(arena, t, keys, num_keys, columns, at, num_steps);
  LongWork work(wait);
  updated = 0;
  while (!update.is_done()) {
    update.copy_in();
    Hold hold(arena);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    update.write(hold);
    hold.end();
    updated = update.updated();
    if (!update.is_done() && work.interrupted(64 * update.num_pieces())) return Status::kInterrupted;
  }
  return Status::kOk;
}

}  // namespace shmreplay
