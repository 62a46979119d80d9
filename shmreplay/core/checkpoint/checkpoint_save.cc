#include "checkpoint/checkpoint_save.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <system_error>

#include "arena/chunk_wait.h"
#include "arena/span.h"
#include "chunks/block_heap.h"
#include "chunks/save_lease.h"
#include "items/item_table.h"

namespace shmreplay {
namespace {

// Memory whose pages are all there: a first touch inside the hold would cost half a microsecond a page.
char* touched_memory(uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "memory for a copy of the index");
  madvise(p, bytes, MADV_HUGEPAGE);  // advice: if it is taken, there are fewer pages to touch
  std::memset(p, 0, bytes);
  return static_cast<char*>(p);
}

template <class Record>
uint64_t put_record(char* to, const Record& record) {
  std::memcpy(to, &record, sizeof record);
  return sizeof record;
}

}  // namespace

CheckpointSave::CheckpointSave(Arena& arena)
    : arena_(arena),
      image_bytes_((arena.has_values() ? arena.offsets().selectors : arena.offsets().episodes) -
                   arena.offsets().chunks),
      rows_(arena.geometry().num_chunks, 0),
      is_copied_(arena.geometry().num_chunks, false),
      bytes_(arena),
      touched_(arena) {
  wanted_.reserve(kWanted);
  image_ = touched_memory(image_bytes_);
}

CheckpointSave::~CheckpointSave() {
  if (session_ != kNone) drop_save_lease_of(arena_, session_, generation_);
  munmap(image_, image_bytes_);
}

uint64_t CheckpointSave::chunks_taken() const noexcept { return arena_.state().next_take.get() - next_take_; }

Status CheckpointSave::take(uint32_t session, uint32_t generation, const Wait& wait, bool& busy) {
  busy = false;
  for (;;) {
    Hold hold(arena_);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    bool is_resetting = false;
    for (uint32_t i = 0; i < arena_.num_tables() && !is_resetting; ++i) {
      const TableFacts& t = arena_.table(i);
      if (t.record->flags.get() & kDropped) return Status::kClosed;
      is_resetting = (t.record->flags.get() & kResetting) != 0;
      if (is_resetting) reset_slice(hold, t);
    }
    if (is_resetting) continue;
    busy = is_being_saved(arena_);
    if (busy) return Status::kOk;
    copy_index(hold, session, generation);
    break;
  }
  count_rows();
  return Status::kOk;
}

void CheckpointSave::copy_index(Hold& hold, uint32_t session, uint32_t generation) noexcept {
  const ArenaState& s = arena_.state();
  next_seq_ = s.next_seq.get();
  next_stream_serial_ = s.next_stream_serial.get();
  next_take_ = s.next_take.get();
  num_free_ = s.num_free.get();
  oldest_ = in_order_ = s.used_chunks.get().head;
  std::memcpy(image_, arena_.index() + arena_.offsets().chunks, image_bytes_);
  const auto* chunks = at<ChunkRecord>(arena_.offsets().chunks);
  for (uint32_t c = 0; c < arena_.geometry().num_chunks;) {
    uint64_t bits = 0;
    const uint32_t first = c, end = std::min(c / 64 * 64 + 64, arena_.geometry().num_chunks);
    for (; c < end; ++c) bits |= uint64_t{chunks[c].refs.get().items > 0} << (c % 64);
    arena_.save_word(first).store(bits, std::memory_order_relaxed);  // covered by the owner: see begin_saving
    SHMREPLAY_FAULT("save.bits_set");
  }
  session_ = session;
  generation_ = generation;
  begin_saving(hold, session, generation);
}

// Counts how many rows of each chunk the items show.
void CheckpointSave::count_rows() {
  const auto record = [this](uint32_t c) -> const ChunkRecord& { return chunk(c); };
  for (uint32_t i = 0; i < arena_.num_tables(); ++i) {
    const TableFacts& t = arena_.table(i);
    const ItemRecord* items = at<ItemRecord>(arena_.offsets().items) + t.item_base;
    for (uint32_t slot = 0; slot < t.capacity; ++slot) {
      if (items[slot].seq.get() == 0) continue;
      total_bytes_ += sizeof(SavedItem);
      each_run_among(record, arena_.geometry().chunk_steps, items[slot].place.get(), items[slot].extent.get().num_steps,
                     [this](uint32_t c, uint32_t row, uint32_t n) { rows_[c] = std::max(rows_[c], row + n); });
    }
  }
  for (uint32_t c = 0; c < rows_.size(); ++c) {
    if ((rows_[c] > 0) != (chunk(c).refs.get().items > 0)) corrupt("a chunk's references are not those of the items");
    if (rows_[c] == 0) continue;
    ++num_chunks_;
    total_bytes_ += ChunkBytes::size_of(arena_, rows_[c], 0) + sizeof(SavedPiece) + sizeof(SavedChunk);
  }
}

Status CheckpointSave::fill(char* buffer, uint64_t room, const Wait& wait, Slice& slice) {
  Status status = Status::kOk;
  slice = {part_, table_, 0};
  switch (part_) {
    case SavedPart::kPieces: slice.bytes = fill_pieces(buffer, room, wait, status); break;
    case SavedPart::kItems:
      slice.bytes = fill_items(buffer, room, table_);
      if (slot_ < arena_.table(table_).capacity) break;
      part_ = SavedPart::kFreeSlots;
      free_ = this->table(table_).free_item.get();
      break;
    case SavedPart::kFreeSlots:
      slice.bytes = fill_free_slots(buffer, room, table_);
      if (free_ != kNone) break;
      slot_ = 0;
      walked_ = 0;
      part_ = ++table_ < arena_.num_tables() ? SavedPart::kItems : SavedPart::kChunks;
      in_order_ = oldest_;
      break;
    case SavedPart::kChunks:
      slice.bytes = fill_chunks(buffer, room);
      if (in_order_ == kNone) part_ = SavedPart::kEnd;
      break;
    case SavedPart::kEnd: break;
  }
  return status;
}

uint64_t CheckpointSave::fill_pieces(char* buffer, uint64_t room, const Wait& wait, Status& status) {
  uint64_t used = 0;
  looked_ = false;
  bool is_done = false;
  while (room - used > sizeof(SavedPiece) && !is_done) {
    if (copying_ == kNone && !next_piece_chunk(wait, status)) {
      is_done = true;
      break;
    }
    const uint64_t here = std::min(room - used - sizeof(SavedPiece), bytes_.size() - offset_);
    const auto num_blocks = static_cast<uint32_t>(blocks_.size());
    used += put_record(buffer + used, SavedPiece{copying_, rows_[copying_], num_blocks, 0, offset_, here});
    bytes_.read(offset_, here, buffer + used);
    used += here;
    offset_ += here;
    touched_.add(here);
    if (offset_ == bytes_.size()) {
      end_copy(arena_, copying_);
      copying_ = kNone;
    }
  }
  given_up_ = !is_saving(arena_, session_, generation_);
  wake_chunk_waiters(arena_);
  if (is_done && status == Status::kOk && !given_up_) {
    drop_save_lease_of(arena_, session_, generation_);
    part_ = SavedPart::kItems;
  }
  return used;
}

// Finds the next chunk to copy. false: all are copied, or `status` says why there is none.
bool CheckpointSave::next_piece_chunk(const Wait& wait, Status& status) {
  if (wanted_.empty() && !looked_ && is_short_of_chunks()) {
    looked_ = true;
    status = find_wanted(wait);
    if (status != Status::kOk) return false;
  }
  while (copying_ == kNone && !wanted_.empty()) {
    if (!is_copied_[wanted_.back()]) copying_ = wanted_.back();
    wanted_.pop_back();
  }
  for (uint64_t n = 0; copying_ == kNone && in_order_ != kNone; in_order_ = chunk(in_order_).age.get().next) {
    if (++n > rows_.size()) corrupt("the list of used chunks does not end");
    if (rows_of(in_order_) > 0 && !is_copied_[in_order_]) copying_ = in_order_;
  }
  if (copying_ == kNone) return false;
  is_copied_[copying_] = true;
  begin_chunk(copying_);
  return true;
}

void CheckpointSave::begin_chunk(uint32_t c) {
  refs_.clear();
  blocks_.clear();
  offset_ = 0;
  if (arena_.geometry().num_blocks > 0) {
    add_blocks_of_rows(c);
    add_blocks_of_items(c);
    link_blocks();
  }
  bytes_.begin(c, rows_[c], refs_.empty() ? nullptr : refs_.data(), blocks_.data(),
               static_cast<uint32_t>(blocks_.size()));
}

// Lists each block once, with the next one in the chain: several values of the chunk may lead to one block.
void CheckpointSave::link_blocks() {
  const auto is_less = [](const SavedBlock& x, const SavedBlock& y) { return x.block < y.block; };
  const auto is_same = [](const SavedBlock& x, const SavedBlock& y) { return x.block == y.block; };
  std::sort(blocks_.begin(), blocks_.end(), is_less);
  blocks_.erase(std::unique(blocks_.begin(), blocks_.end(), is_same), blocks_.end());
  for (SavedBlock& b : blocks_) {
    const uint32_t next = at<BlockRecord>(arena_.offsets().blocks)[b.block].link.get().next_of_chunk;
    b.next = std::binary_search(blocks_.begin(), blocks_.end(), SavedBlock{next, kNone}, is_less) ? next : kNone;
  }
}

// Adds the blocks of a value, as they were at the instant. false: the value is not the chunk's; its cell was never
// written.
bool CheckpointSave::add_blocks(uint32_t c, BlockRef ref) {
  if (ref == kNoValue || !fits_heap(arena_, ref.num_bytes)) return false;
  const size_t before = blocks_.size();
  const uint32_t generation = chunk(c).life.get().generation;
  uint32_t b = ref.first_block;
  for (uint64_t n = blocks_of(arena_, ref.num_bytes); n > 0; --n) {
    const BlockRecord* r = b < arena_.geometry().num_blocks ? &at<BlockRecord>(arena_.offsets().blocks)[b] : nullptr;
    if (r == nullptr || r->owner.get().chunk != c || r->owner.get().generation != generation) {
      blocks_.resize(before);
      return false;
    }
    blocks_.push_back({b, kNone});
    b = r->link.get().next_of_chunk;
  }
  return true;
}

void CheckpointSave::add_blocks_of_rows(uint32_t c) {
  for (uint32_t column = 0; column < arena_.columns().size(); ++column) {
    if (arena_.columns()[column].flags != kHeapColumn) continue;
    for (uint32_t row = 0; row < rows_[c]; ++row) {
      const BlockRef ref = value_of_row(arena_, c, column, row);
      refs_.push_back(add_blocks(c, ref) ? ref : kNoValue);
    }
  }
}

// Adds the blocks of what items that begin in the chunk brought.
void CheckpointSave::add_blocks_of_items(uint32_t c) {
  if (!arena_.has_values()) return;
  const uint64_t most = std::min<uint64_t>(chunk(c).refs.get().items, arena_.geometry().total_items);
  uint64_t seen = 0;
  for (uint32_t g = chunk(c).items.get().first; g != kNone;
       g = at<ItemLinks>(arena_.offsets().links)[g].chunk.get().next) {
    if (g >= arena_.geometry().total_items || ++seen > most) corrupt("a chunk's list of items");
    add_blocks(c, at<Word<BlockRef>>(arena_.offsets().values)[g].get());
  }
}

// Reads without the lock: a hint.
bool CheckpointSave::is_short_of_chunks() const noexcept {
  const ArenaState& s = arena_.state();
  return s.num_retired.get() > 0 && s.num_free.get() <= num_free_ / 2;
}

// Finds retired chunks that wait only for their copy: writers can take them as soon as they are copied.
Status CheckpointSave::find_wanted(const Wait& wait) {
  Hold hold(arena_);
  if (const Status s = hold.begin(wait); s != Status::kOk) return s;
  uint32_t c = arena_.state().retired_chunks.get().head;
  for (uint32_t n = 0; n < 4 * kWanted && c != kNone && wanted_.size() < kWanted;
       ++n, c = arena_.chunk(c).age.get().next) {
    if (awaits_copy(hold, c)) wanted_.push_back(c);
  }
  return Status::kOk;
}

uint64_t CheckpointSave::fill_items(char* buffer, uint64_t room, uint32_t table) {
  const TableFacts& t = arena_.table(table);
  const Offsets& o = arena_.offsets();
  uint64_t used = 0;
  for (; slot_ < t.capacity && room - used >= sizeof(SavedItem); ++slot_) {
    const uint64_t g = t.item_base + slot_;
    const ItemRecord& r = at<ItemRecord>(o.items)[g];
    if (r.seq.get() == 0) continue;
    const ItemLinks& links = at<ItemLinks>(o.links)[g];
    const uint32_t episode = links.tail.get().episode_slot;
    const BlockRef value = arena_.has_values() ? at<Word<BlockRef>>(o.values)[g].get() : kNoValue;
    used += put_record(buffer + used, SavedItem{r.seq.get(),
                                                at<Word<double>>(o.priorities)[g].get(),
                                                r.episode.get(),
                                                r.step.get(),
                                                r.insert_no.get(),
                                                links.touch.get(),
                                                slot_,
                                                r.counted.get().times_sampled,
                                                r.place.get().chunk,
                                                r.place.get().row,
                                                r.extent.get().num_steps,
                                                r.extent.get().pattern,
                                                r.padding.get().before,
                                                r.padding.get().after,
                                                r.counted.get().sampler_pos,
                                                links.tail.get().remover_pos,
                                                episode == kNone ? kNone : episode - static_cast<uint32_t>(t.item_base),
                                                value.first_block,
                                                value.num_bytes,
                                                0});
  }
  return used;
}

uint64_t CheckpointSave::fill_free_slots(char* buffer, uint64_t room, uint32_t table) {
  const TableFacts& t = arena_.table(table);
  const ItemLinks* links = at<ItemLinks>(arena_.offsets().links);
  uint64_t used = 0;
  while (free_ != kNone && room - used >= sizeof(SavedRun)) {
    SavedRun run{free_ - static_cast<uint32_t>(t.item_base), 0};
    for (uint32_t next = free_; next == free_; ++run.count) {
      if (free_ < t.item_base || free_ - t.item_base >= t.capacity) corrupt("the list of free slots leaves its table");
      if (++walked_ > t.capacity) corrupt("the list of free slots does not end");
      next = free_ + 1;
      free_ = links[free_].order.get().next;
    }
    used += put_record(buffer + used, run);
  }
  return used;
}

uint64_t CheckpointSave::fill_chunks(char* buffer, uint64_t room) {
  uint64_t used = 0;
  for (; in_order_ != kNone && room - used >= sizeof(SavedChunk); in_order_ = chunk(in_order_).age.get().next) {
    if (++walked_ > rows_.size()) corrupt("the list of used chunks does not end");
    const ChunkRecord& r = chunk(in_order_);
    if (rows_[in_order_] == 0) continue;
    used += put_record(buffer + used, SavedChunk{r.stream_serial.get(), in_order_, r.life.get().rows, rows_[in_order_],
                                                 saved_neighbour(r.stream.get().prev),
                                                 saved_neighbour(r.stream.get().next), r.life.get().repeats});
  }
  return used;
}

}  // namespace shmreplay
