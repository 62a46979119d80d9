// A checkpoint in memory, and the arena that is restored from it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_restore.h"
#include "checkpoint/checkpoint_save.h"
#include "support/fixtures.h"

namespace shmreplay::test {

struct SavedPattern {
  uint32_t record, num_outputs, num_slices;
  std::string blob;
};

struct SavedArena {
  uint64_t next_seq = 0, next_stream_serial = 0;
  std::vector<SavedTable> tables;
  std::vector<SavedPattern> patterns;
  std::vector<std::pair<CheckpointSave::Slice, std::string>> slices;
};

// Saves what the copy of the index says by itself, then every slice, with `room` bytes for each. false: the checkpoint
// was given up, or the lock could not be taken.
bool save_rest(CheckpointSave& save, uint64_t room, const Wait& wait, SavedArena& out);

// Saves all of it, by a session of its own that is closed afterwards. The test fails if the checkpoint is given up.
SavedArena save_arena(Arena& arena, uint64_t room = 1 << 16);

// Segments, and the restored arena in them.
class RestoredWorld {
 public:
  RestoredWorld(const ArenaSpec& spec, const SavedArena& saved);
  Segments segments;
  std::unique_ptr<Arena> daemon, own;
  const TableFacts& table(uint32_t i = 0) const { return own->table(i); }
};

}  // namespace shmreplay::test
