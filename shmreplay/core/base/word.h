// A word of the index segment: anyone may read it, only a Hold can write it.
//
// Reads are relaxed. Under the arena's lock they are exact, because the mutex orders them. Without it they may be
// stale, which is enough for statistics and hints. Writes go through Hold::set, which logs the old value first; that is
// what makes every hold all-or-nothing. A word has 2, 4 or 8 bytes, so that one store changes it whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace shmreplay {

template <class T>
class Word {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  static_assert(std::atomic<T>::is_always_lock_free);

 public:
  // Relaxed: nothing is published through a single word; see above.
  T get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  friend class Hold;       // logs, then writes
  friend class Formatter;  // writes a segment that nobody can see yet
  friend class Restorer;   // fills such a segment
  void put(T value) noexcept { value_.store(value, std::memory_order_relaxed); }

  std::atomic<T> value_;
};

static_assert(sizeof(Word<uint64_t>) == 8 && sizeof(Word<double>) == 8 && sizeof(Word<uint32_t>) == 4);

}  // namespace shmreplay
