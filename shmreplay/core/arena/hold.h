// One stay inside the arena's lock, all or nothing.
//
//   Hold hold(arena);
//   if (Status s = hold.begin(wait); s != Status::kOk) return s;
//   hold.set(record.word, value);     // logs the old value, then writes
//   ...                               // leaving the scope commits, unlocks and wakes
//
// Undo log: before a word changes, its offset and old value go to the log, and the log's length is stored. Storing
// length 0 is the commit. A holder that dies leaves the log. The next process that takes the lock writes the old values
// back, newest first, and the index is byte for byte what it was before the hold. A SIGKILL stops a process between
// instructions, so only the compiler's order matters; signal fences fix it.
//
// Inside a hold: allocate nothing, do not touch the caller's memory, never sleep. The core's one exception,
// CorruptIndex, rolls the hold back on its way out and marks the segment failed.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "arena/arena.h"
#include "base/fault.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

class Hold {
 public:
  explicit Hold(Arena& arena) noexcept
      : arena_(arena), index_(arena.index()), entries_(arena.log().entries), log_length_(&arena.log().length) {}
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // Takes the lock, rolls back what a dead holder left, and checks that this session is still the one that was opened.
  // Answers kOk, kInterrupted, kLockTimeout, kSessionLost, kForked or kFailed; the lock is held only after kOk. With
  // wait.try_only, answers kTimeout if the lock is taken.
  Status begin(const Wait& wait);

  // Commits, unlocks, and wakes the calls that may go on because of this hold. Idempotent.
  void end() noexcept;

  template <class T>
  [[gnu::always_inline]] void set(Word<T>& word, std::type_identity_t<T> value) {
    const uint64_t old = bits(word.get());
    if (old == bits(value)) return;  // by bytes: -0.0 and 0.0 differ
    log_old(reinterpret_cast<char*>(&word) - index_, std::countr_zero(sizeof(T)), old);
    word.put(value);
    SHMREPLAY_FAULT("hold.word_written");
  }

  // Adds to a counter.
  template <class T>
  [[gnu::always_inline]] void add(Word<T>& word, std::type_identity_t<T> amount) {
    set(word, static_cast<T>(word.get() + amount));
  }

  // Logs every word of a record at once, so that put() may write them. Use it for records of which most words change.
  template <class Record>
  void save(Record& record) {
    static_assert(sizeof(Record) % 8 == 0 && alignof(Record) >= 8);
    save_words(reinterpret_cast<char*>(&record) - index_, sizeof(Record) / 8);
  }

  // Writes a word of a record that was saved in this hold.
  template <class T>
  void put(Word<T>& word, std::type_identity_t<T> value) {
    check_saved(reinterpret_cast<char*>(&word) - index_);
    word.put(value);
    SHMREPLAY_FAULT("hold.word_put");
  }

  // The leaf of item g in the trees of its table changed. settle() brings the nodes above it up to date, each node once
  // however many of its leaves changed. The end of the hold settles what is left.
  void defer(uint32_t g, uint32_t entries);
  void settle();

  // Log entries left; work that may need more than that belongs in the next hold.
  uint32_t room() const noexcept {
    const uint32_t spoken_for = length_ + deferred_entries_;
    return spoken_for < kLogCapacity ? kLogCapacity - spoken_for : 0;
  }

  // The limiter of table `index` moved: end() checks whether one of its sleepers can go on.
  void touch(uint32_t index) noexcept { touched_ |= uint64_t{1} << index; }

  // The same, and there are new items: end() wakes all calls that wait for an insert (news.h).
  void inserted(uint32_t index) noexcept {
    touch(index);
    inserted_ |= uint64_t{1} << index;
  }

  // end() wakes every call that sleeps on either side of table `index` or for its news, whatever the limiter says.
  void wake_all(uint32_t index) noexcept { wake_all_ |= uint64_t{1} << index; }

  // A chunk was retired, or only items that may be evicted refer to it now: end() wakes the calls that wait for a
  // chunk.
  void chunk_retired() noexcept { chunk_retired_ = true; }

  // Commits what was done so far; later writes have no log. Only for rebuild(), whose flag is set meanwhile.
  void stop_logging() noexcept;

  Arena& arena() const noexcept { return arena_; }

 private:
  template <class T>
  static uint64_t bits(T value) noexcept {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    return word;
  }
  void log_old(uint64_t offset, int log2_bytes, uint64_t old);
  void save_words(uint64_t offset, uint32_t num_words);
  void check_saved(uint64_t offset) const;
  Status entered(int outcome);
  bool recover();
  bool session_is_ours() const;
  void collect_wakes() noexcept;
  void collect_news() noexcept;
  void roll_back_and_fail() noexcept;
  void unlock_and_wake() noexcept;

  void outgrown();

  Arena& arena_;
  char* const index_;
  LogEntry* const entries_;
  std::atomic<uint64_t>* const log_length_;
  bool held_ = false;
  bool logged_ = true;
  bool chunk_retired_ = false;
  uint32_t length_ = 0;
  uint64_t touched_ = 0, inserted_ = 0, wake_all_ = 0;
  uint64_t wake_one_[2] = {0, 0};  // by side: tables with one sleeper to wake after the unlock
  uint64_t wake_news_ = 0;         // tables whose calls that wait for an insert are to be woken
  int exceptions_ = 0;
  static constexpr uint32_t kMaxDeferred = 128;
  uint32_t num_deferred_ = 0, deferred_entries_ = 0;
  uint32_t deferred_[kMaxDeferred];
};

// Writes a dead holder's log back, newest first, and stores length 0. A process that dies half-way only causes it to be
// repeated. false: an entry points outside the index, which is then unusable.
bool roll_back(Arena& arena) noexcept;

[[gnu::always_inline]] inline void Hold::log_old(uint64_t offset, int log2_bytes, uint64_t old) {
  if (!logged_) [[unlikely]]
    return;
  if (length_ == kLogCapacity) [[unlikely]]
    outgrown();
  entries_[length_] = {offset << 2 | static_cast<uint64_t>(log2_bytes), old};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SHMREPLAY_FAULT("hold.entry_written");
  ++length_;
  // Relaxed: nobody reads the log before the mutex has changed hands.
  log_length_->store(length_, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SHMREPLAY_FAULT("hold.length_stored");
}

inline void Hold::save_words(uint64_t offset, uint32_t num_words) {
  if (!logged_) return;
  if (length_ + num_words > kLogCapacity) outgrown();
  for (uint32_t i = 0; i < num_words; ++i) {
    const uint64_t at = offset + uint64_t{8} * i;
    entries_[length_ + i] = {at << 2 | 3,
                             reinterpret_cast<std::atomic<uint64_t>*>(index_ + at)->load(std::memory_order_relaxed)};
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SHMREPLAY_FAULT("hold.record_saved");
  length_ += num_words;
  log_length_->store(length_, std::memory_order_relaxed);  // relaxed: as in log_old
  std::atomic_signal_fence(std::memory_order_seq_cst);
  SHMREPLAY_FAULT("hold.length_stored");
}

// A word that was put without having been saved would survive a roll-back: fault builds check.
inline void Hold::check_saved([[maybe_unused]] uint64_t offset) const {
#ifdef SHMREPLAY_FAULTS
  if (!logged_) return;
  for (uint32_t i = length_; i-- > 0;) {
    if (entries_[i].where >> 2 == offset / 8 * 8) return;
  }
  corrupt("a word was put without having been saved");
#endif
}

inline void Hold::defer(uint32_t g, uint32_t entries) {
  if (num_deferred_ == kMaxDeferred) settle();
  deferred_[num_deferred_++] = g;
  deferred_entries_ += entries;
}

}  // namespace shmreplay
