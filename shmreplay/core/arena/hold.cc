#include "arena/hold.h"

#include "arena/admission.h"
#include "arena/chunk_wait.h"
#include "arena/robust_lock.h"
#include "arena/upcalls.h"
#include "base/futex.h"

namespace shmreplay {
namespace {

constexpr int kWakeAll = INT32_MAX;

void store_raw(char* at, unsigned log2_bytes, uint64_t value) noexcept {
  switch (log2_bytes) {
    case 1: __atomic_store_n(reinterpret_cast<uint16_t*>(at), static_cast<uint16_t>(value), __ATOMIC_RELAXED); break;
    case 2: __atomic_store_n(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(value), __ATOMIC_RELAXED); break;
    default: __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELAXED);
  }
}

// Makes every sleeper look again: a dead holder may have owed it a wake.
void wake_everybody(Arena& arena) noexcept {
  for (uint32_t i = 0; i < arena.num_tables(); ++i) {
    for (WaitSide& side : arena.table(i).record->sides) futex_bump(side.futex);
    futex_bump(arena.table(i).record->news.futex);
  }
  futex_bump(arena.state().chunk_futex);
}

}  // namespace

bool roll_back(Arena& arena) noexcept {
  UndoLog& log = arena.log();
  const uint64_t length = log.length.load(std::memory_order_relaxed);
  if (length > kLogCapacity) return false;
  for (uint64_t i = length; i-- > 0;) {
    const uint64_t offset = log.entries[i].where >> 2;
    const auto log2_bytes = static_cast<unsigned>(log.entries[i].where & 3);
    const uint64_t bytes = uint64_t{1} << log2_bytes;
    const bool inside = offset >= arena.offsets().state && offset + bytes <= arena.offsets().end;
    if (!inside || offset % bytes != 0 || log2_bytes == 0) return false;
    store_raw(arena.index() + offset, log2_bytes, log.entries[i].old);
    SHMREPLAY_FAULT("roll_back.word_restored");
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  log.length.store(0, std::memory_order_relaxed);
  SHMREPLAY_FAULT("roll_back.done");
  return true;
}

Hold::~Hold() {
  if (!held_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    roll_back_and_fail();
  } else {
    end();
  }
}

Status Hold::begin(const Wait& wait) {
  if (arena_.forked()) return Status::kForked;
  LockBlock& lock = arena_.lock();
  const uint32_t session = arena_.session_index(), pid = arena_.pid();
  return entered(static_cast<int>(wait.try_only ? RobustLock::try_lock(lock, session, pid)
                                                : RobustLock::lock(lock, session, pid, wait)));
}

Status Hold::entered(int outcome) {
  switch (static_cast<RobustLock::Outcome>(outcome)) {
    case RobustLock::Outcome::kLocked: break;
    case RobustLock::Outcome::kOwnerDied:
      if (!recover()) return Status::kFailed;
      break;
    case RobustLock::Outcome::kBusy: return Status::kTimeout;
    case RobustLock::Outcome::kInterrupted: return Status::kInterrupted;
    case RobustLock::Outcome::kTimeout: return Status::kLockTimeout;
    case RobustLock::Outcome::kUnusable: arena_.mark_failed(); return Status::kFailed;
  }
  held_ = true;
  exceptions_ = std::uncaught_exceptions();
  length_ = 0;
  num_deferred_ = deferred_entries_ = 0;
  logged_ = true;
  chunk_retired_ = false;
  touched_ = inserted_ = wake_all_ = wake_one_[0] = wake_one_[1] = wake_news_ = 0;
  if (arena_.failed()) {
    end();
    return Status::kFailed;
  }
  if (!session_is_ours()) {
    end();
    return Status::kSessionLost;
  }
  return Status::kOk;
}

// The lock's last owner died in it. This is the one place that makes the index whole again.
bool Hold::recover() {
  LockBlock& lock = arena_.lock();
  bool whole = roll_back(arena_);
  if (whole && arena_.state().rebuilding.get() != 0) {
    // It died while rebuilding: what is derived may be half made, and no log says how far. Start the rebuild again.
    try {
      logged_ = false;
      rebuild_derived(*this);
    } catch (const std::exception&) {  // there is no memory for it either; the lock must not be left locked
      whole = false;
    }
  }
  if (!whole) arena_.mark_failed();
  lock.num_recoveries.fetch_add(1, std::memory_order_relaxed);  // a statistic
  const bool consistent = RobustLock::make_consistent(lock);
  wake_everybody(arena_);
  if (whole && consistent) return true;
  RobustLock::unlock(lock);
  return false;
}

void Hold::stop_logging() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  arena_.log().length.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  length_ = 0;
  logged_ = false;
}

bool Hold::session_is_ours() const {
  if (arena_.session_index() == kNone) return true;
  const StateGeneration s = arena_.session(arena_.session_index()).state.get();
  return s.state == kSessionAlive && s.generation == arena_.session_generation();
}

void Hold::outgrown() { corrupt("a hold outgrew its undo log"); }

void Hold::settle() {
  const uint32_t n = num_deferred_;
  num_deferred_ = deferred_entries_ = 0;
  if (n > 0) settle_trees(*this, deferred_, n);
}

void Hold::end() noexcept {
  if (!held_) return;
  try {
    settle();
  } catch (const CorruptIndex&) {
    roll_back_and_fail();
    return;
  }
  collect_wakes();
  collect_news();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SHMREPLAY_FAULT("hold.committing");
  if (length_ > 0) arena_.log().length.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SHMREPLAY_FAULT("hold.committed");
  unlock_and_wake();
}

void Hold::collect_wakes() noexcept {
  for (uint64_t mask = touched_ | wake_all_; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    TableRecord& t = *arena_.table(index).record;
    for (int side = 0; side < 2; ++side) {
      const bool all = (wake_all_ >> index & 1) != 0;
      if (!all && (t.sides[side].sleepers.get() == 0 || !can_go_on(t, static_cast<Side>(side)))) continue;
      // SYNC POINT with Blocked::join: a sleeper reads the word under the lock before it sleeps. So a bump under the
      // lock is either seen there, or ends the sleeper's futex_wait.
      t.sides[side].futex.fetch_add(1, std::memory_order_seq_cst);
      wake_one_[side] |= uint64_t{1} << index;
    }
  }
}

void Hold::collect_news() noexcept {
  for (uint64_t mask = inserted_ | wake_all_; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    News& news = arena_.table(index).record->news;
    if (news.is_awaited.load(std::memory_order_relaxed) == 0) continue;  // relaxed: under the lock, as it was written
    news.is_awaited.store(0, std::memory_order_relaxed);
    SHMREPLAY_FAULT("hold.news_taken");
    // SYNC POINT with wait_for_insert, as the one of a side with Blocked::join.
    news.futex.fetch_add(1, std::memory_order_seq_cst);
    wake_news_ |= uint64_t{1} << index;
  }
}

void Hold::unlock_and_wake() noexcept {
  held_ = false;
  RobustLock::unlock(arena_.lock());
  for (int side = 0; side < 2; ++side) {
    for (uint64_t mask = wake_one_[side]; mask != 0; mask &= mask - 1) {
      const auto index = static_cast<uint32_t>(std::countr_zero(mask));
      futex_wake(arena_.table(index).record->sides[side].futex, (wake_all_ >> index & 1) != 0 ? kWakeAll : 1);
      SHMREPLAY_FAULT("hold.woken");
    }
  }
  for (uint64_t mask = wake_news_; mask != 0; mask &= mask - 1) {
    futex_wake(arena_.table(static_cast<uint32_t>(std::countr_zero(mask))).record->news.futex, kWakeAll);
    SHMREPLAY_FAULT("hold.news_told");
  }
  if (chunk_retired_) wake_chunk_waiters(arena_);
}

void Hold::roll_back_and_fail() noexcept {
  roll_back(arena_);
  arena_.mark_failed();
  held_ = false;
  RobustLock::unlock(arena_.lock());
  wake_everybody(arena_);
}

}  // namespace shmreplay
