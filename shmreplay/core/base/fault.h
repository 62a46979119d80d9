// Named points at which a fault build can die.
//
// A crash test arms the k-th point that this thread will pass. Reaching it raises SIGKILL, so the process stops between
// two instructions exactly as an OOM kill would stop it. In a normal build a point compiles to nothing.
#pragma once

#ifdef SHMREPLAY_FAULTS

#include <cstdint>

namespace shmreplay::fault {

// The point numbered `countdown` from now on (1 = the next one) kills the process. 0 disarms.
void arm(int64_t countdown) noexcept;

// Points passed by this thread since the last arm().
int64_t passed() noexcept;

// The name of the point passed last; tests report it.
const char* last_name() noexcept;

// `heard` is called with the name of every point that this thread passes, before the point kills; nullptr: nothing is.
void listen(void (*heard)(const char* name)) noexcept;

void point(const char* name) noexcept;

}  // namespace shmreplay::fault

#define SHMREPLAY_FAULT(name) ::shmreplay::fault::point(name)
#else
#define SHMREPLAY_FAULT(name) ((void)0)
#endif
