// What the kernel says of other processes and threads: whether one is dead, since when one runs, which process a thread
// belongs to.
//
// A process is dead when the kernel says so: there is no such pid, or the pidfd is that of a zombie (readable), or
// another process or a thread has the pid by now. A silent process, a stopped one, an unreadable /proc, one of another
// pid namespace, and a lack of descriptors are not death.
#pragma once

#include <cstdint>

namespace shmreplay {

// Clock ticks since boot from /proc/<pid>/stat; 0 if unreadable.
uint64_t process_start_time(uint32_t pid) noexcept;

// start_time 0: it is unknown, so only the pid is looked at.
bool process_is_dead(uint32_t pid, uint64_t start_time) noexcept;

// The process that the thread belongs to, by /proc; 0 if unreadable. The first thread of a process has its pid.
uint32_t process_of_thread(uint32_t thread) noexcept;

// Whether the kernel knows no thread of that id. It does not need /proc, nor any permission.
bool thread_is_gone(uint32_t thread) noexcept;

}  // namespace shmreplay
