// Damage in the records of sessions, by which a daemon that takes an arena over knows whose sessions they are.
#pragma once

#include <string>

#include "arena/arena.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

// `damage` names the first record that neither open_session nor close_session can have left, and says what is wrong;
// empty if there is none. Takes the lock only if a record looks wrong: it may be about to be freed.
Status find_damaged_session(Arena& arena, const Wait& wait, std::string& damage);

}  // namespace shmreplay
