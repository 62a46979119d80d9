#include "checkpoint/checkpoint_restore.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "chunks/block_heap.h"
#include "items/check.h"
#include "items/item_table.h"
#include "items/rebuild.h"

namespace shmreplay {
namespace {

void expect(bool ok, const std::string& what) {
  if (!ok) throw RestoreError(what);
}

template <class Record, class Visit>
void each_record(const char* from, uint64_t bytes, const char* what, Visit visit) {
  expect(bytes % sizeof(Record) == 0,
         std::string(what) + ": " + std::to_string(bytes) + " bytes are not a whole number of records");
  for (uint64_t at = 0; at < bytes; at += sizeof(Record)) {
    Record record;
    std::memcpy(&record, from + at, sizeof record);
    visit(record);
  }
}

uint64_t random_below(std::random_device& device, uint64_t n) {
  const uint64_t word = uint64_t{device()} << 32 | device();
  return n == 0 ? 0 : word % n;
}

// A jump of 2^40 to 2^41. Keys hold the low `key_bits` of seq. The jump moves these bits up by at most a sixteenth of
// the numbers left, so that sorted keys stay in insertion order. All other bits of the jump are random.
uint64_t jump_from(uint64_t seq, uint32_t key_bits) {
  std::random_device device;
  constexpr uint64_t kLeast = uint64_t{1} << 40;
  if (key_bits >= 40) return kLeast + random_below(device, kLeast);
  const uint64_t period = uint64_t{1} << key_bits, low = seq % period;
  const uint64_t up = 1 + random_below(device, (period - low) / 16);
  const uint64_t turns = kLeast / period;
  return (turns + random_below(device, turns)) * period + up;
}

PreparedPattern decoded(const std::vector<uint64_t>& words, uint32_t num_outputs, uint32_t num_slices) {
  try {
    return PreparedPattern(
        Pattern::decode(words.data(), num_outputs, num_slices, static_cast<uint32_t>(words.size() * 8)));
  } catch (const CorruptIndex& e) {
    throw RestoreError(e.what());
  }
}

}  // namespace

Restorer::Restorer(Arena& unpublished)
    : arena_(unpublished),
      touched_(unpublished),
      bytes_(unpublished),
      rows_(arena_.geometry().num_chunks, 0),
      has_record_(arena_.geometry().num_chunks, false) {
  for (uint32_t role = 0; role < 2; ++role) positions_[role].resize(arena_.num_tables());
  free_slots_.resize(arena_.num_tables());
}

void Restorer::set_state(uint64_t next_seq, uint64_t next_stream_serial) {
  expect(next_seq > 0 && next_seq < uint64_t{1} << 62, "next_seq is " + std::to_string(next_seq));
  uint32_t slot_bits = 1;
  for (uint32_t i = 0; i < arena_.num_tables(); ++i) slot_bits = std::max(slot_bits, arena_.table(i).slot_bits);
  saved_next_seq_ = next_seq;
  arena_.state().next_seq.put(next_seq + jump_from(next_seq, 63 - kShardBits - slot_bits));
  arena_.state().next_stream_serial.put(next_stream_serial);
}

void Restorer::set_table(uint32_t table, const SavedTable& s) {
  TableRecord& r = *arena_.table(table).record;
  expect(s.longest.size() <= kMaxOutputs, "a table has " + std::to_string(s.longest.size()) + " outputs");
  expect(s.structure_pattern == kNone || s.structure_pattern < arena_.geometry().max_patterns,
         "structure_pattern is out of range");
  for (const double number :
       {s.samples_per_insert, s.min_diff, s.max_diff, s.offset, s.sampler_exponent, s.remover_exponent}) {
    expect(std::isfinite(number), "a limiter's number or an exponent is not finite");
  }
  each_word(s, r, [](const auto& field, auto& word) { word.put(field); });
  r.structure_pattern.put(s.structure_pattern);
  r.limiter.count_deletes.put(s.count_deletes ? 1 : 0);
  r.num_outputs.put(static_cast<uint32_t>(s.longest.size()));
  for (uint32_t o = 0; o < s.longest.size(); ++o) {
    expect(s.longest[o] <= kMaxRows, "a table has an output of " + std::to_string(s.longest[o]) + " rows");
    r.longest[o].put(s.longest[o]);
  }
}

void Restorer::set_pattern(uint32_t record, uint32_t num_outputs, uint32_t num_slices, const std::string& blob) {
  expect(record < arena_.geometry().max_patterns, "pattern " + std::to_string(record) + " is out of range");
  expect(blob.size() % 8 == 0 && blob.size() <= size_t{kPatternWords} * 8,
         "pattern " + std::to_string(record) + " has a bad size");
  std::vector<uint64_t> words(blob.size() / 8);
  if (!words.empty()) std::memcpy(words.data(), blob.data(), blob.size());
  const PreparedPattern p = decoded(words, num_outputs, num_slices);
  for (const PatternOutput& output : p.pattern.outputs) {
    expect(output.column < arena_.columns().size(),
           "pattern " + std::to_string(record) + " shows a column that does not exist");
  }
  PatternRecord& r = arena_.pattern(record);
  r.hash.put(p.hash);
  r.structure_hash.put(p.structure);
  r.usage.put({1, 0});
  r.size.put({num_outputs, num_slices});
  r.blob_bytes.put(static_cast<uint32_t>(p.blob.size() * 8));
  for (size_t i = 0; i < p.blob.size(); ++i) r.blob[i].put(p.blob[i]);
}

void Restorer::put(SavedPart part, uint32_t table, const char* from, uint64_t bytes) {
  switch (part) {
    case SavedPart::kPieces: put_pieces(from, bytes); return;
    case SavedPart::kItems: put_items(table, from, bytes); return;
    case SavedPart::kFreeSlots: put_free_slots(table, from, bytes); return;
    case SavedPart::kChunks: put_chunks(from, bytes); return;
    case SavedPart::kEnd: return;
  }
  throw RestoreError("a part of unknown kind " + std::to_string(static_cast<int>(part)));
}

void Restorer::put_pieces(const char* from, uint64_t bytes) {
  while (bytes > 0) {
    SavedPiece piece;
    expect(bytes >= sizeof piece, "a piece of a chunk is cut off");
    std::memcpy(&piece, from, sizeof piece);
    from += sizeof piece;
    bytes -= sizeof piece;
    const std::string at = "piece of chunk " + std::to_string(piece.chunk) + ": ";
    if (coming_ == kNone) begin_chunk(piece);
    expect(piece.chunk == coming_ && piece.rows == rows_[coming_] && piece.num_blocks == blocks_.size() &&
               piece.offset == offset_,
           at + "it does not follow the piece before it");
    expect(piece.bytes <= bytes && piece.bytes <= bytes_.size() - offset_, at + "it is longer than it can be");
    try {
      bytes_.write(offset_, piece.bytes, from);
    } catch (const CorruptIndex& e) {
      throw RestoreError(at + e.what());
    }
    offset_ += piece.bytes;
    touched_.add(piece.bytes);
    from += piece.bytes;
    bytes -= piece.bytes;
    if (offset_ == bytes_.size()) end_chunk();
  }
}

void Restorer::begin_chunk(const SavedPiece& piece) {
  const std::string at = "piece of chunk " + std::to_string(piece.chunk) + ": ";
  expect(piece.chunk < arena_.geometry().num_chunks,
         at + "there are only " + std::to_string(arena_.geometry().num_chunks));
  expect(piece.rows > 0 && piece.rows <= arena_.geometry().chunk_steps,
         at + "it has " + std::to_string(piece.rows) + " rows");
  expect(piece.num_blocks <= arena_.geometry().num_blocks,
         at + "it has " + std::to_string(piece.num_blocks) + " blocks");
  expect(rows_[piece.chunk] == 0, at + "it comes twice");
  coming_ = piece.chunk;
  rows_[coming_] = piece.rows;
  offset_ = 0;
  blocks_.assign(piece.num_blocks, {kNone, kNone});
  bytes_.begin(coming_, piece.rows, nullptr, blocks_.data(), piece.num_blocks);
}

// Gives the blocks to the chunk. Every value of its rows must lie in them.
void Restorer::end_chunk() {
  const std::string at = "chunk " + std::to_string(coming_) + ": ";
  for (const SavedBlock& b : blocks_) {
    expect(arena_.block(b.block).owner.get().chunk == kNone,
           at + "block " + std::to_string(b.block) + " belongs to another chunk");
    arena_.block(b.block).owner.put({coming_, arena_.chunk(coming_).life.get().generation});
    arena_.block(b.block).link.put({b.next, kNone});
  }
  for (uint32_t column = 0; column < arena_.columns().size(); ++column) {
    if (arena_.columns()[column].flags != kHeapColumn) continue;
    for (uint32_t row = 0; row < rows_[coming_]; ++row) {
      expect(is_own_value(value_of_row(arena_, coming_, column, row)), at + "a row's value does not lie in its blocks");
    }
  }
  coming_ = kNone;
}

bool Restorer::is_own_value(BlockRef ref) const {
  if (ref == kNoValue) return true;
  if (!fits_heap(arena_, ref.num_bytes)) return false;
  uint32_t b = ref.first_block;
  for (uint64_t n = blocks_of(arena_, ref.num_bytes); n > 0; --n) {
    if (b >= arena_.geometry().num_blocks || arena_.block(b).owner.get().chunk != coming_) return false;
    b = arena_.block(b).link.get().next_of_chunk;
  }
  return true;
}

void Restorer::put_items(uint32_t table, const char* from, uint64_t bytes) {
  const TableFacts& t = arena_.table(table);
  each_record<SavedItem>(from, bytes, "items", [&](const SavedItem& item) { put_item(t, item); });
}

void Restorer::put_item(const TableFacts& t, const SavedItem& s) {
  const std::string at = "table '" + t.name + "', item " + std::to_string(s.seq) + ": ";
  expect(s.slot < t.capacity, at + "slot " + std::to_string(s.slot) + " of " + std::to_string(t.capacity));
  const auto g = static_cast<uint32_t>(t.item_base + s.slot);
  ItemRecord& r = arena_.item(g);
  expect(r.seq.get() == 0, at + "slot " + std::to_string(s.slot) + " is taken");
  expect(s.seq > 0 && s.seq < saved_next_seq_, at + "its number is not below next_seq");
  expect(std::isfinite(s.priority) && s.priority >= 0 && s.priority <= kMaxPriority,
         at + "its priority is " + std::to_string(s.priority));
  expect(s.chunk < arena_.geometry().num_chunks && s.row < arena_.geometry().chunk_steps && s.num_steps > 0,
         at + "its place is out of range");
  expect(s.pattern < arena_.geometry().max_patterns && arena_.pattern(s.pattern).hash.get() != 0,
         at + "its pattern is missing");
  expect(s.before <= kMaxRows && s.after <= kMaxRows,
         at + "it has " + std::to_string(std::max(s.before, s.after)) + " rows of padding");
  expect(!t.consumes() || s.times_sampled < t.max_times_sampled, at + "it was sampled too often to be there");
  expect(s.episode_slot == kNone || s.episode_slot < t.capacity, at + "its episode's slot is out of range");
  r.seq.put(s.seq);
  r.counted.put({s.times_sampled, s.sampler_pos});
  r.place.put({s.chunk, s.row});
  r.extent.put({s.num_steps, s.pattern});
  r.padding.put({s.before, s.after});
  r.episode.put(s.episode);
  r.step.put(s.step);
  r.insert_no.put(s.insert_no);
  const uint32_t episode = s.episode_slot == kNone ? kNone : static_cast<uint32_t>(t.item_base) + s.episode_slot;
  arena_.links(g).tail.put({s.remover_pos, episode});
  arena_.links(g).touch.put(s.touch);
  arena_.priority(g).put(s.priority);
  if (arena_.has_values()) arena_.values(g).put({s.value_block, s.value_bytes});
  note_position(t.index, kSampler, s.sampler_pos, s.slot);
  note_position(t.index, kRemover, s.remover_pos, s.slot);
}

void Restorer::note_position(uint32_t table, uint32_t role, uint32_t position, uint32_t slot) {
  const TableFacts& t = arena_.table(table);
  if (t.roles[role].dense == 0) return;
  std::vector<uint32_t>& order = positions_[role][table];
  expect(position < t.capacity,
         "table '" + t.name + "': an item's position " + std::to_string(position) + " is out of range");
  if (position >= order.size()) order.resize(position + 1, kNone);
  expect(order[position] == kNone, "table '" + t.name + "': two items have position " + std::to_string(position));
  order[position] = slot;
}

void Restorer::put_free_slots(uint32_t table, const char* from, uint64_t bytes) {
  const TableFacts& t = arena_.table(table);
  each_record<SavedRun>(from, bytes, "free slots", [&](const SavedRun& run) {
    expect(run.count > 0 && run.first < t.capacity && run.count <= t.capacity - run.first,
           "table '" + t.name + "': a run of " + std::to_string(run.count) + " free slots from " +
               std::to_string(run.first));
    free_slots_[table].push_back(run);
  });
}

void Restorer::put_chunks(const char* from, uint64_t bytes) {
  each_record<SavedChunk>(from, bytes, "chunks", [this](const SavedChunk& chunk) { put_chunk(chunk); });
}

void Restorer::put_chunk(const SavedChunk& s) {
  const uint32_t n = arena_.geometry().num_chunks;
  const std::string at = "chunk " + std::to_string(s.chunk) + ": ";
  expect(s.chunk < n, at + "there are only " + std::to_string(n));
  expect(!has_record_[s.chunk], at + "it comes twice");
  expect(s.rows <= arena_.geometry().chunk_steps && s.saved_rows <= s.rows,
         at + "it has " + std::to_string(s.rows) + " rows");
  expect(s.repeats == 0 || (s.repeats == 1 && s.rows == arena_.geometry().chunk_steps),
         at + "it repeats a row that it does not have");
  expect(rows_[s.chunk] == s.saved_rows && coming_ == kNone, at + "its rows are not whole");
  expect((s.prev == kNone || s.prev < n) && (s.next == kNone || s.next < n), at + "its neighbours are out of range");
  has_record_[s.chunk] = true;
  ChunkRecord& r = arena_.chunk(s.chunk);
  r.life.put({kChunkUsed, s.repeats, s.rows, r.life.get().generation});
  r.stamp.put(++num_chunks_);  // in the order taken
  r.stream.put({s.prev, s.next});
  r.stream_serial.put(s.stream_serial);
}

// Puts the dense array in its saved order instead of insertion order, so that the same random numbers draw the same
// items.
void Restorer::keep_order(const TableFacts& t, Role role) {
  if (t.roles[role].dense == 0) return;
  std::vector<uint32_t>& order = positions_[role][t.index];
  expect(order.size() == t.record->size.get(), "table '" + t.name + "': its items' positions leave gaps");
  Word<uint32_t>* dense = arena_.at<Word<uint32_t>>(t.roles[role].dense);
  for (uint32_t i = 0; i < order.size(); ++i) {
    expect(order[i] != kNone, "table '" + t.name + "': no item has position " + std::to_string(i));
    const auto g = static_cast<uint32_t>(t.item_base + order[i]);
    dense[i].put(order[i]);
    if (role == kSampler) arena_.item(g).counted.put({arena_.item(g).counted.get().times_sampled, i});
    else arena_.links(g).tail.put({i, arena_.links(g).tail.get().episode_slot});
  }
  order = {};
}

// Puts the list of free slots in its saved order instead of an ascending one, so that the next items get the slots that
// they would have got.
void Restorer::keep_free_slots(const TableFacts& t) {
  TableRecord& r = *t.record;
  uint32_t previous = kNone;
  uint64_t count = 0;
  for (auto run = free_slots_[t.index].rbegin(); run != free_slots_[t.index].rend(); ++run) {
    for (uint32_t slot = run->first + run->count; slot-- > run->first; ++count) {
      const auto g = static_cast<uint32_t>(t.item_base + slot);
      expect(arena_.item(g).seq.get() == 0, "table '" + t.name + "': slot " + std::to_string(slot) + " is not free");
      arena_.links(g).order.put({kNone, previous});
      previous = g;
    }
  }
  expect(count == t.capacity - r.size.get(),
         "table '" + t.name + "': its list of free slots has " + std::to_string(count));
  r.free_item.put(previous);
  free_slots_[t.index] = {};
}

void Restorer::check_neighbours() const {
  for (uint32_t c = 0; c < rows_.size(); ++c) {
    const std::string at = "chunk " + std::to_string(c) + ": ";
    expect(has_record_[c] == (rows_[c] > 0), at + "its record is missing");
    if (!has_record_[c]) continue;
    const Link link = arena_.chunk(c).stream.get();
    expect(link.prev == kNone || has_record_[link.prev], at + "its neighbour is missing");
    expect(link.next == kNone || has_record_[link.next], at + "its neighbour is missing");
  }
}

void Restorer::finish(const Wait& wait) {
  expect(saved_next_seq_ != 0, "the arena's state is missing");
  check_neighbours();
  arena_.state().next_take.put(uint64_t{num_chunks_} + 1);
  for (uint32_t i = 0; i < arena_.num_tables(); ++i) {
    TableRecord& r = *arena_.table(i).record;
    if (r.structure_pattern.get() == kNone) continue;
    const PatternRecord& p = arena_.pattern(r.structure_pattern.get());
    expect(p.hash.get() != 0 && p.size.get().num_outputs == r.num_outputs.get(), "no pattern has a table's structure");
    r.structure_hash.put(p.structure_hash.get());
  }
  std::vector<std::string> faults;
  try {
    if (rebuild(arena_, wait) != Status::kOk) throw RestoreError("the arena could not be rebuilt");
    for (uint32_t i = 0; i < arena_.num_tables(); ++i) {
      for (const Role role : {kSampler, kRemover}) keep_order(arena_.table(i), role);
      keep_free_slots(arena_.table(i));
      const TableRecord& r = *arena_.table(i).record;
      expect(r.size.get() == 0 || r.structure_pattern.get() != kNone,
             "table '" + arena_.table(i).name + "' has items and no structure");
    }
    if (check_invariants(arena_, wait, faults) != Status::kOk) throw RestoreError("the arena could not be checked");
  } catch (const CorruptIndex& e) {
    throw RestoreError(std::string("the records do not fit together: ") + e.what());
  }
  expect(faults.empty(), faults.empty() ? "" : "the records do not fit together: " + faults.front());
}

}  // namespace shmreplay
