// Waiting for a call slot, of a read that found all of them in use.
#pragma once

#include "arena/arena.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

// Until a slot may be free: kOk. More processes than slots may be reading when they outnumber the cores and are taken
// off them in the middle of a gather. kNoCallSlots at the deadline; kInterrupted. Never while holding a lease.
Status wait_for_call_slot(Arena& arena, const Wait& wait);

}  // namespace shmreplay
