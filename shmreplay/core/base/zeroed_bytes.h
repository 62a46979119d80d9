// Memory that begins as zeros and takes no pages until it is written to. So a size that a damaged segment names costs
// address space alone.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

namespace shmreplay {

class ZeroedBytes {
 public:
  explicit ZeroedBytes(size_t size)
      : bytes_(static_cast<char*>(std::calloc(std::max<size_t>(size, 1), 1))), size_(size) {
    if (bytes_ == nullptr) throw std::bad_alloc();
  }
  char* data() noexcept { return bytes_.get(); }
  const char* data() const noexcept { return bytes_.get(); }
  size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(char* bytes) const noexcept { std::free(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
  size_t size_;
};

}  // namespace shmreplay
