#include "value_gather.h"

#include <algorithm>
#include <new>

namespace shmreplay {

char* ByteBuffer::extend(size_t n) {
  if (n > capacity_ - size_) {
    const size_t wanted = std::max({size_ + n, 2 * capacity_, size_t{4096}});
    char* grown = static_cast<char*>(std::realloc(data_, wanted));
    if (grown == nullptr) throw std::bad_alloc();
    data_ = grown;
    capacity_ = wanted;
  }
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
