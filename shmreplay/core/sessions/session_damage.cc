#include "sessions/session_damage.h"

#include <time.h>
#include <unistd.h>

#include "arena/hold.h"

namespace shmreplay {
namespace {

constexpr uint32_t kMaxPid = 1u << 22;  // the kernel's PID_MAX_LIMIT

// Of this second, rounded up.
uint64_t ticks_since_boot() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec + 1) * static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
}

std::string damage_of(const SessionRecord& r) {
  const StateGeneration state = r.state.get();
  const uint32_t pid = r.process.get().pid;
  const uint64_t start_time = r.start_time.get();
  if (state.state > kSessionReaping) return "its state is " + std::to_string(state.state);
  if (state.state == kSessionFree) {
    if (pid == 0 && start_time == 0) return "";
    return "it is free, but has process " + std::to_string(pid) + " of tick " + std::to_string(start_time);
  }
  if (pid == 0 || pid > kMaxPid) return "its pid is " + std::to_string(pid);
  if (state.generation == 0) return "its generation is 0";
  if (start_time > ticks_since_boot())
    return "its process started in the future, at tick " + std::to_string(start_time);
  return "";
}

std::string first_damage(const Arena& arena) {
  for (uint32_t i = 0; i < arena.geometry().max_sessions; ++i) {
    const std::string damage = damage_of(arena.session(i));
    if (!damage.empty()) return "the record of session " + std::to_string(i) + " is damaged: " + damage;
  }
  return "";
}

}  // namespace

Status find_damaged_session(Arena& arena, const Wait& wait, std::string& damage) {
  damage = first_damage(arena);
  if (damage.empty()) return Status::kOk;
  Hold hold(arena);
  if (const Status s = hold.begin(wait); s != Status::kOk) return s;
  damage = first_damage(arena);
  return Status::kOk;
}

}  // namespace shmreplay
