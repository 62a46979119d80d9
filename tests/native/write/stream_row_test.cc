#include "write/stream_row.h"

#include "chunks/streams_fixture.h"

namespace shmreplay::test {

TEST(the_presence_bits_say_which_columns_a_row_has) {
  World w(arena_of({open_table("a", 10)}, 4, 20));
  Actor actor(w.arena, w.table(), 3);
  actor.append();
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  fill_cell(actor.writer.row().cell(1), 24, 9);
  actor.writer.row().mark(1);
  CHECK(actor.writer.row().lacks_any() && actor.writer.row().has(1) && !actor.writer.row().has(0));
  actor.writer.end_episode(false);  // the open row is the final step
  const uint32_t chunk = w.arena.stream(0).window.get().first;
  CHECK_EQ(w.arena.presence(chunk, 0, 0).load(), 0b111u);
  CHECK_EQ(w.arena.presence(chunk, 1, 0).load(), 0b010u);
  CHECK_EQ(actor.writer.history().num_steps(), 2u);
}

}  // namespace shmreplay::test
