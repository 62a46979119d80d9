// One call that reads items: sample, get by keys, or view.
//
// In holds of at most kGroup draws it asks the limiter, draws, counts, copies each item's descriptor and names its
// chunks; after the unlock it gathers, then drops the lease. A call that must wait for the limiter does so with nothing
// named. What needs more names or runs than one lease has goes in parts. A view's last part is not gathered: its lease
// outlives the call.
#pragma once

#include "chunks/leases.h"
#include "items/item_table.h"
#include "read/draw_room.h"
#include "read/gather_threads.h"
#include "sessions/blocked.h"
#include "trees/distinct_draws.h"

namespace shmreplay {

// What the caller provides to receive rows; called without the lock.
class BatchSink {
 public:
  virtual ~BatchSink() = default;
  // Before each part is gathered: outputs for `structure`, each with room for `rows[o]` rows an item. On the first call
  // the sink makes its buffers; later ones may ask for more rows than before, when items 0 .. done are gathered
  // already. false ends the call with kInterrupted.
  virtual bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept = 0;
  virtual std::vector<OutputBuffer>& outputs() noexcept = 0;
  // Where what the items brought goes; nullptr: nowhere.
  virtual ItemValues* item_values() noexcept { return nullptr; }
  // What the draw says of items first .. first + n - 1 of the batch. Once for each part.
  virtual void describe(int64_t first, const Pick* picks, uint32_t n) noexcept = 0;
};

// Items drawn under one lease, and what tells their rows.
struct DrawnItems {
  const PatternCache& patterns;
  const Pick* picks;
  uint32_t n;
  const Run* runs;
  const BlockRef* brought;  // by the picks; nullptr where there are no per-item columns
  const uint32_t* rows;     // by output: how long it is in a batch
};

// What the caller provides to look at items where they lie; called without the lock.
class ViewSink {
 public:
  virtual ~ViewSink() = default;
  // `stays`: the part is as it is, and its chunks are named, until SampleCall::drop(); else until this returns, and the
  // rows must be copied. false ends the call with kInterrupted.
  virtual bool take(const DrawnItems& part, bool stays) noexcept = 0;
};

struct SampleOptions {
  uint32_t n = 1;
  uint32_t at_least = 1;             // fewer than n are enough once these are drawn and no more are admitted
  bool count = true;                 // false: a look that needs no permission and moves nothing
  const double* uniforms = nullptr;  // n of them, in [0, 1)
  // By output of the items' structure: rows that the batch has room for. Items of more are not drawn (kTooLong).
  const std::vector<uint32_t>* most_rows = nullptr;
  bool distinct = false;     // no item twice; kTooFewItems where there are not at_least of them
  uint32_t num_threads = 1;  // that gather a large batch, the caller among them
  bool waits = true;         // false: what is admitted now is all, kOk
  Part part{};               // of a `distinct` call of a random sampler: no items but these
};

struct SampleResult {
  Status status;
  uint32_t done;                // items in the batch, also when status tells that the rest did not come
  double smallest_probability;  // of the table's items of positive priority, when the last group was drawn
                                // (Prioritized)
  uint64_t available = 0;       // kTooFewItems: items that could have been drawn once each
};

// Private scratch of one call at a time; kept and reused by its owner.
class SampleCall {
 public:
  explicit SampleCall(Arena& arena);

  SampleResult sample(const TableFacts& table, const SampleOptions& options, const Wait& wait, BatchSink& sink);

  // As sample(), without copying: the last part stays named after the call. That is all of it, unless the limiter or
  // the size of a lease came in between: what was drawn before a sleep can not stay (rule 7).
  SampleResult view(const TableFacts& table, const SampleOptions& options, const Wait& wait, ViewSink& sink);

  // Ends a view. Idempotent; without the lock.
  void drop() noexcept { lease_.drop(); }

  // Chunks that one view can name whatever its items are.
  static constexpr uint32_t kViewChunks = kMaxNames - kMaxItemChunks;

  // How the table's items are structured, and in rows() how long batches of them are. While there has never been an
  // item: nullptr, or with `waits` as sample() would wait for one (`count` as there). Valid until the next call.
  Status structure(const TableFacts& table, bool waits, bool count, const Wait& wait, const Pattern*& found);
  const std::vector<uint32_t>& rows() const { return rows_; }

  // The live ones of `keys`, in the order given. `found` gets the index of each in keys.
  SampleResult get(const TableFacts& table, const int64_t* keys, uint32_t n, const Wait& wait, BatchSink& sink,
                   uint32_t* found);

  // The same, without copying; no part stays.
  SampleResult look_up(const TableFacts& table, const int64_t* keys, uint32_t n, const Wait& wait, ViewSink& sink,
                       uint32_t* found);

 private:
  enum class Stop { kDone, kPartFull, kNotAdmitted, kNoneLeft, kNoRoom, kOutOfTries };
  // `deliver(first, stays)` takes what was drawn together; `keeps_last`: the last such part stays under its lease;
  // `make_room(done)` gets what kNoRoom wanted.
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
  std::vector<uint32_t> rows_;  // a part's padded lengths, by output
  uint32_t structure_pattern_ = kNone;
  // Of a call that takes its items out of the table, and therefore gets its memory before it draws.
  bool takes_ = false;
  bool lacks_room_ = false;         // the item that was picked last was left for want of it
  std::vector<uint32_t> prepared_;  // the table's longest outputs that the sink has room for
  DrawRoom room_;
  GatherThreads threads_;
  double smallest_probability_ = 0;
  uint64_t available_ = 0;
};

}  // namespace shmreplay
