// Copies of rows, at the speed of the memory.
#pragma once

#include <cstddef>
#include <cstring>

namespace shmreplay {

// Like memcpy(), for bytes that are read much later, when no cache has them any more. The bytes go past the caches: no
// line of the destination is read before it is overwritten, and no other line is pushed out of a cache. memcpy() does
// that only for sizes larger than any row. Stores after the call are seen after these bytes, as after any other store.
inline constexpr size_t kPastCaches = 6 * 1024;  // for shorter copies, the wait at the end costs more than they gain
void copy_past_caches(char* to, const char* from, size_t bytes) noexcept;

// Copies a row, or rows that lie together. `past_caches`: the destination is larger than the caches; else the copy may
// stay in them.
inline void copy_row(char* to, const char* from, size_t bytes, bool past_caches) noexcept {
  if (past_caches && bytes >= kPastCaches) copy_past_caches(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace shmreplay
