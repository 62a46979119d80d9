#include "base/row_copy.h"

#include <algorithm>
#include <cstdint>

#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define SHMREPLAY_STREAMS 1
#else
#define SHMREPLAY_STREAMS \
  0  // other processors; and sanitizers see what memcpy() touches, but not what these instructions do
#endif

namespace shmreplay {

#if SHMREPLAY_STREAMS

void copy_past_caches(char* to, const char* from, size_t bytes) noexcept {
  constexpr size_t kLine = 64;
  // Only whole lines of the destination: a line that is written in part would be read after all.
  const size_t head = std::min<size_t>(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
  _mm_sfence();  // before it, these stores have no order with others: the row must be there before an item that refers
                 // to it
}

#else

void copy_past_caches(char* to, const char* from, size_t bytes) noexcept { std::memcpy(to, from, bytes); }

#endif

}  // namespace shmreplay
