// A damaged record of a session is found and named, and no other.
#include "sessions/session_damage.h"

#include <unistd.h>

#include "sessions/sessions.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 100)}); }

std::string damage_in(const World& w) {
  std::string found;
  CHECK_EQ(find_damaged_session(*w.daemon, kNow, found), Status::kOk);
  return found;
}

// What is found while the word has this value.
template <class Word, class Value>
std::string damage_by(const World& w, Word& word, Value value) {
  const Value before = word.get();
  poke(word, value);
  const std::string found = damage_in(w);
  poke(word, before);
  return found;
}

}  // namespace

TEST(a_record_that_no_session_can_have_is_named) {
  World w(small());
  SessionRecord& r = w.arena.session(0);  // the test's own
  const uint32_t generation = r.state.get().generation;
  const std::string record = "the record of session 0 is damaged: ";
  CHECK_EQ(damage_in(w), "");
  CHECK_EQ(damage_by(w, r.process, PidRole{0, 0}), record + "its pid is 0");
  CHECK_EQ(damage_by(w, r.process, PidRole{1u << 31, 0}), record + "its pid is 2147483648");
  CHECK_EQ(damage_by(w, r.state, StateGeneration{3, generation}), record + "its state is 3");
  CHECK_EQ(damage_by(w, r.state, StateGeneration{kSessionAlive, 0}), record + "its generation is 0");
  CHECK_EQ(damage_by(w, r.start_time, uint64_t{1} << 60),
           record + "its process started in the future, at tick 1152921504606846976");
  const std::string freed = damage_by(w, r.state, StateGeneration{kSessionFree, generation});
  CHECK(freed.starts_with(record + "it is free, but has process"));
  CHECK_EQ(damage_in(w), "");
}

TEST(a_free_record_that_names_a_process_is_named) {
  World w(small());
  SessionRecord& r = w.arena.session(1);
  CHECK_EQ(damage_by(w, r.process, PidRole{7, 0}),
           "the record of session 1 is damaged: it is free, but has process 7 of tick 0");
}

TEST(a_record_that_is_just_being_freed_is_not_damaged) {
  World w(small());
  Child child([&] {
    for (;;) {
      SessionInfo info{};
      bool reaped = false;
      CHECK_EQ(open_session(*w.daemon, 7, 1, 0, kWhatever, info), Status::kOk);
      CHECK_EQ(close_session(*w.daemon, info.index, info.generation, kWhatever, reaped), Status::kOk);
    }
  });
  std::string found;
  for (int i = 0; i < 2000; ++i) {
    CHECK_EQ(find_damaged_session(w.arena, kWhatever, found), Status::kOk);
    CHECK_EQ(found, "");
  }
}

}  // namespace shmreplay::test
