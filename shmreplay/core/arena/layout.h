// The shared memory of an arena, byte for byte. This header is the truth; everything else reads it.
//
//   index segment                                        data segment
//   +--------------------------------------------+       +------------------------------------------+
//   | Header          constant once `ready`      |       | chunk 0: column 0 [chunk_steps, row]     |
//   | specs           msgpack, constant          |       |          column 1 [chunk_steps, row]     |
//   | LockBlock       mutex | hold line          |       |          ...           (128 B aligned)   |
//   | UndoLog         length | 4 096 entries     |       |          presence [chunk_steps, words]   |
//   | ArenaState      counters, list heads       |       | chunk 1: ...                             |
//   | SessionRecord   [max_sessions]             |       | ...                                      |
//   | StreamRecord    [max_streams]              |       | chunk num_chunks - 1                     |
//   | SleepSlot       [num_sleep_slots]          |       +------------------------------------------+
//   | CallSlot        [num_call_slots]           |       | block 0 ... num_blocks - 1  (block heap) |
//   | SaveLease       and a bit a chunk          |       +------------------------------------------+
//   | ChunkRecord     [num_chunks]               |
//   | BlockRecord     [num_blocks]               |
//   | ColumnRecord    [num_columns]  constant    |
//   | PatternRecord   [max_patterns]             |
//   | TableRecord     [num_tables]               |
//   | ItemRecord      [total_items]              |   An item's global index g = its table's item_base + slot.
//   | ItemLinks       [total_items]              |   Lists and chunks name items by g, so one list can hold
//   | priorities      [total_items]              |   items of several tables.
//   | EpisodeRecord   [total_items]              |
//   | values          [total_items]  per="item"  |
//   | per table and role: tree, dense, heap      |
//   +--------------------------------------------+
//
// No pointers, only offsets and indices; kNone ends every list. A `Word` is written only by the holder of the lock,
// through the undo log. A plain field is written only by the formatter, before `ready`. The rule for a bare std::atomic
// stands beside it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/word.h"

namespace shmreplay {

inline constexpr uint64_t kMagic = 0x31594c50'52484d53;  // "SMHRPLY1"
inline constexpr uint32_t kLayoutVersion = 8;
inline constexpr uint32_t kNone = 0xffff'ffff;
inline constexpr uint32_t kLogCapacity = 4096;
inline constexpr uint32_t kMaxNames = 1024;      // chunks one lease can name
inline constexpr uint32_t kMaxItemChunks = 192;  // chunks one item may span: its deletion must fit one hold's log
inline constexpr uint32_t kGroup = 16;           // draws, updates or deletions in one hold
inline constexpr uint32_t kMaxTables = 64;       // a hold notes the tables it touched in one 64-bit mask
inline constexpr uint32_t kMaxOutputs = 256;     // leaves of an item's structure
inline constexpr uint32_t kMaxRows = 1u << 28;   // that a batch may show of an item; no slice reaches further
inline constexpr uint32_t kPatternBytes = 4096;
inline constexpr uint32_t kMaxColumns = 125;  // a pattern that shows each of them whole fits its record
inline constexpr uint64_t kMaxSpecsBytes = 64u << 20;
inline constexpr uint64_t kMostPacking = 255;       // an LZ4 block stands for at most so many times its size
inline constexpr uint64_t kPackedRowsInMemory = 4;  // that a writer of a packed column allocates at most; a reader: 2
inline constexpr int kMaxTreeLevels = 12;           // 8^11 leaves and the top line
inline constexpr int kShardBits = 7;
inline constexpr int kShardShift = 63 - kShardBits;
inline constexpr uint32_t kMaxShards = 1u << kShardBits;
inline constexpr double kMaxPriority = 1e280;  // larger ones are refused: sums stay finite

// ---- words of more than one field --------------------------------------------------------------------------------

struct Link { uint32_t prev, next; };
struct Stack { uint32_t head, count; };  // a singly linked list and its length
struct Queue { uint32_t head, tail; };
struct StateGeneration { uint32_t state, generation; };

// ---- header ------------------------------------------------------------------------------------------------------

struct Geometry {
  uint32_t num_columns, chunk_steps, num_chunks, max_streams;
  uint32_t max_sessions, num_sleep_slots, num_call_slots, max_patterns;
  uint32_t num_tables, num_blocks, block_bytes, presence_words;  // presence words a row: one bit a column
  uint64_t total_items;
  uint64_t chunk_bytes;      // bytes
  uint64_t presence_offset;  // bytes, from the chunk's start
  bool operator==(const Geometry&) const = default;
};

struct Offsets {  // bytes from the index segment's start, each a multiple of 128
  uint64_t specs, specs_bytes, lock, log, state, sessions, streams, sleepers, calls, save, chunks, blocks, columns,
      patterns, tables, items, links, priorities, episodes, values, selectors, end;
  bool operator==(const Offsets&) const = default;
};

struct Header {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t layout_hash;  // sizes, alignments, lock kind, libc family, pointer size
  uint64_t index_bytes, data_bytes;
  uint64_t pid_namespace;   // inode of the creator's; the kernel finds a dead lock owner by its thread id there
  uint64_t time_namespace;  // inode; start times of processes are compared within it
  char boot_id[40];
  char instance[72], name[72];
  Geometry geometry;
  Offsets offsets;
  std::atomic<uint32_t> failed;  // set once, never cleared: the index cannot be trusted
  std::atomic<uint32_t> ready;   // stored last, with release, by the formatter
};

// ---- lock --------------------------------------------------------------------------------------------------------

struct LockBlock {
  alignas(128) pthread_mutex_t mutex;  // robust, process-shared, NORMAL; never destroyed
  // Written by the holder, read by contenders without the lock (relaxed: only hints and reports come from it).
  alignas(128) std::atomic<uint64_t> hold_seq;  // odd while held, but for a few instructions at both ends of a hold
  std::atomic<uint32_t> session;                // of the last holder
  std::atomic<uint32_t> pid;                    // of the last holder, as the daemon saw it
  std::atomic<uint64_t> num_recoveries;         // dead holders rolled back
  std::atomic<uint64_t> num_waits, wait_ns;  // holds that found the lock taken, and for how long in all; reports only
};

struct LogEntry {
  uint64_t where;  // offset << 2 | log2(bytes)
  uint64_t old;
};

struct UndoLog {
  alignas(128) std::atomic<uint64_t> length;  // entries that stand; storing 0 is the commit
  alignas(128) LogEntry entries[kLogCapacity];
};

// ---- arena-wide state --------------------------------------------------------------------------------------------

struct ArenaState {
  Word<uint64_t> next_seq;  // insertion number of the next item of any table; never reset
  Word<uint64_t> next_stream_serial;
  Word<uint64_t> next_take;                        // stamp of the next chunk taken
  Word<uint64_t> next_retire;                      // stamp of the next chunk retired
  Word<Stack> free_chunks;                         // of no session
  Word<Queue> used_chunks;                         // in the order taken, linked by ChunkRecord::age
  Word<Queue> retired_chunks;                      // in the order retired, linked by ChunkRecord::age.next
  Word<uint64_t> num_free, num_used, num_retired;  // num_free: all free lists together
  Word<uint32_t> chunk_owners;  // head of the sessions that have free chunks, linked by SessionRecord::chunk_owner
  Word<uint32_t> free_streams, free_sleepers, free_blocks;  // heads
  Word<uint64_t> num_free_blocks;
  Word<uint64_t> num_reserved_blocks;  // of the free ones, for all streams together
  Word<uint32_t> rebuilding;           // 1 during a rebuild of derived words
  std::atomic<uint64_t> num_rebuilds;  // rebuilds, those of restores included; written under the lock; reports only
  // Waiting for a chunk needs no lock. Protocol (litmus-tested): the waiter stores chunk_waiters and scans again before
  // it sleeps. A reader that drops a lease stores its count of 0 and then loads chunk_waiters. All are seq_cst.
  alignas(128) std::atomic<uint32_t> chunk_waiters;
  alignas(128) std::atomic<uint32_t> chunk_futex;
};

enum SessionState : uint32_t { kSessionFree = 0, kSessionAlive = 1, kSessionReaping = 2 };

struct PidRole { uint32_t pid, role; };

struct alignas(128) SessionRecord {
  Word<StateGeneration> state;
  Word<PidRole> process;
  Word<uint64_t> start_time;  // clock ticks since boot, from /proc; tells a reused pid
  Word<Stack> free_chunks;    // chunks this session wrote before: it gets them back first
  Word<Link> chunk_owner;
  Word<uint64_t> first_take;  // stamp of the first chunk that can be its own; older ones belong to the session that
                              // used the record before
  // What the session has done since it attached: items by kind of call, and bits of tables. Written by its own holds
  // under the lock, as a load and a store (session_counts.h), cleared when it opens; not undone by a roll-back. Reports
  // only.
  std::atomic<uint64_t> inserts, samples, updates, writes, reads;
  // The session's calls that wait for room: how many; and the table of the first one, and since when it waits
  // (CLOCK_MONOTONIC). Written without the lock. Reports only.
  std::atomic<uint32_t> room_waits, room_table;
  std::atomic<uint64_t> room_since_ns;
};

struct StreamOwner { uint32_t session, generation; };  // session kNone: the record is free, generation = next free
struct Window { uint32_t first, last; };
struct WindowSize { uint32_t num_chunks, max_chunks; };

struct alignas(64) StreamRecord {
  Word<StreamOwner> owner;
  Word<uint64_t> serial;  // of the arena, never reused
  Word<Window> window;    // chunks that the open stream still refers to, linked by ChunkRecord::stream
  Word<WindowSize> size;
  Word<uint64_t> reserved_blocks;  // free blocks that only this stream may take: for a value that one hold cannot take
                                   // whole
};

struct SleeperOwner { uint32_t session, where; };  // where = table << 1 | side; session kNone: free
struct SleepSlot {
  Word<SleeperOwner> owner;
  Word<uint32_t> next_free;
  uint32_t pad;
  std::atomic<uint64_t> since_ns;  // CLOCK_MONOTONIC, when the call was first not admitted; before the owner; reports
                                   // only
};

struct CallOwner { uint32_t session_plus_1, generation; };

// One read in flight. The owner is set under the lock and cleared without it. Names are stored under the lock, before
// the count; the count is cleared without the lock (SYNC POINT with the scan in named_chunks). A roll-back does not
// undo them: a dead call's slot is taken back when its session is reaped.
struct CallSlot {
  alignas(128) std::atomic<CallOwner> owner;
  std::atomic<uint32_t> count;
  std::atomic<uint64_t> since_ns;  // CLOCK_MONOTONIC, coarse, when it was taken; under the lock, before the owner;
                                   // reports only
  alignas(128) std::atomic<uint32_t> names[kMaxNames];
};

// The lease of a checkpoint that is being saved: one bit for each chunk, in the words after this line. The bits are set
// under the lock, all at once; one is cleared without the lock when its chunk is copied. Owner {0, 0}: no checkpoint is
// being saved, and the bits mean nothing. The owner is cleared by the saver, with its session, or by a writer that
// needs a chunk: see save_lease.h. A roll-back does not undo it.
struct SaveLease { alignas(128) std::atomic<CallOwner> owner; };

enum ChunkState : uint32_t { kChunkFree = 0, kChunkUsed = 1, kChunkRetired = 2 };

// rows: fewer than chunk_steps if the chunk was closed early. repeats: its last row is also the first row of the next
// chunk in the stream.
struct ChunkLife {
  uint32_t state : 2, repeats : 1, rows : 29;
  uint32_t generation;
};
struct ChunkRefs { uint32_t items, windows; };
struct ChunkItems { uint32_t first, consuming; };  // items that begin here; refs of tables that consume
struct ChunkWriter { uint32_t session, first_block; };

struct alignas(64) ChunkRecord {
  Word<ChunkLife> life;  // the generation grows whenever the chunk becomes free
  Word<uint64_t> stamp;  // when taken (used) or when retired
  Word<ChunkRefs> refs;  // used <=> either is positive
  Word<ChunkItems> items;
  Word<Link> stream;  // neighbours in the stream, while they are used
  Word<Link> age;     // used list; .next alone in the retired and free lists
  Word<ChunkWriter> writer;
  Word<uint64_t> stream_serial;
};

struct BlockOwner { uint32_t chunk, generation; };  // in use <=> that chunk still has that generation
struct BlockLink { uint32_t next_of_chunk, next_free; };
struct BlockRecord {
  Word<BlockOwner> owner;
  Word<BlockLink> link;
};

// A value in the block heap. `first_block` is the one of its blocks that was taken last. The others follow it by
// next_of_chunk, and so do the bytes. Opaque to the core. {kNone, 0}: no value.
struct BlockRef {
  uint32_t first_block, num_bytes;
  bool operator==(const BlockRef&) const = default;
};
inline constexpr BlockRef kNoValue{kNone, 0};

// A plain column has its rows one after the other. The other kinds:
//
//   heap      a row is the BlockRef of its value, whose blocks belong to the row's chunk; the value of a packed column
//             is a row of packed_bytes, encoded as in row_codec.h
//   mutable   a row is  version u64 | copy 0 | copy 1,  each copy in whole words: see mutable_cell.h
//   per item  no place in a chunk: an item brings its value, see Arena::values
enum ColumnFlag : uint32_t { kHeapColumn = 1, kMutableColumn = 2, kPerItemColumn = 4 };

struct ColumnRecord {
  uint64_t offset;     // bytes, from the chunk's start, a multiple of 128
  uint32_t row_bytes;  // what a row shows
  uint32_t stride;     // from row to row
  uint32_t flags;
  uint32_t packed_bytes;  // of a heap column that is packed, else 0
  bool operator==(const ColumnRecord&) const = default;
};

// ---- patterns ----------------------------------------------------------------------------------------------------

struct GenerationRefs { uint32_t generation, refs; };
struct PatternSize { uint32_t num_outputs, num_slices; };
inline constexpr uint32_t kPatternWords = (kPatternBytes - 64) / 8;

struct alignas(64) PatternRecord {
  Word<uint64_t> hash;            // of the blob; 0: never used
  Word<uint64_t> structure_hash;  // what batches look like: names, columns, squeezed or not
  Word<GenerationRefs> usage;     // the generation grows when the record is given to another pattern
  Word<PatternSize> size;
  Word<uint32_t> blob_bytes;
  alignas(64) Word<uint64_t> blob[kPatternWords];
};

// ---- items -------------------------------------------------------------------------------------------------------

struct Counted { uint32_t times_sampled, sampler_pos; };
struct Place { uint32_t chunk, row; };
struct Extent { uint32_t num_steps, pattern; };
struct Padding { uint32_t before, after; };
struct Tail { uint32_t remover_pos, episode_slot; };

// What a draw reads: one cache line.
struct alignas(64) ItemRecord {
  Word<uint64_t> seq;  // insertion number in the arena; 0: the slot is free
  Word<Counted> counted;
  Word<Place> place;  // first step
  Word<Extent> extent;
  Word<Padding> padding;     // steps missing before and after the span
  Word<uint64_t> episode;    // seq of the first item made of that episode
  Word<int64_t> step;        // index in its episode of the first real step
  Word<uint64_t> insert_no;  // insertion number in the table; never reset (ages)
};

struct ItemLinks {
  Word<Link> order;  // all items of the table in insertion order; next alone in the free list
  Word<Link> chunk;  // items that begin in the same chunk
  Word<Tail> tail;
  Word<uint64_t> touch;  // table's counter at insert or last update: ties of heaps
};

struct EpisodeUse { uint32_t items, next_free; };
struct EpisodeRecord {
  Word<uint64_t> episode;
  Word<EpisodeUse> use;  // live items of that episode in this table
};

struct HeapNode {
  Word<double> priority;  // copies of the item's, so that a sift stays in the heap
  Word<uint64_t> touch;
  Word<uint64_t> item;
};

// ---- tables ------------------------------------------------------------------------------------------------------

enum SelectorKind : uint32_t { kFifo = 0, kLifo = 1, kUniform = 2, kPrioritized = 3, kMinHeap = 4, kMaxHeap = 5 };
enum Role : uint32_t { kSampler = 0, kRemover = 1 };
enum Side : uint32_t { kInserts = 0, kSamples = 1 };
enum OnFull : uint32_t { kOnFullEvict = 0, kOnFullWait = 1, kOnFullError = 2 };
// kStopping: the daemon is saving a last checkpoint, so neither side is admitted. The daemon that adopts the arena
// clears it.
enum TableFlag : uint32_t { kResetting = 1, kDropped = 2, kPausedInserts = 4, kPausedSamples = 8, kStopping = 16 };

struct TreeLayout {  // 8-ary tree over a power-of-eight-padded row of leaves; level 0 = leaves
  uint32_t num_levels;
  uint32_t num_leaves;
  uint64_t level[kMaxTreeLevels];  // byte offsets
  bool operator==(const TreeLayout&) const = default;
};

struct RoleLayout {
  uint32_t kind;
  uint64_t dense;  // Word<uint32_t>[capacity]: Uniform and Prioritized
  uint64_t heap;   // HeapNode[capacity]: MinHeap and MaxHeap
  TreeLayout sum;  // Prioritized: leaves are priority^exponent, level 0 of its own
  bool operator==(const RoleLayout&) const = default;
};

struct Limiter {  // Reverb's arithmetic: see admission.h
  Word<double> samples_per_insert, min_diff, max_diff;
  Word<double> offset;  // added to the difference; a rebase sets it: see set_limiter()
  Word<int64_t> min_size_to_sample;
  Word<uint64_t> inserts, samples, deletes;  // I, S, D
  Word<uint32_t> count_deletes;              // Queue and Stack: an item deleted unsampled counts as sampled
  Word<uint64_t> uncounted;                  // U: those of I that the difference leaves out
};

struct WaitSide {
  alignas(128) std::atomic<uint32_t> futex;  // bumped under the lock by the hold that grants; slept on without it
  Word<uint32_t> sleepers;
  Word<uint64_t> blocked_calls, blocked_ns;  // calls that had to wait, and for how long in all
};

// For calls that wait for an insert: see news.h. Both words change under the lock, and a roll-back does not undo them.
struct News {
  alignas(128) std::atomic<uint32_t> futex;  // bumped under the lock by the hold that inserts; slept on without it
  std::atomic<uint32_t> is_awaited;          // 1: a call may be asleep
};

struct alignas(128) TableRecord {
  // constant
  char name[72];
  uint32_t max_size, capacity, max_times_sampled, slot_bits;  // capacity = max_size + 1
  uint32_t on_full, item_steps;
  uint64_t item_base;  // g of slot 0, a multiple of 8
  RoleLayout roles[2];
  TreeLayout extremes[2];  // largest, smallest positive priority (Prioritized sampler); level 0 = the priorities
  Word<double> exponents[2];
  uint32_t shard;  // constant: its number where the table has several arenas, else 0; part of every key
  // counters and heads
  alignas(128) Word<uint32_t> flags;
  Word<uint64_t> size;
  Word<uint64_t> next_insert_no;
  Word<uint64_t> next_touch;
  Word<Queue> order;  // oldest and newest item
  Word<uint32_t> free_item, free_episode;
  Word<uint64_t> num_episodes, num_deleted_episodes, num_unique_samples;
  Word<uint64_t> evicted, evicted_for_room;
  Word<uint64_t> remaining_samples;  // tables with max_times_sampled: samples that the live items still allow
  Word<uint64_t> num_positive;       // items of positive priority (Prioritized sampler)
  Word<uint64_t> remover_rng;        // splitmix64 state of random removers
  Word<uint64_t> structure_hash;     // 0 until the first item fixes it
  Word<uint32_t> structure_pattern;  // a pattern of that structure, referred to by the table itself
  Word<uint32_t> num_outputs;
  Word<uint32_t> reweigh_left;  // so many slots, from 0 on, may have leaves of an earlier exponent; 0: no change
  Word<uint32_t> most_chunks;   // the most that an item has spanned so far
  Word<uint64_t> last_insert_ns, last_sample_ns;  // CLOCK_MONOTONIC; reports only
  // Views taken, and those for which nothing was copied. Added to without the lock (relaxed: reports only).
  std::atomic<uint64_t> num_views, num_contiguous_views;
  alignas(128) Limiter limiter;
  WaitSide sides[2];
  News news;
  alignas(128) Word<uint32_t> longest[kMaxOutputs];  // the most rows that an output has had: what a batch is padded to
};

// ---- the shape of it, checked ------------------------------------------------------------------------------------

static_assert(sizeof(LogEntry) == 16 && sizeof(SessionRecord) == 128 && sizeof(StreamRecord) == 64);
static_assert(sizeof(ChunkRecord) == 64 && alignof(ChunkRecord) == 64);
static_assert(sizeof(ItemRecord) == 64 && alignof(ItemRecord) == 64, "a draw reads one line an item");
static_assert(sizeof(ItemLinks) == 32 && sizeof(EpisodeRecord) == 16 && sizeof(HeapNode) == 24);
static_assert(sizeof(PatternRecord) == kPatternBytes);
static_assert(sizeof(SleepSlot) == 24 && sizeof(CallSlot) == 128 + 4 * kMaxNames && sizeof(SaveLease) == 128);
static_assert(offsetof(LockBlock, hold_seq) == 128 && offsetof(UndoLog, entries) == 128);
static_assert(sizeof(Header) <= 4096);
static_assert(std::atomic<CallOwner>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// A hash of every size above, the lock's kind and size, the C library's family and the pointer size. A segment with
// another hash is refused at attach.
uint64_t layout_hash() noexcept;

// ---- planning ----------------------------------------------------------------------------------------------------

struct ColumnSpec {
  uint32_t row_bytes, flags;  // row_bytes of plain and mutable columns; others have their own
  uint32_t packed_bytes = 0;  // see ColumnRecord
};

struct TableSpec {
  std::string name;
  uint32_t max_size = 1, max_times_sampled = 0, on_full = kOnFullEvict, item_steps = 1;
  uint32_t sampler = kUniform, remover = kFifo;
  double sampler_exponent = 1.0, remover_exponent = 1.0;
  double samples_per_insert = 1.0, min_diff = 0.0, max_diff = 0.0;
  int64_t min_size_to_sample = 1;
  bool count_deletes = false;
  uint32_t shard = 0;
};

struct ArenaSpec {
  std::vector<ColumnSpec> columns;
  uint32_t chunk_steps = 1, num_chunks = 1, max_streams = 1, max_sessions = 1;
  uint32_t num_blocks = 0, block_bytes = 0;  // bytes: a multiple of 64
  std::string specs;                         // opaque
  std::vector<TableSpec> tables;
};

struct Plan {
  Geometry geometry;
  Offsets offsets;
  std::vector<ColumnRecord> columns;
  uint64_t index_bytes, data_bytes;  // whole pages
};

// Sizes and offsets of an arena. Throws std::invalid_argument, which names what is out of range. Attaching plans again
// and refuses a segment whose plan differs, so a change of any number here needs another kLayoutVersion.
Plan plan_arena(const ArenaSpec& spec);

struct SelectorPlacement {
  RoleLayout roles[2];
  TreeLayout extremes[2];
  uint64_t end;
};

// Lays out the trees, heaps and dense arrays of a table of `max_size` items from `offset` on.
SelectorPlacement place_selectors(uint32_t max_size, uint32_t sampler, uint32_t remover, uint64_t priorities_offset,
                                  uint64_t offset);

inline constexpr uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// How many words the bits of a SaveLease take.
inline constexpr uint64_t save_words(uint32_t num_chunks) { return (uint64_t{num_chunks} + 63) / 64; }

}  // namespace shmreplay
