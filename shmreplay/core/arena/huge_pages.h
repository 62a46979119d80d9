// How a segment gets its pages: huge ones, and on which memory nodes.
//
// A learner draws rows at random, and each lies in another small page of 4 KiB. These are far more pages than a
// processor keeps translations of (its TLB). A huge page covers 512 times as much, and the page tables of each process
// are 512 times smaller.
#pragma once

#include <cstdint>

namespace shmreplay {

inline constexpr uint64_t kHugePageBytes = 2u << 20;

// Maps a part of a shared file, readable and writable, where its huge pages can be mapped as such. MAP_FAILED and
// errno.
void* map_aligned(int fd, uint64_t offset, uint64_t bytes);

// Has the whole huge pages of a part of a file allocated as such. The file has its size, nothing is in that part yet,
// and `offset` is a multiple of kHugePageBytes. 0, or the errno with which the kernel stopped: the rest is left as it
// was. Needs neither a mount option nor a privilege, but Linux 6.1 (MADV_COLLAPSE).
int take_huge_pages(int fd, uint64_t offset, uint64_t bytes);

// Bytes of the file that are in huge pages now, by /proc/self/smaps. Touches a byte of each.
uint64_t huge_bytes_of(int fd, uint64_t bytes);

// The memory nodes that this process may use; `count` 0 where the kernel knows of none.
struct MemoryNodes {
  unsigned long mask[16] = {};  // of 1,024 nodes: as many as a kernel is built for
  uint32_t count = 0;
};
MemoryNodes memory_nodes();

// Spreads all pages that any process gives the file from now on evenly over the nodes. 0, or errno.
int interleave(int fd, uint64_t bytes, const MemoryNodes& nodes);

}  // namespace shmreplay
