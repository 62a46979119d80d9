// How a read that found all call slots in use waits for one.
#pragma once

#include "arena/arena.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

// Waits until a slot may be free: kOk. kNoCallSlots at the deadline; kInterrupted. Never called with a lease in hand.
//
// Reads can outnumber the slots when processes outnumber the cores and are descheduled in the middle of a gather.
Status wait_for_call_slot(Arena& arena, const Wait& wait);

}  // namespace shmreplay
