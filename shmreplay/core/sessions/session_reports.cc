#include "sessions/session_reports.h"

#include <algorithm>

#include "base/futex.h"
#include "sessions/sessions.h"

namespace shmreplay {
namespace {

double seconds_since(uint64_t ns) noexcept {
  return std::max(0.0, static_cast<double>(now_ns() - static_cast<int64_t>(ns)) * 1e-9);
}

uint32_t num_distinct(std::vector<uint32_t>& chunks) {
  std::sort(chunks.begin(), chunks.end());
  return static_cast<uint32_t>(std::unique(chunks.begin(), chunks.end()) - chunks.begin());
}

// Visits the slots of reads in flight: visit(owner, slot, number of names).
template <class Visit>
void each_lease(const Arena& arena, Visit visit) {
  for (uint32_t i = 0; i < arena.geometry().num_call_slots; ++i) {
    const CallSlot& slot = arena.call(i);
    const CallOwner owner = slot.owner.load(std::memory_order_acquire);  // SYNC POINT with Lease::take
    const uint32_t count = std::min(slot.count.load(std::memory_order_acquire), kMaxNames);
    if (owner.session_plus_1 != 0 && count > 0) visit(owner, slot, count);
  }
}

void add_names(const CallSlot& slot, uint32_t count, std::vector<uint32_t>& chunks) {
  for (uint32_t k = 0; k < count; ++k)
    chunks.push_back(slot.names[k].load(std::memory_order_relaxed));  // relaxed: covered by the count
}

}  // namespace

std::vector<SessionReport> session_reports(const Arena& arena) {
  const uint32_t n = arena.geometry().max_sessions;
  std::vector<uint32_t> open_streams(n, 0);
  for (uint32_t i = 0; i < arena.geometry().max_streams; ++i) {
    const StreamOwner owner = arena.stream(i).owner.get();
    if (owner.session < n) ++open_streams[owner.session];
  }
  std::vector<std::vector<uint32_t>> pinned(n);
  each_lease(arena, [&](CallOwner owner, const CallSlot& slot, uint32_t count) {
    const uint32_t session = owner.session_plus_1 - 1;
    if (session < n && arena.session(session).state.get().generation == owner.generation)
      add_names(slot, count, pinned[session]);
  });
  std::vector<SessionReport> reports;
  for (const SessionInfo& s : live_sessions(arena)) {
    const SessionRecord& r = arena.session(s.index);
    // Relaxed: see session_counts.h.
    const auto read = [](const std::atomic<uint64_t>& word) { return word.load(std::memory_order_relaxed); };
    reports.push_back({s.index, s.generation, s.pid, s.start_time, read(r.inserts), read(r.samples), read(r.updates),
                       read(r.writes), read(r.reads), open_streams[s.index], num_distinct(pinned[s.index])});
  }
  return reports;
}

std::vector<SleeperReport> sleeper_reports(const Arena& arena) {
  std::vector<SleeperReport> reports;
  for (uint32_t i = 0; i < arena.geometry().num_sleep_slots; ++i) {
    const SleepSlot& slot = arena.sleeper(i);
    const SleeperOwner owner = slot.owner.get();
    // The daemon has no session, and waits for no limiter.
    if (owner.session >= arena.geometry().max_sessions || owner.where >> 1 >= arena.num_tables()) continue;
    const uint64_t since = slot.since_ns.load(std::memory_order_relaxed);
    reports.push_back({owner.where >> 1, owner.where & 1, false, owner.session,
                       arena.session(owner.session).process.get().pid, since, seconds_since(since)});
  }
  for (const SessionInfo& s : live_sessions(arena)) {
    const SessionRecord& r = arena.session(s.index);
    const uint32_t table = r.room_table.load(std::memory_order_relaxed);  // relaxed: see room_wait.h
    if (r.room_waits.load(std::memory_order_relaxed) == 0 || table >= arena.num_tables()) continue;
    const uint64_t since = r.room_since_ns.load(std::memory_order_relaxed);
    reports.push_back({table, kInserts, true, s.index, s.pid, since, seconds_since(since)});
  }
  return reports;
}

LeasesReport leases_report(const Arena& arena) {
  std::vector<uint32_t> chunks;
  double oldest_s = -1;
  each_lease(arena, [&](CallOwner, const CallSlot& slot, uint32_t count) {
    add_names(slot, count, chunks);
    oldest_s = std::max(oldest_s, seconds_since(slot.since_ns.load(std::memory_order_relaxed)));
  });
  return {num_distinct(chunks), oldest_s};
}

UsesReport uses_of(const Arena& arena, uint32_t session, uint32_t generation) {
  if (session >= arena.geometry().max_sessions) return {0, 0};
  const SessionRecord& r = arena.session(session);
  const StateGeneration state = r.state.get();
  if (state.state == kSessionFree || state.generation != generation) return {0, 0};
  return {r.writes.load(std::memory_order_relaxed), r.reads.load(std::memory_order_relaxed)};  // relaxed: see
                                                                                               // session_counts.h
}

UsesReport uses_of_all(const Arena& arena) {
  UsesReport all{0, 0};
  for (const SessionInfo& s : live_sessions(arena)) {
    const UsesReport one = uses_of(arena, s.index, s.generation);
    all = {all.writes | one.writes, all.reads | one.reads};
  }
  return all;
}

}  // namespace shmreplay
