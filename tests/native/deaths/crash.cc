#include "deaths/crash.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

#include "chunks/leases.h"
#include "chunks/save_lease.h"
#include "trees/sum_tree.h"

namespace shmreplay::test {
namespace {

// Checks that every live item can be read, that it shows its bytes if rows are serials, and that the roots of the trees
// are the sums of their leaves up to rounding.
void check_items(Arena& arena, bool rows_are_serials) {
  for (uint32_t i = 0; i < arena.num_tables(); ++i) {
    const TableFacts& t = arena.table(i);
    CHECK_EQ(t.record->limiter.inserts.get() - t.record->limiter.deletes.get(), live_items(t));
    const std::vector<int64_t> keys = live_keys(arena, t);
    CHECK_EQ(keys.size(), live_items(t));
    if (keys.empty() || (t.record->flags.get() & (kResetting | kDropped)) != 0)
      continue;  // a call would finish that first
    std::vector<uint32_t> found(keys.size());
    Batch batch(arena, static_cast<int64_t>(keys.size()));
    CHECK_EQ(SampleCall(arena).get(t, keys.data(), static_cast<uint32_t>(keys.size()), kNow, batch, found.data()).done,
             keys.size());
    if (rows_are_serials) batch.check_rows();
    for (const RoleLayout& role : t.roles) {
      if (role.kind != kPrioritized) continue;
      const SumTree tree(arena, role.sum);
      long double sum = 0;
      for (uint32_t slot = 0; slot < t.capacity; ++slot) sum += static_cast<long double>(tree.leaf(slot));
      CHECK_NEAR(tree.total(), static_cast<double>(sum), 1e-14 * static_cast<double>(sum));
    }
  }
}

// What a child tells its parent: the names of the points that it passed, as pointers to literals that both processes
// have.
struct Heard {
  int64_t count;
  const char* names[1 << 16];
};

Heard* heard() {
  static auto* shared = static_cast<Heard*>(
      mmap(nullptr, sizeof(Heard), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return shared;
}

void note(const char* name) {
  Heard* h = heard();
  if (h->count < (1 << 16)) h->names[h->count++] = name;
}

struct Totals {
  int operations = 0, kills = 0, kills_in_recovery = 0;
  std::set<std::string> points;
  std::map<std::string, std::map<std::string, int>> by_operation;  // deaths at each point
} totals;

bool is(const char* point, const char* name) { return strcmp(point, name) == 0; }

// If a clock had not ticked since the set-up, some runs would skip the points of writing it, and others would not.
void forget_times(Arena& arena) {
  for (uint32_t i = 0; i < arena.num_tables(); ++i) {
    poke(arena.table(i).record->last_insert_ns, 0);
    poke(arena.table(i).record->last_sample_ns, 0);
  }
}

// In instrumented builds a fork costs milliseconds: there only commits and some of the other points are run.
constexpr int64_t kLastPoints = 16;
bool is_skipped(const char* point, int64_t k) { return kSanitized && !is(point, "hold.committed") && k % 23 != 0; }

}  // namespace

CrashLab::CrashLab(const ArenaSpec& spec) : world(spec), child_(open_own_session(*world.daemon)) {}

bool CrashLab::perform(const Operation& operation, int64_t k) {
  heard()->count = 0;
  Child child([&] {
    const auto arena = world.segments.attach(child_.index, child_.generation);
    const std::function<void()> act = operation(*arena);
    forget_times(*arena);
    fault::listen(note);
    fault::arm(k);
    act();
    fault::arm(0);
    _exit(0);  // closes nothing that the set-up made
  });
  const bool killed = child.killed();
  for (int64_t i = 0; i < heard()->count; ++i) totals.points.insert(heard()->names[i]);
  return killed;
}

const char* CrashLab::last_point() { return heard()->count == 0 ? "none" : heard()->names[heard()->count - 1]; }

std::vector<const char*> CrashLab::points_of(const Operation& operation) {
  CHECK(!perform(operation, 0));
  return {heard()->names, heard()->names + heard()->count};
}

void CrashLab::recover() {
  Hold hold(*world.daemon);
  CHECK_EQ(hold.begin(kWhatever), Status::kOk);
}

const std::string& CrashLab::words() {
  Arena& a = *world.daemon;
  const Offsets& o = a.offsets();
  std::string& w = words_;
  w.assign(a.index() + o.state, o.end - o.state);
  const auto blank = [&](const void* at, size_t bytes) {
    std::memset(w.data() + (static_cast<const char*>(at) - a.index() - o.state), 0, bytes);
  };
  blank(&a.state().chunk_waiters, 4);
  blank(&a.state().chunk_futex, 4);
  blank(&a.state().num_rebuilds, 8);
  for (uint32_t i = 0; i < a.geometry().max_sessions; ++i) {
    SessionRecord& r = a.session(i);
    for (std::atomic<uint64_t>* counted : {&r.inserts, &r.samples, &r.updates, &r.writes, &r.reads}) blank(counted, 8);
    blank(&r.room_waits, 16);
  }
  for (uint32_t i = 0; i < a.geometry().num_sleep_slots; ++i) blank(&a.sleeper(i).since_ns, 8);
  blank(a.index() + o.calls, o.chunks - o.calls);
  for (uint32_t i = 0; i < a.num_tables(); ++i) {
    const TableRecord& r = *a.table(i).record;
    blank(&r.last_insert_ns, 8);
    blank(&r.last_sample_ns, 8);
    blank(&r.news, 8);
    for (const WaitSide& side : r.sides) {
      blank(&side.futex, 4);
      blank(&side.blocked_ns, 8);
    }
  }
  return w;
}

void CrashLab::save() {
  const Offsets& o = world.daemon->offsets();
  forget_times(*world.daemon);
  saved_.assign(world.daemon->index() + o.state, o.end - o.state);
  saved_data_.assign(world.daemon->data(), world.daemon->data_bytes());
}

// Restores the data as well: a child may write to chunks and blocks of items that it has evicted, and these items are
// live again.
void CrashLab::restore() {
  std::memcpy(world.daemon->index() + world.daemon->offsets().state, saved_.data(), saved_.size());
  std::memcpy(world.daemon->data(), saved_data_.data(), saved_data_.size());
}

void CrashLab::reap_child() {
  bool reaped = false;
  CHECK_EQ(close_session(*world.daemon, child_.index, child_.generation, kWhatever, reaped), Status::kOk);
}

// Checks that live items show their bytes. `all`: also that the arena is whole, and that what the dead process held
// comes back.
void CrashLab::check_after_death(const std::string& death, bool all) {
  try {
    if (all) check_healthy(*world.daemon);
    check_items(*world.daemon, rows_are_serials);
    if (!all) return;
    reap_child();
    CHECK(!session_names_chunks(*world.daemon, child_.index, child_.generation));
    CHECK(!is_being_saved(*world.daemon));
    check_healthy(*world.daemon);
  } catch (const CheckFailed& e) {
    throw CheckFailed(death + e.what());
  }
}

// The words that the set-up alone leaves.
std::string CrashLab::words_before(const Operation& operation) {
  CHECK(!perform([&](Arena& arena) { return operation(arena), [] {}; }, 0));
  std::string w = words();
  restore();
  return w;
}

void CrashLab::run(const char* name, Holds holds, const Operation& operation) {
  ++totals.operations;
  save();
  std::string expected = words_before(operation);
  const std::vector<const char*> points = points_of(operation);
  const std::string after = words();
  restore();
  int changes = 0;
  for (int64_t k = 1;; ++k) {
    // A clock that ticks between two holds adds or removes some points. So the last points, which show the end, are all
    // run.
    if (k + kLastPoints <= static_cast<int64_t>(points.size()) && is_skipped(points[static_cast<size_t>(k) - 1], k))
      continue;
    if (!perform(operation, k)) break;
    ++totals.kills;
    ++totals.by_operation[name][last_point()];
    const std::string death = std::string(name) + ", killed at its point " + shown(k) + ", " + last_point() + ": ";
    const bool may_change = is(last_point(), "hold.committed") || holds == Holds::kUnlogged || kSanitized;
    recover();
    const bool changed = words() != expected;
    if (changed) {
      if (!may_change) fail(__FILE__, __LINE__, death + "half a hold is left");
      if (holds != Holds::kMany && words_ != after)
        fail(__FILE__, __LINE__, death + "the words are neither those before nor those after");
      expected = words_;
      ++changes;
    }
    // Equal words are equally healthy. But what is left of leases and sessions differs from point to point, and rows
    // are not among the words.
    check_after_death(death, changed || k % 7 == 1);
    restore();
  }
  CHECK(expected == after);
  CHECK(holds == Holds::kMany || changes <= 1);
  restore();
}

bool CrashLab::die_in_recovery(const char* name, const Operation& operation, int64_t k, int64_t j,
                               const std::string& expected) {
  static const Operation next_locker = [](Arena& arena) -> std::function<void()> {
    return [&arena] {
      Hold hold(arena);
      CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    };
  };
  CHECK(perform(operation, k));
  // One process dies in its recovery; the next one dies too, further on.
  const bool died = perform(next_locker, j);
  if (died) perform(next_locker, j + 1);
  ++totals.kills_in_recovery;
  recover();
  if (words() != expected)
    fail(__FILE__, __LINE__,
         std::string(name) + ": a recovery that died at its point " + shown(j) + " was not repeated");
  check_healthy(*world.daemon);
  restore();
  return died;
}

void CrashLab::run_with_deaths_in_recovery(const char* name, const Operation& operation) {
  save();
  const std::string before = words_before(operation);
  const std::vector<const char*> points = points_of(operation);
  restore();
  for (int64_t k = 1; k <= static_cast<int64_t>(points.size()); ++k) {
    const char* point = points[static_cast<size_t>(k) - 1];
    const bool chosen =
        is(point, "hold.committing") || (is(point, "hold.word_written") && k % (kSanitized ? 97 : 13) == 0);
    if (!chosen) continue;
    for (int64_t j = 1; die_in_recovery(name, operation, k, j, before); j += kSanitized ? 5 : 1) {}
  }
}

void CrashLab::run_with_deaths_in_rebuild(const char* name, const Operation& operation) {
  save();
  const auto num_points = static_cast<int64_t>(points_of(operation).size());
  const std::string after = words();
  restore();
  for (const int64_t k : {num_points / 3, num_points / 2, num_points - 10}) {
    for (int64_t j = 1; die_in_recovery(name, operation, k, j, after); j += kSanitized ? 151 : 17) {}
  }
}

void CrashLab::print_totals() {
  printf("\n    %d operations, %d deaths at %zu named points, %d in recovery; ", totals.operations, totals.kills,
         totals.points.size(), totals.kills_in_recovery);
  for (const std::string& point : totals.points) printf("%s ", point.c_str());
  if (getenv("SHMREPLAY_KILL_TABLE") == nullptr) return;
  printf("\n");
  for (const auto& [operation, points] : totals.by_operation) {
    printf("    %s:", operation.c_str());
    for (const auto& [point, deaths] : points) printf(" %s %d", point.c_str(), deaths);
    printf("\n");
  }
}

}  // namespace shmreplay::test
