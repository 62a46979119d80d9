// _core.Arena: a mapped arena as the daemon and the clients' Python see it.
#pragma once

#include <memory>

#include "arena/arena.h"
#include "arena/robust_lock.h"
#include "chunks/leases.h"
#include "items/check.h"
#include "items/rebuild.h"
#include "items/table_calls.h"
#include "patience.h"
#include "sessions/session_damage.h"
#include "sessions/session_reports.h"
#include "sessions/sessions.h"
#include "status_error.h"

namespace shmreplay {

class NativeArena {
 public:
  NativeArena(int index_fd, int data_fd, int64_t session, uint32_t generation, bool published)
      : arena_(std::make_shared<Arena>(index_fd, data_fd, session < 0 ? kNone : static_cast<uint32_t>(session),
                                       generation, published)) {}

  const std::shared_ptr<Arena>& shared() const {
    if (arena_ == nullptr) raise_error("ShmReplayError", "the arena is closed");
    return arena_;
  }
  Arena& get() const { return *shared(); }
  std::string where() const { return "arena '" + get().name() + "'"; }
  void close() { arena_.reset(); }

  // Runs core work that may wait, with the GIL released, and raises if its status is not kOk.
  template <class Work>
  void run(nb::handle timeout_s, Work work) const {
    Arena& arena = get();
    const std::shared_ptr<Arena> keep = arena_;
    GilPatience patience(nullptr);
    const Wait wait{deadline_of(timeout_s), &patience};
    Status status;
    {
      const GilRelease release;
      status = work(arena, wait);
    }
    raise_status(status, "arena '" + arena.name() + "'");
  }

  nb::tuple open_session(uint32_t pid, uint64_t start_time, nb::handle timeout_s) const {
    SessionInfo info{};
    run(timeout_s, [&](Arena& a, const Wait& w) { return shmreplay::open_session(a, pid, start_time, 0, w, info); });
    return nb::make_tuple(info.index, info.generation);
  }

  bool close_session(uint32_t index, uint32_t generation, nb::handle timeout_s) const {
    bool reaped = false;
    run(timeout_s, [&](Arena& a, const Wait& w) { return shmreplay::close_session(a, index, generation, w, reaped); });
    return reaped;
  }

  nb::list sessions() const {
    nb::list out;
    for (const SessionReport& s : session_reports(get())) {
      nb::dict d;
      d["session"] = s.session;
      d["generation"] = s.generation;
      d["pid"] = s.pid;
      d["start_time"] = s.start_time;
      d["inserts"] = s.inserts;
      d["samples"] = s.samples;
      d["updates"] = s.updates;
      d["writes"] = names_of(s.writes);
      d["reads"] = names_of(s.reads);
      d["open_streams"] = s.open_streams;
      d["pinned_chunks"] = s.pinned_chunks;
      out.append(d);
    }
    return out;
  }

  // The calls that wait: one entry for each sleeping call and table whose limiter does not admit it, and one for each
  // process with calls that wait for room.
  nb::list waits() const {
    nb::list out;
    for (const SleeperReport& s : sleeper_reports(get())) {
      nb::dict d;
      d["table"] = get().table(s.table).name;
      d["side"] = s.side == kInserts ? "insert" : "sample";
      d["wants_room"] = s.wants_room;
      d["pid"] = s.pid;
      d["session"] = s.session;
      d["began_ns"] = s.began_ns;
      d["since_s"] = s.since_s;
      out.append(d);
    }
    return out;
  }

  // Names of the tables that one session (uses_of) or any (uses) has inserted into, and of those it has sampled from.
  nb::tuple uses_of(uint32_t session, uint32_t generation) const {
    return tables_of(shmreplay::uses_of(get(), session, generation));
  }
  nb::tuple uses() const { return tables_of(uses_of_all(get())); }

  // Called before the session is given back: no call that touches rows begins any more. Answers whether the calls under
  // way ended in time.
  bool end_calls(double timeout_s) const {
    const std::shared_ptr<Arena> keep = shared();
    const GilRelease release;
    return keep->calls().end_all(now_ns() + static_cast<int64_t>(timeout_s * 1e9));
  }

  void drop(nb::handle timeout_s) const {
    run(timeout_s, [](Arena& a, const Wait& w) { return drop_tables(a, w); });
  }

  std::string damaged_session(nb::handle timeout_s) const {
    std::string damage;
    run(timeout_s, [&](Arena& a, const Wait& w) { return find_damaged_session(a, w, damage); });
    return damage;
  }

  nb::object lock_holder() const {
    const LockBlock& lock = get().lock();
    const LockOwner owner = RobustLock::owner(lock);
    if (owner.thread == 0) return nb::none();
    // Relaxed: a report. The holder signs a few instructions after it has taken the lock; then session is the last
    // one's.
    nb::dict d;
    d["session"] = lock.session.load(std::memory_order_relaxed);
    d["pid"] = owner.pid;
    d["thread"] = owner.thread;
    d["hold_seq"] = lock.hold_seq.load(std::memory_order_relaxed);
    return d;
  }

  // Whether this process has a read in flight or a view that is not released: a call of it may be waiting for that.
  bool names_chunks() const {
    const Arena& a = get();
    return a.session_index() != kNone && session_names_chunks(get(), a.session_index(), a.session_generation());
  }

  std::vector<std::string> check(nb::handle timeout_s) const {
    std::vector<std::string> faults;
    run(timeout_s, [&](Arena& a, const Wait& w) { return check_invariants(a, w, faults); });
    return faults;
  }

  void rebuild(nb::handle timeout_s) const {
    run(timeout_s, [](Arena& a, const Wait& w) { return shmreplay::rebuild(a, w); });
  }

  // How many streams are open, counted without the lock. It is for finding the least busy of several arenas.
  uint32_t open_streams() const {
    const Arena& a = get();
    uint32_t n = 0;
    for (uint32_t i = 0; i < a.geometry().max_streams; ++i) n += a.stream(i).owner.get().session != kNone ? 1 : 0;
    return n;
  }

  // Where the data segment is mapped, for a device that reads it. The segment begins with the chunks, one after the
  // other.
  uint64_t data_address() const { return reinterpret_cast<uint64_t>(get().data()); }
  uint64_t data_bytes() const { return get().data_bytes(); }
  uint64_t chunk_bytes() const { return get().geometry().chunk_bytes; }

  // The session of this mapping: a number that no other living process has. -1: the daemon's.
  int64_t session() const { return get().session_index() == kNone ? -1 : static_cast<int64_t>(get().session_index()); }

  nb::dict stats() const {
    const Arena& a = get();
    const ArenaState& s = a.state();
    nb::dict d;
    d["num_chunks"] = a.geometry().num_chunks;
    d["max_streams"] = a.geometry().max_streams;
    d["chunk_bytes"] = a.geometry().chunk_bytes;
    d["chunk_steps"] = a.geometry().chunk_steps;
    d["free_chunks"] = s.num_free.get();
    d["used_chunks"] = s.num_used.get();
    d["retired_chunks"] = s.num_retired.get();
    d["num_blocks"] = a.geometry().num_blocks;
    d["free_blocks"] = s.num_free_blocks.get();
    d["block_bytes"] = a.geometry().block_bytes;
    d["index_bytes"] = a.index_bytes();
    d["data_bytes"] = a.data_bytes();
    d["recoveries"] = a.lock().num_recoveries.load(std::memory_order_relaxed);
    d["holds"] = a.lock().hold_seq.load(std::memory_order_relaxed) / 2;
    d["num_sessions"] = live_sessions(a).size();
    d["lock_waits"] = a.lock().num_waits.load(std::memory_order_relaxed);
    d["lock_wait_s"] = static_cast<double>(a.lock().wait_ns.load(std::memory_order_relaxed)) * 1e-9;
    d["rebuilds"] = s.num_rebuilds.load(std::memory_order_relaxed);
    const LeasesReport leases = leases_report(a);
    d["pinned_chunks"] = leases.pinned_chunks;
    d["oldest_lease_s"] = leases.oldest_s < 0 ? nb::object(nb::none()) : nb::float_(leases.oldest_s);
    d["failed"] = a.failed();
    return d;
  }

 private:
  nb::tuple tables_of(UsesReport uses) const { return nb::make_tuple(names_of(uses.writes), names_of(uses.reads)); }

  nb::list names_of(uint64_t tables) const {
    nb::list names;
    for (uint32_t i = 0; i < get().num_tables(); ++i) {
      if (tables >> i & 1) names.append(get().table(i).name);
    }
    return names;
  }

  std::shared_ptr<Arena> arena_;
};

}  // namespace shmreplay
