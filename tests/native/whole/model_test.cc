// Long random histories of two or three tables in one arena, beside a model that anybody can read in a minute. Whatever
// happens, both must say the same, and check_invariants() must find nothing.
#include <algorithm>
#include <cfloat>
#include <map>
#include <set>

#include "arena/admission.h"
#include "items/rebuild.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

struct ModelItem {
  int64_t key;
  double priority;
  std::vector<uint64_t> serials;
  uint64_t episode;
  uint32_t times_sampled;
  uint64_t touch;
};

// A table in plain C++: items in insertion order; every selector is a loop.
class ModelTable {
 public:
  explicit ModelTable(const TableSpec& s) : spec(s) {}

  bool can_insert() const {
    if (static_cast<int64_t>(inserts - deletes) + 1 <= spec.min_size_to_sample) return true;
    return static_cast<double>(inserts + 1) * spec.samples_per_insert - static_cast<double>(samples) <= spec.max_diff;
  }
  bool can_sample() const {
    if (items.empty() || static_cast<int64_t>(inserts - deletes) < spec.min_size_to_sample) return false;
    return static_cast<double>(inserts) * spec.samples_per_insert - static_cast<double>(samples) - 1 >= spec.min_diff;
  }

  static bool is_random(uint32_t kind) { return kind == kUniform || kind == kPrioritized; }

  int64_t pick(uint32_t kind) const {
    if (kind == kFifo) return items.front().key;
    if (kind == kLifo) return items.back().key;
    const ModelItem* best = &items.front();
    for (const ModelItem& i : items) {
      const bool better = kind == kMinHeap ? i.priority < best->priority : i.priority > best->priority;
      if (better || (i.priority == best->priority && i.touch < best->touch)) best = &i;
    }
    return best->key;
  }

  double probability(uint32_t kind, const ModelItem& item) const {
    if (!is_random(kind)) return 1;
    double total = 0;
    for (const ModelItem& i : items) total += i.priority;
    return kind == kUniform || total == 0 ? 1.0 / static_cast<double>(items.size()) : item.priority / total;
  }

  ModelItem& find(int64_t key) {
    const auto at = std::find_if(items.begin(), items.end(), [&](const ModelItem& i) { return i.key == key; });
    CHECK(at != items.end());
    return *at;
  }

  void insert(ModelItem item) {
    item.touch = ++clock;
    if (spec.sampler == kPrioritized && item.priority < 0) item.priority = default_priority();
    items.push_back(std::move(item));
    ++inserts;
  }
  void update(int64_t key, double priority) {
    ModelItem& item = find(key);
    item.priority = priority;
    item.touch = ++clock;
  }
  void erase(int64_t key) {
    ModelItem& item = find(key);
    if (item.times_sampled == 0 && spec.count_deletes) ++samples;
    const uint64_t episode = item.episode;
    items.erase(items.begin() + (&item - items.data()));
    ++deletes;
    const bool last =
        std::none_of(items.begin(), items.end(), [&](const ModelItem& i) { return i.episode == episode; });
    if (last) ++deleted_episodes;
  }
  void sample(int64_t key) {
    ModelItem& item = find(key);
    ++samples;
    if (++item.times_sampled == 1) ++unique;
    if (spec.max_times_sampled > 0 && item.times_sampled >= spec.max_times_sampled) erase(key);
  }
  void reset() {
    items.clear();
    inserts = samples = deletes = unique = deleted_episodes = 0;
  }

  double default_priority() const {
    double largest = 0;
    for (const ModelItem& i : items) largest = std::max(largest, i.priority);
    return largest > 0 ? largest : 1;
  }
  uint64_t episodes() const {
    std::set<uint64_t> ids;
    for (const ModelItem& i : items) ids.insert(i.episode);
    return ids.size();
  }

  TableSpec spec;
  std::vector<ModelItem> items;
  uint64_t inserts = 0, samples = 0, deletes = 0, unique = 0, deleted_episodes = 0, clock = 0;
};

TableSpec random_table(Random& random, const char* name, uint32_t sampler, uint32_t remover) {
  TableSpec t = open_table(name, 1 + static_cast<uint32_t>(random.below(30)), sampler, remover);
  if (random.chance(0.3)) t.max_times_sampled = 1 + static_cast<uint32_t>(random.below(3));
  if (random.chance(0.5)) {
    t.samples_per_insert = 0.5 * static_cast<double>(1 + random.below(5));
    t.min_size_to_sample = 1 + static_cast<int64_t>(random.below(4));
    t.min_diff = -static_cast<double>(random.below(4));
    t.max_diff =
        t.samples_per_insert * static_cast<double>(t.min_size_to_sample) + static_cast<double>(random.below(20));
    t.count_deletes = random.chance(0.3);
  }
  return t;
}

class Game {
 public:
  Game(Random& random, const std::vector<TableSpec>& specs, const ArenaSpec& arena)
      : random_(random), world_(std::move(arena)), learner_(world_.arena, random.word()) {
    for (const TableSpec& s : specs) tables_.emplace_back(s);
    for (int i = 0; i < 2; ++i) open_writer(i);
    one_step_ = std::make_unique<Actor>(world_.arena, world_.table(2), 0, 3'000'000);
  }

  void step() {
    const auto which = static_cast<uint32_t>(random_.below(3));
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2: append(); break;
      case 3:
      case 4: insert_one_step(); break;
      case 5:
      case 6: create(which % 2); break;
      case 7:
      case 8: sample(which); break;
      case 9: update(which); break;
      case 10: remove(which); break;
      default: seldom(which);
    }
    compare_counters();
  }

  void compare_all() {
    check_healthy(world_.arena);
    std::map<uint64_t, uint64_t> ids;  // episode ids: from the model's to the arena's
    for (uint32_t t = 0; t < 3; ++t) compare_items(t, ids);
  }

 private:
  struct Writer {
    std::unique_ptr<Actor> actor;
    std::vector<uint64_t> steps;  // still held
    uint64_t episode;
  };
  static constexpr uint32_t kHistory = 7;

  void open_writer(int i) {
    writers_[i].actor = std::make_unique<Actor>(world_.arena, world_.table(0), kHistory, (next_writer_ += 10'000'000));
    writers_[i].steps.clear();
    writers_[i].episode = ++next_episode_;
  }

  void append() {
    Writer& w = writers_[random_.below(2)];
    const uint64_t serial = w.actor->next_serial();
    const Status s = w.actor->writer.ensure_row(kNow);
    forget_evicted_for_room();
    if (s == Status::kTimeout) return;  // items that must stay hold every chunk
    CHECK_EQ(s, Status::kOk);
    const Status blocks = secure_row(w.actor->writer, world_.arena, serial, kNow);
    forget_evicted_for_room();
    if (blocks == Status::kTimeout) return;  // or every block
    CHECK_EQ(blocks, Status::kOk);
    w.actor->append();
    w.steps.push_back(serial);
    if (w.steps.size() > kHistory) w.steps.erase(w.steps.begin());
  }

  void create(uint32_t t) {
    Writer& w = writers_[random_.below(2)];
    if (w.steps.empty()) return;
    const auto length = 1 + static_cast<uint32_t>(random_.below(w.steps.size()));
    const double priority = random_priority(t);
    int64_t key = 0;
    if (!has_room(*w.actor, length)) return;
    const Status s = w.actor->try_create(world_.table(t), length, priority, kNow, key);
    inserted(t, s, key, {w.steps.end() - length, w.steps.end()}, priority, w.episode);
  }

  void insert_one_step() {
    const uint64_t serial = one_step_->next_serial();
    const double priority = random_priority(2);
    int64_t key = 0;
    const Status row = one_step_->writer.ensure_row(kNow);
    forget_evicted_for_room();
    if (row == Status::kTimeout) return;
    const Status blocks = secure_row(one_step_->writer, world_.arena, serial, kNow);
    forget_evicted_for_room();
    if (blocks == Status::kTimeout || !has_room(*one_step_, 0)) return;
    const Status s = one_step_->try_insert(priority, kNow, key);
    inserted(2, s, key, {serial}, priority, ++next_episode_);
  }

  // Whether there are blocks for what an item of that length will bring. Frees some if needed.
  bool has_room(Actor& actor, uint32_t length) {
    if (!world_.arena.has_values()) return true;
    const std::string brought = item_value(actor.next_serial() - length);
    BlockRef ref;
    Status s = Status::kOk;
    if (length == 0) {
      s = actor.writer.secure_blocks(20, kNow);  // for the row, at most, and for what the item brings
    } else {
      s = actor.writer.items().bring_values(first_of(actor.writer, length), brought.data(), brought.size(), kNow, ref);
      actor.writer.items().end_values(false);
    }
    forget_evicted_for_room();
    CHECK(s == Status::kOk || s == Status::kTimeout);
    return s == Status::kOk;
  }

  // A negative priority asks for the default, which only a Prioritized table takes from its items.
  double random_priority(uint32_t t) {
    const double values[] = {0, 1, 1, 2, random_.uniform(), tables_[t].spec.sampler == kPrioritized ? -1.0 : 3.0};
    return values[random_.below(6)];
  }

  void inserted(uint32_t t, Status s, int64_t key, std::vector<uint64_t> serials, double priority, uint64_t episode) {
    ModelTable& m = tables_[t];
    CHECK_EQ(s, m.can_insert() ? Status::kOk : Status::kTimeout);
    if (s != Status::kOk) return;
    CHECK(ever_.insert(key).second);
    m.insert({key, priority, std::move(serials), episode, 0, 0});
    if (m.items.size() <= m.spec.max_size) return;
    m.erase(victim(t));
  }

  int64_t victim(uint32_t t) {
    ModelTable& m = tables_[t];
    if (!ModelTable::is_random(m.spec.remover)) return m.pick(m.spec.remover);
    const auto gone =
        std::find_if(m.items.begin(), m.items.end(), [&](const ModelItem& i) { return !is_live(t, i.key); });
    CHECK(gone != m.items.end());
    CHECK(m.probability(m.spec.remover, *gone) > 0);
    return gone->key;
  }

  bool is_live(uint32_t t, int64_t key) const { return find_item(world_.arena, world_.table(t), key) != kNone; }

  // The arena decides which items are evicted for room. The model only checks that they are counted, and are of tables
  // that evict.
  void forget_evicted_for_room() {
    for (uint32_t t = 0; t < 3; ++t) {
      std::vector<int64_t> gone;
      for (const ModelItem& i : tables_[t].items) {
        if (!is_live(t, i.key)) gone.push_back(i.key);
      }
      const uint64_t counted = world_.table(t).record->evicted_for_room.get() - evicted_for_room_[t];
      CHECK_EQ(counted, gone.size());
      CHECK(gone.empty() || !keeps_items(world_.table(t)));
      for (const int64_t key : gone) tables_[t].erase(key);
      evicted_for_room_[t] += counted;
    }
  }

  void sample(uint32_t t) {
    const auto n = 1 + static_cast<uint32_t>(random_.below(20));
    Batch batch(world_.arena, n);
    const SampleResult r = learner_.sample(world_.table(t), n, batch);
    ModelTable& m = tables_[t];
    uint32_t i = 0;
    for (; i < n && m.can_sample(); ++i) {
      CHECK(i < r.done);
      const Pick& p = batch.picks[i];
      ModelItem& item = m.find(p.key);
      if (!ModelTable::is_random(m.spec.sampler)) CHECK_EQ(p.key, m.pick(m.spec.sampler));
      CHECK_EQ(p.priority, item.priority);
      CHECK_EQ(p.times_sampled, item.times_sampled + 1);
      CHECK_NEAR(p.probability, m.probability(m.spec.sampler, item), 1e-12);
      CHECK(p.probability > 0);
      for (uint32_t row = 0; row < item.serials.size(); ++row) CHECK_EQ(batch.serial(i, row), item.serials[row]);
      m.sample(p.key);
    }
    CHECK_EQ(r.done, i);
    CHECK_EQ(r.status, i == n ? Status::kOk : Status::kTimeout);
    if (i > 0) batch.check_rows();
  }

  void update(uint32_t t) {
    std::vector<int64_t> keys;
    std::vector<double> priorities;
    uint32_t live = 0, updated = 0;
    for (uint64_t n = 1 + random_.below(20); n > 0; --n) {
      keys.push_back(any_key(t));
      priorities.push_back(random_.chance(0.2) ? 0 : random_.uniform());
      if (is_live(t, keys.back())) {
        tables_[t].update(keys.back(), priorities.back());
        ++live;
      }
    }
    CHECK_EQ(update_priorities(world_.arena, world_.table(t), keys.data(), priorities.data(),
                               static_cast<uint32_t>(keys.size()), kNow, updated),
             Status::kOk);
    CHECK_EQ(updated, live);
  }

  void remove(uint32_t t) {
    std::vector<int64_t> keys;
    uint32_t live = 0, deleted = 0;
    for (uint64_t n = random_.below(4); n > 0; --n) {
      keys.push_back(any_key(t));
      const bool again = std::count(keys.begin(), keys.end(), keys.back()) > 1;
      if (again || !is_live(t, keys.back())) continue;
      tables_[t].erase(keys.back());
      ++live;
    }
    CHECK_EQ(
        delete_items(world_.arena, world_.table(t), keys.data(), static_cast<uint32_t>(keys.size()), kNow, deleted),
        Status::kOk);
    CHECK_EQ(deleted, live);
  }

  // A key of this table, live or not, or of another.
  int64_t any_key(uint32_t t) {
    const std::vector<ModelItem>& items = tables_[t].items;
    if (!items.empty() && random_.chance(0.7)) return items[random_.below(items.size())].key;
    if (ever_.empty()) return 1;
    return *std::next(ever_.begin(), static_cast<std::ptrdiff_t>(random_.below(ever_.size())));
  }

  void seldom(uint32_t t) {
    const uint64_t what = random_.below(20);
    Writer& w = writers_[random_.below(2)];
    if (what == 0) {
      CHECK_EQ(reset_table(world_.arena, world_.table(t), kNow), Status::kOk);
      tables_[t].reset();
      evicted_for_room_[t] = 0;
    } else if (what == 1) {
      w.actor.reset();
      open_writer(&w == &writers_[0] ? 0 : 1);
    } else if (what < 10) {
      const bool clear = random_.chance(0.5);
      w.actor->writer.end_episode(clear);
      w.episode = ++next_episode_;
      if (clear) w.steps.clear();
    } else if (what == 10) {
      CHECK_EQ(rebuild_now(), Status::kOk);
    }
  }

  Status rebuild_now() { return shmreplay::rebuild(world_.arena, kNow); }

  void compare_counters() {
    for (uint32_t t = 0; t < 3; ++t) {
      const TableRecord& r = *world_.table(t).record;
      const ModelTable& m = tables_[t];
      CHECK_EQ(r.size.get(), m.items.size());
      CHECK_EQ(r.limiter.inserts.get(), m.inserts);
      CHECK_EQ(r.limiter.samples.get(), m.samples);
      CHECK_EQ(r.limiter.deletes.get(), m.deletes);
      CHECK_EQ(r.num_unique_samples.get(), m.unique);
      CHECK_EQ(r.num_episodes.get(), m.episodes());
      CHECK_EQ(r.num_deleted_episodes.get(), m.deleted_episodes);
    }
  }

  void compare_items(uint32_t t, std::map<uint64_t, uint64_t>& ids) {
    std::vector<int64_t> keys;
    for (const ModelItem& i : tables_[t].items) keys.push_back(i.key);
    CHECK_EQ(live_keys(world_.arena, world_.table(t)), keys);
    if (keys.empty()) return;
    Batch batch(world_.arena, static_cast<int64_t>(keys.size()));
    std::vector<uint32_t> found(keys.size());
    SampleCall call(world_.arena);
    CHECK_EQ(call.get(world_.table(t), keys.data(), static_cast<uint32_t>(keys.size()), kNow, batch, found.data()).done,
             keys.size());
    batch.check_rows();
    for (size_t i = 0; i < keys.size(); ++i) {
      const ModelItem& item = tables_[t].items[i];
      const Pick& p = batch.picks[i];
      CHECK_EQ(p.priority, item.priority);
      CHECK_EQ(p.times_sampled, item.times_sampled);
      CHECK_EQ(p.num_steps, item.serials.size());
      CHECK_EQ(ids.try_emplace(item.episode, p.episode).first->second, p.episode);
      for (uint32_t row = 0; row < p.num_steps; ++row)
        CHECK_EQ(batch.serial(static_cast<int64_t>(i), row), item.serials[row]);
    }
  }

  Random& random_;
  World world_;
  Learner learner_;
  std::vector<ModelTable> tables_;
  Writer writers_[2];
  std::unique_ptr<Actor> one_step_;
  uint64_t next_writer_ = 0, next_episode_ = 0;
  uint64_t evicted_for_room_[3] = {0, 0, 0};
  std::set<int64_t> ever_;
};

}  // namespace

TEST(any_history_of_tables_in_one_arena_is_that_of_plain_ones) {
  Random random(seed());
  for (uint32_t kinds = 0; kinds < 36; ++kinds) {
    for (const uint32_t chunk_steps : {1u, 3u, 8u}) {
      const auto other = [&] { return static_cast<uint32_t>(random.below(6)); };
      const std::vector<TableSpec> specs = {random_table(random, "a", kinds / 6, kinds % 6),
                                            random_table(random, "b", other(), other()),
                                            random_table(random, "c", other(), other())};
      // Plenty of chunks, or so few that items must go for room.
      const uint32_t num_chunks = random.chance(0.5) ? 400 : 24 / chunk_steps + 30;
      ArenaSpec arena = arena_of(specs, chunk_steps, num_chunks);
      if (random.chance(0.5)) arena = with_values(arena, random.chance(0.5) ? 4000 : 300);
      Game game(random, specs, arena);
      for (int i = 0; i < (kSanitized ? 100 : 300); ++i) {
        game.step();
        if (i % 10 == 9) game.compare_all();
      }
    }
  }
}

}  // namespace shmreplay::test
