#include "crash.h"

#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "leases.h"
#include "rebuild.h"

namespace shmreplay::test {
namespace {

// What a child tells its parent: the names of the points it passed, as pointers to literals that both have.
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
} totals;

bool is(const char* point, const char* name) { return strcmp(point, name) == 0; }

// Where every instruction is instrumented a fork costs milliseconds: commits, and some of the other points.
bool is_skipped(const char* point, int64_t k) { return kSanitized && !is(point, "hold.committed") && k % 23 != 0; }

}  // namespace

CrashLab::CrashLab(const ArenaSpec& spec) : world(spec), child_(open_own_session(*world.daemon)) {}

bool CrashLab::perform(const Operation& operation, int64_t k) {
  Child child([&] {
    const auto arena = world.segments.attach(child_.index, child_.generation);
    const std::function<void()> act = operation(*arena);
    fault::arm(k);
    act();
    fault::arm(0);
    _exit(0);  // nothing that the set-up made is closed
  });
  return child.killed();
}

void CrashLab::listen_to(const Operation& operation) {
  heard()->count = 0;
  const Operation listening = [&](Arena& arena) -> std::function<void()> {
    const std::function<void()> act = operation(arena);
    return [act] {
      fault::listen(note);
      act();
      fault::listen(nullptr);
    };
  };
  CHECK(!perform(listening, 0));
  points_.assign(heard()->names, heard()->names + heard()->count);
  for (const char* point : points_) totals.points.insert(point);
}

void CrashLab::recover() {
  Hold hold(*world.daemon);
  CHECK_EQ(hold.begin(kWhatever), Status::kOk);
}

std::string CrashLab::words() {
  Arena& a = *world.daemon;
  const Offsets& o = a.offsets();
  std::string w(a.index() + o.state, o.end - o.state);
  const auto blank = [&](const void* at, size_t bytes) {
    std::memset(w.data() + (static_cast<const char*>(at) - a.index() - o.state), 0, bytes);
  };
  blank(&a.state().chunk_waiters, 4);
  blank(&a.state().chunk_futex, 4);
  blank(a.index() + o.calls, o.chunks - o.calls);
  for (uint32_t i = 0; i < a.num_tables(); ++i) {
    const TableRecord& r = *a.table(i).record;
    blank(&r.last_insert_ns, 8);
    blank(&r.last_sample_ns, 8);
    for (const WaitSide& side : r.sides) {
      blank(&side.futex, 4);
      blank(&side.blocked_ns, 8);
    }
  }
  return w;
}

void CrashLab::save() {
  const Offsets& o = world.daemon->offsets();
  saved_.assign(world.daemon->index() + o.state, o.end - o.state);
}

void CrashLab::restore() { std::memcpy(world.daemon->index() + world.daemon->offsets().state, saved_.data(), saved_.size()); }

// The arena is whole, and what the dead process held comes back.
void CrashLab::check_after_death(int64_t k) {
  try {
    check_healthy(*world.daemon);
    bool reaped = false;
    CHECK_EQ(close_session(*world.daemon, child_.index, child_.generation, kWhatever, reaped), Status::kOk);
    CHECK(!session_names_chunks(*world.daemon, child_.index, child_.generation));
    check_healthy(*world.daemon);
  } catch (const CheckFailed& e) {
    throw CheckFailed("after death " + shown(k) + " at " + points_[static_cast<size_t>(k) - 1] + ": " + e.what());
  }
}

void CrashLab::run(const char* name, Holds holds, const Operation& operation) {
  ++totals.operations;
  save();
  perform([&](Arena& arena) { return operation(arena), [] {}; }, 0);
  std::string expected = words();  // the set-up is done, nothing of the operation
  restore();
  listen_to(operation);
  const std::string after = words();
  restore();
  int commits = 0;
  for (int64_t k = 1; k <= static_cast<int64_t>(points_.size()); ++k) {
    const char* point = points_[static_cast<size_t>(k) - 1];
    if (is_skipped(point, k)) continue;
    if (!perform(operation, k)) fail(__FILE__, __LINE__, std::string(name) + " passed fewer points than before");
    ++totals.kills;
    recover();
    std::string have = words();
    if (have != expected) {
      const bool may_change = is(point, "hold.committed") || holds == Holds::kUnlogged;
      if (!may_change) fail(__FILE__, __LINE__, std::string(name) + ": a death at " + point + " (" + shown(k) + ") left half a hold");
      if (holds != Holds::kMany && have != after) fail(__FILE__, __LINE__, std::string(name) + ": neither before nor after");
      expected.swap(have);
      ++commits;
    }
    check_after_death(k);
    restore();
  }
  CHECK(!perform(operation, static_cast<int64_t>(points_.size()) + 1));
  CHECK(expected == after);
  CHECK(holds == Holds::kMany || commits <= 1);
  restore();
}

void CrashLab::run_with_deaths_in_recovery(const char* name, const Operation& operation) {
  save();
  perform([&](Arena& arena) { return operation(arena), [] {}; }, 0);
  const std::string before = words();
  restore();
  listen_to(operation);
  restore();
  const Operation next_locker = [](Arena& arena) -> std::function<void()> {
    return [&arena] {
      Hold hold(arena);
      CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    };
  };
  for (int64_t k = 1; k <= static_cast<int64_t>(points_.size()); ++k) {
    const char* point = points_[static_cast<size_t>(k) - 1];
    const bool chosen = is(point, "hold.committing") || (is(point, "hold.word_written") && k % (kSanitized ? 97 : 13) == 0);
    if (!chosen) continue;
    for (int64_t j = 1;; j += kSanitized ? 5 : 1) {
      CHECK(perform(operation, k));
      // One dies in its roll-back, and so does the next, further on.
      const bool died = perform(next_locker, j);
      if (died) perform(next_locker, j + 1);
      ++totals.kills_in_recovery;
      recover();
      if (words() != before) fail(__FILE__, __LINE__, std::string(name) + ": a roll-back that died at its point " + shown(j) + " was not repeated");
      check_healthy(*world.daemon);
      restore();
      if (!died) break;
    }
  }
}

void CrashLab::print_totals() {
  printf("\n    %d operations, %d deaths at %zu named points, %d in recovery; ", totals.operations, totals.kills, totals.points.size(),
         totals.kills_in_recovery);
  for (const std::string& point : totals.points) printf("%s ", point.c_str());
}

}  // namespace shmreplay::test
