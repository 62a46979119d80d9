#include "base/row_codec.h"

#include <bit>
#include <cstring>

namespace shmreplay {
namespace {

constexpr size_t kLittle = 8;      // a row with at most this part new is not compressed by itself
constexpr size_t kLeastAlike = 8;  // this many bytes must be as before for a new piece to begin after them
constexpr size_t kMostNumber = 5;  // bytes of a number

inline uint64_t difference(const char* a, const char* b) noexcept {
  uint64_t x, y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  return x ^ y;
}

// The first place from `at` on where a and b differ; n if there is none.
size_t find_other(const char* a, const char* b, size_t at, size_t n) noexcept {
  for (; at + 32 <= n; at += 32) {
    const uint64_t any = difference(a + at, b + at) | difference(a + at + 8, b + at + 8) |
                         difference(a + at + 16, b + at + 16) | difference(a + at + 24, b + at + 24);
    if (any != 0) break;
  }
  for (; at + 8 <= n; at += 8) {
    if (const uint64_t d = difference(a + at, b + at); d != 0) return at + static_cast<size_t>(std::countr_zero(d)) / 8;
  }
  while (at < n && a[at] == b[at]) ++at;
  return at;
}

// The first place from `at` on after which kLeastAlike bytes are alike; n if there is none.
size_t find_alike(const char* a, const char* b, size_t at, size_t n) noexcept {
  while (at + kLeastAlike <= n) {
    const uint64_t d = difference(a + at, b + at);
    if (d == 0) return at;
    at += 8 - static_cast<size_t>(std::countl_zero(d)) / 8;  // after the last of these bytes that differs
  }
  return n;
}

char* put_number(char* to, size_t number) noexcept {
  for (; number >= 128; number >>= 7) *to++ = static_cast<char>(number | 128);
  *to++ = static_cast<char>(number);
  return to;
}

// Writes the pieces of a row. Returns their size; 0: they do not fit.
size_t write_pieces(const char* row, const char* before, size_t n, char* to, size_t room) noexcept {
  char* at = to;
  for (size_t done = 0; done < n;) {
    const size_t begin = find_other(row, before, done, n);
    if (begin == n) break;
    const size_t end = find_alike(row, before, begin, n);
    if (room - static_cast<size_t>(at - to) < 2 * kMostNumber + (end - begin)) return 0;
    at = put_number(put_number(at, begin - done), end - begin);
    std::memcpy(at, row + begin, end - begin);
    at += end - begin;
    done = end;
  }
  return static_cast<size_t>(at - to);
}

// false: the bytes end within the number, or no row has such a number.
inline bool get_number(const unsigned char*& at, const unsigned char* end, size_t& number) noexcept {
  number = 0;
  for (unsigned shift = 0; shift < 7 * kMostNumber; shift += 7) {
    if (at == end) return false;
    const unsigned byte = *at++;
    number |= size_t{byte & 127} << shift;
    if (byte < 128) return true;
  }
  return false;
}

bool put_pieces(const char* stored, size_t size, char* row, size_t n) noexcept {
  const auto* at = reinterpret_cast<const unsigned char*>(stored);
  const unsigned char* const end = at + size;
  for (size_t done = 0; at < end;) {
    size_t alike = 0, coming = 0;
    if (!get_number(at, end, alike) || !get_number(at, end, coming)) return false;
    if (alike > n - done || coming > n - done - alike || coming > static_cast<size_t>(end - at)) return false;
    std::memcpy(row + done + alike, at, coming);
    done += alike + coming;
    at += coming;
  }
  return true;
}

}  // namespace

bool RowEncoder::encode(const char* row, const char* before, size_t row_bytes, std::vector<char>& to) {
  const size_t begin = to.size();
  to.resize(begin + 2 * row_bytes);
  char* const by_itself = to.data() + begin;
  char* const leaning = by_itself + row_bytes;
  size_t size = 0;  // of the bytes if the row leans; 0: it does not
  if (before != nullptr && row_bytes > 1) {
    leaning[0] = 0;
    const size_t pieces = write_pieces(row, before, row_bytes, leaning + 1, row_bytes - 2);
    const bool has_room = pieces > 0 || std::memcmp(row, before, row_bytes) == 0;
    size = has_room ? pieces + 1 : 0;
  }
  const bool is_little = size > 0 && size <= row_bytes / kLittle;
  const size_t alone = is_little || row_bytes < 2 ? 0 : lz4_.compress(row, row_bytes, by_itself, row_bytes - 1);
  const bool it_leans = size > 0 && (alone == 0 || size < alone);
  if (it_leans) {
    std::memmove(by_itself, leaning, size);
  } else if (alone > 0) {
    size = alone;
  } else {
    size = row_bytes;
    if (row_bytes > 0) std::memcpy(by_itself, row, row_bytes);
  }
  to.resize(begin + size);
  return it_leans;
}

bool decode_row(const char* stored, size_t size, char* row, size_t row_bytes) noexcept {
  if (size > row_bytes) return false;
  if (size == row_bytes) {
    if (size > 0) std::memcpy(row, stored, size);
    return true;
  }
  if (leans(stored, size, row_bytes)) return put_pieces(stored + 1, size - 1, row, row_bytes);
  return lz4_decompress(stored, size, row, row_bytes);
}

}  // namespace shmreplay
