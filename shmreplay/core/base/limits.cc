#include "base/limits.h"

#include <cerrno>
#include <cstdint>
#include <sys/resource.h>
#include <unistd.h>

namespace shmreplay {
namespace {

// RLIM_INFINITY if it cannot be asked: then there is nothing to advise.
rlim_t soft_limit(__rlimit_resource kind) noexcept {
  rlimit limit{};
  return getrlimit(kind, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string this_process() { return "process " + std::to_string(getpid()); }

std::string open_files() {
  return this_process() + " may have " + std::to_string(soft_limit(RLIMIT_NOFILE)) +
         " files open: raise ulimit -n, or LimitNOFILE= of its unit, or close files";
}

std::string file_size() {
  const rlim_t limit = soft_limit(RLIMIT_FSIZE);
  if (limit == RLIM_INFINITY) return "the file system takes no file of that size";
  return "a file of " + this_process() + " may have " + std::to_string(limit) +
         " bytes: raise ulimit -f, or LimitFSIZE= of its unit";
}

std::string address_space() {
  const rlim_t limit = soft_limit(RLIMIT_AS);
  if (limit == RLIM_INFINITY) {
    return this_process() + " has no limit of its address space: is all memory committed (vm.overcommit_memory=2), " +
           "or has it more mappings than vm.max_map_count?";
  }
  return "the address space of " + this_process() + " may have " + std::to_string(limit) +
         " bytes: raise ulimit -v, or LimitAS= of its unit";
}

}  // namespace

std::string limit_behind(int error) {
  switch (error) {
    case EMFILE: return open_files();
    case ENFILE: return "the machine has as many files open as it may: raise fs.file-max (sysctl)";
    case EFBIG: return file_size();
    case ENOMEM: return address_space();
    default: return "";
  }
}

std::system_error refused(int error, const std::string& what) {
  const std::string limit = limit_behind(error);
  return {error, std::generic_category(), limit.empty() ? what : what + " (" + limit + ")"};
}

bool address_space_is_limited() noexcept { return soft_limit(RLIMIT_AS) != RLIM_INFINITY; }

}  // namespace shmreplay
