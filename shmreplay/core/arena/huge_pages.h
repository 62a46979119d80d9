// How a segment gets its pages: huge ones, and on which memory nodes.
//
// A learner draws rows at random, and each row lies in another small page of 4 KiB. A processor keeps the translations
// of far fewer pages (in its TLB). A huge page covers 512 times as much, and the page tables of each process are 512
// times smaller.
#pragma once

#include <cstdint>

namespace shmreplay {

inline constexpr uint64_t kHugePageBytes = 2u << 20;

// Maps a part of a shared file, readable and writable, at an address where its huge pages can be mapped as huge pages.
// Returns MAP_FAILED, with errno, if that fails.
void* map_aligned(int fd, uint64_t offset, uint64_t bytes);

// Allocates the whole huge pages of a part of a file as huge pages. The file must have its size, that part must still
// be empty, and `offset` must be a multiple of kHugePageBytes. Returns 0, or the errno with which the kernel stopped;
// then the rest is left as it was. It needs no mount option and no privilege, but Linux 6.1 (MADV_COLLAPSE).
int take_huge_pages(int fd, uint64_t offset, uint64_t bytes);

// How many bytes of the file are in huge pages now, by /proc/self/smaps. Touches a byte of each page.
uint64_t huge_bytes_of(int fd, uint64_t bytes);

// The memory nodes that this process may use; `count` 0 where the kernel knows of none.
struct MemoryNodes {
  unsigned long mask[16] = {};  // for 1,024 nodes, the most that a kernel is built for
  uint32_t count = 0;
};
MemoryNodes memory_nodes();

// Spreads all pages that any process gives the file from now on evenly over the nodes. Returns 0, or errno.
int interleave(int fd, uint64_t bytes, const MemoryNodes& nodes);

}  // namespace shmreplay
