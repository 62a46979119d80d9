// One call that reads items: sample, get by keys, or view.
//
// It works in holds of at most kGroup draws. A hold asks the limiter, draws, counts, copies each item's descriptor and
// names its chunks. After the unlock the call gathers the rows, then drops the lease. While a call waits for the
// limiter it has nothing named. A call that needs more names or runs than fit one lease goes in parts. A view's last
// part is not gathered: its lease outlives the call.
#pragma once

#include "chunks/leases.h"
#include "items/item_table.h"
#include "read/draw_room.h"
#include "read/gather_threads.h"
#include "sessions/blocked.h"
#include "trees/distinct_draws.h"

namespace shmreplay {

// Receives rows; the caller provides it. Called without the lock.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // Called before each part is gathered: outputs() must have room for items of `structure`, with rows[o] rows an item.
  // On the first call the sink makes its buffers. Later calls may ask for more rows than before, when the first `done`
  // items are already gathered. false ends the call with kInterrupted.
  virtual bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept = 0;
  virtual std::vector<OutputBuffer>& outputs() noexcept = 0;
  // Where the values that the items brought go; nullptr: nowhere.
  virtual ItemValues* item_values() noexcept { return nullptr; }
  // Tells what was drawn for items first .. first + n - 1 of the batch. Called once for each part.
  virtual void describe(int64_t first, const Pick* picks, uint32_t n) noexcept = 0;
};

// Items drawn under one lease, and what is needed to find their rows.
struct DrawnItems {
  const PatternCache& patterns;
  const Pick* picks;
  uint32_t n;
  const Run* runs;
  const BlockRef* brought;  // by pick; nullptr where there are no per-item columns
  const uint32_t* rows;     // by output: its length in a batch
};

// Looks at items where they lie; the caller provides it. Called without the lock.
class ViewSink {
 public:
  virtual ~ViewSink() = default;
  // `stays`: the part and the names of its chunks stay until SampleCall::drop(). Else they stay until this returns, and
  // the rows must be copied. false ends the call with kInterrupted.
  virtual bool take(const DrawnItems& part, bool stays) noexcept = 0;
};

struct SampleOptions {
  uint32_t n = 1;
  uint32_t at_least = 1;             // fewer than n suffice once these are drawn and no more are admitted
  bool count = true;                 // false: a look, which asks no limiter and changes nothing
  const double* uniforms = nullptr;  // n of them, in [0, 1)
  // For each output of the items' structure: how many rows the batch has room for. Longer items are not drawn
  // (kTooLong).
  const std::vector<uint32_t>* most_rows = nullptr;
  bool distinct = false;     // no item twice; kTooFewItems if at_least of them cannot be drawn
  uint32_t num_threads = 1;  // that gather a large batch, the caller included
  bool waits = true;         // false: takes only what is admitted now, and answers kOk
  Part part{};               // for a `distinct` call of a random sampler: only these items
};

struct SampleResult {
  Status status;
  uint32_t done;                // items in the batch, also when `status` says that the rest did not come
  double smallest_probability;  // of the table's items of positive priority, when the last group was drawn
                                // (Prioritized)
  uint64_t available = 0;       // kTooFewItems: items that could have been drawn once each
};

// The private memory of one call at a time; its owner keeps and reuses it.
class SampleCall {
 public:
  explicit SampleCall(Arena& arena);

  SampleResult sample(const TableFacts& table, const SampleOptions& options, const Wait& wait, BatchSink& sink);

  // Like sample(), but copies nothing: the last part stays named after the call. That part is the whole draw, unless
  // the call slept for the limiter or the items did not fit one lease: what was drawn before a sleep cannot stay (rule
  // 7).
  SampleResult view(const TableFacts& table, const SampleOptions& options, const Wait& wait, ViewSink& sink);

  // Ends a view. Idempotent; without the lock.
  void drop() noexcept { lease_.drop(); }

  // How many chunks one view can name, whatever its items are.
  static constexpr uint32_t kViewChunks = kMaxNames - kMaxItemChunks;

  // The structure of the table's items; rows() then says how long each output is in a batch. If the table has never had
  // an item: nullptr; with `waits`, waits for one as sample() would (with the same `count`). Valid until the next call.
  Status structure(const TableFacts& table, bool waits, bool count, const Wait& wait, const Pattern*& found);
  const std::vector<uint32_t>& rows() const { return rows_; }

  // Gets the live items of `keys`, in the order given. `found` gets the index in `keys` of each.
  SampleResult get(const TableFacts& table, const int64_t* keys, uint32_t n, const Wait& wait, BatchSink& sink,
                   uint32_t* found);

  // The same, without copying; no part stays.
  SampleResult look_up(const TableFacts& table, const int64_t* keys, uint32_t n, const Wait& wait, ViewSink& sink,
                       uint32_t* found);

 private:
  enum class Stop { kDone, kPartFull, kNotAdmitted, kNoneLeft, kNoRoom, kOutOfTries };
  // `deliver(first, stays)` takes what was drawn together. `keeps_last`: the last such part stays under its lease.
  // `make_room(done)` gets the memory that was missing at kNoRoom.
  template <class Deliver, class MakeRoom>
  SampleResult draw_all(const TableFacts& table, const SampleOptions& options, const Wait& wait, bool keeps_last,
                        Deliver deliver, MakeRoom make_room);
  template <class Deliver>
  SampleResult get_all(const TableFacts& table, const int64_t* keys, uint32_t n, const Wait& wait, uint32_t* found,
                       Deliver deliver);
  Status take(const TableFacts& table, ViewSink& sink, bool stays);
  Status draw_part(const TableFacts& table, const SampleOptions& options, uint32_t from, const Wait& wait,
                   Blocked& blocked, Stop& stop);
  void begin_call(bool takes);
  Stop draw_group(Hold& hold, const TableFacts& table, const SampleOptions& options, uint32_t from);
  static bool fits(const TableFacts& table, const SampleOptions& options);
  static uint32_t admitted(const Hold& hold, const TableFacts& table, const SampleOptions& options, uint32_t want);
  uint32_t pick(const Hold& hold, const Selector& sampler, const SampleOptions& options, uint32_t at, uint32_t want,
                uint32_t* items);
  void note_smallest(const TableFacts& table);
  bool has_rows_for(const TableFacts& table) const;
  bool add_pick(Hold& hold, const TableFacts& table, uint32_t g, double probability, bool count);
  const Pattern& pad_rows(const TableFacts& table, uint32_t record);
  Status make_room(const TableFacts& table, uint32_t record, int64_t first, BatchSink& sink);
  Status make_room_early(const TableFacts& table, uint32_t want, int64_t done, const Wait& wait, BatchSink& sink);
  Status deliver(const TableFacts& table, int64_t first, BatchSink& sink, uint32_t num_threads = 1);
  void note_table(const TableFacts& table);

  static constexpr uint32_t kPart = kMaxNames;
  Arena& arena_;
  Lease lease_;
  PatternCache patterns_;
  DistinctDraws distinct_;
  std::vector<Pick> picks_;
  std::vector<BlockRef> brought_;  // by the picks, where there are per-item columns
  std::vector<Run> runs_;
  std::vector<uint32_t> rows_;  // by output: the padded lengths of a part
  uint32_t structure_pattern_ = kNone;
  // For a call that takes its items out of the table, and so gets its memory before it draws.
  bool takes_ = false;
  bool lacks_room_ = false;         // the item picked last was left because there is no room for it
  std::vector<uint32_t> prepared_;  // the table's longest outputs for which the sink has room
  DrawRoom room_;
  GatherThreads threads_;
  double smallest_probability_ = 0;
  uint64_t available_ = 0;
};

}  // namespace shmreplay
