// A stream writer with the rules that make items of its steps: what an append, a hand-made item or the end of an
// episode is.
//
//   writer.begin(WriterCall::kAppend);
//   ...                                          // cells of stream()'s row are written and marked
//   writer.look_at_row(priority, missing);       // what the rules find due; nothing is in a table yet
//   RuleWriter::insert(writers, wait);           // of one or of many, in as few holds as fit
//   writer.conclude();                           // all is in: the row is finished; nothing is: the row is as it was;
//                                                // some is: the call is unfinished
//
// A writer that commits every few steps asks may_hold_back() before it inserts, and calls hold_back() in its place.
//
// Private to its process, as the stream writer is, and to one call at a time.
#pragma once

#include "write/due_insert.h"
#include "write/held_back.h"
#include "write/item_rules.h"
#include "write/stream_writer.h"

namespace shmreplay {

// What a writer knows of the signature and of its episodes.
struct WriterFacts {
  std::vector<NumberFormat> formats;  // of every column
  std::vector<uint32_t> end_columns;  // bool columns of shape () that end an episode when true
  int truncated = -1;                 // that of them, or -1, that does not terminate it; the others do
  bool across_episodes = false;       // an append after such an end is no error
};

enum class WriterCall { kNothing, kAppend, kItem, kEnd };

class RuleWriter {
 public:
  // `commit_every`: steps whose items go in with one hold.
  RuleWriter(Arena& arena, const TableFacts& table, uint32_t history, const WriterFacts& facts,
             std::vector<ItemRule> rules, uint32_t commit_every = 1);

  StreamWriter& stream() noexcept { return stream_; }
  const StreamWriter& stream() const noexcept { return stream_; }

  // A call of which some items are in and others are not: nothing but its rest may be done until that is concluded.
  WriterCall unfinished() const noexcept { return unfinished_; }
  bool needs_end_episode() const noexcept { return ended_ && !facts_.across_episodes; }
  // The column, or -1, that the episode's final step lacks: windows look at the next step of the last one, and there
  // are end columns but the last step did not terminate. `has_row`: there is a final step, or will be, and `is_given`
  // says which columns it is about to get.
  template <class IsGiven>
  int lacks_of_final_step(bool clear_history, bool has_row, IsGiven is_given) const;

  // Finished steps of the newest that an item of whole spans may have, the open row besides.
  uint32_t longest_span() const noexcept { return stream_.history().num_whole() + (stream_.row().is_open() ? 1 : 0); }

  // Begins a call; take_back() goes back to here.
  void begin(WriterCall call);

  // Find what is due: of the row that was written; of the episode's end, where an open row is its final step; by a
  // selection, whose reference is the newest step; as a span of the newest `length` steps. The priority is the call's,
  // negative for the table's default. After kMissingCell, kHistory or kBadPriority the call has not begun.
  Status look_at_row(double priority, ItemRule::Missing& missing);
  Status look_at_end(bool clear_history, double priority, ItemRule::Missing& missing);
  Status look_by(ItemRule& selection, double priority, ItemRule::Missing& missing);
  Status look_at_span(uint32_t length, double priority);

  // What the item that is due brings for per-item columns. After a failure: again, or take_back().
  Status bring_values(const char* bytes, uint64_t num_bytes, const Wait& wait);

  // Whether what an append or a hand-made item found due may wait for a later call. hold_back() lets it wait: then the
  // call is concluded as if the items were in. It fails as insert() does.
  bool may_hold_back() const noexcept { return !held_.is_time(stream_.history().newest_step(), num_due()); }
  Status hold_back();
  const HeldBack& held() const noexcept { return held_; }
  HeldBack& held() noexcept { return held_; }
  // Puts in what is held back and nothing else; also between begin() and a look.
  Status publish(const Wait& wait);

  // Puts in what is due, and not in yet, of these writers of one arena; in their order, each whole before the next
  // begins. A single writer's held-back items go in first. A failure is about the writer at `at`.
  static Status insert(std::span<RuleWriter* const> writers, const Wait& wait, size_t& at, bool counted = true);

  // Appends what is due to `to`. The caller puts it in before the steps leave the history and before the episode ends;
  // this call may be concluded as if the items were in.
  void hand_over(std::vector<DueItem>& to);

  // Ends the call: whether all of it is done.
  bool conclude();
  // Ends it before all is in, also if nothing is due.
  void postpone();
  // Ends it when none of its items is in, and must not be.
  void take_back();

  // Items of the call: keys of those that are in, the first `num_in`, and each one's rule.
  uint32_t num_due() const noexcept { return static_cast<uint32_t>(due_.size()); }
  uint32_t num_in() const noexcept { return num_in_; }
  const std::vector<int64_t>& keys() const noexcept { return keys_; }
  uint32_t rule_of(uint32_t i) const noexcept { return rule_of_[i]; }
  size_t num_rules() const noexcept { return rules_.size(); }

 private:
  Status end_look(Status status, double priority);
  Status insert_with_held(const Wait& wait, bool counted);
  void note_rule(uint32_t rule) { rule_of_.resize(due_.size(), rule); }
  void note_end() noexcept;
  PreparedPattern& span_pattern();

  const WriterFacts facts_;
  StreamWriter stream_;
  std::vector<ItemRule> rules_;
  std::map<std::vector<bool>, std::unique_ptr<PreparedPattern>> span_patterns_;
  std::vector<uint64_t> before_;  // columns of the open row when the call began, none if none was open
  bool began_open_ = false;
  WriterCall call_ = WriterCall::kNothing, unfinished_ = WriterCall::kNothing;
  std::vector<DueItem> due_;  // of the call
  std::vector<uint32_t> rule_of_;
  std::vector<int64_t> keys_;
  uint32_t num_in_ = 0;
  HeldBack held_;                // of calls that are concluded
  bool clears_ = true;           // whether the end under way clears the history
  bool ended_ = false;           // the last finished row ended its episode
  bool terminated_now_ = false;  // the last step did
};

template <class IsGiven>
int RuleWriter::lacks_of_final_step(bool clear_history, bool has_row, IsGiven is_given) const {
  if (facts_.end_columns.empty() || terminated_now_ || stream_.history().episode_steps() == 0) return -1;
  for (const ItemRule& rule : rules_) {
    if (!rule.wants_final() || (!clear_history && rule.reach == Reach::kStretch)) continue;
    for (const RuleOutput& o : rule.outputs) {
      if (!o.moves || (has_row && !rule.is_next(o))) continue;
      const bool is_there = has_row && ((stream_.row().is_open() && stream_.row().has(o.column)) || is_given(o.column));
      if (!is_there) return o.column;
    }
  }
  return -1;
}

}  // namespace shmreplay
