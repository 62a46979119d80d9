#include "items/item_table.h"

#include <algorithm>
#include <cmath>

#include "base/futex.h"
#include "chunks/chunk_pool.h"
#include "items/episodes.h"
#include "items/item_chunks.h"
#include "items/limiter.h"
#include "trees/extremes.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

void unlink_order(Hold& hold, const TableFacts& t, uint32_t g) {
  Arena& a = hold.arena();
  const Link at = a.links(g).order.get();
  const Queue order = t.record->order.get();
  if (at.prev != kNone) hold.set(a.links(at.prev).order, {a.links(at.prev).order.get().prev, at.next});
  if (at.next != kNone) hold.set(a.links(at.next).order, {at.prev, a.links(at.next).order.get().next});
  hold.set(t.record->order, {at.prev == kNone ? at.next : order.head, at.next == kNone ? at.prev : order.tail});
}

// Ties of heaps go to the least recently inserted or updated item; nothing else reads touches.
bool keeps_touches(const TableFacts& t) { return t.roles[kSampler].heap != 0 || t.roles[kRemover].heap != 0; }

}  // namespace

void touch_item(Hold& hold, const TableFacts& t, uint32_t g) {
  if (!keeps_touches(t)) return;
  hold.set(hold.arena().links(g).touch, t.record->next_touch.get());
  hold.add(t.record->next_touch, 1);
}

uint64_t next_seq(Hold& hold, const TableFacts& t) {
  Word<uint64_t>& word = hold.arena().state().next_seq;
  uint64_t seq = word.get();
  if (low_seq(t, seq) == 0) ++seq;  // the key of slot 0 would be 0
  hold.set(word, seq + 1);
  return seq;
}

int64_t key_of(const TableFacts& t, uint32_t g, uint64_t seq) noexcept {
  const uint64_t slot = g - t.item_base;
  return static_cast<int64_t>(uint64_t{t.shard} << kShardShift | low_seq(t, seq) << t.slot_bits | slot);
}

uint32_t find_item(const Hold& hold, const TableFacts& t, int64_t key) noexcept {
  if (key < 1) return kNone;
  const auto k = static_cast<uint64_t>(key);
  const uint64_t slot = k & ((uint64_t{1} << t.slot_bits) - 1);
  if (slot >= t.capacity) return kNone;
  const auto g = static_cast<uint32_t>(t.item_base + slot);
  const uint64_t seq = hold.arena().item(g).seq.get();
  return seq != 0 && key_of(t, g, seq) == key ? g : kNone;
}

void remove_item(Hold& hold, const TableFacts& t, uint32_t g, Removal why) {
  Arena& a = hold.arena();
  TableRecord& r = *t.record;
  ItemRecord& item = a.item(g);
  if (item.seq.get() == 0 || r.size.get() == 0) corrupt("an item was removed twice");
  if (g - t.item_base >= t.capacity) corrupt("an item was removed from another table");
  Selector(a, t, kSampler).erase(hold, g);
  Selector(a, t, kRemover).erase(hold, g);
  hold.set(a.priority(g), 0.0);
  unlink_order(hold, t, g);
  leave_chunks(hold, g, keeps_items(t));
  drop_pattern_ref(hold, item.extent.get().pattern);
  discount_episode(hold, t, a.links(g).tail.get().episode_slot);
  const uint32_t times = item.counted.get().times_sampled;
  if (t.consumes()) hold.add(r.remaining_samples, -static_cast<uint64_t>(t.max_times_sampled - times));
  if (times == 0 && r.limiter.count_deletes.get() != 0 && why != Removal::kReset) hold.add(r.limiter.samples, 1);
  hold.set(item.seq, 0);
  hold.set(a.links(g).order, {kNone, r.free_item.get()});
  hold.set(r.free_item, g);
  hold.add(r.size, -1);
  hold.add(r.limiter.deletes, 1);
  if (why == Removal::kEvicted || why == Removal::kEvictedForRoom) hold.add(r.evicted, 1);
  if (why == Removal::kEvictedForRoom) hold.add(r.evicted_for_room, 1);
  hold.touch(t.index);
}

void update_priorities(Hold& hold, const TableFacts& t, const uint32_t* items, const double* priorities, uint32_t n) {
  Arena& a = hold.arena();
  for (uint32_t i = 0; i < n; ++i) {
    hold.set(a.priority(items[i]), priorities[i]);
    touch_item(hold, t, items[i]);
  }
  Selector(a, t, kSampler).update(hold, items, priorities, n);
  Selector(a, t, kRemover).update(hold, items, priorities, n);
}

uint32_t count_sample(Hold& hold, const TableFacts& t, uint32_t g) {
  TableRecord& r = *t.record;
  Word<Counted>& counted = hold.arena().item(g).counted;
  const Counted before = counted.get();
  const uint32_t times = before.times_sampled + (before.times_sampled < UINT32_MAX ? 1 : 0);  // it stays at the largest
  hold.set(counted, {times, before.sampler_pos});
  if (times == 1) hold.add(r.num_unique_samples, 1);
  if (t.consumes()) {
    hold.add(r.remaining_samples, -1);
    if (times >= t.max_times_sampled) remove_item(hold, t, g, Removal::kConsumed);
  }
  return times;
}

void count_samples(Hold& hold, const TableFacts& t, uint32_t n) {
  hold.add(t.record->limiter.samples, n);
  hold.touch(t.index);
}

Status admit_structure(Hold& hold, const TableFacts& t, const PreparedPattern& p) {
  TableRecord& r = *t.record;
  const uint64_t structure = r.structure_hash.get();
  if (structure == p.structure) return Status::kOk;
  if (structure != 0) return Status::kStructure;
  hold.set(r.structure_hash, p.structure);
  hold.set(r.structure_pattern, p.record);
  hold.set(r.num_outputs, static_cast<uint32_t>(p.pattern.outputs.size()));
  add_pattern_ref(hold, p.record);
  return Status::kOk;
}

void note_lengths(Hold& hold, const TableFacts& t, const Pattern& pattern, uint64_t positions) {
  for (size_t o = 0; o < pattern.outputs.size(); ++o) {
    const auto rows = static_cast<uint32_t>(pattern.rows(o, positions));
    if (rows > t.record->longest[o].get()) hold.set(t.record->longest[o], rows);
  }
}

double default_priority(Hold& hold, const TableFacts& t) {
  if (!t.prioritized()) return 1.0;
  hold.settle();
  const double largest = Extremes(hold.arena(), t.extremes).largest();
  return largest > 0 ? largest : 1.0;
}

uint32_t removal_entries(const Hold& hold, uint32_t g) {
  const Arena& arena = hold.arena();
  const ItemRecord& item = arena.item(g);
  uint32_t num_chunks = 0;
  each_run(arena, item.place.get(), item.extent.get().num_steps, [&](uint32_t, uint32_t, uint32_t) { ++num_chunks; });
  return kSelectorEntries + num_chunks * kDropRefEntries;
}

bool reset_slice(Hold& hold, const TableFacts& t) {
  TableRecord& r = *t.record;
  for (uint32_t n = 0; n < kGroup; ++n) {
    const uint32_t g = r.order.get().head;
    if (g == kNone) break;
    if (hold.room() < removal_entries(hold, g)) return false;
    remove_item(hold, t, g, Removal::kReset);
  }
  if (r.order.get().head != kNone) return false;
  Limiter& l = r.limiter;
  for (Word<uint64_t>* counter : {&l.inserts, &l.samples, &l.deletes, &l.uncounted, &r.num_episodes,
                                  &r.num_deleted_episodes, &r.num_unique_samples, &r.evicted, &r.evicted_for_room}) {
    hold.set(*counter, 0);
  }
  hold.set(l.offset, 0.0);
  set_flags(hold, t, 0, kResetting);
  return true;
}

bool evict_chunk_slice(Hold& hold, uint32_t chunk) {
  Arena& a = hold.arena();
  // Items that refer to the chunk begin in it, or in one of the chunks before it in its stream.
  uint32_t from = chunk;
  for (uint32_t n = 0; n < kMaxItemChunks; ++n) {
    uint32_t g = a.chunk(from).items.get().first;
    for (uint64_t seen = 0; g != kNone; ++seen) {
      if (seen > a.geometry().total_items) corrupt("a chunk's list of items does not end");
      const uint32_t next = a.links(g).chunk.get().next;
      const TableFacts& t = a.table_of(g);
      bool refers = false;
      each_run(a, a.item(g).place.get(), a.item(g).extent.get().num_steps,
               [&](uint32_t c, uint32_t, uint32_t) { refers |= c == chunk; });
      if (refers) {
        if (hold.room() < removal_entries(hold, g)) return false;
        remove_item(hold, t, g, Removal::kEvictedForRoom);
        if (a.chunk(chunk).life.get().state != kChunkUsed) return true;
        if (a.chunk(from).life.get().state != kChunkUsed) break;
      }
      g = next;
    }
    const uint32_t previous = a.chunk(from).stream.get().prev;
    if (previous == kNone || a.chunk(from).life.get().state != kChunkUsed) break;
    from = previous;
  }
  if (a.chunk(chunk).refs.get().items != 0) corrupt("a chunk has references of items that are nowhere");
  return true;
}

void prefetch_item(const Arena& arena, const TableFacts& t, int64_t key) noexcept {
  const uint64_t slot = static_cast<uint64_t>(key) & ((uint64_t{1} << t.slot_bits) - 1);
  if (key < 1 || slot >= t.capacity) return;
  const auto g = static_cast<uint32_t>(t.item_base + slot);
  __builtin_prefetch(&arena.item(g));
  if (keeps_touches(t)) __builtin_prefetch(&arena.links(g), 1);
  __builtin_prefetch(&arena.priority(g), 1);
  if (t.prioritized()) Extremes(arena, t.extremes).prefetch(static_cast<uint32_t>(slot));
  Selector(arena, t, kSampler).prefetch(g);
}

}  // namespace shmreplay
