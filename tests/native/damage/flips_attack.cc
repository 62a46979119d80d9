#include "damage/flips_attack.h"
#include "arena/admission.h"
#include "chunks/block_pool.h"

#include <algorithm>
#include <cstdio>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/checkpoint_fixture.h"
#include "chunks/chunk_pool.h"
#include "chunks/streams.h"
#include "items/check.h"
#include "items/data_update.h"
#include "items/rebuild.h"
#include "trees/reweigh.h"

namespace shmreplay::test {
namespace {

constexpr int kOperations = 46, kKinds = 23;  // each kind twice, some in two ways
constexpr uint32_t kMutable = 4;              // the column

// Refuses a batch that is too large for the memory, as a caller would.
class BoundedBatch final : public BatchSink {
 public:
  BoundedBatch(const Arena& arena, size_t n) : arena_(arena), batch_(arena, static_cast<int64_t>(n)), n_(n) {}
  bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
    for (size_t o = 0; o < structure.outputs.size(); ++o) {
      const ColumnRecord& column = arena_.columns()[structure.outputs[o].column];
      if (rows[o] > 4096 || uint64_t{std::max(column.row_bytes, column.packed_bytes)} * rows[o] * n_ > kMaxBatchBytes)
        return false;
    }
    return batch_.prepare(structure, rows, done);
  }
  std::vector<OutputBuffer>& outputs() noexcept override { return batch_.outputs(); }
  void describe(int64_t first, const Pick* picks, uint32_t n) noexcept override { batch_.describe(first, picks, n); }
  ItemValues* item_values() noexcept override { return batch_.item_values(); }

 private:
  static constexpr uint64_t kMaxBatchBytes = 64 << 20;
  const Arena& arena_;
  Batch batch_;
  size_t n_;
};

void note(const std::exception& e) {
  ++progress().raised;
  snprintf(progress().said, sizeof progress().said, "%s: %s", progress().operation, e.what());
}

// false: a limiter, a lack of room or a failed segment stopped it.
bool write_next(StreamWriter& writer, Arena& arena, uint64_t serial) {
  if (secure_row(writer, arena, serial, kNow) != Status::kOk) return false;
  write_row(writer, arena, serial);
  return true;
}

}  // namespace

Progress& progress() {
  static auto* shared = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}

Attack::Attack(Scene& scene, Arena& arena)
    : scene_(scene), arena_(arena), early_(arena, arena.table(0), 6), reader_(arena) {
  attempt("open a writer early", [&] {
    if (early_.open(kNow) == Status::kOk) append(early_, 5);
  });
}

void Attack::run(uint64_t seed) {
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

template <class Body>
void Attack::attempt(const char* name, Body body) {
  snprintf(progress().operation, sizeof progress().operation, "%s", name);
  try {
    body();
  } catch (const CorruptIndex& e) {
    note(e);
  } catch (const AttachError& e) {
    note(e);
  } catch (const RestoreError& e) {
    note(e);
  }
}

void Attack::append(StreamWriter& writer, int steps) {
  for (int i = 0; i < steps; ++i) {
    if (writer.ensure_row(kNow) != Status::kOk) return;
    if (!writer.row().is_open() && !write_next(writer, arena_, serial_)) return;
    ++serial_;
    writer.finish_row();
  }
}

// Inserts one-step items and what they bring. The last row stays open until the stream is closed.
void Attack::insert(uint32_t t) {
  StreamWriter writer(arena_, arena_.table(t), 0);
  PreparedPattern step(t == 1 || t == 4 ? one_step_pattern(arena_) : whole_pattern(arena_));
  if (writer.open(kNow) != Status::kOk) return;
  for (int i = 0; i < 6; ++i) {
    if (writer.ensure_row(kNow) != Status::kOk) return;
    if (!writer.row().is_open() && !write_next(writer, arena_, serial_)) return;
    const std::string brought = item_value(serial_++);
    if (writer.secure_blocks(blocks_of(arena_, brought.size()), kNow) != Status::kOk) return;
    const BlockRef values = writer.row().write_item_value(brought.data(), static_cast<uint32_t>(brought.size()));
    int64_t key = 0;
    uint32_t done = 0;
    const double priority = i - 1.0;
    if (writer.items().insert_rows(arena_.table(t), step, &priority, 1, kNow, &key, done, {false, true, &values}) !=
        Status::kOk)
      return;
  }
  writer.close(kNow);
}

void Attack::create(uint32_t t) {
  StreamWriter writer(arena_, arena_.table(t), 12);
  PreparedPattern span(whole_pattern(arena_)), uneven(uneven_pattern(arena_));
  if (writer.open(kNow) != Status::kOk) return;
  for (uint32_t length = 1; length < 12; ++length) {
    append(writer, 2);
    const uint32_t steps = std::min(length, writer.history().num_steps());
    if (steps == 0) return;
    const std::string brought = item_value(serial_);
    BlockRef values = kNoValue;
    if (writer.items().bring_values(first_of(writer, steps), brought.data(), brought.size(), kNow, values) !=
        Status::kOk)
      return;
    int64_t key = 0;
    const Status s =
        create_item(writer, arena_.table(t), length % 2 == 0 ? span : uneven, steps, length, kNow, key, values);
    writer.items().end_values(s == Status::kOk);
  }
  append(writer, 70);  // until the oldest items have to make room
  if (writer.ensure_row(kNow) == Status::kOk && !writer.row().is_open())
    writer.row().mark(0);  // a final step of one column
  writer.end_episode(true);
  writer.close(kNow);
}

void Attack::insert_what_is_due() {
  append(early_, 3);
  PreparedPattern span(whole_pattern(arena_)), uneven(uneven_pattern(arena_));
  DueItem due[] = {{0, &span, early_.history().oldest_held(), 1, {0, 0}, 2},
                   {2, &uneven, early_.history().oldest_held(), 1, {2, 1}, -1}};
  if (early_.history().num_steps() == 0) return;
  int64_t keys[2];
  uint32_t done = 0;
  insert_due(early_, due, 2, kNow, keys, done);
}

void Attack::sample(uint32_t t, uint32_t n, bool count) {
  BoundedBatch batch(arena_, n);
  std::vector<double> uniforms(n);
  for (double& u : uniforms) u = random_.uniform();
  reader_.sample(arena_.table(t), {n, 1, count, uniforms.data()}, kNow, batch);
}

// Draws each item once, and draws views.
void Attack::sample_otherwise(uint32_t t) {
  const uint32_t n = 12;
  std::vector<double> uniforms(n);
  for (double& u : uniforms) u = random_.uniform();
  BoundedBatch batch(arena_, n);
  SampleOptions options{n, 1, false, uniforms.data()};
  options.distinct = true;
  reader_.sample(arena_.table(t), options, kNow, batch);
  class Ignores final : public ViewSink {
   public:
    bool take(const DrawnItems&, bool) noexcept override { return true; }
  } sink;
  SampleCall call(arena_);
  call.view(arena_.table(t), {n, n, true, uniforms.data()}, kNow, sink);
  call.drop();
}

void Attack::get(uint32_t t) {
  BoundedBatch batch(arena_, scene_.keys[t].size());
  std::vector<uint32_t> found(scene_.keys[t].size());
  reader_.get(arena_.table(t), scene_.keys[t].data(), static_cast<uint32_t>(found.size()), kNow, batch, found.data());
}

void Attack::update(uint32_t t) {
  std::vector<double> priorities;
  for (size_t i = 0; i < scene_.keys[t].size(); ++i) priorities.push_back(static_cast<double>(i % 5));
  uint32_t n = 0;
  update_priorities(arena_, arena_.table(t), scene_.keys[t].data(), priorities.data(),
                    static_cast<uint32_t>(priorities.size()), kNow, n);
}

void Attack::update_cells(uint32_t t) {
  const std::vector<int64_t>& keys = scene_.keys[t];
  const std::vector<char> cells(keys.size() * 3 * 13, '\x7');
  uint32_t n = 0;
  update_data(arena_, arena_.table(t), keys.data(), static_cast<uint32_t>(keys.size()), {{kMutable, cells.data()}}, 0,
              3, kNow, n);
}

void Attack::remove(uint32_t t) {
  const std::vector<int64_t> keys = live_keys(arena_, arena_.table(t));
  CHECK(keys.size() <= arena_.table(t).capacity);
  uint32_t n = 0;
  delete_items(arena_, arena_.table(t), keys.data(), static_cast<uint32_t>(std::min<size_t>(keys.size(), 4)), kNow, n);
}

void Attack::take_heap_blocks() {
  Hold hold(arena_);
  if (hold.begin(kNow) != Status::kOk) return;
  uint32_t blocks[3];
  take_blocks(hold, arena_.state().used_chunks.get().head, 3, blocks);
}

// Reads the steps that a writer's history shows.
void Attack::read_own_steps() {
  for (uint64_t step = early_.history().oldest_held(); step < early_.history().newest(); ++step) {
    for (uint32_t c = 0; c < arena_.columns().size(); ++c) {
      if (arena_.columns()[c].flags == kHeapColumn) {
        const BlockRef ref = early_.history().value(step, c);
        std::string value(static_cast<size_t>(std::max<int64_t>(size_of_value(arena_, ref), 0)), 0);
        if (!value.empty()) early_.history().read_value(step, ref, value.data());
      }
    }
    char cell[16];
    early_.history().read_mutable(step, kMutable, cell);
  }
}

void Attack::wait_for_the_limiter(uint32_t t) {
  Blocked blocked(arena_, arena_.table(t), kSamples, kNow);
  Hold hold(arena_);
  if (hold.begin(kNow) != Status::kOk) return;
  blocked.join(hold);
  hold.end();
  blocked.sleep();
}

void Attack::sessions() {
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

void Attack::read_without_the_lock(uint32_t t) {
  const LimiterReport r = report(*arena_.table(t).record);
  CHECK(r.difference() == r.difference() || true);
  can_sample_now(arena_, arena_.table(t), 3);
  can_insert(*arena_.table(t).record, 1);
  largest_burst(*arena_.table(t).record);
  inspect_header(scene_.world.segments.index_fd);
}

void Attack::walk_everything() {
  std::vector<std::string> faults;
  check_invariants(arena_, kNow, faults);
  CHECK(faults.size() < 100'000);
}

// What can be saved can be read: it is restored, or refused with the reason.
void Attack::save_and_restore() {
  SavedArena saved;
  {
    CheckpointSave save(arena_);
    bool busy = false;
    if (save.take(arena_.session_index(), arena_.session_generation(), kNow, busy) != Status::kOk || busy) return;
    if (!save_rest(save, 1 << 16, kNow, saved)) return;
  }
  RestoredWorld restored(scene_spec(), saved);
  check_healthy(*restored.daemon);
}

void Attack::perform(int operation, uint32_t t) {
  switch (operation % kKinds) {
    case 0:
    case 1:
    case 2: return attempt("insert", [&] { insert(t); });
    case 3:
    case 4: return attempt("create", [&] { create(t); });
    case 5: return attempt("insert what is due", [&] { insert_what_is_due(); });
    case 6:
    case 7: return attempt("sample", [&] { sample(t, 20, true); });
    case 8: return attempt("look", [&] { sample(t, 40, false); });
    case 9:
      if (operation >= kKinds) return attempt("sample each once, view", [&] { sample_otherwise(t); });
      return attempt("get", [&] { get(t); });
    case 10: return attempt("update", [&] { update(t); });
    case 11: return attempt("delete", [&] { remove(t); });
    case 12:
      return attempt("reclaim", [&] {
        uint32_t n = 0;
        reclaim(arena_, kNow, n);
      });
    case 13: return attempt("take blocks", [&] { take_heap_blocks(); });
    case 14: return attempt("wait", [&] { wait_for_the_limiter(t); });
    case 15: return attempt("sessions", [&] { sessions(); });
    case 16: return attempt("read without the lock", [&] { read_without_the_lock(t); });
    case 17: return attempt("check", [&] { walk_everything(); });
    case 18:
      if (operation >= kKinds && arena_.table(t).prioritized()) {
        return attempt("change the exponent", [&] { set_priority_exponent(arena_, arena_.table(t), 0.7, kNow); });
      }
      return attempt("change the limiter",
                     [&] { change_limiter(arena_, arena_.table(t), {1, -10, 1000, 1, false}, true, kNow); });
    case 19:
      if (operation >= kKinds) return attempt("reset", [&] { reset_table(arena_, arena_.table(t), kNow); });
      return attempt("attach again", [&] { scene_.world.segments.attach(); });
    case 20:
      if (operation >= kKinds) return attempt("read own steps", [&] { read_own_steps(); });
      return attempt("update cells", [&] { update_cells(t); });
    case 21: return attempt("save and restore", [&] { save_and_restore(); });
    default:
      if (operation >= kKinds) return attempt("rebuild", [&] { rebuild(arena_, kNow); });
      return attempt("reap the dead", [&] {
        uint32_t n = 0;
        reap_dead_sessions(arena_, kNow, n);
      });
  }
}

}  // namespace shmreplay::test
