#include "items/item_table.h"

#include <algorithm>
#include <cmath>

#include "base/futex.h"
#include "chunks/chunk_pool.h"
#include "items/episodes.h"
#include "items/item_run.h"
#include "items/limiter.h"
#include "trees/extremes.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

constexpr uint32_t kSelectorEntries = 160;  // both roles, extremes, counters: 12 levels of a heap, 11 of a tree

double next_uniform(Hold& hold, Word<uint64_t>& state) {
  const uint64_t s = state.get() + 0x9e3779b97f4a7c15;
  hold.set(state, s);
  uint64_t z = s;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

uint32_t pop_slot(Hold& hold, const TableFacts& t) {
  Arena& a = hold.arena();
  const uint32_t g = t.record->free_item.get();
  if (g == kNone) corrupt("a table has no free slot");
  hold.set(t.record->free_item, a.links(g).order.get().next);
  return g;
}

void append_order(Hold& hold, const TableFacts& t, uint32_t g) {
  Arena& a = hold.arena();
  const Queue order = t.record->order.get();
  hold.put(a.links(g).order, {order.tail, kNone});
  if (order.tail != kNone) hold.set(a.links(order.tail).order, {a.links(order.tail).order.get().prev, g});
  hold.set(t.record->order, {order.head == kNone ? g : order.head, g});
}

void unlink_order(Hold& hold, const TableFacts& t, uint32_t g) {
  Arena& a = hold.arena();
  const Link at = a.links(g).order.get();
  const Queue order = t.record->order.get();
  if (at.prev != kNone) hold.set(a.links(at.prev).order, {a.links(at.prev).order.get().prev, at.next});
  if (at.next != kNone) hold.set(a.links(at.next).order, {at.prev, a.links(at.next).order.get().next});
  hold.set(t.record->order, {at.prev == kNone ? at.next : order.head, at.next == kNone ? at.prev : order.tail});
}

void link_chunk(Hold& hold, uint32_t g, uint32_t chunk) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(chunk);
  const ChunkItems items = r.items.get();
  hold.put(a.links(g).chunk, {kNone, items.first});
  if (items.first != kNone) hold.set(a.links(items.first).chunk, {g, a.links(items.first).chunk.get().next});
  hold.set(r.items, {g, items.consuming});
}

void unlink_chunk(Hold& hold, uint32_t g, uint32_t chunk) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(chunk);
  const Link at = a.links(g).chunk.get();
  if (at.prev != kNone) hold.set(a.links(at.prev).chunk, {a.links(at.prev).chunk.get().prev, at.next});
  if (at.next != kNone) hold.set(a.links(at.next).chunk, {at.prev, a.links(at.next).chunk.get().next});
  if (at.prev == kNone) hold.set(r.items, {at.next, r.items.get().consuming});
}

// Ties of heaps go to the least recently inserted or updated item; nothing else reads touches.
bool keeps_touches(const TableFacts& t) { return t.roles[kSampler].heap != 0 || t.roles[kRemover].heap != 0; }

void touch_item(Hold& hold, const TableFacts& t, uint32_t g) {
  if (!keeps_touches(t)) return;
  hold.set(hold.arena().links(g).touch, t.record->next_touch.get());
  hold.add(t.record->next_touch, 1);
}

void write_record(Hold& hold, const TableFacts& t, uint32_t g, uint64_t seq, const NewItem& item, uint64_t episode) {
  Arena& a = hold.arena();
  ItemRecord& r = a.item(g);
  hold.save(r);
  hold.put(r.seq, seq);
  hold.put(r.counted, {0, 0});
  hold.put(r.place, item.place);
  hold.put(r.extent, {item.num_steps, item.pattern});
  hold.put(r.padding, item.padding);
  hold.put(r.episode, episode);
  hold.put(r.step, item.step);
  hold.put(r.insert_no, t.record->next_insert_no.get());
  if (a.has_values()) hold.set(a.values(g), item.values);
  hold.add(t.record->next_insert_no, 1);
  touch_item(hold, t, g);
  hold.set(a.priority(g), item.priority);
}

void evict_overflow(Hold& hold, const TableFacts& t) {
  TableRecord& r = *t.record;
  if (r.size.get() <= t.max_size) return;
  const Selector remover(hold.arena(), t, kRemover);
  const bool random = t.roles[kRemover].kind == kUniform || t.roles[kRemover].kind == kPrioritized;
  if (t.roles[kRemover].kind == kPrioritized) hold.settle();
  remove_item(hold, t, remover.pick(hold, random ? next_uniform(hold, r.remover_rng) : 0), Removal::kEvicted);
}

}  // namespace

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

Inserted insert_item(Hold& hold, const TableFacts& t, const NewItem& item) {
  if (gives_up_its_oldest(t)) return replace_one(hold, t, item);
  Arena& a = hold.arena();
  TableRecord& r = *t.record;
  const uint32_t g = pop_slot(hold, t);
  const uint64_t seq = next_seq(hold, t);
  const uint64_t episode = item.episode == 0 ? seq : item.episode;
  write_record(hold, t, g, seq, item, episode);
  hold.save(a.links(g));
  const uint32_t episode_slot = count_episode(hold, t, episode, item.own_episode, item.episode_slot);
  hold.put(a.links(g).tail, {0, episode_slot});
  append_order(hold, t, g);
  const bool keep = keeps_items(t);
  uint32_t num_chunks = 0;
  each_run(a, item.place, item.num_steps, [&](uint32_t chunk, uint32_t, uint32_t) {
    add_item_refs(hold, chunk, 1, keep);
    ++num_chunks;
  });
  if (num_chunks > r.most_chunks.get()) hold.set(r.most_chunks, num_chunks);
  link_chunk(hold, g, item.place.chunk);
  add_pattern_ref(hold, item.pattern);
  Selector(a, t, kSampler).insert(hold, g, item.priority);
  Selector(a, t, kRemover).insert(hold, g, item.priority);
  hold.add(r.size, 1);
  if (t.consumes()) hold.add(r.remaining_samples, t.max_times_sampled);
  evict_overflow(hold, t);
  hold.add(r.limiter.inserts, 1);
  if (!item.counted) hold.add(r.limiter.uncounted, 1);
  hold.inserted(t.index);
  return {g, key_of(t, g, seq), episode, episode_slot};
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
  unlink_chunk(hold, g, item.place.get().chunk);
  const bool keep = keeps_items(t);
  // A chunk's references are dropped after the walk has left it: dropping the last one retires the chunk and clears its
  // link to the next.
  uint32_t last = kNone;
  each_run(a, item.place.get(), item.extent.get().num_steps, [&](uint32_t chunk, uint32_t, uint32_t) {
    if (last != kNone) drop_item_refs(hold, last, 1, keep);
    last = chunk;
  });
  if (last != kNone) drop_item_refs(hold, last, 1, keep);
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
  const uint32_t times = before.times_sampled + 1;
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

uint32_t insert_entries(const TableFacts& t, uint32_t num_chunks) noexcept {
  // Bounded: a larger number is damage, and would make the caller wait for ever for a log that has room.
  const uint32_t victim = std::min(std::max(num_chunks, t.record->most_chunks.get()), kMaxItemChunks);
  return 2 * kSelectorEntries + 2 * num_chunks + victim * kDropRefEntries;
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
