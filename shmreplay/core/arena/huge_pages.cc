#include "arena/huge_pages.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/layout.h"

namespace shmreplay {
namespace {

constexpr uint64_t kSmallPageBytes = 4096;
constexpr uint64_t kLookedAtOnce = 32 * kHugePageBytes;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, which the headers of the build may lack

// Touches one small page in each huge one, because only a range that has a page can be collapsed. Where pages are
// spread over memory nodes, a page's number in the file decides its node, and the huge page is made on that node. So it
// is not the first small page in every huge one.
int sow(int fd, uint64_t offset, uint64_t end) noexcept {
  for (; offset < end; offset += kHugePageBytes) {
    const uint64_t within = offset / kHugePageBytes * kSmallPageBytes % kHugePageBytes;
    int error = EINTR;
    while (error == EINTR) error = posix_fallocate(fd, static_cast<off_t>(offset + within), kSmallPageBytes);
    if (error != 0) return error;
  }
  return 0;
}

void touch_each(const char* data, uint64_t bytes) noexcept {
  // Relaxed: the page must be there; its contents do not matter.
  for (uint64_t at = 0; at < bytes; at += kHugePageBytes) {
    reinterpret_cast<const std::atomic<char>*>(data + at)->load(std::memory_order_relaxed);
  }
}

// What smaps says about the mapping that begins at `mapping`.
uint64_t mapped_as_huge(const void* mapping) noexcept {
  FILE* smaps = fopen("/proc/self/smaps", "re");
  if (smaps == nullptr) return 0;
  char line[512];
  unsigned long begin = 0, end = 0, kib = 0, found = 0;
  bool is_it = false;
  while (fgets(line, sizeof line, smaps) != nullptr) {
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) is_it = begin == reinterpret_cast<uintptr_t>(mapping);
    else if (is_it && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1) found = kib;
  }
  fclose(smaps);
  return uint64_t{found} * 1024;
}

}  // namespace

void* map_aligned(int fd, uint64_t offset, uint64_t bytes) {
  if (bytes < kHugePageBytes)
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  const uint64_t room = round_up(bytes, kSmallPageBytes) + kHugePageBytes;
  void* reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  const auto begin = reinterpret_cast<uintptr_t>(reserved), at = round_up(begin, kHugePageBytes);
  void* mapped = mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                      static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(reserved, room);
    errno = error;
    return MAP_FAILED;
  }
  const uintptr_t behind = at + round_up(bytes, kSmallPageBytes);
  if (at > begin) munmap(reserved, at - begin);
  if (behind < begin + room) munmap(reinterpret_cast<void*>(behind), begin + room - behind);
  return mapped;
}

int take_huge_pages(int fd, uint64_t offset, uint64_t bytes) {
  bytes -= bytes % kHugePageBytes;
  if (bytes == 0) return 0;
  if (const int error = sow(fd, offset, offset + bytes); error != 0) return error;
  void* const mapped = map_aligned(fd, offset, bytes);
  if (mapped == MAP_FAILED) return errno;
  int error = EAGAIN;  // another process used a page for a moment
  for (int tries = 0; tries < 3 && error == EAGAIN; ++tries) error = madvise(mapped, bytes, kCollapse) == 0 ? 0 : errno;
  munmap(mapped, bytes);
  return error;
}

uint64_t huge_bytes_of(int fd, uint64_t bytes) {
  bytes -= bytes % kHugePageBytes;
  uint64_t found = 0;
  // Piece by piece, because what is touched counts as this process's memory meanwhile.
  for (uint64_t at = 0; at < bytes; at += kLookedAtOnce) {
    const uint64_t piece = std::min(kLookedAtOnce, bytes - at);
    void* const mapped = map_aligned(fd, at, piece);
    if (mapped == MAP_FAILED) continue;
    touch_each(static_cast<const char*>(mapped), piece);
    found += mapped_as_huge(mapped);
    munmap(mapped, piece);
  }
  return found;
}

MemoryNodes memory_nodes() {
  MemoryNodes nodes;
  if (syscall(SYS_get_mempolicy, nullptr, nodes.mask, 8 * sizeof nodes.mask, nullptr, MPOL_F_MEMS_ALLOWED) != 0)
    return {};
  for (const unsigned long word : nodes.mask) nodes.count += static_cast<uint32_t>(std::popcount(word));
  return nodes;
}

int interleave(int fd, uint64_t bytes, const MemoryNodes& nodes) {
  void* const mapped = map_aligned(fd, 0, bytes);
  if (mapped == MAP_FAILED) return errno;
  // For a mapping of shared memory, the kernel keeps the policy with the file.
  const long rc = syscall(SYS_mbind, mapped, bytes, MPOL_INTERLEAVE, nodes.mask, 8 * sizeof nodes.mask, 0);
  const int error = rc == 0 ? 0 : errno;
  munmap(mapped, bytes);
  return error;
}

}  // namespace shmreplay
