// Values on their way from the block heap to a batch: their bytes one after the other, and the size of each.
#pragma once

#include <cstdlib>

#include "chunks/block_heap.h"

namespace shmreplay {

// Bytes that grow at their end. The caller of release() frees what it takes over.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  ~ByteBuffer() { std::free(data_); }
  ByteBuffer(const ByteBuffer&) = delete;
  ByteBuffer& operator=(const ByteBuffer&) = delete;

  // Appends n bytes and returns where they are. Throws std::bad_alloc, but never where room() was enough.
  char* extend(size_t n);
  // Gets room for n more bytes. false: no memory, and nothing has changed.
  bool reserve(size_t n) noexcept;
  size_t room() const noexcept { return capacity_ - size_; }
  size_t size() const noexcept { return size_; }
  const char* data() const noexcept { return data_; }
  // Hands over the bytes, which were allocated with malloc(); nullptr if there are none.
  char* release() noexcept;

 private:
  char* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// What the items of a batch brought: the size of each item's values (-1: none), and the bytes.
struct ItemValues {
  int64_t* sizes;
  ByteBuffer bytes;
};

// Appends a value whose blocks belong to `chunk`. Answers its size, -1 for none.
int64_t append_value(const Arena& arena, uint32_t chunk, BlockRef ref, ByteBuffer& to);

}  // namespace shmreplay
