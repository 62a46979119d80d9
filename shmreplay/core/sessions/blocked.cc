#include "sessions/blocked.h"

#include <algorithm>

#include "arena/admission.h"
#include "base/futex.h"
#include "base/sleep_slice.h"

namespace shmreplay {
namespace {
constexpr int64_t kUncountedSliceNs = 10'000'000;  // a call that is not counted is not woken
constexpr int64_t kLeaveTimeoutNs = 5 * kSliceNs;
}  // namespace

Blocked::~Blocked() {
  if (!counted_) return;
  // A call that gives up. If it does not get the lock it stays counted until its session ends; that costs only a
  // needless wake now and then.
  Hold hold(arena_);
  if (hold.begin({now_ns() + kLeaveTimeoutNs, nullptr}) == Status::kOk) leave(hold);
}

void Blocked::join(Hold& hold) {
  ArenaState& s = arena_.state();
  WaitSide& side = table_.record->sides[side_];
  // SYNC POINT with Hold::collect_wakes: read under the lock, before sleeping.
  seen_ = side.futex.load(std::memory_order_seq_cst);
  since_ns_ = now_ns();
  if (started_ns_ == 0) {
    started_ns_ = since_ns_;
    hold.add(side.blocked_calls, 1);
  }
  waiting_ = true;
  if (!asks_limiter_) return;
  slot_ = s.free_sleepers.get();
  if (slot_ == kNone) return;
  SleepSlot& slot = arena_.sleeper(slot_);
  hold.set(s.free_sleepers, slot.next_free.get());
  // Relaxed: written under the lock. A report reads the owner first, so it may show the slot's call before this one.
  slot.since_ns.store(static_cast<uint64_t>(started_ns_), std::memory_order_relaxed);
  hold.set(slot.owner, {arena_.session_index(), table_.index << 1 | side_});
  hold.add(side.sleepers, 1);
  counted_ = true;
}

void Blocked::leave(Hold& hold) {
  waiting_ = false;
  if (!counted_) return;
  counted_ = false;
  WaitSide& side = table_.record->sides[side_];
  SleepSlot& slot = arena_.sleeper(slot_);
  hold.set(slot.owner, {kNone, 0});
  hold.set(slot.next_free, arena_.state().free_sleepers.get());
  hold.set(arena_.state().free_sleepers, slot_);
  hold.add(side.sleepers, -1);
  hold.set(side.blocked_ns, side.blocked_ns.get() + static_cast<uint64_t>(now_ns() - since_ns_));
  hold.touch(table_.index);
}

bool Blocked::worth_a_look() const noexcept {
  if (asks_limiter_) return !counted_ || can_go_on(*table_.record, side_);
  return table_.record->size.get() > 0 || (table_.record->flags.get() & (kDropped | kResetting)) != 0;
}

Status Blocked::sleep() {
  WaitSide& side = table_.record->sides[side_];
  const int64_t slice = counted_ ? kSliceNs : kUncountedSliceNs;
  for (;;) {
    const Status s = sleep_slice(side.futex, seen_, slice, started_ns_, wait_);
    if (s != Status::kOk) return s;
    if (side.futex.load(std::memory_order_seq_cst) != seen_ || worth_a_look()) return Status::kOk;
  }
}

Status Blocked::sleep_any(Blocked* const* all, uint32_t n) {
  FutexWord words[kMaxShards];
  int64_t slice = kSliceNs;
  for (uint32_t i = 0; i < n; ++i) {
    words[i] = {&all[i]->table_.record->sides[all[i]->side_].futex, all[i]->seen_};
    if (!all[i]->counted_) slice = kUncountedSliceNs;
  }
  for (;;) {
    if (const Status s = sleep_slice(words, n, slice, all[0]->started_ns_, all[0]->wait_); s != Status::kOk) return s;
    for (uint32_t i = 0; i < n; ++i) {
      if (words[i].word->load(std::memory_order_seq_cst) != words[i].seen || all[i]->worth_a_look()) return Status::kOk;
    }
  }
}

void wake_sleepers(Arena& arena, const TableFacts& table) noexcept {
  for (WaitSide& side : table.record->sides) futex_bump(side.futex);
  futex_bump(table.record->news.futex);
  futex_bump(arena.state().chunk_futex);
}

bool remove_sleepers_of(Hold& hold, uint32_t session, uint32_t& cursor, uint32_t slice) {
  Arena& a = hold.arena();
  const uint32_t n = a.geometry().num_sleep_slots;
  for (; cursor < n; ++cursor) {
    if (slice == 0) return false;
    SleepSlot& slot = a.sleeper(cursor);
    const SleeperOwner owner = slot.owner.get();
    if (owner.session != session) continue;
    const TableFacts& t = a.table(owner.where >> 1);
    hold.add(t.record->sides[owner.where & 1].sleepers, -1);
    hold.touch(t.index);
    hold.set(slot.owner, {kNone, 0});
    hold.set(slot.next_free, a.state().free_sleepers.get());
    hold.set(a.state().free_sleepers, cursor);
    --slice;
  }
  return true;
}

}  // namespace shmreplay
