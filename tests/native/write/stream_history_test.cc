#include "write/stream_history.h"

#include "chunks/streams_fixture.h"

namespace shmreplay::test {

TEST(the_open_row_is_the_newest_step) {
  World w(arena_of({open_table("a", 10)}, 4, 20));
  Actor actor(w.arena, w.table(), 3);
  for (int i = 0; i < 4; ++i) actor.append();
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  CHECK(!actor.writer.row().is_open());
  write_row(actor.writer, w.arena, 5);
  CHECK(actor.writer.row().is_open() && actor.writer.row().has(0) && !actor.writer.row().lacks_any());
  CHECK_EQ(actor.writer.history().num_steps(), 4u);
  CHECK_EQ(rows_of(w, actor.create(4)), serials(2, 5));
  actor.writer.finish_row();
  CHECK_EQ(actor.writer.history().num_steps(), 3u);
  CHECK_EQ(actor.writer.history().episode_steps(), 5u);
}

TEST(an_episodes_end_forgets_its_steps_only_if_asked_to) {
  World w(arena_of({open_table("a", 10)}, 4, 20));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 3; ++i) actor.append();
  actor.writer.end_episode(false);
  CHECK_EQ(actor.writer.history().num_steps(), 3u);
  CHECK_EQ(actor.writer.history().episode_steps(), 0u);
  actor.append();
  CHECK_EQ(rows_of(w, actor.create(4)), serials(1, 4));
  actor.writer.end_episode(true);
  CHECK_EQ(actor.writer.history().num_steps(), 0u);
}

TEST(whole_steps_are_those_after_the_last_one_that_lacks_a_column) {
  World w(arena_of({open_table("a", 10)}, 4, 20));
  Actor actor(w.arena, w.table(), 5);
  for (int i = 0; i < 3; ++i) actor.append();
  CHECK_EQ(actor.writer.history().num_whole(), 3u);
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  fill_cell(actor.writer.row().cell(0), 8, 9);
  actor.writer.row().mark(0);
  actor.writer.finish_row();
  CHECK_EQ(actor.writer.history().num_whole(), 0u);
  for (int i = 0; i < 2; ++i) actor.append();
  CHECK_EQ(actor.writer.history().num_whole(), 2u);
  actor.writer.end_episode(true);
  CHECK_EQ(actor.writer.history().num_whole(), 0u);
}

}  // namespace shmreplay::test
