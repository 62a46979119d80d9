#include "chunks/chunk_pool.h"

#include <algorithm>
#include <array>

#include "chunks/block_pool.h"
#include "chunks/leases.h"
#include "chunks/save_lease.h"

namespace shmreplay {
namespace {

constexpr uint32_t kSweepSlice = 64;    // chunks in one hold: about 20 log entries each
constexpr uint32_t kSweepBlocks = 256;  // blocks in one hold: two entries each

void append_used(Hold& hold, uint32_t c) {
  Arena& a = hold.arena();
  ArenaState& s = a.state();
  const Queue used = s.used_chunks.get();
  hold.set(a.chunk(c).age, {used.tail, kNone});
  if (used.tail != kNone) hold.set(a.chunk(used.tail).age, {a.chunk(used.tail).age.get().prev, c});
  hold.set(s.used_chunks, {used.head == kNone ? c : used.head, c});
  hold.add(s.num_used, 1);
}

void unlink_used(Hold& hold, uint32_t c) {
  Arena& a = hold.arena();
  ArenaState& s = a.state();
  const Link at = a.chunk(c).age.get();
  const Queue used = s.used_chunks.get();
  if (at.prev != kNone) hold.set(a.chunk(at.prev).age, {a.chunk(at.prev).age.get().prev, at.next});
  if (at.next != kNone) hold.set(a.chunk(at.next).age, {at.prev, a.chunk(at.next).age.get().next});
  hold.set(s.used_chunks, {at.prev == kNone ? at.next : used.head, at.next == kNone ? at.prev : used.tail});
  hold.add(s.num_used, -1);
}

void append_retired(Hold& hold, uint32_t c) {
  Arena& a = hold.arena();
  ArenaState& s = a.state();
  const Queue retired = s.retired_chunks.get();
  hold.set(a.chunk(c).age, {kNone, kNone});
  if (retired.tail != kNone) hold.set(a.chunk(retired.tail).age, {kNone, c});
  hold.set(s.retired_chunks, {retired.head == kNone ? c : retired.head, c});
  hold.add(s.num_retired, 1);
}

void pop_retired(Hold& hold) {
  Arena& a = hold.arena();
  ArenaState& s = a.state();
  const Queue retired = s.retired_chunks.get();
  const uint32_t next = a.chunk(retired.head).age.get().next;
  hold.set(s.retired_chunks, {next, next == kNone ? kNone : retired.tail});
  hold.add(s.num_retired, -1);
}

// Its neighbours in the stream forget a chunk that is no longer used: it will belong to another stream.
void unlink_stream(Hold& hold, uint32_t c) {
  Arena& a = hold.arena();
  const Link at = a.chunk(c).stream.get();
  if (at.prev != kNone) hold.set(a.chunk(at.prev).stream, {a.chunk(at.prev).stream.get().prev, kNone});
  if (at.next != kNone) hold.set(a.chunk(at.next).stream, {kNone, a.chunk(at.next).stream.get().next});
  hold.set(a.chunk(c).stream, {kNone, kNone});
}

void retire_if_unused(Hold& hold, uint32_t c) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(c);
  const ChunkRefs refs = r.refs.get();
  if (refs.items != 0 || refs.windows != 0) return;
  unlink_used(hold, c);
  unlink_stream(hold, c);
  const ChunkLife life = r.life.get();
  hold.set(r.life, {kChunkRetired, life.repeats, life.rows, life.generation});
  hold.set(r.stamp, a.state().next_retire.get());
  hold.add(a.state().next_retire, 1);
  append_retired(hold, c);
  hold.chunk_retired();
}

// Whether evicting its items would retire the chunk.
bool is_evictable(const ChunkRecord& r) noexcept {
  const ChunkRefs refs = r.refs.get();
  return r.life.get().state == kChunkUsed && refs.windows == 0 && refs.items > 0 && r.items.get().consuming == 0;
}

// A call that waits for a chunk may now evict this chunk's items and take it.
void note_evictable(Hold& hold, const ChunkRecord& r) noexcept {
  if (is_evictable(r)) hold.chunk_retired();
}

void link_chunk_owner(Hold& hold, uint32_t session) {
  Arena& a = hold.arena();
  const uint32_t head = a.state().chunk_owners.get();
  hold.set(a.session(session).chunk_owner, {kNone, head});
  if (head != kNone) hold.set(a.session(head).chunk_owner, {session, a.session(head).chunk_owner.get().next});
  hold.set(a.state().chunk_owners, session);
}

void unlink_chunk_owner(Hold& hold, uint32_t session) {
  Arena& a = hold.arena();
  const Link at = a.session(session).chunk_owner.get();
  if (at.prev != kNone) hold.set(a.session(at.prev).chunk_owner, {a.session(at.prev).chunk_owner.get().prev, at.next});
  if (at.next != kNone) hold.set(a.session(at.next).chunk_owner, {at.prev, a.session(at.next).chunk_owner.get().next});
  if (a.state().chunk_owners.get() == session) hold.set(a.state().chunk_owners, at.next);
  hold.set(a.session(session).chunk_owner, {kNone, kNone});
}

uint32_t pop_free(Hold& hold, Word<Stack>& list) {
  Arena& a = hold.arena();
  const Stack free = list.get();
  if (free.head == kNone || free.count == 0) return kNone;
  hold.set(list, {a.chunk(free.head).age.get().next, free.count - 1});
  hold.add(a.state().num_free, -1);
  return free.head;
}

uint32_t pop_free_of(Hold& hold, uint32_t session) {
  if (session == kNone) return kNone;
  SessionRecord& r = hold.arena().session(session);
  const uint32_t c = pop_free(hold, r.free_chunks);
  if (c != kNone && r.free_chunks.get().count == 0) unlink_chunk_owner(hold, session);
  return c;
}

// Where `count` of the first `looked` chunks of the list have consecutive numbers: at `near`, or else at the lowest
// such run.
uint32_t find_run(const Arena& a, Stack free, uint32_t count, uint32_t near, uint32_t looked) {
  std::array<uint32_t, kRunLook> chunks;
  uint32_t n = 0;
  for (uint32_t c = free.head; c != kNone && n < looked; c = a.chunk(c).age.get().next) chunks[n++] = c;
  std::sort(chunks.begin(), chunks.begin() + n);
  uint32_t found = kNone;
  for (uint32_t i = 0, first = 0; i < n; ++i) {
    if (i > 0 && chunks[i] != chunks[i - 1] + 1) first = i;
    if (i + 1 - first < count) continue;
    if (chunks[i + 1 - count] == near) return near;
    if (found == kNone) found = chunks[first];
  }
  return found;
}

// Takes chunks first .. first + count - 1 out of the list; they are among its first kRunLook.
void unlink_run(Hold& hold, Word<Stack>& list, uint32_t first, uint32_t count) {
  Arena& a = hold.arena();
  Stack free = list.get();
  uint32_t c = free.head, kept = kNone, left = count;
  bool has_gap = false;
  const auto close_gap = [&] {
    if (has_gap && kept == kNone) free.head = c;
    if (has_gap && kept != kNone) hold.set(a.chunk(kept).age, {kNone, c});
    has_gap = false;
  };
  for (uint32_t looked = 0; left > 0; ++looked, c = a.chunk(c).age.get().next) {
    if (c == kNone || looked == kRunLook) corrupt("a list of free chunks changed while it was walked");
    if (c - first < count) {
      has_gap = true;
      --left;
      continue;
    }
    close_gap();
    kept = c;
  }
  close_gap();
  hold.set(list, {free.head, free.count - count});
  hold.add(a.state().num_free, -static_cast<uint64_t>(count));
}

// The top of the list is looked at first: chunks that were taken together mostly come back together.
uint32_t pop_run(Hold& hold, Word<Stack>& list, uint32_t count, uint32_t wanted, uint32_t near) {
  const Stack free = list.get();
  if (free.count < wanted) return kNone;
  uint32_t first = find_run(hold.arena(), free, wanted, near, wanted);
  if (first == kNone) first = find_run(hold.arena(), free, wanted, near, kRunLook);
  if (first != kNone) unlink_run(hold, list, first, count);
  return first;
}

void push_free(Hold& hold, Word<Stack>& list, uint32_t c) {
  const Stack free = list.get();
  hold.set(hold.arena().chunk(c).age, {kNone, free.head});
  hold.set(list, {c, free.count + 1});
  hold.add(hold.arena().state().num_free, 1);
}

void make_free(Hold& hold, uint32_t c) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(c);
  hold.set(r.life, {kChunkFree, 0, 0, r.life.get().generation + 1});
  const uint32_t writer = r.writer.get().session;
  if (writer != kNone && a.session(writer).state.get().state == kSessionAlive) {
    if (a.session(writer).free_chunks.get().count == 0) link_chunk_owner(hold, writer);
    push_free(hold, a.session(writer).free_chunks, c);
  } else {
    push_free(hold, a.state().free_chunks, c);
  }
}

uint32_t start_if_any(Hold& hold, uint32_t c, uint32_t session, uint64_t stream_serial, uint32_t previous) {
  if (c != kNone) start_chunk(hold, c, session, stream_serial, previous);
  return c;
}

// Frees the chunks that were retired when it began and that no lease withholds. `withheld` counts those that only a
// checkpoint withholds.
Status sweep(Arena& arena, const Wait& wait, uint32_t& freed, uint32_t& withheld) {
  freed = withheld = 0;
  uint64_t bound = 0, todo = 0;
  {
    Hold hold(arena);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    bound = arena.state().next_retire.get();
    todo = std::min<uint64_t>(arena.state().num_retired.get(), arena.geometry().num_chunks);
  }
  if (todo == 0) return Status::kOk;
  const std::vector<uint32_t> named = named_chunks(arena);
  while (todo > 0) {
    Hold hold(arena);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    uint32_t blocks = kSweepBlocks;
    for (uint32_t k = 0; k < kSweepSlice && todo > 0; ++k, --todo) {
      const uint32_t c = arena.state().retired_chunks.get().head;
      if (c == kNone) return Status::kOk;
      // If it was retired after the scan began, it may have been named meanwhile. It goes to the end of the queue.
      const bool unsafe = arena.chunk(c).stamp.get() >= bound || std::binary_search(named.begin(), named.end(), c);
      const bool is_saved_first = !unsafe && awaits_copy(hold, c);
      withheld += is_saved_first ? 1 : 0;
      const bool stays = unsafe || is_saved_first;
      if (!stays && !free_blocks_of(hold, c, blocks)) break;
      pop_retired(hold);
      if (stays) {
        append_retired(hold, c);
        continue;
      }
      make_free(hold, c);
      ++freed;
    }
  }
  return Status::kOk;
}

}  // namespace

void start_chunk(Hold& hold, uint32_t c, uint32_t session, uint64_t stream_serial, uint32_t previous) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(c);
  hold.set(r.life, {kChunkUsed, 0, a.geometry().chunk_steps, r.life.get().generation});
  hold.set(r.stamp, a.state().next_take.get());
  hold.add(a.state().next_take, 1);
  hold.set(r.refs, {0, 1});
  hold.set(r.items, {kNone, 0});
  hold.set(r.writer, {session, kNone});
  hold.set(r.stream_serial, stream_serial);
  hold.set(r.stream, {previous, kNone});
  if (previous != kNone) hold.set(a.chunk(previous).stream, {a.chunk(previous).stream.get().prev, c});
  append_used(hold, c);
}

uint32_t take_run(Hold& hold, uint32_t session, uint32_t count, uint32_t wanted, uint32_t near) {
  Arena& a = hold.arena();
  wanted = std::min(wanted, kRunLook);
  if (count == 0 || count > wanted) return kNone;
  uint32_t first = kNone;
  if (session != kNone) first = pop_run(hold, a.session(session).free_chunks, count, wanted, near);
  if (first == kNone) return pop_run(hold, a.state().free_chunks, count, wanted, near);
  if (a.session(session).free_chunks.get().count == 0) unlink_chunk_owner(hold, session);
  return first;
}

uint32_t take_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous) {
  uint32_t c = pop_free_of(hold, session);
  if (c == kNone) c = pop_free(hold, hold.arena().state().free_chunks);
  return start_if_any(hold, c, session, stream_serial, previous);
}

uint32_t steal_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous) {
  uint32_t c = pop_free_of(hold, hold.arena().state().chunk_owners.get());
  if (c == kNone)
    c = pop_free(hold, hold.arena().state().free_chunks);  // freed to no session since the caller's last
                                                           // look
  return start_if_any(hold, c, session, stream_serial, previous);
}

void add_item_refs(Hold& hold, uint32_t chunk, uint32_t n, bool consuming) {
  ChunkRecord& r = hold.arena().chunk(chunk);
  const ChunkRefs refs = r.refs.get();
  hold.set(r.refs, {refs.items + n, refs.windows});
  if (consuming) hold.set(r.items, {r.items.get().first, r.items.get().consuming + n});
}

void drop_item_refs(Hold& hold, uint32_t chunk, uint32_t n, bool consuming) {
  ChunkRecord& r = hold.arena().chunk(chunk);
  const ChunkRefs refs = r.refs.get();
  if (refs.items < n) corrupt("a chunk lost more item references than it had");
  hold.set(r.refs, {refs.items - n, refs.windows});
  if (consuming) {
    hold.set(r.items, {r.items.get().first, r.items.get().consuming - n});
    note_evictable(hold, r);
  }
  retire_if_unused(hold, chunk);
}

void drop_window_ref(Hold& hold, uint32_t chunk) {
  ChunkRecord& r = hold.arena().chunk(chunk);
  const ChunkRefs refs = r.refs.get();
  if (refs.windows == 0) corrupt("a chunk lost more window references than it had");
  hold.set(r.refs, {refs.items, refs.windows - 1});
  note_evictable(hold, r);
  retire_if_unused(hold, chunk);
}

Status reclaim(Arena& arena, const Wait& wait, uint32_t& freed) {
  uint32_t withheld = 0;
  if (const Status s = sweep(arena, wait, freed, withheld); s != Status::kOk) return s;
  if (freed > 0 || withheld == 0) return Status::kOk;
  {
    Hold hold(arena);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    // With a block heap the caller may want blocks, and a free chunk gives it none.
    if (arena.state().num_free.get() > 0 && arena.geometry().num_blocks == 0) return Status::kOk;
    give_up_saving(hold);
  }
  return sweep(arena, wait, freed, withheld);
}

bool release_free_chunks(Hold& hold, uint32_t session, uint32_t slice) {
  Arena& a = hold.arena();
  for (; slice > 0; --slice) {
    const uint32_t c = pop_free_of(hold, session);
    if (c == kNone) return true;
    push_free(hold, a.state().free_chunks, c);
  }
  return a.session(session).free_chunks.get().count == 0;
}

uint32_t find_evictable(Hold& hold, uint32_t& after, uint32_t limit) {
  Arena& a = hold.arena();
  uint32_t c = a.state().used_chunks.get().head;
  if (after != kNone && a.chunk(after).life.get().state == kChunkUsed) c = a.chunk(after).age.get().next;
  for (; c != kNone && limit > 0; --limit) {
    const ChunkRecord& r = a.chunk(c);
    after = c;
    if (is_evictable(r)) return c;
    c = r.age.get().next;
  }
  if (c == kNone) after = kNone;
  return kNone;
}

}  // namespace shmreplay
