// New items that take the slots of the oldest. For every kind of table, the result must be what one insert and one
// eviction at a time would leave.
#include "items/item_run.h"

#include <algorithm>
#include <deque>

#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

struct Kept {
  int64_t key;
  uint64_t serial;
  double priority;
  bool sampled = false;
  uint64_t number = 0;  // of the item's insert
};

// Inserts one row of the writer's own episode as an item.
int64_t insert_step_of_episode(StreamWriter& writer, PreparedPattern& step, Arena& arena, uint64_t serial) {
  CHECK_EQ(writer.ensure_row(kNow), Status::kOk);
  write_row(writer, arena, serial);
  const double priority = 1;
  int64_t key = 0;
  uint32_t done = 0;
  CHECK_EQ(writer.items().insert_rows(writer.table(), step, &priority, 1, kNow, &key, done, {true}), Status::kOk);
  return key;
}

// A table in plain C++, and the writer that gives both tables their items.
class Twin {
 public:
  Twin(const TableSpec& table, uint32_t chunk_steps, uint64_t seed_)
      : world(arena_of({table, open_table("beside", 6)}, chunk_steps, 64)),
        actor(world.arena, world.table(), 4),
        random(seed_) {}

  void insert(uint32_t n) {
    std::vector<double> priorities(n);
    std::vector<int64_t> keys(n);
    for (double& p : priorities) p = static_cast<double>(random.below(3));
    for (uint32_t done = 0; done < n;) {
      CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
      const uint32_t k = std::min(n - done, actor.writer.row().rows_left());
      for (uint32_t i = 0; i < k; ++i) {
        for (uint32_t c = 0; c < 3; ++c) {
          const uint32_t bytes = world.arena.columns()[c].row_bytes;
          fill_cell(actor.writer.row().cell(c) + i * bytes, bytes, serial + done + i);
        }
      }
      uint32_t went_in = 0;
      CHECK_EQ(actor.writer.items().insert_rows(world.table(), actor.step, priorities.data() + done, k, kNow,
                                                keys.data() + done, went_in),
               Status::kOk);
      CHECK_EQ(went_in, k);
      done += k;
    }
    for (uint32_t i = 0; i < n; ++i) keep({keys[i], serial + i, priorities[i]});
    serial += n;
  }

  // A step of an episode that goes on: it cannot be part of a run.
  void append() {
    keep({insert_step_of_episode(actor.writer, actor.step, world.arena, serial), serial, 1.0});
    serial += 1;
  }

  void remove() {
    const size_t at = random.below(items.size());
    uint32_t deleted = 0;
    CHECK_EQ(delete_items(world.arena, world.table(), &items[at].key, 1, kNow, deleted), Status::kOk);
    drop(at);
  }

  void sample() {
    if (items.empty()) return;
    Learner learner(world.arena, random.word());
    const Pick pick = learner.draw(world.table());
    const auto item = std::find_if(items.begin(), items.end(), [&](const Kept& k) { return k.key == pick.key; });
    CHECK(item != items.end());
    CHECK_EQ(pick.times_sampled == 1, !item->sampled);
    num_samples += 1;
    item->sampled = true;
  }

  void check() {
    check_healthy(world.arena);
    const TableRecord& r = *world.table().record;
    std::vector<int64_t> keys;
    for (const Kept& k : items) keys.push_back(k.key);
    CHECK_EQ(live_keys(world.arena, world.table()), keys);
    CHECK_EQ(r.limiter.inserts.get(), num_inserts);
    CHECK_EQ(r.limiter.deletes.get(), num_deletes);
    CHECK_EQ(r.evicted.get(), num_evicted);
    CHECK_EQ(r.limiter.samples.get(), num_samples + (r.limiter.count_deletes.get() != 0 ? num_unsampled : 0));
    if (keys.empty()) return;
    Batch batch(world.arena, static_cast<int64_t>(keys.size()));
    std::vector<uint32_t> found(keys.size());
    SampleCall call(world.arena);
    const auto n = static_cast<uint32_t>(keys.size());
    CHECK_EQ(call.get(world.table(), keys.data(), n, kNow, batch, found.data()).done, n);
    batch.check_rows();
    for (uint32_t i = 0; i < n; ++i) {
      CHECK_EQ(batch.serial(i), items[i].serial);
      CHECK_EQ(batch.picks[i].priority, items[i].priority);
      CHECK_EQ(batch.picks[i].age, static_cast<int64_t>(num_inserts - items[i].number));
    }
  }

  World world;
  Actor actor;
  Random random;
  std::deque<Kept> items;
  uint64_t serial = 1, num_inserts = 0, num_deletes = 0, num_evicted = 0, num_samples = 0, num_unsampled = 0;

 private:
  void keep(Kept item) {
    ++num_inserts;
    item.number = num_inserts;
    items.push_back(item);
    if (items.size() <= world.table().max_size) return;
    ++num_evicted;
    drop(0);
  }
  void drop(size_t at) {
    ++num_deletes;
    num_unsampled += items[at].sampled ? 0 : 1;
    items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  }
};

}  // namespace

TEST(a_run_of_newcomers_leaves_what_one_insert_at_a_time_leaves) {
  const uint64_t start = seed();
  for (uint64_t round = 0; round < (kSanitized ? 40 : 200); ++round) {
    Random random(start + round);
    const uint32_t samplers[] = {kUniform, kPrioritized, kFifo, kLifo};
    TableSpec table = open_table("a", static_cast<uint32_t>(1 + random.below(20)), samplers[random.below(4)]);
    table.count_deletes = random.chance(0.5);
    Twin twin(table, static_cast<uint32_t>(1 + random.below(12)), random.word());
    for (int step = 0; step < 30; ++step) {
      twin.insert(static_cast<uint32_t>(1 + random.below(40)));
      if (random.chance(0.2)) twin.append();
      if (random.chance(0.3)) twin.remove();
      if (random.chance(0.5)) twin.sample();
      twin.check();
    }
  }
}

TEST(the_slots_of_the_oldest_are_taken_in_their_order) {
  World w(arena_of({open_table("a", 8)}, 4, 16));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 8; ++i) actor.insert();
  const uint32_t oldest = w.table().record->order.get().head;
  const int64_t key = actor.insert();
  CHECK_EQ(find_item(w.arena, w.table(), key), oldest);
  CHECK_EQ(w.table().record->order.get().tail, oldest);
}

TEST(items_of_several_steps_take_the_slots_of_the_oldest_too) {
  const uint64_t start = seed();
  for (uint64_t round = 0; round < (kSanitized ? 20 : 60); ++round) {
    Random random(start + round);
    const uint32_t samplers[] = {kUniform, kPrioritized, kFifo, kLifo};
    const auto max_size = static_cast<uint32_t>(3 + random.below(12));
    World w(arena_of({open_table("a", max_size, samplers[random.below(4)])}, static_cast<uint32_t>(1 + random.below(5)),
                     128));
    const auto length = static_cast<int32_t>(1 + random.below(6));
    Fleet fleet(w.arena, {newest(w.arena, 0, length, AtEnd::kShorten)}, 3);
    std::deque<int64_t> keys;
    std::deque<std::vector<uint64_t>> rows;
    const auto note = [&](const RuleWriter& writer, uint64_t last) {
      for (uint32_t i = 0; i < writer.num_in(); ++i) {
        keys.push_back(writer.keys()[i]);
        rows.push_back(rows_of(w, keys.back()));
        CHECK_EQ(rows.back().back(), last);
        if (keys.size() <= max_size) continue;
        keys.pop_front();
        rows.pop_front();
      }
    };
    for (uint64_t step = 0; step < 20; ++step) {
      CHECK_EQ(fleet.append(kNow), Status::kOk);
      for (uint32_t i = 0; i < 3; ++i) note(fleet.writer.at(i), Fleet::serial(i, step));
      const VectorWriter::Row one[] = {fleet.everybody[random.below(3)]};
      VectorWriter::Progress progress;
      if (random.chance(0.2)) {
        CHECK_EQ(fleet.writer.end_episodes(one, nullptr, random.chance(0.5), -1, kNow, progress), Status::kOk);
        const RuleWriter& writer = fleet.writer.at(one[0].stream);
        if (writer.num_in() <= max_size) note(writer, Fleet::serial(one[0].stream, step));
        else break;  // some of its own items are gone already
      }
      CHECK_EQ(live_keys(w.arena, w.table()), std::vector<int64_t>(keys.begin(), keys.end()));
      for (size_t i = 0; i < keys.size(); ++i) CHECK_EQ(rows_of(w, keys[i]), rows[i]);
      CHECK_EQ(w.table().record->size.get(), keys.size());
      check_healthy(w.arena);
    }
  }
}

TEST(a_run_stops_at_an_item_that_can_not_go_that_way) {
  World w(arena_of({open_table("a", 4)}, 8, 16));
  Actor actor(w.arena, w.table());
  actor.insert();
  insert_step_of_episode(actor.writer, actor.step, w.arena, 2);
  for (int i = 0; i < 2; ++i) actor.insert();
  std::vector<NewItem> items(3);
  int64_t keys[3] = {};
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  const Place newest = w.arena.item(w.table().record->order.get().tail).place.get();
  for (NewItem& item : items) {
    item = NewItem{1.0, newest, 1, actor.step.record};
    item.own_episode = true;
  }
  CHECK_EQ(replace_oldest(hold, w.table(), items.data(), 3, keys), 1u);
  CHECK_EQ(replace_oldest(hold, w.table(), items.data() + 1, 2, keys + 1), 0u);
  hold.end();
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
