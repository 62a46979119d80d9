#include "damage/flips_scene.h"
#include "chunks/block_pool.h"

#include <algorithm>
#include <cstring>

#include "chunks/chunk_pool.h"

namespace shmreplay::test {

ArenaSpec scene_spec() {
  TableSpec heaps = open_table("heaps", 9, kMaxHeap, kLifo);
  heaps.max_times_sampled = 3;
  TableSpec waits = open_table("waits", 6, kMinHeap, kUniform);
  waits.on_full = kOnFullWait;
  ArenaSpec s =
      arena_of({open_table("trees", 20, kPrioritized, kMinHeap), queue_table("queue", 8),
                open_table("dense", 12, kUniform, kUniform), heaps, waits, open_table("ends", 10, kLifo, kFifo)},
               4, 60);
  return with_values(s, 400, 128);
}

Pattern uneven_pattern(const Arena& arena) {
  Pattern p = whole_pattern(arena);
  p.slices.clear();
  for (PatternOutput& out : p.outputs) {
    if (arena.columns()[out.column].flags == kPerItemColumn) continue;
    out.first_slice = static_cast<uint32_t>(p.slices.size());
    out.num_slices = 2;
    out.flags = out.column % 2 == 0 ? kRepeatStart : 0;
    out.trim_end = out.column % 3 == 0 ? 1 : 0;
    p.slices.push_back({-1, 0, -1, kBeginAtEnd});  // backwards, without the first position
    p.slices.push_back({0, 0, 2, kEndAtEnd});
  }
  return p;
}

namespace {

// Makes an item of the newest steps, with padding on both sides and without values.
int64_t create_uneven(Actor& actor, PreparedPattern& pattern) {
  const uint32_t steps = std::min(actor.writer.history().num_steps(), 3u);
  DueItem due{5, &pattern, first_of(actor.writer, steps), steps, {2, 1}, 1.5};
  int64_t key = 0;
  uint32_t done = 0;
  CHECK_EQ(insert_due(actor.writer, &due, 1, kNow, &key, done), Status::kOk);
  return key;
}

// `partly`: with a final step that has only its first column.
void end_episode(Actor& actor, bool partly) {
  if (partly) {
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    fill_cell(actor.writer.row().cell(0), 8, actor.next_serial());
    actor.writer.row().mark(0);
  }
  actor.writer.end_episode(false);
}

}  // namespace

Scene::Scene() : world(scene_spec()), lease_(world.arena), blocked_(world.arena, world.table(1), kSamples, kNow) {
  fill();
  give_back_some();
  Hold hold(world.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  uint32_t blocks[5];
  CHECK(take_blocks(hold, world.arena.state().used_chunks.get().head, 5, blocks));
  blocked_.join(hold);
  CHECK_EQ(lease_.take(hold), Status::kOk);
  lease_.name(hold, world.arena.state().used_chunks.get().tail);
  hold.end();
  client = world.client();
  die_in_a_hold_and_keep();
}

void Scene::restore(bool dead) {
  Arena& a = *world.daemon;
  std::memcpy(a.index(), (dead ? dead_ : alive_).data(), a.index_bytes());
  std::memcpy(a.data(), data_.data(), a.data_bytes());
}

void Scene::fill() {
  Actor actor(world.arena, world.table(0), 14);
  PreparedPattern other(uneven_pattern(world.arena));
  for (int i = 0; i < 40; ++i) {
    actor.append();
    const uint32_t steps = actor.writer.history().num_steps();
    keys[0].push_back(actor.create(std::min(steps, 1u + static_cast<uint32_t>(i) % 9), 0.5 + i % 7));
    for (const uint32_t t : {2u, 5u}) keys[t].push_back(actor.create_in(world.table(t), std::min(steps, 3u), i));
    if (i < 5) keys[3].push_back(actor.create_in(world.table(3), 1, i));
    if (i % 4 == 3) keys[5].push_back(create_uneven(actor, other));
    if (i % 11 == 10) end_episode(actor, i == 21);
  }
  for (const uint32_t t : {1u, 4u}) {
    Actor singles(world.arena, world.table(t), 0, 700 + t);
    for (int i = 0; i < 5; ++i) keys[t].push_back(singles.insert());
  }
}

void Scene::give_back_some() {
  uint32_t n = 0;
  CHECK_EQ(delete_items(world.arena, world.table(5), keys[5].data(), 25, kNow, n), Status::kOk);
  CHECK_EQ(reclaim(world.arena, kNow, n), Status::kOk);
  CHECK_EQ(delete_items(world.arena, world.table(0), keys[0].data() + 12, 15, kNow, n), Status::kOk);
}

void Scene::die_in_a_hold_and_keep() {
  Arena& a = *world.daemon;
  alive_.assign(a.index(), a.index_bytes());
  data_.assign(a.data(), a.data_bytes());
  Child gone([&] {
    const auto arena = world.segments.attach(client->session_index(), client->session_generation());
    Actor actor(*arena, arena->table(0), 3, 900);
    actor.append();
    fault::arm(120);
    actor.create(1, 2.0);
  });
  CHECK(gone.killed());
  dead_.assign(a.index(), a.index_bytes());
  restore(false);
}

std::vector<Region> regions_of(const Arena& a) {
  const Offsets& o = a.offsets();
  std::vector<Region> all = {{"header", 0, sizeof(Header)},
                             {"specs", o.specs, o.specs + o.specs_bytes},
                             {"mutex", o.lock + 4, o.lock + sizeof(pthread_mutex_t)},  // but for its word: see
                                                                                       // robust_lock_test.cc
                             {"hold line", o.lock + offsetof(LockBlock, hold_seq), o.lock + sizeof(LockBlock)},
                             {"undo log", o.log, o.log + 128 + 200 * sizeof(LogEntry)},
                             {"state", o.state, o.sessions},
                             {"sessions", o.sessions, o.streams},
                             {"streams", o.streams, o.sleepers},
                             {"sleep slots", o.sleepers, o.calls},
                             {"call slots", o.calls, o.chunks},
                             {"chunks", o.chunks, o.blocks},
                             {"blocks", o.blocks, o.columns},
                             {"columns", o.columns, o.patterns},
                             {"patterns", o.patterns, o.tables},
                             {"items", o.items, o.links},
                             {"links", o.links, o.priorities},
                             {"priorities", o.priorities, o.episodes},
                             {"episodes", o.episodes, o.values},
                             {"values", o.values, o.selectors},
                             {"selectors", o.selectors, o.end}};
  for (uint32_t i = 0; i < a.num_tables(); ++i) {
    const uint64_t at = o.tables + i * sizeof(TableRecord);
    all.push_back({"table", at, at + offsetof(TableRecord, longest)});
    all.push_back({"longest", at + offsetof(TableRecord, longest), at + offsetof(TableRecord, longest) + 16});
  }
  const uint64_t rows = uint64_t{a.geometry().num_chunks} * a.geometry().chunk_bytes;
  all.push_back({"rows", 0, rows, true});
  all.push_back({"rows", 0, rows, true});  // they have many kinds of bytes
  return all;
}

}  // namespace shmreplay::test
