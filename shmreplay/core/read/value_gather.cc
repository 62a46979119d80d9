#include "read/value_gather.h"

#include <algorithm>
#include <new>

namespace shmreplay {

bool ByteBuffer::reserve(size_t n) noexcept {
  if (n <= room()) return true;
  if (n > SIZE_MAX - size_) return false;
  const size_t least = size_ + n;
  // Doubles, so that many small values do not move the buffer often. If there is no memory for that, the least will do.
  for (const size_t wanted : {std::max({least, 2 * capacity_, size_t{4096}}), least}) {
    char* grown = static_cast<char*>(std::realloc(data_, wanted));
    if (grown == nullptr) continue;
    data_ = grown;
    capacity_ = wanted;
    return true;
  }
  return false;
}

char* ByteBuffer::extend(size_t n) {
  if (!reserve(n)) throw std::bad_alloc();
  char* at = data_ + size_;
  size_ += n;
  return at;
}

char* ByteBuffer::release() noexcept {
  char* data = data_;
  data_ = nullptr;
  size_ = capacity_ = 0;
  return data;
}

int64_t append_value(const Arena& arena, uint32_t chunk, BlockRef ref, ByteBuffer& to) {
  const int64_t size = size_of_value(arena, ref);
  if (size > 0) read_value(arena, chunk, ref, to.extend(static_cast<size_t>(size)));
  return size;
}

}  // namespace shmreplay
