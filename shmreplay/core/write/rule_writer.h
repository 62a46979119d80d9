// A stream writer with the rules that make items of its steps. This is where an append, a hand-made item and the end of
// an episode are defined.
//
//   writer.begin(WriterCall::kAppend);
//   ...                                     // write and mark the cells of stream()'s row
//   writer.look_at_row(priority, missing);  // finds what is due by the rules; nothing is in a table yet
//   RuleWriter::insert(writers, wait);      // puts in what is due, of one writer or of many, in as few holds as fit
//   writer.conclude();                      // all is in: the row is finished; nothing is: the row is as it was;
//                                           // some is: the call is unfinished
//
// A writer that commits every few steps asks may_hold_back() before it inserts, and calls hold_back() instead.
//
// Private to its process, as the stream writer is. One call at a time.
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
  int truncated = -1;                 // the one of them that truncates, or -1; the others terminate
  bool across_episodes = false;       // an append after an episode's end is no error
};

enum class WriterCall { kNothing, kAppend, kItem, kEnd };

class RuleWriter {
 public:
  // `commit_every`: how many steps' items go in with one hold.
  RuleWriter(Arena& arena, const TableFacts& table, uint32_t history, const WriterFacts& facts,
             std::vector<ItemRule> rules, uint32_t commit_every = 1);

  StreamWriter& stream() noexcept { return stream_; }
  const StreamWriter& stream() const noexcept { return stream_; }

  // The call of which some items are in and others are not. Until its rest is in, no other call may be made.
  WriterCall unfinished() const noexcept { return unfinished_; }
  bool needs_end_episode() const noexcept { return ended_ && !facts_.across_episodes; }
  // A column that the episode's final step must have and lacks, or -1. It must have one if windows look at the next
  // step of the last one, and there are end columns but the last step did not terminate. `has_row`: there is a final
  // step, or there will be; `is_given` says which columns it is about to get.
  template <class IsGiven>
  int lacks_of_final_step(bool clear_history, bool has_row, IsGiven is_given) const;

  // How many of the newest steps an item of whole spans may have: finished steps, and the open row.
  uint32_t longest_span() const noexcept { return stream_.history().num_whole() + (stream_.row().is_open() ? 1 : 0); }

  // Begins a call. take_back() goes back to this point.
  void begin(WriterCall call);

  // These find the items that are due:
  // - look_at_row(): of the row that was written;
  // - look_at_end(): of the episode's end, where an open row is the final step;
  // - look_by(): by a selection, whose reference is the newest step;
  // - look_at_span(): a span of the newest `length` steps, for a table of the arena; kNone: for the writer's own.
  //
  // `priority` is the call's; negative: the table's default. After kMissingCell, kHistory or kBadPriority the call has
  // not begun.
  Status look_at_row(double priority, ItemRule::Missing& missing);
  Status look_at_end(bool clear_history, double priority, ItemRule::Missing& missing);
  Status look_by(ItemRule& selection, double priority, ItemRule::Missing& missing);
  Status look_at_span(uint32_t length, double priority, uint32_t table = kNone);

  // Writes what the due item brings for per-item columns. After a failure: call it again, or take_back().
  Status bring_values(const char* bytes, uint64_t num_bytes, const Wait& wait);

  // Whether the items that an append or a hand-made item found due may wait for a later call. hold_back() lets them
  // wait: then the call is concluded as if they were in. Like insert(), it refuses items that can never go in.
  bool may_hold_back() const noexcept { return !held_.is_time(stream_.history().newest_step(), num_due()); }
  Status hold_back();
  const HeldBack& held() const noexcept { return held_; }
  HeldBack& held() noexcept { return held_; }
  // Puts in the items that are held back and nothing else. Also allowed between begin() and a look.
  Status publish(const Wait& wait);

  // Puts in the items of these writers (of one arena) that are due and not in yet, in the writers' order: all of one
  // writer's before those of the next. A single writer's held-back items go in first. `at`: the writer that a failure
  // is about.
  static Status insert(std::span<RuleWriter* const> writers, const Wait& wait, size_t& at, bool counted = true);

  // Appends the due items to `to`. The caller must put them in before their steps leave the history and before the
  // episode ends. This call may be concluded as if they were in.
  void hand_over(std::vector<DueItem>& to);

  // Ends the call. Answers whether all of it is done.
  bool conclude();
  // Ends the call before all of it is in, also if nothing is due.
  void postpone();
  // Ends the call when none of its items is in and none may go in.
  void take_back();

  // The items of the call. keys(): the first num_in() are the keys of those that are in. rule_of(i): the rule of item
  // i.
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
  std::vector<uint64_t> before_;  // columns of the open row when the call began; none if no row was open
  bool began_open_ = false;
  WriterCall call_ = WriterCall::kNothing, unfinished_ = WriterCall::kNothing;
  std::vector<DueItem> due_;  // items of the call
  std::vector<uint32_t> rule_of_;
  std::vector<int64_t> keys_;
  uint32_t num_in_ = 0;
  HeldBack held_;                // items of calls that are concluded
  bool clears_ = true;           // whether the end under way clears the history
  bool ended_ = false;           // the last finished row ended its episode
  bool terminated_now_ = false;  // the last finished row terminated its episode
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
