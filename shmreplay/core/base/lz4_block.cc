#include "base/lz4_block.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace shmreplay {
namespace {

constexpr size_t kLeastMatch = 4, kMostOffset = 65535;
// The format's rules for a block's end: the last bytes are literals, and no match begins shortly before them.
constexpr size_t kLastLiterals = 5, kNoMatchWithin = 12;
constexpr size_t kSmallSize = 1u << 15;  // up to here the table stays in the first-level cache
constexpr uint32_t kSmallBits = 12, kLargeBits = 14;
constexpr uint32_t kSearchesAStep = 64;  // failed searches until the next ones are a byte further apart

inline uint32_t read32(const char* p) noexcept {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline uint64_t read64(const char* p) noexcept {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// How many bytes at a and b are alike; b lies before `end`.
inline size_t count_alike(const char* a, const char* b, const char* end) noexcept {
  const char* const begin = b;
  for (; end - b >= 8; a += 8, b += 8) {
    const uint64_t differing = read64(a) ^ read64(b);
    if (differing != 0) return static_cast<size_t>(b - begin) + static_cast<size_t>(std::countr_zero(differing)) / 8;
  }
  for (; b < end && *a == *b; ++a) ++b;
  return static_cast<size_t>(b - begin);
}

// The end of a block that is being written.
class BlockEnd {
 public:
  BlockEnd(char* to, size_t room) noexcept : begin_(to), at_(to), end_(to + room) {}

  // false: it does not fit.
  bool add(const char* literals, size_t num_literals, size_t offset, size_t match) noexcept {
    if (static_cast<size_t>(end_ - at_) < 5 + num_literals + num_literals / 255 + match / 255) return false;
    char* const token = add_literals(literals, num_literals);
    *at_++ = static_cast<char>(offset & 0xff);
    *at_++ = static_cast<char>(offset >> 8);
    *token = static_cast<char>(*token | static_cast<char>(std::min<size_t>(match - kLeastMatch, 15)));
    if (match - kLeastMatch >= 15) add_length(match - kLeastMatch - 15);
    return true;
  }
  bool end(const char* literals, size_t num_literals) noexcept {
    if (static_cast<size_t>(end_ - at_) < 2 + num_literals + num_literals / 255) return false;
    add_literals(literals, num_literals);
    return true;
  }
  size_t size() const noexcept { return static_cast<size_t>(at_ - begin_); }

 private:
  char* add_literals(const char* literals, size_t n) noexcept {
    char* const token = at_++;
    *token = static_cast<char>(std::min<size_t>(n, 15) << 4);
    if (n >= 15) add_length(n - 15);
    if (n > 0) std::memcpy(at_, literals, n);  // with n == 0, `literals` may point nowhere
    at_ += n;
    return token;
  }
  void add_length(size_t n) noexcept {
    for (; n >= 255; n -= 255) *at_++ = static_cast<char>(255);
    *at_++ = static_cast<char>(n);
  }

  char *begin_, *at_, *end_;
};

}  // namespace

// The tables are small enough to be cleared for every row. A place of 0 is as good as any other, so nothing has to be
// marked empty.
size_t Lz4Compressor::compress(const char* from, size_t size, char* to, size_t room) {
  BlockEnd block(to, room);
  const char* const end = from + size;
  const char* literals = from;
  if (size > kNoMatchWithin) {
    const uint32_t bits = size <= kSmallSize ? kSmallBits : kLargeBits;
    places_.assign(size_t{1} << bits, 0);
    const auto place = [&](const char* p) -> uint32_t& { return places_[read32(p) * 2654435761u >> (32 - bits)]; };
    const char* const last = end - kNoMatchWithin;
    const char* const match_end = end - kLastLiterals;
    const char* at = from + 1;
    for (uint32_t searches = kSearchesAStep; at <= last;) {
      uint32_t& seen = place(at);
      const char* match = from + seen;
      seen = static_cast<uint32_t>(at - from);
      if (read32(match) != read32(at) || static_cast<size_t>(at - match) > kMostOffset) {
        at += searches++ / kSearchesAStep;
        continue;
      }
      for (; at > literals && match > from && at[-1] == match[-1]; --at) --match;
      const size_t length = kLeastMatch + count_alike(match + kLeastMatch, at + kLeastMatch, match_end);
      if (!block.add(literals, static_cast<size_t>(at - literals), static_cast<size_t>(at - match), length)) return 0;
      at += length;
      literals = at;
      searches = kSearchesAStep;
      if (at <= last) place(at - 2) = static_cast<uint32_t>(at - 2 - from);
    }
  }
  return block.end(literals, static_cast<size_t>(end - literals)) ? block.size() : 0;
}

namespace {

// Reads the rest of a length whose first part has its largest value. false: the block ends within it, or the length is
// more than `most`.
inline bool read_length(const unsigned char*& at, const unsigned char* end, size_t most, size_t& length) noexcept {
  for (unsigned char byte = 255; byte == 255;) {
    if (at == end || length > most) return false;
    byte = *at++;
    length += byte;
  }
  return true;
}

// How many bytes are copied at once. If as many are free after the end, a first write may be longer than needed.
constexpr size_t kStep = 32;

inline void copy_in_steps(char* to, const char* from, size_t n) noexcept {
  for (size_t i = 0; i < n; i += kStep) std::memcpy(to + i, from + i, kStep);
}

// Repeats fewer than 8 bytes, in a register.
inline void repeat_few(char* to, size_t offset, size_t length) noexcept {
  uint64_t bytes = read64(to - offset) & ~uint64_t{0} >> (64 - 8 * offset);
  for (size_t known = offset; known < 8; known *= 2) bytes |= bytes << (8 * known);
  const size_t step = 8 - 8 % offset;
  for (size_t i = 0; i < length; i += step) std::memcpy(to + i, &bytes, 8);
}

// Repeats the bytes that lie `offset` before `to`. A step's worth of room must be free after the end.
inline void repeat(char* to, size_t offset, size_t length) noexcept {
  const char* const from = to - offset;
  if (offset == 1 && length > 8 * kStep) {
    std::memset(to, *from, length);
  } else if (offset >= kStep) {
    // Copies the bytes between the two, then twice as many, and so on: bytes written a moment ago are slow to read.
    for (size_t period = offset, done = 0; done < length; period *= 2) {
      const size_t here = std::min(period, length - done);
      copy_in_steps(to + done, from, here);
      done += here;
    }
  } else if (offset < 8) {
    repeat_few(to, offset, length);
  } else {
    // Repeats until a step's worth is written; that repeats itself as well.
    size_t done = 0;
    for (; done < kStep; done += 8) std::memcpy(to + done, from + done, 8);
    if (done < length) copy_in_steps(to + done, to + done - (done + offset) / offset * offset, length - done);
  }
}

inline void copy_match(char* to, size_t offset, size_t length, size_t room) noexcept {
  size_t by_steps = length;
  if (room < length + kStep) by_steps = length > kStep ? length - kStep : 0;
  if (by_steps > 0) repeat(to, offset, by_steps);
  for (size_t i = by_steps; i < length; ++i) to[i] = to[i - offset];
}

}  // namespace

bool lz4_decompress(const char* block, size_t size, char* to, size_t room) noexcept {
  const auto* at = reinterpret_cast<const unsigned char*>(block);
  const unsigned char* const end = at + size;
  char* out = to;
  char* const out_end = to + room;
  while (at < end) {
    const unsigned token = *at++;
    size_t literals = token >> 4;
    if (literals == 15 && !read_length(at, end, room, literals)) return false;
    const auto left = static_cast<size_t>(out_end - out), coming = static_cast<size_t>(end - at);
    if (literals > left || literals > coming) return false;
    if (literals <= kStep && left >= kStep && coming >= kStep) std::memcpy(out, at, kStep);
    else std::memcpy(out, at, literals);
    out += literals;
    at += literals;
    if (at == end) return out == out_end;
    if (end - at < 2) return false;
    const size_t offset = at[0] | size_t{at[1]} << 8;
    at += 2;
    size_t match = token & 15;
    if (match == 15 && !read_length(at, end, room, match)) return false;
    match += kLeastMatch;
    const auto room_left = static_cast<size_t>(out_end - out);
    if (offset == 0 || offset > static_cast<size_t>(out - to) || match > room_left) return false;
    copy_match(out, offset, match, room_left);
    out += match;
  }
  return false;
}

}  // namespace shmreplay
