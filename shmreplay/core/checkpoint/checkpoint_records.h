// What a checkpoint's sections hold besides msgpack: fixed little-endian records. Also a table's words, which are
// msgpack in the file. docs/checkpoints.md describes the file for people; change both together, with the format's
// version.
#pragma once

#include <bit>
#include <vector>

#include "arena/arena.h"

namespace shmreplay {

static_assert(std::endian::native == std::endian::little, "a checkpoint's records are written as they lie");

// What a slice of the file holds; the numbers in the file are 16 higher.
enum class SavedPart : int { kPieces = 0, kItems = 1, kFreeSlots = 2, kChunks = 3, kEnd = 4 };

struct SavedItem {
  uint64_t seq;
  double priority;
  uint64_t episode;
  int64_t step;
  uint64_t insert_no, touch;
  uint32_t slot, times_sampled;
  uint32_t chunk, row, num_steps;
  uint32_t pattern;
  uint32_t before, after;             // padding
  uint32_t sampler_pos, remover_pos;  // in the dense arrays, whose order decides the draws
  uint32_t episode_slot;              // of the table; kNone: an episode of its own
  uint32_t value_block, value_bytes;  // a BlockRef, {kNone, 0}: no values
  uint32_t reserved;
};

// Free slots first, first + 1, ... in the order in which items get them, because a sum tree draws by slots.
struct SavedRun { uint32_t first, count; };

struct SavedChunk {
  uint64_t stream_serial;
  uint32_t chunk, rows;  // rows as in ChunkLife
  uint32_t saved_rows;   // rows that items show; the others are not in the file
  uint32_t prev, next;   // neighbours in the stream, as far as they are saved
  uint32_t repeats;      // as in ChunkLife
};

// A part of one chunk's bytes: this header, then `bytes` bytes. A chunk's parts follow one another from offset 0 on.
struct SavedPiece {
  uint32_t chunk, rows;
  uint32_t num_blocks, reserved;
  uint64_t offset, bytes;
};

struct SavedBlock {
  uint32_t block, next;  // the next one in its chunk's chain that is saved; kNone: there is none
};

static_assert(sizeof(SavedItem) == 104 && sizeof(SavedChunk) == 32 && sizeof(SavedPiece) == 32 &&
              sizeof(SavedRun) == 8);

// The words of a table that cannot be derived from its specs or its items.
struct SavedTable {
  uint64_t next_insert_no = 1, next_touch = 1;
  uint64_t num_deleted_episodes = 0, num_unique_samples = 0, evicted = 0, evicted_for_room = 0;
  uint64_t remover_rng = 0, inserts = 0, samples = 0, uncounted = 0;
  uint32_t structure_pattern = kNone, most_chunks = 0;
  double sampler_exponent = 1, remover_exponent = 1;
  double samples_per_insert = 1, min_diff = 0, max_diff = 0, offset = 0;
  int64_t min_size_to_sample = 1;
  bool count_deletes = false;
  std::vector<uint32_t> longest;  // rows of each output
};

// Calls visit(name, field) for each field; the names are those in the file.
template <class Table, class Visit>
void each_field(Table& t, Visit visit) {
  visit("next_insert_no", t.next_insert_no);
  visit("next_touch", t.next_touch);
  visit("num_deleted_episodes", t.num_deleted_episodes);
  visit("num_unique_samples", t.num_unique_samples);
  visit("evicted", t.evicted);
  visit("evicted_for_room", t.evicted_for_room);
  visit("remover_rng", t.remover_rng);
  visit("inserts", t.inserts);
  visit("samples", t.samples);
  visit("uncounted", t.uncounted);
  visit("structure_pattern", t.structure_pattern);
  visit("most_chunks", t.most_chunks);
  visit("sampler_exponent", t.sampler_exponent);
  visit("remover_exponent", t.remover_exponent);
  visit("samples_per_insert", t.samples_per_insert);
  visit("min_diff", t.min_diff);
  visit("max_diff", t.max_diff);
  visit("offset", t.offset);
  visit("min_size_to_sample", t.min_size_to_sample);
  visit("count_deletes", t.count_deletes);
  visit("longest", t.longest);
}

// Calls visit(field, word) for each field that is a single word of the table's record.
template <class Table, class Record, class Visit>
void each_word(Table& t, Record& r, Visit visit) {
  visit(t.next_insert_no, r.next_insert_no);
  visit(t.next_touch, r.next_touch);
  visit(t.num_deleted_episodes, r.num_deleted_episodes);
  visit(t.num_unique_samples, r.num_unique_samples);
  visit(t.evicted, r.evicted);
  visit(t.evicted_for_room, r.evicted_for_room);
  visit(t.remover_rng, r.remover_rng);
  visit(t.inserts, r.limiter.inserts);
  visit(t.samples, r.limiter.samples);
  visit(t.uncounted, r.limiter.uncounted);
  visit(t.most_chunks, r.most_chunks);
  visit(t.sampler_exponent, r.exponents[kSampler]);
  visit(t.remover_exponent, r.exponents[kRemover]);
  visit(t.samples_per_insert, r.limiter.samples_per_insert);
  visit(t.min_diff, r.limiter.min_diff);
  visit(t.max_diff, r.limiter.max_diff);
  visit(t.offset, r.limiter.offset);
  visit(t.min_size_to_sample, r.limiter.min_size_to_sample);
}

SavedTable saved_table(const TableRecord& record);

}  // namespace shmreplay
