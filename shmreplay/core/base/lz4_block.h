// LZ4 blocks: bytes without their repetitions, in LZ4's block format, without a frame and without their size.
//
// A block is a sequence of literals and matches. A match repeats bytes that lie at most 65535 bytes before; the last
// part has literals only. This is written here because writers compress rows and gathers decompress them, both without
// Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shmreplay {

// Compresses. An object has memory of its own, so it serves one call at a time.
class Lz4Compressor {
 public:
  // Writes the block of `size` bytes (fewer than 2^31) to the `room` bytes at `to`. Returns the block's size; 0: it
  // does not fit there. Throws std::bad_alloc, but not if an earlier call with at least that size succeeded.
  size_t compress(const char* from, size_t size, char* to, size_t room);

 private:
  std::vector<uint32_t> places_;  // where bytes with each hash were seen last
};

// Decompresses a block of `size` bytes to exactly the `room` bytes at `to`. false: it is not a block of that many
// bytes; then the bytes at `to` have no meaning. It never reads or writes outside of these ranges, whatever the block
// holds.
bool lz4_decompress(const char* block, size_t size, char* to, size_t room) noexcept;

}  // namespace shmreplay
