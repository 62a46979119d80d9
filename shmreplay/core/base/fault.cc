#include "base/fault.h"

#ifdef SHMREPLAY_FAULTS

#include <csignal>
#include <unistd.h>

namespace shmreplay::fault {
namespace {
thread_local int64_t countdown_ = 0;
thread_local int64_t passed_ = 0;
thread_local const char* last_ = "";
thread_local void (*heard_)(const char*) = nullptr;
}  // namespace

void arm(int64_t countdown) noexcept {
  countdown_ = countdown;
  passed_ = 0;
  last_ = "";
}

int64_t passed() noexcept { return passed_; }

const char* last_name() noexcept { return last_; }

void listen(void (*heard)(const char* name)) noexcept { heard_ = heard; }

void point(const char* name) noexcept {
  ++passed_;
  last_ = name;
  if (heard_ != nullptr) heard_(name);
  if (countdown_ > 0 && --countdown_ == 0) kill(getpid(), SIGKILL);
}

}  // namespace shmreplay::fault

#endif
