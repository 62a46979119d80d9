// LZ4 blocks: bytes without their repetitions, in the block format of LZ4, without a frame and without their size.
//
// Sequences of literals and a match, which repeats what lies at most 65535 bytes before; the last one has literals
// only. Written here since rows are compressed by their writers and decompressed by gathers, both without Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shmreplay {

// Compresses. Has memory of its own, so it serves one call at a time.
class Lz4Compressor {
 public:
  // Writes the block of `size` bytes, which must be fewer than 2^31, to the `room` bytes at `to`. Its size; 0: it does
  // not fit there. Throws std::bad_alloc, not in a later call of no larger size.
  size_t compress(const char* from, size_t size, char* to, size_t room);

 private:
  std::vector<uint32_t> places_;  // of the bytes seen last with each hash
};

// Decompresses a block of `size` bytes to exactly the `room` bytes at `to`. false: it is none of that many; then the
// bytes there have no meaning. Never reads or writes outside of these, whatever the block holds.
bool lz4_decompress(const char* block, size_t size, char* to, size_t room) noexcept;

}  // namespace shmreplay
