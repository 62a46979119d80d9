#include "write/extend.h"

#include <cstring>

#include "base/wait.h"
#include "items/patterns.h"

namespace shmreplay {

// Finds the place of the stream's next row. The rows before `row` are done.
Status Extend::secure_row(uint32_t row, const Wait& wait) {
  Status s = stream_.ensure_row(kTryOnly);
  if (s == Status::kTimeout) {
    // The process that would free a chunk may be waiting for the items held here.
    s = flush(row, wait);
    if (s == Status::kOk) s = stream_.ensure_row(wait);
  }
  return s;
}

// How many rows lie one after the other in the chunk, from this row on: a final step takes the row after an end.
uint32_t Extend::rows_to_copy(uint32_t row) const {
  const uint32_t n = std::min(stream_.row().rows_left(), rows_.num_rows - row);
  if (rows_.finals == nullptr || rows_.ends == nullptr) return n;
  const auto* end = static_cast<const uint8_t*>(std::memchr(rows_.ends + row, 1, n));
  return end == nullptr ? n : static_cast<uint32_t>(end - rows_.ends) - row + 1;
}

// Finds the place of a row of the arrays. All rows that can be copied there together are copied at once.
Status Extend::find_place(uint32_t row, const Wait& wait) {
  const bool begins = stream_.row().rows_left() == 0;
  if (const Status s = secure_row(row, wait); s != Status::kOk) return s;
  if (begins || row >= copied_) {
    const uint32_t n = rows_to_copy(row);
    for (uint32_t c = 0; c < rows_.columns.size(); ++c) {
      const size_t row_bytes = stream_.arena().columns()[c].row_bytes;
      if (rows_.columns[c] != nullptr) stream_.row().write_rows(c, rows_.columns[c] + row * row_bytes, n);
    }
    copied_ = row + n;
  }
  return rows_.values == nullptr ? Status::kOk : write_values(*rows_.values, row, row, wait);
}

// Writes the heap values of row `number` of some arrays. The stream's rows before `row` are done.
Status Extend::write_values(const RowValues& values, uint32_t number, uint32_t row, const Wait& wait) {
  const uint64_t blocks = values.blocks(stream_, number);
  Status s = stream_.secure_blocks(blocks, kTryOnly);
  if (s == Status::kTimeout) {
    // The process that would free blocks may be waiting for the items of the rows before.
    s = flush(row, wait);
    if (s == Status::kOk) s = stream_.secure_blocks(blocks, wait);
  }
  if (s == Status::kOk) values.write(stream_, number);
  return s;
}

// Takes over the items that the writer's look found due.
void Extend::collect(uint32_t row) {
  const size_t before = due_.size();
  writer_.hand_over(due_);
  if (due_.size() == before) return;
  rows_of_.push_back({row, static_cast<uint32_t>(due_.size() - before)});
  for (size_t i = before; i < due_.size(); ++i) first_due_ = std::min(first_due_, due_[i].first);
}

// Puts in the items that are due of the rows before `rows`.
Status Extend::flush(uint32_t rows, const Wait& wait) {
  runs_.clear();
  due_keys_.assign(due_.size(), 0);
  size_t at = 0;
  for (const RowItems& r : rows_of_) {
    runs_.push_back({&stream_.items(), due_.data() + at, due_keys_.data() + at, r.n});
    at += r.n;
  }
  const Status s = DueInsert(stream_.arena(), runs_, wait, counted_).run();
  for (const DueRun& run : runs_) keys_.insert(keys_.end(), run.keys, run.keys + run.done);
  if (s != Status::kOk) {
    for (size_t i = runs_.size(); i-- > 0;) {
      if (runs_[i].done < runs_[i].n) num_done_ = rows_of_[i].row;
    }
    return s;
  }
  num_done_ = rows;
  due_.clear();
  rows_of_.clear();
  first_due_ = UINT64_MAX;
  return Status::kOk;
}

Status Extend::append(uint32_t row, const Wait& wait) {
  if (const Status s = find_place(row, wait); s != Status::kOk) return s;
  writer_.begin(WriterCall::kAppend);
  stream_.row().mark_all();
  if (const Status s = writer_.look_at_row(-1, missing_); s != Status::kOk) return s;
  collect(row);
  // When this row is finished, the oldest step leaves the history.
  const StreamHistory& history = stream_.history();
  const bool leaves = history.num_steps() > history.max_steps() && first_due_ <= history.oldest_held();
  if (leaves || due_.size() >= kInsertGroup) {
    if (const Status s = flush(row + 1, wait); s != Status::kOk) return s;
  }
  writer_.conclude();
  return Status::kOk;
}

// Writes the final step of the episode that ends with `row` into a row of its own, which stays open.
Status Extend::write_final_step(uint32_t row, const Wait& wait) {
  const FinalRows& finals = *rows_.finals;
  if (const Status s = secure_row(row, wait); s != Status::kOk) return s;
  if (finals.values != nullptr) {
    if (const Status s = write_values(*finals.values, num_ends_, row, wait); s != Status::kOk) return s;
  }
  for (const uint32_t c : finals.given) {
    const size_t row_bytes = stream_.arena().columns()[c].row_bytes;
    if (finals.columns[c] != nullptr) stream_.row().write_rows(c, finals.columns[c] + num_ends_ * row_bytes, 1);
    stream_.row().mark(c);
  }
  return Status::kOk;
}

Status Extend::end_episode(uint32_t row, const Wait& wait) {
  if (rows_.finals != nullptr) {
    if (const Status s = write_final_step(row, wait); s != Status::kOk) return s;
  }
  ++num_ends_;
  writer_.begin(WriterCall::kEnd);
  if (const Status s = writer_.look_at_end(clear_history_, -1, missing_); s != Status::kOk) return s;
  collect(row);
  // An item gets the episode that the stream has when the item goes in, so all go in before this end.
  if (const Status s = flush(row + 1, wait); s != Status::kOk) return s;
  writer_.conclude();
  return Status::kOk;
}

Status Extend::put_rows(const Wait& wait) {
  LongWork work(wait);
  for (uint32_t row = 0; row < rows_.num_rows; ++row) {
    if (const Status s = append(row, wait); s != Status::kOk) return s;
    if (rows_.ends != nullptr && rows_.ends[row] != 0) {
      if (const Status s = end_episode(row, wait); s != Status::kOk) return s;
    }
    if (work.interrupted(1)) return Status::kInterrupted;
  }
  return flush(rows_.num_rows, wait);
}

Status Extend::put_single_steps(const Wait& wait) {
  LongWork work(wait);
  PreparedPattern pattern(whole_step_pattern(stream_.arena(), true, {}));
  const std::vector<double> priorities(stream_.arena().geometry().chunk_steps, -1.0);
  keys_.resize(rows_.num_rows);
  Status s = Status::kOk;
  while (num_done_ < rows_.num_rows && s == Status::kOk) {
    const uint32_t row = num_done_;
    s = find_place(row, wait);
    if (s != Status::kOk) break;
    // Rows up to the end of the chunk, of the episode or of the call; one at a time if they have heap values.
    uint32_t n = rows_.values != nullptr ? 1 : std::min(stream_.row().rows_left(), rows_.num_rows - row);
    const uint8_t* end =
        rows_.ends == nullptr ? nullptr : static_cast<const uint8_t*>(std::memchr(rows_.ends + row, 1, n));
    if (end != nullptr) n = static_cast<uint32_t>(end - rows_.ends) - row + 1;
    uint32_t went_in = 0;
    s = stream_.items().insert_rows(stream_.table(), pattern, priorities.data(), n, wait, keys_.data() + row, went_in,
                                    {true, counted_});
    num_done_ += went_in;
    if (end != nullptr && went_in == n) stream_.end_episode(true);
    if (s == Status::kOk && work.interrupted(n)) s = Status::kInterrupted;
  }
  keys_.resize(num_done_);
  return s;
}

Status Extend::run(const Wait& wait) {
  if (const Status s = stream_.open(wait); s != Status::kOk) return s;
  const Status s = writer_.num_rules() > 0 ? put_rows(wait) : put_single_steps(wait);
  stream_.give_up();
  return s;
}

}  // namespace shmreplay
