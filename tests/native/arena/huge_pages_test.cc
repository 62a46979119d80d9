#include "arena/huge_pages.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

class File {
 public:
  explicit File(uint64_t bytes) : fd_(memfd_create("pages", MFD_CLOEXEC)) {
    CHECK_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
  }
  ~File() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kHugePageBytes == 0; }

}  // namespace

TEST(a_mapping_of_any_size_begins_where_a_huge_page_can_and_has_its_bytes_alone) {
  for (const uint64_t bytes : {kHugePageBytes, kHugePageBytes + 4096, 3 * kHugePageBytes - 4096}) {
    const File f(bytes);
    char* const p = static_cast<char*>(map_aligned(f.fd(), 0, bytes));
    CHECK(p != MAP_FAILED);
    CHECK(is_aligned(p));
    p[0] = 'a';
    p[bytes - 1] = 'z';
    // The address space reserved around it is given back: another mapping can have it.
    void* const behind = mmap(p + bytes, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(behind == p + bytes);
    munmap(behind, 4096);
    munmap(p, bytes);
    char read[1];
    CHECK_EQ(pread(f.fd(), read, 1, static_cast<off_t>(bytes - 1)), 1);
    CHECK_EQ(read[0], 'z');
  }
}

TEST(a_part_of_a_file_is_mapped_from_its_offset) {
  const File f(2 * kHugePageBytes);
  CHECK_EQ(pwrite(f.fd(), "x", 1, kHugePageBytes), 1);
  char* const p = static_cast<char*>(map_aligned(f.fd(), kHugePageBytes, kHugePageBytes));
  CHECK(p != MAP_FAILED && is_aligned(p));
  CHECK_EQ(p[0], 'x');
  munmap(p, kHugePageBytes);
}

TEST(what_cannot_be_mapped_says_so_and_leaves_nothing_mapped) {
  errno = 0;
  CHECK(map_aligned(-1, 0, 2 * kHugePageBytes) == MAP_FAILED);
  CHECK_EQ(errno, EBADF);
  CHECK_EQ(take_huge_pages(-1, 0, kHugePageBytes), EBADF);
  CHECK_EQ(huge_bytes_of(-1, kHugePageBytes), 0u);
}

TEST(pages_are_taken_as_huge_ones_or_the_kernel_says_why_not) {
  const uint64_t bytes = 3 * kHugePageBytes;
  const File f(bytes + 4096);
  CHECK_EQ(huge_bytes_of(f.fd(), bytes), 0u);
  const int error = take_huge_pages(f.fd(), kHugePageBytes, bytes - kHugePageBytes + 4096);
  // The first huge page was not asked for, and the end is not a whole one: nothing there is huge.
  if (error == 0) CHECK_EQ(huge_bytes_of(f.fd(), bytes + 4096), 2 * kHugePageBytes);
  else CHECK(strlen(strerror(error)) > 0);
  CHECK_EQ(posix_fallocate(f.fd(), 0, static_cast<off_t>(bytes + 4096)), 0);
  CHECK_EQ(take_huge_pages(f.fd(), 0, 4096), 0);  // there is no whole huge page in it: nothing to do
}

TEST(a_spread_file_says_so_to_whoever_maps_it) {
  const MemoryNodes nodes = memory_nodes();
  if (nodes.count == 0) return;  // a kernel without memory policies
  const File f(2 * kHugePageBytes);
  const int error = interleave(f.fd(), 2 * kHugePageBytes, nodes);
  if (error == EPERM || error == ENOSYS) return;  // a sandbox's filter of system calls
  CHECK_EQ(error, 0);
  char* const p = static_cast<char*>(map_aligned(f.fd(), 0, 2 * kHugePageBytes));
  p[0] = 1;
  char line[512], wanted[32];
  snprintf(wanted, sizeof wanted, "%lx interleave", reinterpret_cast<unsigned long>(p));
  FILE* const maps = fopen("/proc/self/numa_maps", "re");
  CHECK(maps != nullptr);
  bool found = false;
  while (fgets(line, sizeof line, maps) != nullptr) found |= strncmp(line, wanted, strlen(wanted)) == 0;
  fclose(maps);
  munmap(p, 2 * kHugePageBytes);
  CHECK(found);
  CHECK_EQ(interleave(-1, kHugePageBytes, nodes), EBADF);
}

}  // namespace shmreplay::test
