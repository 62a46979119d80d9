#include "items/rebuild.h"
#include "chunks/block_pool.h"

#include <algorithm>
#include <csignal>

#include "chunks/chunk_pool.h"
#include "chunks/streams.h"
#include "support/fixtures.h"
#include "trees/selectors.h"

namespace shmreplay::test {
namespace {

struct ItemFacts {
  int64_t key;
  double priority;
  uint64_t episode, touch;
  uint32_t times_sampled;
  std::vector<uint64_t> serials;
  bool operator==(const ItemFacts&) const = default;
};

struct TableState {
  uint64_t size, inserts, samples, deletes, episodes, deleted_episodes, unique, remaining, evicted;
  uint32_t sampler_pick, remover_pick;
  double largest;
  std::vector<ItemFacts> items;
  bool operator==(const TableState&) const = default;
};

uint32_t sure_pick(World& w, const TableFacts& t, Role role) {
  const uint32_t kind = t.roles[role].kind;
  const bool sure = kind != kUniform && kind != kPrioritized;
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  return sure && live_items(t) > 0 ? Selector(w.arena, t, role).pick(hold, 0) : kNone;
}

// Everything that a client can see of a table.
TableState observe(World& w, uint32_t index) {
  const TableFacts& t = w.table(index);
  const TableRecord& r = *t.record;
  TableState s{r.size.get(),
               r.limiter.inserts.get(),
               r.limiter.samples.get(),
               r.limiter.deletes.get(),
               r.num_episodes.get(),
               r.num_deleted_episodes.get(),
               r.num_unique_samples.get(),
               r.remaining_samples.get(),
               r.evicted.get(),
               sure_pick(w, t, kSampler),
               sure_pick(w, t, kRemover),
               0,
               {}};
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    s.largest = default_priority(hold, t);
  }
  const std::vector<int64_t> keys = live_keys(w.arena, t);
  if (keys.empty()) return s;
  SampleCall call(w.arena);
  Batch batch(w.arena, static_cast<int64_t>(keys.size()));
  std::vector<uint32_t> found(keys.size());
  CHECK_EQ(call.get(t, keys.data(), static_cast<uint32_t>(keys.size()), kNow, batch, found.data()).done, keys.size());
  batch.check_rows();
  for (size_t i = 0; i < keys.size(); ++i) {
    const Pick& p = batch.picks[i];
    const uint64_t touch = w.arena.links(find_item(w.arena, t, p.key)).touch.get();
    ItemFacts item{p.key, p.priority, p.episode, touch, p.times_sampled, {}};
    for (uint32_t row = 0; row < p.num_steps; ++row) item.serials.push_back(batch.serial(static_cast<int64_t>(i), row));
    s.items.push_back(std::move(item));
  }
  return s;
}

// Two tables over shared steps, with every kind of history: evictions, updates, deletions, draws, episodes, streams
// that come and go.
class Scene {
 public:
  Scene(uint64_t seed_, uint32_t sampler, uint32_t remover)
      : random(seed_), world(spec(sampler, remover)), learner_(world.arena, seed_) {
    for (int i = 0; i < 3; ++i)
      actors_.push_back(std::make_unique<Actor>(world.arena, world.table(0), 12, 1000u * static_cast<unsigned>(i)));
    for (int i = 0; i < 250; ++i) step();
    take_some_blocks();
  }

  std::vector<TableState> observe_all() { return {observe(world, 0), observe(world, 1)}; }

  Random random;
  World world;

 private:
  static ArenaSpec spec(uint32_t sampler, uint32_t remover) {
    TableSpec consuming = queue_table("q", 500);
    consuming.max_times_sampled = 2;
    consuming.min_diff = -1e9;
    consuming.max_diff = 1e9;
    ArenaSpec s = arena_of({open_table("a", 40, sampler, remover), consuming}, 3, 60);
    s.num_blocks = 20;
    s.block_bytes = 128;
    return s;
  }

  void step() {
    Actor& actor = *actors_[random.below(3)];
    actor.append();
    const uint32_t length = 1 + static_cast<uint32_t>(random.below(std::min(actor.writer.history().num_steps(), 9u)));
    actor.create(length, random.chance(0.2) ? 0 : random.uniform());
    if (random.chance(0.2)) actor.create_in(world.table(1), length);
    if (random.chance(0.1)) actor.writer.end_episode(random.chance(0.5));
    if (random.chance(0.4)) learner_.draw(world.table(0));
    if (random.chance(0.3) && live_items(world.table(1)) > 0) learner_.draw(world.table(1));
    const std::vector<int64_t> keys = live_keys(world.arena, world.table(0));
    const int64_t key = keys[random.below(keys.size())];
    const double priority = random.uniform();
    uint32_t n = 0;
    if (random.chance(0.5))
      CHECK_EQ(update_priorities(world.arena, world.table(0), &key, &priority, 1, kNow, n), Status::kOk);
    else if (random.chance(0.3)) CHECK_EQ(delete_items(world.arena, world.table(0), &key, 1, kNow, n), Status::kOk);
    if (random.chance(0.02))
      CHECK_EQ(actors_[2]->writer.close(kNow), Status::kOk), CHECK_EQ(actors_[2]->writer.open(kNow), Status::kOk);
    if (random.chance(0.05)) CHECK_EQ(reclaim(world.arena, kNow, n), Status::kOk);
  }

  void take_some_blocks() {
    Hold hold(world.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    uint32_t blocks[3];
    CHECK(take_blocks(hold, world.arena.state().used_chunks.get().head, 3, blocks));
    CHECK(take_blocks(hold, world.arena.state().used_chunks.get().tail, 2, blocks));
  }

  std::vector<std::unique_ptr<Actor>> actors_;
  Learner learner_;
};

// Ruins what rebuild() derives. Records stay, and so do counters that are facts.
void ruin_derived_words(World& w, Random& random) {
  Arena& a = w.arena;
  const auto rubbish = [&] { return static_cast<uint32_t>(random.word()); };
  ArenaState& s = a.state();
  poke(s.free_chunks, {rubbish(), rubbish()});
  poke(s.used_chunks, {rubbish(), rubbish()});
  poke(s.retired_chunks, {rubbish(), rubbish()});
  for (Word<uint64_t>* n : {&s.num_free, &s.num_used, &s.num_retired, &s.num_free_blocks, &s.num_reserved_blocks})
    poke(*n, random.word());
  for (Word<uint32_t>* head : {&s.chunk_owners, &s.free_streams, &s.free_sleepers, &s.free_blocks})
    poke(*head, rubbish());
  for (uint32_t c = 0; c < a.geometry().num_chunks; ++c) {
    poke(a.chunk(c).refs, {rubbish(), rubbish()});
    poke(a.chunk(c).items, {rubbish(), rubbish()});
    poke(a.chunk(c).age, {rubbish(), rubbish()});
    poke(a.chunk(c).writer, {a.chunk(c).writer.get().session, rubbish()});
  }
  for (uint32_t b = 0; b < a.geometry().num_blocks; ++b) {
    const bool is_free = a.block(b).owner.get().chunk == kNone;  // links of the other blocks are facts
    if (is_free) poke(a.block(b).link, {rubbish(), rubbish()});
  }
  for (uint32_t p = 0; p < a.geometry().max_patterns; ++p)
    poke(a.pattern(p).usage, {a.pattern(p).usage.get().generation, rubbish()});
  for (uint32_t i = 0; i < a.geometry().max_sessions; ++i) {
    poke(a.session(i).free_chunks, {rubbish(), rubbish()});
    poke(a.session(i).chunk_owner, {rubbish(), rubbish()});
  }
  for (uint32_t i = 0; i < a.num_tables(); ++i) {
    TableRecord& r = *a.table(i).record;
    poke(r.order, {rubbish(), rubbish()});
    for (Word<uint32_t>* head : {&r.free_item, &r.free_episode}) poke(*head, rubbish());
    for (Word<uint64_t>* n : {&r.size, &r.num_episodes, &r.remaining_samples, &r.limiter.deletes})
      poke(*n, random.word());
    for (WaitSide& side : r.sides) poke(side.sleepers, rubbish());
  }
  for (uint32_t g = 0; g < a.geometry().total_items; ++g) {
    poke(a.links(g).order, {rubbish(), rubbish()});
    poke(a.links(g).chunk, {rubbish(), rubbish()});
    poke(a.item(g).counted, {a.item(g).counted.get().times_sampled, rubbish()});
    const uint32_t episode_slot = a.links(g).tail.get().episode_slot;
    poke(a.links(g).tail, {rubbish(), episode_slot == kNone ? kNone : rubbish() / 2});
    poke(a.episode(g).episode, random.word());
    poke(a.episode(g).use, {rubbish(), rubbish()});
  }
  for (uint64_t at = a.offsets().selectors; at < a.offsets().end; at += 8)
    poke(*a.at<Word<uint64_t>>(at), random.word());
}

}  // namespace

TEST(rebuilding_a_healthy_arena_changes_nothing_that_anybody_can_see) {
  const uint64_t s = seed();
  for (uint32_t sampler = kFifo; sampler <= kMaxHeap; ++sampler) {
    Scene scene(s + sampler, sampler, (sampler + 2) % 6);
    const std::vector<TableState> before = scene.observe_all();
    check_healthy(scene.world.arena);
    CHECK_EQ(rebuild(scene.world.arena, kNow), Status::kOk);
    check_healthy(scene.world.arena);
    CHECK(scene.observe_all() == before);
  }
}

TEST(rebuilding_makes_every_derived_word_anew_from_the_records) {
  const uint64_t s = seed();
  for (uint32_t sampler = kFifo; sampler <= kMaxHeap; ++sampler) {
    Scene scene(s + sampler, sampler, (sampler + 3) % 6);
    const std::vector<TableState> before = scene.observe_all();
    ruin_derived_words(scene.world, scene.random);
    CHECK_EQ(rebuild(scene.world.arena, kNow), Status::kOk);
    check_healthy(scene.world.arena);
    CHECK(scene.observe_all() == before);
  }
}

TEST(an_arena_goes_on_after_a_rebuild_as_if_nothing_had_been) {
  Scene scene(seed(), kPrioritized, kMinHeap);
  ruin_derived_words(scene.world, scene.random);
  CHECK_EQ(rebuild(scene.world.arena, kNow), Status::kOk);
  Actor actor(scene.world.arena, scene.world.table(0), 8, 50'000);
  for (int i = 0; i < 500; ++i) {
    actor.append();
    actor.create(1 + static_cast<uint32_t>(scene.random.below(std::min(actor.writer.history().num_steps(), 8u))));
  }
  check_healthy(scene.world.arena);
}

TEST(a_chunk_that_nothing_refers_to_becomes_retired_and_not_free) {
  World w(arena_of({open_table("a", 10)}));
  const uint32_t generation = w.arena.chunk(7).life.get().generation;
  poke(w.arena.chunk(7).life, {kChunkUsed, 0, 4, generation});
  CHECK_EQ(rebuild(w.arena, kNow), Status::kOk);
  CHECK_EQ(static_cast<uint32_t>(w.arena.chunk(7).life.get().state), kChunkRetired);
  CHECK_EQ(w.arena.chunk(7).life.get().generation, generation);
  check_healthy(w.arena);
}

TEST(a_chunk_that_nothing_refers_to_is_forgotten_by_its_neighbours) {
  World w(arena_of({open_table("a", 10)}));
  Actor actor(w.arena, w.table(), 12);
  for (int i = 0; i < 12; ++i) actor.append();
  const Window window = w.arena.stream(0).window.get();
  const uint32_t second = w.arena.chunk(window.first).stream.get().next;
  poke(w.arena.stream(0).window, {second, window.last});  // as if the first had been lost
  poke(w.arena.stream(0).size, {2, 10});
  CHECK_EQ(rebuild(w.arena, kNow), Status::kOk);
  CHECK_EQ(w.arena.chunk(second).stream.get().prev, kNone);
  check_healthy(w.arena);
}

TEST(a_block_is_in_use_while_its_chunk_has_its_generation) {
  Scene scene(seed(), kUniform, kFifo);
  Arena& a = scene.world.arena;
  const uint32_t chunk = a.state().used_chunks.get().head;
  const uint32_t block = a.chunk(chunk).writer.get().first_block;
  poke(a.block(block).owner, {chunk, a.chunk(chunk).life.get().generation + 1});
  CHECK_EQ(rebuild(a, kNow), Status::kOk);
  CHECK_EQ(a.block(block).owner.get().chunk, kNone);
  check_healthy(a);
}

// Values lie along the links of a chunk's blocks: rebuilding keeps them, whatever order the blocks have.
TEST(a_chunks_blocks_keep_their_links_and_what_is_left_in_pieces_is_joined) {
  Scene scene(seed(), kUniform, kFifo);
  Arena& a = scene.world.arena;
  const uint32_t chunk = a.state().used_chunks.get().head;
  uint32_t more[8];
  {
    Hold hold(a);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK(take_blocks(hold, chunk, 8, more));
  }
  const uint32_t first = a.chunk(chunk).writer.get().first_block;
  CHECK_EQ(rebuild(a, kNow), Status::kOk);
  CHECK_EQ(a.chunk(chunk).writer.get().first_block, first);
  for (int i = 7; i > 0; --i) CHECK_EQ(a.block(more[i]).link.get().next_of_chunk, more[i - 1]);
  poke(a.block(more[4]).link, {more[6], kNone});  // a circle
  poke(a.chunk(chunk).writer, {0, kNone});
  CHECK_EQ(rebuild(a, kNow), Status::kOk);
  check_healthy(a);
  CHECK_EQ(a.block(more[3]).link.get().next_of_chunk, more[2]);
}

TEST(sleepers_are_counted_from_their_slots) {
  World w(arena_of({queue_table("q", 10)}));
  Blocked blocked(w.arena, w.table(), kSamples, kNow);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    blocked.join(hold);
  }
  poke(w.table().record->sides[kSamples].sleepers, 0);
  poke(w.table().record->sides[kInserts].sleepers, 9);
  CHECK_EQ(rebuild(w.arena, kNow), Status::kOk);
  CHECK_EQ(sleepers(w.table(), kSamples), 1u);
  CHECK_EQ(sleepers(w.table(), kInserts), 0u);
  check_healthy(w.arena);
}

TEST(a_process_that_finds_an_unfinished_rebuild_begins_it_anew) {
  Scene scene(seed(), kPrioritized, kMaxHeap);
  World& w = scene.world;
  const std::vector<TableState> before = scene.observe_all();
  Child child([&] {
    const auto arena = w.segments.attach();
    Hold hold(*arena);
    CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    hold.set(arena->state().rebuilding, 1);
    hold.stop_logging();
    Random random(1);
    ruin_derived_words(w, random);
    raise(SIGKILL);
  });
  CHECK(child.killed());
  check_healthy(w.arena);
  CHECK_EQ(w.arena.state().rebuilding.get(), 0u);
  CHECK_EQ(w.arena.state().num_rebuilds.load(), 1u);
  CHECK(scene.observe_all() == before);
}

TEST(a_rebuild_that_meets_damaged_records_fails_the_segment) {
  World w(arena_of({open_table("a", 10)}));
  Actor actor(w.arena, w.table());
  const uint32_t g = find_item(w.arena, w.table(), actor.insert());
  poke(w.arena.item(g).place, {1'000'000, 0});
  CHECK_THROWS(CorruptIndex, "index out of range", rebuild(w.arena, kNow));
  CHECK(w.arena.failed());
}

}  // namespace shmreplay::test
