// How a segment gets its pages: huge ones, and on which memory nodes.
//
// Rows that a learner draws at random lie in as many small pages, of 4 KiB, far more than a processor keeps the
// translations of (its TLB). A huge page reaches 512 times as far, and the page tables of each process are as much
// smaller.
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

// Has the pages that the file is given from now on, by whomever, spread evenly over the nodes. 0, or errno.
int interleave(int fd, uint64_t bytes, const MemoryNodes& nodes);

}  // namespace shmreplay
