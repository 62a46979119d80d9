// What tells this boot and this process' namespaces from others. Segments say which they were made in.
//
// Nothing unreadable counts as a value: two processes that cannot read it would take themselves for neighbours, and one
// that cannot would take a healthy segment for a foreign one. Both throw std::system_error, which names the file.
#pragma once

#include <cstdint>
#include <string>

namespace shmreplay {

std::string boot_id();  // the kernel's name for the time since the last boot, with dashes

// The inode of a namespace of this process, "pid" or "time". 0: the kernel has no such namespaces (time: Linux 5.6).
uint64_t namespace_inode(const char* which);

}  // namespace shmreplay
