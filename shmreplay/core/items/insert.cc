#include "items/insert.h"

#include <algorithm>

#include "chunks/chunk_pool.h"
#include "items/episodes.h"
#include "items/item_chunks.h"
#include "items/item_run.h"
#include "items/item_table.h"
#include "items/patterns.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

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

void link_chunk(Hold& hold, uint32_t g, uint32_t chunk) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(chunk);
  const ChunkItems items = r.items.get();
  hold.put(a.links(g).chunk, {kNone, items.first});
  if (items.first != kNone) hold.set(a.links(items.first).chunk, {g, a.links(items.first).chunk.get().next});
  hold.set(r.items, {g, items.consuming});
}

void write_record(Hold& hold, const TableFacts& t, uint32_t g, uint64_t seq, const NewItem& item) {
  Arena& a = hold.arena();
  ItemRecord& r = a.item(g);
  hold.save(r);
  hold.put(r.seq, seq);
  hold.put(r.counted, {0, 0});
  hold.put(r.place, item.place);
  hold.put(r.extent, {item.num_steps, item.pattern});
  hold.put(r.padding, item.padding);
  hold.put(r.episode, item.episode);
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

// Puts the item into a free slot; if the table is then over max_size, one item is evicted.
int64_t insert_new(Hold& hold, const TableFacts& t, NewItem& item) {
  Arena& a = hold.arena();
  TableRecord& r = *t.record;
  const uint32_t g = pop_slot(hold, t);
  const uint64_t seq = next_seq(hold, t);
  if (item.episode == 0) item.episode = seq;
  write_record(hold, t, g, seq, item);
  hold.save(a.links(g));
  item.episode_slot = count_episode(hold, t, item.episode, item.own_episode, item.episode_slot);
  hold.put(a.links(g).tail, {0, item.episode_slot});
  append_order(hold, t, g);
  const uint32_t num_chunks = refer_to_chunks(hold, item.place, item.num_steps, keeps_items(t));
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
  return key_of(t, g, seq);
}

}  // namespace

uint32_t insert_items(Hold& hold, const TableFacts& t, NewItem* items, uint32_t n, int64_t* keys) {
  const bool replaces = gives_up_its_oldest(t);
  if (replaces && items->own_episode) {
    if (const uint32_t together = replace_oldest(hold, t, items, n, keys); together > 0) return together;
  }
  *keys = replaces ? replace_one(hold, t, *items) : insert_new(hold, t, *items);
  return 1;
}

uint32_t insert_entries(const TableFacts& t, uint32_t num_chunks) noexcept {
  // Bounded: a larger number is damage, and the caller would wait for ever for a log with that much room.
  const uint32_t victim = std::min(std::max(num_chunks, t.record->most_chunks.get()), kMaxItemChunks);
  return 2 * kSelectorEntries + 2 * num_chunks + victim * kDropRefEntries;
}

}  // namespace shmreplay
