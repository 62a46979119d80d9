#include "base/host_identity.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"

namespace shmreplay {
namespace {

constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
constexpr size_t kBootIdBytes = 36;

[[noreturn]] void throw_unreadable(const std::string& path, int error) {
  const bool is_hidden = error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM;
  throw refused(error,
                path + " cannot be read" +
                    (is_hidden ? ", and shmreplay needs it: mount all of /proc here (without subset=pid), and let "
                                 "nothing lie over /proc/sys"
                               : ""));
}

}  // namespace

std::string boot_id() {
  const int fd = open(kBootId, O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_unreadable(kBootId, errno);
  char text[kBootIdBytes + 1] = {};
  ssize_t n = 0;
  do n = read(fd, text, kBootIdBytes);
  while (n < 0 && errno == EINTR);
  const int error = n < 0 ? errno : ENODATA;
  close(fd);
  if (n != static_cast<ssize_t>(kBootIdBytes) || strcspn(text, " \n") != kBootIdBytes) throw_unreadable(kBootId, error);
  return text;
}

uint64_t namespace_inode(const char* which) {
  struct stat st;
  const std::string path = std::string("/proc/self/ns/") + which;
  if (stat(path.c_str(), &st) == 0) return static_cast<uint64_t>(st.st_ino);
  const int error = errno;
  if (error == ENOENT && strcmp(which, "time") == 0 && stat("/proc/self/ns/pid", &st) == 0) return 0;
  throw_unreadable(path, error);
}

}  // namespace shmreplay
