#include "checkpoint_records.h"

#include <algorithm>
#include <cstring>

namespace shmreplay {

SavedTable saved_table(const TableRecord& r) {
  SavedTable s;
  s.next_insert_no = r.next_insert_no.get();
  s.next_touch = r.next_touch.get();
  s.num_deleted_episodes = r.num_deleted_episodes.get();
  s.num_unique_samples = r.num_unique_samples.get();
  s.evicted = r.evicted.get();
  s.evicted_for_room = r.evicted_for_room.get();
  s.remover_rng = r.remover_rng.get();
  s.structure_pattern = r.structure_hash.get() == 0 ? kNone : r.structure_pattern.get();
  s.most_chunks = r.most_chunks.get();
  s.sampler_exponent = r.exponents[kSampler].get();
  s.remover_exponent = r.exponents[kRemover].get();
  for (uint32_t o = 0; o < std::min(r.num_outputs.get(), kMaxOutputs); ++o) s.longest.push_back(r.longest[o].get());
  const Limiter& l = r.limiter;
  s.inserts = l.inserts.get();
  s.samples = l.samples.get();
  s.uncounted = l.uncounted.get();
  s.samples_per_insert = l.samples_per_insert.get();
  s.min_diff = l.min_diff.get();
  s.max_diff = l.max_diff.get();
  s.offset = l.offset.get();
  s.min_size_to_sample = l.min_size_to_sample.get();
  s.count_deletes = l.count_deletes.get() != 0;
  return s;
}

ChunkBytes::ChunkBytes(const Arena& arena, uint32_t chunk, uint32_t rows) : arena_(arena), chunk_(chunk), rows_(rows) {
  uint64_t row_bytes = uint64_t{arena.geometry().presence_words} * 8;
  for (const ColumnRecord& c : arena.columns()) row_bytes += c.row_bytes;
  size_ = row_bytes * rows;
}

// Calls visit(memory, bytes) for what lies in one piece, in order.
template <class Visit>
void ChunkBytes::each_part(uint64_t offset, uint64_t bytes, Visit visit) const {
  uint64_t begin = 0;
  const auto part = [&](char* memory, uint64_t size) {
    if (bytes > 0 && offset < begin + size) {
      const uint64_t here = std::min(bytes, begin + size - offset);
      visit(memory + (offset - begin), here);
      offset += here;
      bytes -= here;
    }
    begin += size;
  };
  part(arena_.chunk_data(chunk_) + arena_.geometry().presence_offset, uint64_t{arena_.geometry().presence_words} * 8 * rows_);
  for (uint32_t c = 0; c < arena_.columns().size(); ++c) {
    part(arena_.row(chunk_, c, 0), uint64_t{arena_.columns()[c].row_bytes} * rows_);
  }
}

void TouchedData::add(uint64_t bytes) noexcept {
  bytes_ += std::max<uint64_t>(bytes, 4096);
  if (bytes_ < kMost) return;
  arena_.leave_data();
  bytes_ = 0;
}

void ChunkBytes::read(uint64_t offset, uint64_t bytes, char* to) const {
  each_part(offset, bytes, [&to](const char* memory, uint64_t n) {
    std::memcpy(to, memory, n);
    to += n;
  });
}

void ChunkBytes::write(uint64_t offset, uint64_t bytes, const char* from) const {
  each_part(offset, bytes, [&from](char* memory, uint64_t n) {
    std::memcpy(memory, from, n);
    from += n;
  });
}

}  // namespace shmreplay
