#include "write/stream_writer.h"

#include "write/stream_group.h"

namespace shmreplay {

StreamWriter::StreamWriter(Arena& arena, const TableFacts& table, uint32_t history, uint32_t slack)
    : steps_(arena, table, history, slack), items_(steps_) {}

Status StreamWriter::open(const Wait& wait) {
  StreamSteps* const stream = &steps_;
  return StreamGroup({&stream, 1}).open(wait);
}

Status StreamWriter::close(const Wait& wait) {
  StreamSteps* const stream = &steps_;
  return StreamGroup({&stream, 1}).close(wait);
}

void StreamWriter::give_up() noexcept {
  StreamSteps* const stream = &steps_;
  StreamGroup({&stream, 1}).give_up();
}

Status StreamWriter::ensure_row(const Wait& wait) {
  StreamSteps* const stream = &steps_;
  uint32_t ready = 0;
  return StreamGroup({&stream, 1}).ensure_rows(wait, ready);
}

void StreamWriter::end_episode(bool clear_history) noexcept {
  steps_.end_episode(clear_history);
  items_.end_episode();
}

}  // namespace shmreplay
