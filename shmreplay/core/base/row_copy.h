// Copies of rows, at the speed that memory has.
#pragma once

#include <cstddef>
#include <cstring>

namespace shmreplay {

// Like memcpy(), for bytes that are read much later, when no cache has them any more. The bytes go past the caches: no
// line of the destination is read before it is overwritten, and no other line is driven out. memcpy() does that only
// for sizes larger than any row. Stores after the call are seen after these bytes, as after any store.
inline constexpr size_t kPastCaches = 6 * 1024;  // shorter copies gain less than the wait at their end costs
void copy_past_caches(char* to, const char* from, size_t bytes) noexcept;

// A row, or rows that lie together, into memory that is larger than the caches (`past_caches`), or that may stay in
// them.
inline void copy_row(char* to, const char* from, size_t bytes, bool past_caches) noexcept {
  if (past_caches && bytes >= kPastCaches) copy_past_caches(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

}  // namespace shmreplay
