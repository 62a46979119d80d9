// One byte of a live arena's index is flipped, anywhere but in the mutex itself, and everything is called on it.
//
// Each flip is a forked child's: it attaches before the flip or after it, with or without a dead holder's log to roll back,
// and performs every operation in an order of its own. Whatever they answer, nobody crashes, reads outside the mappings
// (which lie between guard pages), allocates without a bound or loops for ever. SHMREPLAY_FLIPS=<n> tries more;
// SHMREPLAY_SEED=<seed> SHMREPLAY_FLIP=<k> does one of them again.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_save.h"
#include "chunk_pool.h"
#include "fixtures.h"
#include "leases.h"
#include "rate_limiter.h"
#include "rebuild.h"
#include "reweigh.h"
#include "streams.h"

namespace shmreplay::test {
namespace {

constexpr uint64_t kGuardBytes = 16u << 20;
constexpr rlim_t kMemoryBytes = 1u << 30;  // address space a child may use: a length that was flipped must not become a buffer
constexpr rlim_t kCpuSeconds = kSanitized ? 120 : 10;  // an endless loop is told by the time it burns, not by the clock
constexpr unsigned kChildSeconds = 150;                // for one that sleeps

// What a child is at, so that its parent can tell.
struct Progress {
  char operation[64];
  char said[160];
  uint64_t raised;  // operations that ended with an exception
};

Progress& progress() {
  static auto* shared = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = getenv(variable);
  return text == nullptr ? otherwise : strtoull(text, nullptr, 10);
}

// ---- the arena under fire ----------------------------------------------------------------------------------------

ArenaSpec scene_spec() {
  TableSpec heaps = open_table("heaps", 9, kMaxHeap, kLifo);
  heaps.max_times_sampled = 3;
  TableSpec waits = open_table("waits", 6, kMinHeap, kUniform);
  waits.on_full = kOnFullWait;
  ArenaSpec s = arena_of({open_table("trees", 20, kPrioritized, kMinHeap), queue_table("queue", 8),
                          open_table("dense", 12, kUniform, kUniform), heaps, waits, open_table("ends", 10, kLifo, kFifo)}, 4, 60);
  s.num_blocks = 16;
  s.block_bytes = 128;
  return s;
}

// Items of every table, episodes, patterns, chunks in every state, blocks, a sleeper, a lease, sessions that are gone.
class Scene {
 public:
  Scene() : world(scene_spec()), lease_(world.arena), blocked_(world.arena, world.table(1), kSamples, kNow) {
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

  // The index and data as they were; `dead`: with a holder that died half way through an insert.
  void restore(bool dead) {
    Arena& a = *world.daemon;
    std::memcpy(a.index(), (dead ? dead_ : alive_).data(), a.index_bytes());
    std::memcpy(a.data(), data_.data(), a.data_bytes());
  }

  World world;
  std::unique_ptr<Arena> client;  // whose session the children use
  std::vector<int64_t> keys[6];

 private:
  void fill() {
    Actor actor(world.arena, world.table(0), 14);
    for (int i = 0; i < 40; ++i) {
      actor.append();
      const uint32_t steps = actor.writer.num_steps();
      keys[0].push_back(actor.create(std::min(steps, 1u + static_cast<uint32_t>(i) % 9), 0.5 + i % 7));
      for (const uint32_t t : {2u, 5u}) keys[t].push_back(actor.create_in(world.table(t), std::min(steps, 3u), i));
      for (const uint32_t t : {1u, 3u, 4u}) {
        if (i < 5) keys[t].push_back(actor.create_in(world.table(t), 1, i));
      }
      if (i % 11 == 10) actor.writer.end_episode(false);
    }
  }
  void give_back_some() {
    uint32_t n = 0;
    CHECK_EQ(delete_items(world.arena, world.table(5), keys[5].data(), 25, kNow, n), Status::kOk);
    CHECK_EQ(reclaim(world.arena, kNow, n), Status::kOk);
    CHECK_EQ(delete_items(world.arena, world.table(0), keys[0].data() + 12, 15, kNow, n), Status::kOk);
  }
  void die_in_a_hold_and_keep() {
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

  Lease lease_;
  Blocked blocked_;
  std::string alive_, dead_, data_;
};

// ---- where a byte is flipped -------------------------------------------------------------------------------------

struct Region {
  const char* name;
  uint64_t begin, end;
};

std::vector<Region> regions_of(const Arena& a) {
  const Offsets& o = a.offsets();
  std::vector<Region> all = {{"header", 0, sizeof(Header)},
                             {"specs", o.specs, o.specs + o.specs_bytes},
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
                             {"episodes", o.episodes, o.selectors},
                             {"selectors", o.selectors, o.end}};
  for (uint32_t i = 0; i < a.num_tables(); ++i) {
    const uint64_t at = o.tables + i * sizeof(TableRecord);
    all.push_back({"table", at, at + offsetof(TableRecord, longest)});
    all.push_back({"longest", at + offsetof(TableRecord, longest), at + offsetof(TableRecord, longest) + 16});
  }
  return all;
}

struct Flip {
  const char* region;
  uint64_t offset;
  uint8_t mask;
  bool attached;  // the child is attached when it happens
  bool dead;      // a holder died before
  uint64_t seed;  // of the child's order of operations
};

Flip choose(const Arena& a, const std::vector<Region>& regions, uint64_t seed) {
  Random random(seed);
  const Region& r = regions[random.below(regions.size())];
  uint64_t at = 0;
  // Words in use, mostly.
  for (int tries = 0; tries < 4; ++tries) {
    at = r.begin + random.below(r.end - r.begin);
    if (*a.at<uint64_t>(at / 8 * 8) != 0) break;
  }
  const bool whole = random.chance(0.5);
  const auto mask = static_cast<uint8_t>(whole ? 1 + random.below(255) : 1u << random.below(8));
  return {r.name, at, mask, random.chance(0.7), random.chance(0.25), random.word()};
}

// ---- what is called on it ----------------------------------------------------------------------------------------

// Room for both segments with nothing readable around it: a read beyond an end dies.
void make_guarded_room(uint64_t index_bytes, uint64_t data_bytes) {
  const uint64_t total = 3 * kGuardBytes + index_bytes + data_bytes;
  auto* room = static_cast<char*>(mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  CHECK(room != MAP_FAILED);
  // Mappings are made in the highest gap that they fit: gaps above the room are filled.
  for (const uint64_t bytes : {index_bytes, data_bytes}) {
    for (;;) {
      void* filler = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      CHECK(filler != MAP_FAILED);
      if (filler > room) continue;
      munmap(filler, bytes);
      break;
    }
  }
  munmap(room + kGuardBytes, index_bytes);
  munmap(room + 2 * kGuardBytes + index_bytes, data_bytes);
}

class Attack {
 public:
  Attack(Scene& scene, Arena& arena) : scene_(scene), arena_(arena), early_(arena, arena.table(0), 6), reader_(arena) {
    attempt("open a writer early", [&] { if (early_.open(kNow) == Status::kOk) append(early_, 5); });
  }

  void run(uint64_t seed) {
    std::vector<int> order;
    for (int i = 0; i < kOperations; ++i) order.push_back(i);
    Random random(seed);
    for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(i + 1)]);
    for (const int operation : order) {
      const auto t = static_cast<uint32_t>(random.below(arena_.num_tables()));
      perform(operation, t);
    }
    attempt("drop", [&] { drop_tables(arena_, kNow); });
  }

 private:
  static constexpr int kOperations = 42;

  template <class Body>
  void attempt(const char* name, Body body) {
    snprintf(progress().operation, sizeof progress().operation, "%s", name);
    try {
      body();
    } catch (const CorruptIndex& e) {
      note(e);
    } catch (const AttachError& e) {
      note(e);
    }
  }

  static void note(const std::exception& e) {
    ++progress().raised;
    snprintf(progress().said, sizeof progress().said, "%s: %s", progress().operation, e.what());
  }

  void append(StreamWriter& writer, int steps) {
    for (int i = 0; i < steps; ++i) {
      if (writer.ensure_row(kNow) != Status::kOk) return;
      if (!writer.row_is_open()) write_row(writer, arena_, serial_++);
      writer.finish_row();
    }
  }

  void insert(uint32_t t) {
    StreamWriter writer(arena_, arena_.table(t), 0);
    PreparedPattern step(one_step_pattern(arena_));
    if (writer.open(kNow) != Status::kOk) return;
    for (int i = 0; i < 6; ++i) {
      if (writer.ensure_row(kNow) != Status::kOk) return;
      if (!writer.row_is_open()) write_row(writer, arena_, serial_++);
      int64_t key = 0;
      uint32_t done = 0;
      const double priority = i - 1.0;
      if (writer.insert_rows(arena_.table(t), step, &priority, 1, kNow, &key, done) != Status::kOk) return;
    }
    writer.close(kNow);
  }

  void create(uint32_t t) {
    StreamWriter writer(arena_, arena_.table(t), 12);
    PreparedPattern span(whole_pattern(arena_));
    if (writer.open(kNow) != Status::kOk) return;
    for (uint32_t length = 1; length < 12; ++length) {
      append(writer, 2);
      int64_t key = 0;
      if (writer.num_steps() == 0) continue;  // the damage lets it write none
      create_item(writer, arena_.table(t), span, std::min(length, writer.num_steps()), length, kNow, key);
    }
    append(writer, 70);  // until the oldest have to go for room
    writer.end_episode(true);
    writer.close(kNow);
  }

  void insert_what_is_due() {
    append(early_, 3);
    PreparedPattern span(whole_pattern(arena_));
    DueItem due[] = {{0, &span, early_.oldest_held(), 1, {0, 0}, 2}, {2, &span, early_.oldest_held(), 1, {0, 0}, -1}};
    if (early_.num_steps() == 0) return;
    int64_t keys[2];
    uint32_t done = 0;
    insert_due(early_, due, 2, kNow, keys, done);
  }

  // A batch that memory has no room for: the caller's, whose answer that is.
  class BoundedBatch final : public BatchSink {
   public:
    BoundedBatch(const Arena& arena, size_t n) : batch_(arena, static_cast<int64_t>(n)) {}
    bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
      for (size_t o = 0; o < structure.outputs.size(); ++o) {
        if (rows[o] > 4096) return false;
      }
      return batch_.prepare(structure, rows, done);
    }
    std::vector<OutputBuffer>& outputs() noexcept override { return batch_.outputs(); }
    void describe(int64_t i, const Pick& pick) noexcept override { batch_.describe(i, pick); }

   private:
    Batch batch_;
  };

  void sample(uint32_t t, uint32_t n, bool count) {
    BoundedBatch batch(arena_, n);
    std::vector<double> uniforms(n);
    for (double& u : uniforms) u = random_.uniform();
    reader_.sample(arena_.table(t), {n, 1, count, uniforms.data()}, kNow, batch);
  }

  // Each item once, and views.
  void sample_otherwise(uint32_t t) {
    const uint32_t n = 12;
    std::vector<double> uniforms(n);
    for (double& u : uniforms) u = random_.uniform();
    BoundedBatch batch(arena_, n);
    SampleOptions options{n, 1, false, uniforms.data()};
    options.distinct = true;
    reader_.sample(arena_.table(t), options, kNow, batch);
    class Ignores final : public ViewSink {
     public:
      bool take(const Part&, bool) noexcept override { return true; }
    } sink;
    SampleCall call(arena_);
    call.view(arena_.table(t), {n, n, true, uniforms.data()}, kNow, sink);
    call.drop();
  }

  void get(uint32_t t) {
    BoundedBatch batch(arena_, scene_.keys[t].size());
    std::vector<uint32_t> found(scene_.keys[t].size());
    reader_.get(arena_.table(t), scene_.keys[t].data(), static_cast<uint32_t>(found.size()), kNow, batch, found.data());
  }

  void update(uint32_t t) {
    std::vector<double> priorities;
    for (size_t i = 0; i < scene_.keys[t].size(); ++i) priorities.push_back(static_cast<double>(i % 5));
    uint32_t n = 0;
    update_priorities(arena_, arena_.table(t), scene_.keys[t].data(), priorities.data(),
                      static_cast<uint32_t>(priorities.size()), kNow, n);
  }

  void remove(uint32_t t) {
    const std::vector<int64_t> keys = live_keys(arena_, arena_.table(t));
    CHECK(keys.size() <= arena_.table(t).capacity);
    uint32_t n = 0;
    delete_items(arena_, arena_.table(t), keys.data(), static_cast<uint32_t>(std::min<size_t>(keys.size(), 4)), kNow, n);
  }

  void take_heap_blocks() {
    Hold hold(arena_);
    if (hold.begin(kNow) != Status::kOk) return;
    uint32_t blocks[3];
    take_blocks(hold, arena_.state().used_chunks.get().head, 3, blocks);
  }

  void wait_for_the_limiter(uint32_t t) {
    Blocked blocked(arena_, arena_.table(t), kSamples, kNow);
    Hold hold(arena_);
    if (hold.begin(kNow) != Status::kOk) return;
    blocked.join(hold);
    hold.end();
    blocked.sleep();
  }

  void save_a_checkpoint() {
    CheckpointSave save(arena_);
    bool busy = false;
    if (save.take(arena_.session_index(), arena_.session_generation(), kNow, busy) != Status::kOk || busy) return;
    std::vector<char> slice(CheckpointSave::kMinRoom);
    CheckpointSave::Slice written{};
    while (written.part != SavedPart::kEnd && save.fill(slice.data(), slice.size(), kNow, written) == Status::kOk) {
      if (save.was_given_up()) return;
    }
  }

  void sessions() {
    SessionInfo info{};
    if (open_session(arena_, static_cast<uint32_t>(getpid()), 0, 0, kNow, info) == Status::kOk) {
      bool reaped = false;
      close_session(arena_, info.index, info.generation, kNow, reaped);
    }
    for (const SessionInfo& s : live_sessions(arena_)) {
      if (s.index == arena_.session_index()) continue;
      bool reaped = false;
      close_session(arena_, s.index, s.generation, kNow, reaped);
    }
  }

  void read_without_the_lock(uint32_t t) {
    const LimiterReport r = report(*arena_.table(t).record);
    CHECK(r.difference() == r.difference() || true);
    can_sample_now(arena_, arena_.table(t), 3);
    can_insert(*arena_.table(t).record, 1);
    largest_burst(*arena_.table(t).record);
    inspect_header(scene_.world.segments.index_fd);
  }

  void walk_everything() {
    std::vector<std::string> faults;
    check_invariants(arena_, kNow, faults);
    CHECK(faults.size() < 100'000);
  }

  void perform(int operation, uint32_t t) {
    switch (operation % 21) {
      case 0: case 1: case 2: return attempt("insert", [&] { insert(t); });
      case 3: case 4: return attempt("create", [&] { create(t); });
      case 5: return attempt("insert what is due", [&] { insert_what_is_due(); });
      case 6: case 7: return attempt("sample", [&] { sample(t, 20, true); });
      case 8: return attempt("look", [&] { sample(t, 40, false); });
      case 9:
        if (operation >= 21) return attempt("sample each once, view", [&] { sample_otherwise(t); });
        return attempt("get", [&] { get(t); });
      case 10: return attempt("update", [&] { update(t); });
      case 11: return attempt("delete", [&] { remove(t); });
      case 12:
        if (operation >= 21) return attempt("save a checkpoint", [&] { save_a_checkpoint(); });
        return attempt("reclaim", [&] { uint32_t n = 0; reclaim(arena_, kNow, n); });
      case 13: return attempt("take blocks", [&] { take_heap_blocks(); });
      case 14: return attempt("wait", [&] { wait_for_the_limiter(t); });
      case 15: return attempt("sessions", [&] { sessions(); });
      case 16: return attempt("read without the lock", [&] { read_without_the_lock(t); });
      case 17: return attempt("check", [&] { walk_everything(); });
      case 18:
        if (operation >= 21 && arena_.table(t).prioritized()) {
          return attempt("change the exponent", [&] { set_priority_exponent(arena_, arena_.table(t), 0.7, kNow); });
        }
        return attempt("change the limiter", [&] { change_limiter(arena_, arena_.table(t), {1, -10, 1000, 1, false}, true, kNow); });
      case 19:
        if (operation >= 21) return attempt("reset", [&] { reset_table(arena_, arena_.table(t), kNow); });
        return attempt("attach again", [&] { scene_.world.segments.attach(); });
      default:
        if (operation >= 21) return attempt("rebuild", [&] { rebuild(arena_, kNow); });
        return attempt("reap the dead", [&] { uint32_t n = 0; reap_dead_sessions(arena_, kNow, n); });
    }
  }

  Scene& scene_;
  Arena& arena_;
  StreamWriter early_;
  SampleCall reader_;
  Random random_{7};
  uint64_t serial_ = 5000;
};

void flip_and_attack(Scene& scene, const Flip& flip) {
  alarm(kChildSeconds);
  const rlimit cpu{kCpuSeconds, kCpuSeconds + 1};
  CHECK_EQ(setrlimit(RLIMIT_CPU, &cpu), 0);
  progress() = {};
  const auto do_flip = [&] { *reinterpret_cast<uint8_t*>(scene.world.daemon->index() + flip.offset) ^= flip.mask; };
  if (!flip.attached) do_flip();
  make_guarded_room(scene.world.daemon->index_bytes(), scene.world.daemon->data_bytes());
  if (!kSanitized) {
    const rlimit limit{kMemoryBytes, kMemoryBytes};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  std::unique_ptr<Arena> arena;
  try {
    arena = scene.world.segments.attach(scene.client->session_index(), scene.client->session_generation());
  } catch (const AttachError&) {
    _exit(0);
  }
  auto* attack = new Attack(scene, *arena);
  if (flip.attached) do_flip();
  attack->run(flip.seed);
  _exit(0);
}

std::string describe(const Flip& flip, uint64_t k) {
  return "flip " + shown(k) + ": " + flip.region + " + offset " + shown(flip.offset) + " ^ " + shown(int{flip.mask}) +
         (flip.attached ? ", attached before" : ", attached after") + (flip.dead ? ", a dead holder" : "") + ", in '" +
         progress().operation + "'";
}

}  // namespace

TEST(the_same_operations_raise_nothing_where_nothing_is_flipped) {
  Scene scene;
  for (uint64_t i = 0; i < 40; ++i) {
    scene.restore(i % 2 == 1);
    const Flip none{"none", 0, 0, true, i % 2 == 1, i};
    Child child([&] { flip_and_attack(scene, none); });
    const int status = child.wait();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (progress().raised > 0) fail(__FILE__, __LINE__, progress().said);
  }
}

TEST(a_flipped_byte_makes_an_error_or_a_wrong_answer_and_never_a_crash_or_a_hang) {
  Scene scene;
  const uint64_t base = seed(), n = number_from("SHMREPLAY_FLIPS", kSanitized ? 150 : 2000);
  const uint64_t only = number_from("SHMREPLAY_FLIP", UINT64_MAX);
  const std::vector<Region> regions = regions_of(*scene.world.daemon);
  std::vector<std::string> failures;
  uint64_t raised = 0, tried = 0;
  for (uint64_t k = only == UINT64_MAX ? 0 : only; k < n && failures.size() < 10; ++k) {
    alarm(2 * kChildSeconds);  // of this flip, not of them all
    scene.restore(false);
    const Flip flip = choose(*scene.world.daemon, regions, base + k * 0x9e3779b97f4a7c15);
    scene.restore(flip.dead);
    Child child([&] { flip_and_attack(scene, flip); });
    const int status = child.wait();
    ++tried;
    raised += progress().raised > 0 ? 1 : 0;
    if (WIFSIGNALED(status)) failures.push_back(describe(flip, k) + ": killed by signal " + shown(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0) failures.push_back(describe(flip, k) + ": ended with " + shown(WEXITSTATUS(status)));
    if (only != UINT64_MAX) break;
  }
  scene.restore(false);
  check_healthy(*scene.world.daemon);
  printf("%llu flips, %llu raised; ", static_cast<unsigned long long>(tried), static_cast<unsigned long long>(raised));
  for (const std::string& failure : failures) printf("\n    %s", failure.c_str());
  CHECK(failures.empty());
}

}  // namespace shmreplay::test
