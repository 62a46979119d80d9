// What a session has done since it attached, counted by its own holds for reports (session_reports.h).
//
// A session may have several threads. All of them count under the lock, so a load and a store are enough. A roll-back
// does not undo the counts: they end with the session of the process that died.
#pragma once

#include "arena/hold.h"
#include "base/report_word.h"

namespace shmreplay {

// Relaxed: see add_relaxed.
inline void set_bits(std::atomic<uint64_t>& word, uint64_t bits) noexcept {
  const uint64_t old = word.load(std::memory_order_relaxed);
  if ((old | bits) != old) word.store(old | bits, std::memory_order_relaxed);
}

// The record of the session whose hold it is; nullptr for the daemon's.
inline SessionRecord* own_record(const Hold& hold) {
  const Arena& a = hold.arena();
  return a.session_index() == kNone ? nullptr : &a.session(a.session_index());
}

// Counts `items` that went into tables; `tables` has one bit for each of these tables.
inline void count_own_inserts(Hold& hold, uint64_t tables, uint64_t items) {
  SessionRecord* r = own_record(hold);
  if (r == nullptr) return;
  add_relaxed(r->inserts, items);
  set_bits(r->writes, tables);
}

// Counts samples of a table that its limiter counted.
inline void count_own_samples(Hold& hold, uint32_t table, uint64_t samples) {
  SessionRecord* r = own_record(hold);
  if (r == nullptr) return;
  add_relaxed(r->samples, samples);
  set_bits(r->reads, uint64_t{1} << table);
}

// Counts changed priorities.
inline void count_own_updates(Hold& hold, uint64_t items) {
  if (SessionRecord* r = own_record(hold); r != nullptr) add_relaxed(r->updates, items);
}

// Called in the hold that opens the session.
inline void clear_counts(SessionRecord& r) noexcept {
  for (std::atomic<uint64_t>* word : {&r.inserts, &r.samples, &r.updates, &r.writes, &r.reads}) {
    word->store(0, std::memory_order_relaxed);
  }
  r.room_waits.store(0, std::memory_order_relaxed);
}

}  // namespace shmreplay
