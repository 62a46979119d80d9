#include "base/process.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace shmreplay {
namespace {

// Whether the numbers in /proc are those of this process' pid namespace. In a namespace that has not mounted its own,
// /proc/<pid> is about somebody else, or about nobody.
bool proc_is_ours() noexcept {
  char own[24] = {}, shown[24] = {};
  snprintf(own, sizeof own, "%d", static_cast<int>(getpid()));
  return readlink("/proc/self", shown, sizeof shown - 1) > 0 && strcmp(own, shown) == 0;
}

// The beginning of a file, with a 0 after it. false: unreadable.
bool read_file(const char* path, char* text, size_t bytes) noexcept {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, bytes - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  return true;
}

// The beginning of a file of /proc/<id>, with a 0 after it. false: unreadable, or that of another pid namespace.
bool read_proc(uint32_t id, const char* name, char* text, size_t bytes) noexcept {
  char path[40];
  snprintf(path, sizeof path, "/proc/%u/%s", id, name);
  return proc_is_ours() && read_file(path, text, bytes);
}

// As read_proc. A process' own file is right in a /proc of another pid namespace, too.
bool read_stat(uint32_t pid, char* text, size_t bytes) noexcept {
  const bool is_own = pid == static_cast<uint32_t>(getpid());
  return is_own ? read_file("/proc/self/stat", text, bytes) : read_proc(pid, "stat", text, bytes);
}

// The pid has another owner than the process that began at start_time: a later process, or a thread.
bool pid_was_given_anew(uint32_t pid, uint64_t start_time) noexcept {
  const uint32_t process = process_of_thread(pid);
  if (process != 0 && process != pid) return true;
  const uint64_t now = start_time == 0 ? 0 : process_start_time(pid);
  return now != 0 && now != start_time;
}

}  // namespace

uint64_t process_start_time(uint32_t pid) noexcept {
  char text[1024];
  if (!read_stat(pid, text, sizeof text)) return 0;
  const char* at = strrchr(text, ')');  // the command may hold spaces and brackets
  unsigned long long start = 0;
  // Fields after the command: state is the 3rd, start time the 22nd.
  if (at == nullptr ||
      sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start) !=
          1) {
    return 0;
  }
  return start;
}

bool process_is_dead(uint32_t pid, uint64_t start_time) noexcept {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno == ESRCH) return true;
  if (fd >= 0) {
    pollfd p{fd, POLLIN, 0};
    const bool ended = poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
    close(fd);
    if (ended) return true;
  }
  // Other errors prove nothing. The pid may be a thread's by now (ENOENT, or EINVAL of older kernels), or there is no
  // descriptor left.
  return pid_was_given_anew(pid, start_time);
}

uint32_t process_of_thread(uint32_t thread) noexcept {
  char text[1024];
  if (!read_proc(thread, "status", text, sizeof text)) return 0;
  const char* at = strstr(text, "\nTgid:");
  unsigned process = 0;
  return at != nullptr && sscanf(at, "\nTgid: %u", &process) == 1 ? process : 0;
}

bool thread_is_gone(uint32_t thread) noexcept { return syscall(SYS_tkill, thread, 0) != 0 && errno == ESRCH; }

}  // namespace shmreplay
