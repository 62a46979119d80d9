#include "write/vector_writer.h"

#include "base/wait.h"

namespace shmreplay {
namespace {
constexpr size_t kAhead = 4;  // rows that are fetched before they are written: every stream has pages of its own
}

VectorWriter::VectorWriter(Arena& arena, const TableFacts& table, uint32_t history, const WriterFacts& facts,
                           const std::vector<ItemRule>& rules, uint32_t num_streams) {
  for (uint32_t i = 0; i < num_streams; ++i) {
    writers_.push_back(std::make_unique<RuleWriter>(arena, table, history, facts, rules));
    streams_.push_back(&writers_.back()->stream().steps());
  }
}

// Secures blocks for the values of these rows: for as many rows as get them without waiting, and always for the first.
Status VectorWriter::secure_blocks(Rows rows, const Fill& fill, const Wait& wait, uint32_t& ready) {
  for (ready = 0; ready < rows.size(); ++ready) {
    RuleWriter& w = at(rows[ready].stream);
    if (w.unfinished() != WriterCall::kNothing) continue;  // its row is written
    const Wait& patience = ready == 0 ? wait : kTryOnly;
    const Status s = w.stream().secure_blocks(fill.blocks(w.stream(), rows[ready].number), patience);
    if (s == Status::kTimeout && ready > 0) return Status::kOk;
    if (s != Status::kOk) return s;
  }
  return Status::kOk;
}

// Does the work for as many rows at a time as have a place to be written to, and blocks.
Status VectorWriter::in_parts(Rows rows, const Fill& fill, const Wait& wait, Progress& progress,
                              const std::function<Status(Rows)>& work) {
  progress.at = progress.done;
  // All streams open at the first call: they cost one hold together.
  if (const Status s = StreamGroup(streams_).open(wait); s != Status::kOk) return s;
  std::vector<StreamSteps*> streams;
  for (const Row& row : rows) streams.push_back(streams_[row.stream]);
  while (progress.done < rows.size()) {
    progress.at = progress.done;
    uint32_t ready = 0;
    const Status s = StreamGroup(StreamGroup::Streams(streams).subspan(progress.done)).ensure_rows(wait, ready);
    if (s != Status::kOk) return s;
    if (fill.blocks != nullptr) {
      if (const Status t = secure_blocks(rows.subspan(progress.done, ready), fill, wait, ready); t != Status::kOk)
        return t;
    }
    if (const Status t = work(rows.subspan(progress.done, ready)); t != Status::kOk) return t;
  }
  return Status::kOk;
}

// Finds what is due of each row. If one row is refused, nothing of any goes in.
Status VectorWriter::look_at(Rows rows, const Look& look, Progress& progress) {
  const auto is_new = [&](const Row& row) { return at(row.stream).unfinished() == WriterCall::kNothing; };
  for (uint32_t i = 0; i < rows.size(); ++i) {
    if (!is_new(rows[i])) continue;
    const Status s = look(at(rows[i].stream), rows[i], progress.missing);
    if (s == Status::kOk) continue;
    progress.at = progress.done + i;
    for (const Row& row : rows) {
      if (is_new(row)) at(row.stream).take_back();
    }
    return s;
  }
  return Status::kOk;
}

Status VectorWriter::put_in(Rows rows, const Wait& wait, Progress& progress) {
  std::vector<RuleWriter*> writers;
  for (const Row& row : rows) writers.push_back(&at(row.stream));
  size_t failed_at = 0;
  const Status s = RuleWriter::insert(writers, wait, failed_at);
  if (s != Status::kOk) progress.at = progress.done + static_cast<uint32_t>(failed_at);
  // Rows are done up to the first that waits. No later row is done, even if nothing of it is due.
  size_t done = 0;
  while (done < writers.size() && writers[done]->conclude()) ++done;
  for (size_t i = done + 1; i < writers.size(); ++i) writers[i]->postpone();
  progress.done += static_cast<uint32_t>(done);
  return s;
}

void VectorWriter::write(Rows rows, WriterCall call, const Fill& fill) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (fill.cells != nullptr && i + kAhead < rows.size()) at(rows[i + kAhead].stream).stream().row().prefetch();
    RuleWriter& w = at(rows[i].stream);
    if (w.unfinished() != WriterCall::kNothing) continue;
    w.begin(call);
    if (fill.cells != nullptr) fill.cells(w.stream(), rows[i].number);
  }
}

Status VectorWriter::append(Rows rows, const Fill& fill, bool finish, double priority, const Wait& wait,
                            Progress& progress) {
  return in_parts(rows, fill, wait, progress, [&](Rows part) {
    write(part, WriterCall::kAppend, fill);
    if (!finish) {
      progress.done += static_cast<uint32_t>(part.size());
      return Status::kOk;
    }
    const Look look = [&](RuleWriter& w, const Row&, ItemRule::Missing& missing) {
      return w.look_at_row(priority, missing);
    };
    if (const Status s = look_at(part, look, progress); s != Status::kOk) return s;
    return put_in(part, wait, progress);
  });
}

Status VectorWriter::end_episodes(Rows rows, const Fill* fill, bool clear_history, double priority, const Wait& wait,
                                  Progress& progress) {
  const auto end = [&](Rows part) {
    const Look look = [&](RuleWriter& w, const Row&, ItemRule::Missing& missing) {
      return w.look_at_end(clear_history, priority, missing);
    };
    write(part, WriterCall::kEnd, fill == nullptr ? Fill{} : *fill);
    if (const Status s = look_at(part, look, progress); s != Status::kOk) return s;
    return put_in(part, wait, progress);
  };
  return fill != nullptr ? in_parts(rows, *fill, wait, progress, end) : end(rows);
}

Status VectorWriter::create_items(Rows rows, uint32_t length, ItemRule* selection, const double* priorities,
                                  const Wait& wait, Progress& progress) {
  const Look look = [&](RuleWriter& w, const Row& row, ItemRule::Missing& missing) {
    const double priority = priorities[row.number];
    return selection == nullptr ? w.look_at_span(length, priority) : w.look_by(*selection, priority, missing);
  };
  write(rows, WriterCall::kItem, Fill{});
  if (const Status s = look_at(rows, look, progress); s != Status::kOk) return s;
  return put_in(rows, wait, progress);
}

}  // namespace shmreplay
