#include "items/item_run.h"

#include <algorithm>

#include "arena/span.h"
#include "chunks/chunk_pool.h"
#include "items/episodes.h"
#include "items/item_chunks.h"
#include "items/item_table.h"
#include "items/patterns.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

static_assert(kInsertGroup <= kMostUpdates);
constexpr uint32_t kRunEntries = 32;                     // counters, ends of lists, references of the newcomers' chunk
constexpr uint64_t kFetchedAhead = 16;                   // items
constexpr uint32_t kItemEntries = 24 + kDropRefEntries;  // record, links, leaf, pattern, and the item's chunk if the
                                                         // item was its last

// Where the oldest items are replaced, the next oldest item lies most often in the next slot. Its cache lines are
// fetched before the walk gets there.
void fetch_ahead(const Arena& a, const TableFacts& t, uint32_t g) {
  const uint64_t ahead = uint64_t{g} + kFetchedAhead;
  if (ahead >= t.item_base + t.capacity) return;
  __builtin_prefetch(&a.item(static_cast<uint32_t>(ahead)), 1);
  __builtin_prefetch(&a.links(static_cast<uint32_t>(ahead)), 1);
}

// Finds the oldest items that can be replaced as a run, oldest first. Answers how many of `most`.
uint32_t find_oldest(const Arena& a, const TableFacts& t, uint32_t most, uint32_t* oldest) {
  uint32_t n = 0;
  for (uint32_t g = t.record->order.get().head; n < most; ++n) {
    if (g == kNone || g - t.item_base >= t.capacity) corrupt("a table's order is shorter than the table");
    fetch_ahead(a, t, g);
    const ItemRecord& item = a.item(g);
    if (item.seq.get() == 0) corrupt("an item was removed twice");
    const bool is_such = item.extent.get().num_steps == 1 && a.links(g).tail.get().episode_slot == kNone;
    if (!is_such) break;
    oldest[n] = g;
    g = a.links(g).order.get().next;
  }
  return n;
}

// Takes the items from the lists of the chunks they begin in. Those that went in together lie together there, newest
// first.
void leave_chunks(Hold& hold, const uint32_t* items, uint32_t n) {
  Arena& a = hold.arena();
  const auto links = [&a](uint32_t g) -> Word<Link>& { return a.links(g).chunk; };
  for (uint32_t first = 0; first < n;) {
    const uint32_t chunk = a.item(items[first]).place.get().chunk;
    uint32_t last = first;
    while (last + 1 < n && links(items[last]).get().prev == items[last + 1]) ++last;
    const uint32_t newer = links(items[last]).get().prev, older = links(items[first]).get().next;
    if (newer != kNone) hold.set(links(newer), {links(newer).get().prev, older});
    if (older != kNone) hold.set(links(older), {newer, links(older).get().next});
    if (newer == kNone) hold.set(a.chunk(chunk).items, {older, a.chunk(chunk).items.get().consuming});
    drop_item_refs(hold, chunk, last - first + 1, false);
    first = last + 1;
  }
}

// Puts the items at the front of the chunk's list, as if one after another.
void join_chunk(Hold& hold, uint32_t chunk, const uint32_t* items, uint32_t n) {
  Arena& a = hold.arena();
  const ChunkItems before = a.chunk(chunk).items.get();
  for (uint32_t i = 0; i < n; ++i) {
    hold.set(a.links(items[i]).chunk, {i + 1 < n ? items[i + 1] : kNone, i > 0 ? items[i - 1] : before.first});
  }
  if (before.first != kNone) hold.set(a.links(before.first).chunk, {items[0], a.links(before.first).chunk.get().next});
  hold.set(a.chunk(chunk).items, {items[n - 1], before.consuming});
}

// The oldest n become the newest; their order among themselves stays.
void move_to_end(Hold& hold, const TableFacts& t, const uint32_t* items, uint32_t n) {
  Arena& a = hold.arena();
  const auto links = [&a](uint32_t g) -> Word<Link>& { return a.links(g).order; };
  const uint32_t first = items[0], last = items[n - 1], tail = t.record->order.get().tail,
                 head = links(last).get().next;
  hold.set(links(first), {tail, links(first).get().next});
  hold.set(links(last), {links(last).get().prev, kNone});
  hold.set(links(tail), {links(tail).get().prev, first});
  hold.set(links(head), {kNone, links(head).get().next});
  hold.set(t.record->order, {head, last});
}

void change_pattern(Hold& hold, uint32_t from, uint32_t to) {
  if (from == to) return;
  add_pattern_ref(hold, to);
  drop_pattern_ref(hold, from);
}

void write_item(Hold& hold, uint32_t g, uint64_t seq, uint64_t episode, uint64_t insert_no, const NewItem& item) {
  Arena& a = hold.arena();
  ItemRecord& r = a.item(g);
  change_pattern(hold, r.extent.get().pattern, item.pattern);
  hold.set(r.seq, seq);
  hold.set(r.counted, {0, r.counted.get().sampler_pos});
  hold.set(r.place, item.place);
  hold.set(r.extent, {item.num_steps, item.pattern});
  hold.set(r.padding, item.padding);
  hold.set(r.episode, episode);
  hold.set(r.step, item.step);
  hold.set(r.insert_no, insert_no);
  if (a.has_values()) hold.set(a.values(g), item.values);
}

// Changes the priorities. The leaves of items that keep their priority are not touched.
void set_priorities(Hold& hold, const TableFacts& t, const uint32_t* items, const NewItem* newcomers, uint32_t n) {
  Arena& a = hold.arena();
  uint32_t changed[kInsertGroup], num_changed = 0;
  double priorities[kInsertGroup];
  for (uint32_t i = 0; i < n; ++i) {
    const double priority = newcomers[i].priority;
    if (a.priority(items[i]).get() == priority) continue;
    hold.set(a.priority(items[i]), priority);
    changed[num_changed] = items[i];
    priorities[num_changed++] = priority;
  }
  Selector(a, t, kSampler).update(hold, changed, priorities, num_changed);
}

void count_run(Hold& hold, const TableFacts& t, uint32_t n, uint32_t num_never_sampled, uint32_t num_chunks,
               bool counted) {
  TableRecord& r = *t.record;
  hold.add(r.next_insert_no, n);
  hold.add(r.evicted, n);
  hold.add(r.limiter.inserts, n);
  hold.add(r.limiter.deletes, n);
  if (r.limiter.count_deletes.get() != 0) hold.add(r.limiter.samples, num_never_sampled);
  if (!counted) hold.add(r.limiter.uncounted, n);
  if (r.most_chunks.get() < num_chunks) hold.set(r.most_chunks, num_chunks);
  hold.inserted(t.index);
}

}  // namespace

bool gives_up_its_oldest(const TableFacts& t) noexcept {
  return t.roles[kRemover].kind == kFifo && t.roles[kSampler].heap == 0 && !keeps_items(t) && t.max_size > 1 &&
         t.record->size.get() == t.max_size;
}

uint32_t replace_oldest(Hold& hold, const TableFacts& t, const NewItem* items, uint32_t n, int64_t* keys) {
  Arena& a = hold.arena();
  const RoleLayout& sampler = t.roles[kSampler];
  const uint32_t levels = sampler.kind == kPrioritized ? sampler.sum.num_levels + 2 * t.extremes[0].num_levels : 0;
  const uint32_t room = hold.room() < kRunEntries ? 0 : (hold.room() - kRunEntries) / (kItemEntries + levels);
  uint32_t oldest[kInsertGroup];
  n = find_oldest(a, t, static_cast<uint32_t>(std::min<uint64_t>({n, kInsertGroup, room, t.max_size - 1})), oldest);
  if (n == 0) return 0;
  leave_chunks(hold, oldest, n);
  uint32_t num_never_sampled = 0;
  const uint64_t insert_no = t.record->next_insert_no.get();
  for (uint32_t i = 0; i < n; ++i) {
    num_never_sampled += a.item(oldest[i]).counted.get().times_sampled == 0 ? 1 : 0;
    const uint64_t seq = next_seq(hold, t);
    write_item(hold, oldest[i], seq, seq, insert_no + i, items[i]);
    keys[i] = key_of(t, oldest[i], seq);
  }
  set_priorities(hold, t, oldest, items, n);
  join_chunk(hold, items[0].place.chunk, oldest, n);
  add_item_refs(hold, items[0].place.chunk, n, false);
  move_to_end(hold, t, oldest, n);
  hold.add(t.record->num_deleted_episodes, n);
  count_run(hold, t, n, num_never_sampled, 1, items[0].counted);
  return n;
}

int64_t replace_one(Hold& hold, const TableFacts& t, NewItem& item) {
  Arena& a = hold.arena();
  const uint32_t g = t.record->order.get().head;
  if (g == kNone || g - t.item_base >= t.capacity) corrupt("a table's order is shorter than the table");
  if (a.item(g).seq.get() == 0) corrupt("an item was removed twice");
  // Adds the newcomer's references first: so a chunk that both items are in stays used, and an episode of both is not
  // over.
  const uint32_t num_chunks = refer_to_chunks(hold, item.place, item.num_steps, false);
  const uint64_t seq = next_seq(hold, t);
  if (item.episode == 0) item.episode = seq;
  item.episode_slot = count_episode(hold, t, item.episode, item.own_episode, item.episode_slot);
  discount_episode(hold, t, a.links(g).tail.get().episode_slot);
  hold.set(a.links(g).tail, {0, item.episode_slot});
  leave_chunks(hold, g, false);
  const bool never_sampled = a.item(g).counted.get().times_sampled == 0;
  write_item(hold, g, seq, item.episode, t.record->next_insert_no.get(), item);
  set_priorities(hold, t, &g, &item, 1);
  join_chunk(hold, item.place.chunk, &g, 1);
  move_to_end(hold, t, &g, 1);
  count_run(hold, t, 1, never_sampled ? 1 : 0, num_chunks, item.counted);
  return key_of(t, g, seq);
}

}  // namespace shmreplay
